"""What a person reads: the panel as Markdown, in pieces that whole and streamed replies share."""

from collections.abc import Sequence

from bench_proxy.panel.seats import Answer, Report, Seat, Seating


def heading(seating: Seating) -> str:
    """The collection, the panel, who was asked and what for."""
    seats = ", ".join(seat.name for seat in seating.seats)
    count = f"{len(seating.seats)} seat{'s' if len(seating.seats) != 1 else ''}"
    lines = [
        f"# bench/{seating.collection}",
        f"Panel `{seating.panel}`, {count}: {seats}. Shape: {seating.shape} (by {seating.shape_by}).",
    ]
    return "\n\n".join(lines) + "\n\n"


def partial(seating: Seating, answers: Sequence[Answer]) -> str:
    """The line that says which seats are missing and why; empty when the panel is full."""
    lost = [f"{s.alias} was skipped ({s.why})" for s in seating.skipped]
    for answer in answers:
        name = f"the merger {answer.seat.name}" if answer.seat.kind == "merger" else answer.seat.name
        if answer.status == "error" and answer.error is not None:
            lost.append(f"{name} failed ({answer.error.status} {answer.error.type})")
        elif answer.status == "late":
            lost.append(f"{name} is late (not done after {answer.seconds:.1f} s)")
        elif answer.status == "empty":
            lost.append(f"{name} came back empty")
    return f"**Partial panel**: {'; '.join(lost)}.\n\n" if lost else ""


def section(answer: Answer) -> str:
    """One seat: who, its call, how it went, and the answer or the error."""
    return f"{_title(answer.seat)}{_result(answer)}\n\n{_body(answer)}\n\n"


def live_head(seat: Seat) -> str:
    """What stands above an answer that is still being given: how it went stands below, in `live_foot`."""
    return _title(seat)


def live_foot(answer: Answer) -> str:
    remark = _remark(answer)
    above = "\n\n" if answer.text and remark else ""
    return f"{above}{remark}\n\n{_result(answer)}\n\n"


def closing(verdict_url: str, answers: Sequence[Answer]) -> str:
    """How to say which answers were useful; the call that it shows is one that can be judged.

    Without an address, which a program without a proxy has none of, only which ids to say it by.
    """
    call = next(answer.seat.call for answer in answers if answer.status == "ok")
    if not verdict_url:
        return f"---\n\nSay which answers were useful by their call ids, such as `{call}`.\n"
    return f'---\n\nSay which answers were useful: POST {verdict_url} {{"call": "{call}", "useful": true}}\n'


def note(report: Report) -> str:
    return f"{report.note}\n\n" if report.note else ""


def whole(report: Report, verdict_url: str) -> str:
    """The whole reply in mode `all`."""
    sections = "".join(section(answer) for answer in report.answers)
    lost = partial(report.seating, report.all)
    return heading(report.seating) + lost + sections + note(report) + closing(verdict_url, report.answers)


def merged(report: Report, verdict_url: str) -> str:
    """The whole reply in mode `merged`; every answer when there is no merged one."""
    return whole(report, verdict_url) if report.merged is None else report.merged + merged_foot(report)


def merged_foot(report: Report) -> str:
    """A rule, then one line: who merged, its call, each seat and how it went, so that dissent can be looked up."""
    seats = ", ".join(f"{a.seat.name} {a.status} (`{a.seat.call}`)" for a in report.answers)
    by = f"Merged by {report.merger.seat.alias} (`{report.merger.seat.call}`)" if report.merger else "Not merged"
    skipped = "".join(f", {s.alias} skipped ({s.why})" for s in report.seating.skipped)
    remark = f" {report.note}" if report.note else ""
    partly = "**Partial panel.** " if report.partial else ""
    return f"\n\n---\n\n{partly}{by} from: {seats}{skipped}.{remark}\n"


def _title(seat: Seat) -> str:
    return f"## {seat.title}\n\n"


def _result(answer: Answer) -> str:
    return f"`{answer.seat.call}`, {answer.status}, {answer.seconds:.1f} s"


def _body(answer: Answer) -> str:
    return "\n\n".join(part for part in (answer.text, _remark(answer)) if part)


def _remark(answer: Answer) -> str:
    """What is to be said beside the answer's own text; nothing for an answer that went well."""
    if answer.error is not None:
        message = "" if answer.seat.mask else f": {answer.error.message}"
        return f"*{answer.error.type}, {answer.error.status}*{message}"
    match answer.status:
        case "late":
            return "*Not done yet; the answer will be on the record when it comes.*"
        case "empty":
            why = " It was cut at its token limit before any text." if answer.finish_reason == "length" else ""
            return f"*No text came back.{why}*"
        case _:
            return ""

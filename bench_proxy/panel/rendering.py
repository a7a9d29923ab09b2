"""What a person reads: the panel as Markdown, in pieces that whole and streamed replies share."""

from collections.abc import Sequence

from bench_proxy.panel.seats import Answer, Report, Seating


def heading(seating: Seating) -> str:
    """The collection, the panel, who was asked and what for."""
    seats = ", ".join(seat.alias for seat in seating.seats)
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
        if answer.status == "error" and answer.error is not None:
            lost.append(f"{answer.seat.alias} failed ({answer.error.status} {answer.error.type})")
        elif answer.status == "late":
            lost.append(f"{answer.seat.alias} is late (not done after {answer.seconds:.1f} s)")
        elif answer.status == "empty":
            lost.append(f"{answer.seat.alias} came back empty")
    return f"**Partial panel**: {'; '.join(lost)}.\n\n" if lost else ""


def section(answer: Answer) -> str:
    """One seat: who, its call, how it went, and the answer or the error."""
    seat = answer.seat
    head = f"## {seat.label}: {seat.alias}\n\n`{seat.call}`, {answer.status}, {answer.seconds:.1f} s\n\n"
    return head + _body(answer) + "\n\n"


def closing(verdict_url: str, answers: Sequence[Answer]) -> str:
    """How to say which answers were useful; the call that it shows is one that can be judged."""
    call = next(answer.seat.call for answer in answers if answer.status == "ok")
    return f'---\n\nSay which answers were useful: POST {verdict_url} {{"call": "{call}", "useful": true}}\n'


def whole(report: Report, verdict_url: str) -> str:
    """The whole reply in mode `all`."""
    sections = "".join(section(answer) for answer in report.answers)
    note = f"{report.note}\n\n" if report.note else ""
    lost = partial(report.seating, report.answers)
    return heading(report.seating) + lost + sections + note + closing(verdict_url, report.answers)


def _body(answer: Answer) -> str:
    if answer.error is not None:
        return f"*{answer.error.type}, {answer.error.status}*: {answer.error.message}"
    match answer.status:
        case "late":
            return "*Not done yet; the answer will be on the record when it comes.*"
        case "empty":
            why = " It was cut at its token limit before any text." if answer.finish_reason == "length" else ""
            return f"*No text came back.{why}*"
        case _:
            return answer.text

"""How a panel is told while it runs: one voice for each way of streaming (pure: events in, deltas out)."""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from bench_proxy.config import StreamMode
from bench_proxy.formats.base import Alternative
from bench_proxy.formats.request import Brief
from bench_proxy.panel import rendering
from bench_proxy.panel.seats import Answer, Piece, Report, Seat, Seating


@dataclass(frozen=True, slots=True)
class Delta:
    """Text for one alternative of the reply; without any, that the alternative is there. `done`: it is the last."""

    text: str
    index: int = 0
    done: bool = False


class Voice(Protocol):
    def opening(self, seating: Seating) -> list[Delta]: ...

    def heard(self, event: Piece | Answer) -> list[Delta]: ...

    def closing(self, report: Report) -> list[Delta]: ...


class Sections:
    """Each seat's section the moment that seat is done."""

    def __init__(self, verdict_url: str) -> None:
        self._verdict_url = verdict_url

    def opening(self, seating: Seating) -> list[Delta]:
        return [Delta(rendering.heading(seating))]

    def heard(self, event: Piece | Answer) -> list[Delta]:
        return [Delta(rendering.section(event))] if isinstance(event, Answer) else []

    def closing(self, report: Report) -> list[Delta]:
        return [Delta(_last_lines(report, self._verdict_url))]


class Floor:
    """Token by token: the first seat to speak holds the floor, the others wait and follow in the order in which they
    started, each from its beginning.
    """

    def __init__(self, verdict_url: str) -> None:
        self._verdict_url = verdict_url
        self._speaking: Seat | None = None
        self._line: deque[Seat] = deque()
        self._said: dict[str, list[str]] = {}
        self._done: dict[str, Answer] = {}

    def opening(self, seating: Seating) -> list[Delta]:
        return [Delta(rendering.heading(seating))]

    def heard(self, event: Piece | Answer) -> list[Delta]:
        seat = event.seat
        if seat.call not in self._said:
            self._said[seat.call] = []
            self._line.append(seat)
        if isinstance(event, Answer):
            self._done[seat.call] = event
        elif seat == self._speaking:
            return [Delta(event.text)]
        else:
            self._said[seat.call].append(event.text)
        text = self._pass_the_floor()
        return [Delta(text)] if text else []

    def closing(self, report: Report) -> list[Delta]:
        return [Delta(_last_lines(report, self._verdict_url))]

    def _pass_the_floor(self) -> str:
        """End the speaker who is done, let the next one speak, and so on while they are done already."""
        written: list[str] = []
        while True:
            if self._speaking is not None:
                answer = self._done.get(self._speaking.call)
                if answer is None:
                    return "".join(written)
                written.append(rendering.live_foot(answer))
                self._speaking = None
            if not self._line:
                return "".join(written)
            self._speaking = self._line.popleft()
            written.append(rendering.live_head(self._speaking))
            written += self._said[self._speaking.call]
            self._said[self._speaking.call] = []


class Merged:
    """The merger's own words as they come; the seats are one line below.

    Blanks before its first word are held back: a merger that says nothing else is followed by another.
    """

    def __init__(self, verdict_url: str) -> None:
        self._verdict_url = verdict_url
        self._blanks = ""
        self._spoken = False

    def opening(self, seating: Seating) -> list[Delta]:
        return []

    def heard(self, event: Piece | Answer) -> list[Delta]:
        if event.seat.kind != "merger":
            return []
        if isinstance(event, Answer):
            self._blanks = ""
            return []
        text, self._blanks = self._blanks + event.text, ""
        if not self._spoken and not text.strip():
            self._blanks = text
            return []
        self._spoken = True
        return [Delta(text)]

    def closing(self, report: Report) -> list[Delta]:
        if self._spoken:
            return [Delta(rendering.merged_foot(report))]
        return [Delta(rendering.merged(report, self._verdict_url))]


class Choices:
    """Each seat is an alternative of its own, interleaved as the models speak."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._explorers = 0
        self._spoken: set[int] = set()

    def opening(self, seating: Seating) -> list[Delta]:
        self._index = {seat.call: index for index, seat in enumerate(seating.seats)}
        self._explorers = sum(seat.kind == "explorer" for seat in seating.seats)
        return [Delta("", index) for index in self._index.values()]

    def heard(self, event: Piece | Answer) -> list[Delta]:
        index = self._index_of(event.seat)
        if isinstance(event, Piece):
            self._spoken.add(index)
            return [Delta(event.text, index)]
        remark = choice_remark(event)
        # A seat that was not streamed, or said nothing before, has its text here.
        unsaid = "" if index in self._spoken else event.text
        return [Delta(unsaid + remark, index, done=True)]

    def closing(self, report: Report) -> list[Delta]:
        return []

    def _index_of(self, seat: Seat) -> int:
        """In seat order: explorers that take the place of others stand behind, by number, whoever speaks first."""
        seated = len(self._index)
        return self._index.get(seat.call, seated + seat.number - self._explorers - 1)


def choice_remark(answer: Answer) -> str:
    """What an alternative says beside its model's words; an answer that went well is left as it is."""
    if answer.status == "ok":
        return ""
    why = f" ({answer.error.status} {answer.error.type})" if answer.error else ""
    return f"{' ' if answer.text else ''}[{answer.seat.name}: {answer.status}{why}]"


def finishes(report: Report) -> list[str]:
    """How each alternative ended: of a `choices` reply in seat order, of a merged one as its merger ended."""
    if report.seating.reply == "choices":
        return [_finish(answer) for answer in report.answers]
    # A merge of one answer is that answer.
    return ["stop" if report.merged is None else _finish(report.merger or report.ok[0])]


CALLS = frozenset({"tool_calls", "function_call"})
"""How a model ends that made a call up: nobody waits for its result."""


def _finish(answer: Answer) -> str:
    reason = answer.finish_reason
    return reason if answer.status == "ok" and reason and reason not in CALLS else "stop"


def voice(brief: Brief, stream: StreamMode, verdict_url: str) -> Voice:
    """Who tells a panel of this brief; `stream` is what its collection says of streaming."""
    if brief.reply == "choices":
        return Choices()
    if brief.reply == "merged":
        return Merged(verdict_url)
    return (Floor if (brief.stream_mode or stream) == "live" else Sections)(verdict_url)


def alternatives(report: Report, verdict_url: str) -> list[Alternative]:
    """A whole reply: one text, or in mode `choices` one a seat."""
    match report.seating.reply:
        case "choices":
            said = [answer.text + choice_remark(answer) for answer in report.answers]
            return [Alternative(*pair) for pair in zip(said, finishes(report), strict=True)]
        case "merged":
            return [Alternative(rendering.merged(report, verdict_url), *finishes(report))]
        case _:
            return [Alternative(rendering.whole(report, verdict_url))]


def _last_lines(report: Report, verdict_url: str) -> str:
    lost = rendering.partial(report.seating, report.all)
    return lost + rendering.note(report) + rendering.closing(verdict_url, report.answers)

"""In whatever order seats speak, fail, come late or replace one another: no word is lost, doubled or moved."""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.panel import rendering, voices
from bench_proxy.panel.seats import Answer, Piece, Report, Seat, SeatError, Seating, SeatKind, Status

PANEL = "p20260301-120005-abcdefghijklmnop"
URL = "https://bench.example.org/bench/verdict"

Event = Piece | Answer
words = st.lists(st.text("ab \n漢#*`", min_size=1, max_size=4), max_size=5)


def live_section(answer: Answer) -> str:
    """The whole of what `live` writes of a seat."""
    return rendering.live_head(answer.seat) + answer.text + rendering.live_foot(answer)


def seat(kind: SeatKind, number: int) -> Seat:
    return Seat(f"{PANEL}.{kind}{number}", kind, f"{kind}-{number}")


def merger(number: int) -> Seat:
    return Seat(f"{PANEL}.merger{number if number > 1 else ''}", "merger", f"merger-{number}")


def piece(seat: Seat, text: str) -> Piece:
    return Piece(seat, text)


def answer(seat: Seat, text: str, status: Status = "ok") -> Answer:
    error = SeatError(502, "bad_response", "the stream ended without a terminal event") if status == "error" else None
    return Answer(seat, status, 1.5, text=text, error=error, finish_reason="stop" if status == "ok" else None)


def seating(*seats: Seat, reply: Any = "all") -> Seating:
    return Seating(PANEL, "core", "bench/core", reply, "general", "default", seats, ())


def text_of(deltas: list[voices.Delta], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas if delta.index == index)


@dataclass(frozen=True)
class Told:
    """A panel as its events tell it: who sat from the start, what happened, how it ended."""

    seated: Seating
    events: tuple[Event, ...]
    report: Report

    @property
    def started(self) -> list[Seat]:
        """The seats in the order of their first sign of life."""
        return list(dict.fromkeys(event.seat for event in self.events))


@st.composite
def panels(draw: st.DrawFn, *, piecewise: bool = True, at_least: int = 1) -> Told:
    """Members and explorers, and explorers that replace explorers: any texts, any ends, in any interleaving."""
    members = [seat("member", n) for n in range(1, draw(st.integers(at_least, 4)) + 1)]
    explorers = [seat("explorer", n) for n in range(1, draw(st.integers(0, 2)) + 1)]
    replaced = [seat("explorer", len(explorers) + n) for n in range(1, draw(st.integers(0, len(explorers))) + 1)]
    waiting: list[list[Event]] = []
    answers: dict[str, Answer] = {}
    for each in (*members, *explorers, *replaced):
        said = draw(words)
        status: Status = draw(
            st.sampled_from(["ok", "error", "late"] if "".join(said).strip() else ["empty", "error", "late"])
        )
        if len(answers) < at_least and status != "ok":
            said, status = ["ok"], "ok"
        answers[each.call] = answer(each, "".join(said) if piecewise or status == "ok" else "", status)
        pieces = [piece(each, text) for text in said] if piecewise else []
        waiting.append([*pieces, answers[each.call]])
    events: list[Event] = []
    while waiting:
        # One that replaces another starts when there is something that it can replace.
        open_to = [
            events_of
            for events_of in waiting
            if events_of[0].seat not in replaced or any(isinstance(e, Answer) for e in events)
        ]
        of = draw(st.sampled_from(open_to or waiting))
        events.append(of.pop(0))
        waiting = [rest for rest in waiting if rest]
    seats = (*members, *explorers, *replaced)
    report = Report(seating(*seats), tuple(answers[s.call] for s in seats), 2.0)
    return Told(seating(*members, *explorers), tuple(events), report)


def closing(report: Report) -> str:
    lost = rendering.partial(report.seating, report.answers)
    return lost + rendering.note(report) + rendering.closing(URL, report.answers)


@given(panels())
def test_live_has_the_sections_in_the_order_in_which_the_seats_started(told: Told) -> None:
    voice = voices.Floor(URL)
    said = voice.opening(told.seated)
    for event in told.events:
        said += voice.heard(event)
    said += voice.closing(told.report)
    answers = {a.seat.call: a for a in told.report.answers}
    sections = "".join(live_section(answers[s.call]) for s in told.started)
    assert text_of(said) == rendering.heading(told.seated) + sections + closing(told.report)


@given(panels())
def test_live_says_at_once_all_that_may_be_said(told: Told) -> None:
    """After each event: the sections of those who are done, up to one who is not, and of that one every word so far."""
    voice = voices.Floor(URL)
    said = text_of(voice.opening(told.seated))
    words: defaultdict[str, str] = defaultdict(str)
    done: dict[str, Answer] = {}
    started: dict[str, Seat] = {}
    for event in told.events:
        said += text_of(voice.heard(event))
        started[event.seat.call] = event.seat
        if isinstance(event, Answer):
            done[event.seat.call] = event
        else:
            words[event.seat.call] += event.text
        expected = rendering.heading(told.seated)
        for call, each in started.items():
            if call not in done:
                expected += rendering.live_head(each) + words[call]
                break
            expected += live_section(done[call])
        assert said == expected


@given(panels())
def test_the_first_to_speak_is_passed_on_piece_by_piece(told: Told) -> None:
    voice = voices.Floor(URL)
    voice.opening(told.seated)
    first = told.events[0]
    voice.heard(first)
    for event in told.events[1:]:
        heard = voice.heard(event)
        if isinstance(first, Piece) and event.seat == first.seat:
            if isinstance(event, Answer):
                break
            assert heard == [voices.Delta(event.text)]
        elif isinstance(first, Piece):
            assert heard == []


@given(panels(piecewise=False))
def test_seats_have_their_sections_in_the_order_in_which_they_answered(told: Told) -> None:
    voice = voices.Sections(URL)
    said = text_of(voice.opening(told.seated))
    expected = rendering.heading(told.seated)
    for event in told.events:
        said += text_of(voice.heard(event))
        assert isinstance(event, Answer)
        expected += rendering.section(event)
        assert said == expected
    assert said + text_of(voice.closing(told.report)) == expected + closing(told.report)


@given(panels())
def test_sections_come_whole_also_from_seats_that_were_streamed(told: Told) -> None:
    voice = voices.Sections(URL)
    voice.opening(told.seated)
    for event in told.events:
        heard = voice.heard(event)
        assert heard == ([voices.Delta(rendering.section(event))] if isinstance(event, Answer) else [])


@given(panels())
def test_each_choice_is_its_seats_words_in_seat_order(told: Told) -> None:
    voice = voices.Choices()
    said = voice.opening(told.seated)
    assert [delta.index for delta in said] == list(range(len(told.seated.seats)))
    for event in told.events:
        heard = voice.heard(event)
        if isinstance(event, Piece):
            assert [delta.text for delta in heard] == [event.text]
        said += heard
    said += voice.closing(told.report)
    for index, each in enumerate(told.report.answers):
        assert text_of(said, index) == each.text + voices.choice_remark(each)
    assert {delta.index for delta in said} <= set(range(len(told.report.answers)))
    chosen = replace(told.report, seating=replace(told.report.seating, reply="choices"))
    assert len(voices.finishes(chosen)) == len(told.report.answers)


@given(panels(piecewise=False))
def test_a_choice_that_came_whole_has_its_text_too(told: Told) -> None:
    voice = voices.Choices()
    said = voice.opening(told.seated)
    for event in told.events:
        said += voice.heard(event)
    for index, each in enumerate(told.report.answers):
        assert text_of(said, index) == each.text + voices.choice_remark(each)


blanks = st.text(" \n", max_size=3)
openings = st.sampled_from(["says nothing", "says blanks", "does not start"])


@given(panels(at_least=2), st.lists(openings, max_size=1), words.filter(lambda w: "".join(w).strip()), st.booleans())
def test_a_streamed_merge_reads_like_a_whole_one(told: Told, failing: list[str], said: list[str], breaks: bool) -> None:
    """A first merger that fails before its first word leaves nothing; one that breaks off in the middle leaves that."""
    voice = voices.Merged(URL)
    text = text_of(voice.opening(told.seated))
    for event in told.events:
        assert voice.heard(event) == []
    for number, how in enumerate(failing, 1):
        written = " \n" if how == "says blanks" else ""
        for event in (*([piece(merger(number), written)] if written else []), answer(merger(number), written, "error")):
            assert voice.heard(event) == []
    last = merger(len(failing) + 1)
    for word in said:
        text += text_of(voice.heard(piece(last, word)))
    final = answer(last, "".join(said), "error" if breaks else "ok")
    assert voice.heard(final) == []
    report = Report(told.report.seating, told.report.answers, 3.0, "A note.", final, merged=final.text)
    assert text + text_of(voice.closing(report)) == rendering.merged(report, URL)


@given(panels())
def test_words_of_a_merger_come_one_by_one(told: Told) -> None:
    voice = voices.Merged(URL)
    voice.opening(told.seated)
    assert voice.heard(piece(merger(1), " ")) == []
    assert voice.heard(piece(merger(1), "All ")) == [voices.Delta(" All ")]
    assert voice.heard(piece(merger(1), " ")) == [voices.Delta(" ")]
    assert voice.heard(piece(merger(1), "agree.")) == [voices.Delta("agree.")]


@given(panels())
def test_without_a_merge_every_answer_is_there(told: Told) -> None:
    voice = voices.Merged(URL)
    said = voice.opening(told.seated)
    for event in (*told.events, answer(merger(1), "", "error")):
        said += voice.heard(event)
    report = Report(told.report.seating, told.report.answers, 3.0, "Not merged.", answer(merger(1), "", "error"))
    said += voice.closing(report)
    assert text_of(said) == rendering.whole(report, URL)
    assert "the merger merger-1 failed" in text_of(said)


def test_two_explorers_that_replace_others_keep_their_places_whoever_speaks_first() -> None:
    seats = (seat("member", 1), seat("explorer", 1), seat("explorer", 2))
    voice = voices.Choices()
    voice.opening(seating(*seats))
    assert voice.heard(piece(seat("explorer", 4), "second")) == [voices.Delta("second", 4)]
    assert voice.heard(piece(seat("explorer", 3), "first")) == [voices.Delta("first", 3)]


@pytest.mark.parametrize("status", ["error", "late", "empty"])
def test_a_choice_that_went_wrong_says_so(status: Status) -> None:
    assert f"member-1: {status}" in voices.choice_remark(answer(seat("member", 1), "", status))

"""What a person reads of a panel: every seat is named, and a panel that lost one never looks full."""

from typing import Any

import pytest

from bench_proxy.panel import rendering
from bench_proxy.panel.seats import Answer, Report, Seat, SeatError, Seating, SeatKind, Skipped

PANEL = "p20260301-120005-abcdefghijklmnop"
URL = "https://bench.example.org/bench/verdict"


def seat(kind: SeatKind, number: int, alias: str) -> Seat:
    return Seat(f"{PANEL}.{kind}{number}", kind, alias)


GPT, CLAUDE = seat("member", 1, "gpt"), seat("member", 2, "claude")
OTTER, HERON = seat("explorer", 1, "otter"), seat("guest", 1, "heron")


def seating(*seats: Seat, skipped: tuple[Skipped, ...] = (), **more: Any) -> Seating:
    return Seating(
        **{
            "panel": PANEL,
            "collection": "core",
            "model": "bench/core",
            "reply": "all",
            "shape": "review",
            "shape_by": "collection",
            "seats": seats,
            "skipped": skipped,
            **more,
        }
    )


def ok(of: Seat, text: str = "Yes.", seconds: float = 1.25, **more: Any) -> Answer:
    return Answer(of, "ok", seconds, text=text, **more)


def error(of: Seat, status: int, type: str, message: str) -> Answer:
    return Answer(of, "error", 0.5, error=SeatError(status, type, message))


def whole(*answers: Answer, skipped: tuple[Skipped, ...] = (), note: str = "") -> str:
    at = seating(*(a.seat for a in answers), skipped=skipped)
    return rendering.whole(Report(at, answers, 2.0, note), URL)


def test_a_panel_that_lost_seats_names_each_and_why_before_any_answer() -> None:
    text = whole(
        ok(GPT),
        error(CLAUDE, 429, "rate_limit", "slow down"),
        Answer(OTTER, "late", 15.04),
        Answer(HERON, "empty", 3.0),
        skipped=(Skipped("member", "owl", "cannot see images"),),
    )
    (line,) = [line for line in text.splitlines() if line.startswith("**Partial panel**")]
    for lost in (
        "owl was skipped (cannot see images)",
        "claude failed (429 rate_limit)",
        "otter is late (not done after 15.0 s)",
        "heron came back empty",
    ):
        assert lost in line
    assert "gpt" not in line
    assert text.index(line) < text.index("## ")


@pytest.mark.parametrize(
    ("answer", "skipped"),
    [
        (error(GPT, 500, "server_error", "broken"), ()),
        (Answer(GPT, "late", 1.0), ()),
        (Answer(GPT, "empty", 1.0), ()),
        (ok(GPT), (Skipped("guest", "owl", "same family as gpt"),)),
    ],
)
def test_one_lost_seat_is_enough_to_be_partial(answer: Answer, skipped: tuple[Skipped, ...]) -> None:
    assert "partial" in whole(answer, ok(CLAUDE), skipped=skipped).lower()
    assert Report(seating(skipped=skipped), (answer, ok(CLAUDE)), 1.0).partial


def test_a_full_panel_does_not_speak_of_partial() -> None:
    assert "partial" not in whole(ok(GPT), ok(CLAUDE)).lower()
    assert not Report(seating(), (ok(GPT), ok(CLAUDE)), 1.0).partial


def test_the_heading_names_collection_panel_seats_shape_and_who_set_it() -> None:
    text = rendering.heading(seating(GPT, CLAUDE))
    for told in ("bench/core", PANEL, "2 seats", "gpt", "claude", "review", "collection"):
        assert told in text
    assert "1 seat:" in rendering.heading(seating(GPT))


def test_each_seat_has_a_section_in_seat_order() -> None:
    text = whole(ok(GPT, "First."), ok(CLAUDE, "Second."), ok(OTTER, "Third."), ok(HERON, "Fourth."))
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads == ["## Member 1: gpt", "## Member 2: claude", "## Explorer 1: otter", "## Guest 1: heron"]
    places = [text.index(answer) for answer in ("First.", "Second.", "Third.", "Fourth.")]
    assert places == sorted(places)


def test_a_section_says_who_which_call_how_it_went_and_how_long_it_took() -> None:
    assert rendering.section(ok(GPT, "Yes.\n\n```\ncode\n```", 1.25)) == (
        f"## Member 1: gpt\n\n`{PANEL}.member1`, ok, 1.2 s\n\nYes.\n\n```\ncode\n```\n\n"
    )


def test_the_section_of_a_failed_seat_says_why() -> None:
    text = rendering.section(error(GPT, 429, "rate_limit", "slow down"))
    assert f"`{PANEL}.member1`, error" in text
    for told in ("429", "rate_limit", "slow down"):
        assert told in text


def test_the_section_of_a_late_seat_says_that_the_answer_will_be_on_the_record() -> None:
    text = rendering.section(Answer(GPT, "late", 30.0))
    assert "late, 30.0 s" in text
    assert "record" in text


def test_the_section_of_an_empty_seat_says_when_it_was_cut_before_any_text() -> None:
    assert "token limit" in rendering.section(Answer(GPT, "empty", 1.0, finish_reason="length"))
    assert "token limit" not in rendering.section(Answer(GPT, "empty", 1.0, finish_reason="stop"))


def test_the_last_line_says_how_to_send_a_verdict() -> None:
    last = whole(ok(GPT), ok(CLAUDE)).rstrip().splitlines()[-1]
    assert f"POST {URL}" in last
    assert f'{{"call": "{PANEL}.member1", "useful": true}}' in last


def test_the_call_that_the_last_line_shows_is_one_that_can_be_judged() -> None:
    last = whole(error(GPT, 500, "server_error", "broken"), ok(CLAUDE)).rstrip().splitlines()[-1]
    assert f"{PANEL}.member2" in last


def test_a_note_stands_below_the_answers() -> None:
    text = whole(ok(GPT, "Yes."), note="The ledger could not be written.")
    assert text.index("Yes.") < text.index("The ledger could not be written.") < text.index(URL)


def test_a_whole_reply_is_the_pieces_of_a_streamed_one() -> None:
    answers = (ok(GPT), error(CLAUDE, 500, "server_error", "broken"))
    at = seating(GPT, CLAUDE)
    pieces = [rendering.heading(at), *map(rendering.section, answers), rendering.partial(at, answers)]
    text = whole(*answers)
    for piece in pieces:
        assert piece in text


# The data beside the text


def test_the_data_of_a_seat_leaves_out_what_is_not_known() -> None:
    assert ok(GPT).as_json() == {
        "call": f"{PANEL}.member1",
        "seat": "member",
        "alias": "gpt",
        "status": "ok",
        "seconds": 1.25,
        "answer": "Yes.",
    }


def test_the_data_of_a_seat_has_all_that_is_known() -> None:
    counted = {"prompt_tokens": 812, "completion_tokens": 0, "cost": 0.0}
    known = ok(GPT, seconds=1.235, first_token_seconds=0.31, finish_reason="stop", **counted)
    assert known.as_json() == {
        "call": f"{PANEL}.member1",
        "seat": "member",
        "alias": "gpt",
        "status": "ok",
        "seconds": 1.235,
        "first_token_seconds": 0.31,
        "prompt_tokens": 812,
        "completion_tokens": 0,
        "cost": 0.0,
        "finish_reason": "stop",
        "answer": "Yes.",
    }


def test_the_data_of_a_failed_seat_has_its_error() -> None:
    data = error(GPT, 429, "rate_limit", "slow down").as_json()
    assert data["status"] == "error"
    assert data["error"] == {"status": 429, "type": "rate_limit", "message": "slow down"}
    assert "answer" not in data


def test_the_data_of_a_panel_is_the_contracts() -> None:
    answers = (
        ok(GPT, prompt_tokens=10, completion_tokens=5, cost=0.1),
        ok(CLAUDE, prompt_tokens=20, cost=0.2),
        error(OTTER, 500, "server_error", "broken"),
    )
    owl = Skipped("guest", "owl", "same family as gpt")
    report = Report(seating(GPT, CLAUDE, OTTER, skipped=(owl,)), answers, 2.0, "A note.")
    assert report.as_json(URL) == {
        "panel": PANEL,
        "collection": "bench/core",
        "reply": "all",
        "shape": "review",
        "shape_by": "collection",
        "partial": True,
        "seats": [a.as_json() for a in answers],
        "skipped": [{"seat": "guest", "alias": "owl", "why": "same family as gpt"}],
        "note": "A note.",
        "cost": 0.3,
        "verdict": {"method": "POST", "url": URL},
    }
    assert (report.prompt_tokens, report.completion_tokens) == (30, 5)


def test_a_panel_whose_costs_nobody_knows_has_no_cost() -> None:
    report = Report(seating(GPT), (ok(GPT),), 1.0)
    assert report.cost is None
    assert "cost" not in report.as_json(URL)


@pytest.mark.parametrize(
    ("answers", "answered"),
    [
        ((), False),
        ((Answer(GPT, "late", 1.0), Answer(CLAUDE, "empty", 1.0), error(OTTER, 500, "server_error", "")), False),
        ((error(GPT, 500, "server_error", ""), ok(CLAUDE)), True),
    ],
)
def test_a_panel_is_answered_when_one_seat_is_ok(answers: tuple[Answer, ...], answered: bool) -> None:
    assert bool(Report(seating(), answers, 1.0).ok) is answered

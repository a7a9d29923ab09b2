"""Seats are numbered by kind; on a blind panel neither letter, id nor order says who sits where."""

import json
import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.panel import rendering, voices
from bench_proxy.panel.seating import Numbering, letters
from bench_proxy.panel.seats import Seat, SeatKind
from tests.doubles import Models, Table, fails

PANEL = "p20260301-120005-abcdefghijklmnop"
URL = "https://bench.example.org/bench/verdict"
KINDS: tuple[SeatKind, ...] = ("member", "guest", "explorer")


def test_seats_are_numbered_within_their_kind() -> None:
    numbering = Numbering(PANEL)
    order: tuple[SeatKind, ...] = ("member", "member", "guest", "explorer", "explorer", "merger", "merger")
    calls = [numbering.seat(kind, "gpt").call for kind in order]
    names = ("member1", "member2", "guest1", "explorer1", "explorer2", "merger", "merger2")
    assert calls == [f"{PANEL}.{name}" for name in names]


def test_a_title_has_the_number_of_its_call() -> None:
    numbering = Numbering(PANEL)
    assert [numbering.seat("member", a).title for a in ("gpt", "claude")] == ["Member 1: gpt", "Member 2: claude"]
    assert [numbering.seat("merger", a).title for a in ("gpt", "claude")] == ["Merger: gpt", "Merger 2: claude"]
    assert Seat(f"{PANEL}.blind3", "member", "gpt", "C").title == "Seat C"


def test_an_alias_that_ends_like_a_kind_changes_nothing() -> None:
    numbering = Numbering("pmember7.explorer9")
    seat = numbering.seat("member", "my-member2")
    assert (seat.number, seat.title) == (1, "Member 1: my-member2")


def test_letters() -> None:
    assert [letters(n) for n in (1, 2, 26, 27, 52, 53, 702, 703)] == ["A", "B", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_no_two_numbers_have_the_same_letters(first: int, second: int) -> None:
    assert (letters(first) == letters(second)) == (first == second)


@given(st.integers(0, 8), st.integers(0, 16), st.integers())
def test_blind_seats_have_letters_of_their_own_however_many_there_are(most: int, count: int, seed: int) -> None:
    numbering = Numbering(PANEL, random.Random(seed), blind=True, most=most)  # noqa: S311
    seats = [numbering.seat(KINDS[n % 3], f"model-{n}") for n in range(count)]
    assert len({seat.mask for seat in seats}) == len({seat.call for seat in seats}) == count
    for seat in seats:
        assert seat.call == f"{PANEL}.blind{seat.number}"
        assert seat.mask == letters(seat.number)
        assert (seat.shown_kind, seat.name, seat.title) == ("blind", seat.mask, f"Seat {seat.mask}")
    assert {seat.number for seat in seats[:most]} <= set(range(1, most + 1))
    assert [seat.number for seat in seats[most:]] == list(range(most + 1, max(most, count) + 1))


def test_letters_are_drawn_among_all_so_that_a_gap_says_nothing() -> None:
    """Two seats out of five letters: each pair comes about as often as any other."""
    source = random.Random(20261129)  # noqa: S311
    drawn: Counter[frozenset[str]] = Counter()
    for _ in range(4000):
        numbering = Numbering(PANEL, source, blind=True, most=5)
        drawn[frozenset(numbering.seat("member", alias).mask for alias in "ab")] += 1
    assert len(drawn) == 10
    assert all(300 <= times <= 500 for times in drawn.values())


def test_the_merger_of_a_blind_panel_is_no_seat_among_the_others() -> None:
    seat = Numbering(PANEL, blind=True, most=5).seat("merger", "gpt")
    assert (seat.call, seat.mask, seat.name) == (f"{PANEL}.merger", "", "gpt")


async def test_each_model_has_each_letter_and_each_place_about_equally_often() -> None:
    members, explorers = ["ann", "ben", "cat"], ["dan", "eve"]
    table = Table(Models(), members=members, others=explorers, explorers=2)
    masks: defaultdict[str, Counter[str]] = defaultdict(Counter)
    places: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for _ in range(1000):
        _, report = await table.ask(blind=True)
        assert [a.seat.mask for a in report.answers] == list("ABCDE")
        for place, answer in enumerate(report.answers):
            masks[answer.seat.alias][answer.seat.mask] += 1
            places[answer.seat.alias][place] += 1
    for of_model in (*masks.values(), *places.values()):
        assert len(of_model) == 5
        assert all(140 <= times <= 260 for times in of_model.values())


@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_that_a_caller_reads_names_a_blind_seat(stream: bool) -> None:
    scripts = {"ann": ["Yes."], "bob": [fails(500, message="bob is down")], "cat": ["No."], "dan": ["Maybe."]}
    table = Table(Models(**scripts), members=["ann", "bob", "cat"], others=["dan"], explorers=1)
    _, heard, report = await table.listen(blind=True, stream=stream, stream_mode="live")
    floor = voices.Floor(URL)
    told = floor.opening(report.seating)
    for event in heard:
        told += floor.heard(event)
    text = "".join(delta.text for delta in told) + rendering.whole(report, URL)
    data = json.dumps(report.as_json(URL))
    for alias in (*scripts, "member", "explorer"):
        assert alias not in data
        assert alias not in text
    assert '"cost": 0.003' in data  # what all cost together names nobody
    assert all("cost" not in seat for seat in report.as_json(URL)["seats"])


async def test_a_blind_seat_is_not_replaced_since_the_one_that_came_later_would_be_known() -> None:
    models = Models(dan=[fails(500)], ann=[0.05, "Yes."])
    table = Table(models, members=["ann"], others=["dan", "eve"], explorers=1)
    table.ledger.seated["eve"] = 1  # so that dan is the stalest
    _, report = await table.ask(blind=True)
    assert sorted(a.seat.alias for a in report.answers) == ["ann", "dan"]
    assert models.asked("eve") == []

"""Picks and comparisons in the ledger: durable, read back, and kept as sums in the transaction of the verdict."""

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bench_proxy.bench import Judged, Picked
from bench_proxy.errors import InvalidRequest, NotFound
from bench_proxy.keys import Use
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.marks import Pick
from bench_proxy.panel.seats import Answer, Report, Seat, SeatError, Seating, SeatKind
from bench_proxy.records import Record, Verdict, rated

ALIASES = ("ann", "ben", "cat")
OWNER, OTHER = "key-1", "key-2"


async def rows(ledger: SqlLedger, query: str) -> list[tuple[Any, ...]]:
    return await ledger._read(lambda connection: [tuple(row) for row in connection.execute(sa.text(query))])


def panel_id(number: int) -> str:
    return f"p20260301-120005-{number:016d}"


def member(panel: str, number: int, alias: str, kind: SeatKind = "member", mask: str = "") -> Seat:
    return Seat(f"{panel}.{'blind' if mask else kind}{number}", kind, alias, mask)


def answer(seat: Seat, status: Any = "ok") -> Answer:
    error = SeatError(500, "server_error", f"{seat.alias} is down") if status == "error" else None
    return Answer(seat, status, 0.1, text=f"I am {seat.alias}." if status == "ok" else "", error=error)


async def panel(
    ledger: SqlLedger,
    number: int = 1,
    *,
    seats: tuple[Seat, ...] | None = None,
    statuses: dict[str, str] | None = None,
    owner: str = OWNER,
    collection: str = "core",
    shape: str = "code",
) -> str:
    """One panel that is over; every member answered unless `statuses` says otherwise of an alias."""
    name = panel_id(number)
    seats = seats or tuple(member(name, n, alias) for n, alias in enumerate(ALIASES, 1))
    seating = Seating(name, collection, f"bench/{collection}", "all", shape, "default", seats, ())
    await ledger.opened(seating, owner, "Who?", 1_000 + number)
    answers = tuple(answer(seat, (statuses or {}).get(seat.alias, "ok")) for seat in seats)
    for place, each in enumerate(answers):
        await ledger.answered(seating, owner, each, place, Use(), late=False)
    await ledger.closed(Report(seating, tuple(a for a in answers if a.seat.kind != "merger"), 0.2))
    return name


async def lines(ledger: SqlLedger, collection: str | None = None, owner: str | None = None) -> dict[str, Record]:
    found = rated(await ledger.record(collection, owner), await ledger.wins(collection, owner))
    return {line.sums.alias: line for line in found}


async def test_a_pick_is_read_back_from_the_panel(ledger: SqlLedger) -> None:
    name = await panel(ledger)
    picked = await ledger.pick(Pick(name, f"{name}.member2", "short", "eve"), OWNER)
    assert picked == Picked(True, "ben", {f"{name}.member1": "ann", f"{name}.member3": "cat"})
    shown = await ledger.panel(name, OWNER)
    assert shown is not None
    assert shown["best"] == f"{name}.member2"
    assert [seat["owed"] for seat in shown["seats"]] == [False, False, False]
    first, best, _ = [seat["verdict"] for seat in shown["seats"]]
    assert (best["useful"], best["preferred"], best["note"], best["by"]) == (True, True, "short", "eve")
    assert (first["useful"], first["preferred"]) == (None, False)


async def test_nothing_of_a_picked_panel_is_owed(ledger: SqlLedger) -> None:
    name = await panel(ledger)
    calls = [f"{name}.member{n}" for n in (1, 2, 3)]
    assert await ledger.owed(calls, OWNER) == calls
    await ledger.pick(Pick(name, calls[0]), OWNER)
    assert await ledger.owed(calls, OWNER) == []
    assert [line.sums.owed for line in (await lines(ledger)).values()] == [0, 0, 0]
    await ledger.pick(Pick(name, None), OWNER)
    assert await ledger.owed(calls, OWNER) == calls
    assert [line.sums.owed for line in (await lines(ledger)).values()] == [1, 1, 1]


async def test_the_winner_counts_over_how_many_it_was_preferred(ledger: SqlLedger) -> None:
    name = await panel(ledger)
    await ledger.pick(Pick(name, f"{name}.member2"), OWNER)
    record = await lines(ledger)
    assert record["ben"].sums.preferred == 2
    assert (record["ben"].sums.useful, record["ben"].sums.not_useful) == (1, 0)
    assert (record["ann"].sums.useful, record["ann"].sums.not_useful, record["ann"].sums.not_preferred) == (0, 0, 1)


async def test_the_same_pick_again_writes_nothing(ledger: SqlLedger) -> None:
    name = await panel(ledger)
    pick = Pick(name, f"{name}.member2", "short")
    assert (await ledger.pick(pick, OWNER)).recorded
    before = await lines(ledger)
    assert await ledger.pick(pick, OWNER) == Picked(False, "ben", {f"{name}.member1": "ann", f"{name}.member3": "cat"})
    assert await lines(ledger) == before
    assert await rows(ledger, "SELECT panel, best, note FROM picks") == [(name, pick.best, "short")]


async def test_every_pick_stays_in_the_history(ledger: SqlLedger) -> None:
    name = await panel(ledger)
    for best in (f"{name}.member2", f"{name}.member3", None):
        await ledger.pick(Pick(name, best), OWNER)
    kept = await rows(ledger, "SELECT best, over FROM picks ORDER BY id")
    assert [best for best, _ in kept] == [f"{name}.member2", f"{name}.member3", None]
    assert kept[0][1] == f'["{name}.member1", "{name}.member3"]'


async def test_only_answers_take_part(ledger: SqlLedger) -> None:
    name = await panel(ledger, statuses={"cat": "error"})
    picked = await ledger.pick(Pick(name, f"{name}.member1"), OWNER)
    assert picked.over == {f"{name}.member2": "ben"}
    with pytest.raises(InvalidRequest, match="did not answer") as refused:
        await ledger.pick(Pick(name, f"{name}.member3"), OWNER)
    assert refused.value.status == 400


async def test_a_late_answer_was_not_part_of_the_pick_that_came_before_it(ledger: SqlLedger) -> None:
    name = await panel(ledger, statuses={"cat": "late"})
    best = Pick(name, f"{name}.member1")
    with pytest.raises(InvalidRequest, match="late"):
        await ledger.pick(Pick(name, f"{name}.member3"), OWNER)
    await ledger.pick(best, OWNER)
    seat = member(name, 3, "cat")
    seating = Seating(name, "core", "bench/core", "all", "code", "default", (seat,), ())
    await ledger.answered(seating, OWNER, answer(seat), 2, Use(), late=True)
    assert await ledger.owed([seat.call], OWNER) == [seat.call]
    again = await ledger.pick(best, OWNER)
    assert again.recorded
    assert list(again.over.values()) == ["ben", "cat"]


async def test_a_merge_is_no_answer_among_the_others(ledger: SqlLedger) -> None:
    name = panel_id(1)
    seats = (*(member(name, n, a) for n, a in enumerate(ALIASES, 1)), Seat(f"{name}.merger", "merger", "ann"))
    await panel(ledger, seats=seats)
    with pytest.raises(InvalidRequest, match="merged"):
        await ledger.pick(Pick(name, f"{name}.merger"), OWNER)
    picked = await ledger.pick(Pick(name, f"{name}.member2"), OWNER)
    assert set(picked.over) == {f"{name}.member1", f"{name}.member3"}
    await ledger.judge(Verdict(f"{name}.merger", False), OWNER)
    assert await ledger.wins(None, None) == {"code": {("ben", "ann"): 1, ("ben", "cat"): 1}}


@pytest.mark.parametrize("owner", [OTHER, OWNER])
async def test_what_does_not_exist_for_a_key_is_not_found(ledger: SqlLedger, owner: str) -> None:
    name = await panel(ledger)
    with pytest.raises(NotFound, match="no panel"):
        await ledger.pick(Pick(panel_id(7), f"{name}.member1"), owner)
    own = await panel(ledger, 2, owner=OTHER)
    theirs = name if owner == OTHER else own
    mine = own if owner == OTHER else name
    with pytest.raises(NotFound, match="no panel"):
        await ledger.pick(Pick(theirs, f"{theirs}.member1"), owner)
    for call in (f"{mine}.member9", f"{theirs}.member1"):
        with pytest.raises(NotFound, match="no call"):
            await ledger.pick(Pick(mine, call), owner)


async def test_a_seat_of_another_panel_is_refused(ledger: SqlLedger) -> None:
    first, second = await panel(ledger, 1), await panel(ledger, 2)
    with pytest.raises(InvalidRequest, match="another panel") as refused:
        await ledger.pick(Pick(first, f"{second}.member1"), OWNER)
    assert refused.value.status == 400


async def test_an_admin_picks_on_anybodys_panel_and_the_panels_owner_has_the_sums(ledger: SqlLedger) -> None:
    name = await panel(ledger)
    await ledger.pick(Pick(name, f"{name}.member1"), None)
    assert (await lines(ledger, owner=OWNER))["ann"].sums.preferred == 2
    assert await ledger.wins(None, OTHER) == {}


async def test_comparisons_are_kept_by_shape_collection_and_key(ledger: SqlLedger) -> None:
    where: list[dict[str, Any]] = [
        {"shape": "code"},
        {"shape": "prose", "collection": "writers"},
        {"shape": "code", "owner": OTHER},
    ]
    for number, of in enumerate(where):
        name = await panel(ledger, number, **of)
        await ledger.pick(Pick(name, f"{name}.member1"), None)
    pair = ("ann", "ben")
    assert {s: w[pair] for s, w in (await ledger.wins(None, None)).items()} == {"code": 2, "prose": 1}
    assert {s: w[pair] for s, w in (await ledger.wins("core", None)).items()} == {"code": 2}
    assert {s: w[pair] for s, w in (await ledger.wins("core", OWNER)).items()} == {"code": 1}
    assert {s: w[pair] for s, w in (await ledger.wins(None, OTHER)).items()} == {"code": 1}


async def test_a_blind_seat_keeps_its_letter_until_something_was_said_of_it(ledger: SqlLedger) -> None:
    name = panel_id(1)
    seats = tuple(member(name, n, alias, mask="ABC"[n - 1]) for n, alias in enumerate(ALIASES, 1))
    await panel(ledger, seats=seats, statuses={"cat": "error"})
    call = seats[0].call
    assert await ledger.judge(Verdict(call, None), OWNER) == Judged(False, "A")
    assert await ledger.judge(Verdict(call, None, "hm"), OWNER) == Judged(True, "A")
    assert await _names(ledger, name) == ["A", "B", "C"]
    assert await ledger.judge(Verdict(call, True), OWNER) == Judged(True, "ann")
    # Nobody may learn by elimination while there is something left to judge.
    assert await _names(ledger, name) == ["ann", "B", "C"]
    assert await ledger.judge(Verdict(call, None), OWNER) == Judged(True, "ann")


async def test_a_pick_reveals_a_blind_panel(ledger: SqlLedger) -> None:
    name = panel_id(1)
    seats = tuple(member(name, n, alias, mask="ABC"[n - 1]) for n, alias in enumerate(ALIASES, 1))
    await panel(ledger, seats=seats, statuses={"cat": "error"})
    assert await ledger.pick(Pick(name, None), OWNER) == Picked(False, None, {})
    assert await _names(ledger, name) == ["A", "B", "C"]
    picked = await ledger.pick(Pick(name, seats[1].call), OWNER)
    assert (picked.alias, list(picked.over.values())) == ("ben", ["ann"])
    assert await _names(ledger, name) == ["ann", "ben", "cat"]
    shown = await ledger.panel(name, OWNER)
    assert shown is not None
    assert shown["seats"][2]["error"]["message"] == "cat is down"


async def _names(ledger: SqlLedger, panel: str) -> list[str]:
    shown = await ledger.panel(panel, OWNER)
    assert shown is not None
    return [seat["alias"] for seat in shown["seats"]]


async def test_sums_are_those_of_all_panels_after_anything_that_was_said(ledger: SqlLedger) -> None:
    """Whatever was said in whatever order: the sums are what counting all rows anew gives."""
    source = random.Random(20261129)  # noqa: S311  the same sequence each time
    panels = [await panel(ledger, n, shape=source.choice(["code", "prose"])) for n in range(12)]
    said: list[Any] = []
    for _ in range(300):
        name = source.choice(panels)
        call = f"{name}.member{source.randint(1, 3)}"
        if source.random() < 0.4:
            said.append(ledger.pick(Pick(name, source.choice([call, None])), OWNER))
        else:
            said.append(ledger.judge(Verdict(call, source.choice([True, False, None])), OWNER))
    await asyncio.gather(*said)
    seats = await rows(ledger, "SELECT panel, shape, alias, useful, preferred FROM seats")
    wins: Counter[tuple[str, str, str]] = Counter()
    counts: Counter[tuple[str, str, str]] = Counter()
    for name, shape, alias, useful, preferred in seats:
        beaten = [
            other
            for of, _, other, o_useful, o_preferred in seats
            if of == name and useful and (o_useful == 0 or (preferred and o_preferred == 0))
        ]
        wins.update((shape, alias, loser) for loser in beaten)
        counts[shape, alias, "useful"] += useful == 1
        counts[shape, alias, "not_useful"] += useful == 0
        counts[shape, alias, "preferred"] += len(beaten) if preferred else 0
        counts[shape, alias, "not_preferred"] += useful is None and preferred == 0
    for scope in ((None, None), ("core", OWNER)):
        kept = await ledger.wins(*scope)
        assert +Counter({(s, *pair): n for s, pairs in kept.items() for pair, n in pairs.items()}) == +wins
        for line in await ledger.record(*scope):
            for name in ("useful", "not_useful", "preferred", "not_preferred"):
                assert getattr(line.sums, name) == counts[line.sums.shape, line.sums.alias, name]


# SQLite keeps whatever it is given.
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_odd_rows_give_a_valid_record(ledger: SqlLedger, tmp_path: Path) -> None:
    name = await panel(ledger)
    await ledger.pick(Pick(name, f"{name}.member1"), OWNER)
    with closing(sqlite3.connect(tmp_path / "bench.db")) as database, database:
        odd = [0, -5, 2**62, "many", None, 1e300, float("-inf")]
        for number, times in enumerate(odd):
            row = ("", "", "code", f"gone{number}", "ann", times)
            database.execute("INSERT OR IGNORE INTO wins VALUES (?, ?, ?, ?, ?, ?)", row)
        for owner in ("key-8", "key-9"):
            database.execute("INSERT INTO wins VALUES (?, ?, ?, ?, ?, ?)", ("core", owner, "code", "ann", "cat", 2**62))
            database.execute(
                "INSERT INTO sums SELECT 'core', ?, alias, shape, 4611686018427387904, answered, empty,"
                " failed, late, useful, not_useful, preferred, not_preferred, 0, 0, 0, 0, 0, 0 FROM sums"
                " WHERE collection = ''",
                (owner,),
            )
        database.execute("UPDATE sums SET preferred = -9, not_preferred = 99, useful = 1e300 WHERE alias = 'ben'")
        database.execute("UPDATE sums SET last_seated_ms = CASE alias WHEN 'ann' THEN 'once' ELSE -1e999 END")
    assert set(await ledger.reserve("code", lambda seated: sorted(seated, key=seated.__getitem__))) == set(ALIASES)
    everything, of_core = await lines(ledger), await lines(ledger, "core")
    assert set(everything) == set(of_core) == set(ALIASES)
    for line in (*everything.values(), *of_core.values()):
        assert line.rating is not None
        assert line.rating.low <= line.rating.rating <= line.rating.high
        assert line.sums.owed >= 0
        assert 0 <= line.interval.low <= line.interval.high <= 1

"""What is older than it is to be kept goes, whole; what is younger, open or counted stays."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from bench_proxy.errors import LedgerUnavailable, NotFound
from bench_proxy.ids import conversation_id
from bench_proxy.keys import day_of
from bench_proxy.ledger import pruning
from bench_proxy.ledger.pruning import DAY_MS, KEY_DAYS, NEVER_ENDED_MS, PASSED_ON_MS, remove, remove_of_keys
from bench_proxy.ledger.schema import (
    conversations,
    facts,
    key_days,
    key_holds,
    metadata,
    panels,
    seats,
    sums,
    turns,
    wins,
)
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.marks import Pick
from bench_proxy.panel.seats import Seating
from bench_proxy.records import Verdict
from tests.ledger.conftest import Open
from tests.ledger.panels import answer, seating
from tests.ledger.test_conversations import take, turn
from tests.ledger.test_store import full, open_panel, put

NOW = 1_772_366_400_000
DAYS = 30
OLD = NOW - DAYS * DAY_MS - 1
YOUNG = NOW - DAYS * DAY_MS
CONTENT = ("panels", "seats", "verdicts", "picks", "conversations", "turns")
MINE = "owner-1"


@pytest.fixture(autouse=True)
def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "now_ms", lambda: NOW)
    monkeypatch.setattr(pruning, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(pruning, "RESTS", 0)


async def prune(ledger: SqlLedger, days: int = DAYS) -> int:
    return await ledger.pruning.prune(lambda: days)


async def rows(ledger: SqlLedger) -> dict[str, int]:
    """Table -> how many rows it has, of those that hold what was asked, answered and said."""
    count = sa.select(sa.func.count())
    return await ledger._read(
        lambda c: {n: c.execute(count.select_from(metadata.tables[n])).scalar_one() for n in CONTENT}
    )


async def whole(ledger: SqlLedger, table: sa.Table) -> list[Any]:
    everything = sa.select(table).order_by(*table.primary_key)
    return await ledger._read(lambda c: [tuple(row) for row in c.execute(everything)])


async def change(ledger: SqlLedger, *statements: Any) -> None:
    for statement in statements:
        await ledger._durable(partial(_execute, statement))


def _execute(statement: Any, connection: sa.Connection) -> None:
    connection.execute(statement)


async def judged(ledger: SqlLedger, at_ms: int) -> Seating:
    """A panel of two, with a verdict, another one on the same answer, and a pick."""
    of = await full(ledger, "gpt", "claude", at_ms=at_ms)
    for useful in (False, True):
        await ledger.judge(Verdict(of.seats[0].call, useful, "Right.", ("It is so.",)), MINE)
    await ledger.pick(Pick(of.panel, of.seats[0].call), MINE)
    return of


async def conversation(ledger: SqlLedger, began: int, *, last: int | None = None) -> str:
    name = conversation_id()
    at = [began, began if last is None else last]
    await take(ledger, *(turn(name, turn=n, at_ms=at_ms, seconds=0.0) for n, at_ms in enumerate(at, 1)))
    await ledger.judge(Verdict(f"{name}.1", useful=True), MINE)
    return name


# What stays


@pytest.mark.parametrize("days", [0, 31])
async def test_nothing_goes_before_its_time(ledger: SqlLedger, days: int) -> None:
    await judged(ledger, OLD)
    await conversation(ledger, OLD)
    before = await rows(ledger)
    assert await prune(ledger, days) == 0
    assert await rows(ledger) == before


async def test_what_is_exactly_as_old_as_it_is_kept_stays(ledger: SqlLedger) -> None:
    await judged(ledger, YOUNG)
    await conversation(ledger, YOUNG)
    before = await rows(ledger)
    assert await prune(ledger) == 0
    assert await rows(ledger) == before


async def test_an_open_panel_is_not_touched_and_one_that_never_ended_is_in_the_end(ledger: SqlLedger) -> None:
    running, died = seating("gpt"), seating("gpt")
    await open_panel(ledger, running, at_ms=OLD)
    await put(ledger, running, answer(running))
    await open_panel(ledger, died, at_ms=OLD - NEVER_ENDED_MS)
    await put(ledger, died, answer(died))
    assert await prune(ledger) == 1
    assert await ledger.panel(died.panel, None) is None
    shown = await ledger.panel(running.panel, None)
    assert shown is not None
    assert [seat["answer"] for seat in shown["seats"]] == ["Yes."]


async def test_a_conversation_stays_whole_as_long_as_it_goes_on(ledger: SqlLedger) -> None:
    name = await conversation(ledger, OLD, last=YOUNG)
    assert await prune(ledger) == 0
    shown = await ledger.conversation(name, None)
    assert shown is not None
    assert len(shown["history"]) == 2


async def test_the_record_is_the_same_as_before(ledger: SqlLedger) -> None:
    await judged(ledger, OLD)
    await conversation(ledger, OLD)
    kept = [await whole(ledger, table) for table in (sums, wins)]
    assert all(kept)
    await prune(ledger)
    assert [await whole(ledger, table) for table in (sums, wins)] == kept


async def test_what_was_learned_of_models_stays_and_the_mark_of_pruning_is_no_model(ledger: SqlLedger) -> None:
    await full(ledger, "gpt", at_ms=OLD)
    assert await prune(ledger) == 1
    assert len(await whole(ledger, facts)) == 1
    assert await ledger.learned() == {}


# What goes


async def test_old_panels_and_conversations_go_with_all_that_was_said_of_them(ledger: SqlLedger) -> None:
    await judged(ledger, OLD)
    await conversation(ledger, OLD)
    assert all((await rows(ledger)).values())
    assert await prune(ledger) == 2
    assert await rows(ledger) == dict.fromkeys(CONTENT, 0)


async def test_the_young_beside_the_old_stay_whole(ledger: SqlLedger) -> None:
    await judged(ledger, YOUNG)
    await conversation(ledger, YOUNG)
    before = await rows(ledger)
    await judged(ledger, OLD)
    await conversation(ledger, OLD)
    assert await prune(ledger) == 2
    assert await rows(ledger) == before


async def test_a_verdict_on_what_was_removed_finds_no_call(ledger: SqlLedger) -> None:
    of = await full(ledger, "gpt", at_ms=OLD)
    name = await conversation(ledger, OLD)
    await prune(ledger)
    for call in (of.seats[0].call, f"{name}.1"):
        with pytest.raises(NotFound) as raised:
            await ledger.judge(Verdict(call, useful=True), None)
        assert raised.value.status == 404
        assert await ledger.owed([call], None) == []
    with pytest.raises(NotFound):
        await ledger.pick(Pick(of.panel, of.seats[0].call), None)


async def test_seats_without_a_panel_of_their_own_go_too(ledger: SqlLedger) -> None:
    """A seat that answered late, and whose panel was removed meanwhile."""
    of, name = await full(ledger, "gpt", at_ms=OLD), await conversation(ledger, OLD)
    day = "20250101"
    for kind, table, old in (("p", panels, of.panel), ("r", conversations, name)):
        stray = f"{kind}{day}-{old.partition('-')[2]}"
        await change(
            ledger,
            table.delete().where(table.c.id == old),
            seats.update().where(seats.c.panel == old).values(panel=stray, at_ms=OLD - NEVER_ENDED_MS),
        )
    assert await prune(ledger) == 2
    assert await whole(ledger, seats) == []


async def test_many_are_removed_in_small_transactions_between_which_others_write(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "MOST_AT_ONCE", 2)
    sizes: list[int] = []
    young: list[Seating] = []

    def noted(connection: sa.Connection, before_ms: int, most: int) -> int:
        sizes.append(remove(connection, before_ms, most))
        return sizes[-1]

    async def others() -> None:
        while len(sizes) < 4:
            young.append(await full(ledger, "gpt", at_ms=NOW))

    monkeypatch.setattr(pruning, "remove", noted)
    for _ in range(7):
        await full(ledger, "gpt", at_ms=OLD)
    removed, _ = await asyncio.gather(prune(ledger), others())
    assert removed == 7
    assert sizes == [2, 2, 2, 1, 0]
    assert await rows(ledger) == {**dict.fromkeys(CONTENT, 0), "panels": len(young), "seats": len(young)}


async def test_transactions_that_take_long_become_smaller(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def noted(connection: sa.Connection, before_ms: int, most: int) -> int:
        asked.append(most)
        return remove(connection, before_ms, min(most, 1))

    monkeypatch.setattr(pruning, "remove", noted)
    monkeypatch.setattr(pruning, "LONG_SECONDS", 0.0)
    for _ in range(9):
        await full(ledger, "gpt", at_ms=OLD)
    assert await prune(ledger) == 9
    assert asked == [100, 50, 25, 12, 6, 3, 1, 1, 1, 1]


async def test_a_conversation_of_very_many_turns_goes_in_several_transactions(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "MOST_TURNS", 3)
    name = conversation_id()
    await take(ledger, *(turn(name, turn=n, at_ms=OLD, seconds=0.0) for n in range(8)))
    left: list[int] = []

    def noted(connection: sa.Connection, before_ms: int, most: int) -> int:
        removed = remove(connection, before_ms, most)
        left.append(connection.execute(sa.select(sa.func.count()).select_from(turns)).scalar_one())
        return removed

    monkeypatch.setattr(pruning, "remove", noted)
    await prune(ledger)
    assert left == [5, 2, 0, 0]
    assert await whole(ledger, conversations) == []


async def test_one_that_was_broken_off_is_gone_on_with(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "MOST_AT_ONCE", 1)
    for _ in range(5):
        await judged(ledger, OLD)
    seen = iter([DAYS, DAYS, 0])
    assert await ledger.pruning.prune(lambda: next(seen, 0)) == 2
    left = await rows(ledger)
    assert (left["panels"], left["seats"], left["verdicts"], left["picks"]) == (3, 6, 6, 3)
    assert await prune(ledger) == 3
    assert await rows(ledger) == dict.fromkeys(CONTENT, 0)


def _spoilt(table: sa.Table) -> sa.Update:
    first = sa.select(sa.func.min(table.c.id)).scalar_subquery()
    return table.update().where(table.c.id == first).values(at_ms=sa.literal_column("'long ago'"))


@pytest.mark.parametrize("table", [panels, conversations], ids=lambda t: t.name)
async def test_odd_rows_do_not_stop_it(ledger: SqlLedger, table: sa.Table) -> None:
    if ledger._writing.dialect.name != "sqlite":
        pytest.skip("PostgreSQL keeps only what a column is for")
    await judged(ledger, OLD)
    await conversation(ledger, OLD)
    await judged(ledger, OLD)
    await conversation(ledger, OLD)
    await change(ledger, _spoilt(table))
    assert await prune(ledger) == 3
    assert (await rows(ledger))[table.name] == 1


async def test_no_statement_reads_a_table_from_end_to_end(ledger: SqlLedger) -> None:
    """But that of what is set aside for requests under way, which are few."""
    if ledger._writing.dialect.name != "sqlite":
        pytest.skip("PostgreSQL reads so small a table in whatever way")
    await judged(ledger, OLD)
    await conversation(ledger, OLD)
    await spend(ledger, KEY_DAYS + 1)
    sent: dict[str, Any] = {}

    def noted(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent[statement] = parameters

    sa.event.listen(ledger._writing, "before_cursor_execute", noted)
    await prune(ledger)
    sa.event.remove(ledger._writing, "before_cursor_execute", noted)
    with ledger._reading.connect() as connection:
        explained = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", sent[each]).all() for each in sent]
    steps = {row.detail for plan in explained for row in plan}
    assert {step for step in steps if step.startswith("SCAN")} == {"SCAN key_holds"}
    assert {step.split()[1] for step in steps if step.startswith("SEARCH")} >= {*CONTENT, "key_days"}


# What bench keys used


async def spend(ledger: SqlLedger, *ages: int) -> None:
    """Two keys use something so many days ago."""
    days = [{"key": key, "day": day_of(NOW - age * DAY_MS), "tokens": 1, "cost": 0.5} for key in "ab" for age in ages]
    await change(ledger, key_days.insert().values(days))


async def ages(ledger: SqlLedger) -> list[int]:
    """Of the days on which something was used, by both keys."""
    kept = [(key, day) for key, day, *_ in await whole(ledger, key_days)]
    found = [age for age in range(100) if all((key, day_of(NOW - age * DAY_MS)) in kept for key in "ab")]
    assert len(kept) == 2 * len(found)
    return found


@pytest.mark.parametrize(("days", "kept"), [(0, KEY_DAYS), (1, 1), (10, 10), (3650, KEY_DAYS)])
async def test_what_keys_used_is_kept_for_a_month_or_shorter(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, days: int, kept: int
) -> None:
    monkeypatch.setattr(pruning, "MOST_KEY_DAYS", 3)
    await spend(ledger, 0, kept, *range(kept + 1, kept + 6))
    assert await prune(ledger, days) == 0
    assert await ages(ledger) == [0, kept]


async def test_what_keys_used_goes_in_smaller_transactions_where_they_take_long(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def noted(connection: sa.Connection, before_ms: int, most: int) -> int:
        asked.append(most)
        return remove_of_keys(connection, before_ms, min(most, 1))

    monkeypatch.setattr(pruning, "remove_of_keys", noted)
    monkeypatch.setattr(pruning, "LONG_SECONDS", 0.0)
    await spend(ledger, KEY_DAYS + 1)
    await prune(ledger)
    assert asked == [500, 250, 125]
    assert await ages(ledger) == []


async def test_what_was_set_aside_by_a_process_that_died_goes_with_keys_that_never_ask_again(
    ledger: SqlLedger,
) -> None:
    holds = [{"id": f"h{until}", "key": "a", "tokens": 1, "cost": 0.5, "until_ms": NOW + until} for until in (0, 1)]
    await change(ledger, key_holds.insert().values(holds))
    await prune(ledger, 0)
    assert [id for id, *_ in await whole(ledger, key_holds)] == ["h1"]


# By one process at a time


async def test_while_one_process_is_at_it_another_removes_nothing(
    open_ledger: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "MOST_AT_ONCE", 1)
    one, other = await open_ledger(), await open_ledger()
    for _ in range(5):
        await full(one, "gpt", at_ms=OLD)
    seen = iter([DAYS, DAYS, 0])
    assert await one.pruning.prune(lambda: next(seen, 0)) == 2
    assert await prune(other) == 0
    assert await prune(one) == 3


async def test_what_keys_used_is_left_to_the_process_that_is_at_it(open_ledger: Open) -> None:
    one, other = await open_ledger(), await open_ledger()
    await full(one, "gpt", at_ms=OLD)
    assert await prune(one) == 1
    await spend(one, KEY_DAYS + 1)
    await prune(other)
    assert await ages(one) == [KEY_DAYS + 1]
    await prune(one)
    assert await ages(one) == []


@pytest.mark.parametrize("later", [PASSED_ON_MS + 1, -PASSED_ON_MS - 1], ids=["died", "clock set back"])
async def test_another_process_goes_on_when_the_first_has_ended(
    open_ledger: Open, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    one, other = await open_ledger(), await open_ledger()
    await full(one, "gpt", at_ms=OLD)
    assert await prune(one) == 1
    await full(one, "gpt", at_ms=OLD - 2 * PASSED_ON_MS)
    assert await prune(other) == 0
    monkeypatch.setattr(pruning, "now_ms", lambda: NOW + later)
    assert await prune(other) == 1


# Over and over


async def test_it_is_done_at_the_start_and_again_and_survives_a_ledger_that_cannot_be_written(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pruning, "EVERY_SECONDS", 0.0)
    again = asyncio.Event()
    fails = iter([LedgerUnavailable("gone"), ZeroDivisionError("a fault of ours"), None])
    once = ledger.pruning.prune

    async def broken(keep_days: Callable[[], int]) -> int:
        try:
            error = next(fails)
        except StopIteration:
            again.set()
        else:
            if error is not None:
                raise error
        return await once(keep_days)

    monkeypatch.setattr(ledger.pruning, "prune", broken)
    await full(ledger, "gpt", at_ms=OLD)
    with caplog.at_level(logging.INFO, "bench_proxy"):
        running = asyncio.create_task(ledger.pruning.run(lambda: DAYS))
        await again.wait()
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
    assert "is still there, and is tried again: gone" in caplog.text
    assert "a fault of ours" in caplog.text
    assert "removed 1 panels" in caplog.text
    assert await whole(ledger, seats) == []

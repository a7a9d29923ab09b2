"""Bench keys on the record: kept by their digest, and counted over all processes."""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from bench_proxy.errors import BenchError, BudgetSpent, InvalidRequest, LedgerUnavailable, Overloaded
from bench_proxy.ids import conversation_id, key_id
from bench_proxy.keys import BenchKey, Limits, Use, digest_of, new_key
from bench_proxy.ledger.schema import bench_keys, key_days, key_holds
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.ledger.values import now_ms
from bench_proxy.panel.seats import Answer, SeatError
from bench_proxy.route.keeping import TurnReport
from bench_proxy.upstream import Reply
from tests.ledger.conftest import Open, engine_of
from tests.ledger.panels import answer, seating

NOW = 1_796_000_000_000
LATER = NOW + 600_000


def made(secret: str = "", **more: Any) -> BenchKey:
    secret = secret or new_key()
    known = {"id": key_id(), "name": "ann", "digest": digest_of(secret), "last_four": secret[-4:], "at_ms": NOW}
    return BenchKey(**{**known, **more})


async def keep(ledger: SqlLedger, **more: Any) -> BenchKey:
    key = made(**more)
    await ledger.make_key(key)
    return key


async def outcomes(*tries: Awaitable[None]) -> list[type[BenchError] | None]:
    done = await asyncio.gather(*tries, return_exceptions=True)
    return [None if error is None else type(error) for error in done]  # type: ignore[misc]


def rows(url: str, table: sa.Table) -> list[dict[str, Any]]:
    with engine_of(url) as engine, engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


async def today(ledger: SqlLedger, key: BenchKey) -> Use:
    page = await ledger.bench_keys(50, None)
    return next(used for known, used in page.keys if known.id == key.id)


# Keeping


async def test_a_digest_that_nobody_has_finds_nothing(ledger: SqlLedger) -> None:
    await keep(ledger)
    assert await ledger.bench_key(digest_of(new_key())) is None
    assert await ledger.bench_key("") is None


async def test_a_key_that_is_not_there_cannot_be_revoked(ledger: SqlLedger) -> None:
    for id in (key_id(), "", "\0", "'; DROP TABLE bench_keys; --"):
        assert await ledger.revoke_key(id, NOW) is None


async def test_a_key_is_found_with_all_that_was_said_of_it(ledger: SqlLedger) -> None:
    key = await keep(
        ledger,
        name="Änn \N{SNOWMAN}",
        collections=("core", "small"),
        limits=Limits(10, 10**12, 2.5),
        expires_ms=LATER,
    )
    assert await ledger.bench_key(key.digest) == key


async def test_the_key_itself_is_nowhere(ledger: SqlLedger, url: str) -> None:
    secret = new_key()
    await keep(ledger, secret=secret)
    kept = json.dumps(rows(url, bench_keys))
    assert secret[4:-4] not in kept
    assert secret[-4:] in kept


async def test_another_process_sees_that_a_key_was_revoked(ledger: SqlLedger, open_ledger: Open) -> None:
    key = await keep(ledger)
    other = await open_ledger()
    assert await other.bench_key(key.digest) == key
    assert await ledger.revoke_key(key.id, NOW) == (replace(key, revoked_ms=NOW), Use())
    assert await other.bench_key(key.digest) == replace(key, revoked_ms=NOW)
    # The first time stands.
    assert await other.revoke_key(key.id, LATER) == (replace(key, revoked_ms=NOW), Use())


async def test_keys_are_listed_newest_first_and_by_page(ledger: SqlLedger) -> None:
    keys = [await keep(ledger, at_ms=NOW + n, name=f"key {n}") for n in range(3)]
    page = await ledger.bench_keys(2, None)
    assert [key.name for key, _ in page.keys] == ["key 2", "key 1"]
    assert page.next is not None
    last = await ledger.bench_keys(2, page.next)
    assert ([key for key, _ in last.keys], last.next) == ([keys[0]], None)
    with pytest.raises(InvalidRequest, match="is not a cursor"):
        await ledger.bench_keys(2, "elsewhere")


async def test_rows_that_make_no_sense_allow_nothing(ledger: SqlLedger, url: str) -> None:
    key = await keep(ledger, collections=("core",), limits=Limits(requests_a_minute=5))
    with engine_of(url) as engine, engine.begin() as connection:
        connection.execute(bench_keys.update().values(collections='{"core": 1}', requests_a_minute=-3, minute_ms=-1))
    found = await ledger.bench_key(key.digest)
    assert found is not None
    assert found.collections == ()
    with pytest.raises(Overloaded):
        await ledger.count_request(found, NOW)


# Requests a minute


async def test_of_many_requests_at_once_in_two_processes_as_many_pass_as_may(
    ledger: SqlLedger, open_ledger: Open
) -> None:
    key = await keep(ledger, limits=Limits(requests_a_minute=7))
    other = await open_ledger()
    found = await outcomes(*(each.count_request(key, NOW) for each in (ledger, other) * 10))
    assert (found.count(None), found.count(Overloaded)) == (7, 13)
    await other.count_request(key, NOW + 60_000)


async def test_a_request_says_when_the_key_was_used_last(ledger: SqlLedger) -> None:
    counted, free = await keep(ledger, limits=Limits(requests_a_minute=1)), await keep(ledger)
    for key in (counted, free):
        await ledger.count_request(key, LATER)
        assert await ledger.bench_key(key.digest) == replace(key, last_used_ms=LATER)


# Tokens and cost a day


async def test_of_ten_requests_at_once_on_a_budget_for_one_one_passes(ledger: SqlLedger, open_ledger: Open) -> None:
    key = await keep(ledger, limits=Limits(tokens_a_day=100))
    other = await open_ledger()
    tries = (each.hold(f"{n}", key, Use(150), LATER, NOW) for n, each in enumerate((ledger, other) * 5))
    found = await outcomes(*tries)
    assert (found.count(None), found.count(Overloaded)) == (1, 9)


async def test_what_was_set_aside_is_free_when_it_is_let_go(ledger: SqlLedger, url: str) -> None:
    key = await keep(ledger, limits=Limits(cost_a_day=1.0))
    await ledger.hold("a", key, Use(0, 1.0), LATER, NOW)
    with pytest.raises(Overloaded):
        await ledger.hold("b", key, Use(0, 1.0), LATER, NOW)
    await ledger.let_go("a")
    await ledger.let_go("a")
    await ledger.hold("b", key, Use(0, 1.0), LATER, NOW)
    assert [row["id"] for row in rows(url, key_holds)] == ["b"]


async def test_what_a_process_that_died_has_set_aside_is_free_in_time(ledger: SqlLedger, url: str) -> None:
    key = await keep(ledger, limits=Limits(tokens_a_day=100))
    await ledger.hold("a", key, Use(150), LATER, NOW)
    with pytest.raises(Overloaded):
        await ledger.hold("b", key, Use(1), LATER, LATER - 1)
    await ledger.hold("b", key, Use(1), LATER + 1, LATER)
    assert [row["id"] for row in rows(url, key_holds)] == ["b"]


async def test_another_key_has_a_budget_of_its_own(ledger: SqlLedger) -> None:
    one, other = [await keep(ledger, limits=Limits(tokens_a_day=100)) for _ in range(2)]
    await ledger.hold("a", one, Use(150), LATER, NOW)
    await ledger.hold("b", other, Use(150), LATER, NOW)


async def test_the_answers_of_a_panel_count_with_their_row(ledger: SqlLedger) -> None:
    key = await keep(ledger, limits=Limits(tokens_a_day=40))
    panel = seating("gpt", "claude", "qwen")
    await ledger.opened(panel, key.id, "?", NOW)
    use = Use(15, 0.25)
    await ledger.answered(panel, key.id, answer(panel, 0), 0, use, late=False)
    assert await today(ledger, key) == use
    # Whatever becomes of one: its row has what was reported, and no more.
    await ledger.answered(panel, key.id, answer(panel, 1, "error"), 1, use, late=False)
    assert await today(ledger, key) == Use(30, 0.5)
    await ledger.hold("a", key, Use(1), LATER, now_ms())
    await ledger.let_go("a")
    await ledger.answered(panel, key.id, answer(panel, 2), 2, use, late=False)
    with pytest.raises(BudgetSpent, match="45 of 40"):
        await ledger.hold("b", key, Use(1), LATER, now_ms())
    # Tomorrow is another day.
    await ledger.hold("c", key, Use(1), LATER, now_ms() + 86_400_000)


STOPPED = SeatError(499, "cancelled", "stopped")
ENDS: dict[str, dict[str, Any]] = {
    "answered": {"status": "ok"},
    "empty": {"status": "empty"},
    "failed": {"status": "error"},
    "stopped": {"status": "error", "error": STOPPED},
}


@pytest.mark.parametrize("order", ["late first", "end first", "in one commit"])
@pytest.mark.parametrize("end", ENDS)
async def test_a_late_seat_counts_once_when_it_ends_however_often_it_is_told(
    ledger: SqlLedger, end: str, order: str
) -> None:
    key = await keep(ledger)
    panel = seating("gpt")
    await ledger.opened(panel, key.id, "?", NOW)
    late, ended = answer(panel, 0, "late"), answer(panel, 0, **ENDS[end])

    def told(one: Answer, use: Use) -> Awaitable[None]:
        return ledger.answered(panel, key.id, one, 0, use, late=True)

    if order == "late first":
        await told(late, Use(10))
        assert await today(ledger, key) == Use()
    if order != "in one commit":
        await told(ended, Use(15, 0.25))
        assert await today(ledger, key) == Use(15, 0.25)
    await asyncio.gather(told(late, Use(10)), told(ended, Use(15, 0.25)), told(ended, Use(15, 0.25)))
    assert await today(ledger, key) == Use(15, 0.25)


async def test_a_late_seat_that_was_stopped_says_so_and_stays_late(ledger: SqlLedger) -> None:
    panel = seating("gpt")
    await ledger.opened(panel, "me", "?", NOW)
    for one in (answer(panel, 0, "late", text="Ye"), answer(panel, 0, "error", error=STOPPED)):
        await ledger.answered(panel, "me", one, 0, Use(), late=True)
    found = await ledger.panel(panel.panel, "me")
    assert found is not None
    (seat,) = found["seats"]
    assert (seat["status"], seat["answer"], seat["error"]["type"]) == ("late", "Ye", "cancelled")


async def test_what_is_on_no_panels_record_counts_too(ledger: SqlLedger) -> None:
    key = await keep(ledger)
    for _ in range(2):
        await ledger.count_use(key.id, Use(15, 0.25))
    assert await today(ledger, key) == Use(30, 0.5)


async def test_what_counts_in_nobodys_budget_is_not_written(open_ledger: Open) -> None:
    ledger = await open_ledger()
    key = await keep(ledger)
    await ledger.close()
    with pytest.raises(LedgerUnavailable):
        await ledger.count_use(key.id, Use(15))
    await ledger.count_use(key.id, Use())
    await ledger.count_use("litellm", Use(15))


async def test_what_a_key_used_is_shown_without_the_noise_of_its_sum(ledger: SqlLedger) -> None:
    key = await keep(ledger)
    for cost in (0.1, 0.2):
        await ledger.count_use(key.id, Use(1, cost))
    assert await today(ledger, key) == Use(2, 0.3)


async def test_what_shares_a_transaction_with_a_write_that_fails_counts_once(ledger: SqlLedger) -> None:
    key = await keep(ledger)
    panel = seating("gpt", "claude")
    await ledger.opened(panel, key.id, "?", NOW)
    seat = answer(panel, 1)
    await ledger.answered(panel, key.id, seat, 1, Use(15), late=False)
    twice = ledger.answered(panel, key.id, seat, 1, Use(15), late=False)  # a call of that id is there already
    good = ledger.answered(panel, key.id, answer(panel, 0), 0, Use(15), late=False)
    assert await outcomes(good, twice) == [None, LedgerUnavailable]
    assert await today(ledger, key) == Use(30)


def turn(number: int, use: Use) -> TurnReport:
    conversation = conversation_id()
    return TurnReport(
        conversation, "s", "fingerprint", "core", "bench/core:route", "general", number, NOW, "ok", 1.0,
        call=f"{conversation}.1", number=1, alias="gpt", reply=Reply("Yes.", "stop"), use=use,
    )  # fmt: skip


async def test_the_turns_of_a_conversation_count_too(ledger: SqlLedger) -> None:
    key = await keep(ledger)
    for number in (1, 2):
        await ledger.took(turn(number, Use(120, 0.125)), key.id)
    assert await today(ledger, key) == Use(240, 0.25)


async def test_what_other_callers_use_is_nobodys_day(ledger: SqlLedger, url: str) -> None:
    for owner in ("local", "litellm", "0" * 32):
        panel = seating("gpt")
        await ledger.answered(panel, owner, answer(panel, 0), 0, Use(10, 1.0), late=False)
    assert rows(url, key_days) == []


@pytest.mark.parametrize(
    ("tokens", "cost", "counted"), [(-5, -1.0, 0), (10**30, float("inf"), 2**31 - 1), (0, float("nan"), 0)]
)
async def test_figures_that_cannot_be_true_break_nothing(
    ledger: SqlLedger, tokens: int, cost: float, counted: int
) -> None:
    key = await keep(ledger)
    await ledger.took(turn(1, Use(tokens, cost)), key.id)
    assert await today(ledger, key) == Use(counted, 0.0)

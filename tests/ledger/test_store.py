"""The record: what was asked and answered and what callers said of it, in sums that always agree with the rows."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Connection

from bench_proxy.bench import Page
from bench_proxy.errors import BenchError, InvalidRequest, LedgerUnavailable, NotFound
from bench_proxy.facts import Learned
from bench_proxy.keys import Use
from bench_proxy.ledger import store
from bench_proxy.ledger.schema import metadata, panels, seats, sums, verdicts
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.marks import Pick
from bench_proxy.panel.seats import Answer, SeatError, Seating
from bench_proxy.records import Verdict
from tests.ledger.conftest import Open
from tests.ledger.panels import answer, counted, recounted, report, seating, skipped

Json = Mapping[str, Any]

MINE, YOURS = "owner-1", "owner-2"
NOON = 1_772_366_400_000


async def open_panel(ledger: SqlLedger, of: Seating, owner: str = MINE, asked: str = "Why?", at_ms: int = NOON) -> None:
    await ledger.opened(of, owner, asked, at_ms)


async def put(ledger: SqlLedger, of: Seating, one: Answer, owner: str = MINE, *, late: bool = False) -> None:
    await ledger.answered(of, owner, one, of.seats.index(one.seat), Use(), late=late)


async def full(ledger: SqlLedger, *aliases: str, owner: str = MINE, at_ms: int = NOON, **more: Any) -> Seating:
    """A panel that is over, whose seats have all answered."""
    of = seating(*aliases, **more)
    await open_panel(ledger, of, owner, at_ms=at_ms)
    answers = [answer(of, n) for n in range(len(aliases))]
    for one in answers:
        await put(ledger, of, one, owner)
    await ledger.closed(report(of, *answers))
    return of


async def shown(ledger: SqlLedger, of: Seating, owner: str | None = None) -> Json:
    found = await ledger.panel(of.panel, owner)
    assert found is not None
    return found


async def check_sums(ledger: SqlLedger) -> None:
    def read(connection: Connection) -> tuple[object, object]:
        return counted(connection), recounted(connection)

    kept, right = await ledger._read(read)
    assert kept == right


async def record_of(ledger: SqlLedger, alias: str, **where: Any) -> Any:
    lines = await ledger.record(where.get("collection"), where.get("owner"))
    return next((line.sums for line in lines if line.sums.alias == alias), None)


async def change(ledger: SqlLedger, statement: Any) -> None:
    """Something other than the ledger does this to its database."""
    await ledger._durable(lambda connection: connection.execute(statement))


# When it cannot be written or read


BROKEN = [
    "sqlite://",
    "sqlite:///:memory:",
    "nonsense",
    "sqlite+nodriver:///bench.db",
    "sqlite+pysqlcipher:///bench.db",
    "postgresql://me:secret@127.0.0.1:1/bench",
]


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_database_that_cannot_be_opened_is_an_error_without_its_password(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some files are made before it is known that they are of no use
    with pytest.raises(LedgerUnavailable) as error:
        await SqlLedger.open(broken, lambda: "full")
    assert "secret" not in error.value.message


async def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bench.db").write_text("This is not a database, and long enough to show it. " * 100)
    with pytest.raises(LedgerUnavailable, match="not a database"):
        await SqlLedger.open(f"sqlite:///{tmp_path}/bench.db", lambda: "full")


async def every_use(ledger: SqlLedger, of: Seating) -> list[object]:
    """What each use of the ledger comes to."""
    uses = [
        ledger.reserve("general", lambda _: ["gpt"]),
        put(ledger, of, answer(of)),
        ledger.closed(report(of, answer(of))),
        ledger.judge(Verdict(of.seats[0].call, True), MINE),
        ledger.pick(Pick(of.panel, of.seats[0].call), MINE),
        ledger.owed([of.seats[0].call], MINE),
        ledger.record(None, None),
        ledger.wins(None, None),
        ledger.learn({("gpt", "somewhere"): Learned(8192)}),
        ledger.learned(),
        ledger.panels(10, None, None, None),
        ledger.panel(of.panel, None),
    ]
    return await asyncio.gather(*uses, return_exceptions=True)


async def test_a_closed_ledger_is_unavailable_to_every_use(open_ledger: Open) -> None:
    ledger = await open_ledger()
    await ledger.close()
    of = seating("gpt")
    assert {type(end) for end in await every_use(ledger, of)} == {LedgerUnavailable}
    with pytest.raises(LedgerUnavailable):
        await ledger.opened(of, MINE, "Why?", 1)
    assert not await ledger.healthy()


async def test_a_ledger_whose_tables_are_gone_is_unavailable_to_every_use(empty_url: str) -> None:
    ledger = await SqlLedger.open(empty_url, lambda: "full")
    for table in metadata.tables.values():
        await change(ledger, sa.schema.DropTable(table))
    assert {type(end) for end in await every_use(ledger, seating("gpt"))} == {LedgerUnavailable}
    assert not await ledger.healthy()
    await ledger.close()


async def test_a_ledger_can_be_closed_twice(open_ledger: Open) -> None:
    ledger = await open_ledger()
    await ledger.close()
    await ledger.close()


async def test_an_open_ledger_is_healthy(ledger: SqlLedger) -> None:
    assert await ledger.healthy()


async def test_a_ledger_that_can_be_written_again_is_healthy_before_anyone_writes(ledger: SqlLedger) -> None:
    await change(ledger, sa.text("ALTER TABLE facts RENAME TO elsewhere"))
    ledger._writer.failing = True  # as the last commit that found the database locked, full or gone left it
    assert not await ledger.healthy()
    await change(ledger, sa.text("ALTER TABLE elsewhere RENAME TO facts"))
    ledger._writer.failing = True
    assert await ledger.healthy()
    assert not ledger._writer.failing
    assert await ledger.learned() == {}


@asynccontextmanager
async def without(ledger: SqlLedger, table: sa.Table) -> AsyncIterator[None]:
    await change(ledger, sa.schema.DropTable(table))
    try:
        yield
    finally:
        await change(ledger, sa.schema.CreateTable(table))


async def settled(ledger: SqlLedger) -> None:
    """All that was put before is written or lost, and that is known."""
    with suppress(LedgerUnavailable):  # shares the fate of what was put before it
        await ledger._durable(lambda _: None)
    await asyncio.sleep(0)


async def lose(ledger: SqlLedger, of: Seating, asked: str = "") -> None:
    """Open a panel whose row cannot be written, until that is known."""
    await open_panel(ledger, of, asked=asked)
    await settled(ledger)


async def test_a_panel_whose_row_was_lost_is_on_the_record_when_it_is_closed(
    ledger: SqlLedger, caplog: pytest.LogCaptureFixture
) -> None:
    of = seating("gpt")
    async with without(ledger, panels):
        await lose(ledger, of, asked="Why?")
    assert of.panel in caplog.text
    await put(ledger, of, answer(of))
    await ledger.closed(report(of, answer(of)))
    panel = await shown(ledger, of)
    assert (panel["asked"], panel["over"], panel["partial"]) == ("Why?", True, False)


async def test_a_panel_whose_row_was_lost_is_on_the_record_with_a_late_answer(ledger: SqlLedger) -> None:
    of = seating("gpt")
    late = answer(of, 0, "late")
    async with without(ledger, panels):
        await lose(ledger, of)
        with pytest.raises(LedgerUnavailable):
            await put(ledger, of, late)
        with pytest.raises(LedgerUnavailable):
            await ledger.closed(report(of, late))
    await put(ledger, of, answer(of), late=True)
    panel = await shown(ledger, of)
    assert (panel["over"], panel["partial"], panel["seats"][0]["status"]) == (True, True, "ok")


async def test_an_answer_that_was_left_is_durable_with_the_next(ledger: SqlLedger) -> None:
    of = seating("gpt", "claude")
    await open_panel(ledger, of)
    await ledger.answered(of, "", answer(of, 0), 0, Use(), late=False, urgent=False)
    await put(ledger, of, answer(of, 1))
    assert [seat["alias"] for seat in (await shown(ledger, of))["seats"]] == ["gpt", "claude"]


async def test_that_an_answer_that_was_left_is_lost_is_said_by_the_next(ledger: SqlLedger) -> None:
    of = seating("gpt", "claude", "qwen")
    await open_panel(ledger, of)
    async with without(ledger, seats):
        await ledger.answered(of, "", answer(of, 0), 0, Use(), late=False, urgent=False)
        await settled(ledger)
    with pytest.raises(LedgerUnavailable, match=of.panel):
        await put(ledger, of, answer(of, 1))
    await put(ledger, of, answer(of, 2))
    assert [seat["alias"] for seat in (await shown(ledger, of))["seats"]] == ["claude", "qwen"]


# Panels and seats


async def test_a_model_is_seated_when_its_seat_began_and_not_when_it_answered(ledger: SqlLedger) -> None:
    of = seating("quick", "slow")
    await open_panel(ledger, of)
    await put(ledger, of, replace(answer(of, 0), seconds=0.0))
    await put(ledger, of, replace(answer(of, 1), seconds=3600.0))
    quick, slow = await record_of(ledger, "quick"), await record_of(ledger, "slow")
    assert slow.last_seated_ms < quick.last_seated_ms - 3_000_000


@pytest.mark.parametrize("was_late", [False, True])
async def test_a_call_that_we_stopped_is_no_failure_of_its_model(ledger: SqlLedger, was_late: bool) -> None:
    of = seating("gpt")
    await open_panel(ledger, of)
    if was_late:
        await put(ledger, of, answer(of, 0, "late"))
    stopped = answer(of, 0, "error", error=SeatError(499, "cancelled", "stopped"))
    await put(ledger, of, stopped, late=was_late)
    sums = await record_of(ledger, "gpt")
    assert (sums.seated, sums.failed, sums.late) == (1, 0, int(was_late))
    (seat,) = (await shown(ledger, of))["seats"]
    assert seat["status"] == ("late" if was_late else "error")


async def test_odd_values_in_a_seat_spoil_no_page(ledger: SqlLedger) -> None:
    of = await full(ledger, "gpt", "claude")
    await change(ledger, seats.update().values({"real": "garbage", "false": "7", "seconds": float("inf")}))
    await change(ledger, panels.update().values(seconds=float("nan")))
    page = await ledger.panels(10, None, None, None)
    assert [row["panel"] for row in page.rows] == [of.panel]
    orjson.dumps([page.rows, await shown(ledger, of)])
    assert (await ledger.judge(Verdict(of.seats[0].call, True), None)).recorded


async def test_a_panel_is_shown_with_all_that_is_known_of_it(ledger: SqlLedger) -> None:
    of = seating("gpt", "claude", skipped=(skipped("owl"),), shape="review", shape_by="request")
    await open_panel(ledger, of, asked="Why?", at_ms=1_772_366_405_123)
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25, "first_token_seconds": 0.5}
    good = answer(of, 0, text="Because.", finish_reason="stop", **counts)
    bad = answer(of, 1, "error", error=SeatError(429, "rate_limit", "slow down"))
    for one in (good, bad):
        await put(ledger, of, one)
    await ledger.closed(report(of, good, bad, note="A note."))
    assert await shown(ledger, of) == {
        "panel": of.panel,
        "at": 1_772_366_405.123,
        "collection": "bench/core",
        "reply": "all",
        "shape": "review",
        "shape_by": "request",
        "asked": "Why?",
        "over": True,
        "partial": True,
        "seconds": 2.0,
        "note": "A note.",
        "skipped": [{"seat": "member", "alias": "owl", "why": "cannot see images"}],
        "seats": [
            {
                "seat": "member",
                "call": of.seats[0].call,
                "alias": "gpt",
                "status": "ok",
                "late": False,
                "seconds": 1.5,
                "finish_reason": "stop",
                "answer": "Because.",
                "owed": True,
                **counts,
            },
            {
                "seat": "member",
                "call": of.seats[1].call,
                "alias": "claude",
                "status": "error",
                "late": False,
                "seconds": 1.5,
                "error": {"status": 429, "type": "rate_limit", "message": "slow down"},
                "owed": False,
            },
        ],
    }


async def test_a_panel_that_runs_is_shown_with_the_seats_that_are_done(ledger: SqlLedger) -> None:
    of = seating("gpt", "claude")
    await open_panel(ledger, of)
    await put(ledger, of, answer(of, 1))
    found = await shown(ledger, of)
    assert (found["over"], found["partial"], [s["alias"] for s in found["seats"]]) == (False, None, ["claude"])


async def test_seats_are_shown_in_seat_order_whoever_answered_first(ledger: SqlLedger) -> None:
    of = seating("a", "b", "c")
    await open_panel(ledger, of)
    for number in (2, 0, 1):
        await put(ledger, of, answer(of, number))
    assert [s["alias"] for s in (await shown(ledger, of))["seats"]] == ["a", "b", "c"]


async def test_a_list_of_panels_shows_no_answers_and_the_beginning_of_what_was_asked(ledger: SqlLedger) -> None:
    of = seating("gpt")
    await open_panel(ledger, of, asked="x" * 1000)
    await put(ledger, of, answer(of))
    (row,) = (await ledger.panels(10, None, None, None)).rows
    assert len(row["asked"]) == 200
    assert "answer" not in row["seats"][0]
    assert len((await shown(ledger, of))["asked"]) == 1000


@pytest.mark.parametrize(("content", "kept"), [("full", "Because."), ("answers", "Because."), ("none", None)])
async def test_answers_are_kept_unless_the_operator_wants_none(open_ledger: Open, content: str, kept: str) -> None:
    ledger = await open_ledger(content)
    of = seating("gpt")
    await open_panel(ledger, of)
    await put(ledger, of, answer(of, text="Because."))
    assert (await shown(ledger, of))["seats"][0].get("answer") == kept


ODD_TEXT = "NUL \0, emoji \N{GRINNING FACE}, quotes ' \" \\, % :x, line \u2028 separators, \x7f"


async def test_odd_characters_are_kept_and_nul_which_postgresql_has_not_is_replaced(ledger: SqlLedger) -> None:
    of = seating("gpt")
    error = SeatError(500, "server_error", ODD_TEXT)
    await open_panel(ledger, of, asked=ODD_TEXT)
    await put(ledger, of, answer(of, text=ODD_TEXT, error=error))
    found = await shown(ledger, of)
    replaced = ODD_TEXT.replace("\0", "\N{REPLACEMENT CHARACTER}")
    assert (found["asked"], found["seats"][0]["answer"]) == (replaced, replaced)
    assert found["seats"][0]["error"]["message"] == ODD_TEXT


async def test_an_answer_of_eight_megabytes_is_kept_whole(ledger: SqlLedger) -> None:
    of = seating("gpt")
    await open_panel(ledger, of)
    await put(ledger, of, answer(of, text="x" * 8 * 1024 * 1024))
    assert len((await shown(ledger, of))["seats"][0]["answer"]) == 8 * 1024 * 1024


async def test_names_of_any_length_that_a_caller_chose_are_kept(ledger: SqlLedger) -> None:
    of = seating("gpt", model="bench/core" + " " * 1000)
    await open_panel(ledger, of)
    await put(ledger, of, answer(of, finish_reason="x" * 1000))
    assert (await shown(ledger, of))["seats"][0]["finish_reason"] == "x" * 64


async def test_an_answer_is_durable_when_answered_returns(ledger: SqlLedger, open_ledger: Open) -> None:
    of = await full(ledger, "gpt")
    other = await open_ledger()
    assert (await shown(other, of))["seats"][0]["answer"] == "Yes."


async def test_an_unknown_panel_is_none(ledger: SqlLedger) -> None:
    assert await ledger.panel("p20260301-120005-nobody", None) is None


# Late seats


@pytest.mark.parametrize("status", ["ok", "empty", "error"])
@pytest.mark.parametrize("answer_first", [False, True])
async def test_a_late_seat_counts_the_same_whichever_is_recorded_first(
    ledger: SqlLedger, status: str, answer_first: bool
) -> None:
    of = seating("gpt")
    await open_panel(ledger, of)
    late, real = (answer(of, 0, "late"), False), (answer(of, 0, status), True)
    for one, after in (real, late) if answer_first else (late, real):
        await put(ledger, of, one, late=after)
    (seat,) = (await shown(ledger, of))["seats"]
    assert (seat["status"], seat["late"]) == (status, True)
    kept = await record_of(ledger, "gpt")
    name = {"ok": "answered", "empty": "empty", "error": "failed"}[status]
    assert (kept.seated, kept.late, getattr(kept, name)) == (1, 1, 1)
    await check_sums(ledger)


async def test_a_late_seat_that_never_answers_is_late(ledger: SqlLedger) -> None:
    of = seating("gpt")
    await open_panel(ledger, of)
    await put(ledger, of, answer(of, 0, "late"))
    assert (await shown(ledger, of))["seats"][0]["status"] == "late"
    await check_sums(ledger)


async def test_a_late_answer_can_be_judged_once_it_is_there(ledger: SqlLedger) -> None:
    of = seating("gpt")
    call = of.seats[0].call
    await open_panel(ledger, of)
    await put(ledger, of, answer(of, 0, "late"))
    with pytest.raises(InvalidRequest, match="late"):
        await ledger.judge(Verdict(call, True), MINE)
    await put(ledger, of, answer(of, 0), late=True)
    assert await ledger.owed([call], MINE) == [call]
    assert (await ledger.judge(Verdict(call, True), MINE)).recorded


async def test_a_verdict_survives_a_late_row_that_comes_after_it(ledger: SqlLedger) -> None:
    of = seating("gpt")
    call = of.seats[0].call
    await open_panel(ledger, of)
    await put(ledger, of, answer(of), late=True)
    await ledger.judge(Verdict(call, True, "good"), MINE)
    await put(ledger, of, answer(of, 0, "late"))
    (seat,) = (await shown(ledger, of))["seats"]
    assert (seat["status"], seat["verdict"]["useful"], seat["verdict"]["note"]) == ("ok", True, "good")
    await check_sums(ledger)


# Verdicts


async def test_a_verdict_on_an_unknown_call_is_not_found(ledger: SqlLedger) -> None:
    with pytest.raises(NotFound) as error:
        await ledger.judge(Verdict("p20260301-120005-nobody.member1", True), None)
    assert (error.value.status, error.value.param) == (404, "call")


async def test_a_verdict_on_a_panel_is_told_its_calls_where_it_is_the_callers(ledger: SqlLedger) -> None:
    of = seating("gpt", "claude")
    await open_panel(ledger, of)
    with pytest.raises(InvalidRequest, match="none has answered yet"):
        await ledger.judge(Verdict(of.panel, True), MINE)
    await put(ledger, of, answer(of, 0))
    await put(ledger, of, answer(of, 1, "error"))
    with pytest.raises(InvalidRequest, match=f"its calls: {of.seats[0].call}$"):
        await ledger.judge(Verdict(of.panel, True), MINE)
    with pytest.raises(NotFound):
        await ledger.judge(Verdict(of.panel, True), "another")


@pytest.mark.parametrize("status", ["empty", "error", "late"])
async def test_what_is_no_answer_cannot_be_judged(ledger: SqlLedger, status: str) -> None:
    of = seating("gpt")
    await open_panel(ledger, of)
    await put(ledger, of, answer(of, 0, status))
    with pytest.raises(InvalidRequest, match=status):
        await ledger.judge(Verdict(of.seats[0].call, True), MINE)
    await check_sums(ledger)


async def test_a_verdict_is_on_the_record_with_the_claims_and_who_said_so(ledger: SqlLedger) -> None:
    of = await full(ledger, "gpt")
    said = Verdict(of.seats[0].call, True, "good", ("it is fast",), ("it is free",), "Ada")
    assert (await ledger.judge(said, MINE)).recorded
    verdict = (await shown(ledger, of))["seats"][0]["verdict"]
    at = verdict.pop("at")
    assert verdict == {"useful": True, "note": "good", "real": ["it is fast"], "false": ["it is free"], "by": "Ada"}
    kept = await record_of(ledger, "gpt")
    assert (kept.useful, kept.last_judged_ms) == (1, round(at * 1000))


async def history(ledger: SqlLedger, call: str) -> list[bool | None]:
    query = sa.select(verdicts.c.useful).where(verdicts.c.call == call).order_by(verdicts.c.id)
    return await ledger._read(lambda connection: list(connection.execute(query).scalars()))


async def test_the_same_verdict_again_writes_nothing(ledger: SqlLedger) -> None:
    of = await full(ledger, "gpt")
    call = of.seats[0].call
    said = Verdict(call, True, "good", ("a",), ("b",), "Ada")
    assert (await ledger.judge(said, MINE)).recorded
    assert not (await ledger.judge(said, MINE)).recorded
    assert await history(ledger, call) == [True]
    await check_sums(ledger)


async def test_another_verdict_replaces_the_first_and_both_stay_in_the_history(ledger: SqlLedger) -> None:
    of = await full(ledger, "gpt")
    call = of.seats[0].call
    for useful in (True, False):
        assert (await ledger.judge(Verdict(call, useful), MINE)).recorded
    kept = await record_of(ledger, "gpt")
    assert (kept.useful, kept.not_useful) == (0, 1)
    assert await history(ledger, call) == [True, False]
    await check_sums(ledger)


@pytest.mark.parametrize(
    "other",
    [{"note": "better"}, {"real": ("c",)}, {"false": ("c",)}, {"by": "Bob"}, {"real": ("a", "a")}, {"real": ()}],
)
async def test_a_verdict_that_differs_in_its_words_alone_is_another_and_counts_once(
    ledger: SqlLedger, other: dict[str, Any]
) -> None:
    of = await full(ledger, "gpt")
    said = {"note": "good", "real": ("a",), "false": ("b",), "by": "Ada"}
    assert (await ledger.judge(Verdict(of.seats[0].call, True, **said), MINE)).recorded
    assert (await ledger.judge(Verdict(of.seats[0].call, True, **{**said, **other}), MINE)).recorded
    assert (await record_of(ledger, "gpt")).useful == 1
    await check_sums(ledger)


async def test_a_withdrawn_verdict_leaves_the_answer_owed_and_stays_in_the_history(ledger: SqlLedger) -> None:
    of = await full(ledger, "gpt")
    call = of.seats[0].call
    await ledger.judge(Verdict(call, True, "good"), MINE)
    assert await ledger.owed([call], MINE) == []
    assert (await ledger.judge(Verdict(call, None), MINE)).recorded
    assert await ledger.owed([call], MINE) == [call]
    assert await history(ledger, call) == [True, None]
    kept = await record_of(ledger, "gpt")
    assert (kept.useful, kept.not_useful, kept.owed) == (0, 0, 1)


async def test_withdrawing_what_was_never_said_writes_nothing(ledger: SqlLedger) -> None:
    of = await full(ledger, "gpt")
    assert not (await ledger.judge(Verdict(of.seats[0].call, None), MINE)).recorded


async def test_a_verdict_that_comes_with_the_answers_last_byte_finds_its_call(ledger: SqlLedger) -> None:
    of = seating("gpt")
    await open_panel(ledger, of)
    answering = asyncio.create_task(put(ledger, of, answer(of)))
    await asyncio.sleep(0)
    assert (await ledger.judge(Verdict(of.seats[0].call, True), MINE)).recorded
    await answering


VERDICTS = st.tuples(
    st.integers(0, 5),
    st.sampled_from([True, False, None]),
    st.sampled_from(["", "good"]),
    st.sampled_from([MINE, YOURS, None]),
)
ENDS = ("ok", "ok", "empty", "error", "late", "late then ok", "ok then late")
STATUSES = st.lists(st.sampled_from(ENDS), min_size=6, max_size=6)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STATUSES, st.lists(VERDICTS, max_size=15))
async def test_after_any_verdicts_the_sums_are_a_recount_of_the_rows(
    ledger: SqlLedger, statuses: list[str], said: list[tuple[int, bool | None, str, str | None]]
) -> None:
    mine, yours = seating("a", "b", "a"), seating("b", "a", "c", collection="other", shape="code")
    for of, owner, ends in ((mine, MINE, statuses[:3]), (yours, YOURS, statuses[3:])):
        await open_panel(ledger, of, owner)
        for number, status in enumerate(ends):
            for n, one in enumerate(status.split(" then ")):
                await put(ledger, of, answer(of, number, one), owner, late=n == 1 or status == "ok then late")
    calls = [seat.call for of in (mine, yours) for seat in of.seats]
    for number, useful, note, owner in said:
        verdict = Verdict(calls[number], useful, note)
        try:
            await ledger.judge(verdict, owner)
        except BenchError:
            continue
        assert not (await ledger.judge(verdict, owner)).recorded, "the same verdict again is none"
    await check_sums(ledger)


# Who sees what


async def test_what_is_another_keys_is_invisible(ledger: SqlLedger) -> None:
    mine, yours = await full(ledger, "gpt"), await full(ledger, "gpt", "claude", owner=YOURS)
    call = yours.seats[0].call
    assert [row["panel"] for row in (await ledger.panels(10, None, None, MINE)).rows] == [mine.panel]
    assert await ledger.panel(yours.panel, MINE) is None
    assert await ledger.owed([mine.seats[0].call, call], MINE) == [mine.seats[0].call]
    with pytest.raises(NotFound) as hidden:
        await ledger.judge(Verdict(call, True), MINE)
    with pytest.raises(NotFound) as unknown:
        await ledger.judge(Verdict("p1.member1", True), MINE)
    assert hidden.value.message.replace(call, "p1.member1") == unknown.value.message
    assert {line.sums.alias for line in await ledger.record(None, MINE)} == {"gpt"}
    assert (await record_of(ledger, "gpt", owner=MINE)).answered == 1
    assert await ledger.record("core", "nobody") == []


async def test_an_admin_sees_and_judges_everything(ledger: SqlLedger) -> None:
    mine, yours = await full(ledger, "gpt"), await full(ledger, "gpt", owner=YOURS)
    assert {row["panel"] for row in (await ledger.panels(10, None, None, None)).rows} == {mine.panel, yours.panel}
    assert (await ledger.judge(Verdict(yours.seats[0].call, True), None)).recorded
    assert (await record_of(ledger, "gpt")).useful == 1
    assert (await record_of(ledger, "gpt", owner=YOURS)).useful == 1
    assert (await record_of(ledger, "gpt", owner=MINE)).useful == 0


async def test_the_record_of_a_collection_is_its_own(ledger: SqlLedger) -> None:
    await full(ledger, "gpt")
    await full(ledger, "gpt", collection="other")
    await full(ledger, "gpt", owner=YOURS)
    assert (await record_of(ledger, "gpt")).answered == 3
    assert (await record_of(ledger, "gpt", collection="core")).answered == 2
    assert (await record_of(ledger, "gpt", collection="core", owner=YOURS)).answered == 1
    assert await ledger.record("nobody", None) == []


async def test_the_record_has_a_line_a_model_and_shape(ledger: SqlLedger) -> None:
    await full(ledger, "gpt", "claude")
    await full(ledger, "gpt", shape="code")
    lines = [(line.sums.alias, line.sums.shape, line.sums.seated) for line in await ledger.record(None, None)]
    assert lines == [("claude", "general", 1), ("gpt", "code", 1), ("gpt", "general", 1)]


async def test_owed_are_the_answers_without_a_verdict_as_they_were_asked_for(ledger: SqlLedger) -> None:
    of = seating("a", "b", "c", "d")
    await open_panel(ledger, of)
    for number, status in enumerate(["ok", "error", "ok", "ok"]):
        await put(ledger, of, answer(of, number, status))
    a, b, c, d = (seat.call for seat in of.seats)
    await ledger.judge(Verdict(c, False), MINE)
    assert await ledger.owed([d, "nobody", c, b, a, d], MINE) == [d, a]


async def test_many_calls_can_be_asked_about_at_once(ledger: SqlLedger) -> None:
    of = await full(ledger, "gpt")
    calls = [f"p1.member{n}" for n in range(999)]
    assert await ledger.owed([*calls, of.seats[0].call], MINE) == [of.seats[0].call]


# Paging


async def read_all(ledger: SqlLedger, limit: int, between: Any = None, **where: Any) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page: Page = await ledger.panels(limit, cursor, where.get("collection"), where.get("owner"))
        assert len(page.rows) <= limit
        found += [row["panel"] for row in page.rows]
        cursor = page.next
        if cursor is None:
            return found
        if between is not None:
            await between()


@pytest.mark.parametrize("limit", [1, 3, 10, 11])
async def test_pages_follow_one_another_newest_first(ledger: SqlLedger, limit: int) -> None:
    made = [await full(ledger, "gpt", at_ms=NOON + n // 3) for n in range(10)]
    expected = sorted(made, key=lambda of: (made.index(of) // 3, of.panel), reverse=True)
    assert await read_all(ledger, limit) == [of.panel for of in expected]


async def test_the_last_page_has_no_cursor_also_when_it_is_full(ledger: SqlLedger) -> None:
    for n in range(4):
        await full(ledger, "gpt", at_ms=NOON + n)
    first = await ledger.panels(2, None, None, None)
    assert first.next is not None
    assert (await ledger.panels(2, first.next, None, None)).next is None


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 4), st.randoms(use_true_random=False))
async def test_nothing_is_lost_or_doubled_while_panels_are_added(
    ledger: SqlLedger, times: list[int], limit: int, chance: random.Random
) -> None:
    await change(ledger, panels.delete())
    there = {(await added(ledger, at_ms)).panel for at_ms in times}

    async def between() -> None:
        await added(ledger, chance.randint(1, 6))
        await ledger._durable(lambda _: None)

    await ledger._durable(lambda _: None)
    found = await read_all(ledger, limit, between)
    assert len(set(found)) == len(found)
    assert there <= set(found)


async def added(ledger: SqlLedger, at_ms: int) -> Seating:
    of = seating("gpt")
    await open_panel(ledger, of, at_ms=NOON + at_ms)
    return of


async def test_pages_keep_to_the_collection_and_the_key(ledger: SqlLedger) -> None:
    wanted = []
    for n in range(6):
        other = {} if n % 2 else {"collection": "other"}
        of = await full(ledger, "gpt", at_ms=NOON + n, owner=MINE if n < 4 else YOURS, **other)
        if n in {1, 3}:
            wanted.insert(0, of.panel)
    assert await read_all(ledger, 1, collection="core", owner=MINE) == wanted


@pytest.mark.parametrize("cursor", ["", "1", "x.p1", "-1.p1", "1.", ".p1", "١.p1", "9" * 16 + ".p1", "1.p1\0"])
async def test_what_is_no_cursor_is_the_callers_error(ledger: SqlLedger, cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        await ledger.panels(10, cursor, None, None)


@pytest.mark.parametrize("name", ["\0", "nobody", "x" * 10_000, "'; DROP TABLE panels; --"])
async def test_a_name_that_nothing_has_finds_nothing(ledger: SqlLedger, name: str) -> None:
    await full(ledger, "gpt")
    assert await ledger.panel(name, None) is None
    assert (await ledger.panels(10, None, name, None)).rows == []
    assert await ledger.owed([name], None) == []
    assert await ledger.record(name, None) == []
    assert await ledger.wins(name, None) == {}
    with pytest.raises(NotFound):
        await ledger.judge(Verdict(name, True), None)
    with pytest.raises(NotFound):
        await ledger.pick(Pick(name, None), None)
    assert len((await ledger.panels(10, None, None, None)).rows) == 1


# Reservations


def stalest(names: Sequence[str], count: int = 1) -> Any:
    return lambda last: sorted(names, key=lambda name: last.get(name, 0))[:count]


async def test_models_that_are_reserved_in_one_millisecond_have_their_places_in_the_order(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "now_ms", lambda: 1_772_366_400_000)
    names = ["a", "b", "c"]
    taken = [await ledger.reserve("general", stalest(names)) for _ in range(9)]
    assert [name for (name,) in taken[:3] * 3] == [name for (name,) in taken]
    assert sorted(name for (name,) in taken[:3]) == names


async def test_a_reserved_model_is_seated_now_and_no_sooner_than_it_was(ledger: SqlLedger) -> None:
    seen: list[Mapping[str, int]] = []

    def choose(last: Mapping[str, int]) -> list[str]:
        seen.append(dict(last))
        return ["gpt"]

    assert await ledger.reserve("general", choose) == ["gpt"]
    assert await ledger.reserve("general", choose) == ["gpt"]
    await ledger.reserve("general", choose)
    assert seen[0] == {}
    assert 0 < seen[1]["gpt"] <= seen[2]["gpt"]


async def test_a_reservation_is_for_one_shape(ledger: SqlLedger) -> None:
    await ledger.reserve("code", lambda _: ["gpt"])
    seen: list[Mapping[str, int]] = []
    await ledger.reserve("general", lambda last: seen.append(last) or [])  # type: ignore[func-returns-value]
    assert seen == [{}]


async def test_a_seat_that_was_taken_counts_as_seated_also_for_one_that_did_not_explore(ledger: SqlLedger) -> None:
    await full(ledger, "gpt")
    assert await ledger.reserve("general", stalest(["gpt", "claude"])) == ["claude"]


async def test_a_reservation_is_no_seat_until_its_model_has_answered(ledger: SqlLedger) -> None:
    await ledger.reserve("general", lambda _: ["gpt"])
    assert (await record_of(ledger, "gpt")).seated == 0


async def test_simultaneous_reservations_of_two_processes_spread_over_all_candidates(open_ledger: Open) -> None:
    first, second = await open_ledger(), await open_ledger()
    names = [f"x{n}" for n in range(20)]
    for turn in (1, 2):
        reservations = [ledger.reserve("general", stalest(names)) for _ in range(10) for ledger in (first, second)]
        chosen = [name for names in await asyncio.gather(*reservations) for name in names]
        assert Counter(chosen) == Counter(names), turn
        await asyncio.sleep(0.002)  # a new millisecond, so that the next turn's models are all older than this one's


async def test_a_choice_that_fails_reserves_nothing_and_fails_alone(ledger: SqlLedger) -> None:
    def broken(_last: Mapping[str, int]) -> list[str]:
        raise ZeroDivisionError

    ends = await asyncio.gather(
        ledger.reserve("general", stalest(["a"])), ledger.reserve("general", broken), return_exceptions=True
    )
    assert ends[0] == ["a"]
    assert isinstance(ends[1], ZeroDivisionError)


# Facts


async def test_the_ledger_keeps_facts_and_lowers_windows_alone(ledger: SqlLedger) -> None:
    gpt, qwen = ("gpt", "here"), ("qwen", "there")
    assert await ledger.learned() == {}
    await ledger.learn({gpt: Learned(8192), qwen: Learned(tools=True)})
    await ledger.learn({gpt: Learned(16_384, vision=True), qwen: Learned(4096)})
    assert await ledger.learned() == {gpt: Learned(8192, vision=True), qwen: Learned(4096, tools=True)}
    await ledger.learn({gpt: Learned(4096)})
    assert (await ledger.learned())[gpt] == Learned(4096, vision=True)


async def test_two_processes_learn_into_one_ledger(ledger: SqlLedger, open_ledger: Open) -> None:
    other = await open_ledger()
    await other.learn({("gpt", "here"): Learned(4096)})
    assert await ledger.learned() == {("gpt", "here"): Learned(4096)}


# Several processes, and odd rows


async def test_two_processes_that_write_the_same_models_in_any_order_lose_nothing(open_ledger: Open) -> None:
    ledgers = [await open_ledger(), await open_ledger()]
    names = [f"x{n}" for n in range(12)]
    writes = []
    chance = random.Random(7)  # noqa: S311
    for _ in range(15):
        for ledger in ledgers:
            of = seating(*chance.sample(names, 6))
            await open_panel(ledger, of)
            writes += [put(ledger, of, answer(of, n)) for n in range(6)]
            writes.append(ledger.reserve("general", stalest(chance.sample(names, 6), 2)))
    ends = await asyncio.gather(*writes, return_exceptions=True)
    assert [end for end in ends if isinstance(end, Exception)] == []
    await check_sums(ledgers[0])


ODD = [
    {"useful": -5, "not_useful": -1, "answered": -3, "last_seated_ms": -1},
    {"useful": 10, "not_useful": 0, "answered": 1, "last_seated_ms": 9 * 10**18},
    {"useful": 2**62, "not_useful": 2**62, "answered": 2**62},
]
# SQLite keeps whatever it is given.
ODD_OF_SQLITE = [
    {"useful": "many", "answered": "", "last_seated_ms": "yesterday"},
    {"useful": 1e300, "not_useful": float("inf"), "last_seated_ms": float("inf")},
    {"useful": b"\x00", "last_seated_ms": b"\xff"},
]


async def check_odd(ledger: SqlLedger, odd: Json) -> None:
    keys = {"collection": "", "owner": "", "alias": "gpt", "shape": "general"}
    row = {**dict.fromkeys(sums.c.keys(), 0), **keys, **odd}
    insert = f"INSERT INTO sums ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"  # noqa: S608
    await ledger._durable(lambda connection: connection.execute(sa.text(insert), row))
    (line,) = await ledger.record(None, None)
    assert 0 <= line.interval.low <= line.interval.high <= 1
    assert line.sums.owed >= 0
    assert len(await ledger.reserve("general", stalest(["gpt", "claude"], 2))) == 2
    of = await full(ledger, "gpt")
    assert (await ledger.judge(Verdict(of.seats[0].call, True), MINE)).recorded


@pytest.mark.parametrize("odd", ODD)
async def test_odd_rows_yield_a_valid_record_and_a_valid_choice(ledger: SqlLedger, odd: Json) -> None:
    await check_odd(ledger, odd)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("odd", ODD_OF_SQLITE)
async def test_so_do_rows_that_hold_no_numbers(ledger: SqlLedger, odd: Json) -> None:
    await check_odd(ledger, odd)


async def test_a_late_answer_of_a_panel_that_was_never_opened_is_kept(ledger: SqlLedger) -> None:
    of = seating("gpt")
    await put(ledger, of, answer(of), late=True)
    assert await ledger.owed([of.seats[0].call], MINE) == [of.seats[0].call]


async def test_half_a_character_in_what_was_asked_loses_no_panel(ledger: SqlLedger) -> None:
    of = seating("gpt")
    await open_panel(ledger, of, asked="a\ud83d b")
    await put(ledger, of, answer(of))
    assert (await shown(ledger, of))["asked"] == "a? b"

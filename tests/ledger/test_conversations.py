"""Conversations in the ledger: each turn durable, one call a model, and judged as any answer is."""

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.engine import Connection

from bench_proxy.bench import Judged
from bench_proxy.errors import InvalidRequest, LedgerUnavailable, NotFound
from bench_proxy.ids import conversation_id
from bench_proxy.keys import Use
from bench_proxy.ledger.schema import conversations, metadata, seats, turns, verdicts
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.marks import Pick
from bench_proxy.records import Sums, Verdict
from bench_proxy.route.keeping import Failed, NotAsked, Pin, TurnReport
from bench_proxy.route.shadows import Shadow
from bench_proxy.upstream import CallPiece, Reply
from tests.ledger.conftest import Open
from tests.ledger.panels import answer, counted, recounted, seating

Json = Mapping[str, Any]

MINE, YOURS = "owner-1", "owner-2"
NOON = 1_772_366_400_000
KEY = "5" * 64


def said(text: str = "Done.", **more: Any) -> Reply:
    known = {"finish_reason": "stop", "prompt_tokens": 100, "completion_tokens": 10, "cost": 0.5}
    return Reply(text, **{**known, **more})


def turn(conversation: str, number: int = 1, alias: str = "gpt", **more: Any) -> TurnReport:
    """A turn that the nth model of a conversation answered; nobody did where the number is 0."""
    return TurnReport(
        **{
            "conversation": conversation,
            "sticky": KEY,
            "sticky_by": "fingerprint",
            "collection": "core",
            "model": "bench/core:route",
            "shape": "code",
            "turn": 1,
            "at_ms": NOON,
            "status": "ok" if number else "error",
            "seconds": 1.5,
            "call": f"{conversation}.{number}" if number else "",
            "number": number,
            "alias": alias if number else "",
            "reply": said() if number else Reply(""),
            **more,
        }
    )


def failed(alias: str, kind: str = "rate_limit") -> Failed:
    return Failed(alias, 429, kind, f"{alias} is busy")


async def take(ledger: SqlLedger, *reports: TurnReport, owner: str = MINE) -> None:
    for report in reports:
        await ledger.took(report, owner)


async def shown(ledger: SqlLedger, conversation: str, owner: str | None = None) -> Json:
    found = await ledger.conversation(conversation, owner)
    assert found is not None
    return found


async def sums_of(ledger: SqlLedger, alias: str, shape: str = "code", **where: Any) -> Sums:
    lines = await ledger.record(where.get("collection"), where.get("owner"))
    found = [line.sums for line in lines if (line.sums.alias, line.sums.shape) == (alias, shape)]
    return found[0] if found else Sums(alias, shape)


async def check_sums(ledger: SqlLedger) -> None:
    def read(connection: Connection) -> tuple[object, object]:
        return counted(connection), recounted(connection)

    kept, right = await ledger._read(read)
    assert kept == right


async def change(ledger: SqlLedger, statement: Any) -> None:
    """Something other than the ledger does this to its database."""
    await ledger._durable(lambda connection: connection.execute(statement))


@pytest.fixture
def name() -> str:
    return conversation_id()


# When it cannot be written or read


async def every_use(ledger: SqlLedger, conversation: str) -> list[object]:
    uses = [
        ledger.took(turn(conversation), MINE),
        ledger.pinned(KEY, 0),
        ledger.conversations(10, None, None, None),
        ledger.conversation(conversation, None),
    ]
    return await asyncio.gather(*uses, return_exceptions=True)


async def test_a_closed_ledger_is_unavailable_to_turns(open_ledger: Open, name: str) -> None:
    ledger = await open_ledger()
    await ledger.close()
    assert {type(end) for end in await every_use(ledger, name)} == {LedgerUnavailable}


async def test_a_ledger_whose_tables_are_gone_is_unavailable_to_turns(empty_url: str, name: str) -> None:
    ledger = await SqlLedger.open(empty_url, lambda: "full")
    for table in metadata.tables.values():
        await change(ledger, sa.schema.DropTable(table))
    assert {type(end) for end in await every_use(ledger, name)} == {LedgerUnavailable}
    await ledger.close()


async def test_a_turn_that_cannot_be_written_whole_is_not_written_at_all(ledger: SqlLedger, name: str) -> None:
    await change(ledger, sa.text("ALTER TABLE seats RENAME TO elsewhere"))
    with pytest.raises(LedgerUnavailable):
        await take(ledger, turn(name))
    await change(ledger, sa.text("ALTER TABLE elsewhere RENAME TO seats"))
    assert await ledger.conversation(name, None) is None
    assert await ledger.record(None, None) == []
    await take(ledger, turn(name))
    await check_sums(ledger)


KILLED = """
import asyncio, os, signal, sys
from bench_proxy.ledger.store import SqlLedger
from tests.ledger.test_conversations import MINE, turn

async def main():
    ledger = await SqlLedger.open(sys.argv[1], lambda: "full")
    await ledger.took(turn(sys.argv[2]), MINE)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_turn_outlives_the_process_that_took_it(url: str, open_ledger: Open, name: str) -> None:
    command = [sys.executable, "-c", KILLED, url, name]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    ledger = await open_ledger()
    assert (await shown(ledger, name))["turns"] == 1
    assert await ledger.owed([f"{name}.1"], MINE) == [f"{name}.1"]
    await check_sums(ledger)


@pytest.mark.parametrize("returning", [True, False])
async def test_turns_are_numbered_as_they_are_recorded(
    open_ledger: Open, name: str, returning: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a SQLite that does not tell what it has written."""
    for dialect in (SQLiteDialect, PGDialect):
        monkeypatch.setattr(dialect, "insert_returning", returning)
    ledger = await open_ledger()
    kept = await asyncio.gather(*(ledger.took(turn(name, alias=alias), MINE) for alias in ("gpt", "qwen", "gpt")))
    assert [(one.turn, one.call) for one in kept] == [(1, f"{name}.1"), (2, f"{name}.2"), (3, f"{name}.1")]


async def test_a_turn_is_durable_when_took_returns(ledger: SqlLedger, open_ledger: Open, name: str) -> None:
    await take(ledger, turn(name))
    other = await open_ledger()
    assert (await other.judge(Verdict(f"{name}.1", True), MINE)).recorded


# Turns and calls


async def test_a_conversation_is_shown_with_all_that_is_known_of_it(ledger: SqlLedger, name: str) -> None:
    first = turn(
        name,
        at_ms=NOON + 123,
        first_piece_seconds=0.25,
        tool_calls=2,
        reply=said("Because.", cached_tokens=60, cache_write_tokens=7, reasoning_tokens=4),
        failed_over=(failed("claude"),),
        skipped=(NotAsked("owl", "cannot see images"),),
        left_out=("web_search",),
    )
    await take(ledger, first)
    call = f"{name}.1"
    kept = {"prompt_tokens": 100, "completion_tokens": 10, "cost": 0.5}
    turn_json = {
        "turn": 1,
        "at": (NOON + 123) / 1000,
        "call": call,
        "alias": "gpt",
        "status": "ok",
        "seconds": 1.5,
        "first_piece_seconds": 0.25,
        "tool_calls": 2,
        "finish_reason": "stop",
        **kept,
        "cached_tokens": 60,
        "cache_write_tokens": 7,
        "reasoning_tokens": 4,
        "failed_over": [
            {"alias": "claude", "error": {"status": 429, "type": "rate_limit", "message": "claude is busy"}}
        ],
        "skipped": [{"alias": "owl", "why": "cannot see images"}],
        "left_out": ["web_search"],
    }
    call_json = {
        "call": call,
        "alias": "gpt",
        "seconds": 1.5,
        "first_piece_seconds": 0.25,
        "finish_reason": "stop",
        **kept,
        "answer": "Because.",
        "owed": True,
    }
    assert await shown(ledger, name) == {
        "conversation": name,
        "at": (NOON + 123) / 1000,
        "last": (NOON + 1623) / 1000,
        "collection": "bench/core",
        "model": "bench/core:route",
        "shape": "code",
        "sticky_by": "fingerprint",
        "alias": "gpt",
        "turns": 1,
        "calls": [call_json],
        "history": [turn_json],
    }
    (listed,) = (await ledger.conversations(10, None, None, None)).rows
    without = {key: value for key, value in call_json.items() if key != "answer"}
    assert listed == {k: v for k, v in (await shown(ledger, name)).items() if k != "history"} | {"calls": [without]}


async def test_what_is_not_known_is_left_out(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name, reply=Reply("")))
    found = await shown(ledger, name)
    assert found["calls"] == [{"call": f"{name}.1", "alias": "gpt", "seconds": 1.5, "owed": True}]
    assert set(found["history"][0]) == {
        "turn", "at", "call", "alias", "status", "seconds", "tool_calls", "failed_over", "skipped", "left_out",
    }  # fmt: skip


async def test_what_a_call_cost_is_shown_without_the_noise_of_its_sum(ledger: SqlLedger, name: str) -> None:
    await take(ledger, *(turn(name, turn=n, reply=said(cost=cost)) for n, cost in enumerate((0.1, 0.2), 1)))
    found = await shown(ledger, name)
    assert found["calls"][0]["cost"] == 0.3
    assert [told["cost"] for told in found["history"]] == [0.1, 0.2]


async def test_later_turns_of_a_model_add_to_its_call(ledger: SqlLedger, name: str) -> None:
    await take(
        ledger,
        turn(name, reply=said("Let me look.", cost=None), first_piece_seconds=0.5),
        turn(name, turn=2, at_ms=NOON + 5000, reply=said("Found it.", finish_reason="length"), first_piece_seconds=2),
        turn(name, turn=3, at_ms=NOON + 9000, reply=Reply("", calls=(CallPiece(0, "c", "ls", "{}"),))),
    )
    found = await shown(ledger, name)
    (call,) = found["calls"]
    assert (call["prompt_tokens"], call["completion_tokens"], call["cost"]) == (200, 20, 0.5)
    assert (call["seconds"], call["first_piece_seconds"]) == (4.5, 0.5)
    # A turn that only calls tools says nothing: what was said last is what can be judged.
    assert (call["answer"], call["finish_reason"]) == ("Found it.", "length")
    assert (found["turns"], found["at"], found["last"]) == (3, NOON / 1000, (NOON + 10_500) / 1000)
    sums = await sums_of(ledger, "gpt")
    assert (sums.seated, sums.answered, sums.turns, sums.last_seated_ms) == (1, 1, 3, NOON + 9000)
    await check_sums(ledger)


async def test_each_model_that_answered_has_a_call(ledger: SqlLedger, name: str) -> None:
    await take(
        ledger,
        turn(name),
        turn(name, 2, "claude", turn=2, failed_over=(failed("gpt"),)),
        turn(name, 1, "gpt", turn=3),
    )
    found = await shown(ledger, name)
    assert [(call["call"], call["alias"]) for call in found["calls"]] == [(f"{name}.1", "gpt"), (f"{name}.2", "claude")]
    assert [turn["alias"] for turn in found["history"]] == ["gpt", "claude", "gpt"]
    assert found["alias"] == "gpt"
    gpt, claude = await sums_of(ledger, "gpt"), await sums_of(ledger, "claude")
    assert (gpt.seated, gpt.answered, gpt.failed, gpt.turns, gpt.failovers) == (2, 1, 1, 2, 1)
    assert (claude.seated, claude.answered, claude.failed, claude.turns) == (1, 1, 0, 1)
    await check_sums(ledger)


async def test_a_turn_that_nobody_answered_is_kept_without_a_call(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name, 0, failed_over=(failed("gpt"), failed("claude", "timeout"))))
    found = await shown(ledger, name)
    assert (found["calls"], found["alias"], found["turns"]) == ([], None, 1)
    (only,) = found["history"]
    assert only["status"] == "error"
    assert not {"call", "alias"} & set(only)
    for alias in ("gpt", "claude"):
        sums = await sums_of(ledger, alias)
        assert (sums.seated, sums.failed, sums.answered, sums.turns, sums.failovers) == (1, 1, 0, 0, 1)
    await check_sums(ledger)


async def test_a_model_that_was_tried_twice_in_a_turn_failed_once(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name, 0, failed_over=(failed("gpt", "bad_request"), failed("gpt"))))
    sums = await sums_of(ledger, "gpt")
    assert (sums.seated, sums.failed, sums.failovers) == (1, 1, 2)
    await check_sums(ledger)


@pytest.mark.parametrize("kind", ["cancelled", "context_window", "tools", "bad_request"])
async def test_what_says_nothing_of_a_model_is_no_failure_of_it(ledger: SqlLedger, name: str, kind: str) -> None:
    await take(ledger, turn(name, failed_over=(failed("claude", kind),)))
    sums = await sums_of(ledger, "claude")
    assert (sums.seated, sums.failed, sums.failovers) == (0, 0, 1)
    await check_sums(ledger)


async def test_a_cancelled_turn_begins_a_call_only_if_something_was_said(ledger: SqlLedger, name: str) -> None:
    silent, cut = turn(name, status="cancelled", reply=Reply("")), turn(name, status="cancelled", reply=said("Le"))
    await take(ledger, silent)
    assert (await shown(ledger, name))["calls"] == []
    assert await ledger.owed([f"{name}.1"], MINE) == []
    await take(ledger, cut)
    assert [call["answer"] for call in (await shown(ledger, name))["calls"]] == ["Le"]
    sums = await sums_of(ledger, "gpt")
    assert (sums.answered, sums.turns) == (1, 2)
    await check_sums(ledger)


async def test_what_a_cancelled_turn_used_is_added_to_the_call_that_there_is(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name), turn(name, turn=2, status="cancelled", reply=said("", finish_reason=None)))
    (call,) = (await shown(ledger, name))["calls"]
    assert (call["prompt_tokens"], call["answer"], call["finish_reason"]) == (200, "Done.", "stop")


async def test_half_an_answer_that_broke_off_begins_no_call_and_replaces_none(ledger: SqlLedger, name: str) -> None:
    broke = {"status": "error", "reply": said("Hal"), "failed_over": (failed("gpt", "connection"),)}
    await take(ledger, turn(name, **broke))
    assert (await shown(ledger, name))["calls"] == []
    await take(ledger, turn(name, turn=2), turn(name, turn=3, **broke))
    (call,) = (await shown(ledger, name))["calls"]
    assert (call["answer"], call["prompt_tokens"]) == ("Done.", 200)
    sums = await sums_of(ledger, "gpt")
    assert (sums.answered, sums.failed, sums.turns, sums.failovers) == (1, 2, 1, 2)
    await check_sums(ledger)


async def test_two_models_that_thought_of_one_number_have_a_call_each(ledger: SqlLedger, name: str) -> None:
    """Of two turns that were taken at the same time, or by processes that know nothing of each other."""
    first = await ledger.took(turn(name), MINE)
    second = await ledger.took(turn(name, 1, "claude", turn=1), MINE)
    again = await ledger.took(turn(name, 1, "claude", turn=1), MINE)
    assert [(kept.call, kept.turn) for kept in (first, second, again)] == [
        (f"{name}.1", 1),
        (f"{name}.2", 2),
        (f"{name}.2", 3),
    ]
    found = await shown(ledger, name)
    assert [(call["call"], call["alias"], call["prompt_tokens"]) for call in found["calls"]] == [
        (f"{name}.1", "gpt", 100),
        (f"{name}.2", "claude", 200),
    ]
    assert [(turn["turn"], turn["alias"]) for turn in found["history"]] == [(1, "gpt"), (2, "claude"), (3, "claude")]
    await check_sums(ledger)


async def test_a_model_that_has_answered_keeps_its_call_whatever_its_caller_thinks(
    ledger: SqlLedger, name: str
) -> None:
    await take(ledger, turn(name), turn(name, 2, "claude"))
    assert (await ledger.took(turn(name, 5, "gpt"), MINE)).call == f"{name}.1"


@pytest.mark.parametrize(("content", "kept"), [("full", "Done."), ("answers", "Done."), ("none", None)])
async def test_the_text_is_kept_unless_the_operator_wants_none(
    open_ledger: Open, name: str, content: str, kept: str | None
) -> None:
    ledger = await open_ledger(content)
    cut = turn(name, 2, "claude", turn=2, status="cancelled")
    await take(ledger, turn(name), turn(name, turn=1), cut)
    # Whether there is something to judge does not depend on what is kept of it.
    assert [call.get("answer") for call in (await shown(ledger, name))["calls"]] == [kept, kept]


async def test_a_turn_or_shadow_that_says_so_leaves_no_text_and_is_judged_all_the_same(
    ledger: SqlLedger, name: str
) -> None:
    await take(ledger, turn(name, status="cancelled", keep_text=False))
    call = f"{name}.shadow1"
    await ledger.shadowed(
        Shadow(name, call, 1, "core", "code", "claude", NOON, 1.5, said(), "Done.", keep_text=False), MINE
    )
    found = await shown(ledger, name)
    assert "Done." not in str(found)
    assert [kept["completion_tokens"] for kept in (*found["calls"], *found["shadows"])] == [10, 10]
    for judged in (f"{name}.1", call):
        assert (await ledger.judge(Verdict(judged, useful=True), MINE)).recorded


async def test_odd_characters_and_numbers_that_a_model_made_up_lose_no_turn(ledger: SqlLedger, name: str) -> None:
    odd = said("a\0b \ud83d", finish_reason="\0" * 100, prompt_tokens=10**20, completion_tokens=-5)
    message = Failed("c\0" * 200, 500, "server_error", "\0\ud83d")
    report = turn(name, alias="x" * 300, model="m\0" * 300, reply=odd, failed_over=(message,), left_out=("\0",))
    await take(ledger, report, report)
    found = await shown(ledger, name)
    assert (found["calls"][0]["prompt_tokens"], found["calls"][0]["completion_tokens"]) == (2**31 - 1, 0)
    assert found["calls"][0]["answer"] == "a\N{REPLACEMENT CHARACTER}b ?"
    assert found["turns"] == 2


async def test_simultaneous_turns_lose_nothing(open_ledger: Open, name: str) -> None:
    ledgers = [await open_ledger(), await open_ledger()]
    reports = [turn(name, turn=n, failed_over=(failed("claude"),)) for n in range(1, 21)]
    await asyncio.gather(*(ledgers[n % 2].took(report, MINE) for n, report in enumerate(reports)))
    found = await shown(ledgers[0], name)
    assert (found["turns"], found["calls"][0]["prompt_tokens"]) == (20, 2000)
    assert [each["turn"] for each in found["history"]] == list(range(1, 21))
    await check_sums(ledgers[0])


async def test_a_panel_in_the_same_commit_counts_beside_a_turn(ledger: SqlLedger, name: str) -> None:
    of = seating("gpt", shape="code")
    await ledger.opened(of, MINE, "Why?", NOON)
    await asyncio.gather(
        ledger.answered(of, MINE, answer(of), 0, Use(), late=False, urgent=False), ledger.took(turn(name), MINE)
    )
    assert (await sums_of(ledger, "gpt")).answered == 2
    await check_sums(ledger)


# Who answers


async def test_a_key_without_a_conversation_has_no_pin(ledger: SqlLedger, name: str) -> None:
    assert await ledger.pinned(KEY, 0) is None
    await take(ledger, turn(name))
    assert await ledger.pinned("6" * 64, 0) is None


async def test_the_pin_is_that_of_the_last_turn(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name), turn(name, 2, "claude", turn=2), turn(name, 0, turn=3))
    assert await ledger.pinned(KEY, NOON) == Pin(name, "claude", ("gpt", "claude"), 3)


async def test_a_conversation_that_was_idle_too_long_has_no_pin(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name))
    assert await ledger.pinned(KEY, NOON + 1500) is not None
    assert await ledger.pinned(KEY, NOON + 1501) is None


async def test_the_newest_conversation_of_a_key_has_the_pin(ledger: SqlLedger) -> None:
    old, new = conversation_id(), conversation_id()
    await take(ledger, turn(new, at_ms=NOON + 9000, alias="claude"), turn(old))
    pin = await ledger.pinned(KEY, 0)
    assert pin == Pin(new, "claude", ("claude",), 1)


async def test_a_number_that_a_caller_was_told_is_not_given_again(ledger: SqlLedger, name: str) -> None:
    silent = turn(name, 2, "claude", turn=2, status="cancelled", reply=Reply(""))
    await take(ledger, turn(name), silent, turn(name, 4, "qwen", turn=5))
    assert await ledger.pinned(KEY, 0) == Pin(name, "qwen", ("gpt", "claude", "", "qwen"), 3)


async def test_a_conversation_that_nobody_answered_keeps_its_name(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name, 0))
    assert await ledger.pinned(KEY, 0) == Pin(name, "", (), 1)


# Verdicts


async def test_a_call_is_owed_and_judged_as_any_answer(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name))
    call = f"{name}.1"
    assert await ledger.owed([call], MINE) == [call]
    assert await ledger.judge(Verdict(call, True, "good", ("it leaks", "it races"), ("it is slow",), "eve"), MINE) == (
        Judged(True, "gpt")
    )
    assert await ledger.owed([call], MINE) == []
    (kept,) = (await shown(ledger, name))["calls"]
    verdict = kept["verdict"]
    assert (kept["owed"], verdict["useful"], verdict["note"], verdict["by"]) == (False, True, "good", "eve")
    assert (verdict["real"], verdict["false"]) == (["it leaks", "it races"], ["it is slow"])
    sums = await sums_of(ledger, "gpt")
    assert (sums.useful, sums.owed, sums.claims_held, sums.claims_failed) == (1, 0, 2, 1)
    await check_sums(ledger)


async def test_a_later_turn_leaves_the_verdict_on_its_call(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name))
    await ledger.judge(Verdict(f"{name}.1", False, "wrong"), MINE)
    await take(ledger, turn(name, turn=2, reply=said("Sorry.")))
    (call,) = (await shown(ledger, name))["calls"]
    assert (call["verdict"]["useful"], call["verdict"]["note"], call["answer"]) == (False, "wrong", "Sorry.")
    await check_sums(ledger)


async def test_calls_of_a_conversation_are_not_compared_with_one_another(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name), turn(name, 2, "claude", turn=2))
    await ledger.judge(Verdict(f"{name}.1", True, "good"), MINE)
    await ledger.judge(Verdict(f"{name}.2", False, "bad"), MINE)
    assert await ledger.wins(None, None) == {}
    await ledger.judge(Verdict(f"{name}.2", None), MINE)
    first, second = (await shown(ledger, name))["calls"]
    assert (first["owed"], first["verdict"]["note"]) == (False, "good")
    assert second["owed"]
    await check_sums(ledger)


async def test_a_conversation_with_one_call_is_judged_by_its_own_name(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name))
    assert await ledger.judge(Verdict(name, True), MINE) == Judged(True, "gpt")
    assert await ledger.judge(Verdict(f"{name}.1", True), MINE) == Judged(False, "gpt")
    rows = await ledger._read(lambda connection: connection.execute(sa.select(verdicts.c.call)).scalars().all())
    assert rows == [f"{name}.1"]


async def test_a_conversation_with_several_calls_is_judged_call_by_call(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name), turn(name, 2, "claude", turn=2))
    with pytest.raises(InvalidRequest) as refused:
        await ledger.judge(Verdict(name, True), MINE)
    assert refused.value.status == 400
    assert f"{name}.1 (gpt), {name}.2 (claude)" in refused.value.message


async def test_a_conversation_that_nobody_answered_cannot_be_judged(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name, 0))
    for call in (name, f"{name}.1", conversation_id()):
        with pytest.raises(NotFound, match=call):
            await ledger.judge(Verdict(call, True), MINE)


async def test_what_is_another_keys_is_invisible(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name), owner=YOURS)
    assert await ledger.conversation(name, MINE) is None
    assert (await ledger.conversations(10, None, None, MINE)).rows == []
    assert await ledger.owed([f"{name}.1"], MINE) == []
    assert await ledger.record(None, MINE) == []
    for call in (name, f"{name}.1"):
        with pytest.raises(NotFound, match="no call"):
            await ledger.judge(Verdict(call, True), MINE)
    with pytest.raises(NotFound, match="no panel"):
        await ledger.pick(Pick(name, f"{name}.1"), MINE)
    assert (await ledger.judge(Verdict(name, True), None)).recorded
    assert (await sums_of(ledger, "gpt", owner=YOURS)).useful == 1


async def test_a_pick_is_for_panels_alone(ledger: SqlLedger, name: str) -> None:
    of = seating("gpt")
    await ledger.opened(of, MINE, "Why?", NOON)
    await ledger.answered(of, MINE, answer(of), 0, Use(), late=False)
    await take(ledger, turn(name), turn(name, 2, "claude", turn=2))
    for pick in (Pick(name, f"{name}.1"), Pick(name, None), Pick(of.panel, f"{name}.1")):
        with pytest.raises(InvalidRequest, match="conversation") as refused:
            await ledger.pick(pick, MINE)
        assert refused.value.status == 400
    assert await ledger.wins(None, None) == {}


async def test_sums_are_those_of_all_turns_after_anything_that_happened(ledger: SqlLedger) -> None:
    source = random.Random(20261130)  # noqa: S311  the same sequence each time
    names = [conversation_id() for _ in range(4)]
    aliases = ("gpt", "claude", "qwen")
    for at in range(120):
        name, number = source.choice(names), source.randint(0, 3)
        over = [failed(a, source.choice(["rate_limit", "tools"])) for a in aliases if source.random() < 0.2]
        status = source.choice(["ok", "ok", "cancelled", "error"]) if number else "error"
        reply = said(source.choice(["", "Yes."]))
        await take(
            ledger, turn(name, number, aliases[number - 1], turn=at, status=status, reply=reply, failed_over=over)
        )
        claims = tuple("abc"[: source.randint(0, 3)])
        verdict = Verdict(f"{name}.{number}", source.choice([True, False, None]), "", claims, claims[1:])
        try:
            await ledger.judge(verdict, MINE)
        except NotFound:
            assert verdict.call not in [call["call"] for call in (await shown(ledger, name))["calls"]]
    await check_sums(ledger)


# Lists


async def test_pages_follow_one_another_newest_first(ledger: SqlLedger) -> None:
    names = [conversation_id() for _ in range(7)]
    for n, name in enumerate(names):
        await take(ledger, turn(name, at_ms=NOON + n // 2), owner=MINE if n % 3 else YOURS)
    # A later turn does not move a conversation to another page.
    await take(ledger, turn(names[0], turn=2, at_ms=NOON + 99_000), owner=YOURS)
    listed: list[str] = []
    cursor = None
    for _ in range(4):
        page = await ledger.conversations(2, cursor, None, None)
        listed += [row["conversation"] for row in page.rows]
        cursor = page.next
    assert cursor is None
    assert sorted(listed) == sorted(names)
    assert [names.index(name) // 2 for name in listed] == [3, 2, 2, 1, 1, 0, 0]
    assert len((await ledger.conversations(10, None, None, YOURS)).rows) == 3


async def test_a_list_keeps_to_its_collection(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name), turn(conversation_id(), collection="other"))
    assert [row["conversation"] for row in (await ledger.conversations(10, None, "core", None)).rows] == [name]
    assert (await ledger.conversations(10, None, "gone\0", None)).rows == []


@pytest.mark.parametrize("cursor", ["", "x", "1.", ".x", "1.\0", "-1.x"])
async def test_what_is_no_cursor_is_the_callers_error(ledger: SqlLedger, cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        await ledger.conversations(10, cursor, None, None)


async def test_panels_and_conversations_are_listed_apart(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name))
    assert (await ledger.panels(10, None, None, None)).rows == []
    assert await ledger.panel(name, None) is None


async def test_odd_values_in_a_turn_spoil_no_page(ledger: SqlLedger, name: str) -> None:
    await take(ledger, turn(name, first_piece_seconds=0.1))
    odd = float("nan")
    await change(ledger, turns.update().values(seconds=float("inf"), first_piece_seconds=odd, failed_over="7"))
    await change(ledger, turns.update().values(skipped="garbage", left_out='{"a": 1}', turn=-5))
    await change(ledger, seats.update().values(seconds=float("inf"), real="garbage"))
    orjson.dumps([await shown(ledger, name), (await ledger.conversations(10, None, None, None)).rows])
    await take(ledger, turn(name, turn=2))
    assert (await ledger.judge(Verdict(name, True), None)).recorded


ODD: list[object] = ["many", b"\xff", float("inf"), 1e300, -7]


# SQLite keeps whatever it is given.
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("odd", ODD)
async def test_nor_do_rows_that_hold_no_numbers(ledger: SqlLedger, name: str, odd: object) -> None:
    await take(ledger, turn(name, first_piece_seconds=0.1))
    for table, columns in (
        (turns, ("turn", "at_ms", "number", "seconds", "tool_calls", "prompt_tokens", "cost")),
        (seats, ("seconds", "prompt_tokens", "completion_tokens", "cost")),
        (conversations, ("turns", "last_ms")),
    ):
        for column in columns:
            await change(ledger, sa.text(f"UPDATE {table.name} SET {column} = :odd").bindparams(odd=odd))  # noqa: S608
    json.dumps([await shown(ledger, name), (await ledger.conversations(10, None, None, None)).rows], allow_nan=False)
    await ledger.pinned(KEY, 0)
    await take(ledger, turn(name, turn=2))
    json.dumps(await shown(ledger, name), allow_nan=False)

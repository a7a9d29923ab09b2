"""A turn: who is asked, who is asked next, what the caller hears, what the record has."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from bench_proxy.bench import Caller
from bench_proxy.errors import BenchError, ContextOverflow, InvalidRequest, LedgerUnavailable, TurnFailed
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.keys import Use
from bench_proxy.records import Record
from bench_proxy.route import recording
from bench_proxy.route import turn as turns
from bench_proxy.route.keeping import Pin, TurnReport
from bench_proxy.route.turn import READ_AT_ONCE, Begun, Ended, Turn
from bench_proxy.route.untangling import CallArguments, CallBegun, CallDone
from bench_proxy.upstream import CallPiece, Reply, Text, Thought
from tests.doubles import WITHIN, Models, Remembered, Table, fails, until

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
DONE = Reply("", "stop", prompt_tokens=10, completion_tokens=5, cost=0.001)


class KeptPins:
    """Pins in memory, for ever."""

    def __init__(self) -> None:
        self.pins: dict[str, Pin] = {}

    async def get(self, key: str) -> Pin | None:
        return self.pins.get(key)

    async def put(self, keys: Collection[str], pin: Pin, seconds: float) -> None:
        self.pins |= dict.fromkeys(keys, pin)


class SlowRecord(Remembered):
    """Others get their turn while it is read."""

    async def record(self, collection: str | None, owner: str | None) -> list[Record]:
        await asyncio.sleep(0)
        return self.lines


async def _all(names: Any) -> list[str]:
    return list(names)


def table(
    models: Models,
    *members: str,
    route: dict[str, Any] | None = None,
    pins: KeptPins | None = None,
    **more: Any,
) -> Table:
    return Table(
        models,
        members=members or ("a", "b", "c"),
        pins=pins or KeptPins(),
        route={"explore_share": 0, "unknown_tools": "try", **(route or {})},
        **more,
    )


async def turn_of(
    table: Table,
    *texts: str,
    tools: bool = False,
    settings: dict[str, Any] | None = None,
    system: str | None = None,
    keep_text: bool = True,
    **brief: Any,
) -> Turn:
    asked = Brief(**{"model": "bench/core:route", "collection": "core", "reply": "route", **brief})
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": t} for i, t in enumerate(texts or ("hi",))]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    request = ChatRequest(messages, {**({"tools": [TOOL]} if tools else {}), **(settings or {})})
    caller = Caller("me", admin=False, allowed=_all)
    return await table.bench.take_turn(asked, request, caller, table.config, keep_text=keep_text)


async def heard(turn: Turn) -> list[Any]:
    async with asyncio.timeout(WITHIN), aclosing(turn.pieces()) as pieces:
        return [piece async for piece in pieces]


async def answer(table: Table, *texts: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """Who answered, and the `bench` object."""
    pieces = await heard(await turn_of(table, *texts, **more))
    begun, ended = pieces[0], pieces[-1]
    assert isinstance(begun, Begun)
    assert isinstance(ended, Ended)
    return begun.alias, dict(ended.data)


async def refused(turn: Turn) -> BenchError:
    with pytest.raises(BenchError) as caught:
        await heard(turn)
    return caught.value


def reports(table: Table) -> list[TurnReport]:
    return table.ledger.turns


# Who answers.


async def test_the_first_member_answers_piece_by_piece() -> None:
    at = table(Models(a=["Hel", "lo"]))
    pieces = await heard(await turn_of(at))
    assert pieces[0].alias == "a"
    assert pieces[1:-1] == [Text("Hel"), Text("lo")]
    assert pieces[-1].finish_reason == "stop"
    assert pieces[-1].data["reply"] == "route"
    assert pieces[-1].data["failed_over"] == []


async def test_a_member_that_fails_before_its_first_piece_is_replaced_unseen() -> None:
    at = table(Models(a=[fails(500)], b=[Thought("hm"), fails(529, "overloaded")]))
    alias, data = await answer(at)
    assert alias == "c"
    assert [(f["alias"], f["error"]["status"]) for f in data["failed_over"]] == [("a", 500), ("b", 529)]


@pytest.mark.parametrize(
    "script", [[DONE], [" ", "\n", DONE], [Thought("let me see"), DONE], [Thought("let me see")], [""]]
)
async def test_an_answer_without_a_piece_is_a_failure(script: list[Any]) -> None:
    assert (await answer(table(Models(a=script))))[0] == "b"


async def test_a_member_that_says_nothing_is_left_after_first_piece_seconds() -> None:
    models = Models(a=[Thought("hm"), asyncio.Event(), "late"])
    at = table(models, timing={"first_piece": 0.05})
    alias, data = await answer(at)
    assert alias == "b"
    assert data["failed_over"][0]["error"]["type"] == "timeout"
    assert models.open == 0


async def read_slowly(turn: Turn) -> None:
    async with aclosing(turn.pieces()) as pieces:
        async for piece in pieces:
            if isinstance(piece, Text | Thought):
                await asyncio.sleep(0.15)


@pytest.mark.parametrize("script", [["one ", "two ", "three "], [Thought("one"), Thought("two"), "three"]])
async def test_a_caller_that_takes_its_time_is_not_the_members_fault(script: list[Any]) -> None:
    at = table(Models(a=[*script, asyncio.Event()]), timing={"turn": 0.2})
    turn = await turn_of(at)
    with pytest.raises(TurnFailed, match="the caller took most of the turn's"):
        await read_slowly(turn)
    assert at.bench.cooling.left() == {}
    (report,) = reports(at)
    assert [(failed.status, failed.type) for failed in report.failed_over] == [(499, "cancelled")]


async def test_thoughts_are_held_back_with_the_first_piece_and_come_in_order() -> None:
    at = table(Models(a=[Thought("one "), Thought("two"), "answer", Thought("three")]))
    pieces = await heard(await turn_of(at))
    assert pieces[1:-1] == [Thought("one "), Thought("two"), Text("answer"), Thought("three")]


async def test_a_call_is_a_first_piece_and_comes_as_deltas() -> None:
    script = [CallPiece(0, "call_1", "read", '{"pa'), CallPiece(0, None, None, 'th":"x"}'), Reply("", "stop")]
    pieces = await heard(await turn_of(table(Models(a=script)), tools=True))
    assert [type(p) for p in pieces] == [Begun, CallBegun, CallArguments, CallArguments, CallDone, Ended]
    assert pieces[-1].finish_reason == "tool_calls"


async def test_a_call_whose_name_could_go_on_is_an_answer_once_it_has_ended() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("read", "read_file")]
    script = [CallPiece(0, "call_1", "read", None), Reply("", "tool_calls")]
    pieces = await heard(await turn_of(table(Models(a=script)), settings={"tools": tools}))
    assert [type(p) for p in pieces] == [Begun, CallBegun, CallArguments, CallDone, Ended]


async def test_an_error_inside_a_200_is_never_the_callers_fault() -> None:
    models = Models(a=[fails(400, "bad_request", "broken upstream")])
    assert (await answer(table(models)))[0] == "b"


# The caller's own fault.


class Refusing(Models):
    """Refuses before the stream is opened."""

    def stream(self, call: Any) -> Any:
        if call.alias in self.scripts and isinstance(self.scripts[call.alias], Exception):
            self.calls.append(call)
            raise self.scripts[call.alias]
        return super().stream(call)


async def test_what_every_member_would_refuse_is_not_failed_over() -> None:
    models = Refusing(a=fails(400, "bad_request", "temperature must be at most 2"))  # type: ignore[arg-type]
    error = await refused(await turn_of(table(models)))
    assert isinstance(error, InvalidRequest)
    assert "temperature must be at most 2" in error.message
    assert [call.alias for call in models.calls] == ["a"]


async def test_a_prompt_too_long_for_all_is_told_so_that_agents_compact() -> None:
    overflow = fails(400, "context_window", context_window=8192)
    models = Models(a=[overflow], b=[overflow])
    error = await refused(await turn_of(table(models, "a", "b")))
    assert isinstance(error, ContextOverflow)
    assert error.window == 8192


async def test_a_window_that_an_error_stated_is_known_from_then_on() -> None:
    at = table(Models(a=[fails(400, "context_window", context_window=8192)]), "a", "b")
    await answer(at)
    assert [news.context_window for news in at.bench.facts.known.values()] == [8192]


async def test_a_member_that_called_a_tool_is_known_to() -> None:
    at = table(Models(a=[CallPiece(0, "c", "read", "{}"), Reply("", "tool_calls")]), "a")
    await answer(at, tools=True)
    assert [news.tools for news in at.bench.facts.known.values()] == [True]


# After the first piece.


async def test_a_member_that_breaks_off_is_an_error_and_nobody_starts_again() -> None:
    models = Models(a=["Hel", fails(502, "connection", "cut")])
    turn = await turn_of(table(models))
    with pytest.raises(TurnFailed, match="a broke off"):
        await heard(turn)
    assert [call.alias for call in models.calls] == ["a"]


async def test_a_stream_without_a_terminal_event_is_an_error() -> None:
    class Cut(Models):
        async def _play(self, alias: str) -> AsyncGenerator[Any, None]:
            yield Text("Hel")

    with pytest.raises(TurnFailed, match="terminal event"):
        await heard(await turn_of(table(Cut())))


async def test_the_turn_has_a_limit_also_while_nothing_comes() -> None:
    models = Models(a=["Hel", asyncio.Event(), "lo"])
    at = table(models, timing={"turn": 0.05})
    with pytest.raises(TurnFailed, match="timeout"):
        await heard(await turn_of(at))
    assert models.open == 0
    assert [(report.status, report.reply.text) for report in reports(at)] == [("error", "Hel")]


async def test_a_whole_answer_that_breaks_off_is_the_next_members_turn() -> None:
    models = Models(a=["Hel", fails(502, "connection", "cut")])
    answered = await (await turn_of(table(models))).whole()
    assert answered.begun.alias == "b"
    assert answered.spoken.text == "I am b."


async def test_a_whole_answer_that_never_comes_leaves_time_for_another_member() -> None:
    models = Models(a=[asyncio.Event()])
    at = table(models, timing={"first_piece": 0.05, "turn": 0.3})
    assert (await (await turn_of(at)).whole()).begun.alias == "b"


async def test_a_pinned_members_whole_answer_that_never_comes_leaves_time_for_another_member() -> None:
    models = Models()
    at = table(models, timing={"first_piece": 0.05, "turn": 0.6})
    assert (await answer(at))[0] == "a"
    models.scripts["a"] = [asyncio.Event()]
    assert (await (await turn_of(at)).whole()).begun.alias == "b"


async def test_a_deadline_that_is_over_before_anybody_was_asked_is_told_as_one() -> None:
    error = await refused(await turn_of(table(Models()), deadline=1e-9))
    assert error.status == 504
    assert "bench.deadline" in error.message


async def test_what_is_held_before_the_first_piece_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_ANSWER", 100)
    models = Models(a=[Thought("x" * 60), Thought("x" * 60), asyncio.Event()])
    alias, data = await answer(table(models))
    assert alias == "b"
    assert data["failed_over"][0]["error"]["type"] == "bad_response"
    assert models.open == 0


async def test_thoughts_behind_the_first_piece_have_an_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_ANSWER", 100)
    models = Models(a=["Well.", Thought("x" * 60), Thought("x" * 60), asyncio.Event()])
    error = await refused(await turn_of(table(models)))
    assert isinstance(error, TurnFailed)
    assert "larger than any answer" in error.message
    assert models.open == 0


async def test_the_name_of_a_call_has_an_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_ANSWER", 100)
    models = Models(a=["Well.", *[CallPiece(0, "c", "x" * 60, "") for _ in range(3)], asyncio.Event()])
    error = await refused(await turn_of(table(models)))
    assert "larger than any answer" in error.message
    assert models.open == 0


async def test_a_whole_answer_that_is_larger_than_any_is_the_next_members_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "MOST_ANSWER", 100)
    answered = await (await turn_of(table(Models(a=["x" * 101])))).whole()
    assert answered.begun.alias == "b"


async def test_of_a_turn_whose_answer_was_empty_nothing_stays_in_memory() -> None:
    turn = await turn_of(table(Models(a=[DONE]), "a"))
    gone = weakref.ref(turn)
    assert (await refused(turn)).status == 502
    del turn
    gc.collect()
    assert gone() is None


async def test_nobody_is_asked_after_the_turns_limit() -> None:
    models = Models(a=[asyncio.Event()], b=[asyncio.Event()], c=[asyncio.Event()])
    error = await refused(await turn_of(table(models, timing={"first_piece": 0.1, "turn": 0.15})))
    assert error.status == 504
    assert len(models.calls) < 3


async def test_a_member_that_floods_its_stream_leaves_others_their_turns() -> None:
    at = table(Models(a=["word "] * 1000))
    turns, over = 0, asyncio.Event()

    async def tick() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await heard(await turn_of(at))
    over.set()
    await ticking
    assert turns >= 1000 // READ_AT_ONCE


# Stickiness.


async def test_a_conversation_stays_on_its_member_when_another_becomes_the_best() -> None:
    at = table(Models(), "a", "b")
    _, first = await answer(at)
    at.config = at.config.model_copy(update={"models": {}})
    for turn in range(2, 5):
        alias, data = await answer(at, "hi", "I am a.", "more")
        assert (alias, data["conversation"], data["turn"]) == ("a", first["conversation"], turn)


async def test_a_client_that_sends_the_told_id_back_stays_in_its_conversation() -> None:
    at = table(Models(), "a", "b")
    _, first = await answer(at)
    for _ in range(2):
        _, data = await answer(at, "something else", conversation=first["conversation"])
        assert data["conversation"] == first["conversation"]


async def test_turns_that_begin_at_the_same_time_are_one_conversation() -> None:
    at = table(Models(), "a", "b", ledger=SlowRecord())
    one, other = await asyncio.gather(turn_of(at), turn_of(at))
    assert one.conversation == other.conversation
    assert [(await heard(turn))[0].alias for turn in (one, other)] == ["a", "a"]


async def test_another_system_text_is_another_conversation() -> None:
    at = table(Models())
    told = [(await answer(at, "hi", system=text))[1]["conversation"] for text in ("Write.", "Find a title.", "Write.")]
    assert told[0] != told[1]
    assert told[0] == told[2]


async def test_a_pinned_member_that_fails_is_unpinned() -> None:
    models = Models()
    at = table(models, "a", "b")
    await answer(at)
    models.scripts["a"] = [fails(500)]
    alias, second = await answer(at)
    assert alias == "b"
    models.scripts.pop("a")
    alias, third = await answer(at)
    assert (alias, third["conversation"]) == ("b", second["conversation"])
    assert second["call"] == f"{second['conversation']}.2"


async def test_a_member_that_answers_again_keeps_its_call() -> None:
    models = Models()
    at = table(models, "a", "b")
    _, first = await answer(at)
    models.scripts["a"] = [fails(500)]
    await answer(at)
    models.scripts = {"b": [fails(500)]}
    alias, third = await answer(at)
    assert (alias, third["call"]) == ("a", first["call"])


async def test_a_cooling_pinned_member_is_not_asked_while_others_can() -> None:
    at = table(Models(), "a", "b")
    await answer(at)
    at.bench.cooling.failed("a", "rate_limit")
    assert (await answer(at))[0] == "b"


async def test_a_pinned_member_that_cannot_take_the_turn_gives_it_to_another() -> None:
    at = table(Models(), "a", "b")
    at.catalog.get("a")
    await answer(at)
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    asked = Brief(model="bench/core:route", collection="core", reply="route", conversation="x")
    request = ChatRequest([{"role": "user", "content": [image]}], {})
    with pytest.raises(InvalidRequest, match="a: cannot see images"):
        await at.bench.take_turn(asked, request, Caller("me", admin=False, allowed=_all), at.config)


async def test_every_new_conversation_explores_when_its_share_is_one() -> None:
    at = table(Models(), "a", "b", "c", route={"explore_share": 1})
    firsts = [(await answer(at, f"question {i}"))[0] for i in range(6)]
    assert sorted(firsts) == ["a", "a", "b", "b", "c", "c"]


async def test_without_pins_the_record_says_who_answers() -> None:
    ledger = Remembered()
    at = table(Models(), "a", "b", ledger=ledger)
    _, first = await answer(at)
    again = table(Models(), "b", "a", ledger=ledger)
    alias, second = await answer(again)
    assert (alias, second["conversation"], second["turn"]) == ("a", first["conversation"], 2)


# The record.


async def test_a_turn_is_on_the_record_before_its_end_is_told() -> None:
    at = table(Models(a=[fails(500)]), "a", "b")
    turn = await turn_of(at)
    async with aclosing(turn.pieces()) as pieces:
        async for piece in pieces:
            if isinstance(piece, Ended):
                assert [r.call for r in reports(at)] == [piece.data["call"]]
    (report,) = reports(at)
    assert (report.status, report.alias, report.turn, report.number) == ("ok", "b", 1, 1)
    assert [f.alias for f in report.failed_over] == ["a"]
    assert report.reply.prompt_tokens == 10
    assert report.reply.cost == 0.001


async def test_a_caller_who_leaves_ends_the_members_call_and_the_turn_is_recorded_as_cancelled() -> None:
    models = Models(a=["Hello ", "there", asyncio.Event(), "never"])
    at = table(models)
    turn = await turn_of(at, "a question of some length")
    came = asyncio.Event()

    async def read() -> None:
        async with aclosing(turn.pieces()) as pieces:
            async for piece in pieces:
                if piece == Text("there"):
                    came.set()

    reading = asyncio.create_task(read())
    async with asyncio.timeout(WITHIN):
        await came.wait()
    reading.cancel()
    await asyncio.wait([reading])
    assert models.open == 0
    await at.bench.routing.finish()
    (report,) = reports(at)
    assert report.status == "cancelled"
    assert report.alias == "a"
    assert report.reply.completion_tokens
    assert report.reply.prompt_tokens


async def test_a_ledger_that_loses_a_turn_which_nobody_waits_for_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Down(Remembered):
        async def took(self, report: TurnReport, owner: str) -> None:
            raise LedgerUnavailable("the disk is full")

    at = table(Models(a=["Hello", asyncio.Event()]), ledger=Down())
    turn = await turn_of(at)
    async with aclosing(turn.pieces()) as pieces:
        await anext(pieces)
    await at.bench.routing.finish()
    gc.collect()
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == [
        f"a turn of {turn.conversation} is not on the record: the disk is full"
    ]


async def test_a_turn_that_nobody_answered_is_recorded_with_why() -> None:
    at = table(Models(a=[fails(500)], b=[fails(503, "overloaded")]), "a", "b")
    error = await refused(await turn_of(at))
    assert error.data is not None
    assert [f["alias"] for f in error.data["failed_over"]] == ["a", "b"]
    (report,) = reports(at)
    assert (report.status, report.call, report.alias) == ("error", "", "")


async def test_an_answer_that_broke_off_is_recorded_with_what_was_said() -> None:
    at = table(Models(a=["Hel", fails(502, "connection", "cut")]))
    with pytest.raises(TurnFailed):
        await heard(await turn_of(at))
    (report,) = reports(at)
    assert (report.status, report.alias, report.reply.text) == ("error", "a", "Hel")


async def test_a_fault_of_ours_is_recorded_as_an_error_and_not_as_a_caller_who_left() -> None:
    class Faulty(Models):
        def stream(self, call: Any) -> Any:
            raise ZeroDivisionError

    at = table(Faulty())
    turn = await turn_of(at)
    with pytest.raises(ZeroDivisionError):
        await heard(turn)
    await at.bench.routing.finish()
    (report,) = reports(at)
    assert (report.status, report.alias, report.failed_over) == ("error", "a", ())


async def test_the_call_that_is_told_is_the_one_on_the_record() -> None:
    class Renumbering(Remembered):
        async def took(self, report: TurnReport, owner: str) -> TurnReport:
            return replace(report, turn=7, number=3, call=f"{report.conversation}.3")

    at = table(Models(), ledger=Renumbering())
    _, data = await answer(at)
    assert (data["call"], data["turn"]) == (f"{data['conversation']}.3", 7)
    whole = await (await turn_of(table(Models(), ledger=Renumbering()))).whole()
    assert whole.begun.call == whole.data["call"] == f"{whole.data['conversation']}.3"
    pins = at.bench.routing._pins
    assert isinstance(pins, KeptPins)
    assert {(pin.calls, pin.turns) for pin in pins.pins.values()} == {(("", "", "a"), 7)}


# Options.


@pytest.mark.parametrize(
    "option", [{"guests": ("b",)}, {"explorers": 1}, {"quorum": 1}, {"blind": True}, {"partial": "refuse"}]
)
async def test_what_only_a_panel_can_honour_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="route"):
        await turn_of(table(Models()), **option)


async def test_a_budget_above_what_a_model_writes_is_cut_to_it() -> None:
    models = Models()
    at = table(models, "a", facts={"a": {"max_output": 100}})
    await answer(at, settings={"max_tokens": 32_000})
    assert models.calls[0].request.settings["max_tokens"] == 100


# What counts in a budget.

PROMPT = 5
"""Tokens of what is asked here."""

SILENT = Reply("", "stop")
"""An end that says nothing of what was used."""

READ_FILE = CallPiece(0, "call_1", "read", json.dumps({"a": "x" * 392}))
"""With arguments of 400 characters."""


@pytest.mark.parametrize(
    ("script", "use"),
    [
        (["Yes."], Use(15, 0.001)),
        (["Yes.", SILENT], Use(PROMPT + 1)),
        ([Thought("Let me think"), "Yes.", SILENT], Use(PROMPT + 1 + 3)),
        ([READ_FILE, SILENT], Use(PROMPT + 100)),
        (["Yes.", replace(READ_FILE, arguments={"a": "x" * 392}), SILENT], Use(PROMPT + 1 + 100)),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
async def test_a_turn_counts_what_was_reported_or_else_an_estimate(script: list[Any], use: Use, whole: bool) -> None:
    at = table(Models(a=script))
    turn = await turn_of(at)
    await (turn.whole() if whole else heard(turn))
    (report,) = reports(at)
    assert report.use == turn.used.in_budget == use
    assert (report.reply.prompt_tokens or 0) == (10 if use.cost else 0)


async def test_what_is_passed_on_and_not_understood_counts_without_filling_a_window() -> None:
    at = table(Models(a=["Yes.", SILENT]), "a", facts={"a": {"context_window": 512}})
    await heard(await turn_of(at, settings={"documents": "x" * 4000}))
    assert reports(at)[0].use == Use(PROMPT + 1000 + 1)


@pytest.mark.parametrize(
    ("error", "tokens"), [(fails(500), 0), (fails(429, "rate_limit"), 0), (fails(504, "timeout"), PROMPT)]
)
async def test_members_that_were_asked_in_vain_count_as_far_as_they_had_begun(error: Exception, tokens: int) -> None:
    at = table(Models(a=[error], b=["Yes."]))
    await heard(await turn_of(at))
    assert reports(at)[0].use == Use(tokens + 15, 0.001)


async def test_an_empty_answer_counts_what_was_reported_of_it() -> None:
    at = table(Models(a=[" "], b=[fails(500)]), "a", "b")
    await refused(await turn_of(at))
    assert reports(at)[0].use == Use(15, 0.001)


async def test_an_answer_that_broke_off_counts_what_was_said() -> None:
    at = table(Models(a=["Hello there", fails(502, "connection", "cut")]))
    with pytest.raises(TurnFailed):
        await heard(await turn_of(at))
    assert reports(at)[0].use == Use(PROMPT + 3)


async def leave(table: Table, turn: Turn, pieces: int) -> TurnReport:
    """What is on the record of a turn whose caller leaves after so many pieces, the first of which says who answers."""
    async with asyncio.timeout(WITHIN), aclosing(turn.pieces()) as coming:
        for _ in range(pieces):
            await anext(coming)
        following = asyncio.ensure_future(anext(coming))
        await until(lambda: table.models.calls)
        following.cancel()
        await asyncio.wait([following])
    await table.bench.routing.finish()
    (report,) = reports(table)
    assert report.status == "cancelled"
    return report


@pytest.mark.parametrize(
    ("script", "pieces", "tokens"),
    [
        ([asyncio.Event()], 0, 0),
        (["Hello there", asyncio.Event()], 2, 3),
        ([READ_FILE, asyncio.Event()], 3, 100),
    ],
)
async def test_a_caller_who_leaves_counts_what_was_read_said_and_called(
    script: list[Any], pieces: int, tokens: int
) -> None:
    at = table(Models(a=script))
    turn = await turn_of(at)
    report = await leave(at, turn, pieces)
    assert report.use == turn.used.in_budget == Use(PROMPT + tokens)
    assert (report.reply.prompt_tokens, report.reply.completion_tokens) == (PROMPT, tokens)


class SlowPins(KeptPins):
    """Whoever pins a member that answers waits."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def put(self, keys: Collection[str], pin: Pin, seconds: float) -> None:
        if pin.turns:
            self.asked.set()
            await asyncio.Event().wait()


# A call whose name could go on is an answer once its stream has ended.
@pytest.mark.parametrize(("script", "whole"), [([CallPiece(0, "call_1", "re"), DONE], False), (["Yes.", DONE], True)])
async def test_a_caller_who_leaves_behind_the_answer_leaves_what_it_reported_on_the_record(
    script: list[Any], whole: bool
) -> None:
    pins = SlowPins()
    at = table(Models(a=script), pins=pins)
    turn = await turn_of(at, tools=True)
    reading = asyncio.ensure_future(turn.whole() if whole else heard(turn))
    await asyncio.wait_for(pins.asked.wait(), WITHIN)
    reading.cancel()
    await asyncio.wait([reading], timeout=WITHIN)
    await at.bench.routing.finish()
    (report,) = reports(at)
    assert report.status == "cancelled"
    assert (report.reply.prompt_tokens, report.reply.completion_tokens, report.reply.cost) == (10, 5, 0.001)
    assert report.reply.text == ("Yes." if whole else "")
    assert report.use == Use(15, 0.001)


async def test_a_fault_of_ours_before_anything_was_said_costs_the_caller_nothing() -> None:
    at = table(Models(a=[ZeroDivisionError()]))
    turn = await turn_of(at)
    with pytest.raises(ZeroDivisionError):
        await heard(turn)
    await at.bench.routing.finish()
    assert reports(at)[0].use == turn.used.in_budget == Use()


async def test_a_fault_behind_a_turn_that_is_recorded_counts_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(recording, "_log_turn", breaks)
    at = table(Models())
    turn = await turn_of(at)
    with pytest.raises(ZeroDivisionError):
        await heard(turn)
    await at.bench.routing.finish()
    assert [report.use for report in reports(at)] == [Use(15, 0.001), Use()]
    assert turn.used.in_budget == Use(15, 0.001)

"""A turn whose members may speak the caller's own format: who is asked how, and what is passed on."""

import asyncio
import json
from collections.abc import Collection, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from bench_proxy.bench import Caller
from bench_proxy.errors import InvalidRequest, TurnFailed
from bench_proxy.formats.anthropic.turns import SIGNATURE
from bench_proxy.formats.places import PLACES, place
from bench_proxy.formats.relays import Native, Relayed, as_sent
from bench_proxy.formats.request import Brief
from bench_proxy.keys import Use
from bench_proxy.route.keeping import Pin, TurnReport
from bench_proxy.route.turn import Answered, Begun, Ended, Turn
from bench_proxy.upstream import Text
from tests.doubles import WITHIN, Models, Natives, Table, fails

Json = dict[str, Any]

MESSAGES = PLACES["/v1/messages"]
BODY = {"model": "bench/core:route", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], "stream": True}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
READ = {"name": "read", "input_schema": {"type": "object"}}


def line(type: str, **more: Any) -> bytes:
    return json.dumps({"type": type, **more}).encode()


def text(said: str) -> bytes:
    return line("content_block_delta", index=0, delta={"type": "text_delta", "text": said})


START = line("message_start", message={"model": "claude", "usage": {"input_tokens": 30}})
THOUGHT = line("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Hm."})
CALL = line("content_block_start", index=1, content_block={"type": "tool_use", "id": "t", "name": "read"})
DELTA = line("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 12})
STOP = line("message_stop")
ANSWER = (START, THOUGHT, text("Hello."), DELTA, STOP)
WHOLE = json.dumps(
    {"model": "claude", "content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn", "usage": {}}
).encode()


class KeptPins:
    def __init__(self) -> None:
        self.pins: dict[str, Pin] = {}

    async def get(self, key: str) -> Pin | None:
        return self.pins.get(key)

    async def put(self, keys: Collection[str], pin: Pin, seconds: float) -> None:
        self.pins |= dict.fromkeys(keys, pin)


async def _all(names: Any) -> list[str]:
    return list(names)


def table(natives: Natives | None, *members: str, models: Models | None = None, **more: Any) -> Table:
    return Table(
        models or Models(),
        members=members or ("claude", "gpt"),
        native=natives,
        pins=KeptPins(),
        route={"explore_share": 0, "unknown_tools": "try"},
        **more,
    )


async def turn_of(table: Table, headers: Mapping[str, str] | None = None, **more: Any) -> Turn:
    body = {**BODY, **more}
    request, _ = MESSAGES.format.read(body)
    assert MESSAGES.native is not None
    native = Native(MESSAGES.native, as_sent(body), headers or {})
    brief = Brief(model="bench/core:route", collection="core", reply="route")
    return await table.bench.take_turn(brief, request, Caller("me", admin=False, allowed=_all), table.config, native)


async def heard(turn: Turn) -> list[Any]:
    async with asyncio.timeout(WITHIN), aclosing(turn.pieces()) as pieces:
        return [piece async for piece in pieces]


async def answer(table: Table, **more: Any) -> tuple[Begun, list[Any], Ended]:
    begun, *pieces, ended = await heard(await turn_of(table, **more))
    assert isinstance(begun, Begun)
    assert isinstance(ended, Ended)
    return begun, pieces, ended


async def whole(table: Table, **more: Any) -> Answered:
    return await (await turn_of(table, **more)).whole()


def report_of(table: Table) -> TurnReport:
    (report,) = table.ledger.turns
    return report


def claude(*script: Any) -> Natives:
    return Natives({"claude": "anthropic"}, claude=script or ANSWER)


# Who is asked how.


async def test_a_member_that_speaks_the_callers_format_is_asked_in_it_and_passed_on() -> None:
    natives, models = claude(), Models()
    begun, pieces, ended = await answer(table(natives, models=models))
    assert begun.alias == "claude"
    assert begun.relaying is MESSAGES.native
    assert [piece.data for piece in pieces] == list(ANSWER[:3])
    assert [event.data for event in ended.last] == [DELTA, STOP]
    assert models.calls == []
    assert natives.open == 0


async def test_a_native_call_has_what_was_sent_without_what_is_the_benchs() -> None:
    natives = claude()
    await answer(table(natives), headers={"anthropic-beta": "x"}, bench={"reply": "route"}, system="Be brief.")
    (call,) = natives.calls
    assert call.body == {"max_tokens": 100, "messages": BODY["messages"], "system": "Be brief."}
    assert (call.dialect, call.headers) == ("messages", {"anthropic-beta": "x"})
    assert any(tag.startswith("bench-call:r") for tag in call.tags)


async def test_a_member_that_speaks_another_format_is_asked_in_chat() -> None:
    natives, models = claude(), Models()
    begun, pieces, _ = await answer(table(natives, "gpt", models=models))
    assert (begun.alias, begun.relaying) == ("gpt", None)
    assert pieces == [Text("I am gpt.")]
    assert natives.calls == []


async def test_without_a_native_upstream_everybody_is_asked_in_chat() -> None:
    begun, pieces, ended = await answer(table(None))
    assert (begun.alias, begun.relaying, ended.last) == ("claude", None, ())
    assert pieces == [Text("I am claude.")]


# Failing.


@pytest.mark.parametrize(
    "script",
    [
        [fails(529, "overloaded")],
        [START, THOUGHT, fails(502, "connection")],
        [START, THOUGHT, DELTA, STOP],
        [START],
        [],
        [b"no event"],
        [START, fails(529, "overloaded")],
    ],
)
async def test_a_member_that_does_not_answer_natively_is_replaced_unseen(script: list[Any]) -> None:
    natives = Natives({"claude": "anthropic"}, claude=script)
    begun, pieces, ended = await answer(table(natives))
    assert begun.alias == "gpt"
    assert pieces == [Text("I am gpt.")]
    assert [failed["alias"] for failed in ended.data["failed_over"]] == ["claude"]
    assert natives.open == 0


async def test_a_member_that_fails_in_chat_is_replaced_by_one_that_is_passed_on() -> None:
    models = Models(gpt=[fails(500)])
    begun, pieces, _ = await answer(table(claude(), "gpt", "claude", models=models))
    assert begun.alias == "claude"
    assert [type(piece) for piece in pieces] == [Relayed] * 3


async def test_a_native_member_that_says_nothing_is_left_after_first_piece_seconds() -> None:
    natives = claude(START, THOUGHT, asyncio.Event(), text("late"))
    begun, _, ended = await answer(table(natives, timing={"first_piece": 0.05}))
    assert begun.alias == "gpt"
    assert ended.data["failed_over"][0]["error"]["type"] == "timeout"
    assert natives.open == 0


async def test_what_a_member_refuses_in_the_callers_words_it_is_asked_in_those_of_chat() -> None:
    natives, models = claude(fails(400, "bad_request", "thinking.type: unknown")), Models()
    begun, pieces, ended = await answer(table(natives, models=models))
    assert (begun.alias, begun.relaying) == ("claude", None)
    assert pieces == [Text("I am claude.")]
    assert ended.data["failed_over"] == []
    assert (await whole(table(natives, models=models))).spoken.text == "I am claude."


async def test_a_member_that_breaks_off_is_an_error_and_nobody_starts_again() -> None:
    natives, models = claude(START, text("Hel"), fails(502, "connection", "cut")), Models()
    at = table(natives, models=models)
    with pytest.raises(TurnFailed, match="claude broke off"):
        await heard(await turn_of(at))
    assert models.calls == []
    report = report_of(at)
    assert (report.status, report.alias, report.reply.text) == ("error", "claude", "Hel")
    assert [failed.alias for failed in report.failed_over] == ["claude"]


async def test_an_error_event_behind_the_first_piece_is_one_even_if_it_blames_the_caller() -> None:
    at = table(claude(START, text("Hel"), fails(400, "bad_request", "no")))
    with pytest.raises(TurnFailed, match="claude broke off"):
        await heard(await turn_of(at))
    assert [failed.alias for failed in report_of(at).failed_over] == ["claude"]


async def test_a_stream_without_a_terminal_event_is_an_error() -> None:
    with pytest.raises(TurnFailed, match="terminal event"):
        await heard(await turn_of(table(claude(START, text("Hel"), DELTA))))


async def test_a_whole_answer_that_is_an_error_or_empty_is_the_next_members_turn() -> None:
    empty = WHOLE.replace(b"Hello.", b" ")
    for body in (fails(500), empty, b"no JSON"):
        assert (await whole(table(claude(body)))).begun.alias == "gpt"


# The record.


async def test_what_was_used_said_and_called_is_on_the_record() -> None:
    at = table(claude(START, THOUGHT, text("Hello."), CALL, DELTA, STOP))
    _, _, ended = await answer(at, tools=[READ])
    report = report_of(at)
    assert (report.status, report.alias, report.tool_calls) == ("ok", "claude", 1)
    assert (report.reply.text, report.reply.prompt_tokens, report.reply.completion_tokens) == ("Hello.", 30, 12)
    assert (report.reply.finish_reason, report.reply.cost) == ("stop", 0.012)
    assert ended.data["cost"] == 0.012
    assert [news.tools for news in at.bench.facts.known.values()] == [True]


async def test_the_end_is_told_when_the_turn_is_on_the_record() -> None:
    at = table(claude())
    async with aclosing((await turn_of(at)).pieces()) as pieces:
        async for piece in pieces:
            assert len(at.ledger.turns) == isinstance(piece, Ended)


async def test_a_whole_answer_is_passed_on_and_recorded() -> None:
    at = table(claude(WHOLE))
    answered = await whole(at)
    assert (answered.relayed, answered.begun.relaying) == (WHOLE, MESSAGES.native)
    assert report_of(at).reply.text == "Hello."


async def test_a_caller_who_leaves_ends_the_members_call() -> None:
    natives = claude(START, text("Hello "), text("there"), asyncio.Event(), STOP)
    at = table(natives)
    turn = await turn_of(at)
    came = asyncio.Event()

    async def read() -> None:
        async with aclosing(turn.pieces()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Relayed) and piece.data == text("there"):
                    came.set()

    reading = asyncio.create_task(read())
    async with asyncio.timeout(WITHIN):
        await came.wait()
    reading.cancel()
    await asyncio.wait([reading])
    assert natives.open == 0
    await at.bench.routing.finish()
    report = report_of(at)
    assert (report.status, report.alias, report.reply.text) == ("cancelled", "claude", "Hello there")
    # Its server had said at the beginning what it has read.
    assert (report.reply.prompt_tokens, report.reply.completion_tokens) == (30, 3)
    assert report.use == turn.used.in_budget == Use(33)


async def test_the_arguments_of_calls_count_where_no_server_says_what_was_used() -> None:
    arguments = line("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": "x" * 400})
    at = table(claude(CALL, arguments, line("message_delta", delta={"stop_reason": "tool_use"}), STOP))
    turn = await turn_of(at, tools=[READ])
    await heard(turn)
    assert turn.used.completion_tokens == 100


# What belongs to its maker.


def history(*thinking: Json) -> list[Json]:
    said = {"type": "text", "text": "I said."}
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [*thinking, said]},
        {"role": "user", "content": "go on"},
    ]


def thinking_sent(natives: Natives) -> list[Json]:
    content = natives.calls[-1].body["messages"][1]["content"]
    return [block for block in content if block["type"] == "thinking"]


OURS = {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE}


async def test_what_a_member_signed_goes_back_to_it_byte_by_byte() -> None:
    natives = claude()
    at = table(natives)
    await answer(at)
    await answer(at, messages=history(SIGNED, OURS))
    assert thinking_sent(natives) == [SIGNED]


async def test_what_another_maker_may_have_signed_is_left_out() -> None:
    natives = Natives({"claude": "anthropic", "gpt": "another"}, claude=ANSWER, gpt=ANSWER)
    at = table(natives, "gpt", "claude")
    await answer(at)
    natives.scripts["gpt"] = [fails(500)]
    begun, _, _ = await answer(at, messages=history(SIGNED))
    assert begun.alias == "claude"
    assert thinking_sent(natives) == []


async def test_what_two_models_of_one_maker_have_signed_stays() -> None:
    natives = Natives({"claude": "anthropic", "haiku": "anthropic"}, claude=[fails(500)], haiku=ANSWER)
    at = table(natives, "haiku", "claude")
    await answer(at)
    natives.scripts = {"haiku": [fails(500)], "claude": list(ANSWER)}
    await answer(at, messages=history(SIGNED))
    assert thinking_sent(natives) == [SIGNED]


async def test_a_conversation_in_which_nobody_here_has_answered_passes() -> None:
    natives = claude()
    await answer(table(natives), messages=history(SIGNED))
    assert thinking_sent(natives) == [SIGNED]


async def test_a_budget_above_what_a_model_writes_is_cut_to_it() -> None:
    natives = claude()
    await answer(table(natives, facts={"claude": {"max_output": 64}}))
    assert natives.calls[0].body["max_tokens"] == 64


# What one vendor alone can take.


CITED = {"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}

VENDORS_OWN: list[Json] = [
    {"tools": [SEARCH]},
    {"tools": [READ, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}},
    {"messages": [{"role": "user", "content": [CITED]}]},
]


@pytest.mark.parametrize("asked", VENDORS_OWN)
async def test_what_one_vendor_alone_can_take_goes_to_its_members_only(asked: Json) -> None:
    natives = claude()
    at = table(natives, "gpt", "claude")
    begun, _, ended = await answer(at, **asked)
    assert begun.alias == "claude"
    assert [one["alias"] for one in ended.data["skipped"]] == ["gpt"]
    assert "left_out" not in ended.data
    assert {name: natives.calls[0].body[name] for name in asked} == asked


@pytest.mark.parametrize("asked", VENDORS_OWN)
@pytest.mark.parametrize("natives", [None, Natives({})])
async def test_it_is_refused_where_no_member_is_that_vendors(asked: Json, natives: Natives | None) -> None:
    with pytest.raises(InvalidRequest, match="vendor alone"):
        await turn_of(table(natives), **asked)


async def test_its_refusal_by_the_only_member_is_the_callers() -> None:
    natives = claude(fails(400, "bad_request", "web_search: not for you"))
    models = Models()
    with pytest.raises(InvalidRequest, match="not for you"):
        await heard(await turn_of(table(natives, models=models), tools=[SEARCH]))
    assert models.calls == []


async def test_a_tool_of_its_vendor_beside_others_is_left_out_in_chat_only() -> None:
    _, _, ended = await answer(table(claude()), tools=[READ, SEARCH])
    assert "left_out" not in ended.data
    _, _, ended = await answer(table(claude(fails(500))), tools=[READ, SEARCH])
    assert ended.data["left_out"] == ["web_search_20250305"]


async def test_several_answers_are_refused_whoever_is_asked() -> None:
    gemini = place("/v1beta/models/bench/core:route:generateContent")
    assert gemini is not None
    assert gemini.native is not None
    body = {"contents": "hi", "generationConfig": {"candidateCount": 2}}
    request, _ = gemini.format.read(body)
    brief = Brief(model="bench/core:route", collection="core", reply="route")
    at = table(Natives({"claude": "google"}))
    with pytest.raises(InvalidRequest, match="n is 2"):
        await at.bench.take_turn(
            brief, request, Caller("me", admin=False, allowed=_all), at.config, Native(gemini.native, body)
        )

"""Anthropic Messages as Anthropic's own models answer them: what is heard of it, and what of it reaches the caller."""

import json
from typing import Any

import pytest

from bench_proxy.errors import TurnFailed, UpstreamError
from bench_proxy.formats.anthropic.relay import MessagesRelaying
from bench_proxy.formats.anthropic.turns import SIGNATURE, MessagesTurn
from bench_proxy.formats.base import Envelope
from bench_proxy.formats.relays import Relayed, Said
from tests.hearing import hear, understood

Json = dict[str, Any]

MESSAGES = MessagesRelaying()
ENVELOPE = Envelope("r1.1", "bench/core:route", 1_772_366_405)
BENCH = {"reply": "route"}


def line(type: str, **more: Any) -> bytes:
    return json.dumps({"type": type, **more}).encode()


START = line(
    "message_start",
    message={
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-4-5", "content": [],
        "stop_reason": None, "usage": {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1},
    },
)  # fmt: skip
THINKING = line("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""})
THOUGHT = line("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Hm."})
SIGNED = line("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "c2lnbmVk=="})
TEXT = line("content_block_start", index=1, content_block={"type": "text", "text": ""})
HELLO = line("content_block_delta", index=1, delta={"type": "text_delta", "text": "Hello."})
CALL = line("content_block_start", index=1, content_block={"type": "tool_use", "id": "t", "name": "read", "input": {}})
DELTA = line("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 12})
STOP = line("message_stop")


def heard(*events: bytes) -> tuple[list[Relayed], list[Relayed], Said]:
    hearing = MESSAGES.hearing()
    passed = hear(hearing, *events)
    return passed, hearing.last, hearing.said


def relayed(*events: bytes, begun: bool = False) -> list[tuple[str, Json]]:
    stream = MessagesTurn(ENVELOPE)
    if begun:
        stream.begin()
    relay = MESSAGES.relay(stream, ENVELOPE.model)
    passed, last, _ = heard(*events)
    return read(b"".join([relay.write(event) for event in passed]) + relay.end(last, BENCH))


def read(written: bytes) -> list[tuple[str, Json]]:
    events = [event.split(b"\n") for event in written.split(b"\n\n") if event]
    return [(name.decode().removeprefix("event: "), json.loads(data.removeprefix(b"data: "))) for name, data in events]


# What goes wrong.


@pytest.mark.parametrize("data", [b"", b"not JSON", b"[1]", b'{"type": "mess', b"[" * 100_000])
def test_what_is_no_event_is_a_broken_stream(data: bytes) -> None:
    with pytest.raises(UpstreamError) as caught:
        heard(data)
    assert caught.value.kind == "bad_response"


def test_an_error_behind_what_was_passed_on_is_an_event_of_the_format() -> None:
    stream = MessagesTurn(ENVELOPE)
    relay = MESSAGES.relay(stream, ENVELOPE.model)
    passed, _, _ = heard(START, TEXT, HELLO)
    written = b"".join(relay.write(event) for event in passed) + stream.error(TurnFailed("cut", status=502))
    assert [name for name, _ in read(written)][-1] == "error"


@pytest.mark.parametrize("body", [{}, {"type": "message_delta"}, {"type": "content_block_delta"}, {"type": 1}])
def test_an_event_that_says_little_is_passed_on(body: Json) -> None:
    passed, _, said = heard(json.dumps(body).encode())
    assert [event.body for event in passed] == [body]
    assert not said.answers


# When an answer begins.


@pytest.mark.parametrize(
    "events",
    [
        [START, THINKING, THOUGHT, SIGNED],
        [START, TEXT],
        [START, line("content_block_delta", index=1, delta={"type": "text_delta", "text": " \n"})],
        [START, line("content_block_start", index=0, content_block={"type": "redacted_thinking", "data": "x"})],
        [START, line("ping"), DELTA, STOP],
    ],
)
def test_thoughts_and_blank_text_are_no_answer(events: list[bytes]) -> None:
    assert not heard(*events)[2].answers


@pytest.mark.parametrize(
    "event",
    [
        HELLO,
        CALL,
        line("content_block_start", index=0, content_block={"type": "text", "text": "Hi"}),
        line("content_block_start", index=0, content_block={"type": "server_tool_use", "name": "web_search"}),
    ],
)
def test_text_and_calls_are_an_answer(event: bytes) -> None:
    assert heard(START, event)[2].answers


# What is passed on.


def test_events_are_passed_on_byte_by_byte_but_for_the_model_and_bench() -> None:
    relay = MESSAGES.relay(MessagesTurn(ENVELOPE), ENVELOPE.model)
    passed, last, _ = heard(START, THINKING, THOUGHT, SIGNED, TEXT, HELLO, DELTA, STOP)
    assert b"".join(relay.write(event) for event in passed) == (
        b"event: message_start\ndata: " + START.replace(b'"claude-opus-4-5"', b'"bench/core:route"') + b"\n\n"
        b"event: content_block_start\ndata: " + THINKING + b"\n\n"
        b"event: content_block_delta\ndata: " + THOUGHT + b"\n\n"
        b"event: content_block_delta\ndata: " + SIGNED + b"\n\n"
        b"event: content_block_start\ndata: " + TEXT + b"\n\n"
        b"event: content_block_delta\ndata: " + HELLO + b"\n\n"
    )
    assert relay.end(last, BENCH) == (
        b"event: message_delta\ndata: " + DELTA[:-1] + b',"bench":{"reply":"route"}}\n\n'
        b"event: message_stop\ndata: " + STOP + b"\n\n"
    )


def test_what_ends_an_answer_waits_with_all_that_comes_behind_it() -> None:
    passed, last, _ = heard(START, HELLO, DELTA, line("ping"), STOP)
    assert [event.body["type"] for event in passed] == ["message_start", "content_block_delta"]
    assert [event.body["type"] for event in last] == ["message_delta", "ping", "message_stop"]


def test_a_stream_without_message_stop_has_not_ended() -> None:
    hearing = MESSAGES.hearing()
    hear(hearing, START, HELLO, DELTA)
    assert not hearing.ended


def test_a_reply_that_had_to_begin_before_has_one_beginning_and_all_of_the_usage() -> None:
    events = relayed(START, TEXT, HELLO, DELTA, STOP, begun=True)
    assert [name for name, _ in events] == [
        "content_block_start",
        "content_block_delta",
        "message_delta",
        "message_stop",
    ]
    assert events[2][1]["usage"] == {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 12}
    assert events[2][1]["bench"] == BENCH


def test_characters_that_end_lines_elsewhere_are_escaped() -> None:
    event = '{"type":"content_block_delta",\n"index":1,"delta":{"type":"text_delta","text":"a\u2028b"}}'.encode()
    relay = MESSAGES.relay(MessagesTurn(ENVELOPE), ENVELOPE.model)
    (passed,), _, _ = heard(event)
    written = relay.write(passed)
    assert len(written.decode().splitlines()) == 3
    assert read(written)[0][1]["delta"]["text"] == "a\u2028b"


def test_half_a_character_is_passed_on_and_whole_on_the_record() -> None:
    halves = [{"type": "text_delta", "text": half} for half in ("\ud83d", "\ude00")]
    passed, _, said = heard(*[line("content_block_delta", index=0, delta=half) for half in halves])
    assert len(passed) == 2
    assert said.text == "😀"


def test_a_model_that_is_named_twice_is_replaced_where_it_is_the_messages() -> None:
    start = json.loads(START)
    start["message"]["container"] = {"model": "other"}
    name, event = relayed(json.dumps(start).encode(), DELTA, STOP)[0]
    assert name == "message_start"
    assert event["message"]["model"] == "bench/core:route"
    assert event["message"]["container"] == {"model": "other"}


# What the record gets.


def test_what_was_used_said_and_called() -> None:
    _, _, said = heard(START, THINKING, THOUGHT, TEXT, HELLO, CALL, DELTA, STOP)
    assert (said.text, said.thought, len(said.calls), said.finish_reason) == ("Hello.", 3, 1, "stop")
    assert said.usage == {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 12}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("tool_use", "tool_calls"), ("max_tokens", "length"), ("refusal", "content_filter"), ("some_new_one", "stop")],
)
def test_finish_reasons_are_in_the_words_of_chat(reason: str, expected: str) -> None:
    assert heard(line("message_delta", delta={"stop_reason": reason}))[2].finish_reason == expected


# Whole.


BODY = (
    b'{"model":"claude-opus-4-5","id":"msg_1","type":"message","role":"assistant","content":[{"type":"thinking",'
    b'"thinking":"Hm.","signature":"c2ln"},{"type":"tool_use","id":"t","name":"read","input":'
    b'{"n":123456789012345678901234567890}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7}}'
)


def test_a_whole_answer_keeps_every_byte_but_the_model_and_has_bench() -> None:
    expected = BODY.replace(b"claude-opus-4-5", b"bench/core:route")[:-1] + b',"bench":{"reply":"route"}}'
    assert MESSAGES.whole(BODY, "bench/core:route", BENCH) == expected
    said = understood(MESSAGES, BODY)
    assert (said.answers, len(said.calls), said.finish_reason) == (True, 1, "tool_calls")
    assert said.usage == {"input_tokens": 5, "output_tokens": 7}


def test_numbers_are_not_rounded_where_a_body_has_to_be_written_anew() -> None:
    body = BODY.replace(b'"n":', b'"model":"x","n":')
    assert b"123456789012345678901234567890" in MESSAGES.whole(body, "bench/core:route", BENCH)
    assert json.loads(MESSAGES.whole(body, "m", BENCH))["content"][1]["input"]["model"] == "x"


# What is sent.


def thinking(signature: str | None) -> Json:
    return {"type": "thinking", "thinking": "Hm.", **({} if signature is None else {"signature": signature})}


REDACTED = {"type": "redacted_thinking", "data": "x"}
SAID = {"type": "text", "text": "Hello."}


def fitted(content: list[Json], *, foreign: bool, **body: Any) -> Json:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
    sent = {"messages": messages, "max_tokens": 100, **body}
    before = json.dumps(sent)
    made: Json = dict(MESSAGES.fitted(sent, foreign=foreign, most_output=64))
    assert json.dumps(sent) == before
    return made


@pytest.mark.parametrize("signature", [SIGNATURE, "", None])
@pytest.mark.parametrize("foreign", [False, True])
def test_thinking_that_no_claude_signed_is_never_sent(signature: str | None, foreign: bool) -> None:
    assert fitted([thinking(signature), SAID], foreign=foreign)["messages"][1]["content"] == [SAID]


def test_signed_thinking_goes_back_to_its_maker_as_it_is() -> None:
    content = [thinking("c2ln"), REDACTED, SAID]
    assert fitted(content, foreign=False)["messages"][1]["content"] == content


def test_signed_thinking_that_may_be_anothers_is_left_out() -> None:
    assert fitted([thinking("c2ln"), REDACTED, SAID], foreign=True)["messages"][1]["content"] == [SAID]


def test_a_message_of_which_nothing_is_left_is_dropped() -> None:
    assert fitted([thinking(SIGNATURE)], foreign=False)["messages"] == [{"role": "user", "content": "hi"}]


def test_a_budget_above_what_the_model_writes_is_cut() -> None:
    assert fitted([SAID], foreign=False)["max_tokens"] == 64
    assert fitted([SAID], foreign=False, max_tokens=3)["max_tokens"] == 3


@pytest.mark.parametrize("messages", [None, "hi", [3, {"role": "assistant"}]])
def test_odd_messages_are_sent_as_they_are(messages: Any) -> None:
    body = {"messages": messages}
    assert MESSAGES.fitted(body, foreign=True, most_output=None) == body

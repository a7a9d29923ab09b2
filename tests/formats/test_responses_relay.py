"""OpenAI Responses as OpenAI's own models answer them: what is heard of it, and what of it reaches the caller."""

import json
from typing import Any

import pytest

from bench_proxy.errors import TurnFailed
from bench_proxy.formats.base import Envelope
from bench_proxy.formats.relays import Relayed, Said
from bench_proxy.formats.responses.relay import ResponsesRelaying
from bench_proxy.formats.responses.turns import ResponsesTurn
from tests.hearing import hear, understood

Json = dict[str, Any]

RESPONSES = ResponsesRelaying()
ENVELOPE = Envelope("r1-1", "bench/core:route", 1_772_366_405)
BENCH = {"reply": "route"}
USAGE = {
    "input_tokens": 30, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 7}, "total_tokens": 42,
}  # fmt: skip


def line(type: str, number: int, **more: Any) -> bytes:
    return json.dumps({"type": type, "sequence_number": number, **more}).encode()


def response(status: str, **more: Any) -> Json:
    return {"id": "resp_abc", "object": "response", "status": status, "model": "gpt-5.5", "output": [], **more}


REASONED = {"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAA", "summary": []}
SPOKE = {"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": "Hello."}]}
CALLED = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}

CREATED = line("response.created", 0, response=response("in_progress"))
IN_PROGRESS = line("response.in_progress", 1, response=response("in_progress"))
REASONING = line("response.output_item.added", 2, output_index=0, item=REASONED)
ADDED = line("response.output_item.added", 3, output_index=1, item={"id": "msg_1", "type": "message", "content": []})
HELLO = line("response.output_text.delta", 4, item_id="msg_1", delta="Hello.")
COMPLETED = line("response.completed", 5, response=response("completed", output=[REASONED, SPOKE], usage=USAGE))
STREAM = (CREATED, IN_PROGRESS, REASONING, ADDED, HELLO, COMPLETED)


def heard(*events: bytes) -> tuple[list[Relayed], list[Relayed], Said]:
    hearing = RESPONSES.hearing()
    passed = hear(hearing, *events)
    return passed, hearing.last, hearing.said


def read(written: bytes) -> list[Json]:
    events = []
    for event in written.split(b"\n\n")[:-1]:
        name, data = event.split(b"\n")
        events.append(json.loads(data.removeprefix(b"data: ")))
        assert name == b"event: " + events[-1]["type"].encode()
    return events


def numbers(events: list[Json]) -> list[int]:
    return [event["sequence_number"] for event in events]


# What goes wrong.


def test_an_error_goes_on_counting_and_is_of_the_same_response() -> None:
    stream = ResponsesTurn(ENVELOPE)
    relay = RESPONSES.relay(stream, ENVELOPE.model)
    passed, _, _ = heard(*STREAM[:-1])
    written = b"".join([relay.write(event) for event in passed]) + stream.error(TurnFailed("cut", status=502))
    events = read(written)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-1]["response"]["id"] == "resp_abc"
    assert numbers(events) == list(range(7))


# When an answer begins.


@pytest.mark.parametrize(
    "event",
    [
        REASONING,
        ADDED,
        line("response.output_text.delta", 3, delta=" \n"),
        line("response.reasoning_summary_text.delta", 3, delta="Hm."),
    ],
)
def test_thoughts_and_blank_text_are_no_answer(event: bytes) -> None:
    assert not heard(CREATED, event)[2].answers


@pytest.mark.parametrize(
    "event",
    [
        HELLO,
        line("response.refusal.delta", 3, delta="No."),
        line("response.output_item.added", 3, item=CALLED),
        line("response.output_item.added", 3, item={"type": "custom_tool_call", "name": "apply_patch"}),
        line("response.output_item.added", 3, item={"type": "web_search_call"}),
        COMPLETED,
    ],
)
def test_text_refusals_and_calls_are_an_answer(event: bytes) -> None:
    assert heard(CREATED, event)[2].answers


def test_a_response_without_output_is_no_answer() -> None:
    assert not heard(CREATED, line("response.completed", 2, response=response("completed", output=[REASONED])))[
        2
    ].answers


# What is passed on.


def test_deltas_are_passed_on_byte_by_byte() -> None:
    relay = RESPONSES.relay(ResponsesTurn(ENVELOPE), ENVELOPE.model)
    passed, _, _ = heard(*STREAM)
    written = [relay.write(event) for event in passed]
    assert written[2:] == [
        b"event: response.output_item.added\ndata: " + REASONING + b"\n\n",
        b"event: response.output_item.added\ndata: " + ADDED + b"\n\n",
        b"event: response.output_text.delta\ndata: " + HELLO + b"\n\n",
    ]


def test_the_model_is_the_one_that_was_asked_for_and_bench_stands_in_the_last_response() -> None:
    relay = RESPONSES.relay(ResponsesTurn(ENVELOPE), ENVELOPE.model)
    passed, last, _ = heard(*STREAM)
    events = read(b"".join(relay.write(event) for event in passed) + relay.end(last, BENCH))
    told = [event["response"] for event in events if "response" in event]
    assert [one["model"] for one in told] == ["bench/core:route"] * 3
    assert [one.get("bench") for one in told] == [None, None, BENCH]
    assert told[-1] == {
        **response("completed", output=[REASONED, SPOKE], usage=USAGE),
        "model": "bench/core:route",
        "bench": BENCH,
    }


def test_signs_of_life_are_no_second_beginning_and_numbers_go_on_rising() -> None:
    stream = ResponsesTurn(ENVELOPE)
    relay = RESPONSES.relay(stream, ENVELOPE.model)
    passed, last, _ = heard(*STREAM)
    written = b"".join([relay.write(event) + stream.keep_alive() for event in passed]) + relay.end(last, BENCH)
    events = read(written)
    assert numbers(events) == list(range(len(events)))
    assert [event["type"] for event in events].count("response.created") == 1
    assert {event["response"]["id"] for event in events if "response" in event} == {"resp_abc"}


def test_a_reply_that_had_to_begin_before_has_one_beginning_and_one_id() -> None:
    stream = ResponsesTurn(ENVELOPE)
    opening = stream.begin() + stream.keep_alive()
    relay = RESPONSES.relay(stream, ENVELOPE.model)
    passed, last, _ = heard(*STREAM)
    events = read(opening + b"".join(relay.write(event) for event in passed) + relay.end(last, BENCH))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.added",
        "response.output_text.delta",
        "response.completed",
    ]
    assert numbers(events) == list(range(7))
    assert {event["response"]["id"] for event in events if "response" in event} == {"resp_r1-1"}


def test_a_number_within_a_text_is_not_an_events_number() -> None:
    said = 'the "sequence_number": 4 of "sequence_number":5'
    stream = ResponsesTurn(ENVELOPE)
    stream.begin()
    relay = RESPONSES.relay(stream, ENVELOPE.model)
    (passed,), _, _ = heard(line("response.output_text.delta", 9, delta=said))
    (event,) = read(relay.write(passed))
    assert (event["sequence_number"], event["delta"]) == (2, said)


def test_a_number_within_an_item_stays() -> None:
    item = {**CALLED, "extra": {"sequence_number": 77}}
    relay = RESPONSES.relay(ResponsesTurn(ENVELOPE), ENVELOPE.model)
    (passed,), _, _ = heard(line("response.output_item.added", 9, item=item))
    (event,) = read(relay.write(passed))
    assert (event["sequence_number"], event["item"]) == (0, item)


# What the record gets.


def test_what_was_used_said_and_called() -> None:
    added = line("response.output_item.added", 4, item=CALLED)
    completed = line("response.completed", 5, response=response("completed", output=[SPOKE, CALLED], usage=USAGE))
    _, _, said = heard(CREATED, ADDED, HELLO, added, completed)
    assert (said.text, len(said.calls), said.finish_reason, said.usage) == ("Hello.", 1, "tool_calls", USAGE)
    assert said.argued == len("{}")


def test_arguments_that_come_in_pieces_are_counted_once() -> None:
    hearing = RESPONSES.hearing()
    begun = line("response.output_item.added", 1, item={**CALLED, "arguments": ""})
    pieces = [line("response.function_call_arguments.delta", 2, delta=piece) for piece in ('{"a":', "1}")]
    hear(hearing, begun, *pieces)
    assert hearing.said.argued == 7
    called = {**CALLED, "arguments": '{"a":1}'}
    hear(hearing, line("response.completed", 5, response=response("completed", output=[called])))
    assert hearing.said.argued == 7


def test_an_answer_that_was_cut_is_incomplete() -> None:
    cut = response("incomplete", incomplete_details={"reason": "max_output_tokens"}, output=[SPOKE])
    hearing = RESPONSES.hearing()
    hear(hearing, line("response.incomplete", 1, response=cut))
    assert hearing.over
    assert (hearing.said.finish_reason, hearing.said.text) == ("length", "Hello.")


def test_a_stream_without_its_last_event_has_not_ended() -> None:
    hearing = RESPONSES.hearing()
    hear(hearing, *STREAM[:-1])
    assert not hearing.ended


# Whole.


def test_a_whole_answer_keeps_every_byte_but_the_model_and_has_bench() -> None:
    body = json.dumps(response("completed", output=[REASONED, SPOKE, CALLED], usage=USAGE)).encode()
    expected = body.replace(b"gpt-5.5", b"bench/core:route")[:-1] + b',"bench":{"reply":"route"}}'
    assert RESPONSES.whole(body, "bench/core:route", BENCH) == expected
    said = understood(RESPONSES, body)
    assert (said.text, len(said.calls), said.finish_reason, said.usage) == ("Hello.", 1, "tool_calls", USAGE)


# What is sent.


def fitted(items: Any, *, foreign: bool, **more: Any) -> Json:
    sent = {"input": items, **more}
    before = json.dumps(sent)
    made: Json = dict(RESPONSES.fitted(sent, foreign=foreign, most_output=64))
    assert json.dumps(sent) == before
    return made


USER = {"role": "user", "content": "hi", "id": "mine"}
OURS = {"id": "rs_r20261130-040000-ABC-1-0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("reasoning", [OURS, {**OURS, "encrypted_content": "x"}, {"id": "rs_1", "type": "reasoning"}])
def test_reasoning_that_no_model_of_openais_can_read_is_never_sent(reasoning: Json, foreign: bool) -> None:
    assert fitted([USER, reasoning], foreign=foreign)["input"] == [USER]


def test_encrypted_reasoning_goes_back_to_its_maker_as_it_is() -> None:
    items = [USER, REASONED, CALLED]
    assert fitted(items, foreign=False)["input"] == items


def test_encrypted_reasoning_that_may_be_anothers_is_left_out_with_the_ids_that_name_it() -> None:
    call = {name: value for name, value in CALLED.items() if name != "id"}
    assert fitted([USER, REASONED, CALLED], foreign=True)["input"] == [USER, call]


def test_nothing_is_stored() -> None:
    assert fitted("hi", foreign=False, store=True) == {"input": "hi", "store": False}


def test_a_budget_above_what_the_model_writes_is_cut() -> None:
    assert fitted("hi", foreign=False, max_output_tokens=100)["max_output_tokens"] == 64

"""Anthropic Messages in route mode: byte by byte what one model's turn becomes, and as Anthropic's SDK reads it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import Anthropic
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.errors import TurnFailed
from bench_proxy.formats.anthropic.format import MessagesFormat
from bench_proxy.formats.anthropic.turns import SIGNATURE
from bench_proxy.formats.base import Envelope, Spoken, ToolCall, Usage
from bench_proxy.formats.request import ToolName
from tests.anything import TEXT

Json = dict[str, Any]

MESSAGES = MessagesFormat(new_id=lambda: "req_1")
ENVELOPE = Envelope("r1.1.2", "bench/core:route", 1_772_366_405)
RENAMED = Envelope(
    "r1.1.2",
    "bench/core:route",
    1_772_366_405,
    tools={"fs__read": ToolName("read", "fs"), "patch": ToolName("apply_patch", custom=True)},
)
USAGE = Usage(30, 12)
READ = ToolCall("toolu_1", "read", '{"path":"a.txt"}')
LIST = ToolCall("toolu_2", "list", "{}")


def whole(spoken: Spoken, usage: Usage = USAGE, envelope: Envelope = ENVELOPE) -> Json:
    message: Json = json.loads(MESSAGES.spoken(envelope, spoken, usage, {"reply": "route"}))
    assert message.pop("bench") == {"reply": "route"}
    return message


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def thinking(words: str) -> Json:
    return {"type": "thinking", "thinking": words, "signature": SIGNATURE}


def tool_use(id: str, name: str, input: Json) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


# Whole


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ("", {}),
        (" \n", {}),
        ("{}", {}),
        ('{"path": "a.txt"}', {"path": "a.txt"}),
        ('{"path": "a.t', {"malformed_arguments": '{"path": "a.t'}),
        ("a.txt", {"malformed_arguments": "a.txt"}),
        ('"a.txt"', {"malformed_arguments": '"a.txt"'}),
        ("[1]", {"malformed_arguments": "[1]"}),
        ("null", {}),
        ('{"n": NaN}', {"malformed_arguments": '{"n": NaN}'}),
        ("{} {}", {"malformed_arguments": "{} {}"}),
        ("[" * 100_000, {"malformed_arguments": "[" * 100_000}),
    ],
)
def test_arguments_that_are_no_object_become_one_that_says_what_was_written(arguments: str, input: Json) -> None:
    spoken = Spoken(calls=[ToolCall("toolu_1", "read", arguments)], finish_reason="tool_calls")
    assert whole(spoken)["content"] == [tool_use("toolu_1", "read", input)]


def test_arguments_are_not_rounded() -> None:
    large = {"id": 123456789012345678901234567890, "share": 0.1000000000000000055}
    spoken = Spoken(calls=[ToolCall("toolu_1", "read", json.dumps(large))])
    written = MESSAGES.spoken(ENVELOPE, spoken, USAGE, {})
    assert b'"input":{"id": 123456789012345678901234567890, "share": 0.1}' in written


def test_an_empty_answer_is_a_message_with_one_empty_text() -> None:
    message = whole(Spoken())
    assert message["content"] == [text("")]
    assert message["stop_reason"] == "end_turn"


def test_a_whole_turn_byte_by_byte() -> None:
    spoken = Spoken("I look.", "Hm.", [READ, LIST], "tool_calls")
    assert MESSAGES.spoken(ENVELOPE, spoken, Usage(30, 12, 20, 5, 7), {"reply": "route"}) == (
        b'{"id":"msg_r1.1.2","type":"message","role":"assistant","model":"bench/core:route","content":['
        b'{"type":"thinking","thinking":"Hm.","signature":"YmVuY2gtcHJveHk="},{"type":"text","text":"I look."},'
        b'{"type":"tool_use","id":"toolu_1","name":"read","input":{"path":"a.txt"}},'
        b'{"type":"tool_use","id":"toolu_2","name":"list","input":{}}],"stop_reason":"tool_use","stop_sequence":null,'
        b'"usage":{"input_tokens":5,"cache_creation_input_tokens":5,"cache_read_input_tokens":20,"output_tokens":12,'
        b'"output_tokens_details":{"thinking_tokens":7}},"bench":{"reply":"route"}}'
    )


def test_thoughts_may_be_all_that_there_is() -> None:
    assert whole(Spoken(thoughts="Hm.", finish_reason="length"))["content"] == [thinking("Hm.")]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(0, 0), (0, 0, 0)),
        (Usage(30, 12), (30, 0, 0)),
        (Usage(30, 12, cached_tokens=20), (10, 0, 20)),
        (Usage(30, 12, cached_tokens=10, cache_write_tokens=20), (0, 20, 10)),
        (Usage(5, 12, cached_tokens=20), (0, 0, 20)),
    ],
)
def test_tokens_of_input_are_those_that_went_past_the_cache(usage: Usage, expected: tuple[int, int, int]) -> None:
    counted = whole(Spoken("Hello."), usage)["usage"]
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    assert tuple(counted[name] for name in names) == expected
    assert counted["output_tokens"] == usage.completion_tokens
    assert "output_tokens_details" not in counted


# Streamed

START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_r1.1.2","type":"message",'
    b'"role":"assistant","model":"bench/core:route","content":[],"stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":0,"output_tokens":0}}}\n\n'
)
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
TEXT_START = b'{"type":"text","text":""}'
THINKING_START = b'{"type":"thinking","thinking":"","signature":""}'
SIGNED = b'{"type":"signature_delta","signature":"YmVuY2gtcHJveHk="}'


def opened(index: int, block: bytes) -> bytes:
    return b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":%s}\n\n' % (
        index,
        block,
    )


def delta(index: int, piece: bytes) -> bytes:
    return b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%s}\n\n' % (
        index,
        piece,
    )


def closed(index: int) -> bytes:
    return b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % index


def end(reason: bytes) -> bytes:
    return (
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"%s","stop_sequence":null},'
        b'"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":20,"output_tokens":12},'
        b'"bench":{"reply":"route"}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n' % reason
    )


def turn(
    say: Callable[[Any], list[bytes]], finish_reason: str = "stop", envelope: Envelope = ENVELOPE, usage: Usage = USAGE
) -> bytes:
    written = MESSAGES.turn(envelope)
    return b"".join([written.begin(), *say(written), written.end(finish_reason, usage, {"reply": "route"})])


def everything(written: Any) -> list[bytes]:
    return [
        written.thought("Hm"),
        written.thought("."),
        written.text("I "),
        written.keep_alive(),
        written.text("look."),
        written.call(ToolCall("toolu_1", "read")),
        written.arguments('{"path":'),
        written.arguments('"a.txt"}'),
        written.call_done(),
        written.call(ToolCall("toolu_2", "list")),
        written.arguments(""),
        written.call_done(),
        written.thought("And?"),
        written.text("Done.\u2028"),
    ]


def test_a_turn_byte_by_byte() -> None:
    assert turn(everything, "tool_calls", usage=Usage(30, 12, 20)) == b"".join(
        [
            START,
            opened(0, THINKING_START),
            delta(0, b'{"type":"thinking_delta","thinking":"Hm"}'),
            delta(0, b'{"type":"thinking_delta","thinking":"."}'),
            delta(0, SIGNED),
            closed(0),
            opened(1, TEXT_START),
            delta(1, b'{"type":"text_delta","text":"I "}'),
            PING,
            delta(1, b'{"type":"text_delta","text":"look."}'),
            closed(1),
            opened(2, b'{"type":"tool_use","id":"toolu_1","name":"read","input":{}}'),
            delta(2, b'{"type":"input_json_delta","partial_json":"{\\"path\\":"}'),
            delta(2, b'{"type":"input_json_delta","partial_json":"\\"a.txt\\"}"}'),
            closed(2),
            opened(3, b'{"type":"tool_use","id":"toolu_2","name":"list","input":{}}'),
            delta(3, b'{"type":"input_json_delta","partial_json":"{}"}'),
            closed(3),
            opened(4, THINKING_START),
            delta(4, b'{"type":"thinking_delta","thinking":"And?"}'),
            delta(4, SIGNED),
            closed(4),
            opened(5, TEXT_START),
            delta(5, b'{"type":"text_delta","text":"Done.\\u2028"}'),
            closed(5),
            end(b"tool_use"),
        ]
    )


def test_a_call_may_be_the_first_and_only_thing() -> None:
    written = turn(lambda stream: [stream.call(READ), stream.call_done()], "tool_calls", usage=Usage(30, 12, 20))
    assert written == b"".join(
        [
            START,
            opened(0, b'{"type":"tool_use","id":"toolu_1","name":"read","input":{}}'),
            delta(0, b'{"type":"input_json_delta","partial_json":"{\\"path\\":\\"a.txt\\"}"}'),
            closed(0),
            end(b"tool_use"),
        ]
    )


def test_a_turn_in_which_nothing_was_said_has_one_empty_block() -> None:
    written = turn(lambda stream: [stream.keep_alive()], usage=Usage(30, 12, 20))
    assert written == START + PING + opened(0, TEXT_START) + closed(0) + end(b"end_turn")


def test_a_call_that_broke_off_is_closed_as_far_as_it_came() -> None:
    written = turn(lambda stream: [stream.call(ToolCall("toolu_1", "read", '{"pa'))], "length", usage=Usage(30, 12, 20))
    assert written.endswith(
        delta(0, b'{"type":"input_json_delta","partial_json":"{\\"pa"}') + closed(0) + end(b"max_tokens")
    )


def failed(written: Any) -> bytes:
    error = TurnFailed("the member stopped in the middle", status=502)
    return bytes(written.begin() + written.thought("Hm.") + written.text("I") + written.error(error))


def test_an_error_in_a_turn_is_the_last_event() -> None:
    assert failed(MESSAGES.turn(ENVELOPE)).endswith(
        delta(1, b'{"type":"text_delta","text":"I"}')
        + b'event: error\ndata: {"type":"error","error":{"type":"api_error",'
        b'"message":"the member stopped in the middle"},"request_id":"req_r1.1.2"}\n\n'
    )


# Whole and streamed alike


def streamed(spoken: Spoken, envelope: Envelope = ENVELOPE) -> bytes:
    def say(written: Any) -> Iterator[bytes]:
        if spoken.thoughts:
            yield written.thought(spoken.thoughts)
        if spoken.text:
            yield written.text(spoken.text)
        for call in spoken.calls:
            yield written.call(ToolCall(call.id, call.name))
            if call.arguments:
                yield written.arguments(call.arguments)
            yield written.call_done()

    return turn(lambda written: list(say(written)), spoken.finish_reason, envelope)


def sdk(reply: bytes, content_type: str) -> Anthropic:
    """A client whose every request gets this reply."""
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, headers={"content-type": content_type}, content=reply))
    http = anthropic.DefaultHttpxClient(transport=answer, trust_env=False)
    return Anthropic(base_url="http://127.0.0.1", api_key="key", max_retries=0, http_client=http)


ASKED: Any = {"model": "bench/core:route", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello."}]}


def put_together(reply: bytes) -> anthropic.types.Message:
    with sdk(reply, MESSAGES.stream_content_type) as client, client.messages.stream(**ASKED) as stream:
        return stream.get_final_message()


def both(spoken: Spoken, envelope: Envelope = ENVELOPE) -> list[Json]:
    """The message as the SDK reads it whole, and as it puts it together from the stream."""
    reply = MESSAGES.spoken(envelope, spoken, USAGE, {})
    with sdk(reply, MESSAGES.content_type) as client:
        messages = [client.messages.create(**ASKED), put_together(streamed(spoken, envelope))]
    return [message.to_dict() for message in messages]


@pytest.mark.parametrize(
    ("reason", "calls", "expected"),
    [
        ("stop", [], "end_turn"),
        ("length", [], "max_tokens"),
        ("content_filter", [], "refusal"),
        ("of_tomorrow", [], "end_turn"),
        ("tool_calls", [READ], "tool_use"),
        ("function_call", [READ], "tool_use"),
        ("stop", [READ], "tool_use"),
        ("of_tomorrow", [READ], "tool_use"),
        ("length", [READ], "max_tokens"),
        ("content_filter", [READ], "refusal"),
        ("tool_calls", [], "end_turn"),
        ("function_call", [], "end_turn"),
    ],
)
def test_a_turn_stops_for_its_calls_unless_it_was_cut(reason: str, calls: list[ToolCall], expected: str) -> None:
    for message in both(Spoken("Hello.", "", calls, reason)):
        assert message["stop_reason"] == expected


def test_tools_have_the_callers_own_names_and_the_text_of_a_custom_one_is_an_input() -> None:
    calls = [ToolCall("1", "fs__read", '{"a":1}'), ToolCall("2", "patch", "*** Begin\n"), ToolCall("3", "other", "{}")]
    for message in both(Spoken(calls=calls, finish_reason="tool_calls"), RENAMED):
        assert message["content"] == [
            tool_use("1", "read", {"a": 1}),
            tool_use("2", "apply_patch", {"input": "*** Begin\n"}),
            tool_use("3", "other", {}),
        ]


def test_the_sdk_reads_a_turn_as_it_was_spoken() -> None:
    calls = [READ, LIST, ToolCall("toolu_3", "now")]
    for message in both(Spoken("I look.", "Hm.", calls, "tool_calls")):
        assert (message["id"], message["role"], message["model"]) == ("msg_r1.1.2", "assistant", "bench/core:route")
        assert message["content"] == [
            thinking("Hm."),
            text("I look."),
            tool_use("toolu_1", "read", {"path": "a.txt"}),
            tool_use("toolu_2", "list", {}),
            tool_use("toolu_3", "now", {}),
        ]
        assert message["usage"]["input_tokens"] == 30
        assert message["usage"]["output_tokens"] == 12


def test_the_sdk_raises_at_an_error_in_a_turn() -> None:
    with pytest.raises(anthropic.APIStatusError, match="the member stopped in the middle"):
        put_together(failed(MESSAGES.turn(ENVELOPE)))


def test_the_thoughts_of_a_turn_are_left_out_when_they_come_back() -> None:
    (message, _) = both(Spoken("Hello.", "Hm."))
    document = {"max_tokens": 1, "messages": [{"role": "assistant", "content": message["content"]}]}
    assert list(MESSAGES.read(document)[0].messages) == [{"role": "assistant", "content": "Hello."}]


SAID = st.one_of(
    st.tuples(st.just("thought"), TEXT.filter(bool)),
    st.tuples(st.just("text"), TEXT.filter(bool)),
    st.tuples(st.just("call"), st.dictionaries(TEXT, TEXT, max_size=2)),
)


@given(st.lists(SAID, max_size=8))
def test_whatever_the_order_each_block_opens_and_closes_by_itself_and_keeps_its_words(said: list[Any]) -> None:
    written = MESSAGES.turn(ENVELOPE)
    pieces = [written.begin()]
    expected: list[Json] = []
    for number, (kind, words) in enumerate(said):
        if kind == "call":
            arguments = json.dumps(words)
            pieces += [written.call(ToolCall(f"toolu_{number}", "read"))]
            pieces += [written.arguments(arguments[at : at + 3]) for at in range(0, len(arguments), 3)]
            pieces += [written.call_done()]
            expected.append(tool_use(f"toolu_{number}", "read", words))
        elif kind == "text":
            pieces.append(written.text(words))
            _say(expected, text(""), "text", words)
        else:
            pieces.append(written.thought(words))
            _say(expected, thinking(""), "thinking", words)
    reply = b"".join([*pieces, written.end("stop", USAGE, {})])
    assert put_together(reply).to_dict()["content"] == (expected or [text("")])

    events = [json.loads(line.removeprefix("data: ")) for line in reply.decode().splitlines() if line[:4] == "data"]
    current, last = None, -1
    for event in events:
        if event["type"] == "content_block_start":
            assert (current, event["index"]) == (None, last + 1)
            current = last = event["index"]
        elif event["type"].startswith("content_block"):
            assert event["index"] == current
            current = None if event["type"] == "content_block_stop" else current
    assert current is None


def _say(expected: list[Json], block: Json, field: str, words: str) -> None:
    if not expected or expected[-1]["type"] != block["type"]:
        expected.append(block)
    expected[-1][field] += words

"""Chat completions and legacy completions in route mode, byte by byte, and as OpenAI's own library reads them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from hypothesis import example, given
from openai.types.chat import ChatCompletion

from bench_proxy.errors import TurnFailed
from bench_proxy.formats.base import Envelope, Format, Spoken, ToolCall, TurnStream, Usage
from bench_proxy.formats.chat.format import ChatFormat
from bench_proxy.formats.completions import CompletionsFormat
from bench_proxy.formats.request import ToolName
from tests.anything import SEPARATORS, TEXT

Json = dict[str, Any]

CHAT = ChatFormat()
COMPLETIONS = CompletionsFormat()
CONVERSATION = "r20260301-120005-abcdefghijklmnop"
MODEL = "bench/core:route"
TOOLS = {"patch": ToolName("patch", custom=True), "old": ToolName("old", legacy=True), "safe_name": ToolName("my name")}
ENVELOPE = Envelope(CONVERSATION, MODEL, 1_772_366_405, tools=TOOLS)
COUNTED = Envelope(CONVERSATION, MODEL, 1_772_366_405, include_usage=True, tools=TOOLS)
USAGE = Usage(30, 12)
FULL = Usage(30, 12, cached_tokens=20, cache_write_tokens=4, reasoning_tokens=5)
DATA = {"conversation": CONVERSATION, "reply": "route"}
FAILED = TurnFailed("the member gpt stopped", status=502, data=DATA)
READ = ToolCall("call_1", "read", '{"path": "a"}')
PATCH = ToolCall("call_2", "patch", "*** Begin\n")
OLD = ToolCall("call_3", "old", "{}")


def said(format: Format, spoken: Spoken, usage: Usage = USAGE) -> Json:
    found: Json = json.loads(format.spoken(ENVELOPE, spoken, usage, DATA))
    return found


def message(spoken: Spoken) -> Json:
    (choice,) = said(CHAT, spoken)["choices"]
    found: Json = choice["message"]
    return found


def chunks(written: bytes) -> list[Json]:
    lines = [line.removeprefix("data: ") for line in written.decode().splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def deltas(written: bytes) -> list[Json]:
    return [choice["delta"] for chunk in chunks(written) for choice in chunk["choices"]]


def called(turn: TurnStream, call: ToolCall, *pieces: str) -> bytes:
    opened = turn.call(ToolCall(call.id, call.name))
    return opened + b"".join(turn.arguments(piece) for piece in pieces) + turn.call_done()


# Whole


def test_an_answer_byte_by_byte() -> None:
    assert CHAT.spoken(ENVELOPE, Spoken("Done.", "Hm.", [READ, PATCH], "tool_calls"), FULL, DATA) == (
        b'{"id":"chatcmpl-r20260301-120005-abcdefghijklmnop","object":"chat.completion","created":1772366405,'
        b'"model":"bench/core:route","choices":[{"index":0,"message":{"role":"assistant","content":"Done.",'
        b'"refusal":null,"reasoning_content":"Hm.","tool_calls":['
        b'{"id":"call_1","type":"function","function":{"name":"read","arguments":"{\\"path\\": \\"a\\"}"}},'
        b'{"id":"call_2","type":"custom","custom":{"name":"patch","input":"*** Begin\\n"}}]},'
        b'"logprobs":null,"finish_reason":"tool_calls"}],'
        b'"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42,'
        b'"prompt_tokens_details":{"cached_tokens":20,"cache_write_tokens":4},'
        b'"completion_tokens_details":{"reasoning_tokens":5}},'
        b'"bench":{"conversation":"r20260301-120005-abcdefghijklmnop","reply":"route"}}'
    )


def test_an_answer_of_nothing_but_calls_has_no_content() -> None:
    assert message(Spoken(calls=[READ], finish_reason="tool_calls"))["content"] is None


def test_an_answer_of_nothing_at_all_is_empty_text() -> None:
    assert message(Spoken()) == {"role": "assistant", "content": "", "refusal": None}


def test_details_of_usage_stand_only_where_something_is_to_be_told() -> None:
    plain = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
    assert said(CHAT, Spoken("x"))["usage"] == plain
    cached = said(CHAT, Spoken("x"), Usage(30, 12, cached_tokens=20))["usage"]
    assert cached == {**plain, "prompt_tokens_details": {"cached_tokens": 20}}


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "tool_calls"])
def test_why_an_answer_ended_is_passed_on(reason: str) -> None:
    assert said(CHAT, Spoken("x", finish_reason=reason))["choices"][0]["finish_reason"] == reason


def test_a_tool_has_the_name_that_its_caller_gave_it() -> None:
    (call,) = message(Spoken(calls=[ToolCall("c", "safe_name", "{}")]))["tool_calls"]
    assert call["function"]["name"] == "my name"


def test_a_legacy_function_is_called_as_one_and_alone() -> None:
    told = said(CHAT, Spoken(calls=[OLD, ToolCall("call_4", "old", "[]")], finish_reason="tool_calls"))
    assert told["choices"][0]["message"]["function_call"] == {"name": "old", "arguments": "{}"}
    assert "tool_calls" not in told["choices"][0]["message"]
    assert told["choices"][0]["finish_reason"] == "function_call"


# Streamed

HEAD = (
    b'data: {"id":"chatcmpl-r20260301-120005-abcdefghijklmnop","object":"chat.completion.chunk","created":1772366405,'
    b'"model":"bench/core:route","choices":['
)
LAST = (
    HEAD + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],'
    b'"bench":{"conversation":"r20260301-120005-abcdefghijklmnop","reply":"route"}}\n\n'
)
COUNT = HEAD + b'],"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(delta: bytes) -> bytes:
    return HEAD + b'{"index":0,"delta":' + delta + b',"logprobs":null,"finish_reason":null}]}\n\n'


def test_a_stream_byte_by_byte() -> None:
    turn = CHAT.turn(ENVELOPE)
    assert turn.begin() == chunk(b'{"role":"assistant"}')
    assert turn.thought("Hm.\n") == chunk(b'{"reasoning_content":"Hm.\\n"}')
    assert turn.text("I \\ read.") == chunk(b'{"content":"I \\\\ read."}')
    assert turn.keep_alive() == b": keep-alive\n\n"
    assert turn.call(ToolCall("call_1", "read")) == chunk(
        b'{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read","arguments":""}}]}'
    )
    assert turn.arguments('{"a"') == chunk(b'{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\""}}]}')
    assert turn.call_done() == b""
    assert turn.call(ToolCall("call_2", "patch")) == chunk(
        b'{"tool_calls":[{"index":1,"id":"call_2","type":"custom","custom":{"name":"patch","input":""}}]}'
    )
    assert turn.arguments("***\n") == chunk(b'{"tool_calls":[{"index":1,"custom":{"input":"***\\n"}}]}')
    assert turn.call_done() == b""
    assert turn.end("tool_calls", USAGE, DATA) == LAST + DONE


def test_usage_comes_in_a_chunk_of_its_own_before_the_end_when_it_was_asked_for() -> None:
    assert CHAT.turn(COUNTED).end("tool_calls", USAGE, DATA) == LAST + COUNT + DONE
    assert b'"choices":[]' not in CHAT.turn(ENVELOPE).end("tool_calls", USAGE, DATA)


@pytest.mark.parametrize("format", [CHAT, COMPLETIONS])
def test_an_error_in_a_stream_is_an_event_that_ends_it(format: Format) -> None:
    turn = format.turn(ENVELOPE)
    turn.begin()
    written = turn.error(FAILED)
    assert written.endswith(DONE)
    (told,) = chunks(written)
    assert told["error"]["message"] == "the member gpt stopped"
    assert told["bench"] == DATA


def test_a_legacy_function_is_called_piece_by_piece_and_alone() -> None:
    turn = CHAT.turn(ENVELOPE)
    written = called(turn, OLD, '{"a"', ": 1}") + called(turn, ToolCall("call_4", "old"), "{}")
    assert deltas(written) == [
        {"function_call": {"name": "old", "arguments": ""}},
        {"function_call": {"arguments": '{"a"'}},
        {"function_call": {"arguments": ": 1}"}},
    ]
    assert chunks(turn.end("tool_calls", USAGE, {}))[0]["choices"][0]["finish_reason"] == "function_call"


@pytest.mark.parametrize("format", [CHAT, COMPLETIONS])
@given(text=TEXT)
@example(text=SEPARATORS)
def test_no_text_is_changed_and_none_breaks_a_line(format: Format, text: str) -> None:
    turn = format.turn(ENVELOPE)
    (choice,) = chunks(turn.text(text))[0]["choices"]
    assert choice.get("text", choice.get("delta", {}).get("content")) == text
    (line,) = format.spoken(ENVELOPE, Spoken(text), USAGE, {"note": text}).decode().splitlines()
    assert json.loads(line)["bench"] == {"note": text}


@given(text=TEXT)
@example(text=SEPARATORS)
def test_no_thought_and_no_argument_is_changed(text: str) -> None:
    turn = CHAT.turn(ENVELOPE)
    written = turn.thought(text) + called(turn, READ, text) + called(turn, PATCH, text)
    thought, _, arguments, _, input = deltas(written)
    assert thought == {"reasoning_content": text}
    assert arguments == {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
    assert input == {"tool_calls": [{"index": 1, "custom": {"input": text}}]}


# Legacy completions


def test_a_completion_is_the_text_and_nothing_else() -> None:
    told = said(COMPLETIONS, Spoken("Done.", "Hm.", [READ], "tool_calls"), FULL)
    assert told["choices"] == [{"text": "Done.", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert (told["object"], told["bench"]) == ("text_completion", DATA)
    assert told["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}


def test_a_streamed_completion_is_the_text_and_nothing_else() -> None:
    turn = COMPLETIONS.turn(COUNTED)
    pieces = [turn.begin(), turn.thought("Hm."), turn.text("Done."), called(turn, READ, "{}"), turn.keep_alive()]
    written = b"".join(pieces) + turn.end("length", USAGE, DATA)
    *told, last, counted = chunks(written)
    assert [choice["text"] for chunk in told for choice in chunk["choices"]] == ["", "Done."]
    assert (last["choices"][0]["finish_reason"], last["bench"]) == ("length", DATA)
    assert (counted["choices"], counted["usage"]["total_tokens"]) == ([], 42)
    assert written.endswith(DONE)


# As OpenAI's own library reads it


class Wire(httpx.SyncByteStream):
    def __init__(self, sent: bytes) -> None:
        self._sent = sent

    def __iter__(self) -> Iterator[bytes]:
        yield self._sent


def read_by_sdk(sent: bytes) -> ChatCompletion:
    kind = {"content-type": CHAT.stream_content_type}
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, headers=kind, stream=Wire(sent)))
    with (
        httpx.Client(transport=transport, trust_env=False) as plain,
        openai.OpenAI(base_url="http://test/v1", api_key="sk-test", http_client=plain, max_retries=0) as client,
        client.chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": "Hello."}]) as stream,
    ):
        return stream.get_final_completion()


def written(speak: Callable[[TurnStream], bytes], reason: str) -> bytes:
    turn = CHAT.turn(COUNTED)
    return turn.begin() + speak(turn) + turn.end(reason, FULL, DATA)


def test_openais_own_library_puts_the_answer_together() -> None:
    read = read_by_sdk(
        written(
            lambda turn: turn.text("I ") + turn.text("read.") + called(turn, READ, '{"path"', ': "a"}'), "tool_calls"
        )
    )
    (choice,) = read.choices
    (call,) = choice.message.tool_calls or ()
    assert choice.message.role == "assistant"
    assert choice.message.content == "I read."
    assert (call.id, call.type, choice.finish_reason) == ("call_1", "function", "tool_calls")
    assert (call.function.name, call.function.arguments) == ("read", '{"path": "a"}')
    assert read.usage is not None
    assert read.usage.prompt_tokens_details is not None
    assert read.usage.prompt_tokens_details.cached_tokens == 20


def test_openais_own_library_reads_no_text_where_there_are_only_calls() -> None:
    read = read_by_sdk(written(lambda turn: called(turn, READ, "{}"), "tool_calls"))
    assert read.choices[0].message.content is None


def test_an_error_raises_in_openais_own_library() -> None:
    turn = CHAT.turn(ENVELOPE)
    sent = turn.begin() + turn.text("I ") + turn.error(FAILED)
    with pytest.raises(openai.APIError, match="the member gpt stopped"):
        read_by_sdk(sent)

"""One model's answer in Ollama's form, line by line, and as Ollama's own library reads it and answers it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.errors import BenchError, ContextOverflow
from bench_proxy.formats.base import Envelope, Spoken, ToolCall, TurnStream, Usage
from bench_proxy.formats.ollama.format import OllamaChat, OllamaFormat, OllamaGenerate
from bench_proxy.formats.request import ToolName
from tests.anything import SEPARATORS, TEXT

Json = dict[str, Any]

CHAT, GENERATE = OllamaChat(), OllamaGenerate()
ENVELOPE = Envelope("r1", "bench/core:route", 1_772_366_405, tools={"fs__read": ToolName("fs.read")})
USAGE = Usage(30, 12, cached_tokens=20, reasoning_tokens=5)
DATA = {"conversation": "r1", "seconds": 1.5, "first_piece_seconds": 0.25}
READ = ToolCall("call_7", "read", '{"path":"a b"}')


# What is written, line by line

HEAD = b'{"model":"bench/core:route","created_at":"2026-03-01T12:00:05Z",'
COUNTS = (
    b'"prompt_eval_count":30,"eval_count":12,"bench":{"conversation":"r1","seconds":1.5,"first_piece_seconds":0.25}}'
)
END = (
    b'"total_duration":1500000000,"load_duration":0,"prompt_eval_duration":250000000,"eval_duration":1250000000,'
    + COUNTS
)
WHOLE_END = (
    b'"total_duration":1500000000,"load_duration":0,"prompt_eval_duration":0,"eval_duration":1500000000,' + COUNTS
)
CALL = b'{"id":"call_7","function":{"index":0,"name":"read","arguments":{"path":"a b"}}}'


def message(content: bytes = b"", more: bytes = b"") -> bytes:
    return HEAD + b'"message":{"role":"assistant","content":"' + content + b'"' + more + b'},"done":'


def test_a_whole_chat_byte_by_byte() -> None:
    spoken = Spoken("Hello.", "Hm.", [READ], "tool_calls")
    more = b',"thinking":"Hm.","tool_calls":[' + CALL + b"]"
    assert (
        CHAT.spoken(ENVELOPE, spoken, USAGE, DATA)
        == message(b"Hello.", more) + b'true,"done_reason":"stop",' + WHOLE_END
    )


def test_a_whole_answer_to_a_prompt_has_no_place_for_calls() -> None:
    spoken = Spoken("Hello.", "Hm.", [READ], "length")
    said = HEAD + b'"response":"Hello.","thinking":"Hm.","done":true,"done_reason":"length",'
    assert GENERATE.spoken(ENVELOPE, spoken, USAGE, DATA) == said + WHOLE_END


def test_what_was_not_thought_or_called_is_not_told() -> None:
    assert json.loads(CHAT.spoken(ENVELOPE, Spoken(), USAGE, DATA))["message"] == {"role": "assistant", "content": ""}
    assert "thinking" not in json.loads(GENERATE.spoken(ENVELOPE, Spoken("x"), USAGE, DATA))


def called(turn: TurnStream, call: ToolCall, *arguments: str) -> bytes:
    opened = turn.call(ToolCall(call.id, call.name))
    written = b"".join(turn.arguments(piece) for piece in arguments or [call.arguments])
    assert opened + written == b""  # Ollama has no half a call
    return turn.call_done()


def streamed(format: OllamaFormat) -> list[bytes]:
    turn = format.turn(ENVELOPE)
    written = [turn.begin(), turn.thought("Hm."), turn.keep_alive(), turn.text("Hello.")]
    return [*written, called(turn, READ, '{"path"', ':"a b"}'), turn.end("tool_calls", USAGE, DATA)]


def test_a_streamed_chat_line_by_line() -> None:
    assert streamed(CHAT) == [
        b"",
        message(more=b',"thinking":"Hm."') + b"false}\n",
        message() + b"false}\n",
        message(b"Hello.") + b"false}\n",
        message(more=b',"tool_calls":[' + CALL + b"]") + b"false}\n",
        message() + b'true,"done_reason":"stop",' + END + b"\n",
    ]


def test_a_streamed_answer_to_a_prompt_line_by_line() -> None:
    assert streamed(GENERATE) == [
        b"",
        HEAD + b'"response":"","thinking":"Hm.","done":false}\n',
        HEAD + b'"response":"","done":false}\n',
        HEAD + b'"response":"Hello.","done":false}\n',
        HEAD + b'"response":"","done":false}\n',
        HEAD + b'"response":"","done":true,"done_reason":"stop",' + END + b"\n",
    ]


def test_calls_are_numbered_whole_and_streamed() -> None:
    calls = [ToolCall("a", "list", "{}"), ToolCall("", "fs__read", '{"n":1}'), ToolCall("c", "list")]
    made = [
        {"id": "a", "function": {"index": 0, "name": "list", "arguments": {}}},
        {"function": {"index": 1, "name": "fs.read", "arguments": {"n": 1}}},
        {"id": "c", "function": {"index": 2, "name": "list", "arguments": {}}},
    ]
    assert json.loads(CHAT.spoken(ENVELOPE, Spoken(calls=calls), USAGE, DATA))["message"]["tool_calls"] == made
    turn = CHAT.turn(ENVELOPE)
    assert [json.loads(called(turn, call))["message"]["tool_calls"] for call in calls] == [[call] for call in made]


def test_a_sign_of_life_within_a_call_does_not_cut_it() -> None:
    turn = CHAT.turn(ENVELOPE)
    assert turn.call(ToolCall("call_7", "read")) + turn.arguments('{"path":') == b""
    assert turn.keep_alive() == message() + b"false}\n"
    assert turn.arguments('"a b"}') == b""
    assert b'"arguments":{"path":"a b"}' in turn.call_done()


@pytest.mark.parametrize(
    ("reason", "told"), [("stop", "stop"), ("tool_calls", "stop"), ("length", "length"), ("content_filter", "stop")]
)
def test_why_an_answer_ended_is_told_in_ollamas_words(reason: str, told: str) -> None:
    assert json.loads(CHAT.turn(ENVELOPE).end(reason, USAGE, DATA))["done_reason"] == told
    spoken = Spoken(calls=[READ], finish_reason=reason)
    assert json.loads(CHAT.spoken(ENVELOPE, spoken, USAGE, DATA))["done_reason"] == told


@pytest.mark.parametrize(
    ("data", "durations"),
    [
        ({}, (0, 0, 1)),
        ({"seconds": None, "first_piece_seconds": None}, (0, 0, 1)),
        ({"seconds": 2}, (2_000_000_000, 0, 2_000_000_000)),
        ({"seconds": 2, "first_piece_seconds": 0.5}, (2_000_000_000, 500_000_000, 1_500_000_000)),
        ({"seconds": 1, "first_piece_seconds": 1.001}, (1_000_000_000, 1_000_000_000, 1)),
        ({"first_piece_seconds": 1}, (0, 0, 1)),
    ],
)
def test_durations_are_told_as_far_as_they_are_known_and_can_be_divided_by(
    data: Json, durations: tuple[int, int, int]
) -> None:
    last = json.loads(CHAT.turn(ENVELOPE).end("stop", USAGE, data))
    assert (last["total_duration"], last["prompt_eval_duration"], last["eval_duration"]) == durations


@pytest.mark.parametrize(("data", "total"), [({}, 0), ({"seconds": 2, "first_piece_seconds": 2}, 2_000_000_000)])
def test_a_whole_answer_took_all_of_its_time_since_nobody_saw_it_begin(data: Json, total: int) -> None:
    whole = json.loads(CHAT.spoken(ENVELOPE, Spoken("x"), USAGE, data))
    assert (whole["total_duration"], whole["prompt_eval_duration"]) == (total, 0)
    assert whole["eval_duration"] == max(1, total)


@pytest.mark.parametrize("arguments", ['{"path": "a', "[1]", "path=a", "NaN", '{"x": "\\ud800"}', "[" * 100_000])
def test_arguments_that_are_no_object_are_told_under_a_name_that_no_tool_knows(arguments: str) -> None:
    line = json.loads(called(CHAT.turn(ENVELOPE), ToolCall("a", "read"), arguments))
    (call,) = line["message"]["tool_calls"]
    assert call["function"]["arguments"] == {"malformed_arguments": arguments}


def test_line_ends_between_the_tokens_of_arguments_do_not_end_a_line() -> None:
    line = called(CHAT.turn(ENVELOPE), ToolCall("a", "read"), '{\n  "x": 1,\r\n', '  "y": [\r2]\n}\n')
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line)["message"]["tool_calls"][0]["function"]["arguments"] == {"x": 1, "y": [2]}


@given(TEXT, st.dictionaries(st.text(max_size=5), TEXT, max_size=3))
def test_no_text_is_changed_and_none_breaks_a_line(text: str, arguments: dict[str, str]) -> None:
    turn = CHAT.turn(ENVELOPE)
    call = called(turn, ToolCall("a", "read"), *json.dumps(arguments, ensure_ascii=False))
    lines = [turn.text(text), turn.thought(text), call, turn.end("stop", USAGE, {"note": text})]
    assert all(line.endswith(b"\n") and len(line.decode().splitlines()) == 1 for line in lines)
    messages = [json.loads(line)["message"] for line in lines]
    assert messages[0]["content"] == text
    assert messages[1].get("thinking", "") == text
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == arguments


def test_an_error_has_ollamas_shape_and_nothing_else() -> None:
    assert CHAT.turn(ENVELOPE).error(BenchError("broken")) == b'{"error":"broken"}\n'
    assert set(json.loads(CHAT.error(ContextOverflow(5000, 4096)))) == {"error"}


# What is wanted


@pytest.mark.parametrize(
    ("think", "wanted"), [(None, True), (True, True), ("high", True), ("low", True), (False, False)]
)
@pytest.mark.parametrize(("format", "asked"), [(CHAT, {"messages": [{"role": "user"}]}), (GENERATE, {"prompt": "x"})])
def test_thinking_is_shown_unless_it_is_switched_off_as_ollama_does(
    format: OllamaFormat, asked: Json, think: object, wanted: bool
) -> None:
    assert format.read({**asked, "think": think})[1].thoughts is wanted
    assert format.read(asked)[1].thoughts is True


# Through Ollama's own library


class Cut(httpx.SyncByteStream):
    """A streamed reply whose bytes come one by one."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent

    def __iter__(self) -> Iterator[bytes]:
        yield from (self._sent[at : at + 1] for at in range(len(self._sent)))


class Server:
    """Answers one request after another as route mode would, and keeps what was asked as it is read."""

    def __init__(self, *answers: Spoken | BenchError) -> None:
        self._answers = list(answers)
        self.asked: list[list[Json]] = []
        self.tools: list[Any] = []

    def __call__(self, sent: httpx.Request) -> httpx.Response:
        format = CHAT if sent.url.path == "/api/chat" else GENERATE
        request, wish = format.read(json.loads(sent.content))
        self.asked.append([dict(message) for message in request.messages])
        self.tools.append(request.settings.get("tools"))
        answer = self._answers.pop(0)
        if wish.stream:
            return httpx.Response(200, stream=Cut(_streamed(format.turn(ENVELOPE), answer)))
        assert isinstance(answer, Spoken)
        return httpx.Response(200, content=format.spoken(ENVELOPE, answer, USAGE, DATA))


def _streamed(turn: TurnStream, answer: Spoken | BenchError) -> bytes:
    if isinstance(answer, BenchError):
        return turn.begin() + turn.text("I ") + turn.error(answer)
    written = turn.begin() + turn.keep_alive()
    written += b"".join(turn.thought(answer.thoughts[at : at + 2]) for at in range(0, len(answer.thoughts), 2))
    written += b"".join(turn.text(character) for character in answer.text)
    written += b"".join(called(turn, call, *call.arguments) for call in answer.calls)
    return written + turn.end(answer.finish_reason, USAGE, DATA)


def sdk(server: Server) -> ollama.Client:
    return ollama.Client(host="http://test", transport=httpx.MockTransport(server), trust_env=False)


def weather(city: str, days: int = 1) -> str:
    """Tells the weather.

    Args:
      city: where
      days: how many
    """
    return f"{days} dry days in {city}"


USER: Json = {"role": "user", "content": "Will it rain?"}
TWO_CALLS = Spoken(
    "Let me look.",
    "Two cities.",
    [
        ToolCall("call_a", "weather", '{"city": "Köln\u2028", "days": 2}'),
        ToolCall("call_b", "weather", '{"city": "Bonn"}'),
    ],
    "tool_calls",
)
SAID = f"All dry. {SEPARATORS} 漢字"


def results(message: ollama.Message) -> list[Json]:
    """The message and what its tools say, as the library's own examples send them."""
    calls = [call.function for call in message.tool_calls or ()]
    told = [{"role": "tool", "tool_name": call.name, "content": weather(**call.arguments)} for call in calls]
    return [message.model_dump(exclude_none=True), *told]


def agrees(asked: list[Json]) -> None:
    """The library drops ids; calls and results still agree."""
    user, made, *told = asked
    assert user == USER
    assert made["content"] == "Let me look."
    assert "thinking" not in made
    arguments = [json.loads(call["function"]["arguments"]) for call in made["tool_calls"]]
    assert arguments == [{"city": "Köln\u2028", "days": 2}, {"city": "Bonn"}]
    ids = [call["id"] for call in made["tool_calls"]]
    assert len(set(ids)) == 2
    assert told == [
        {"role": "tool", "tool_call_id": ids[0], "content": "2 dry days in Köln\u2028"},
        {"role": "tool", "tool_call_id": ids[1], "content": "1 dry days in Bonn"},
    ]


def test_a_tool_is_called_and_its_result_comes_back() -> None:
    server = Server(TWO_CALLS, Spoken(SAID))
    client = sdk(server)
    reply = client.chat(model="bench/core:route", messages=[USER], tools=[weather])
    assert (reply.message.thinking, reply.message.content) == ("Two cities.", "Let me look.")
    assert (reply.done_reason, reply.prompt_eval_count, reply.eval_count) == ("stop", 30, 12)
    end = client.chat(model="bench/core:route", messages=[USER, *results(reply.message)], tools=[weather])
    assert end.message.content == SAID
    agrees(server.asked[1])
    (tool,) = server.tools[0]
    assert (tool["type"], tool["function"]["name"]) == ("function", "weather")
    assert tool["function"]["parameters"]["properties"]["city"]["type"] == "string"


def test_a_streamed_turn_says_and_calls_the_same() -> None:
    server = Server(TWO_CALLS, Spoken(SAID, "Dry."))
    client = sdk(server)
    lines = list(client.chat(model="bench/core:route", messages=[USER], tools=[weather], stream=True))
    said = ollama.Message(
        role="assistant",
        content="".join(line.message.content or "" for line in lines),
        thinking="".join(line.message.thinking or "" for line in lines),
        tool_calls=[call for line in lines for call in line.message.tool_calls or ()],
    )
    assert said.thinking == "Two cities."
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    again = list(client.chat(model="bench/core:route", messages=[USER, *results(said)], tools=[weather], stream=True))
    assert "".join(line.message.content or "" for line in again) == SAID
    agrees(server.asked[1])


def test_a_prompt_is_answered_with_thinking_whole_and_streamed() -> None:
    client = sdk(Server(Spoken(SAID, "Hm."), Spoken(SAID, "Hm.")))
    whole = client.generate(model="bench/core:route", prompt="Will it rain?", think=True)
    assert (whole.response, whole.thinking) == (SAID, "Hm.")
    lines = list(client.generate(model="bench/core:route", prompt="Will it rain?", stream=True))
    assert "".join(line.response or "" for line in lines) == SAID
    assert "".join(line.thinking or "" for line in lines) == "Hm."
    assert lines[-1].eval_duration == 1_250_000_000


def test_an_error_in_a_stream_raises_in_ollamas_own_library() -> None:
    stream = sdk(Server(BenchError("nobody answered"))).chat(model="bench/core:route", messages=[USER], stream=True)
    assert next(stream).message.content == "I "
    with pytest.raises(ollama.ResponseError, match="nobody answered"):
        list(stream)

"""One model's answer in Gemini's form, byte by byte, and as Google's own SDK reads it and answers it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.errors import BenchError, ContextOverflow
from bench_proxy.formats.base import Envelope, Spoken, ToolCall, TurnStream, Usage
from bench_proxy.formats.gemini.format import ARRAY, EVENTS, WHOLE, GeminiFormat
from bench_proxy.formats.request import ToolName
from tests.anything import SEPARATORS, TEXT

Json = dict[str, Any]

CONVERSATION = "r20260301-120005-abcdefghijklmnop"
ENVELOPE = Envelope(CONVERSATION, "bench/core:route", 1_772_366_405, tools={"fs__read": ToolName("fs.read")})
USAGE = Usage(30, 12)
DATA = {"conversation": CONVERSATION}
READ = ToolCall("call_7", "read", '{"path":"a b"}')


# What is written, byte by byte

TAIL = b'"modelVersion":"bench/core:route","responseId":"r20260301-120005-abcdefghijklmnop"'
COUNTS = b'"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":12,"totalTokenCount":42},'
BENCH = b',"bench":{"conversation":"r20260301-120005-abcdefghijklmnop"}}'
HM, HELLO = b'{"text":"Hm.","thought":true}', b'{"text":"Hello."}'
CALL = b'{"functionCall":{"id":"call_7","name":"read","args":{"path":"a b"}}}'
NOTHING = b'{"text":""}'


def chunk(part: bytes) -> bytes:
    return b'{"candidates":[{"content":{"role":"model","parts":[' + part + b']},"index":0}],' + TAIL + b"}"


def last(*parts: bytes, reason: bytes = b"STOP") -> bytes:
    content = b'{"content":{"role":"model","parts":[' + b",".join(parts) + b"]}"
    return b'{"candidates":[' + content + b',"finishReason":"' + reason + b'","index":0}],' + COUNTS + TAIL + BENCH


def test_a_whole_answer_has_its_thoughts_then_its_text_then_its_calls() -> None:
    spoken = Spoken("Hello.", "Hm.", [READ], "tool_calls")
    assert WHOLE.spoken(ENVELOPE, spoken, USAGE, DATA) == last(HM, HELLO, CALL)


@pytest.mark.parametrize(
    ("spoken", "parts"),
    [
        (Spoken(), [NOTHING]),
        (Spoken("Hello."), [HELLO]),
        (Spoken(thoughts="Hm."), [HM]),
        (Spoken(calls=[READ, READ], finish_reason="tool_calls"), [CALL, CALL]),
    ],
)
def test_a_whole_answer_has_no_part_that_says_nothing_beside_others(spoken: Spoken, parts: list[bytes]) -> None:
    assert WHOLE.spoken(ENVELOPE, spoken, USAGE, DATA) == last(*parts)


def called(turn: TurnStream, call: ToolCall, *arguments: str) -> bytes:
    opened = turn.call(ToolCall(call.id, call.name))
    written = b"".join(turn.arguments(piece) for piece in arguments or [call.arguments])
    assert opened + written == b""  # Gemini has no half a call
    return turn.call_done()


def streamed(turn: TurnStream) -> list[bytes]:
    written = [turn.begin(), turn.thought("Hm."), turn.keep_alive(), turn.text("Hello.")]
    written += [called(turn, READ, '{"path"', ':"a b"}'), turn.end("tool_calls", USAGE, DATA)]
    return written


CHUNKS = [chunk(HM), chunk(NOTHING), chunk(HELLO), chunk(CALL), last(NOTHING)]


def test_a_stream_of_events_byte_by_byte() -> None:
    assert b"".join(streamed(EVENTS.turn(ENVELOPE))) == b"".join(b"data: " + chunk + b"\n\n" for chunk in CHUNKS)


def test_a_stream_that_is_an_array_byte_by_byte() -> None:
    assert b"".join(streamed(ARRAY.turn(ENVELOPE))) == b"[" + b",\n".join(CHUNKS) + b"]\n"


def test_a_sign_of_life_is_a_chunk_without_text_also_before_the_first_word_and_within_a_call() -> None:
    turn = EVENTS.turn(ENVELOPE)
    alive = b"data: " + chunk(NOTHING) + b"\n\n"
    assert turn.keep_alive() == alive
    assert turn.call(ToolCall("call_7", "read")) + turn.arguments('{"path":') == b""
    assert turn.keep_alive() == alive
    assert turn.arguments('"a b"}') + turn.call_done() == b"data: " + chunk(CALL) + b"\n\n"


def test_calls_follow_one_another_each_with_its_own_arguments() -> None:
    turn = EVENTS.turn(ENVELOPE)
    first = called(turn, ToolCall("a", "list"), "{}")
    second = called(turn, ToolCall("", "fs__read"), '{"n":1')
    third = called(turn, ToolCall("c", "list"), "")
    made = [json.loads(event[6:])["candidates"][0]["content"]["parts"] for event in (first, second, third)]
    assert made == [
        [{"functionCall": {"id": "a", "name": "list", "args": {}}}],
        [{"functionCall": {"name": "fs.read", "args": {"malformed_arguments": '{"n":1'}}}],
        [{"functionCall": {"id": "c", "name": "list", "args": {}}}],
    ]


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "STOP"),
        ("tool_calls", "STOP"),
        ("length", "MAX_TOKENS"),
        ("content_filter", "SAFETY"),
        ("of tomorrow", "OTHER"),
    ],
)
def test_why_an_answer_ended_is_told_in_googles_words(reason: str, word: str) -> None:
    whole = json.loads(WHOLE.spoken(ENVELOPE, Spoken(calls=[READ], finish_reason=reason), USAGE, DATA))
    (end,) = json.loads(ARRAY.turn(ENVELOPE).end(reason, USAGE, DATA))
    assert [reply["candidates"][0]["finishReason"] for reply in (whole, end)] == [word, word]


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (Usage(0, 0), {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}),
        (
            Usage(100, 50, cached_tokens=80, cache_write_tokens=5, reasoning_tokens=40),
            {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 80,
                "candidatesTokenCount": 10,
                "thoughtsTokenCount": 40,
                "totalTokenCount": 150,
            },
        ),
        # Some servers count thoughts apart: never fewer than no tokens are told.
        (
            Usage(1, 5, reasoning_tokens=9),
            {"promptTokenCount": 1, "candidatesTokenCount": 0, "thoughtsTokenCount": 5, "totalTokenCount": 6},
        ),
    ],
)
def test_thoughts_are_counted_beside_the_answer_as_google_does(usage: Usage, counts: Json) -> None:
    assert json.loads(WHOLE.spoken(ENVELOPE, Spoken("x"), usage, DATA))["usageMetadata"] == counts
    (end,) = json.loads(ARRAY.turn(ENVELOPE).end("stop", usage, DATA))
    assert end["usageMetadata"] == counts
    assert types.GenerateContentResponseUsageMetadata.model_validate(counts).total_token_count == counts[
        "totalTokenCount"
    ]  # fmt: skip


# Arguments


@pytest.mark.parametrize("arguments", ["", " \n", "null", "{}", " {\n}\r\n"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    assert args_of(arguments) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "a',
        "[1]",
        '"x"',
        "5",
        "NaN",
        '{"x": NaN}',
        '{"a":1}{"b":2}',
        "path=a\n",
        '{"x": "\\ud800"}',
        "[" * 100_000,
        '{"a":' * 2000 + "1" + "}" * 2000,
    ],
)
def test_arguments_that_are_no_object_are_told_under_a_name_that_no_tool_knows(arguments: str) -> None:
    """An empty object could run a tool that needs no arguments; so the tool refuses the call, and the model sees it."""
    assert args_of(arguments) == {"malformed_arguments": arguments}


def test_half_a_character_in_broken_arguments_does_not_break_the_reply() -> None:
    assert args_of('{"x": "\ud83d') == {"malformed_arguments": '{"x": "?'}


@pytest.mark.parametrize(
    "arguments",
    [
        '{"n":123456789012345678901234567890,"f":0.1000000000000000055511151231257827}',
        '{"s":"a\u2028\u2029\u0085b\\n\\u2028 漢字"}',
        '{"a":' * 400 + "1" + "}" * 400,
    ],
)
def test_arguments_are_given_on_as_they_were_written(arguments: str) -> None:
    written = WHOLE.spoken(ENVELOPE, Spoken(calls=[ToolCall("a", "f", arguments)]), USAGE, DATA)
    for separator in "\u2028\u2029\u0085":
        arguments = arguments.replace(separator, f"\\u{ord(separator):04x}")
    assert b'"args":' + arguments.encode() + b"}" in written


def test_line_ends_between_tokens_do_not_end_an_event() -> None:
    turn = EVENTS.turn(ENVELOPE)
    written = called(turn, ToolCall("a", "f"), '{\n  "x": 1,\r\n', '  "y": [\r2]\n}\n')
    assert len(written.decode().splitlines()) == 2
    assert part_of(written)["functionCall"]["args"] == {"x": 1, "y": [2]}


def args_of(arguments: str) -> Json:
    """What becomes of arguments, the same whole and streamed."""
    spoken = Spoken(calls=[ToolCall("a", "f", arguments)])
    reply = json.loads(WHOLE.spoken(ENVELOPE, spoken, USAGE, DATA))
    args: Json = reply["candidates"][0]["content"]["parts"][0]["functionCall"]["args"]
    assert part_of(called(EVENTS.turn(ENVELOPE), spoken.calls[0]))["functionCall"]["args"] == args
    return args


def part_of(event: bytes) -> Json:
    part: Json = json.loads(event.removeprefix(b"data: "))["candidates"][0]["content"]["parts"][0]
    return part


@given(TEXT, st.dictionaries(st.text(max_size=5), TEXT, max_size=3))
def test_no_text_is_changed_and_none_breaks_a_line(text: str, arguments: dict[str, str]) -> None:
    written = json.dumps(arguments, ensure_ascii=False)
    turn = EVENTS.turn(ENVELOPE)
    events = [turn.text(text), turn.thought(text), called(turn, ToolCall("a", "f"), *written)]
    assert all(len(event.decode().splitlines()) == 2 for event in events)
    said, thought, call = map(part_of, events)
    assert (said, thought) == ({"text": text}, {"text": text, "thought": True})
    assert call["functionCall"]["args"] == arguments


# Errors

ERROR = b'{"error":{"code":500,"message":"broken","status":"INTERNAL"}}'


def test_an_error_in_a_stream_is_a_chunk_that_ends_it() -> None:
    assert EVENTS.turn(ENVELOPE).error(BenchError("broken")) == b"data: " + ERROR + b"\n\n"
    assert ARRAY.turn(ENVELOPE).error(BenchError("broken")) == b"[" + ERROR + b"]\n"
    begun = ARRAY.turn(ENVELOPE)
    assert json.loads(begun.text("x") + begun.error(BenchError("broken")))[1] == json.loads(ERROR)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (1_048_576, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        (None, "The input token count (1200000) exceeds the maximum number of tokens allowed."),
    ],
)
def test_a_conversation_that_is_too_long_is_told_in_googles_words(window: int | None, message: str) -> None:
    error = ContextOverflow(1_200_000, window)
    said = {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
    assert json.loads(WHOLE.error(error)) == said
    assert json.loads(ARRAY.turn(ENVELOPE).error(error)) == [said]


# Through Google's own SDK


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
        self.settings: list[Json] = []

    def __call__(self, sent: httpx.Request) -> httpx.Response:
        request, wish = EVENTS.read(json.loads(sent.content))
        self.asked.append([dict(message) for message in request.messages])
        self.settings.append(dict(request.settings))
        answer = self._answers.pop(0)
        if sent.url.path.endswith(":streamGenerateContent"):
            assert sent.url.params["alt"] == "sse"
            return httpx.Response(200, stream=Cut(self._streamed(answer, thoughts=wish.thoughts)))
        assert isinstance(answer, Spoken)
        return httpx.Response(200, content=WHOLE.spoken(ENVELOPE, answer, USAGE, DATA))

    def _streamed(self, answer: Spoken | BenchError, *, thoughts: bool) -> bytes:
        turn = EVENTS.turn(ENVELOPE)
        if isinstance(answer, BenchError):
            return turn.begin() + turn.text("I ") + turn.error(answer)
        written = turn.begin() + turn.keep_alive()
        written += b"".join(turn.thought(answer.thoughts[at : at + 2]) for at in range(0, len(answer.thoughts), 2))
        written = written if thoughts else turn.begin()
        written += b"".join(turn.text(character) for character in answer.text)
        written += b"".join(called(turn, call, *call.arguments) for call in answer.calls)
        return written + turn.end(answer.finish_reason, USAGE, DATA)


def sdk(server: Server) -> genai.Client:
    http = httpx.Client(transport=httpx.MockTransport(server), trust_env=False)
    return genai.Client(api_key="x", http_options=types.HttpOptions(base_url="http://test", httpx_client=http))


def weather(city: str, days: int = 1) -> str:
    """Tells the weather.

    Args:
      city: where
      days: how many
    """
    return f"{days} dry days in {city}"


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
WANTED = types.GenerateContentConfig(tools=[weather], thinking_config=types.ThinkingConfig(include_thoughts=True))


def called_in_chat(id: str, arguments: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


ANSWERED = [
    {"role": "user", "content": "Will it rain?"},
    {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [
            called_in_chat("call_a", '{"city":"Köln\u2028","days":2}'),
            called_in_chat("call_b", '{"city":"Bonn"}'),
        ],
    },
    {"role": "tool", "tool_call_id": "call_a", "content": '{"result":"2 dry days in Köln\u2028"}'},
    {"role": "tool", "tool_call_id": "call_b", "content": '{"result":"1 dry days in Bonn"}'},
]


def test_automatic_functions_are_called_and_what_comes_back_is_a_chat_that_agrees() -> None:
    server = Server(TWO_CALLS, Spoken(SAID))
    reply = sdk(server).models.generate_content(model="bench/core:route", contents="Will it rain?", config=WANTED)
    assert reply.text == SAID
    assert server.asked == [ANSWERED[:1], ANSWERED]
    (function,) = server.settings[0]["tools"]
    assert function["function"]["parameters"]["properties"]["city"]["type"] == "string"


def test_automatic_functions_are_called_from_a_stream_too() -> None:
    server = Server(TWO_CALLS, Spoken(SAID))
    stream = sdk(server).models.generate_content_stream(
        model="bench/core:route", contents="Will it rain?", config=WANTED
    )
    parts = [
        part
        for chunk in stream
        for part in (chunk.candidates or [])[0].content.parts or []  # type: ignore[union-attr]
    ]
    assert "".join(part.text or "" for part in parts if part.thought) == "Two cities."
    assert "".join(part.text or "" for part in parts if not part.thought) == f"Let me look.{SAID}"
    assert [call.id for part in parts if (call := part.function_call)] == ["call_a", "call_b"]
    assert server.asked == [ANSWERED[:1], ANSWERED]


def test_a_chat_goes_on_after_a_streamed_turn() -> None:
    """The SDK keeps a turn in its history only when every chunk of it is a valid content."""
    server = Server(Spoken("I am here.", "Hm."), Spoken("Still."))
    chat = sdk(server).chats.create(model="bench/core:route", config=WANTED)
    (*_, end) = chat.send_message_stream("Where are you?")
    assert end.usage_metadata is not None
    assert end.usage_metadata.total_token_count == 42
    assert chat.send_message("And now?").text == "Still."
    assert server.asked[1] == [
        {"role": "user", "content": "Where are you?"},
        {"role": "assistant", "content": "I am here."},
        {"role": "user", "content": "And now?"},
    ]


@pytest.mark.parametrize("broken", ['{"city": "Kö', '["Köln"]'])
def test_a_broken_call_is_refused_by_the_function_and_the_model_is_told(broken: str) -> None:
    server = Server(Spoken(calls=[ToolCall("a", "weather", broken)], finish_reason="length"), Spoken("Sorry."))
    reply = sdk(server).models.generate_content(model="bench/core:route", contents="Will it rain?", config=WANTED)
    assert reply.text == "Sorry."
    _, made, result = server.asked[1]
    assert json.loads(made["tool_calls"][0]["function"]["arguments"]) == {"malformed_arguments": broken}
    assert set(json.loads(result["content"])) == {"error"}


def test_an_error_in_a_stream_raises_in_googles_own_sdk() -> None:
    server = Server(ContextOverflow(5000, 4096))
    stream = sdk(server).models.generate_content_stream(model="bench/core:route", contents="Hello.")
    assert next(stream).text == "I "
    with pytest.raises(errors.ClientError, match=r"The input token count \(5000\) exceeds") as raised:
        list(stream)
    assert (raised.value.code, raised.value.status) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("format", "before", "after"), [(EVENTS, b"data: ", b"\n\n"), (ARRAY, b"[", b"]\n")], ids=["events", "array"]
)
def test_a_stream_without_an_answer_still_has_its_end(format: GeminiFormat, before: bytes, after: bytes) -> None:
    turn = format.turn(ENVELOPE)
    assert turn.begin() + turn.end("stop", USAGE, DATA) == before + last(NOTHING) + after

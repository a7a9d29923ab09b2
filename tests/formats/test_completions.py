"""OpenAI's legacy completions: which bodies are taken, and byte by byte what goes back."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types import Completion

from bench_proxy.errors import InvalidRequest, PanelFailed
from bench_proxy.formats.base import Alternative, Envelope, Usage
from bench_proxy.formats.completions import CompletionsFormat
from bench_proxy.panel.refusals import refuse
from tests.anything import SEPARATORS

Json = dict[str, Any]

COMPLETIONS = CompletionsFormat()
PANEL = "p20260301-120005-abcdefghijklmnop"
ENVELOPE = Envelope(PANEL, "bench/core", 1_772_366_405)
COUNTED = Envelope(PANEL, "bench/core", 1_772_366_405, include_usage=True)
USAGE = Usage(30, 12)


def body(**more: Any) -> Json:
    return {"model": "bench/core", "prompt": "Hello.", **more}


def refused(document: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        COMPLETIONS.read(document)
    assert error.value.status == 400
    return error.value


def settings(**more: Any) -> Json:
    return dict(COMPLETIONS.read(body(**more))[0].settings)


# Reading


@pytest.mark.parametrize("prompt", ["Hello.", ["Hello."]])
def test_a_prompt_is_a_chat_of_one_message(prompt: object) -> None:
    assert COMPLETIONS.read(body(prompt=prompt))[0].messages == [{"role": "user", "content": "Hello."}]


def test_a_prompt_is_required() -> None:
    assert refused({"model": "bench/core"}).message == '"prompt" is required'


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (None, "should be a text"),
        (5, "should be a text"),
        ({"text": "Hello."}, "should be a text"),
        ([], "holds 0 prompts"),
        (["Hello.", "Goodbye."], "holds 2 prompts, and a panel answers one; send a request for each"),
        ([15496], "token numbers"),
        ([15496, 13], "token numbers"),
        ([[15496, 13]], "token numbers"),
        ([[15496], [13]], "token numbers"),
    ],
)
def test_what_is_not_one_text_is_refused_with_why(prompt: object, told: str) -> None:
    error = refused(body(prompt=prompt))
    assert error.param == "prompt"
    assert told in error.message


WRONG: list[tuple[Json, str]] = [
    ({"suffix": "return x"}, "suffix"),
    ({"suffix": 5}, "suffix"),
    ({"echo": True}, "echo"),
    ({"echo": "yes"}, "echo"),
    ({"best_of": 2}, "best_of"),
    ({"best_of": 0}, "best_of"),
    ({"best_of": "1"}, "best_of"),
    ({"logprobs": 5}, "logprobs"),
    ({"logprobs": 0}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"n": "2"}, "n"),
    ({"n": 0}, "n"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": []}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"seed": "lucky"}, "seed"),
    ({"stop": ["a", 5]}, "stop.1"),
    ({"presence_penalty": "0"}, "presence_penalty"),
    ({"frequency_penalty": {}}, "frequency_penalty"),
    ({"logit_bias": {"50256": "never"}}, "logit_bias"),
    ({"tools": ["read"]}, "tools.0"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG)
def test_what_cannot_be_honoured_is_refused_by_its_name(wrong: Json, field: str) -> None:
    error = refused(body(**wrong))
    assert error.param == field
    assert error.message.startswith(f'"{field}": ')


def test_fields_that_ask_for_nothing_are_left_out() -> None:
    assert settings(suffix="", echo=False, best_of=1) == {}
    assert settings(**dict.fromkeys(("suffix", "echo", "best_of", "logprobs", "n", "stop", "temperature"))) == {}
    assert settings(stream=True, stream_options={}, bench={}, store=True, messages=["not of this format"]) == {}


PASSED = {
    "temperature": 0,
    "top_p": 0.5,
    "presence_penalty": -1,
    "frequency_penalty": 2,
    "max_tokens": 100,
    "n": 1,
    "seed": -7,
    "stop": ["\n", "END"],
    "logit_bias": {"50256": -100},
    "user": "me",
    "top_k": 40,
    "a_setting_of_tomorrow": [{"deep": None}],
}


def test_settings_reach_the_models_as_they_were_sent_also_those_that_nobody_knows() -> None:
    assert settings(**PASSED) == PASSED


def test_what_a_chat_refuses_on_a_panel_is_refused_of_a_completion_too() -> None:
    for more, field in (({"n": 2}, "n"), ({"tools": [{"type": "function"}]}, "tools")):
        with pytest.raises(InvalidRequest) as error:
            refuse(COMPLETIONS.read(body(**more))[0])
        assert error.value.param == field


@pytest.mark.parametrize(("sent", "alternatives"), [({}, False), ({"n": None}, False), ({"n": 1}, True)])
def test_alternatives_are_for_those_who_say_how_many(sent: Json, alternatives: bool) -> None:
    assert COMPLETIONS.read(body(**sent))[1].alternatives is alternatives


@pytest.mark.parametrize(
    ("sent", "stream", "usage"),
    [
        ({}, False, False),
        ({"stream": True}, True, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True, True),
    ],
)
def test_how_the_reply_should_come_is_read(sent: Json, stream: bool, usage: bool) -> None:
    _, wish = COMPLETIONS.read(body(**sent))
    assert (wish.stream, wish.include_usage) == (stream, usage)


# Writing


HEAD = (
    b'"id":"cmpl-p20260301-120005-abcdefghijklmnop","object":"text_completion","created":1772366405,'
    b'"model":"bench/core"'
)
BENCH = b'"bench":{"panel":"p20260301-120005-abcdefghijklmnop"}}'
COUNTS = b'"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}'
DONE = b"data: [DONE]\n\n"


def chunk(text: bytes, index: bytes = b"0", reason: bytes = b"null", end: bytes = b"}") -> bytes:
    choice = b'{"text":"' + text + b'","index":' + index + b',"logprobs":null,"finish_reason":' + reason + b"}"
    return b"data: {" + HEAD + b',"choices":[' + choice + b"]" + end + b"\n\n"


def test_a_whole_reply_byte_by_byte() -> None:
    answers = [Alternative("# Hello\n"), Alternative("Bye.", "length")]
    assert COMPLETIONS.whole(ENVELOPE, answers, USAGE, {"panel": PANEL}) == (
        b"{" + HEAD + b',"choices":['
        b'{"text":"# Hello\\n","index":0,"logprobs":null,"finish_reason":"stop"},'
        b'{"text":"Bye.","index":1,"logprobs":null,"finish_reason":"length"}],' + COUNTS + b"," + BENCH
    )


def stream(envelope: Envelope) -> list[bytes]:
    written = COMPLETIONS.stream(envelope)
    return [
        written.begin(),
        written.text("# Hello\n"),
        written.keep_alive(),
        written.end(["stop"], USAGE, {"panel": PANEL}),
    ]


def test_a_stream_byte_by_byte() -> None:
    last = chunk(b"", reason=b'"stop"', end=b"," + BENCH)
    assert stream(ENVELOPE) == [chunk(b""), chunk(b"# Hello\\n"), b": keep-alive\n\n", last + DONE]


def test_usage_comes_in_a_chunk_of_its_own_before_the_end_when_it_was_asked_for() -> None:
    last = chunk(b"", reason=b'"stop"', end=b"," + BENCH)
    counted = b"data: {" + HEAD + b',"choices":[],' + COUNTS + b"}\n\n"
    assert stream(COUNTED)[-1] == last + counted + DONE
    assert b'"choices":[]' not in b"".join(stream(ENVELOPE))


def test_alternatives_interleave_by_their_index() -> None:
    written = COMPLETIONS.stream(ENVELOPE)
    assert [written.begin(), written.begin(1), written.text("b", 1), written.text("a"), written.done(1)] == [
        chunk(b""),
        chunk(b"", b"1"),
        chunk(b"b", b"1"),
        chunk(b"a"),
        b"",
    ]
    assert written.end(["length", "stop"], USAGE, {"panel": PANEL}) == (
        chunk(b"", reason=b'"length"') + chunk(b"", b"1", b'"stop"', b"," + BENCH) + DONE
    )


@pytest.mark.parametrize(
    ("reason", "told"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("tool_calls", "stop")],
)
def test_why_an_answer_ended_is_told_in_words_of_this_format(reason: str, told: str) -> None:
    whole = json.loads(COMPLETIONS.whole(ENVELOPE, [Alternative("", reason)], USAGE, {}))
    assert whole["choices"][0]["finish_reason"] == told


def test_an_error_in_a_stream_is_an_event_that_ends_it() -> None:
    failed = PanelFailed("no seat answered", status=502, data={"panel": PANEL})
    assert COMPLETIONS.stream(ENVELOPE).error(failed) == (
        b'data: {"error":{"message":"no seat answered","type":"server_error","param":null,'
        b'"code":"no_seat_answered"},' + BENCH + b"\n\n" + DONE
    )


class Wire(httpx.SyncByteStream):
    """A streamed reply whose bytes come in the parts that a test says."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        yield from self._parts


def read_by_sdk(*parts: bytes) -> list[Completion]:
    kind = {"content-type": COMPLETIONS.stream_content_type}
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, headers=kind, stream=Wire(*parts)))
    with (
        httpx.Client(transport=transport, trust_env=False) as plain,
        openai.OpenAI(base_url="http://test/v1", api_key="sk-test", http_client=plain, max_retries=0) as client,
    ):
        return list(client.completions.create(model="bench/core", prompt="Hello.", stream=True))


def test_a_stream_cut_anywhere_reads_the_same_in_openais_own_library() -> None:
    said = f"{SEPARATORS} 漢字 \N{GRINNING FACE}"
    written = COMPLETIONS.stream(COUNTED)
    sent = b"".join([written.begin(), written.text(said), written.keep_alive(), written.end(["stop"], USAGE, {})])
    whole = read_by_sdk(sent)
    assert "".join(choice.text for chunk in whole for choice in chunk.choices) == said
    assert [choice.finish_reason for chunk in whole for choice in chunk.choices] == [None, None, "stop"]
    assert whole[-1].usage is not None
    assert whole[-1].usage.total_tokens == 42
    for cut in range(1, len(sent)):
        assert read_by_sdk(sent[:cut], sent[cut:]) == whole
    assert read_by_sdk(*(sent[at : at + 1] for at in range(len(sent)))) == whole


def test_an_error_in_a_stream_raises_in_openais_own_library() -> None:
    written = COMPLETIONS.stream(ENVELOPE)
    with pytest.raises(openai.APIError, match="no seat answered"):
        read_by_sdk(written.begin(), written.error(PanelFailed("no seat answered", status=502)))

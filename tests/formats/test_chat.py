"""OpenAI chat completions: which bodies are taken, and byte by byte what goes back."""

from typing import Any

import orjson
import pytest
from hypothesis import given

from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.base import Alternative, Envelope, Usage, dumps
from bench_proxy.formats.chat.format import ChatFormat
from bench_proxy.formats.request import ChatRequest, as_text
from tests.anything import JSON

Json = dict[str, Any]

CHAT = ChatFormat()
PANEL = "p20260301-120005-abcdefghijklmnop"
ENVELOPE = Envelope(PANEL, "bench/core", 1_772_366_405)
COUNTED = Envelope(PANEL, "bench/core", 1_772_366_405, include_usage=True)
USAGE = Usage(30, 12)
USER = {"role": "user", "content": "Hello."}


def body(**more: Any) -> Json:
    return {"model": "bench/core", "messages": [USER], **more}


def refused(document: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        CHAT.read(document)
    assert error.value.status == 400
    return error.value


def settings(**more: Any) -> Json:
    return dict(CHAT.read(body(**more))[0].settings)


# Reading


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"model": "bench/core"}, "messages"),
        (body(messages=[{"content": "Hello."}]), "messages.0.role"),
        (body(messages=[USER, {"role": "user", "content": [{"text": "Hello."}]}]), "messages.1.content.0.type"),
    ],
)
def test_a_field_that_is_missing_is_named_by_its_path(document: Json, field: str) -> None:
    error = refused(document)
    assert error.param == field
    assert error.message == f'"{field}" is required'


WRONG: list[tuple[Json, str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "Hello."}, "messages"),
    ({"messages": {"role": "user"}}, "messages"),
    ({"messages": ["Hello."]}, "messages.0"),
    ({"messages": [USER, {"role": 5, "content": "x"}]}, "messages.1.role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": ["Hello."]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages.0.content.0.type"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages.0.content.0.text"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"top_p": []}, "top_p"),
    ({"presence_penalty": "0"}, "presence_penalty"),
    ({"frequency_penalty": {}}, "frequency_penalty"),
    ({"max_tokens": "100"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"n": "2"}, "n"),
    ({"n": 0}, "n"),
    ({"seed": "lucky"}, "seed"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", 5]}, "stop.1"),
    ({"logit_bias": []}, "logit_bias"),
    ({"logit_bias": {"50256": "never"}}, "logit_bias"),
    ({"logit_bias": {"50256": True}}, "logit_bias"),
    ({"logprobs": "yes"}, "logprobs"),
    ({"top_logprobs": "5"}, "top_logprobs"),
    ({"response_format": "json"}, "response_format"),
    ({"reasoning_effort": 3}, "reasoning_effort"),
    ({"tools": {"type": "function"}}, "tools"),
    ({"tools": ["read"]}, "tools.0"),
    ({"functions": "read"}, "functions"),
    ({"modalities": "text"}, "modalities"),
    ({"audio": "alloy"}, "audio"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG)
def test_a_value_of_the_wrong_type_is_refused_by_its_path(wrong: Json, field: str) -> None:
    error = refused(body(**wrong))
    assert error.param == field
    assert error.message.startswith(f'"{field}": ')


def test_what_is_wrong_with_a_field_is_said_in_words() -> None:
    assert refused(body(seed="lucky")).message == '"seed": input should be a valid integer'


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n"])
def test_one_is_enough(name: str) -> None:
    assert settings(**{name: 1}) == {name: 1}


def test_messages_reach_the_models_as_they_were_sent() -> None:
    messages = [
        {"role": "system", "content": "Be brief.", "name": "house", "of_tomorrow": {"x": 1}},
        {"role": "user", "content": [{"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]
    request, _ = CHAT.read(body(messages=messages))
    assert request.messages is messages


PASSED = {
    "temperature": 0,
    "top_p": 0.5,
    "presence_penalty": -1,
    "frequency_penalty": 2,
    "max_tokens": 100,
    "max_completion_tokens": 100,
    "n": 1,
    "seed": -7,
    "stop": ["\n", "END"],
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "top_logprobs": 5,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {}}},
    "reasoning_effort": "high",
    "user": "me",
    "verbosity": "low",
    "service_tier": "flex",
    "a_setting_of_tomorrow": [{"deep": None}],
}


def test_settings_reach_the_models_as_they_were_sent_also_those_that_nobody_knows() -> None:
    assert settings(**PASSED) == PASSED


def test_what_is_ours_and_what_is_the_vendors_bookkeeping_does_not_reach_the_models() -> None:
    ours = {"stream": True, "stream_options": {"include_usage": True}, "bench": {"reply": "all"}, "with": ["gpt"]}
    assert settings(**ours, store=True, metadata={"a": "b"}) == {}


def test_a_setting_that_is_null_is_one_that_was_not_sent() -> None:
    assert settings(temperature=None, tools=None, response_format=None) == {}


@pytest.mark.parametrize("name", ["tools", "functions"])
def test_an_empty_list_of_tools_is_no_tools_and_takes_what_steers_them_along(name: str) -> None:
    steering = {"tool_choice": "auto", "function_call": "auto", "parallel_tool_calls": True}
    assert settings(**{name: []}, **steering) == {}
    assert settings(**{name: [{"type": "function"}]}, **steering) == {name: [{"type": "function"}], **steering}


@pytest.mark.parametrize(
    ("sent", "stream", "usage"),
    [
        ({}, False, False),
        ({"stream": None}, False, False),
        ({"stream": False, "stream_options": {"include_usage": True}}, False, True),
        ({"stream": True}, True, False),
        ({"stream": True, "stream_options": {}}, True, False),
        ({"stream": True, "stream_options": {"include_usage": None, "include_obfuscation": False}}, True, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True, True),
    ],
)
def test_how_the_reply_should_come_is_read(sent: Json, stream: bool, usage: bool) -> None:
    _, wish = CHAT.read(body(**sent))
    assert (wish.stream, wish.include_usage) == (stream, usage)


# What a request holds


def test_parts_of_all_messages_are_seen_in_order() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
    system, assistant = {"role": "system", "content": "Be brief."}, {"role": "assistant"}
    request = ChatRequest([system, {"role": "user", "content": [image]}, assistant], {})
    assert request.parts() == [{"type": "text", "text": "Be brief."}, image]
    assert request.has_images
    assert not ChatRequest([USER], {}).has_images


def test_what_was_asked_is_the_last_users_message_with_images_as_placeholders() -> None:
    pixel = "data:image/png;base64," + "A" * 4000
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": pixel}},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png?token=secret"}},
        {"type": "file"},
    ]
    messages = [USER, {"role": "user", "content": parts}, {"role": "assistant", "content": "A cat."}]
    assert ChatRequest(messages, {}).asked() == "What is this?\n[image: image/png, 3 kB]\n[image: by URL]\n[file]"


def test_what_was_asked_is_kept_to_a_limit() -> None:
    request = ChatRequest([{"role": "user", "content": "x" * 30_000}], {})
    assert len(request.asked()) == 20_000
    assert request.asked(5) == "xxxxx"


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "Be brief."}], [{"role": "user"}]])
def test_a_request_of_no_user_asked_nothing(messages: list[Json]) -> None:
    assert ChatRequest(messages, {}).asked() == ""


@pytest.mark.parametrize("content", [None, 5, {}, []])
def test_content_that_is_no_text_is_none(content: object) -> None:
    assert as_text(content) == ""


# Writing


def test_a_whole_reply_byte_by_byte() -> None:
    assert CHAT.whole(ENVELOPE, [Alternative("# Hello\n")], USAGE, {"panel": PANEL}) == (
        b'{"id":"chatcmpl-p20260301-120005-abcdefghijklmnop","object":"chat.completion","created":1772366405,'
        b'"model":"bench/core","choices":[{"index":0,"message":{"role":"assistant","content":"# Hello\\n",'
        b'"refusal":null},"logprobs":null,"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42},'
        b'"bench":{"panel":"p20260301-120005-abcdefghijklmnop"}}'
    )


HEAD = (
    b'data: {"id":"chatcmpl-p20260301-120005-abcdefghijklmnop","object":"chat.completion.chunk","created":1772366405,'
    b'"model":"bench/core","choices":['
)
STREAM = (
    HEAD + b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n',
    HEAD + b'{"index":0,"delta":{"content":"# Hello\\n"},"logprobs":null,"finish_reason":null}]}\n\n',
    b": keep-alive\n\n",
    HEAD + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],'
    b'"bench":{"panel":"p20260301-120005-abcdefghijklmnop"}}\n\n',
)
COUNT = HEAD + b'],"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}}\n\n'
DONE = b"data: [DONE]\n\n"


def stream(envelope: Envelope) -> bytes:
    return b"".join(
        [
            (written := CHAT.stream(envelope)).begin(),
            written.text("# Hello\n"),
            written.keep_alive(),
            written.end(["stop"], USAGE, {"panel": PANEL}),
        ]
    )


def test_a_stream_byte_by_byte() -> None:
    assert stream(ENVELOPE) == b"".join(STREAM) + DONE


def test_usage_comes_in_a_chunk_of_its_own_before_the_end_when_it_was_asked_for() -> None:
    assert stream(COUNTED) == b"".join(STREAM) + COUNT + DONE


def test_without_usage_asked_for_no_chunk_has_empty_choices() -> None:
    assert b'"choices":[]' not in stream(ENVELOPE)


def test_an_error_in_a_stream_is_an_event_that_ends_it() -> None:
    error = InvalidRequest("n is 3", param="n")
    assert CHAT.stream(ENVELOPE).error(error) == (
        b'data: {"error":{"message":"n is 3","type":"invalid_request_error","param":"n","code":null}}\n\n' + DONE
    )


@given(JSON)
def test_what_is_written_is_what_any_reader_reads(value: object) -> None:
    assert not set("\u2028\u2029\u0085") & set(dumps(value).decode())
    assert orjson.loads(dumps(value)) == orjson.loads(orjson.dumps(value))

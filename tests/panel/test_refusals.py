"""What a panel cannot honour is refused before any model is asked, with words that help."""

from typing import Any

import pytest

from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.request import ChatRequest
from bench_proxy.panel.refusals import refuse

Json = dict[str, Any]
TOOL = {"type": "function", "function": {"name": "read"}}
PIXEL = "iVBORw0KGgoAAAANSUhEUg=="
USER = {"role": "user", "content": "Hello."}


def refused(*messages: Json, **settings: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        refuse(ChatRequest(messages or (USER,), settings), "all")
    assert error.value.status == 400
    return error.value


def user(*parts: Json) -> Json:
    return {"role": "user", "content": list(parts)}


def image(url: object) -> Json:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize("name", ["tools", "functions"])
def test_tools_are_refused_and_route_mode_is_named(name: str) -> None:
    error = refused(**{name: [TOOL]})
    assert error.param == name
    assert ":route" in error.message


@pytest.mark.parametrize("options", [{}, {"search_context_size": "low"}])
def test_a_search_that_only_its_vendor_runs_is_refused(options: Json) -> None:
    error = refused(web_search_options=options)
    assert error.param == "web_search_options"
    assert ":route" in error.message


CALLS = [{"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]
OF_A_TOOL_CALL = [
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}},
    {"role": "tool", "tool_call_id": "1", "content": "text"},
    {"role": "function", "name": "read", "content": "text"},
]


@pytest.mark.parametrize("message", OF_A_TOOL_CALL)
def test_a_conversation_that_holds_a_tool_call_is_refused(message: Json) -> None:
    error = refused(USER, message)
    assert "tool call" in error.message
    assert ":route" in error.message


@pytest.mark.parametrize("n", [2, 128])
def test_several_choices_are_refused(n: int) -> None:
    error = refused(n=n)
    assert error.param == "n"
    assert str(n) in error.message


def test_in_mode_choices_the_seats_are_the_choices() -> None:
    refuse(ChatRequest((USER,), {"n": 2}), "choices")


@pytest.mark.parametrize(
    "settings", [{"modalities": ["text", "audio"]}, {"audio": {"voice": "alloy", "format": "mp3"}}]
)
def test_an_answer_in_audio_is_refused(settings: Json) -> None:
    assert "audio" in refused(**settings).message


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}},
        {"type": "video_url", "video_url": {"url": "https://example.org/film.mp4"}},
        {"type": "image_file", "image_file": {"file_id": "file-1"}},
        {"type": "document"},
    ],
)
def test_a_part_that_is_neither_text_nor_an_image_is_refused_by_its_type(part: Json) -> None:
    assert f'"{part["type"]}"' in refused(user({"type": "text", "text": "Look."}, part)).message


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/cat.png",
        "//example.org/cat.png",
        "cat.png",
        "",
        "data:application/pdf;base64,JVBERi0=",
        "data:image/png,raw",
        f"data:text/html;base64,{PIXEL}",
        None,
        5,
        {"nested": "https://example.org"},
    ],
)
def test_an_image_that_is_not_by_http_or_inline_base64_is_refused(url: object) -> None:
    assert "http(s)" in refused(user(image(url))).message


@pytest.mark.parametrize("data", ["", "!!!!", "a b c", "data:image/png;base64,AAAA", "AAAA;base64,AAAA", PIXEL + "é"])
def test_an_image_whose_base64_is_none_is_refused(data: str) -> None:
    assert "base64" in refused(user(image(f"data:image/png;base64,{data}"))).message


def test_an_image_without_a_place_is_refused() -> None:
    refused(user({"type": "image_url"}))


def test_a_refused_image_is_not_repeated_whole() -> None:
    url = "data:application/octet-stream;base64," + PIXEL * 1000
    assert PIXEL not in refused(user(image(url))).message


TAKEN = [
    "https://example.org/cat.png?size=1",
    "HTTP://example.org/cat.png",
    f"data:image/png;base64,{PIXEL}",
    f"DATA:image/JPEG;base64,{PIXEL}",
    f"data:image/svg+xml;base64,{PIXEL}",
]


@pytest.mark.parametrize("url", TAKEN)
def test_an_image_by_http_or_inline_base64_is_taken(url: str) -> None:
    refuse(ChatRequest([user({"type": "text", "text": "Look."}, image(url))], {}))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tools": [], "functions": []},
        {"n": 1},
        {"n": None},
        {"modalities": ["text"]},
        {"temperature": 0, "top_p": 1, "seed": 7, "stop": ["\n"], "user": "me", "logit_bias": {"1": 5}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        {"a_setting_of_tomorrow": {"n": 3}},
    ],
)
def test_what_harms_nobody_is_taken(settings: Json) -> None:
    refuse(ChatRequest([USER], settings))


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "assistant", "content": "Yes.", "tool_calls": [], "function_call": None},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": ""},
    ],
)
def test_a_conversation_of_text_is_taken_whole(message: Json) -> None:
    refuse(ChatRequest([message, USER], {}))

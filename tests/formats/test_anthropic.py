"""Anthropic Messages: what a body becomes in chat, and byte by byte what goes back."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from anthropic._streaming import ServerSentEvent, SSEDecoder
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.errors import (
    BenchError,
    BodyTooLarge,
    ContextOverflow,
    Denied,
    InvalidRequest,
    NobodyCanSit,
    NotFound,
    Overloaded,
    PanelFailed,
    RequestTimeout,
    UnknownModel,
    WrongContentType,
)
from bench_proxy.formats.anthropic.format import Conversation, MessagesFormat, count, request_id
from bench_proxy.formats.base import Alternative, Envelope, Usage
from bench_proxy.formats.places import place
from bench_proxy.panel.refusals import refuse
from bench_proxy.size import IMAGE_TOKENS, size
from tests.anything import JSON, TEXT
from tests.claude_code import FIRST_REQUEST

Json = dict[str, Any]

MESSAGES = MessagesFormat(new_id=lambda: "req_1")
COUNTING = MessagesFormat(Conversation)
PANEL = "p20260301-120005-abcdefghijklmnop"
ENVELOPE = Envelope(PANEL, "bench/core", 1_772_366_405)
USAGE = Usage(30, 12)
USER = {"role": "user", "content": "Hello."}
PIXEL = "iVBORw0KGgo="
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
PNG_IN_CHAT = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
UPLOADED = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
PDF: Json = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
PDF_IN_CHAT: Json = {
    "type": "file",
    "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "document.pdf"},
}
NOTES = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Buy milk."}}
SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}
TOOL = {"name": "read", "description": "Read a file.", "input_schema": SCHEMA}
TOOL_IN_CHAT = {
    "type": "function",
    "function": {"name": "read", "description": "Read a file.", "parameters": SCHEMA},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def body(**more: Any) -> Json:
    return {"model": "bench/core", "max_tokens": 100, "messages": [USER], **more}


def asking(*blocks: Json, role: str = "user") -> Json:
    return body(messages=[{"role": role, "content": list(blocks)}])


def read(document: Json) -> list[Json]:
    """The messages in chat."""
    return [dict(message) for message in MESSAGES.read(document)[0].messages]


def settings(**more: Any) -> Json:
    """The settings in chat, but for the one that every request has."""
    read = dict(MESSAGES.read(body(**more))[0].settings)
    assert read.pop("max_tokens") == 100
    return read


def refused(document: Json, format: MessagesFormat = MESSAGES) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        format.read(document)
    assert error.value.status == 400
    return error.value


def refused_by_a_panel(document: Json) -> InvalidRequest:
    request, _ = MESSAGES.read(document)
    with pytest.raises(InvalidRequest) as error:
        refuse(request, "all")
    return error.value


# What is refused


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"model": "bench/core", "max_tokens": 1}, "messages"),
        ({"model": "bench/core", "messages": [USER]}, "max_tokens"),
        (body(messages=None), "messages"),
        (body(max_tokens=None), "max_tokens"),
        (body(messages=[{"content": "Hello."}]), "messages.0.role"),
        (body(messages=[USER, {"role": "assistant"}]), "messages.1.content"),
        (asking({"text": "Hello."}), "messages.0.content.0.type"),
        (asking({"type": "text"}), "messages.0.content.0.text"),
        (asking({"type": "image"}), "messages.0.content.0.source"),
        (asking({"type": "image", "source": {}}), "messages.0.content.0.source.type"),
        (
            asking({"type": "image", "source": {"type": "base64", "data": PIXEL}}),
            "messages.0.content.0.source.media_type",
        ),
        (
            asking({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}),
            "messages.0.content.0.source.data",
        ),
        (asking({"type": "image", "source": {"type": "url"}}), "messages.0.content.0.source.url"),
        (asking({"type": "document"}), "messages.0.content.0.source"),
        (asking({"type": "tool_use", "name": "x", "input": {}}, role="assistant"), "messages.0.content.0.id"),
        (asking({"type": "tool_use", "id": "x", "input": {}}, role="assistant"), "messages.0.content.0.name"),
        (asking({"type": "tool_use", "id": "x", "name": "x"}, role="assistant"), "messages.0.content.0.input"),
        (asking({"type": "tool_result"}), "messages.0.content.0.tool_use_id"),
        (
            asking({"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text"}]}),
            "messages.0.content.0.content.0.text",
        ),
        (
            asking({"type": "tool_result", "tool_use_id": "x", "content": [{"type": "tool_reference"}]}),
            "messages.0.content.0.content.0.tool_name",
        ),
        (body(tools=[{}]), "tools.0.name"),
        (body(tools=[TOOL, {"type": "custom"}]), "tools.1.name"),
        (body(tools=[TOOL], tool_choice={}), "tool_choice.type"),
        (body(tools=[TOOL], tool_choice={"type": "tool"}), "tool_choice.name"),
        (body(thinking={}), "thinking.type"),
        (body(output_config={"format": {"type": "json_schema"}}), "output_config.format.schema"),
        (body(output_format={"schema": SCHEMA}), "output_format.type"),
        (body(mcp_servers=[{}]), "mcp_servers.0.name"),
    ],
)
def test_a_field_that_is_missing_is_named_by_its_path(document: Json, field: str) -> None:
    error = refused(document)
    assert error.param == field
    assert error.message == f'"{field}" is required'


def wrong_block(**block: Any) -> Json:
    return {"messages": [{"role": "assistant", "content": [block]}]}


WRONG: list[tuple[Json, str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "Hello."}, "messages"),
    ({"messages": {"role": "user"}}, "messages"),
    ({"messages": ["Hello."]}, "messages.0"),
    ({"messages": [USER, {"role": 5, "content": "x"}]}, "messages.1.role"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": ["Hello."]}]}, "messages.0.content.0"),
    (wrong_block(type=5), "messages.0.content.0.type"),
    (wrong_block(type=["text"]), "messages.0.content.0.type"),
    (wrong_block(type="text", text=5), "messages.0.content.0.text"),
    (wrong_block(type="text", text=None), "messages.0.content.0.text"),
    (wrong_block(type="image", source="x"), "messages.0.content.0.source"),
    (wrong_block(type="image", source={"type": 5}), "messages.0.content.0.source.type"),
    (
        wrong_block(type="image", source={"type": "base64", "media_type": 5, "data": ""}),
        "messages.0.content.0.source.media_type",
    ),
    (wrong_block(type="image", source={"type": "url", "url": ["x"]}), "messages.0.content.0.source.url"),
    (wrong_block(type="document", source="x"), "messages.0.content.0.source"),
    (wrong_block(type="document", source={}, title=5), "messages.0.content.0.title"),
    (wrong_block(type="document", source={}, citations=True), "messages.0.content.0.citations"),
    (wrong_block(type="tool_use", id=5, name="x", input={}), "messages.0.content.0.id"),
    (wrong_block(type="tool_use", id="x", name=5, input={}), "messages.0.content.0.name"),
    (wrong_block(type="tool_use", id="x", name="x", input="{}"), "messages.0.content.0.input"),
    (wrong_block(type="tool_result", tool_use_id=5), "messages.0.content.0.tool_use_id"),
    (wrong_block(type="tool_result", tool_use_id="x", content=5), "messages.0.content.0.content"),
    (wrong_block(type="tool_result", tool_use_id="x", content=["x"]), "messages.0.content.0.content.0"),
    (wrong_block(type="tool_result", tool_use_id="x", is_error="yes"), "messages.0.content.0.is_error"),
    ({"max_tokens": "100"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"system": 5}, "system"),
    ({"system": {"type": "text", "text": "x"}}, "system"),
    ({"system": ["x"]}, "system.0"),
    ({"system": [{"type": "text", "text": 5}]}, "system.0.text"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"top_p": []}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"stop_sequences": "END"}, "stop_sequences"),
    ({"stop_sequences": ["a", 5]}, "stop_sequences.1"),
    ({"thinking": True}, "thinking"),
    ({"thinking": {"type": 5}}, "thinking.type"),
    ({"thinking": {"type": "enabled", "budget_tokens": "10"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "adaptive", "display": True}}, "thinking.display"),
    ({"output_config": "high"}, "output_config"),
    ({"output_config": {"effort": 3}}, "output_config.effort"),
    ({"output_config": {"format": "json"}}, "output_config.format"),
    ({"output_config": {"format": {"type": "yaml", "schema": {}}}}, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema", "schema": []}}}, "output_config.format.schema"),
    ({"output_format": "json"}, "output_format"),
    ({"tools": TOOL}, "tools"),
    ({"tools": ["read"]}, "tools.0"),
    ({"tools": [{"type": 5, "name": "read"}]}, "tools.0.type"),
    ({"tools": [{"name": 5}]}, "tools.0.name"),
    ({"tools": [{"name": "read", "description": []}]}, "tools.0.description"),
    ({"tools": [{"name": "read", "input_schema": "object"}]}, "tools.0.input_schema"),
    ({"tools": [{"name": "read", "strict": "yes"}]}, "tools.0.strict"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "tool", "name": 5}}, "tool_choice.name"),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "tool_choice.disable_parallel_tool_use"),
    ({"mcp_servers": {}}, "mcp_servers"),
    ({"mcp_servers": ["x"]}, "mcp_servers.0"),
    ({"thread": "x"}, "thread"),
    ({"compaction": "x"}, "compaction"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG)
def test_a_value_of_the_wrong_type_is_refused_by_its_path(wrong: Json, field: str) -> None:
    error = refused(body(**wrong))
    assert error.param == field
    assert error.message.startswith(f'"{field}": ')


def test_what_is_wrong_with_a_field_is_said_in_words() -> None:
    assert refused(body(max_tokens="many")).message == '"max_tokens": input should be a valid integer'
    assert refused(body(thinking=5)).message == '"thinking": input should be an object'
    assert refused(asking({"type": "tool_use", "id": "x", "name": "x", "input": 5})).message.endswith("an object")


def test_a_conversation_that_only_anthropic_has_is_not_found_in_the_words_at_which_its_sdk_sends_all_of_it() -> None:
    with pytest.raises(NotFound) as raised:
        MESSAGES.read(body(thread={"type": "continue", "previous_message_id": "msg_1"}))
    error = raised.value
    assert (error.status, error.param) == (404, "thread.previous_message_id")
    assert "send all of its messages" in error.message
    told = json.loads(MESSAGES.error(error))["error"]
    assert (told["type"], told["details"]) == ("not_found_error", {"error_code": "thread_not_found"})
    assert settings(thread={"type": "create"}) == {}


def test_a_block_that_only_anthropic_writes_is_refused_and_its_request_can_be_counted() -> None:
    assert refused(body(compaction={"type": "auto"})).param == "compaction"
    assert COUNTING.read(body(compaction={"type": "auto"}))[0].messages


# Messages


def test_text_reaches_the_models_as_it_was_sent() -> None:
    messages = [USER, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": ""}]
    assert read(body(messages=messages)) == messages


@pytest.mark.parametrize(
    ("system", "content"),
    [
        ("Be brief.", "Be brief."),
        ([text("Be brief.")], "Be brief."),
        ([text("Be brief."), text(" ")], [text("Be brief."), text(" ")]),
        ([PDF], [PDF_IN_CHAT]),
    ],
)
def test_the_system_prompt_is_the_first_message(system: Any, content: Any) -> None:
    assert read(body(system=system)) == [{"role": "system", "content": content}, USER]


@pytest.mark.parametrize("system", [None, "", [], [text("")]])
def test_an_empty_system_prompt_is_none(system: Any) -> None:
    assert read(body(system=system)) == [USER]


def test_a_system_message_within_the_conversation_stays_where_it_is() -> None:
    reminder = {"role": "system", "content": [text("Be brief.", cache_control={"type": "ephemeral"})]}
    expected = [USER, {"role": "system", "content": "Be brief."}, USER]
    assert read(body(messages=[USER, reminder, USER])) == expected


def test_one_block_of_text_is_a_string_and_several_stay_apart() -> None:
    assert read(asking(text("Hello."))) == [USER]
    assert read(asking(text("a"), text("b"))) == [{"role": "user", "content": [text("a"), text("b")]}]
    assert read(asking()) == [{"role": "user", "content": ""}]


def test_marks_for_anthropics_cache_and_its_citations_are_left_out() -> None:
    marked = text("a", cache_control={"type": "ephemeral", "ttl": "1h"}, citations=[{"type": "char_location"}])
    image = {**PNG, "cache_control": {"type": "ephemeral"}}
    assert read(asking(marked, image)) == [{"role": "user", "content": [text("a"), PNG_IN_CHAT]}]


def test_images_are_urls() -> None:
    address = {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}
    by_url = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
    request, _ = MESSAGES.read(asking(PNG, address, text("What?")))
    assert list(request.messages) == [{"role": "user", "content": [PNG_IN_CHAT, by_url, text("What?")]}]
    assert request.has_images
    refuse(request, "all")


def test_a_document_of_plain_text_is_text() -> None:
    assert read(asking(NOTES)) == [{"role": "user", "content": "Buy milk."}]
    named = {**NOTES, "title": "List", "context": "Of today.", "citations": {"enabled": False}}
    assert read(asking(named)) == [{"role": "user", "content": [text("List"), text("Of today."), text("Buy milk.")]}]


@pytest.mark.parametrize(
    ("block", "named"),
    [
        (PDF, "file"),
        ({**PDF, "citations": {"enabled": True}}, "document"),
        ({"type": "document", "source": {**PDF["source"], "media_type": "image/png"}}, "document"),
        ({"type": "document", "source": {**PDF["source"], "data": None}}, "document"),
        ({**NOTES, "citations": {"enabled": True}}, "document"),
        ({"type": "document", "source": {"type": "text", "data": 5}}, "document"),
        ({"type": "document", "source": {"type": "file", "file_id": "file_1"}}, "document"),
        (UPLOADED, "image by file"),
        ({"type": "search_result", "source": "https://example.org", "title": "x", "content": []}, "search_result"),
        ({"type": "container_upload", "file_id": "file_1"}, "container_upload"),
        ({"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}, "server_tool_use"),
        ({"type": "web_search_tool_result", "tool_use_id": "x", "content": {"type": "e"}}, "web_search_tool_result"),
        ({"type": "compaction", "content": "So far."}, "compaction"),
        ({"type": "of_tomorrow", "parts": 1, "text": "x"}, "of_tomorrow"),
    ],
)
def test_what_a_chat_model_cannot_take_is_refused_by_its_type(block: Json, named: str) -> None:
    assert f'a content part of type "{named}" is not taken' in refused_by_a_panel(asking(text("x"), block)).message


def test_a_pdf_is_a_file_under_its_title_and_its_context_is_text() -> None:
    named = {**PDF, "title": "Bill", "context": "Of May.", "citations": {"enabled": False}}
    file = {"type": "file", "file": {**PDF_IN_CHAT["file"], "filename": "Bill"}}
    assert read(asking(PDF)) == [{"role": "user", "content": [PDF_IN_CHAT]}]
    assert read(asking(named)) == [{"role": "user", "content": [text("Of May."), file]}]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [PDF]}
    assert read(asking(result)) == [{"role": "tool", "tool_call_id": "toolu_1", "content": [PDF_IN_CHAT]}]


def test_an_uploaded_image_counts_as_one() -> None:
    request, _ = COUNTING.read(asking(UPLOADED))
    assert size(request.messages, request.settings).pictures == IMAGE_TOKENS


def test_thinking_is_left_out_since_no_other_model_may_see_it() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "secret"}
    sealed = {"type": "redacted_thinking", "data": "secret"}
    answered = {"role": "assistant", "content": [thought, sealed, text("Hi.")]}
    silent = {"role": "assistant", "content": [sealed]}
    assert read(body(messages=[USER, answered, USER])) == [USER, {"role": "assistant", "content": "Hi."}, USER]
    assert read(body(messages=[USER, silent, USER])) == [USER, USER]
    assert "nothing but thinking" in refused(body(messages=[silent], system="Be brief.")).message


def test_calls_and_results_of_tools_are_the_same_in_chat() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "ä.txt", "deep": [None, 1.5]}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Text.", "is_error": False}
    seen = {"type": "tool_result", "tool_use_id": "toolu_2", "content": [text("A picture."), PNG]}
    empty = {"type": "tool_result", "tool_use_id": "toolu_3"}
    single = {"type": "tool_result", "tool_use_id": "toolu_4", "content": [text("Text.")]}
    messages = [
        {"role": "assistant", "content": [text("I look."), call, {**call, "id": "toolu_2"}]},
        {"role": "user", "content": [result, text("Go on."), seen, empty, single]},
        {"role": "assistant", "content": [call]},
    ]
    arguments = '{"path":"ä.txt","deep":[null,1.5]}'
    calls = [
        {"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}}
        for id in ("toolu_1", "toolu_2")
    ]
    document = body(messages=messages)
    assert read(document) == [
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "Text."},
        {"role": "tool", "tool_call_id": "toolu_2", "content": [text("A picture."), PNG_IN_CHAT]},
        {"role": "tool", "tool_call_id": "toolu_3", "content": ""},
        {"role": "tool", "tool_call_id": "toolu_4", "content": "Text."},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": None, "tool_calls": calls[:1]},
    ]
    assert ":route" in refused_by_a_panel(document).message


FAILED = "The tool call failed."


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, FAILED),
        ("", FAILED),
        ([], FAILED),
        ("No such file.", f"{FAILED}\nNo such file."),
        ([text("No such file.")], f"{FAILED}\nNo such file."),
        ([text("a"), text("b")], [text(FAILED), text("a"), text("b")]),
        ([PNG], [text(FAILED), PNG_IN_CHAT]),
    ],
)
def test_a_model_is_told_that_a_tool_failed(content: Any, told: Any) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, "is_error": True}
    assert read(asking(result)) == [{"role": "tool", "tool_call_id": "toolu_1", "content": told}]


@pytest.mark.parametrize("blank", ["", " ", "\n\n", "\u00a0"])
def test_blank_text_beside_a_call_or_a_result_is_left_out(blank: str) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Noon."}
    called = {"role": "assistant", "content": [text(blank), call]}
    spoken = {"role": "assistant", "content": [text(blank), text("I look."), call]}
    answered = {"role": "user", "content": [result, text(blank)]}
    messages = read(body(messages=[called, answered, spoken, answered]))
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "tool"]
    assert [message["content"] for message in messages] == [None, "Noon.", "I look.", "Noon."]


def test_tools_that_a_search_has_found_are_named_in_its_result() -> None:
    found = [{"type": "tool_reference", "tool_name": name} for name in ("Glob", "Grep")]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": found}
    told = [text("Found the tool Glob."), text("Found the tool Grep.")]
    assert read(asking(result)) == [{"role": "tool", "tool_call_id": "toolu_1", "content": told}]


def test_what_anthropics_own_tools_did_before_stays_what_it_is() -> None:
    used = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "cats"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    answered = {"role": "assistant", "content": [used, found, text("Cats.")]}
    assert read(body(messages=[USER, answered, USER])) == [USER, answered, USER]


# Settings


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"temperature": 0, "top_p": 0.5, "top_k": 5}, {"temperature": 0, "top_p": 0.5, "top_k": 5}),
        ({"stop_sequences": ["\n", "END"]}, {"stop": ["\n", "END"]}),
        ({"stop_sequences": []}, {}),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9_999}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 5_000}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1_024}}, {"reasoning_effort": "minimal"}),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, {"reasoning_effort": "minimal"}),
        ({"thinking": {"type": "enabled"}}, {}),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, {}),
        ({"thinking": {"type": "disabled"}}, {}),
        ({"thinking": {"type": "of_tomorrow", "budget_tokens": 5_000}}, {}),
        ({"output_config": {"effort": "xhigh", "task_budget": {"total": 5}}}, {"reasoning_effort": "high"}),
        (
            {"output_config": {"effort": "low"}, "thinking": {"type": "enabled", "budget_tokens": 10_000}},
            {"reasoning_effort": "low"},
        ),
        ({"output_config": {}}, {}),
    ],
)
def test_settings_have_their_names_in_chat(sent: Json, expected: Json) -> None:
    assert settings(**sent) == expected


def response_format(schema: Json, strict: bool) -> Json:
    named = {"name": "answer", "schema": schema, "strict": strict}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


@pytest.mark.parametrize("way", ["output_config", "output_format"])
def test_structured_output_is_asked_for_in_both_ways(way: str) -> None:
    wanted = {"type": "json_schema", "schema": SCHEMA}
    assert settings(**{way: {"format": wanted} if way == "output_config" else wanted}) == response_format(SCHEMA, True)


def test_the_newer_way_to_ask_for_structured_output_wins() -> None:
    older = {"output_format": {"type": "json_schema", "schema": {}}}
    newer = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    assert settings(**older, **newer) == response_format(SCHEMA, True)


OPEN = {**SCHEMA, "additionalProperties": True}
OPTIONAL = {**SCHEMA, "required": []}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({}, False),
        ({"type": "array", "items": SCHEMA}, False),
        ({**SCHEMA, "properties": {"title": SCHEMA}}, True),
        ({**SCHEMA, "properties": {"title": {"anyOf": [SCHEMA, {"type": "null"}]}}}, True),
        (OPEN, False),
        (OPTIONAL, False),
        ({"type": "object", "properties": {"title": {}}, "additionalProperties": False}, False),
        ({**SCHEMA, "properties": {"title": OPEN}}, False),
        ({**SCHEMA, "properties": {"title": {"anyOf": [{"type": "null"}, OPTIONAL]}}}, False),
        ({"type": "array", "items": OPTIONAL}, False),
        ({"$defs": {"item": OPEN}, "$ref": "#/$defs/item"}, False),
    ],
)
def test_a_schema_is_sent_as_it_is_and_strict_where_openai_can_hold_a_model_to_it(schema: Json, strict: bool) -> None:
    sent = settings(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert sent == response_format(schema, strict)


def test_tools_of_the_caller_are_functions_and_those_of_anthropic_stay_what_they_are() -> None:
    only_anthropics = {"cache_control": {"type": "ephemeral"}, "defer_loading": True, "input_examples": [{}]}
    tools = [{**TOOL, **only_anthropics}, {**TOOL, "type": "custom", "strict": True}, {"name": "now"}, SEARCH]
    strict = {**TOOL_IN_CHAT["function"], "strict": True}
    now = {"name": "now", "parameters": {"type": "object", "properties": {}}}
    assert settings(tools=tools) == {
        "tools": [
            TOOL_IN_CHAT,
            {"type": "function", "function": strict},
            {"type": "function", "function": now},
            SEARCH,
        ]
    }


def test_the_tools_of_a_remote_server_are_named_without_its_address_and_its_token() -> None:
    server = {"type": "url", "name": "files", "url": "https://example.org/mcp", "authorization_token": "secret"}
    assert settings(mcp_servers=[server]) == {"tools": [{"type": "mcp_server", "name": "files"}]}
    assert refused_by_a_panel(body(mcp_servers=[server])).param == "tools"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "read"}, {"tool_choice": {"type": "function", "function": {"name": "read"}}}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
    ],
)
def test_the_choice_of_a_tool_is_the_same_in_chat(choice: Json, expected: Json) -> None:
    assert settings(tools=[TOOL], tool_choice=choice) == {"tools": [TOOL_IN_CHAT], **expected}


def test_an_empty_list_of_tools_is_no_tools_and_takes_what_steers_them_along() -> None:
    steering = {"type": "any", "disable_parallel_tool_use": True}
    assert settings(tools=[], mcp_servers=[], tool_choice=steering) == {}
    assert settings(tool_choice=steering) == {}


def test_what_is_the_vendors_bookkeeping_and_what_nobody_knows_does_not_reach_the_models() -> None:
    ours = {"stream": True, "bench": {"reply": "all"}, "with": ["gpt"]}
    vendors = {
        "metadata": {"user_id": "me"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "service_tier": "auto",
        "container": "container_1",
        "cache_control": {"type": "ephemeral"},
        "inference_geo": "us",
        "speed": "fast",
        "betas": ["context-management-2025-06-27"],
        "a_field_of_tomorrow": [{"deep": None}],
    }
    assert settings(**ours, **vendors) == {}


def test_a_field_that_is_null_is_one_that_was_not_sent() -> None:
    optional = (
        "system", "stream", "temperature", "top_p", "top_k", "stop_sequences", "thinking", "output_config",
        "output_format", "tools", "mcp_servers", "tool_choice", "thread", "compaction", "metadata",
    )  # fmt: skip
    assert settings(**dict.fromkeys(optional)) == {}
    assert settings(output_config={"effort": None, "format": None}) == {}
    null = {"name": "now", "type": None, "description": None, "input_schema": None, "strict": None}
    assert settings(tools=[null], tool_choice=None) == settings(tools=[{"name": "now"}])


@pytest.mark.parametrize(("sent", "stream"), [({}, False), ({"stream": False}, False), ({"stream": True}, True)])
def test_how_the_reply_should_come_is_read(sent: Json, stream: bool) -> None:
    _, wish = MESSAGES.read(body(**sent))
    assert wish.stream is stream
    assert wish.alternatives


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "of_tomorrow"}, False),
        ({"type": "adaptive", "display": "omitted"}, False),
        ({"type": "enabled", "budget_tokens": 31_999, "display": "omitted"}, False),
        ({"type": "enabled", "budget_tokens": 31_999}, True),
        ({"type": "enabled", "budget_tokens": 31_999, "display": "summarized"}, True),
        ({"type": "adaptive"}, True),
        ({"type": "adaptive", "display": None}, True),
        ({"type": "adaptive", "display": "updates"}, True),
    ],
)
def test_thoughts_are_wanted_where_thinking_is_on_and_shown(thinking: Any, wanted: bool) -> None:
    assert MESSAGES.read(body(thinking=thinking))[1].thoughts is wanted


TYPES = st.sampled_from(("text", "image", "document", "thinking", "tool_use", "tool_result", "base64", "url", "file"))
INSIDE = ("type", "text", "source", "data", "media_type", "url", "id", "name", "input", "tool_use_id", "content")
NEARLY = st.recursive(
    TYPES | JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INSIDE), inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(NEARLY, max_size=4), st.sampled_from(("user", "assistant", "system")))
def test_any_content_is_read_or_refused_with_words(blocks: list[Any], role: str) -> None:
    try:
        request, _ = MESSAGES.read(body(messages=[{"role": role, "content": blocks}], system=blocks, tools=blocks))
    except InvalidRequest as error:
        assert error.param  # noqa: PT017  it may be refused and need not be
    else:
        assert request.messages
        assert all(value is not None for value in request.settings.values())
        size(request.messages, request.settings)


# What Claude Code sends first


def test_the_first_request_of_claude_code_is_read_as_it_is_meant() -> None:
    request, wish = MESSAGES.read(FIRST_REQUEST)
    system = [text(block["text"]) for block in FIRST_REQUEST["system"]]
    assert list(request.messages) == [
        {"role": "system", "content": system},
        {"role": "user", "content": FIRST_REQUEST["messages"][0]["content"]},
        {"role": "system", "content": "Tools are found by search."},
    ]
    functions = [tool["function"] for tool in request.settings["tools"]]
    assert [function["parameters"] for function in functions] == [t["input_schema"] for t in FIRST_REQUEST["tools"]]
    assert all(set(function) == {"name", "description", "parameters"} for function in functions)
    assert dict(request.settings) == {
        "max_tokens": 32_000,
        "reasoning_effort": "high",
        "tools": request.settings["tools"],
    }
    assert wish.stream
    assert not wish.thoughts


def test_a_panel_refuses_the_tools_of_claude_code_by_name() -> None:
    error = refused_by_a_panel(FIRST_REQUEST)
    assert error.param == "tools"
    assert "tools cannot be used on a panel" in error.message


def test_the_tokens_of_claude_codes_request_are_counted_with_its_tools() -> None:
    def tokens(document: Json) -> int:
        request, _ = COUNTING.read(document)
        return size(request.messages, request.settings).tokens

    without = {k: v for k, v in FIRST_REQUEST.items() if k not in {"tools", "max_tokens"}}
    assert tokens(FIRST_REQUEST) > tokens(without) + 100
    assert tokens(without) > 30


# Writing


def test_a_whole_reply_byte_by_byte() -> None:
    assert MESSAGES.whole(ENVELOPE, [Alternative("# Hello\n")], USAGE, {"panel": PANEL}) == (
        b'{"id":"msg_p20260301-120005-abcdefghijklmnop","type":"message","role":"assistant","model":"bench/core",'
        b'"content":[{"type":"text","text":"# Hello\\n"}],"stop_reason":"end_turn","stop_sequence":null,'
        b'"usage":{"input_tokens":30,"output_tokens":12},"bench":{"panel":"p20260301-120005-abcdefghijklmnop"}}'
    )


def test_each_alternative_is_a_block_of_text() -> None:
    whole = json.loads(MESSAGES.whole(ENVELOPE, [Alternative("One."), Alternative("Two.", "length")], USAGE, {}))
    assert whole["content"] == [text("One."), text("Two.")]
    assert whole["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["stop"], "end_turn"),
        (["length"], "max_tokens"),
        (["content_filter"], "refusal"),
        (["tool_calls"], "tool_use"),
        (["function_call"], "tool_use"),
        (["of_tomorrow"], "end_turn"),
        (["length", "length"], "max_tokens"),
        (["length", "stop"], "end_turn"),
        (["content_filter", "length"], "end_turn"),
    ],
)
def test_finish_reasons_have_anthropics_words_and_several_answers_share_one_or_have_none(
    reasons: list[str], expected: str
) -> None:
    whole = MESSAGES.whole(ENVELOPE, [Alternative("", reason) for reason in reasons], USAGE, {})
    assert json.loads(whole)["stop_reason"] == expected
    written = MESSAGES.stream(ENVELOPE)
    written.begin()
    (delta,) = [e for e in sdk_events(written.end(reasons, USAGE, {})) if e["type"] == "message_delta"]
    assert delta["delta"] == {"stop_reason": expected, "stop_sequence": None}


START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_p20260301-120005-abcdefghijklmnop",'
    b'"type":"message","role":"assistant","model":"bench/core","content":[],"stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":0,"output_tokens":0}}}\n\n'
)
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
END = (
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
    b'"usage":{"input_tokens":30,"output_tokens":12},"bench":{"panel":"p20260301-120005-abcdefghijklmnop"}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


def opened(index: int) -> bytes:
    return (
        b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,'
        b'"content_block":{"type":"text","text":""}}\n\n' % index
    )


def piece(words: bytes, index: int) -> bytes:
    return (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
        b'"delta":{"type":"text_delta","text":"%s"}}\n\n' % (index, words)
    )


def closed(index: int) -> bytes:
    return b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % index


def one() -> bytes:
    written = MESSAGES.stream(ENVELOPE)
    pieces = [written.begin(), written.text("# Hello\n"), written.keep_alive(), written.text("Ü 👩‍👧\u2028")]
    return b"".join([*pieces, written.end(["stop"], USAGE, {"panel": PANEL})])


def several() -> bytes:
    """Three alternatives that speak at once; the last one begins late, as an explorer that replaces another does."""
    written = MESSAGES.stream(ENVELOPE)
    pieces = [
        written.begin(0),
        written.begin(1),
        written.text("b", 1),
        written.text("a", 0),
        written.text("B", 1),
        written.done(1),
        written.keep_alive(),
        written.text("A", 0),
        written.begin(2),
        written.text("c", 2),
        written.done(0),
        written.text("C", 2),
        written.done(2),
    ]
    return b"".join([*pieces, written.end(["stop", "stop", "stop"], USAGE, {"panel": PANEL})])


def failed() -> bytes:
    written = MESSAGES.stream(ENVELOPE)
    error = PanelFailed("no seat answered", status=502, data={"panel": PANEL})
    return written.begin() + written.text("# Hello\n") + written.error(error)


def test_a_stream_byte_by_byte() -> None:
    pieces = piece(b"# Hello\\n", 0) + PING + piece("Ü 👩‍👧\\u2028".encode(), 0)
    assert one() == START + opened(0) + pieces + closed(0) + END


def test_alternatives_follow_one_another_in_blocks_of_their_own_whatever_order_they_speak_in() -> None:
    first = opened(0) + piece(b"a", 0) + PING + piece(b"A", 0) + closed(0)
    second = opened(1) + piece(b"bB", 1) + closed(1)
    third = opened(2) + piece(b"c", 2) + piece(b"C", 2) + closed(2)
    assert several() == START + first + second + third + END


def test_a_stream_of_alternatives_that_are_not_done_ends_all_of_them() -> None:
    written = MESSAGES.stream(ENVELOPE)
    begun = written.begin(0) + written.begin(1) + written.text("b", 1)
    rest = written.end(["stop", "stop"], USAGE, {"panel": PANEL})
    assert begun + rest == START + opened(0) + closed(0) + opened(1) + piece(b"b", 1) + closed(1) + END


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequest("no"), "invalid_request_error"),
        (UnknownModel("no"), "not_found_error"),
        (BodyTooLarge("no"), "request_too_large"),
        (Overloaded("no"), "rate_limit_error"),
        (NobodyCanSit("no"), "overloaded_error"),
        (Denied("no", status=401, type="auth_error"), "authentication_error"),
        (Denied("no", status=403, type="key_model_access_denied"), "permission_error"),
        (Denied("no", status=529, type="x"), "overloaded_error"),
        (PanelFailed("no", status=502), "api_error"),
        (PanelFailed("no", status=504), "api_error"),
        (PanelFailed("no", status=429), "rate_limit_error"),
        (WrongContentType("no"), "api_error"),
        (RequestTimeout("no"), "api_error"),
        (BenchError("no"), "api_error"),
    ],
)
def test_an_error_has_anthropics_type_for_its_status(error: BenchError, kind: str) -> None:
    expected = b'{"type":"error","error":{"type":"%s","message":"no"},"request_id":"req_1"}' % kind.encode()
    assert MESSAGES.error(error) == expected


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (200_000, "prompt is too long: 250000 tokens > 200000 maximum"),
        (None, "prompt is too long: 250000 tokens"),
    ],
)
def test_a_conversation_that_is_too_long_is_refused_in_anthropics_own_words(window: int | None, words: str) -> None:
    error = ContextOverflow(250_000, window)
    expected = {"type": "invalid_request_error", "message": words}
    assert json.loads(MESSAGES.error(error))["error"] == expected
    (event,) = sdk_events(MESSAGES.turn(ENVELOPE).error(error))
    assert event["error"] == expected


def test_an_error_of_a_panel_is_named_for_it() -> None:
    error = PanelFailed("no seat answered", status=502, data={"panel": PANEL})
    assert json.loads(MESSAGES.error(error))["request_id"] == f"req_{PANEL}"


def test_a_request_without_a_panel_has_an_id_that_no_other_one_has() -> None:
    ids = {request_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"req_[0-9a-f]{24}", id) for id in ids)


def test_an_error_in_a_stream_is_an_event_that_ends_it() -> None:
    assert failed() == START + opened(0) + piece(b"# Hello\\n", 0) + (
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"no seat answered"},'
        b'"request_id":"req_p20260301-120005-abcdefghijklmnop"}\n\n'
    )


def test_a_count_says_that_it_is_an_estimate() -> None:
    assert count(42) == b'{"input_tokens":42,"bench":{"estimate":true}}'


# Streams as clients read them


def decoded(parts: Sequence[bytes]) -> Iterator[ServerSentEvent]:
    return SSEDecoder().iter_bytes(iter(parts))


def sdk_events(stream: bytes) -> list[Json]:
    """The events as the SDK's own decoder reads them."""
    return [event.json() for event in decoded([stream])]


@pytest.mark.parametrize("stream", [one, several, failed])
def test_a_stream_reads_the_same_wherever_it_is_cut(stream: Callable[[], bytes]) -> None:
    written = stream()
    expected = sdk_events(written)
    assert len(expected) > 3
    for at in range(len(written)):
        cut = [event.json() for event in decoded([written[:at], written[at:]])]
        assert cut == expected, at
    assert [event.json() for event in decoded([written[i : i + 1] for i in range(len(written))])] == expected


@pytest.mark.parametrize("stream", [one, several, failed])
def test_each_event_is_named_for_its_type(stream: Callable[[], bytes]) -> None:
    for event in decoded([stream()]):
        assert event.event == event.json()["type"]


@given(st.lists(st.tuples(st.integers(0, 2), TEXT), max_size=12), st.permutations(range(3)))
def test_the_text_of_each_alternative_comes_whole_and_in_its_own_block(
    said: list[tuple[int, str]], order: list[int]
) -> None:
    written = MESSAGES.stream(ENVELOPE)
    pieces = [written.begin(index) for index in range(3)]
    pieces += [written.text(words, index) for index, words in said]
    pieces += [written.done(index) for index in order]
    events = sdk_events(b"".join([*pieces, written.end(["stop"] * 3, USAGE, {})]))
    for index in range(3):
        mine = [event for event in events if event.get("index") == index]
        assert [mine[0]["type"], mine[-1]["type"]] == ["content_block_start", "content_block_stop"]
        heard = "".join(event["delta"]["text"] for event in mine[1:-1])
        assert heard == "".join(words for speaker, words in said if speaker == index)
    indices = [event["index"] for event in events if "index" in event]
    assert indices == sorted(indices)


# Where it is spoken


def test_it_is_spoken_where_anthropics_clients_ask() -> None:
    messages, counting = place("/v1/messages"), place("/v1/messages/count_tokens")
    assert messages is not None
    assert counting is not None
    assert messages.count is None
    assert counting.count is count
    refused({"model": "bench/core", "messages": [USER]}, messages.format)
    assert counting.format.read({"model": "bench/core", "messages": [USER]})[0].settings == {}

"""OpenAI Responses: which bodies are taken, what of them reaches the models, and byte by byte what goes back."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from bench_proxy.errors import BenchError, InvalidRequest, NobodyCanSit, Overloaded, PanelFailed
from bench_proxy.formats.base import Alternative, Envelope, Usage
from bench_proxy.formats.responses.format import ResponsesFormat, ResponsesStream
from bench_proxy.panel.refusals import refuse
from tests.anything import JSON, TEXT

Json = dict[str, Any]

RESPONSES = ResponsesFormat()
PANEL = "p20260301-120005-abcdefghijklmnop"
ENVELOPE = Envelope(PANEL, "bench/core", 1_772_366_405)
USAGE = Usage(30, 12)
USER = {"role": "user", "content": "Hello."}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
CODEX = json.loads((Path(__file__).parent / "codex_first_turn.json").read_text())


def body(**more: Any) -> Json:
    return {"model": "bench/core", "input": "Hello.", **more}


def refused(document: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        RESPONSES.read(document)
    assert error.value.status == 400
    return error.value


def messages(*items: Json, **more: Any) -> list[Json]:
    return [dict(message) for message in RESPONSES.read(body(input=list(items), **more))[0].messages]


def content(*parts: Json, role: str = "user") -> Any:
    (message,) = messages({"role": role, "content": list(parts)})
    assert message["role"] == role
    return message["content"]


def settings(**more: Any) -> Json:
    return dict(RESPONSES.read(body(**more))[0].settings)


def tools(*given: Json) -> list[Json]:
    read: list[Json] = settings(tools=list(given))["tools"]
    return read


# The conversation


def test_an_input_that_is_text_is_what_the_user_says() -> None:
    request, _ = RESPONSES.read(body())
    assert request.messages == [USER]
    assert request.settings == {}


def test_instructions_stand_before_all_else() -> None:
    assert messages(USER, instructions="Be brief.") == [{"role": "system", "content": "Be brief."}, USER]
    assert messages(USER, instructions="") == [USER]


def test_easy_messages_and_items_and_outputs_are_messages() -> None:
    said = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}],
    }
    assert messages(
        {"role": "system", "content": "Be brief."},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        USER,
        said,
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Again."}], "status": None},
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        USER,
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Again."},
    ]


def test_several_texts_stay_parts_and_a_lone_one_is_plain() -> None:
    one, two = {"type": "input_text", "text": "One."}, {"type": "text", "text": "Two.", "cache_control": {}}
    assert content(one) == "One."
    assert content(one, two) == [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert content() == ""


@pytest.mark.parametrize("url", [PIXEL, "https://example.org/cat.png"])
@pytest.mark.parametrize("detail", [{}, {"detail": "low"}, {"detail": None}])
def test_an_image_is_one_with_its_detail(url: str, detail: Json) -> None:
    kept = {name: value for name, value in detail.items() if value}
    expected = [{"type": "image_url", "image_url": {"url": url, **kept}}]
    assert content({"type": "input_image", "image_url": url, "file_id": None, **detail}) == expected
    assert RESPONSES.read(body(input=[{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]))[
        0
    ].has_images


def test_a_refusal_of_the_past_is_told_as_one() -> None:
    part = {"type": "refusal", "refusal": "No."}
    assert content(part, role="assistant") == [part]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "input_image", "file_id": "file-1"}, "image_file"),
        ({"type": "input_file", "file_id": "file-1"}, "file"),
        ({"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}, "file"),
        ({"type": "input_file", "file_url": "https://example.org/a.pdf"}, "file"),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, "input_audio"),
        ({"type": "input_video", "video_url": "https://example.org/a.mp4"}, "input_video"),
        ({"type": "hologram"}, "hologram"),
    ],
)
def test_what_is_neither_text_nor_an_image_is_a_part_that_a_panel_refuses_by_name(part: Json, kind: str) -> None:
    (read,) = content(part)
    assert read["type"] == kind
    request, _ = RESPONSES.read(body(input=[{"role": "user", "content": [part]}]))
    with pytest.raises(InvalidRequest, match=f'a content part of type "{kind}" is not taken by a panel'):
        refuse(request, "all")


def test_a_file_keeps_what_was_sent_of_it() -> None:
    (read,) = content({"type": "input_file", "file_data": "data:;base64,AA", "filename": "a.pdf", "file_id": None})
    assert read == {"type": "file", "file": {"file_data": "data:;base64,AA", "filename": "a.pdf"}}


CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": '{"path": "a"}'}
CALLED = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "text of a"}
GAVE = {"role": "tool", "tool_call_id": "call_1", "content": "text of a"}


def test_calls_of_one_turn_share_a_message_with_what_was_said_beside_them() -> None:
    other = {**CALL, "call_id": "call_2"}
    calls = [CALLED, {**CALLED, "id": "call_2"}]
    gave = [GAVE, {**GAVE, "tool_call_id": "call_2"}]
    outputs = [OUTPUT, {**OUTPUT, "call_id": "call_2"}]
    said = {"role": "assistant", "content": "I look."}
    expected = [USER, {**said, "tool_calls": calls}, *gave]
    assert messages(USER, said, CALL, other, *outputs) == expected
    assert messages(USER, CALL, said, other, *outputs) == expected
    assert messages(USER, CALL, other, *outputs) == [
        USER,
        {"role": "assistant", "content": None, "tool_calls": calls},
        *gave,
    ]


def test_no_word_is_lost_where_a_turn_says_more_beside_its_calls() -> None:
    first, second = {"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}
    empty = {"role": "assistant", "content": ""}
    (turn,) = messages(first, CALL, second, empty)
    assert turn["content"] == [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert [message["content"] for message in messages(CALL, empty, second)] == ["Two."]


def test_calls_of_two_turns_are_two_messages() -> None:
    again = {**CALL, "call_id": "call_2"}
    assert [message["role"] for message in messages(CALL, OUTPUT, again)] == ["assistant", "tool", "assistant"]


def test_a_result_may_hold_text_and_images() -> None:
    parts = [{"type": "input_text", "text": "A cat."}, {"type": "input_image", "image_url": PIXEL}]
    _, gave = messages(CALL, {**OUTPUT, "output": parts})
    expected = [{"type": "text", "text": "A cat."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    assert gave == {**GAVE, "content": expected}


def test_a_custom_tools_call_keeps_its_free_text() -> None:
    patch = "*** Begin Patch\n"
    called, gave = messages(
        {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": patch},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "text of a"},
    )
    assert called["tool_calls"] == [
        {"id": "call_1", "type": "custom", "custom": {"name": "apply_patch", "input": patch}}
    ]
    assert gave == GAVE


def test_a_call_in_a_namespace_has_the_name_that_its_tool_got() -> None:
    (turn,) = messages({**CALL, "namespace": "files"})
    (tool,) = tools({"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read"}]})
    assert turn["tool_calls"][0]["function"]["name"] == tool["function"]["name"] == "files__read"


def test_reasoning_of_the_past_is_left_out() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    sealed = {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAA"}
    assert messages(USER, thought, sealed, CALL)[1:] == [{"role": "assistant", "content": None, "tool_calls": [CALLED]}]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "mcp_list_tools", "server_label": "x", "tools": []},
        {"type": "compaction", "encrypted_content": "gAAAA"},
        {"type": "of_tomorrow", "content": 5, "call_id": 5, "output": {"x": 1}},
    ],
)
def test_an_item_that_only_its_vendor_understands_is_refused_by_a_panel_by_name(item: Json) -> None:
    request, _ = RESPONSES.read(body(input=[USER, item]))
    assert request.messages[1] == {"role": "assistant", "content": [item]}
    with pytest.raises(InvalidRequest, match=f'"{item["type"]}"'):
        refuse(request, "all")


@pytest.mark.parametrize("kind", ["computer_call_output", "shell_call_output", "local_shell_call_output"])
def test_what_a_vendors_own_tool_gave_back_is_part_of_a_tool_call(kind: str) -> None:
    item = {"type": kind, "call_id": "call_1", "output": {"image_url": PIXEL}}
    request, _ = RESPONSES.read(body(input=[item]))
    assert request.messages == [{"role": "tool", "tool_call_id": "call_1", "content": [item]}]
    with pytest.raises(InvalidRequest, match="holds a tool call"):
        refuse(request, "all")


# What of a body is refused


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True}, "background"),
        ({"input": [USER, {"type": "item_reference", "id": "msg_1"}]}, "input.1"),
        ({"input": [USER, {"id": "msg_1"}]}, "input.1"),
    ],
)
def test_what_needs_something_stored_is_refused_and_told_what_to_send(more: Json, field: str) -> None:
    error = refused(body(**more))
    assert error.param == field
    assert "nothing is stored here; send the whole conversation" in error.message


def test_a_stored_conversation_is_refused_also_where_it_is_the_whole_request() -> None:
    assert refused({"model": "bench/core", "previous_response_id": "resp_1"}).param == "previous_response_id"


MISSING: list[tuple[Json, str]] = [
    ({"input": None}, "input"),
    ({"input": [{"type": "message", "role": "user"}]}, "input.0.content"),
    ({"input": [{"content": "Hello."}]}, "input.0.role"),
    ({"input": [{}]}, "input.0.role"),
    ({"input": [{"role": "user", "content": [{"text": "Hello."}]}]}, "input.0.content.0.type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input.0.content.0.text"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.image_url"),
    ({"input": [{"role": "assistant", "content": [{"type": "refusal"}]}]}, "input.0.content.0.refusal"),
    ({"input": [USER, {**CALL, "call_id": None}]}, "input.1.call_id"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input.0.arguments"),
    ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f"}]}, "input.0.input"),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input.0.output"),
    ({"tools": [{"name": "f"}]}, "tools.0.type"),
    ({"tools": [{"type": "function"}]}, "tools.0.name"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools.0.tools.0.name"),
    ({"text": {"format": {}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
]
"""`null` counts as absent."""


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("more", "field"), MISSING)
def test_a_field_that_is_missing_is_named_by_its_path(more: Json, field: str) -> None:
    error = refused(without_nulls(body(**more)))
    assert error.param == field
    assert error.message.startswith(f'"{field}" is required')


WRONG: list[tuple[Json, str]] = [
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": {"role": "user"}}, "input"),
    ({"input": ["Hello."]}, "input.0"),
    ({"input": [USER, {"role": 5, "content": "x"}]}, "input.1.role"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
    ({"input": [{"type": 5, "role": "user", "content": "x"}]}, "input.0.type"),
    ({"input": [{"role": "user", "content": 5}]}, "input.0.content"),
    ({"input": [{"role": "user", "content": {"type": "input_text"}}]}, "input.0.content"),
    ({"input": [{"role": "user", "content": ["Hello."]}]}, "input.0.content.0"),
    ({"input": [{"role": "user", "content": [{"type": 5}]}]}, "input.0.content.0.type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]}, "input.0.content.0.text"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": {"url": PIXEL}}]}]},
        "input.0.content.0.image_url",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL, "detail": 5}]}]},
        "input.0.content.0.detail",
    ),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": 5}]}]}, "input.0.content.0.file_id"),
    ({"input": [{"type": "input_text", "text": "Hello."}]}, "input.0.type"),
    ({"input": [{"type": "text", "text": "Hello."}]}, "input.0.type"),
    ({"input": [{"type": "image_url", "image_url": {"url": PIXEL}}]}, "input.0.type"),
    ({"input": [{**CALL, "arguments": {"path": "a"}}]}, "input.0.arguments"),
    ({"input": [{**CALL, "name": 5}]}, "input.0.name"),
    ({"input": [{**OUTPUT, "output": 5}]}, "input.0.output"),
    ({"input": [{**OUTPUT, "output": [5]}]}, "input.0.output.0"),
    ({"input": [{**OUTPUT, "output": [{"type": "input_text", "text": 5}]}]}, "input.0.output.0.text"),
    ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input"),
    ({"instructions": 5}, "instructions"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"background": "no"}, "background"),
    ({"max_output_tokens": "100"}, "max_output_tokens"),
    ({"max_output_tokens": 1.5}, "max_output_tokens"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": float("inf")}, "temperature"),
    ({"top_p": []}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"presence_penalty": "0"}, "presence_penalty"),
    ({"frequency_penalty": {}}, "frequency_penalty"),
    ({"seed": "lucky"}, "seed"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", 5]}, "stop.1"),
    ({"reasoning": "high"}, "reasoning"),
    ({"reasoning": {"effort": 3}}, "reasoning.effort"),
    ({"text": "json"}, "text"),
    ({"text": {"verbosity": 1}}, "text.verbosity"),
    ({"text": {"format": "json"}}, "text.format"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": 5, "schema": {}}}}, "text.format.name"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": []}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}, "strict": 1}}}, "text.format.strict"),
    ({"tools": {"type": "function"}}, "tools"),
    ({"tools": ["read"]}, "tools.0"),
    ({"tools": [{"type": 5}]}, "tools.0.type"),
    ({"tools": [{"type": "function", "name": 5}]}, "tools.0.name"),
    ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools.0.parameters"),
    ({"tools": [{"type": "custom", "name": "f", "format": "lark"}]}, "tools.0.format"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": ["f"]}]}, "tools.0.tools.0"),
    ({"tool_choice": 5}, "tool_choice"),
    ({"tools": [{"type": "mcp"}], "tool_choice": {"type": 5}}, "tool_choice.type"),
    ({"tools": [{"type": "mcp"}], "tool_choice": {"type": "function", "name": 5}}, "tool_choice.name"),
    ({"tools": [{"type": "mcp"}], "tool_choice": {"type": "allowed_tools", "tools": 5}}, "tool_choice.tools"),
    (
        {"tools": [{"type": "mcp"}], "tool_choice": {"type": "allowed_tools", "tools": [{"type": 5}]}},
        "tool_choice.tools.0.type",
    ),
    ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG)
def test_a_value_of_the_wrong_type_is_refused_by_its_path(wrong: Json, field: str) -> None:
    error = refused(body(**wrong))
    assert error.param == field
    assert error.message.startswith(f'"{field}"')
    assert "is required" not in error.message


def test_what_is_wrong_with_a_field_is_said_in_words() -> None:
    assert refused(body(max_output_tokens="x")).message == '"max_output_tokens": input should be a valid integer'


def test_one_token_is_enough() -> None:
    assert settings(max_output_tokens=1) == {"max_tokens": 1}


# The settings


def test_settings_are_told_by_the_names_of_chat_completions() -> None:
    sampling = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 40,
        "presence_penalty": -1,
        "frequency_penalty": 2,
        "seed": -7,
        "stop": ["\n", "END"],
    }
    sent = {
        **sampling,
        "max_output_tokens": 100,
        "reasoning": {"effort": "high", "summary": "auto", "generate_summary": None},
        "text": {"verbosity": "low", "format": {"type": "text"}},
    }
    assert settings(**sent) == {**sampling, "max_tokens": 100, "reasoning_effort": "high", "verbosity": "low"}


def test_a_schema_reaches_the_models_as_it_was_sent() -> None:
    schema = {"type": "object", "properties": {"a": {"default": None, "enum": [None, 1]}}}
    format = {"type": "json_schema", "name": "x", "schema": schema, "strict": True, "description": None}
    json_schema = {"name": "x", "schema": schema, "strict": True}
    assert settings(text={"format": format}) == {
        "response_format": {"type": "json_schema", "json_schema": json_schema},
    }
    assert settings(text={"format": {"type": "json_object"}}) == {"response_format": {"type": "json_object"}}


def test_the_vendors_bookkeeping_and_what_is_ours_do_not_reach_the_models() -> None:
    left_out = {
        "store": True,
        "metadata": {"a": "b"},
        "user": "me",
        "safety_identifier": "me",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "truncation": "auto",
        "service_tier": "flex",
        "client_metadata": {"a": "b"},
        "context_management": [{"type": "compaction"}],
        "max_tool_calls": 3,
        "top_logprobs": 5,
        "background": False,
        "bench": {"reply": "all"},
        "with": ["gpt"],
        "of_tomorrow": {"x": 1},
    }
    assert settings(**left_out) == {}


def test_a_setting_that_is_null_is_one_that_was_not_sent() -> None:
    names = {name for more, _ in WRONG for name in more} - {"input"}
    stored = {"previous_response_id", "conversation", "prompt"}
    nothing: list[Json] = [{"reasoning": {}}, {"text": {"format": None, "verbosity": None}}]
    for unsaid in (dict.fromkeys(names | stored), *nothing):
        request, wish = RESPONSES.read(body(**unsaid))
        assert (request.messages, request.settings, wish.stream) == ([USER], {}, False)


@pytest.mark.parametrize(
    ("sent", "stream"),
    [
        ({}, False),
        ({"stream": False}, False),
        ({"stream": True}, True),
        ({"stream": True, "stream_options": {"include_obfuscation": False}}, True),
    ],
)
def test_how_the_reply_should_come_is_read(sent: Json, stream: bool) -> None:
    _, wish = RESPONSES.read(body(**sent))
    assert (wish.stream, wish.alternatives, wish.ready) == (stream, True, None)


# Tools

PARAMETERS = {"type": "object", "properties": {"path": {"type": ["string", "null"], "default": None}}}


def test_a_function_is_told_as_chat_completions_tell_it() -> None:
    told = {"name": "read", "description": "Reads.", "parameters": PARAMETERS, "strict": False}
    assert tools({"type": "function", **told, "defer_loading": True}) == [{"type": "function", "function": told}]
    assert tools({"type": "function", "name": "read", "parameters": None, "strict": None}) == [
        {"type": "function", "function": {"name": "read"}}
    ]


def test_a_custom_tool_keeps_its_grammar() -> None:
    flat = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    custom = {"name": "apply_patch", "description": "Patches."}
    grammar = {"syntax": "lark", "definition": "start: /.+/"}
    assert tools({"type": "custom", **custom, "format": flat}) == [
        {"type": "custom", "custom": {**custom, "format": {"type": "grammar", "grammar": grammar}}}
    ]
    assert tools({"type": "custom", **custom, "format": {"type": "text"}}) == [
        {"type": "custom", "custom": {**custom, "format": {"type": "text"}}}
    ]
    assert tools({"type": "custom", **custom}) == [{"type": "custom", "custom": custom}]


def test_a_namespace_is_its_tools_under_their_full_names() -> None:
    inner = [
        {"type": "function", "name": "read", "description": "Reads.", "parameters": PARAMETERS},
        {"type": "custom", "name": "patch"},
        {"type": "web_search"},
    ]
    assert tools({"type": "namespace", "name": "files", "description": "About files.", "tools": inner}) == [
        {
            "type": "function",
            "function": {
                "name": "files__read",
                "description": "About files.\n\nReads.",
                "parameters": PARAMETERS,
            },
        },
        {"type": "custom", "custom": {"name": "files__patch", "description": "About files."}},
        {"type": "web_search"},
    ]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "external_web_access": False},
        {"type": "mcp", "server_label": "x", "server_url": "https://example.org"},
        {"type": "local_shell"},
        {"type": "tool_search"},
        {"type": "function", "function": {"name": "read", "parameters": PARAMETERS}},
        {"type": "custom", "custom": {"name": "patch"}},
    ],
)
def test_a_tool_that_only_its_vendor_runs_or_that_has_chats_form_stays_as_it_is(tool: Json) -> None:
    assert tools(tool) == [tool]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "read"}, {"type": "function", "function": {"name": "read"}}),
        ({"type": "custom", "name": "patch"}, {"type": "custom", "custom": {"name": "patch"}}),
        ({"type": "web_search_preview"}, {"type": "web_search_preview"}),
        ({"type": "mcp", "server_label": "x", "name": "y"}, {"type": "mcp", "server_label": "x", "name": "y"}),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read"}, {"type": "mcp"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "read"}}, {"type": "mcp"}],
                },
            },
        ),
        ({"type": "function", "function": {"name": "read"}}, {"type": "function", "function": {"name": "read"}}),
    ],
)
def test_a_choice_among_tools_is_told_as_chat_completions_tell_it(choice: Any, told: Any) -> None:
    read = settings(tools=[{"type": "web_search"}], tool_choice=choice, parallel_tool_calls=False)
    assert read == {"tools": [{"type": "web_search"}], "tool_choice": told, "parallel_tool_calls": False}


@pytest.mark.parametrize("none", [None, [], [{"type": "namespace", "name": "n", "tools": []}]])
def test_an_empty_list_of_tools_is_no_tools_and_takes_what_steers_them_along(none: Any) -> None:
    assert settings(tools=none, tool_choice="auto", parallel_tool_calls=True) == {}


def test_a_panel_refuses_tools() -> None:
    request, _ = RESPONSES.read(body(tools=[{"type": "function", "name": "read"}]))
    with pytest.raises(InvalidRequest, match="tools cannot be used on a panel"):
        refuse(request, "all")
    for history in ([CALL], [OUTPUT]):
        request, _ = RESPONSES.read(body(input=history))
        with pytest.raises(InvalidRequest, match="holds a tool call"):
            refuse(request, "all")


def test_codexs_first_request_is_read_whole() -> None:
    request, wish = RESPONSES.read(CODEX)
    assert wish.stream
    assert request.messages == [
        {
            "role": "system",
            "content": [
                {"type": "text", "text": "You are a coding agent."},
                {"type": "text", "text": "<permissions>never ask</permissions>"},
            ],
        },
        {"role": "system", "content": "<collaboration_mode>default</collaboration_mode>"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "# AGENTS.md\n\nBe brief."},
                {"type": "text", "text": "<environment_context><cwd>/home/me</cwd></environment_context>"},
            ],
        },
        {"role": "user", "content": "Write hello.txt."},
    ]
    *functions, search = request.settings["tools"]
    assert [tool["function"]["name"] for tool in functions] == [
        *("exec_command", "write_stdin", "update_plan", "view_image", "get_goal", "create_goal", "update_goal"),
        *(f"multi_agent_v1__{name}" for name in ("spawn_agent", "send_input", "resume_agent")),
        *(f"multi_agent_v1__{name}" for name in ("wait_agent", "close_agent")),
    ]
    assert functions[0] == {
        "type": "function",
        "function": {name: value for name, value in CODEX["tools"][0].items() if name != "type"},
    }
    assert search == {"type": "web_search", "external_web_access": False}
    assert {name: value for name, value in request.settings.items() if name != "tools"} == {
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning_effort": "medium",
        "verbosity": "low",
    }


KINDS = [
    *("message", "input_text", "output_text", "refusal", "input_image", "input_file", "input_audio", "image_url"),
    *("function_call", "function_call_output", "custom_tool_call", "reasoning", "item_reference", "x_call", "x_output"),
    *("function", "custom", "namespace", "web_search", "allowed_tools", "grammar"),
]
INNER = st.dictionaries(
    st.sampled_from(
        ["type", "role", "content", "text", "image_url", "file_id", "call_id", "name", "arguments", "input", "output"]
    ),
    st.sampled_from([*KINDS, "user", "assistant", "Hello."]) | JSON,
)
NESTED = st.recursive(
    INNER,
    lambda inner: st.builds(
        lambda outer, name, held: {**outer, name: held},
        INNER,
        st.sampled_from(["content", "output", "tools", "format"]),
        st.lists(inner, max_size=3) | inner,
    ),
    max_leaves=6,
)


def read_or_refused(document: Json) -> None:
    try:
        request, _ = RESPONSES.read(document)
    except InvalidRequest as error:
        assert error.param  # noqa: PT017  it may be refused and need not be
    else:
        assert request.messages
        json.dumps([request.messages, request.settings])


@given(st.lists(NESTED, max_size=4), st.lists(NESTED, max_size=3), NESTED | st.text())
def test_any_items_and_tools_are_a_request_or_refused_with_words(items: Json, given_: Json, choice: Any) -> None:
    read_or_refused(body(input=items))
    read_or_refused(body(tools=given_))
    read_or_refused(body(tools=[{"type": "web_search"}], tool_choice=choice))


# Writing


def response(status: str, output: str, usage: str, more: str, *, details: str = "null", error: str = "null") -> str:
    return (
        f'{{"id":"resp_{PANEL}","object":"response","created_at":1772366405,"status":"{status}",'
        f'"background":false,"error":{error},"incomplete_details":{details},"instructions":null,'
        f'"max_output_tokens":null,"max_tool_calls":null,"model":"bench/core","output":{output},'
        f'"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{{"effort":null,"summary":null}},'
        f'"store":false,"temperature":null,"text":{{"format":{{"type":"text"}}}},"tool_choice":"auto","tools":[],'
        f'"top_p":null,"truncation":"disabled","usage":{usage},"user":null,"metadata":{{}}{more}}}'
    )


def part(text: str) -> str:
    return f'{{"type":"output_text","text":"{text}","annotations":[],"logprobs":[]}}'


def item(index: int, status: str, *parts: str) -> str:
    return (
        f'{{"id":"msg_{PANEL}-{index}","type":"message","status":"{status}","role":"assistant",'
        f'"content":[{",".join(parts)}]}}'
    )


COUNTED = (
    '{"input_tokens":30,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":12,'
    '"output_tokens_details":{"reasoning_tokens":0},"total_tokens":42}'
)
BENCH = f',"bench":{{"panel":"{PANEL}"}}'
STARTED = response("in_progress", "[]", "null", "")


def event(kind: str, number: int, rest: str) -> bytes:
    return f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":{number},{rest}}}\n\n'.encode()


def opened(index: int, number: int) -> bytes:
    place = f'"item_id":"msg_{PANEL}-{index}","output_index":{index},"content_index":0'
    return event(
        "response.output_item.added", number, f'"output_index":{index},"item":{item(index, "in_progress")}'
    ) + event("response.content_part.added", number + 1, f'{place},"part":{part("")}')


def delta(index: int, number: int, text: str) -> bytes:
    place = f'"item_id":"msg_{PANEL}-{index}","output_index":{index},"content_index":0'
    return event("response.output_text.delta", number, f'{place},"delta":"{text}","logprobs":[]')


def closed(index: int, number: int, text: str, status: str = "completed") -> bytes:
    place = f'"item_id":"msg_{PANEL}-{index}","output_index":{index},"content_index":0'
    return (
        event("response.output_text.done", number, f'{place},"text":"{text}","logprobs":[]')
        + event("response.content_part.done", number + 1, f'{place},"part":{part(text)}')
        + event(
            "response.output_item.done",
            number + 2,
            f'"output_index":{index},"item":{item(index, status, part(text))}',
        )
    )


BEGUN = event("response.created", 0, f'"response":{STARTED}') + event(
    "response.in_progress", 1, f'"response":{STARTED}'
)


def test_a_whole_reply_byte_by_byte() -> None:
    written = RESPONSES.whole(ENVELOPE, [Alternative("# Hello\n")], USAGE, {"panel": PANEL})
    message = item(0, "completed", part("# Hello\\n"))
    assert written.decode() == response("completed", f"[{message}]", COUNTED, BENCH)


def test_a_stream_byte_by_byte() -> None:
    stream = RESPONSES.stream(ENVELOPE)
    written = [
        stream.begin(),
        stream.text("# Hel"),
        stream.keep_alive(),
        stream.text("lo\n"),
        stream.end(["stop"], USAGE, {"panel": PANEL}),
    ]
    message = item(0, "completed", part("# Hello\\n"))
    done = response("completed", f"[{message}]", COUNTED, BENCH)
    assert b"".join(written) == b"".join(
        [
            BEGUN + opened(0, 2),
            delta(0, 4, "# Hel"),
            event("response.in_progress", 5, f'"response":{STARTED}'),
            delta(0, 6, "lo\\n"),
            closed(0, 7, "# Hello\\n"),
            event("response.completed", 10, f'"response":{done}'),
        ]
    )


def test_alternatives_are_messages_one_after_the_other_in_seat_order() -> None:
    stream = RESPONSES.stream(ENVELOPE)
    written = [
        stream.begin(0) + stream.begin(1) + stream.begin(2),
        stream.text("C", 2),
        stream.text("A", 0),
        stream.done(2),
        stream.done(0),
        stream.text("B", 1),
        stream.end(["stop", "length", "stop"], USAGE, {"panel": PANEL}),
    ]
    output = ",".join(
        item(index, status, part(text))
        for index, (status, text) in enumerate([("completed", "A"), ("incomplete", "B"), ("completed", "C")])
    )
    assert written == [
        BEGUN + opened(0, 2),
        b"",
        delta(0, 4, "A"),
        b"",
        closed(0, 5, "A") + opened(1, 8),
        delta(1, 10, "B"),
        closed(1, 11, "B", "incomplete")
        + opened(2, 14)
        + delta(2, 16, "C")
        + closed(2, 17, "C")
        + event("response.completed", 20, f'"response":{response("completed", f"[{output}]", COUNTED, BENCH)}'),
    ]


@pytest.mark.parametrize(
    ("reasons", "status", "why"),
    [
        (["length"], "incomplete", "max_output_tokens"),
        (["content_filter"], "incomplete", "content_filter"),
        (["length", "content_filter"], "incomplete", "max_output_tokens"),
        (["length", "stop"], "completed", None),
        (["tool_calls"], "completed", None),
    ],
)
def test_a_response_is_incomplete_when_none_of_its_answers_is_whole(
    reasons: list[str], status: str, why: str | None
) -> None:
    whole = json.loads(RESPONSES.whole(ENVELOPE, [Alternative("x", reason) for reason in reasons], USAGE, {}))
    stream = RESPONSES.stream(ENVELOPE)
    begun = b"".join(stream.begin(index) + stream.text("x", index) for index in range(len(reasons)))
    last = parsed([begun + stream.end(reasons, USAGE, {})])[-1]
    assert last["type"] == f"response.{status}"
    assert last["response"] == whole
    assert whole["status"] == status
    assert whole["incomplete_details"] == (why and {"reason": why})
    cut = [reason in {"length", "content_filter"} for reason in reasons]
    assert [message["status"] == "incomplete" for message in whole["output"]] == cut


def test_a_sign_of_life_before_anything_else_begins_the_stream() -> None:
    stream = RESPONSES.stream(ENVELOPE)
    assert stream.keep_alive() == BEGUN
    assert stream.begin() == opened(0, 2)


def test_an_error_in_a_stream_is_told_twice_and_ends_it() -> None:
    stream = RESPONSES.stream(ENVELOPE)
    begun = stream.begin()
    written = stream.error(PanelFailed("no seat answered", status=502, data={"panel": PANEL}))
    failed = response("failed", "[]", "null", BENCH, error='{"code":"server_error","message":"no seat answered"}')
    assert begun + written == (
        BEGUN
        + opened(0, 2)
        + event(
            "error",
            4,
            '"code":"no_seat_answered","message":"no seat answered","param":null,'
            '"error":{"message":"no seat answered","type":"server_error","param":null,"code":"no_seat_answered"}'
            + BENCH,
        )
        + event("response.failed", 5, f'"response":{failed}')
    )


def test_an_error_before_anything_else_begins_the_stream() -> None:
    written = RESPONSES.stream(ENVELOPE).error(BenchError("broken"))
    assert written.startswith(BEGUN)
    assert [event["type"] for event in parsed([written])] == [
        "response.created",
        "response.in_progress",
        "error",
        "response.failed",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Overloaded("busy", retry_after=7), "rate_limit_exceeded"),
        (PanelFailed("too long", status=413), "context_length_exceeded"),
        (InvalidRequest("no"), "invalid_prompt"),
        (NobodyCanSit("nobody"), "server_error"),
        (PanelFailed("late", status=504), "server_error"),
    ],
)
def test_a_failed_response_says_why_in_this_apis_own_codes(error: BenchError, code: str) -> None:
    last = parsed([RESPONSES.stream(ENVELOPE).error(error)])[-1]["response"]
    assert last["status"] == "failed"
    assert last["error"]["code"] == code
    assert "bench" not in last


def test_a_wait_is_told_in_the_sentence_that_codex_reads_it_from() -> None:
    last = parsed([RESPONSES.stream(ENVELOPE).error(Overloaded("busy.", retry_after=7))])[-1]
    assert last["response"]["error"]["message"] == "busy. Please try again in 7s."
    last = parsed([RESPONSES.stream(ENVELOPE).error(Overloaded("busy."))])[-1]
    assert last["response"]["error"]["message"] == "busy."


# What readers make of it


def parsed(packets: Sequence[bytes]) -> list[Json]:
    """The events as OpenAI's SDK reads them, each under the name that its data repeats."""
    read = list(SSEDecoder().iter_bytes(iter(packets)))
    data: list[Json] = [event.json() for event in read]
    assert [event.event for event in read] == [event["type"] for event in data]
    return data


def told(texts: Sequence[str], stream: ResponsesStream | None = None) -> bytes:
    """A whole stream in which several seats speak in turn, each text in two pieces."""
    stream = stream or RESPONSES.stream(ENVELOPE)
    written = [stream.begin(index) for index in range(len(texts))]
    for half in range(2):
        for index, text in enumerate(texts):
            middle = len(text) // 2
            written.append(stream.text(text[middle:] if half else text[:middle], index))
            written.append(stream.keep_alive())
    written += [stream.done(index) for index in reversed(range(len(texts)))]
    written.append(stream.end(["stop"] * len(texts), USAGE, {"panel": PANEL}))
    return b"".join(written)


def test_a_stream_reads_the_same_wherever_its_packets_end() -> None:
    written = told(["é\u2028漢😀\n", '"\\'])
    events = parsed([written])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for cut in range(1, len(written)):
        assert parsed([written[:cut], written[cut:]]) == events
    assert parsed([written[at : at + 1] for at in range(len(written))]) == events


def test_every_event_is_what_openais_sdk_declares_it_to_be() -> None:
    declared: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    failed = RESPONSES.stream(ENVELOPE).error(PanelFailed("no seat answered", status=502, data={"panel": PANEL}))
    cut = RESPONSES.stream(ENVELOPE)
    incomplete = cut.begin() + cut.text("x") + cut.end(["length"], USAGE, {})
    kinds = set()
    for written in (told(["A", "B"]), failed, incomplete):
        for data in parsed([written]):
            declared.validate_python(data)
            kinds.add(data["type"])
    assert {"response.completed", "response.incomplete", "response.failed", "error"} < kinds
    Response.model_validate_json(RESPONSES.whole(ENVELOPE, [Alternative("x")], USAGE, {"panel": PANEL}))


def client_of(reply: bytes, kind: str) -> openai.OpenAI:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=reply, headers={"content-type": kind})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    # The SDK takes clients of both httpx and its successor, and declares only the latter.
    return openai.OpenAI(base_url="http://test/v1", api_key="x", http_client=http, max_retries=0)  # type: ignore[arg-type]


@pytest.fixture(params=[["One."], ["A.", "", "C. 😀\u2028"]], ids=["one", "three"])
def texts(request: pytest.FixtureRequest) -> list[str]:
    return list(request.param)


def test_openais_sdk_puts_a_stream_together(texts: list[str]) -> None:
    with (
        client_of(told(texts), RESPONSES.stream_content_type) as client,
        client.responses.stream(model="bench/core", input="x") as stream,
    ):
        heard = list(stream)
        final = stream.get_final_response()
    assert heard[-1].type == "response.completed"
    snapshots = {event.output_index: event.snapshot for event in heard if event.type == "response.output_text.delta"}
    assert [snapshots.get(index, "") for index in range(len(texts))] == texts
    assert [message.content[0].text for message in final.output] == texts
    whole = json.loads(RESPONSES.whole(ENVELOPE, [Alternative(text) for text in texts], USAGE, {"panel": PANEL}))
    assert {**final.to_dict(), "output": whole["output"]} == whole


def test_openais_sdk_raises_at_an_error_in_a_stream() -> None:
    stream = RESPONSES.stream(ENVELOPE)
    written = stream.begin() + stream.error(PanelFailed("no seat answered", status=502, data={"panel": PANEL}))
    with client_of(written, RESPONSES.stream_content_type) as client:
        events: Iterator[Any] = iter(client.responses.create(model="bench/core", input="x", stream=True))
        heard = [next(events).type for _ in range(4)]
        with pytest.raises(openai.APIError, match="no seat answered") as raised:
            next(events)
    assert heard[-1] == "response.content_part.added"
    assert (raised.value.code, raised.value.type) == ("no_seat_answered", "server_error")


@given(st.lists(TEXT, min_size=1, max_size=3))
def test_no_text_is_changed(texts: list[str]) -> None:
    events = parsed([told(texts)])
    pieces = ["" for _ in texts]
    for said in events:
        if said["type"] == "response.output_text.delta":
            pieces[said["output_index"]] += said["delta"]
    done = [said["text"] for said in events if said["type"] == "response.output_text.done"]
    final = [message["content"][0]["text"] for message in events[-1]["response"]["output"]]
    assert pieces == done == final == texts

"""Which tools a chat may bring, in which of the forms that clients send."""

from typing import Any

import pytest
from hypothesis import given

from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.chat.format import ChatFormat
from bench_proxy.formats.chat.tools import nested, nested_choice
from bench_proxy.formats.completions import CompletionsFormat
from bench_proxy.formats.request import ChatRequest, ToolName
from bench_proxy.route.fitting import prepare
from tests.anything import JSON

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}
FLAT_READ = {"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA}
GRAMMAR = {"syntax": "lark", "definition": "start: /.+/"}
PATCH = {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": GRAMMAR}}}
FLAT_PATCH = {"type": "custom", "name": "patch", "format": {"type": "grammar", **GRAMMAR}}
USER = {"role": "user", "content": "Hello."}


def read(**more: Any) -> ChatRequest:
    return ChatFormat().read({"model": "bench/core", "messages": [USER], **more})[0]


# Flat and nested


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (FLAT_READ, READ),
        (FLAT_PATCH, PATCH),
        ({**FLAT_READ, "strict": True}, {**READ, "function": {**READ["function"], "strict": True}}),
        ({"type": "custom", "name": "p", "format": {"type": "text"}}, None),
        ({"type": "function", "name": "f", "cache_control": {"type": "ephemeral"}}, None),
    ],
)
def test_a_flat_tool_becomes_a_nested_one(sent: Json, told: Json | None) -> None:
    kind, name = sent["type"], sent["name"]
    (tool,) = read(tools=[sent]).settings["tools"]
    assert tool[kind]["name"] == name
    assert tool == told or told is None
    assert "name" not in tool


def test_what_else_is_said_of_a_flat_tool_stays_beside_it() -> None:
    mark = {"type": "ephemeral"}
    told = nested({"type": "function", "name": "f", "description": None, "cache_control": mark})
    assert told == {"type": "function", "cache_control": mark, "function": {"name": "f"}}


@pytest.mark.parametrize(
    "tool",
    [READ, PATCH, {"type": "function"}, {"type": "web_search", "name": "x"}, {"type": "function", "name": 5}, {}],
)
def test_any_other_tool_stays_as_it_was_sent(tool: Json) -> None:
    assert read(tools=[tool]).settings["tools"] == [tool]


def test_flat_and_nested_tools_may_stand_in_one_list() -> None:
    request = read(tools=[READ, FLAT_PATCH, FLAT_READ])
    assert request.settings["tools"] == [READ, PATCH, READ]


@pytest.mark.parametrize("patch", [PATCH, FLAT_PATCH])
def test_custom_tools_are_told_from_functions(patch: Json) -> None:
    assert read(tools=[READ, patch]).tools == {"patch": ToolName("patch", custom=True)}


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({"type": "function", "name": "read"}, {"type": "function", "function": {"name": "read"}}),
        ({"type": "custom", "name": "patch"}, {"type": "custom", "custom": {"name": "patch"}}),
        ("required", "required"),
        ({"type": "function", "function": {"name": "read"}}, {"type": "function", "function": {"name": "read"}}),
        ({"type": "allowed_tools", "mode": "auto"}, {"type": "allowed_tools", "mode": "auto"}),
    ],
)
def test_a_flat_choice_becomes_a_nested_one(sent: object, told: object) -> None:
    assert read(tools=[READ, PATCH], tool_choice=sent).settings["tool_choice"] == told


def test_a_choice_without_tools_goes() -> None:
    assert read(tool_choice="auto", parallel_tool_calls=False).settings == {}


@given(JSON)
def test_a_tool_or_choice_of_any_form_is_kept_or_nested(value: object) -> None:
    tool = {"type": "function", "name": "f", "parameters": value}
    inner = {"name": "f"} if value is None else {"name": "f", "parameters": value}
    assert nested(tool) == {"type": "function", "function": inner}
    assert nested_choice({"type": value, "name": value}) == {"type": value, "name": value}


@pytest.mark.parametrize("name", ["tools", "functions"])
def test_a_completion_takes_no_tools_and_says_where_they_are_taken(name: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        CompletionsFormat().read({"model": "bench/core:route", "prompt": "Hello.", name: [READ]})
    assert error.value.param == name
    assert "/v1/chat/completions" in error.value.message


# Legacy functions

FUNCTION = READ["function"]


def test_legacy_functions_stay_for_a_panel_to_refuse_and_are_told_from_tools() -> None:
    request = read(functions=[FUNCTION, {"name": 5}, {}], function_call="auto", tools=[PATCH])
    assert request.settings["functions"] == [FUNCTION, {"name": 5}, {}]
    assert request.settings["function_call"] == "auto"
    assert request.tools == {"read": ToolName("read", legacy=True), "patch": ToolName("patch", custom=True)}


def test_a_legacy_function_is_called_as_one_once_the_request_fits_all_members() -> None:
    prepared = prepare(read(functions=[FUNCTION], function_call={"name": "read"}))
    assert prepared.request.settings == {
        "tools": [READ],
        "tool_choice": {"type": "function", "function": {"name": "read"}},
    }
    assert prepared.tools == {"read": ToolName("read", legacy=True)}


def test_a_flat_custom_tool_is_called_as_one_once_the_request_fits_all_members() -> None:
    prepared = prepare(read(tools=[FLAT_READ, FLAT_PATCH]))
    assert [tool["function"]["name"] for tool in prepared.request.settings["tools"]] == ["read", "patch"]
    assert prepared.tools == {"patch": ToolName("patch", custom=True)}

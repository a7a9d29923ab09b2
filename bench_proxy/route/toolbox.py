"""The tools of a request as functions, which every member can call, and the choice among them.

https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from bench_proxy.errors import InvalidRequest, OneVendorsOwn
from bench_proxy.formats.chat.parts import function_tool
from bench_proxy.formats.request import Json, ToolName

STEERING = ("tool_choice", "parallel_tool_calls")
"""Vendors refuse them where there are no tools."""

OURS = frozenset({"function", "custom"})
"""Kinds of tools that the caller runs. All others are run by their vendor alone."""

LONGEST_ECHO = 100
INPUT = {"type": "string", "description": "The whole text for this tool, as it is."}


@dataclass(frozen=True, slots=True)
class Offer:
    """What members are offered: `settings` with the tools, and how the caller knows them (`tools`)."""

    settings: Json
    tools: Mapping[str, ToolName]
    names: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()


def offered(settings: Json, tools: Mapping[str, ToolName]) -> Offer:
    """What has not to change stays the same object.

    Raises InvalidRequest when nothing but tools that only their vendor runs could be called.
    """
    settings = _without_functions(settings)
    left_out: list[str] = []
    if "web_search_options" in settings:
        left_out.append("web_search_options")
        settings = _without(settings, "web_search_options")
    sent: Sequence[Json] = settings.get("tools") or ()
    if not sent:
        return Offer(_without(settings, "tools", *STEERING), tools, left_out=tuple(left_out))
    theirs = [tool for tool in sent if _kind(tool) not in OURS]
    left_out += dict.fromkeys(_kind(tool)[:LONGEST_ECHO] for tool in theirs)
    functions = [_function(tool, index) for index, tool in enumerate(sent) if _kind(tool) in OURS]
    functions, choice = _chosen(functions, settings.get("tool_choice"), theirs)
    if not functions:
        return Offer(_without(settings, "tools", *STEERING), tools, left_out=tuple(left_out))
    if len(functions) != len(sent) or any(one is not other for one, other in zip(functions, sent, strict=True)):
        settings = {**settings, "tools": functions}
    if choice is not settings.get("tool_choice"):
        settings = {**settings, "tool_choice": choice}
    customs = [_name(tool) for tool in sent if _kind(tool) == "custom"]
    names = frozenset(_name(tool) for tool in functions)
    return Offer(settings, _with_customs(tools, customs), names, tuple(left_out))


def _kind(tool: Json) -> str:
    kind = tool.get("type")
    return kind if isinstance(kind, str) and kind else "function"


def _told(tool: Json) -> Json:
    """What is said of a tool, or of the choice of one. Some clients say it one object further out than chat does."""
    inner = tool.get(_kind(tool))
    return inner if isinstance(inner, dict) else tool


def _name(tool: Json) -> str:
    name = _told(tool).get("name")
    return name if isinstance(name, str) else ""


def _function(tool: Json, index: int) -> Json:
    if not _name(tool):
        field = f"tools.{index}.{_kind(tool)}.name"
        raise InvalidRequest(f'"{field}" is required, and should be a text', param=field)
    if _kind(tool) == "custom":
        return _of_custom(_told(tool))
    if _told(tool) is not tool:
        return tool if tool.get("type") else {**tool, "type": "function"}
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _of_custom(custom: Json) -> Json:
    """A function with the text as its one argument. The grammar is told: no member is held to it."""
    said = [text for text in (custom.get("description"), _grammar(custom.get("format"))) if text]
    parameters = {
        "type": "object",
        "properties": {"input": INPUT},
        "required": ["input"],
        "additionalProperties": False,
    }
    return function_tool(custom["name"], "\n\n".join(said) or None, parameters)


def _grammar(format: object) -> str | None:
    """Responses has the grammar in the format itself, chat one object further in."""
    if not isinstance(format, dict) or format.get("type") != "grammar":
        return None
    inner = format.get("grammar")
    grammar = inner if isinstance(inner, dict) else format
    return f"The input has to follow this {grammar.get('syntax') or ''} grammar:\n{grammar.get('definition') or ''}"


def _with_customs(tools: Mapping[str, ToolName], customs: Sequence[str]) -> Mapping[str, ToolName]:
    known = {name: tools.get(name) or ToolName(name) for name in customs}
    new = {name: replace(one, custom=True) for name, one in known.items() if name not in tools or not one.custom}
    return {**tools, **new} if new else tools


# Which of them is to be called.


def _chosen(functions: list[Json], choice: Any, theirs: Sequence[Json]) -> tuple[list[Json], Any]:
    """The functions that may be called, and the choice among them in the words of every vendor."""
    if isinstance(choice, dict) and _kind(choice) == "allowed_tools":
        return _allowed(functions, choice, theirs)
    if isinstance(choice, dict):
        if _kind(choice) not in OURS or _name(choice) in {_name(tool) for tool in theirs} - {""}:
            _refuse(_name(choice) or _kind(choice), "tool_choice")
        told = {"type": "function", "function": {"name": _name(choice)}}
        return functions, choice if choice == told else told
    if not functions and choice != "none":
        _refuse(", ".join(dict.fromkeys(_kind(tool) for tool in theirs)), "tools")
    return functions, choice


def _allowed(functions: list[Json], choice: Json, theirs: Sequence[Json]) -> tuple[list[Json], str]:
    """The subset itself is sent: few vendors know a choice among some of the tools."""
    told = _told(choice)
    listed = told.get("tools")
    allowed = [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    names = {_name(tool) for tool in allowed}
    found = [tool for tool in functions if _name(tool) in names]
    if not found:
        vendors = {_name(tool) for tool in theirs} - {""}
        if only := [tool for tool in allowed if _kind(tool) not in OURS or _name(tool) in vendors]:
            _refuse(_name(only[0]) or _kind(only[0]), "tool_choice")
        there = ", ".join(_name(tool) for tool in functions)[:LONGEST_ECHO]
        raise InvalidRequest(f"tool_choice allows none of the tools that are there: {there}", param="tool_choice")
    return found, "required" if told.get("mode") == "required" else "auto"


def _refuse(tool: str, param: str) -> NoReturn:
    raise OneVendorsOwn(
        f"{tool[:LONGEST_ECHO]} is run by its vendor alone, and cannot be the only tool that may be called here: send"
        " a tool of your own beside it, or ask a model of that vendor by its own name",
        param=param,
    )


# What chat completions had before tools.


def _without_functions(settings: Json) -> Json:
    """`functions` as tools. https://platform.openai.com/docs/api-reference/chat/create#chat-create-functions"""
    if "functions" not in settings and "function_call" not in settings:
        return settings
    told = _without(settings, "functions", "function_call")
    functions = settings.get("functions") or ()
    if tools := [*(told.get("tools") or ()), *({"type": "function", "function": one} for one in functions)]:
        told = {**told, "tools": tools}
    choice = settings.get("function_call")
    if choice and "tool_choice" not in told:
        told = {**told, "tool_choice": {"type": "function", "function": choice} if isinstance(choice, dict) else choice}
    return told


def _without(settings: Json, *names: str) -> Json:
    return {k: v for k, v in settings.items() if k not in names} if any(n in settings for n in names) else settings

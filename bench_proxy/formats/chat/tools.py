"""Tools as clients of chat completions send them: nested, flat as in Responses, or as legacy functions.

https://platform.openai.com/docs/api-reference/chat/create
https://platform.openai.com/docs/guides/function-calling#custom-tools
"""

from collections.abc import Sequence

from bench_proxy.formats.request import Json, ToolName

KINDS = {
    "function": ("name", "description", "parameters", "strict"),
    "custom": ("name", "description", "format"),
}
"""The tools that a client runs -> what is said of one inside the object of that name."""


def nested(tool: Json) -> Json:
    """The tool with what is said of it in an object of its own, where chat completions have it."""
    kind = _flat_kind(tool)
    if kind is None:
        return tool
    said = {name: tool[name] for name in KINDS[kind] if tool.get(name) is not None}
    if isinstance(format := said.get("format"), dict):
        said["format"] = _nested_format(format)
    return {**{name: value for name, value in tool.items() if name not in KINDS[kind]}, kind: said}


def nested_choice(choice: object) -> object:
    if not isinstance(choice, dict) or (kind := _flat_kind(choice)) is None:
        return choice
    return {"type": kind, kind: {"name": choice["name"]}}


def _flat_kind(tool: Json) -> str | None:
    kind = tool.get("type")
    if not isinstance(kind, str) or kind not in KINDS or isinstance(tool.get(kind), dict):
        return None
    return kind if isinstance(tool.get("name"), str) else None


def _nested_format(format: Json) -> Json:
    """Chat completions have an object more around a grammar."""
    if format.get("type") != "grammar" or "grammar" in format:
        return format
    return {"type": "grammar", "grammar": {name: format[name] for name in ("syntax", "definition") if name in format}}


def tool_names(tools: Sequence[Json], functions: Sequence[Json]) -> dict[str, ToolName]:
    """Those whose calls are not those of functions among tools: the caller has to get them back as what they are.

    https://platform.openai.com/docs/api-reference/chat/create#chat-create-functions
    """
    customs = (tool.get("custom") for tool in tools if tool.get("type") == "custom")
    named = (custom.get("name") for custom in customs if isinstance(custom, dict))
    legacy = (function.get("name") for function in functions)
    names = {name: ToolName(name, legacy=True) for name in legacy if isinstance(name, str)}
    return names | {name: ToolName(name, custom=True) for name in named if isinstance(name, str)}

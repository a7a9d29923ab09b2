"""What the other formats say, in the words of chat completions: parts of messages, calls, schemas."""

from collections.abc import Sequence
from typing import Any

from bench_proxy.formats.checking import given
from bench_proxy.formats.request import Json


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image_part(url: str, detail: str | None = None) -> dict[str, Any]:
    return {"type": "image_url", "image_url": given({"url": url, "detail": detail})}


def flat(parts: Sequence[Json]) -> Any:
    """Content of a message. A lone text is a string, which is the one form that every model's server takes."""
    if not parts:
        return ""
    return parts[0].get("text") or "" if len(parts) == 1 and parts[0]["type"] == "text" else parts


def function_call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function_tool(name: str, description: str | None, parameters: Json | None, strict: bool | None = None) -> Json:
    function = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": given(function)}


def schema_format(schema: Json) -> Json:
    """Output of one schema, for the formats whose vendors hold a model to any schema: Anthropic, Google, Ollama.

    So it is `strict` wherever OpenAI can be. A format that has a word for `strict` of its own says what was sent.
    """
    named = {"name": "answer", "schema": schema, "strict": is_closed(schema)}
    return {"type": "json_schema", "json_schema": named}


KNOWN = frozenset(
    {
        "$defs", "$ref", "$schema", "additionalProperties", "anyOf", "const", "definitions", "description", "enum",
        "items", "properties", "required", "title", "type",
    }
)  # fmt: skip
"""Keywords that OpenAI takes in a schema which it holds its models to.
https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""


def is_closed(schema: Json) -> bool:
    """Whether OpenAI would hold its models to this schema, and not refuse it: an object that has neither optional
    properties nor others than it lists, through and through. Any other is still sent, for a model to follow as well as
    it can: changing it would be worse.
    """
    return schema.get("type") == "object" and _is_closed(schema)


def _is_closed(schema: object) -> bool:
    if not isinstance(schema, dict) or not KNOWN.issuperset(schema):
        return False
    kinds = schema.get("type")
    if "object" in (kinds if isinstance(kinds, list) else [kinds]) and not _lists_all(schema):
        return False
    named = [schema.get(name) or {} for name in ("properties", "$defs", "definitions")]
    inner = [one for found in named if isinstance(found, dict) for one in found.values()]
    inner += [schema["items"]] if "items" in schema else []
    inner += options if isinstance(options := schema.get("anyOf"), list) else []
    said = not {"type", "$ref", "anyOf", "enum", "const"}.isdisjoint(schema)
    return said and all(_is_closed(one) for one in inner)


def _lists_all(schema: Json) -> bool:
    """Of an object: that it has the properties that it lists, all of them, and no others."""
    properties, required = schema.get("properties"), schema.get("required")
    if not (isinstance(properties, dict) and isinstance(required, list)):
        return False
    return schema.get("additionalProperties") is False and all(name in required for name in properties)

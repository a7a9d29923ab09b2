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
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


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


def is_closed(schema: object) -> bool:
    """Whether a schema is one that OpenAI holds its models to: no object has optional properties, or others than it
    lists. A schema that is not is still sent, for a model to follow as well as it can: changing it would be worse.
    """
    if isinstance(schema, list):
        return all(is_closed(inner) for inner in schema)
    if not isinstance(schema, dict):
        return True
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.get("type") == "object" and properties is None:
        return False
    if isinstance(properties, dict) and isinstance(required, list):
        closed = schema.get("additionalProperties") is False and all(name in required for name in properties)
        return closed and all(is_closed(inner) for inner in properties.values())
    return all(is_closed(inner) for inner in schema.values())

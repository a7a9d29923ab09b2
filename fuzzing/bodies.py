"""Bodies of every format and route that are right, from which wrong ones are made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "read", "description": "Reads a file.", "parameters": SCHEMA}
ARGUMENTS = '{"path": "a.txt"}'

CHAT: dict[str, Json] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is in a.txt?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "read", "arguments": ARGUMENTS}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "It says hello."},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "auto",
    "temperature": 0.5,
    "max_tokens": 100,
    "stop": ["END"],
    "response_format": {"type": "json_schema", "json_schema": {"name": "said", "schema": SCHEMA}},
}
RESPONSES: dict[str, Json] = {
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is in a.txt?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "call_1", "output": "It says hello."},
    ],
    "tools": [
        {"type": "function", **FUNCTION},
        {"type": "custom", "name": "patch", "description": "Changes a file."},
        {"type": "namespace", "name": "files", "tools": [{"type": "function", **FUNCTION}]},
    ],
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "json_schema", "name": "said", "schema": SCHEMA}},
    "max_output_tokens": 100,
}
MESSAGES: dict[str, Json] = {
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "What is in a.txt?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I look.", "signature": "c2ln"},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.txt"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "It says hello."}]},
    ],
    "tools": [{"name": "read", "description": "Reads a file.", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto"},
    "metadata": {"user_id": '{"session_id": "s1"}'},
}
GEMINI: dict[str, Json] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "What is in a.txt?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {"path": "a.txt"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "It says hello."}}}]},
    ],
    "tools": [{"functionDeclarations": [FUNCTION]}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100, "stopSequences": ["END"]},
}
OLLAMA: dict[str, Json] = {
    "messages": [
        {"role": "user", "content": "What is in a.txt?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "read", "arguments": {"path": "a.txt"}}}],
        },
        {"role": "tool", "tool_name": "read", "content": "It says hello."},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "options": {"temperature": 0.5, "num_predict": 100},
}
PLAIN = [{"role": "user", "content": "Who are you?"}]
SEEN = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        ],
    }
]
PARTS = {"parts": [{"text": "Who are you?"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]}

ASKING: Mapping[str, Sequence[dict[str, Json]]] = {
    "/v1/chat/completions": [CHAT, {"messages": PLAIN}, {"messages": SEEN}],
    "/chat/completions": [{"messages": PLAIN}],
    "/v1/completions": [{"prompt": "Who are you?", "max_tokens": 100, "logprobs": 1}],
    "/v1/responses": [RESPONSES, {"input": "Who are you?"}],
    "/v1/messages": [MESSAGES, {"messages": PLAIN, "max_tokens": 100}],
    "/v1/messages/count_tokens": [{"messages": PLAIN}],
    "/api/chat": [OLLAMA, {"messages": [{**PLAIN[0], "images": [PNG]}]}, {"messages": []}],
    "/api/generate": [{"prompt": "Who are you?", "system": "Be brief.", "images": [PNG]}],
    "/api/show": [{}],
}
"""What is right at each path that takes a body with a `model`."""

TO_GEMINI: Sequence[dict[str, Json]] = [GEMINI, {"contents": [PARTS]}, {"contents": "Who are you?"}]

OPTIONS: dict[str, Json] = {
    "reply": "merged",
    "with": ["ok-c"],
    "shape": "general",
    "explorers": 1,
    "quorum": 1,
    "deadline": 5,
    "stream": "live",
    "blind": True,
    "partial": "accept",
    "conversation": "c1",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One of our own routes, as the proxy's description says it. `bodies` are right ones."""

    method: str
    path: str
    places: Sequence[str]
    query: Sequence[str]
    bodies: Sequence[Json]


def operations(description: Mapping[str, Any]) -> list[Operation]:
    """All that an OpenAPI document describes: https://spec.openapis.org/oas/v3.1.0#paths-object"""
    schemas = description["components"]["schemas"]
    found = []
    for path, methods in description["paths"].items():
        for method, said in methods.items():
            named = said.get("parameters", [])
            body = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            found.append(
                Operation(
                    method.upper(),
                    path,
                    [one["name"] for one in named if one["in"] == "path"],
                    [one["name"] for one in named if one["in"] == "query"],
                    list(_examples(body, schemas)) if body else [],
                )
            )
    return found


def _examples(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[Json]:
    """One value for each of a schema's alternatives, with all of its properties."""
    if reference := schema.get("$ref"):
        yield from _examples(schemas[reference.rpartition("/")[2]], schemas)
    elif alternatives := schema.get("anyOf") or schema.get("oneOf"):
        for one in alternatives:
            yield from _examples(one, schemas)
    elif schema.get("type") == "object":
        yield {name: next(_examples(one, schemas)) for name, one in schema.get("properties", {}).items()}
    elif schema.get("type") == "array":
        yield [next(_examples(schema["items"], schemas))]
    else:
        yield {"string": "x", "integer": 1, "number": 0.5, "boolean": True}.get(schema.get("type", ""))

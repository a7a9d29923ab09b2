"""Requests as real clients send them, and what has to be true of their translation into a chat completion."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
Check = Callable[[Sequence[Json], Json], bool]
"""Takes the messages and the settings of a chat completion."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DATA_URL = f"data:image/png;base64,{PIXEL}"
PDF = "JVBERi0xLjQK"
TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools"""

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@dataclass(frozen=True, slots=True)
class Case:
    """`path` says which format it is in; `model` is in the body where the format has it there."""

    path: str
    what: str
    body: Json
    check: Check


def texts(messages: Sequence[Json], role: str) -> list[str]:
    """What each message of a role says; the texts of its parts stand behind one another."""
    return [text_of(message.get("content")) for message in messages if message["role"] == role]


def text_of(content: object) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def images(messages: Sequence[Json]) -> list[object]:
    """The addresses of all images, in order."""
    found = []
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            if part.get("type") == "image_url":
                image = part["image_url"]
                found.append(image["url"] if isinstance(image, dict) else image)
    return found


def system(messages: Sequence[Json]) -> str:
    return "\n".join(texts(messages, "system") + texts(messages, "developer"))


def functions(settings: Json) -> dict[str, Any]:
    """The parameters of each function, by its name."""
    tools = settings.get("tools") or []
    return {t["function"]["name"]: t["function"].get("parameters") for t in tools if t.get("type") == "function"}


def schema(settings: Json) -> object:
    wanted = settings.get("response_format") or {}
    return wanted.get("json_schema", {}).get("schema")


def calls(messages: Sequence[Json]) -> list[tuple[str, str]]:
    """The name and id of each tool call."""
    return [(c["function"]["name"], c["id"]) for m in messages for c in m.get("tool_calls") or ()]


def results(messages: Sequence[Json]) -> list[str]:
    return texts(messages, "tool")


def each_call_has_its_result(messages: Sequence[Json]) -> bool:
    """Whether the results name the calls, in their order."""
    answered = [message.get("tool_call_id") for message in messages if message["role"] == "tool"]
    return bool(answered) and [id for _, id in calls(messages)] == answered


def files(messages: Sequence[Json]) -> list[object]:
    parts = [part for message in messages for part in message.get("content") or () if isinstance(part, dict)]
    return [(part.get("file") or {}).get("file_data") for part in parts if part.get("type") == "file"]


MESSAGES, RESPONSES, GEMINI, OLLAMA, COMPLETIONS = (
    "/v1/messages",
    "/v1/responses",
    "/v1beta/models/bench/core:generateContent",
    "/api/chat",
    "/v1/completions",
)


def user(text: str = "Hello") -> dict[str, str]:
    return {"role": "user", "content": text}


def anthropic(what: str, check: Check, *, messages: Sequence[Json] | None = None, **more: Any) -> Case:
    return Case(MESSAGES, what, {"max_tokens": 100, "messages": list(messages or [user()]), **more}, check)


def responses(what: str, check: Check, *, input: Any = "Hello", **more: Any) -> Case:
    return Case(RESPONSES, what, {"input": input, **more}, check)


def gemini(what: str, check: Check, *parts: Json, contents: Any = None, **more: Any) -> Case:
    said = contents or [{"role": "user", "parts": list(parts) or [{"text": "Hello"}]}]
    return Case(GEMINI, what, {"contents": said, **more}, check)


def ollama(what: str, check: Check, *, messages: Sequence[Json] | None = None, **more: Any) -> Case:
    return Case(OLLAMA, what, {"messages": list(messages or [user()]), **more}, check)


ASKED_TOOL = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Ulm"}}],
}

CASES = (
    # Anthropic Messages
    anthropic(
        "a system prompt in blocks",
        lambda m, s: system(m) == "Be brief.",
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    ),
    anthropic(
        "a message with role system among the others",
        lambda m, s: "Be quick." in system(m) or "Be quick." in "".join(texts(m, "user")),
        messages=[user(), {"role": "system", "content": "Be quick."}],
    ),
    anthropic(
        "an image in base64",
        lambda m, s: images(m) == [DATA_URL],
        messages=[
            {
                "role": "user",
                "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}],
            }
        ],
    ),
    anthropic(
        "an image by address",
        lambda m, s: images(m) == ["https://x.org/a.png"],
        messages=[
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}}]}
        ],
    ),
    anthropic(
        "two texts of an answer stay apart",
        lambda m, s: (
            texts(m, "assistant") != ["One.Two."]
            or any(isinstance(x.get("content"), list) for x in m if x["role"] == "assistant")
        ),
        messages=[
            user(),
            {"role": "assistant", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]},
            user(),
        ],
    ),
    anthropic("stop sequences", lambda m, s: s.get("stop") == ["END"], stop_sequences=["END"]),
    anthropic(
        "an output schema, as it was sent",
        lambda m, s: schema(s) == SCHEMA,
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    ),
    anthropic(
        "an effort without thinking", lambda m, s: s.get("reasoning_effort") == "low", output_config={"effort": "low"}
    ),
    anthropic(
        "adaptive thinking asks for no effort", lambda m, s: "reasoning_effort" not in s, thinking={"type": "adaptive"}
    ),
    anthropic(
        "a tool, its schema as it was sent",
        lambda m, s: functions(s) == {"look": SCHEMA},
        tools=[{"name": "look", "input_schema": SCHEMA, "defer_loading": True}],
    ),
    anthropic(
        "no parallel tool calls",
        lambda m, s: s.get("parallel_tool_calls") is False,
        tools=[{"name": "look", "input_schema": SCHEMA}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    ),
    anthropic(
        "a tool call and its result, which holds an image",
        lambda m, s: calls(m) == [("look", "toolu_1")] and images(m) == [DATA_URL] and results(m) == ["Seen."],
        messages=[
            user(),
            ASKED_TOOL,
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [
                            {"type": "text", "text": "Seen."},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                        ],
                    }
                ],
            },
        ],
    ),
    anthropic(
        "a plain-text document is text",
        lambda m, s: "All of it." in "".join(texts(m, "user")),
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "All of it."}}
                ],
            }
        ],
    ),
    anthropic(
        "a PDF is a file",
        lambda m, s: files(m) == [f"data:application/pdf;base64,{PDF}"],
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}
                ],
            }
        ],
    ),
    anthropic(
        "a tool call that failed is told as one",
        lambda m, s: len(results(m)) == 1 and results(m) != ["Nothing there."],
        messages=[
            user(),
            ASKED_TOOL,
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Nothing there.", "is_error": True}
                ],
            },
        ],
    ),
    anthropic(
        "a tool that a search of the client's found is named",
        lambda m, s: "look" in "".join(results(m)),
        messages=[
            user(),
            ASKED_TOOL,
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "tool_reference", "tool_name": "look"}],
                    }
                ],
            },
        ],
    ),
    # OpenAI Responses
    responses("instructions", lambda m, s: system(m) == "Be brief.", instructions="Be brief."),
    responses(
        "developer messages stay before the user's",
        lambda m, s: [x["role"] in {"developer", "system"} for x in m] == [True, False],
        input=[
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        ],
    ),
    responses(
        "an image",
        lambda m, s: images(m) == [DATA_URL],
        input=[{"role": "user", "content": [{"type": "input_image", "image_url": DATA_URL}]}],
    ),
    responses(
        "max_output_tokens",
        lambda m, s: 64 in {s.get("max_tokens"), s.get("max_completion_tokens")},
        max_output_tokens=64,
    ),
    responses(
        "an output schema",
        lambda m, s: schema(s) == SCHEMA,
        text={"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": False}},
    ),
    responses("an effort", lambda m, s: s.get("reasoning_effort") == "low", reasoning={"effort": "low"}),
    responses(
        "a function",
        lambda m, s: functions(s) == {"look": SCHEMA},
        tools=[{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}],
    ),
    responses(
        "a custom tool has a schema",
        lambda m, s: (
            bool((functions(s).get("apply_patch") or {}).get("properties"))
            or any(t.get("type") == "custom" for t in s.get("tools") or ())
        ),
        tools=[
            {
                "type": "custom",
                "name": "apply_patch",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
            }
        ],
    ),
    responses(
        "the tools of a namespace, and a call of one under the same name",
        lambda m, s: (
            len(functions(s)) == 1
            and list(functions(s).values()) == [SCHEMA]
            and [n for n, _ in calls(m)] == [*functions(s)]
        ),
        input=[
            user(),
            {"type": "function_call", "call_id": "call_1", "namespace": "eyes", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "Seen."},
        ],
        tools=[
            {"type": "namespace", "name": "eyes", "tools": [{"type": "function", "name": "look", "parameters": SCHEMA}]}
        ],
    ),
    responses(
        "a tool call and its result",
        lambda m, s: calls(m) == [("look", "call_1")] and results(m) == ["Seen."],
        input=[
            user(),
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "Seen."},
        ],
    ),
    responses(
        "the image in a tool's result",
        lambda m, s: images(m) == [DATA_URL],
        input=[
            user(),
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [{"type": "input_image", "image_url": DATA_URL}],
            },
        ],
    ),
    responses(
        "another maker's encrypted reasoning does not travel",
        lambda m, s: "gAAAA" not in repr(m),
        input=[
            user(),
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
            user(),
        ],
    ),
    # Gemini
    gemini(
        "a system instruction",
        lambda m, s: system(m) == "Be brief.",
        systemInstruction={"role": "user", "parts": [{"text": "Be brief."}]},
    ),
    gemini(
        "the same in snake_case",
        lambda m, s: system(m) == "Be brief.",
        system_instruction={"parts": [{"text": "Be brief."}]},
    ),
    gemini(
        "an image in base64",
        lambda m, s: images(m) == [DATA_URL],
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
    ),
    gemini(
        "settings",
        lambda m, s: (
            64 in {s.get("max_tokens"), s.get("max_completion_tokens")}
            and s.get("stop") == ["END"]
            and s.get("temperature") == 0.5
        ),
        generationConfig={"maxOutputTokens": 64, "stopSequences": ["END"], "temperature": 0.5},
    ),
    gemini(
        "an output schema in Google's dialect",
        lambda m, s: schema(s) == SCHEMA,
        generationConfig={
            "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]},
        },
    ),
    gemini(
        "an output schema in JSON Schema",
        lambda m, s: schema(s) == SCHEMA,
        generationConfig={"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
    ),
    gemini(
        "a function with parametersJsonSchema",
        lambda m, s: functions(s) == {"look": SCHEMA},
        tools=[{"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]}],
    ),
    gemini(
        "a function with parameters_json_schema",
        lambda m, s: functions(s) == {"look": SCHEMA},
        tools=[{"function_declarations": [{"name": "look", "parameters_json_schema": SCHEMA}]}],
    ),
    gemini(
        "the functions that may be called",
        lambda m, s: s.get("tool_choice") not in {None, "auto"} if not isinstance(s.get("tool_choice"), dict) else True,
        tools=[{"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]}],
        toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
    ),
    gemini(
        "a call and its result",
        lambda m, s: [name for name, _ in calls(m)] == ["look"] and len(results(m)) == 1,
        contents=[
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"seen": True}}}]},
        ],
    ),
    gemini(
        "two calls of one function and their results, without ids",
        lambda m, s: len(calls(m)) == 2 and each_call_has_its_result(m),
        contents=[
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"n": n}}} for n in range(2)]},
            {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"n": n}}} for n in range(2)]},
        ],
    ),
    gemini(
        "a function's name that OpenAI would refuse",
        lambda m, s: len(functions(s)) == 1 and all(TAKEN.fullmatch(name) for name in functions(s)),
        tools=[{"functionDeclarations": [{"name": "eyes.look", "parametersJsonSchema": SCHEMA}]}],
    ),
    gemini(
        "a thought of Google's own does not travel",
        lambda m, s: "secret" not in repr(m),
        contents=[
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"text": "secret", "thought": True}, {"text": "Hi."}]},
            {"role": "user", "parts": [{"text": "Go on"}]},
        ],
    ),
    # Ollama
    ollama(
        "settings",
        lambda m, s: s.get("max_tokens") == 64 and s.get("stop") == ["END"] and s.get("seed") == 7,
        options={"num_predict": 64, "stop": ["END"], "seed": 7},
    ),
    ollama(
        "an image",
        lambda m, s: images(m) == [DATA_URL],
        messages=[{"role": "user", "content": "Look", "images": [PIXEL]}],
    ),
    ollama("an output schema", lambda m, s: schema(s) == SCHEMA, format=SCHEMA),
    ollama(
        "two calls of one tool and their results",
        lambda m, s: functions(s) == {"look": SCHEMA} and len(calls(m)) == 2 and each_call_has_its_result(m),
        messages=[
            user(),
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "look", "arguments": {"n": n}}} for n in range(2)],
            },
            *({"role": "tool", "tool_name": "look", "content": f"Seen {n}."} for n in range(2)),
        ],
        tools=[{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
    ),
    # OpenAI completions
    Case(COMPLETIONS, "a prompt", {"prompt": "Once upon"}, lambda m, s: texts(m, "user") == ["Once upon"]),
    Case(
        COMPLETIONS, "a list with one prompt", {"prompt": ["Once upon"]}, lambda m, s: texts(m, "user") == ["Once upon"]
    ),
)

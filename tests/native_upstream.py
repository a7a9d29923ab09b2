"""Model servers that speak Anthropic's Messages, OpenAI's Responses and Google's Gemini, and check what reaches them.

Each has issued signed or encrypted thoughts that must come back as they went out; a request in which they, the cache
marks or the chosen features are not what they were is refused, in the vendor's own words. `script` says what is
answered.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bench_proxy.formats.relays import Dialect

SIGNATURE = "EqQBCkgIBxABGAIiQL8+/aZ0==" * 4
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4=="
ENCRYPTED = "gAAAAABpX0+/Zq==" * 4
THOUGHT_SIGNATURE = "CsABAXLI2nx/+8k=" * 3
MARK = {"type": "ephemeral", "ttl": "1h"}
BETAS = "context-management-2025-06-27,interleaved-thinking-2025-05-14"

BODIES: Mapping[Dialect, dict[str, Any]] = {
    "messages": {
        "max_tokens": 32000,
        "metadata": {"user_id": '{"session_id":"s"}'},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "Grass is green. \u2028 \u6f22"},
                        "citations": {"enabled": True},
                    },
                    {"type": "text", "text": "Which colour?", "cache_control": MARK},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": SIGNATURE},
                    {"type": "redacted_thinking", "data": REDACTED},
                    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"b": 1, "a": [2.5]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Green.", "cache_control": MARK}
                ],
            },
        ],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}],
    },
    "responses": {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which colour? \u6f22"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": ENCRYPTED},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"b": 1}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "Green."},
        ],
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "store": False,
        "prompt_cache_key": "s",
        "client_metadata": {"a": "b"},
        "tools": [
            {"type": "function", "name": "look", "strict": False, "parameters": {"type": "object", "properties": {}}},
            {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
            {"type": "web_search", "external_web_access": True},
        ],
    },
    "gemini": {
        "contents": [
            {
                "role": "user",
                "parts": [{"text": "Which colour? \u6f22"}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}],
            },
            {
                "role": "model",
                "parts": [
                    {"functionCall": {"name": "look", "args": {"b": 1}}, "thoughtSignature": THOUGHT_SIGNATURE},
                ],
            },
            {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"it": "Green."}}}]},
        ],
        "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
        "generationConfig": {"temperature": 0.5, "topK": 64, "thinkingConfig": {"includeThoughts": True}},
        "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object"}}]}],
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    },
}
HEADERS: Mapping[Dialect, dict[str, str]] = {
    "messages": {"anthropic-beta": BETAS},
    "responses": {},
    "gemini": {},
}

CITATION = {"type": "char_location", "cited_text": "Grass is green.", "document_index": 0, "start_char_index": 0}
WHOLES: Mapping[Dialect, dict[str, Any]] = {
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [
            {"type": "thinking", "thinking": "Hm. \u2028", "signature": SIGNATURE},
            {"type": "text", "text": "Green \u6f22.", "citations": [CITATION]},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"b": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
        },
        "unheard_of": {"yet": [1, None]},
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1790000000,
        "model": "gpt-5",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": [
            {
                "type": "reasoning",
                "id": "rs_2",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": ENCRYPTED,
            },
            {
                "type": "message",
                "id": "m_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Green \u6f22.", "annotations": [], "logprobs": []}],
            },
            {
                "type": "function_call",
                "id": "fc_2",
                "call_id": "call_2",
                "name": "look",
                "arguments": '{"b":1}',
                "status": "completed",
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 130,
            "input_tokens_details": {"cached_tokens": 100},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 135,
        },
        "unheard_of": {"yet": [1, None]},
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "Hm. \u2028", "thought": True},
                        {"text": "Green \u6f22.", "thoughtSignature": THOUGHT_SIGNATURE},
                        {"functionCall": {"name": "look", "args": {"b": 1}}, "thoughtSignature": THOUGHT_SIGNATURE},
                    ],
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 130,
            "candidatesTokenCount": 2,
            "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 100,
            "totalTokenCount": 135,
        },
        "modelVersion": "gemini",
        "responseId": "r1",
        "unheardOf": {"yet": [1]},
    },
}


def _messages_events() -> list[dict[str, Any]]:
    whole = WHOLES["messages"]
    first = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "Hm. \u2028"},
                {"type": "signature_delta", "signature": SIGNATURE},
            ],
        ),
        (
            {"type": "text", "text": "", "citations": []},
            [
                {"type": "text_delta", "text": "Green \u6f22."},
                {"type": "citations_delta", "citation": CITATION},
            ],
        ),
        (
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
            [
                {"type": "input_json_delta", "partial_json": '{"b"'},
                {"type": "input_json_delta", "partial_json": ": 1}"},
            ],
        ),
    ]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": first}, {"type": "ping"}]
    for index, (block, deltas) in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]
    delta = {"stop_reason": "tool_use", "stop_sequence": None}
    return [
        *events,
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def _responses_events() -> list[dict[str, Any]]:
    whole = WHOLES["responses"]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    thought, message, _call = whole["output"]
    place = {"item_id": "m_1", "output_index": 1, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**thought, "summary": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {"type": "response.output_text.delta", **place, "delta": "Green \u6f22.", "logprobs": []},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _gemini_events() -> list[dict[str, Any]]:
    whole = WHOLES["gemini"]
    (candidate,) = whole["candidates"]
    parts = candidate["content"]["parts"]
    pieces = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}], "modelVersion": "gemini"}
        for part in parts
    ]
    end = {**whole, "candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}]}
    return [*pieces, end, {"usageMetadata": whole["usageMetadata"], "modelVersion": "gemini"}]


EVENTS: Mapping[Dialect, list[dict[str, Any]]] = {
    "messages": _messages_events(),
    "responses": _responses_events(),
    "gemini": _gemini_events(),
}


def encoded(event: object) -> bytes:
    """Characters as they are, and spaces where Python puts them: not as our own code would write it."""
    return json.dumps(event, ensure_ascii=False).encode()


def sse(dialect: Dialect, event: Mapping[str, Any]) -> bytes:
    """In the vendor's way: Google ends lines with CR LF and names no events."""
    if dialect == "gemini":
        return b"data: " + encoded(event) + b"\r\n\r\n"
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + encoded(event) + b"\n\n"


@dataclass
class Script:
    """What is answered: `status` other than 200 with `body`; a stream of `events`, after which the server ends it, or
    `breaks` the connection, or `hangs` before the one with that number. None is the dialect's own whole answer.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    events: list[bytes] | None = None
    breaks: bool = False
    hangs: int | None = None


@dataclass
class NativeServer:
    """`seen` has the path, headers and body of each request, `faults` what was wrong with them, `left` is set once a
    caller hung up.
    """

    url: str = ""
    script: Script = field(default_factory=Script)
    seen: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append((request.path_qs, headers, body))
        dialect = _dialect(request.path)
        if fault := next((fault for fault in CHECKS[dialect](headers, body) if fault), ""):
            self.faults.append(fault)
            return web.json_response(
                {"type": "error", "error": {"type": "invalid_request_error", "message": fault}}, status=400
            )
        if self.script.status != 200 or self.script.body is not None:
            said = self.script.body or b"{}"
            return web.Response(
                status=self.script.status,
                body=said,
                headers={"Content-Type": "application/json", **self.script.headers},
            )
        if body.get("stream") or "streamGenerateContent" in request.path:
            return await self._stream(request, dialect)
        return web.Response(body=encoded(WHOLES[dialect]), content_type="application/json")

    async def _stream(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        frames = self.script.events
        frames = [sse(dialect, event) for event in EVENTS[dialect]] if frames is None else frames
        for number, frame in enumerate(frames):
            if number == self.script.hangs:
                await self._until_left(request)
                return response
            # Packets end inside of characters.
            for start in range(0, len(frame), 1000):
                await response.write(frame[start : start + 1000][:7])
                await response.write(frame[start : start + 1000][7:])
        if self.script.breaks and request.transport is not None:
            request.transport.abort()
        return response

    async def _until_left(self, request: web.Request) -> None:
        while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.01)
        self.left.set()


def _dialect(path: str) -> Dialect:
    if path.endswith("/messages"):
        return "messages"
    return "responses" if path.endswith("/responses") else "gemini"


def _of_messages(headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
    sent, told = BODIES["messages"], body.get("messages")
    return [
        "" if told == sent["messages"] else f"messages are not what they were: {json.dumps(told)}",
        "" if body.get("system") == sent["system"] else "system is not what it was",
        "" if headers.get("x-api-key") == "sk-of-the-deployment" else "invalid x-api-key",
        "" if headers.get("anthropic-version") == "2023-06-01" else "anthropic-version is missing",
        "" if set(BETAS.split(",")) <= set(headers.get("anthropic-beta", "").split(",")) else "a beta is missing",
        "".join(f"{name} is not what it was; " for name in sent if body.get(name) != sent[name]),
    ]


def _of_responses(headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
    sent = BODIES["responses"]
    key = {headers.get("authorization"), headers.get("api-key")}
    return [
        "" if key & {"Bearer sk-of-the-deployment", "sk-of-the-deployment"} else "invalid key",
        "".join(f"{name} is not what it was: {body.get(name)}; " for name in sent if body.get(name) != sent[name]),
    ]


def _of_gemini(headers: Mapping[str, str], body: Mapping[str, Any]) -> list[str]:
    sent = BODIES["gemini"]
    return [
        "" if headers.get("x-goog-api-key") == "sk-of-the-deployment" else "invalid key",
        "".join(f"{name} is not what it was: {body.get(name)}; " for name in sent if body.get(name) != sent[name]),
    ]


CHECKS: Mapping[Dialect, Callable[[Mapping[str, str], Mapping[str, Any]], list[str]]] = {
    "messages": _of_messages,
    "responses": _of_responses,
    "gemini": _of_gemini,
}


@asynccontextmanager
async def serving(script: Script | None = None) -> AsyncIterator[NativeServer]:
    server = NativeServer(script=script or Script())
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()

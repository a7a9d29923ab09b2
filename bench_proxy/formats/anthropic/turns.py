"""Anthropic Messages as one model speaks them in route mode: thinking, text and calls of tools, each a block.

https://platform.claude.com/docs/en/api/messages
https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from collections.abc import Mapping
from typing import Any

import orjson

from bench_proxy.errors import BenchError
from bench_proxy.formats.anthropic import replies
from bench_proxy.formats.arguments import as_object
from bench_proxy.formats.base import Data, Envelope, Spoken, ToolCall, Usage, dumps
from bench_proxy.formats.chat.parts import text_part
from bench_proxy.formats.request import Json, ToolName

SIGNATURE = "YmVuY2gtcHJveHk="
"""What stands where clients expect a thinking block's signature: `bench-proxy` in base64.

No model signed such a block, so that Anthropic refuses it: whoever sends it there leaves it out first.
"""

CUT = frozenset({"length", "content_filter"})
"""Reasons that hold whatever was called: of an answer that broke off, the last call may be half a call."""

Tools = Mapping[str, ToolName]


def whole(envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
    content: list[Json] = [_thinking(spoken.thoughts, SIGNATURE)] if spoken.thoughts else []
    content += [text_part(spoken.text)] if spoken.text else []
    content += [_tool_use(call, envelope.tools, _input(call, envelope.tools)) for call in spoken.calls]
    reason = stop_reason(spoken.finish_reason, called=bool(spoken.calls))
    message = replies.message(envelope, content or [_nothing()], reason, usage_of(usage))
    return dumps({**message, "bench": data})


class MessagesTurn:
    """Blocks follow one another: clients put a delta to the block that was opened last, whatever its index."""

    def __init__(self, envelope: Envelope) -> None:
        self.begun = False
        self._envelope = envelope
        self._index = -1
        self._open: str | None = None
        self._last: Json | None = None
        self._takes_text = False
        self._called = False

    def begin(self) -> bytes:
        self.begun = True
        return replies.message_start(self._envelope)

    def thought(self, text: str) -> bytes:
        return self._within(_thinking("", "")) + self._delta({"type": "thinking_delta", "thinking": text})

    def text(self, text: str) -> bytes:
        return self._within(text_part("")) + self._delta({"type": "text_delta", "text": text})

    def call(self, call: ToolCall) -> bytes:
        self._called = True
        self._takes_text = _takes_text(call, self._envelope.tools)
        opened = self._next(_tool_use(call, self._envelope.tools, {}))
        return opened + self.arguments(call.arguments)

    def arguments(self, text: str) -> bytes:
        if not text:
            return b""
        self._last = None
        return self._delta(_input_delta(_wrapped(text) if self._takes_text else text))

    def call_done(self) -> bytes:
        return self._close()

    def end(self, finish_reason: str, usage: Usage, data: Data) -> bytes:
        opened = self._next(_nothing()) if self._index < 0 else b""
        reason = stop_reason(finish_reason, called=self._called)
        return opened + self._close() + replies.message_end(reason, usage_of(usage), data)

    def keep_alive(self) -> bytes:
        return replies.ping()

    def error(self, error: BenchError) -> bytes:
        return replies.event(**replies.error(error, f"req_{self._envelope.id}"))

    def _within(self, block: Json) -> bytes:
        return b"" if self._open == block["type"] else self._next(block)

    def _next(self, block: Json) -> bytes:
        closed = self._close()
        self._index += 1
        self._open = block["type"]
        self._last = LAST.get(block["type"])
        return closed + replies.event("content_block_start", index=self._index, content_block=block)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        last = self._delta(self._last) if self._last else b""
        self._open = self._last = None
        return last + replies.event("content_block_stop", index=self._index)

    def _delta(self, delta: Json) -> bytes:
        return replies.event("content_block_delta", index=self._index, delta=delta)


def stop_reason(finish_reason: str, *, called: bool) -> str:
    """Clients run the calls of an answer that stopped for them, and wait for ever for some that are not there."""
    if called and finish_reason not in CUT:
        return "tool_use"
    reason = replies.STOP_REASONS.get(finish_reason, "end_turn")
    return "end_turn" if reason == "tool_use" and not called else reason


def usage_of(usage: Usage) -> dict[str, Any]:
    """Anthropic's tokens of input are those that went past the cache, and those of output include thinking."""
    past_cache = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
    counted: dict[str, Any] = {
        "input_tokens": max(past_cache, 0),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
    details = {"output_tokens_details": {"thinking_tokens": usage.reasoning_tokens}} if usage.reasoning_tokens else {}
    return counted | details


def _nothing() -> Json:
    """The one block of an empty answer: clients take a message without any for one that broke off."""
    return text_part("")


def _thinking(thoughts: str, signature: str) -> Json:
    return {"type": "thinking", "thinking": thoughts, "signature": signature}


def _tool_use(call: ToolCall, tools: Tools, input: object) -> Json:
    known = tools.get(call.name)
    return {"type": "tool_use", "id": call.id, "name": known.name if known else call.name, "input": input}


def _takes_text(call: ToolCall, tools: Tools) -> bool:
    known = tools.get(call.name)
    return known is not None and known.custom


def _input_delta(json: str) -> Json:
    return {"type": "input_json_delta", "partial_json": json}


def _input(call: ToolCall, tools: Tools) -> orjson.Fragment:
    return orjson.Fragment(_wrapped(call.arguments)) if _takes_text(call, tools) else as_object(call.arguments)


def _wrapped(text: str) -> str:
    """The text for a custom tool: Anthropic has none, only objects."""
    return orjson.dumps({"input": text}).decode()


LAST: Mapping[str, Json] = {
    "thinking": {"type": "signature_delta", "signature": SIGNATURE},
    "tool_use": _input_delta("{}"),
}
"""The delta that stands before a block's end: of a call only where no arguments came, since no text is no JSON."""

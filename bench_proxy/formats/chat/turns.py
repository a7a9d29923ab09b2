"""OpenAI chat completions as one model speaks them in route mode: thoughts, text and calls of tools, in one message.

https://platform.openai.com/docs/api-reference/chat/object
https://platform.openai.com/docs/api-reference/chat-streaming/streaming
"""

from typing import Any

from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Data, Envelope, Spoken, ToolCall, Usage, dumps
from bench_proxy.formats.chat.replies import error_body, head, usage_of
from bench_proxy.formats.request import Json, ToolName
from bench_proxy.formats.sse import COMMENT, DONE, event


def whole(envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
    reason = spoken.finish_reason
    message = _message(envelope, spoken)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _legacy_reason(reason) if "function_call" in message else reason,
    }
    told = {**head(envelope, "chat.completion"), "choices": [choice], "usage": usage_of(usage), "bench": data}
    return dumps(told)


def _message(envelope: Envelope, spoken: Spoken) -> Json:
    named = [(call, _known_as(envelope, call)) for call in spoken.calls]
    message: dict[str, Any] = {
        "role": "assistant",
        # Empty text beside calls comes back in the next turn, and some vendors refuse it there.
        "content": spoken.text or (None if named else ""),
        "refusal": None,
    }
    if spoken.thoughts:
        message["reasoning_content"] = spoken.thoughts
    if calls := [_called(call, tool) for call, tool in named if not tool.legacy]:
        message["tool_calls"] = calls
    elif named:
        # The legacy form has room for one.
        call, tool = named[0]
        message["function_call"] = {"name": tool.name, "arguments": call.arguments}
    return message


def _known_as(envelope: Envelope, call: ToolCall) -> ToolName:
    return envelope.tools.get(call.name) or ToolName(call.name)


def _called(call: ToolCall, tool: ToolName) -> dict[str, Any]:
    kind, argument = _words(tool)
    return {"id": call.id, "type": kind, kind: {"name": tool.name, argument: call.arguments}}


def _words(tool: ToolName) -> tuple[str, str]:
    """The type of its calls, and what they call that which a tool is called with."""
    return ("custom", "input") if tool.custom else ("function", "arguments")


def _legacy_reason(reason: str) -> str:
    return "function_call" if reason == "tool_calls" else reason


REST = b',"logprobs":null,"finish_reason":null}]}\n\n'
"""What follows the delta of a chunk that is not the last."""


class ChatTurn:
    """Chunks of one choice. Some thousand make an answer, and all but the delta is the same: it is encoded once."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._head = head(envelope, "chat.completion.chunk")
        self._opening = b"data: " + dumps(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._text = self._opening + b'{"content":'
        self._thought = self._opening + b'{"reasoning_content":'
        self._arguments = self._arguments_end = b""
        self._calls = 0
        self._legacy = False

    def begin(self) -> bytes:
        # Without content: whoever gets nothing but calls has no empty text to send back, which some vendors refuse.
        return self._opening + b'{"role":"assistant"}' + REST

    def thought(self, text: str) -> bytes:
        return self._thought + dumps(text) + b"}" + REST

    def text(self, text: str) -> bytes:
        return self._text + dumps(text) + b"}" + REST

    def call(self, call: ToolCall) -> bytes:
        tool = _known_as(self._envelope, call)
        if tool.legacy:
            return self._legacy_call(tool, call)
        kind, argument = _words(tool)
        place = b'{"tool_calls":[{"index":%d,' % self._calls
        self._calls += 1
        self._arguments = self._opening + place + b'"%s":{"%s":' % (kind.encode(), argument.encode())
        self._arguments_end = b"}}]}" + REST
        return self._opening + place + dumps(_called(call, tool))[1:] + b"]}" + REST

    def arguments(self, text: str) -> bytes:
        return self._arguments + dumps(text) + self._arguments_end if self._arguments else b""

    def call_done(self) -> bytes:
        self._arguments = b""
        return b""

    def end(self, finish_reason: str, usage: Usage, data: Data) -> bytes:
        reason = finish_reason if self._calls or not self._legacy else _legacy_reason(finish_reason)
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        last = event({**self._head, "choices": [choice], "bench": data})
        # A chunk without choices breaks naive readers, so that it comes only when usage was asked for.
        counted = self._envelope.include_usage and event({**self._head, "choices": [], "usage": usage_of(usage)})
        return last + (counted or b"") + DONE

    def keep_alive(self) -> bytes:
        return COMMENT

    def error(self, error: BenchError) -> bytes:
        return event(error_body(error)) + DONE

    def _legacy_call(self, tool: ToolName, call: ToolCall) -> bytes:
        """The legacy form has room for one call: what would follow it is left out."""
        if self._legacy:
            return b""
        self._legacy = True
        self._arguments = self._opening + b'{"function_call":{"arguments":'
        self._arguments_end = b"}}" + REST
        called = {"function_call": {"name": tool.name, "arguments": call.arguments}}
        return self._opening + dumps(called) + REST

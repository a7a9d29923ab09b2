"""What every reply of Anthropic Messages is made of: the message, its events, its errors.

https://platform.claude.com/docs/en/api/messages
https://platform.claude.com/docs/en/build-with-claude/streaming
https://platform.claude.com/docs/en/api/errors
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench_proxy.errors import BenchError, ContextOverflow
from bench_proxy.formats import sse
from bench_proxy.formats.base import Envelope
from bench_proxy.formats.request import Json

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
}

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}

NO_THREAD = "thread_not_found"
"""At this code Anthropic's SDKs send the whole conversation at once, as their runners of tools have to here: those
continue it by an id unless they are told otherwise.
"""


def event(type: str, **more: Any) -> bytes:
    return sse.event({"type": type, **more}, name=type)


def message_start(envelope: Envelope) -> bytes:
    """What was used is known at the end only, where clients take it from too."""
    return event("message_start", message=message(envelope, [], None, {"input_tokens": 0, "output_tokens": 0}))


def message_end(reason: str, usage: Json, data: Json) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage=usage, bench=data) + event("message_stop")


def ping() -> bytes:
    return event("ping")


def message(
    envelope: Envelope, content: Sequence[Json], reason: str | None, usage: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "id": f"msg_{envelope.id}",
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage,
    }


def error(error: BenchError, request: str) -> dict[str, Any]:
    """The body, and the event in a stream. `request` is an id."""
    told: dict[str, Any] = {"type": ERROR_TYPES.get(error.status, "api_error"), "message": _words(error)}
    if error.code == NO_THREAD:
        told["details"] = {"error_code": NO_THREAD}
    return {"type": "error", "error": told, "request_id": request}


def _words(error: BenchError) -> str:
    """Claude Code compacts its conversation at Anthropic's own words for one that is too long, and at no others."""
    if not isinstance(error, ContextOverflow):
        return error.message
    most = f" > {error.window} maximum" if error.window else ""
    return f"prompt is too long: {error.tokens} tokens{most}"

"""What every reply of OpenAI Responses has, be it a panel's or one model's: the response object, and how a stream of
events begins, goes on and fails.

https://platform.openai.com/docs/api-reference/responses/object and
https://platform.openai.com/docs/api-reference/responses-streaming
"""

from collections.abc import Iterable, Sequence
from typing import Any

from bench_proxy.errors import BenchError
from bench_proxy.formats import sse
from bench_proxy.formats.base import Data, Envelope, Usage
from bench_proxy.formats.chat.replies import error_body
from bench_proxy.formats.responses.items import COMPLETED, IN_PROGRESS, Event, Json

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reasons of chat completions that leave an answer incomplete -> what this API calls them."""

OVERFLOW = "context_length_exceeded"
"""At this code Codex compacts its conversation, and does not ask again."""


class ReplyStream:
    """The events of one reply, numbered. `id` is the response's."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._events = 0
        self.id = f"resp_{envelope.id}"

    @property
    def begun(self) -> bool:
        return self._events > 0

    def number(self) -> int:
        """That of the next event."""
        number, self._events = self._events, self._events + 1
        return number

    def keep_alive(self) -> bytes:
        # A comment does not reset the idle timer of Codex; a lifecycle event that comes again changes nothing.
        return self._start() or self._under_way("response.in_progress")

    def error(self, error: BenchError) -> bytes:
        # Documented with the fault's fields beside `type`, sent by OpenAI with an `error` object, at which SDKs raise.
        body = error_body(error)
        beside = {name: body["error"][name] for name in ("code", "message", "param")}
        told = self._start() + self._event("error", **beside, **body)
        failed = _response(self._envelope, "failed", **{**body, "error": _failure(error), "id": self.id})
        return told + self._event("response.failed", response=failed)

    def _start(self) -> bytes:
        """What comes before all else, once."""
        if self._events:
            return b""
        return self._under_way("response.created") + self._under_way("response.in_progress")

    def _under_way(self, kind: str) -> bytes:
        return self._event(kind, response=_response(self._envelope, IN_PROGRESS, id=self.id))

    def _end(self, response: Json) -> bytes:
        return self._event(f"response.{response['status']}", response=response)

    def _write(self, events: Iterable[Event]) -> bytes:
        return b"".join([self._event(kind, **fields) for kind, fields in events])

    def _event(self, kind: str, **fields: Any) -> bytes:
        return sse.event({"type": kind, "sequence_number": self.number(), **fields}, name=kind)


def status_of(finish_reason: str) -> str:
    return "incomplete" if finish_reason in INCOMPLETE else COMPLETED


def ended(envelope: Envelope, finish_reason: str, output: Sequence[Json], usage: Usage, data: Data) -> Json:
    """The response when it is over, with all of its output. The finish reason is in the words of chat completions."""
    why = INCOMPLETE.get(finish_reason)
    return _response(
        envelope,
        status_of(finish_reason),
        incomplete_details=why and {"reason": why},
        output=output,
        usage=_usage(usage),
        bench=data,
    )


def _response(envelope: Envelope, status: str, **more: Any) -> Json:
    """A response object. Models are held to the request's settings, and none of them is repeated."""
    return {
        "id": f"resp_{envelope.id}",
        "object": "response",
        "created_at": envelope.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": envelope.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
        **more,
    }


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _failure(error: BenchError) -> Json:
    """The error of a failed response, in this API's own codes."""
    codes = {429: "rate_limit_exceeded", 413: OVERFLOW}
    known = codes.get(error.status, "invalid_prompt" if error.status < 500 else "server_error")
    # A stream has no Retry-After: clients read the wait out of this sentence.
    wait = f" Please try again in {error.retry_after}s." if error.retry_after is not None else ""
    return {"code": OVERFLOW if error.code == OVERFLOW else known, "message": error.message + wait}

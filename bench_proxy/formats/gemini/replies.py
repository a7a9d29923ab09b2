"""What Gemini's replies are made of, a panel's and a turn's: chunks, candidates and their parts, usage, errors.

https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse
https://ai.google.dev/api/generate-content#UsageMetadata
"""

from collections.abc import Sequence
from typing import Any

from bench_proxy.errors import BenchError, ContextOverflow
from bench_proxy.formats import sse
from bench_proxy.formats.base import Data, Envelope, Usage, dumps
from bench_proxy.formats.request import Json

_FINISH_REASONS = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}

_STATUS_WORDS = {
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Chunks:
    """Replies one after the other, as server-sent events or as the items of one JSON array."""

    def __init__(self, *, events: bool) -> None:
        self._events = events
        self._begun = False

    def chunk(self, value: Json) -> bytes:
        return self.relayed(dumps(value))

    def relayed(self, data: bytes) -> bytes:
        """A chunk that is written already, on one line."""
        if self._events:
            return sse.relayed(data)
        before, self._begun = b",\n" if self._begun else b"[", True
        return before + data

    def close(self) -> bytes:
        return b"" if self._events else b"]\n"


def reply(envelope: Envelope, candidates: list[Json], usage: Usage | None = None, data: Data | None = None) -> Json:
    said: dict[str, Any] = {"candidates": candidates}
    if usage is not None:
        said["usageMetadata"] = _counts(usage)
    said |= {"modelVersion": envelope.model, "responseId": envelope.id}
    return said if data is None else {**said, "bench": data}


def _counts(usage: Usage) -> Json:
    """Google counts thoughts beside the answer's tokens, and cached ones among the prompt's."""
    thoughts = min(usage.reasoning_tokens, usage.completion_tokens)
    return {
        "promptTokenCount": usage.prompt_tokens,
        **({"cachedContentTokenCount": usage.cached_tokens} if usage.cached_tokens else {}),
        "candidatesTokenCount": usage.completion_tokens - thoughts,
        **({"thoughtsTokenCount": thoughts} if thoughts else {}),
        "totalTokenCount": usage.prompt_tokens + usage.completion_tokens,
    }


def candidate(parts: Sequence[Json], index: int = 0, finish_reason: str | None = None) -> Json:
    content = {"role": "model", "parts": parts}
    if finish_reason is None:
        return {"content": content, "index": index}
    return {"content": content, "finishReason": _FINISH_REASONS.get(finish_reason, "OTHER"), "index": index}


def speech(text: str) -> Json:
    return {"text": text}


def error_body(error: BenchError) -> Json:
    """`error` comes first and `code` is a number: Google's Python SDK knows an error in a stream by that."""
    word = _STATUS_WORDS.get(error.status) or ("INVALID_ARGUMENT" if error.status < 500 else "INTERNAL")
    said: dict[str, Any] = {"code": error.status, "message": _message(error), "status": word}
    if error.retry_after is not None:
        # Where Google's own clients look; the gemini-cli reads no Retry-After.
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{error.retry_after}s"}
        said["details"] = [info]
    return {"error": said} if error.data is None else {"error": said, "bench": error.data}


def _message(error: BenchError) -> str:
    """Clients of Google's know an overflow, at which they compact, by Google's own words."""
    if not isinstance(error, ContextOverflow):
        return error.message
    most = "" if error.window is None else f" ({error.window})"
    return f"The input token count ({error.tokens}) exceeds the maximum number of tokens allowed{most}."

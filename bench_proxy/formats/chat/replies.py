"""What every reply of OpenAI's chat completions is made of: its head, what was used, its errors.

https://platform.openai.com/docs/api-reference/chat/object
https://platform.openai.com/docs/guides/error-codes
"""

from typing import Any

from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Data, Envelope, Usage


def head(envelope: Envelope, kind: str) -> Data:
    return {
        "id": f"chatcmpl-{envelope.id}",
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
    }


def usage_of(usage: Usage) -> dict[str, Any]:
    """Details only where there is something to tell: many servers never send them, and their clients cope."""
    told: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    cache = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens}
    if of_prompt := {name: tokens for name, tokens in cache.items() if tokens > 0}:
        told["prompt_tokens_details"] = of_prompt
    if usage.reasoning_tokens > 0:
        told["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return told


def error_body(error: BenchError) -> dict[str, Any]:
    body: dict[str, Any] = {
        "error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    }
    if error.data is not None:
        body["bench"] = error.data
    return body

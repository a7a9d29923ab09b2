"""An answer that is passed on as it came, in our words and in LiteLLM's: its errors, its tokens, what was said.

https://docs.anthropic.com/en/docs/build-with-claude/streaming
https://platform.openai.com/docs/api-reference/responses-streaming
https://ai.google.dev/api/generate-content
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from typing import Any

import litellm
from litellm.llms.anthropic.chat.transformation import AnthropicConfig
from litellm.llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini import VertexGeminiConfig
from litellm.responses.utils import ResponseAPILoggingUtils
from litellm.types.utils import ModelResponse, Usage

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.relays import Dialect, Relayed, Said
from bench_proxy.formats.request import Json
from bench_proxy.formats.splicing import read
from bench_proxy.formats.unchecked import inner
from bench_proxy.host.answer import Ending
from bench_proxy.host.errors import KIND_OF_STATUS, translate
from bench_proxy.host.tokens import details
from bench_proxy.upstream import NativeCall, Reply

STATUS_OF_WORD = {
    # Anthropic: https://docs.anthropic.com/en/api/errors
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "request_too_large": 413,
    "timeout_error": 504,
    # OpenAI: https://platform.openai.com/docs/guides/error-codes
    "content_policy_violation": 400,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "invalid_prompt": 400,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "server_is_overloaded": 503,
    "slow_down": 503,
    # Google: https://cloud.google.com/apis/design/errors#handling_errors
    "DEADLINE_EXCEEDED": 504,
    "FAILED_PRECONDITION": 400,
    "INTERNAL": 500,
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "UNAUTHENTICATED": 401,
    "UNAVAILABLE": 503,
}
KIND_OF_WORD = {
    "content_policy_violation": "content_policy",
    "context_length_exceeded": "context_window",
    "cyber_policy": "content_policy",
    "image_content_policy_violation": "content_policy",
}


def answered(data: bytes) -> Relayed:
    """An event, or a whole answer. Raises UpstreamError for what is none, and for one that is an error or has one."""
    body = read(data)
    if (error := _error_in(body)) is not None:
        raise _error_said(error)
    return Relayed(data, body)


def _error_in(body: Json) -> object:
    if body.get("type") == "error":
        return body.get("error") or {**body, "type": None}
    response = inner(body, "response") or body
    failed = body.get("type") == "response.failed" or response.get("status") == "failed"
    return response.get("error") or ("the response failed" if failed else None)


def _error_said(error: object) -> UpstreamError:
    """An error that came inside a 200, in our words."""
    fields: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": error}
    words = [fields.get(name) for name in ("code", "type", "status")]
    status = next((status for word in words if (status := _status(word))), 500)
    message = fields.get("message") or next((word for word in words if isinstance(word, str)), "")
    said = translate(litellm.APIError(status, str(message or "the model's server failed"), "", ""))
    kind = KIND_OF_STATUS.get(status, said.kind) if said.kind == "server_error" else said.kind
    kind = next((KIND_OF_WORD[word] for word in words if word in KIND_OF_WORD), kind)
    return UpstreamError(
        kind, said.status, said.message, retry_after=said.retry_after, context_window=said.context_window
    )


def _status(word: object) -> int | None:
    if isinstance(word, int) or (isinstance(word, str) and word.isdecimal()):
        return int(word) if 400 <= int(word) < 600 else None
    if not isinstance(word, str):
        return None
    return STATUS_OF_WORD.get(word, 400 if word in KIND_OF_WORD else None)


async def data_in(lines: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The data of server-sent events, each on one line, as these servers send them.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    async for line in lines:
        if line.startswith(b"data:") and (data := line[5:].strip()) and data != b"[DONE]":
            yield data


def hear_whole(call: NativeCall, data: bytes) -> None:
    """Understand an answer that came at once. Raises UpstreamError for what is none."""
    call.hearing.whole(answered(data).body)
    if not call.hearing.ended:
        raise UpstreamError("bad_response", 502, "the model's server answered with what is no answer")


def usage_of(call: NativeCall) -> Usage | None:
    """The tokens of its answer in the terms of chat completions, as far as what it says of them can be read; None where
    it says of none.
    """
    said = call.hearing.said
    used = _stated(said.usage)
    usage = _usage(call.dialect, used, said)
    if usage is None:
        read = {name: value for name, value in used.items() if _usage(call.dialect, {name: value}, said) is not None}
        usage = _usage(call.dialect, read, said)
    return usage if usage and (usage.prompt_tokens or usage.completion_tokens) else None


def _stated(value: Any) -> Any:
    """JSON without `null`, by which some servers say that they have not counted."""
    if isinstance(value, dict):
        return {name: _stated(one) for name, one in value.items() if one is not None}
    return [_stated(one) for one in value if one is not None] if isinstance(value, list) else value


def _usage(dialect: Dialect, used: Json, said: Said) -> Usage | None:
    try:
        return USAGES[dialect](used, said)
    except Exception:  # noqa: BLE001  LiteLLM's functions raise anything, and the answer is there
        return None


def reply_of(said: Said, usage: Usage | None, cost: float | None) -> Reply:
    return Reply(
        text=said.text,
        finish_reason=said.finish_reason,
        # LiteLLM writes zeros where the server said nothing.
        prompt_tokens=getattr(usage, "prompt_tokens", None) or None,
        completion_tokens=getattr(usage, "completion_tokens", None) or None,
        cost=cost,
        reasoned=bool(said.thoughts),
        **details(usage),
    )


def in_litellms_objects(said: Said, usage: Usage | None, model: str) -> ModelResponse:
    """The whole answer, for LiteLLM's callbacks."""
    calls = [
        {"index": index, "id": call.id, "function": {"name": call.name, "arguments": piece}}
        for index, call in enumerate(said.calls)
        for piece in call.arguments or ("{}",)
    ]
    delta = {"content": said.text, "reasoning_content": "".join(said.thoughts), "tool_calls": calls}
    ending = Ending()
    ending.heard({"choices": [{"delta": delta, "finish_reason": said.finish_reason}], "usage": usage})
    return ending.answer(model)


def _of_responses(used: Json) -> Usage:
    """LiteLLM takes what has not all of these for a usage of chat completions, as some servers state it here too."""
    expected = {} if "prompt_tokens" in used else {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    return ResponseAPILoggingUtils.transform_response_api_usage_to_chat_usage({**expected, **used})


def _of_gemini(used: Json, grounding: list[Json]) -> Usage:
    candidates = [{"groundingMetadata": one} for one in grounding]
    usage = VertexGeminiConfig.calculate_usage({"usageMetadata": used, "candidates": candidates})
    VertexGeminiConfig.set_grounding_usage_counters(usage, grounding)
    return usage


USAGES: Mapping[Dialect, Callable[[Json, Said], Usage]] = {
    "messages": lambda used, _: AnthropicConfig().calculate_usage(used, None),
    "responses": lambda used, _: _of_responses(used),
    "gemini": lambda used, said: _of_gemini(used, said.grounding),
}

"""What a server says in its own format of the end, the error and the tokens of an answer that is passed on as it came.

https://docs.anthropic.com/en/docs/build-with-claude/streaming
https://platform.openai.com/docs/api-reference/responses-streaming
https://ai.google.dev/api/generate-content
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import Any

import litellm
from litellm.litellm_core_utils.core_helpers import map_finish_reason
from litellm.llms.anthropic.chat.transformation import AnthropicConfig
from litellm.types.utils import ModelResponse, Usage

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.relays import Dialect
from bench_proxy.host.answer import MISREAD, Ending
from bench_proxy.host.errors import KIND_OF_STATUS, translate

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


def error_said(error: object) -> UpstreamError:
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


class Hearing(ABC):
    """Listens to one answer. `ended`: its end has come; `over`: nothing comes after it either.

    Both ways to hear raise UpstreamError for an error that the answer is or has.
    """

    def __init__(self) -> None:
        self.ended = False
        self.over = False
        self._ending = Ending()
        self._usage: dict[str, Any] = {}

    @abstractmethod
    def event(self, event: Mapping[str, Any]) -> None:
        """One event of a stream."""

    @abstractmethod
    def whole(self, body: Mapping[str, Any]) -> None:
        """All of it at once."""

    @abstractmethod
    def usage(self) -> Usage:
        """Its tokens in the terms of chat completions; raises whatever what it said of them leads to."""

    def answer(self, model: str) -> ModelResponse:
        """The whole of it in LiteLLM's object, for its callbacks and the cost."""
        try:
            self._ending.usage = self.usage() if self._usage else None
        except MISREAD:
            self._ending.usage = None
        return self._ending.answer(model)

    def _said(self, **delta: object) -> None:
        """Only what is text: the rest of an odd piece is its reader's business."""
        told = {name: value for name, value in delta.items() if isinstance(value, str | list)}
        self._ending.heard({"choices": [{"delta": told}]})

    def _called(self, name: object = None, arguments: object = None, **more: object) -> None:
        self._said(tool_calls=[{**more, "function": {"name": name, "arguments": arguments}}])

    def _finished(self, reason: object) -> None:
        if isinstance(reason, str):
            self._ending.heard({"choices": [{"finish_reason": map_finish_reason(reason)}]})


class OfMessages(Hearing):
    def __init__(self) -> None:
        super().__init__()
        self._calls = -1

    def event(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "error":
                raise error_said(event.get("error"))
            case "message_start":
                self._counted(event["message"].get("usage"))
            case "content_block_start":
                self._block(event["content_block"], arguments="")
            case "content_block_delta":
                self._delta(event["delta"])
            case "message_delta":
                self._counted(event.get("usage"))
                self._finished((event.get("delta") or {}).get("stop_reason"))
            case "message_stop":
                self.ended = self.over = True

    def whole(self, body: Mapping[str, Any]) -> None:
        if body.get("type") == "error":
            raise error_said(body.get("error"))
        for block in body["content"]:
            self._block(block, arguments=block.get("input"))
        self._counted(body.get("usage"))
        self._finished(body.get("stop_reason"))

    def usage(self) -> Usage:
        return AnthropicConfig().calculate_usage(self._usage, None, speed=self._usage.get("speed"))

    def _block(self, block: Mapping[str, Any], arguments: object) -> None:
        if block.get("type") == "tool_use":
            self._calls += 1
            self._called(block.get("name"), arguments, index=self._calls, id=block.get("id"))
        self._said(content=block.get("text"), reasoning_content=block.get("thinking"))

    def _delta(self, delta: Mapping[str, Any]) -> None:
        if delta.get("type") == "input_json_delta":
            self._called(None, delta.get("partial_json"), index=self._calls)
        self._said(content=delta.get("text"), reasoning_content=delta.get("thinking"))

    def _counted(self, usage: Mapping[str, Any] | None) -> None:
        self._usage |= {name: value for name, value in (usage or {}).items() if value is not None}


class OfResponses(Hearing):
    """The last event has the whole response, and so the others need not be listened to."""

    def event(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "error":
                raise error_said(event.get("error") or {**event, "type": None})
            case "response.failed":
                raise error_said((event.get("response") or {}).get("error") or "the response failed")
            case "response.completed" | "response.incomplete":
                self.whole(event["response"])
                self.ended = self.over = True

    def whole(self, body: Mapping[str, Any]) -> None:
        if body.get("status") == "failed" or body.get("error"):
            raise error_said(body.get("error") or "the response failed")
        finish = "stop"
        for index, item in enumerate(body["output"]):
            if item.get("type") in {"function_call", "custom_tool_call"}:
                finish = "tool_calls"
                self._called(item.get("name"), item.get("arguments"), index=index, id=item.get("call_id"))
            for part in item.get("summary") or ():
                self._said(reasoning_content=part.get("text"))
            for part in item.get("content") or () if item.get("type") == "message" else ():
                self._said(content=part.get("text"))
        incomplete = (body.get("incomplete_details") or {}).get("reason")
        self._finished({None: finish, "max_output_tokens": "length"}.get(incomplete, incomplete))
        self._usage = dict(body.get("usage") or {})

    def usage(self) -> Usage:
        read, thought = (self._usage.get(f"{way}_tokens_details") or {} for way in ("input", "output"))
        return Usage(
            prompt_tokens=self._usage["input_tokens"],
            completion_tokens=self._usage["output_tokens"],
            total_tokens=self._usage["input_tokens"] + self._usage["output_tokens"],
            prompt_tokens_details={"cached_tokens": read.get("cached_tokens") or 0},
            completion_tokens_details={"reasoning_tokens": thought.get("reasoning_tokens") or 0},
        )


class OfGemini(Hearing):
    """A chunk may follow the one that has the finish reason: only the end of the stream is its end."""

    def event(self, event: Mapping[str, Any]) -> None:
        if event.get("error"):
            raise error_said(event["error"])
        for candidate in (event.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                self._part(part)
            if reason := candidate.get("finishReason"):
                self.ended = True
                self._finished(reason)
        if not event.get("candidates") and (event.get("promptFeedback") or {}).get("blockReason"):
            self.ended = True
            self._finished("content_filter")
        self._usage = dict(event.get("usageMetadata") or self._usage)

    def whole(self, body: Mapping[str, Any]) -> None:
        if not body.keys() & {"candidates", "error", "promptFeedback"}:
            raise KeyError("candidates")
        self.event(body)

    def usage(self) -> Usage:
        count = {name: value for name, value in self._usage.items() if isinstance(value, int)}
        thought = count.get("thoughtsTokenCount", 0)
        prompt = count.get("promptTokenCount", 0) + count.get("toolUsePromptTokenCount", 0)
        completion = count.get("candidatesTokenCount", 0) + thought
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            total_tokens=prompt + completion,
            prompt_tokens_details={"cached_tokens": count.get("cachedContentTokenCount", 0)},
            completion_tokens_details={"reasoning_tokens": thought},
        )

    def _part(self, part: Mapping[str, Any]) -> None:
        if call := part.get("functionCall"):
            self._called(call.get("name"), call.get("args"), id=call.get("id"))
        elif part.get("thought"):
            self._said(reasoning_content=part.get("text"))
        else:
            self._said(content=part.get("text"))


HEARINGS: Mapping[Dialect, type[Hearing]] = {"messages": OfMessages, "responses": OfResponses, "gemini": OfGemini}

"""The answers of a bench request as LiteLLM's own, whole and in pieces, for the hooks that read them, and back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import UserAPIKeyAuth
from litellm.types.utils import (
    Choices,
    Delta,
    Message,
    ModelResponse,
    ModelResponseStream,
    PromptTokensDetailsWrapper,
    StreamingChoices,
)

from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Spoken, ToolCall, Usage

WHOLE = "async_post_call_success_hook"
PIECES = ("async_post_call_streaming_iterator_hook", "async_post_call_streaming_hook")
"""The hooks that read answers: whole ones, and those that are streamed."""

READ_AT_ONCE = 32
"""Pieces of a hook's that are read before others have their turn, the limit of its time among them: one that never ends
and waits for nothing would keep everybody else from the event loop.
"""

MOST_LEFT = 8 * 1024 * 1024
"""Characters that a hook may make of an answer."""


def overrides(callback: object, hook: str) -> bool:
    return getattr(type(callback), hook, None) is not getattr(CustomLogger, hook)


def reads_pieces_alone(callback: object) -> bool:
    """Whether nothing but a stream is shown to it. LiteLLM itself calls `apply_guardrail` for whole answers too."""
    applied = "apply_guardrail" in type(callback).__dict__ and not getattr(
        callback, "use_native_lifecycle_hooks", False
    )
    return not (applied or overrides(callback, WHOLE)) and any(overrides(callback, hook) for hook in PIECES)


def observes(callback: object) -> bool:
    """Whether it reads answers and changes none: tracing, for which no stream need be held back."""
    return type(callback).__module__.startswith("litellm.integrations.otel.")


def response_of(model: str, answers: Sequence[Spoken], usage: Usage) -> ModelResponse:
    """The answers as one of LiteLLM's, a choice each."""
    response = ModelResponse(
        model=model,
        choices=[
            Choices(
                index=index,
                finish_reason=answer.finish_reason,
                message=Message(
                    content=answer.text,
                    role="assistant",
                    reasoning_content=answer.thoughts or None,
                    tool_calls=_calls(answer) or None,
                ),
            )
            for index, answer in enumerate(answers)
        ],
    )
    total = usage.prompt_tokens + usage.completion_tokens
    response.usage = litellm.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=total,
        prompt_tokens_details=PromptTokensDetailsWrapper(cached_tokens=usage.cached_tokens),
    )
    return response


def said_by(response: object, answers: Sequence[Spoken]) -> list[Spoken]:
    """The answers as the hooks left them. Raises BenchError when it is not told which is which any more."""
    choices = getattr(response, "choices", None)
    if not isinstance(choices, list) or len(choices) != len(answers):
        raise _something_else()
    if not all(isinstance(getattr(choice.message, "content", 0), str | None) for choice in choices):
        raise _something_else()
    return [
        replace(
            answer,
            text=choice.message.content or "",
            thoughts=getattr(choice.message, "reasoning_content", None) or "",
            calls=tuple(
                ToolCall(call.id, call.function.name or "", call.function.arguments)
                for call in choice.message.tool_calls or ()
            ),
        )
        for choice, answer in zip(choices, answers, strict=True)
    ]


async def read_in_pieces(
    callback: CustomLogger, model: str, answer: Spoken, key: UserAPIKeyAuth, data: dict[str, Any]
) -> Spoken:
    """One answer as a callback leaves it that reads streams. Raises what the callback raises; BenchError when it makes
    something else of it.
    """
    stream = callback.async_post_call_streaming_iterator_hook(
        user_api_key_dict=key, response=_streamed(model, answer), request_data=data
    )
    left = _Left()
    async with AsyncExitStack() as stack:
        if (close := getattr(stream, "aclose", None)) is not None:
            stack.push_async_callback(close)
        read = 0
        async for chunk in stream:
            left.add(chunk)
            read += 1
            if read % READ_AT_ONCE == 0:
                await asyncio.sleep(0)
    if overrides(callback, "async_post_call_streaming_hook"):
        # It is shown all that was said so far, with each piece; this is the last one.
        piece = await callback.async_post_call_streaming_hook(user_api_key_dict=key, response=left.text)
        left.text = _text_of(piece, left.text)
    return replace(answer, text=left.text, thoughts=left.thoughts, calls=tuple(left.calls.values()))


@dataclass(slots=True)
class _Left:
    """What a hook leaves of an answer, put together from its pieces."""

    size: int = 0
    text: str = ""
    thoughts: str = ""
    calls: dict[int, ToolCall] = field(default_factory=dict)

    def add(self, chunk: object) -> None:
        if not isinstance(chunk, ModelResponseStream):
            raise _something_else()
        for choice in chunk.choices:
            self.size += len(choice.delta.content or "")
            if self.size > MOST_LEFT:
                raise _something_else()
            self.text += choice.delta.content or ""
            self.thoughts += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or ():
                known, function = self.calls.get(call.index, ToolCall("", "")), call.function
                self.calls[call.index] = ToolCall(
                    known.id or call.id or "",
                    known.name + (function.name or ""),
                    known.arguments + (function.arguments or ""),
                )


def _text_of(piece: object, shown: str) -> str:
    """What a hook leaves in the place of the text that it was shown: text, a piece of LiteLLM's, or nothing new."""
    if piece is None:
        return shown
    if isinstance(piece, str):
        return piece
    left = _Left()
    left.add(piece)
    return left.text


async def _streamed(model: str, answer: Spoken) -> AsyncIterator[ModelResponseStream]:
    calls = [{"index": index, **call} for index, call in enumerate(_calls(answer))]
    thoughts = answer.thoughts or None
    delta = Delta(content=answer.text, role="assistant", reasoning_content=thoughts, tool_calls=calls or None)
    yield ModelResponseStream(model=model, choices=[StreamingChoices(index=0, delta=delta)])
    end = StreamingChoices(index=0, delta=Delta(), finish_reason=answer.finish_reason)
    yield ModelResponseStream(model=model, choices=[end])


def _calls(answer: Spoken) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]


def _something_else() -> BenchError:
    return BenchError("a hook of this proxy left something else in the place of an answer; its operator has to look")

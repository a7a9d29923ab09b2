"""The answers of a bench request as LiteLLM's own, whole and in pieces, for the hooks that read them, and back."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
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


def overrides(callback: object, hook: str) -> bool:
    return getattr(type(callback), hook, None) is not getattr(CustomLogger, hook)


def reads_pieces_alone(callback: object) -> bool:
    """Whether nothing but a stream is shown to it. LiteLLM itself calls `apply_guardrail` for whole answers too."""
    whole = overrides(callback, WHOLE) or "apply_guardrail" in type(callback).__dict__
    return not whole and any(overrides(callback, hook) for hook in PIECES)


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
        raise _made_something_else(len(answers))
    if not all(isinstance(getattr(choice.message, "content", 0), str | None) for choice in choices):
        raise _made_something_else(len(answers))
    return [
        replace(
            answer,
            text=choice.message.content or "",
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
    text, calls = "", dict[int, ToolCall]()
    stream = callback.async_post_call_streaming_iterator_hook(
        user_api_key_dict=key, response=_streamed(model, answer), request_data=data
    )
    async for chunk in stream:
        if not isinstance(chunk, ModelResponseStream):
            raise _made_something_else(1)
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                known = calls.get(call.index, ToolCall("", ""))
                function = call.function
                calls[call.index] = ToolCall(
                    known.id or call.id or "",
                    known.name + (function.name or ""),
                    known.arguments + (function.arguments or ""),
                )
    if overrides(callback, "async_post_call_streaming_hook"):
        # It is shown all that was said so far, with each piece; this is the last one.
        left = await callback.async_post_call_streaming_hook(user_api_key_dict=key, response=text)
        if not isinstance(left, str | None):
            raise _made_something_else(1)
        text = text if left is None else left
    return replace(answer, text=text, calls=tuple(calls.values()))


async def _streamed(model: str, answer: Spoken) -> AsyncIterator[ModelResponseStream]:
    calls = [{"index": index, **call} for index, call in enumerate(_calls(answer))]
    delta = Delta(content=answer.text, role="assistant", tool_calls=calls or None)
    yield ModelResponseStream(model=model, choices=[StreamingChoices(index=0, delta=delta)])
    end = StreamingChoices(index=0, delta=Delta(), finish_reason=answer.finish_reason)
    yield ModelResponseStream(model=model, choices=[end])


def _calls(answer: Spoken) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]


def _made_something_else(answers: int) -> BenchError:
    return BenchError(f"a hook of this proxy made something else of {answers} answers; its operator has to look")

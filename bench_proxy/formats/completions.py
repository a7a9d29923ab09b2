"""OpenAI's legacy completions.

https://platform.openai.com/docs/api-reference/completions
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator

from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Alternative, Data, Envelope, Usage, Wish, dumps
from bench_proxy.formats.chat import ChatFormat, ChatStream, error_body, usage_of
from bench_proxy.formats.checking import NO_GAPS, Strict, checked, refused
from bench_proxy.formats.request import ChatRequest

CHAT = ChatFormat()


def _one_prompt(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list):
        raise ValueError("should be a text")
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return prompt[0]
    if prompt and not isinstance(prompt[0], str):
        raise ValueError("should be a text: token numbers mean something else to each model of a panel")
    raise ValueError(f"holds {len(prompt)} prompts, and a panel answers one; send a request for each")


def _no_logprobs(count: int | None) -> None:
    if count is not None:
        raise ValueError("the answers of several models have no probabilities in common; leave logprobs out")


def _best_of_one(count: int | None) -> None:
    if count not in {None, 1}:
        raise ValueError("each model of a panel is asked once, and you judge which is best; leave best_of out")


class Body(Strict):
    """The fields that a chat does not have. All others are a chat's own."""

    prompt: Annotated[Any, AfterValidator(_one_prompt)]
    suffix: Annotated[str | None, NO_GAPS] = None
    echo: Annotated[
        bool | None, refused("the models here answer the prompt and do not continue it; leave echo out")
    ] = None
    best_of: Annotated[int | None, AfterValidator(_best_of_one)] = None
    logprobs: Annotated[int | None, AfterValidator(_no_logprobs)] = None


class CompletionsFormat:
    content_type = CHAT.content_type
    stream_content_type = CHAT.stream_content_type

    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        """A completion is a chat of one message: the models behind a panel know nothing else."""
        own = checked(Body, body)
        rest = {name: value for name, value in body.items() if name not in Body.model_fields}
        request, wish = CHAT.read({**rest, "messages": [{"role": "user", "content": own.prompt}]})
        # Whoever says how many choices there should be looks at all of them; others read the first.
        return request, replace(wish, alternatives=body.get("n") is not None)

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes:
        choices = [_choice(answer.text, index, answer.finish_reason) for index, answer in enumerate(answers)]
        return dumps({**_head(envelope), "choices": choices, "usage": usage_of(usage), "bench": data})

    def stream(self, envelope: Envelope) -> "CompletionsStream":
        return CompletionsStream(_head(envelope), envelope.include_usage)

    def error(self, error: BenchError) -> bytes:
        return dumps(error_body(error))


class CompletionsStream(ChatStream):
    def _choice(self, delta: Data, index: int, finish_reason: str | None) -> Data:
        return _choice(delta.get("content", ""), index, finish_reason)


REASONS = frozenset({"stop", "length", "content_filter"})


def _choice(text: str, index: int, finish_reason: str | None) -> Data:
    reason = finish_reason if finish_reason is None or finish_reason in REASONS else "stop"
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


def _head(envelope: Envelope) -> Data:
    return {
        "id": f"cmpl-{envelope.id}",
        "object": "text_completion",
        "created": envelope.created,
        "model": envelope.model,
    }

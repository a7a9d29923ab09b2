"""OpenAI's legacy completions.

https://platform.openai.com/docs/api-reference/completions
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator

from bench_proxy.errors import BenchError, InvalidRequest
from bench_proxy.formats.base import Alternative, Data, Envelope, Spoken, ToolCall, TurnStream, Usage, Wish, dumps
from bench_proxy.formats.chat.format import TOOLS, ChatFormat, ChatStream
from bench_proxy.formats.chat.replies import error_body, usage_of
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
        _refuse_tools(request)
        # Whoever says how many choices there should be looks at all of them; others read the first.
        return request, replace(wish, alternatives=body.get("n") is not None, thoughts=False)

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes:
        choices = [_choice(answer.text, index, answer.finish_reason) for index, answer in enumerate(answers)]
        return dumps({**_head(envelope), "choices": choices, "usage": usage_of(usage), "bench": data})

    def stream(self, envelope: Envelope) -> "CompletionsStream":
        return CompletionsStream(_head(envelope), envelope.include_usage)

    def spoken(self, envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
        return self.whole(envelope, [Alternative(spoken.text, spoken.finish_reason)], usage, data)

    def turn(self, envelope: Envelope) -> TurnStream:
        return CompletionsTurn(self.stream(envelope))

    def error(self, error: BenchError) -> bytes:
        return dumps(error_body(error))


def _refuse_tools(request: ChatRequest) -> None:
    for name in TOOLS:
        if request.settings.get(name):
            raise InvalidRequest(
                f"{name} cannot be used here, as a completion has no place for a call of one; send the request to"
                " /v1/chat/completions, with a model name that ends in :route",
                param=name,
            )


class CompletionsStream(ChatStream):
    def _choice(self, delta: Data, index: int, finish_reason: str | None) -> Data:
        return _choice(delta.get("content", ""), index, finish_reason)


class CompletionsTurn:
    """The text of one model's answer. There is no place for more than text, and no tool can be asked for."""

    def __init__(self, stream: CompletionsStream) -> None:
        self._stream = stream

    def begin(self) -> bytes:
        return self._stream.begin()

    def thought(self, text: str) -> bytes:
        return b""

    def text(self, text: str) -> bytes:
        return self._stream.text(text)

    def call(self, call: ToolCall) -> bytes:
        return b""

    def arguments(self, text: str) -> bytes:
        return b""

    def call_done(self) -> bytes:
        return b""

    def end(self, finish_reason: str, usage: Usage, data: Data) -> bytes:
        return self._stream.end([finish_reason], usage, data)

    def keep_alive(self) -> bytes:
        return self._stream.keep_alive()

    def error(self, error: BenchError) -> bytes:
        return self._stream.error(error)


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

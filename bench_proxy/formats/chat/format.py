"""OpenAI chat completions.

https://platform.openai.com/docs/api-reference/chat
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Alternative, Data, Envelope, Spoken, TurnStream, Usage, Wish, dumps
from bench_proxy.formats.chat import turns
from bench_proxy.formats.chat.replies import error_body, head, usage_of
from bench_proxy.formats.chat.tools import nested, nested_choice, tool_names
from bench_proxy.formats.checking import MOST_MESSAGES, MOST_PARTS, Integer, Many, Number, Strict, checked, given
from bench_proxy.formats.request import ChatRequest
from bench_proxy.formats.sse import COMMENT, CONTENT_TYPE, DONE, event

OURS = frozenset({"model", "messages", "stream", "stream_options", "bench", "with"})
HARMLESS = frozenset({"store", "metadata"})
"""Taken and not passed on: they are about one vendor's bookkeeping, and a panel has several vendors."""
TOOLS = ("tools", "functions")
TOOL_SETTINGS = frozenset({*TOOLS, "tool_choice", "function_call", "parallel_tool_calls"})


def _numbers(biases: dict[str, Any]) -> dict[str, Any]:
    for token, bias in biases.items():
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise ValueError(f"the bias of {token[:40]!r} should be a number")
    return biases


class StreamOptions(Strict):
    include_usage: bool | None = None


class Part(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: str
    text: str | None = None


class Message(BaseModel):
    model_config = ConfigDict(extra="allow")
    role: str
    content: str | Annotated[Many[Part], Field(max_length=MOST_PARTS)] | None = None


class Body(BaseModel):
    """The fields whose types we answer for; all others are the models' business and pass as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    messages: Annotated[Many[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    max_tokens: Annotated[Integer, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[Integer, Field(ge=1)] | None = None
    n: Annotated[Integer, Field(ge=1)] | None = None
    seed: Integer | None = None
    stop: str | Many[str] | None = None
    logit_bias: Annotated[dict[str, Any], AfterValidator(_numbers)] | None = None
    logprobs: bool | None = None
    top_logprobs: Integer | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    tools: Many[dict[str, Any]] | None = None
    functions: Many[dict[str, Any]] | None = None
    modalities: Many[str] | None = None
    audio: dict[str, Any] | None = None


class ChatFormat:
    content_type = "application/json"
    stream_content_type = CONTENT_TYPE

    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        asked = checked(Body, body)
        # An empty list of tools is no tools; what only steers tools goes with it, since vendors refuse it alone.
        left_out = OURS | HARMLESS | (frozenset() if any(body.get(t) for t in TOOLS) else TOOL_SETTINGS)
        settings = {name: value for name, value in given(body).items() if name not in left_out}
        if tools := [nested(tool) for tool in settings.get("tools", ())]:
            settings["tools"] = tools
        if "tool_choice" in settings:
            settings["tool_choice"] = nested_choice(settings["tool_choice"])
        usage = bool(asked.stream_options and asked.stream_options.include_usage)
        names = tool_names(tools, settings.get("functions", ()))
        return ChatRequest(body["messages"], settings, names), Wish(bool(asked.stream), usage)

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes:
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": answer.text, "refusal": None},
                "logprobs": None,
                "finish_reason": answer.finish_reason,
            }
            for index, answer in enumerate(answers)
        ]
        told = {**head(envelope, "chat.completion"), "choices": choices, "usage": usage_of(usage), "bench": data}
        return dumps(told)

    def stream(self, envelope: Envelope) -> "ChatStream":
        return ChatStream(head(envelope, "chat.completion.chunk"), envelope.include_usage)

    def spoken(self, envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
        return turns.whole(envelope, spoken, usage, data)

    def turn(self, envelope: Envelope) -> TurnStream:
        return turns.ChatTurn(envelope)

    def error(self, error: BenchError) -> bytes:
        return dumps(error_body(error))


class ChatStream:
    """Chunks that begin with `head`, each with one choice."""

    def __init__(self, head: Data, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage

    def begin(self, index: int = 0) -> bytes:
        # OpenAI's own SDK puts together only choices that begin in the order of their indices.
        return self._chunk({"role": "assistant", "content": ""}, index)

    def text(self, text: str, index: int = 0) -> bytes:
        return self._chunk({"content": text}, index)

    def done(self, index: int = 0) -> bytes:
        return b""

    def end(self, finish_reasons: Sequence[str], usage: Usage, data: Data) -> bytes:
        *others, last_reason = finish_reasons
        last = b"".join(self._chunk({}, i, finish_reason=reason) for i, reason in enumerate(others))
        last += self._chunk({}, len(others), finish_reason=last_reason, bench=data)
        # A chunk without choices breaks naive readers, so that it comes only when usage was asked for.
        counted = event({**self._head, "choices": [], "usage": usage_of(usage)}) if self._include_usage else b""
        return last + counted + DONE

    def keep_alive(self) -> bytes:
        return COMMENT

    def error(self, error: BenchError) -> bytes:
        return event(error_body(error)) + DONE

    def _chunk(self, delta: Data, index: int = 0, finish_reason: str | None = None, **more: Any) -> bytes:
        return event({**self._head, "choices": [self._choice(delta, index, finish_reason)], **more})

    def _choice(self, delta: Data, index: int, finish_reason: str | None) -> Data:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

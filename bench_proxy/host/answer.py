"""What a provider answers, whole or streamed, read as LiteLLM reads it; what cannot be read is a bad response."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from http import HTTPStatus
from typing import Any

import aiohttp
import httpx
import orjson
from litellm.litellm_core_utils.core_helpers import map_finish_reason
from litellm.litellm_core_utils.prompt_templates.common_utils import extract_reasoning_content
from litellm.llms.anthropic.chat.handler import ModelResponseIterator as AnthropicStream
from litellm.llms.anthropic.chat.transformation import ANTHROPIC_TOOL_NAME_REVERSE_MAP_KEY
from litellm.llms.openai.chat.gpt_transformation import OpenAIChatCompletionStreamingHandler
from litellm.types.utils import ModelResponse, Usage
from pydantic import BaseModel

from bench_proxy.errors import UpstreamError
from bench_proxy.host.calls import gathered, pieces
from bench_proxy.host.errors import LONGEST_READ, said_in
from bench_proxy.host.request import Request, Target
from bench_proxy.host.tokens import details
from bench_proxy.upstream import CallPiece, Reply, Text, Thought

REST_SECONDS = 0.05
"""How long the end of a response is waited for when its stream has ended."""

LONGEST_LINE = 8 * 1024 * 1024
LARGEST_BODY = 32 * 1024 * 1024

WITHOUT_DATA = (b":", b"event:", b"id:", b"retry:")
"""Lines of an event stream of which LiteLLM's parsers make pieces without anything in them.
https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

SAYING = ("content", "function_call", "reasoning_content", "refusal", "tool_calls")
"""Fields of a piece of an answer that LiteLLM's parsers fill."""

MISREAD = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading an answer ends in that does not have the form of one."""


@contextmanager
def reading() -> Iterator[None]:
    """Around the reading of an answer, and of nothing else: what it trips over is the server's doing."""
    try:
        yield
    except aiohttp.ClientError:  # some of them are ValueErrors too
        raise
    except MISREAD as error:
        words = "the model's server answered with what is no chat completion"
        raise UpstreamError("bad_response", 502, words) from error


async def body_of(response: aiohttp.ClientResponse) -> bytes:
    """The whole answer, unless it is larger than any answer is."""
    parts: list[bytes] = []
    size = 0
    async for data in response.content.iter_any():
        parts.append(data)
        size += len(data)
        if size > LARGEST_BODY:
            raise UpstreamError("bad_response", 502, f"the answer is larger than {LARGEST_BODY // 2**20} MB")
    return b"".join(parts)


def check(target: Target, response: aiohttp.ClientResponse, body: bytes) -> None:
    """Raise what LiteLLM's provider code makes of an error; nobody is followed to another address."""
    if response.status >= HTTPStatus.BAD_REQUEST:
        headers = httpx.Headers(list(response.raw_headers))
        text = body.decode(errors="replace")
        # OpenAI's SDK hands LiteLLM the message inside; the others give it the body as it came. LiteLLM's search of a
        # message of megabytes would hold the event loop for seconds.
        said = said_in(text)[:LONGEST_READ] if target.provider == "openai" or len(text) > LONGEST_READ else text
        raise target.config.get_error_class(error_message=said, status_code=response.status, headers=headers)
    if response.status >= HTTPStatus.MULTIPLE_CHOICES:
        raise UpstreamError("bad_response", 502, f"the model's server answered with a redirect ({response.status})")


class NoLogging:
    """Stands where LiteLLM's translation functions expect the logging object of a call; nothing is logged there."""

    litellm_call_id = ""
    stream = False

    def __init__(self) -> None:
        self.model_call_details: dict[str, Any] = {}
        self.optional_params: dict[str, Any] = {}
        self.litellm_params: dict[str, Any] = {}

    def pre_call(self, *_args: Any, **_kwargs: Any) -> None: ...

    def post_call(self, *_args: Any, **_kwargs: Any) -> None: ...


def understood(target: Target, request: Request, response: aiohttp.ClientResponse, body: bytes) -> ModelResponse:
    """A whole answer in LiteLLM's objects, by its provider code."""
    raw = httpx.Response(response.status, content=body, headers=list(response.raw_headers))
    answer: ModelResponse = target.reader.transform_response(
        model=target.model,
        raw_response=raw,
        model_response=ModelResponse(),
        logging_obj=NoLogging(),
        request_data=request.data,
        messages=request.messages,
        optional_params=request.params,
        litellm_params=request.litellm_params,
        encoding=None,
        api_key=target.api_key,
    )
    return answer


def in_litellms_objects(
    target: Target, request: Request, response: aiohttp.ClientResponse, body: bytes, reply: Reply
) -> ModelResponse:
    """A whole answer for LiteLLM's callbacks; of one that only we can read, what we read."""
    try:
        return understood(target, request, response, body)
    except Exception:  # noqa: BLE001  LiteLLM's functions raise anything, and the answer is there
        message = _message(reply.text, reply.thoughts, reply.calls)
        choice = {"index": 0, "finish_reason": reply.finish_reason, "message": message}
        return ModelResponse(model=target.model, choices=[choice])


def _message(text: str, thoughts: str, calls: Sequence[CallPiece]) -> dict[str, Any]:
    """An answer in OpenAI's form, for those who log it."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thoughts:
        message["reasoning_content"] = thoughts
    if calls:
        message |= {"content": text or None, "tool_calls": gathered(calls)}
    return message


def plain_reply(target: Target, body: bytes) -> tuple[Reply, Any]:
    """An answer in OpenAI's form, read as LiteLLM reads it and without its objects; beside it the usage it states."""
    answer = json_in(body)
    if answer.get("error"):
        raise _error_inside(target, answer["error"])
    choice, said = answer["choices"][0], answer.get("usage")
    usage = said if isinstance(said, dict) else {}
    message = choice["message"]
    thought, text = extract_reasoning_content({**message, "content": _said(message)})
    reply = Reply(
        text=text or "",
        thoughts=thought if isinstance(thought, str) else "",
        calls=tuple(pieces(message, whole=True)),
        finish_reason=map_finish_reason(choice.get("finish_reason") or "stop"),
        prompt_tokens=usage.get("prompt_tokens") or None,
        completion_tokens=usage.get("completion_tokens") or None,
        reasoned=bool(thought),
        **details(usage),
    )
    return reply, usage


def _said(message: Mapping[str, Any]) -> str:
    """The content, or the refusal that OpenAI's models give in its place."""
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, str) and content:
        return content
    return refusal if isinstance(refusal, str) else ""


class Ending:
    """What a stream has said of its end so far."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.usage: Any = None
        self.reasoned = False
        self._id = ""
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[CallPiece] = []

    def heard(self, chunk: Mapping[str, Any]) -> Sequence[Text | Thought | CallPiece]:
        """Take one chunk in OpenAI's form; returns what it says, the last one of a stream included."""
        self._id = self._id or str(chunk.get("id") or "")
        self.usage = chunk.get("usage") or self.usage
        # One was asked for; a server that sends more sends others' words between.
        choice = next((c for c in chunk.get("choices") or () if not c.get("index")), None)
        if choice is None:
            return ()
        delta = choice.get("delta") or {}
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        said: list[Text | Thought | CallPiece] = []
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self.reasoned = True
            if isinstance(thought, str):
                self._thoughts.append(thought)
                said.append(Thought(thought))
        if text := delta.get("content") or delta.get("refusal"):
            if not isinstance(text, str):
                raise UpstreamError("bad_response", 502, "a piece of the stream has content that is not text")
            self._texts.append(text)
            said.append(Text(text))
        if calls := pieces(delta):
            self._calls += calls
            said += calls
        return said

    def answer(self, model: str) -> ModelResponse:
        """The whole answer, for LiteLLM's callbacks and cost."""
        message = _message("".join(self._texts), "".join(self._thoughts), self._calls)
        choice = {"index": 0, "finish_reason": self.finish_reason, "message": message}
        return ModelResponse(id=self._id, model=model, choices=[choice], usage=_usage(self.usage))


def _usage(said: Any) -> Usage | None:
    """None for what is no usage: the answer has been told, and is none the worse for it."""
    try:
        return said if isinstance(said, Usage) else Usage(**said)
    except (TypeError, ValueError):
        return None


async def chunks_of(
    target: Target, request: Request, response: aiohttp.ClientResponse
) -> AsyncGenerator[Mapping[str, Any], None]:
    """The stream's events in OpenAI's form; by LiteLLM's parser where the provider has another."""
    async with aclosing(lines_in(response.content.iter_any())) as lines:
        parsed = _reader(target, request, _decoded(lines))
        if type(parsed) is not OpenAIChatCompletionStreamingHandler:
            async for piece in parsed:
                yield _in_openai_form(piece)
            return
        async for line in lines:
            if line.startswith(b"data:"):
                if (data := line[5:].strip()) == b"[DONE]":
                    await rest_of(lines)
                    return
                chunk = json_in(data)
                if chunk.get("error"):
                    raise _error_inside(target, chunk["error"])
                yield chunk


async def rest_of(lines: AsyncIterator[bytes]) -> None:
    """What stands behind the end is the end of the response, after which its connection can be used again. Some servers
    leave it open, or drop it.
    """
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(REST_SECONDS):
            async for _ in lines:
                pass


def json_in(data: bytes) -> Any:
    """As OpenAI's SDK reads it, which takes half a surrogate pair and bytes that are no UTF-8."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data.decode("utf-8", "replace"))


def _reader(target: Target, request: Request, lines: AsyncIterator[str]) -> Any:
    """LiteLLM's parser of this provider's stream."""
    if target.provider == "anthropic":
        # How the caller calls the tools whose names Anthropic would refuse.
        names = request.litellm_params.get(ANTHROPIC_TOOL_NAME_REVERSE_MAP_KEY)
        return AnthropicStream(streaming_response=lines, sync_stream=False, tool_name_reverse_map=names)
    return target.reader.get_model_response_iterator(streaming_response=lines, sync_stream=False)


async def lines_in(packets: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Lines end at LF alone: U+2028 and its like are text."""
    rest = b""
    async for data in packets:
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")
        if len(rest) > LONGEST_LINE:
            raise UpstreamError("bad_response", 502, "a line of the stream has no end")
    if rest:
        yield rest


async def _decoded(lines: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    async for line in lines:
        if line and not line.startswith(WITHOUT_DATA):
            yield line.decode("utf-8", "replace")


def _in_openai_form(piece: Any) -> Mapping[str, Any]:
    """LiteLLM's two kinds of parsed chunk. Its objects for calls are left as they are."""
    if isinstance(piece, dict):  # GenericStreamingChunk
        call = piece.get("tool_use")
        delta = {"content": piece.get("text"), "tool_calls": [call] if call else None}
        return {
            "choices": [{"delta": delta, "finish_reason": piece.get("finish_reason") or None}],
            "usage": piece.get("usage"),
        }
    choices = [{"delta": _fields(c.delta, SAYING), "finish_reason": c.finish_reason} for c in piece.choices[:1]]
    return {"id": piece.id, "choices": choices, **_fields(piece, ("usage",))}


def _fields(said: BaseModel, names: Sequence[str]) -> dict[str, Any]:
    """Some of what LiteLLM's object says; to ask pydantic for a field that it has not is slow."""
    fields = vars(said) | (said.model_extra or {})
    return {name: fields.get(name) for name in names}


def _error_inside(target: Target, error: Any) -> Exception:
    """An error that came inside a 200."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    message = error.get("message") if isinstance(error, dict) else str(error)
    found: Exception = target.config.get_error_class(error_message=str(message), status_code=status, headers={})
    return found

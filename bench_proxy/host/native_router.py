"""The router lane of calls in the caller's own format: LiteLLM's router has an entry for each of these formats.

LiteLLM reads and writes again what it passes on there, and leaves out what it does not know.
"""

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import orjson
from litellm import Router
from litellm.llms.anthropic.pass_through.messages.utils import INCOMPLETE_STREAM_ERROR_MESSAGE
from pydantic import BaseModel

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.relays import Dialect
from bench_proxy.host.answer import json_in, lines_in, reading
from bench_proxy.host.billing import payer
from bench_proxy.host.errors import translate
from bench_proxy.host.fetching import guard, nothing_fetched
from bench_proxy.host.native_answer import HEARINGS, data_in
from bench_proxy.host.native_request import chosen
from bench_proxy.host.nesting import seated
from bench_proxy.host.upstream import steers_litellm
from bench_proxy.upstream import NativeCall

CALLERS_OWN = frozenset({"messages", "metadata"})
"""Fields of Anthropic's body that are called like some that steer LiteLLM. On this entry its own have other names."""


class NativeRouterLane:
    def __init__(self, router: Callable[[], Router | None]) -> None:
        self._router = router
        guard()

    async def complete(self, call: NativeCall) -> bytes:
        answer = await self._ask(call, stream=False)
        with reading():
            body = _as_json(answer)
            HEARINGS[call.dialect]().whole(json_in(body))
        return body

    @asynccontextmanager
    async def stream(self, call: NativeCall) -> AsyncIterator[AsyncIterator[bytes]]:
        answer = await self._ask(call, stream=True)
        if call.dialect == "gemini":
            _end_lines_at_lf(answer)
        async with aclosing(_events(call, answer)) as events:
            try:
                yield events
            finally:
                await _close(answer)

    async def _ask(self, call: NativeCall, *, stream: bool) -> Any:
        router = self._router()
        if router is None:
            raise UpstreamError("server_error", 503, "LiteLLM has no models")
        entry, arguments = ENTRIES[call.dialect](router, copy.deepcopy(dict(call.body)), stream)
        try:
            with nothing_fetched(), seated():
                return await entry(
                    model=call.alias,
                    timeout=call.timeout,
                    # One attempt by exactly this model, as on the router lane of chat completions.
                    num_retries=0,
                    max_retries=0,
                    disable_fallbacks=True,
                    litellm_metadata={**payer(), "tags": list(call.tags)},
                    **({"extra_headers": headers} if (headers := chosen(call)) else {}),
                    **arguments,
                )
        except Exception as error:
            raise translate(error) from error


Entry = tuple[Callable[..., Any], dict[str, Any]]


def _messages(router: Router, body: dict[str, Any], stream: bool) -> Entry:
    """It takes no body beside what it knows by name."""
    kept = {name: value for name, value in body.items() if name in CALLERS_OWN or not steers_litellm(name)}
    return router.aanthropic_messages, {**kept, "stream": stream}


def _responses(router: Router, body: dict[str, Any], stream: bool) -> Entry:
    """What stands in `extra_body` goes into the body last, and as it is."""
    return router.aresponses, {"input": body.get("input", ""), "stream": stream, "extra_body": body}


def _gemini(router: Router, body: dict[str, Any], stream: bool) -> Entry:
    entry = router.agenerate_content_stream if stream else router.agenerate_content
    # LiteLLM writes an empty one by the other of its two names, and Google refuses a field that comes twice.
    if (config := body.pop("generation_config", None)) is not None:
        body.setdefault("generationConfig", config)
    return entry, {"contents": body.get("contents", []), "config": {}, "extra_body": body}


ENTRIES: Mapping[Dialect, Callable[[Router, dict[str, Any], bool], Entry]] = {
    "messages": _messages,
    "responses": _responses,
    "gemini": _gemini,
}


async def _events(call: NativeCall, answer: Any) -> AsyncGenerator[bytes, None]:
    hearing = HEARINGS[call.dialect]()
    try:
        with reading():
            async with aclosing(_data(call, answer)) as events:
                async for data in events:
                    hearing.event(json_in(data))
                    yield data
            if not hearing.ended:
                raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")
    except UpstreamError as failed:
        # LiteLLM's own words for a stream without an end, as if the model's server had said them.
        if INCOMPLETE_STREAM_ERROR_MESSAGE.startswith(failed.message[:100]):
            raise UpstreamError("bad_response", 502, "the stream ended without a terminal event") from failed
        raise
    except Exception as error:
        raise translate(error) from error


async def _data(call: NativeCall, answer: Any) -> AsyncGenerator[bytes, None]:
    """The Responses entry yields objects, the others bytes, cut anywhere."""
    if call.dialect == "responses":
        async for event in answer:
            yield _as_json(event)
        return
    async with aclosing(lines_in(answer)) as lines, aclosing(data_in(lines)) as events:
        async for data in events:
            yield data


def _as_json(answer: Any) -> bytes:
    """Of LiteLLM's objects only what the server has set: they have defaults that it never said."""
    if isinstance(answer, BaseModel):
        return answer.model_dump_json(exclude_unset=True).encode()
    return orjson.dumps({name: value for name, value in answer.items() if name != "_hidden_params"})


def _end_lines_at_lf(answer: Any) -> None:
    """LiteLLM reads this stream by a reader for which U+2028 and its like end a line too, in the middle of a text."""
    if (response := getattr(answer, "response", None)) is not None:
        answer.stream_iterator = _texts(lines_in(response.aiter_bytes()))


async def _texts(lines: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    async for line in lines:
        yield line.decode("utf-8", "replace")


async def _close(answer: Any) -> None:
    """End the model's call: the iterator where it can be closed, and the HTTP response that it reads."""
    for held in (answer, getattr(answer, "response", None)):
        if (close := getattr(held, "aclose", None)) is not None:
            with suppress(Exception):  # a stream that was cut cannot always be closed once more
                await close()

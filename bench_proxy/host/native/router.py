"""The router lane of calls in the caller's own format: LiteLLM's router has an entry for each of these formats.

LiteLLM reads and writes again what it passes on there, and leaves out what it does not know.
"""

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import litellm
import orjson
from litellm import Router
from litellm.llms.anthropic.pass_through.messages.utils import INCOMPLETE_STREAM_ERROR_MESSAGE
from litellm.types.utils import Usage
from pydantic import BaseModel

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.relays import Dialect, Relayed
from bench_proxy.host.answer import lines_in, reading, rest_of
from bench_proxy.host.billing import payer
from bench_proxy.host.costs import cost_of
from bench_proxy.host.errors import translate
from bench_proxy.host.fetching import guard, nothing_fetched
from bench_proxy.host.native.answer import answered, data_in, hear_whole, reply_of, usage_of
from bench_proxy.host.native.request import chosen
from bench_proxy.host.nesting import seated
from bench_proxy.host.upstream import steers_litellm
from bench_proxy.upstream import NativeCall, Reply

CALLERS_OWN = frozenset({"messages", "metadata"})
"""Fields of Anthropic's body that are called like some that steer LiteLLM. On this entry its own have other names."""


class NativeRouterLane:
    def __init__(self, router: Callable[[], Router | None], priced: Callable[[str], bool]) -> None:
        self._router = router
        self._priced = priced
        guard()

    async def complete(self, call: NativeCall) -> tuple[bytes, Reply]:
        answer = await self._ask(call, stream=False)
        with reading():
            body = _as_json(answer)
            hear_whole(call, body)
        return body, self._reply(call, answer)

    @asynccontextmanager
    async def stream(self, call: NativeCall) -> AsyncIterator[AsyncIterator[Sequence[Relayed] | Reply]]:
        answer = await self._ask(call, stream=True)
        if call.dialect == "gemini":
            _end_lines_at_lf(answer)
        async with aclosing(self._events(call, answer)) as events:
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

    async def _events(self, call: NativeCall, answer: Any) -> AsyncGenerator[Sequence[Relayed] | Reply, None]:
        hearing = call.hearing
        try:
            with reading():
                async with aclosing(_data(call, answer)) as events:
                    async for data in events:
                        yield hearing.heard(answered(data))
                        if hearing.over:
                            break
                    if hearing.over:
                        with suppress(Exception):  # a connection that breaks behind the end
                            await rest_of(events)
                if not hearing.ended:
                    raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")
        except UpstreamError as failed:
            # LiteLLM's own words for a stream without an end, as if the model's server had said them.
            if INCOMPLETE_STREAM_ERROR_MESSAGE.startswith(failed.message[:100]):
                raise UpstreamError("bad_response", 502, "the stream ended without a terminal event") from failed
            raise
        except Exception as error:
            raise translate(error) from error
        yield self._reply(call, answer)

    def _reply(self, call: NativeCall, answer: Any) -> Reply:
        usage = usage_of(call)
        cost = self._cost(answer, usage) if usage is not None and self._priced(call.alias) else None
        return reply_of(call.hearing.said, usage, cost)

    def _cost(self, answer: Any, usage: Usage) -> float | None:
        """US dollars, by the prices of the deployment that LiteLLM has asked; None where they are not known."""
        router: Any = self._router()
        with suppress(Exception):  # LiteLLM raises for a provider that it does not know
            hidden = answer["_hidden_params"] if isinstance(answer, dict) else answer._hidden_params
            deployment = router.get_model_info(hidden["model_id"])
            params = deployment["litellm_params"]
            model, provider, *_ = litellm.get_llm_provider(params["model"], params.get("custom_llm_provider"))
            return cost_of(deployment, usage, model=model, provider=provider)
        return None


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

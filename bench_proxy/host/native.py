"""Models whose servers speak the caller's own format: what they are sent and what they say is passed on as it is."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, closing, suppress
from typing import Any

import aiohttp
import litellm
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.relays import Dialect
from bench_proxy.host import lanes, makers, models
from bench_proxy.host.answer import body_of, check, json_in, lines_in, reading, rest_of
from bench_proxy.host.costs import cost_of
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.native_answer import HEARINGS, Hearing, data_in
from bench_proxy.host.native_request import native_request
from bench_proxy.host.native_router import NativeRouterLane
from bench_proxy.host.request import NeedsRouter, Request, Target
from bench_proxy.upstream import NativeCall, Reply

PROVEN = lanes.PROVEN | {"gemini"}
"""Providers whose native calls the tests have compared; with Gemini's, whose chat completions they have not."""

HOOKS = ("async_pre_request_hook", "async_should_run_agentic_loop")
"""By which a callback changes what LiteLLM sends to these servers, or answers in their place."""


class NativeLane:
    """Implements `upstream.NativeUpstream`, by the lean lane's connections, or by the router's entries for what needs
    LiteLLM's router.
    """

    def __init__(
        self,
        router: Callable[[], Router | None],
        lean: LeanLane,
        forced: Callable[[], Mapping[str, str]],
        priced: Callable[[str], bool] = lambda _alias: True,
    ) -> None:
        self._router = router
        self._lean = lean
        self._forced = forced
        self._priced = priced
        self._by_router = NativeRouterLane(router)
        self._makers: dict[tuple[str, Dialect], str] = {}
        self._lanes: dict[tuple[str, Dialect], str] = {}
        self._seen: object = None

    def maker(self, alias: str, dialect: Dialect) -> str:
        self._look()
        if (alias, dialect) not in self._makers:
            self._makers[alias, dialect] = makers.maker(self._router(), alias, dialect)
        return self._makers[alias, dialect]

    def why_router(self, alias: str, dialect: Dialect) -> str:
        """Why this model's native calls go by LiteLLM's router; empty when they do not."""
        self._look()
        chat = self._lean.why_router(alias)
        if (alias, dialect) not in self._lanes:
            self._lanes[alias, dialect] = self._why_router(alias, dialect, chat)
        return self._lanes[alias, dialect]

    def cost(self, alias: str, reply: Reply) -> float | None:
        """US dollars for a native answer that used these tokens; None where they or the price are not known."""
        router = self._router()
        deployments = [] if router is None else router.get_model_list(model_name=alias) or []
        if not deployments or reply.prompt_tokens is None or not self._priced(alias):
            return None
        with suppress(Exception):  # LiteLLM raises for a provider that it does not know
            params = deployments[0]["litellm_params"]
            model, provider, *_ = litellm.get_llm_provider(params["model"], params.get("custom_llm_provider"))
            return cost_of(deployments[0], _usage(reply), model=model, provider=provider)
        return None

    async def complete_native(self, call: NativeCall) -> bytes:
        try:
            target, place = await self._lean.pick(call, self.why_router(call.alias, call.dialect))
        except NeedsRouter:
            return await self._by_router.complete(call)
        request, hearing = native_request(target, call, stream=False), HEARINGS[call.dialect]()
        with place:
            try:
                async with self._lean.post(request) as response:
                    body = await body_of(response)
                with reading():
                    check(target, response, body)
                    hearing.whole(json_in(body))
            except Exception as error:
                raise self._lean.failed(call, target, request, error) from error
        self._lean.succeeded(call, target, request, lambda: hearing.answer(target.model))
        return body

    @asynccontextmanager
    async def stream_native(self, call: NativeCall) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            target, place = await self._lean.pick(call, self.why_router(call.alias, call.dialect))
        except NeedsRouter:
            async with self._by_router.stream(call) as events:
                yield events
            return
        request = native_request(target, call, stream=True)
        with place, closing(await self._lean.open(call, target, request)) as response:
            async with aclosing(self._events(call, target, request, response)) as events:
                yield events

    async def _events(
        self, call: NativeCall, target: Target, request: Request, response: aiohttp.ClientResponse
    ) -> AsyncGenerator[bytes, None]:
        hearing = HEARINGS[call.dialect]()
        last: bytes | None = None
        try:
            with reading():
                async with aclosing(lines_in(response.content.iter_any())) as lines:
                    try:
                        async with aclosing(data_in(lines)) as events:
                            async for data in events:
                                hearing.event(json_in(data))
                                if hearing.over:
                                    last = data
                                    break
                                yield data
                    except aiohttp.ClientError:
                        if not hearing.ended:  # a connection that breaks behind the end
                            raise
                    if last is not None:
                        await rest_of(lines)
                if not hearing.ended:
                    raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")
        except GeneratorExit:
            if hearing.ended:  # nobody waits for what may still come
                self._succeeded(call, target, request, hearing)
            raise
        except Exception as error:
            raise self._lean.failed(call, target, request, error) from error
        # Before the last event: clients hang up at it.
        self._succeeded(call, target, request, hearing)
        if last is not None:
            yield last

    def _succeeded(self, call: NativeCall, target: Target, request: Request, hearing: Hearing) -> None:
        self._lean.succeeded(call, target, request, lambda: hearing.answer(target.model))

    def _why_router(self, alias: str, dialect: Dialect, chat: str) -> str:
        for callback in litellm.callbacks:
            kind = type(callback)
            if isinstance(callback, CustomLogger) and any(
                getattr(kind, h) is not getattr(CustomLogger, h) for h in HOOKS
            ):
                return f"the callback {kind.__name__} changes calls to these servers"
        if dialect != "gemini":
            return chat
        router = self._router()
        deployments = [] if router is None else router.get_model_list(model_name=alias) or []
        if any(makers.provider_named(deployment) == "vertex_ai" for deployment in deployments):
            return "Google's cloud is signed in to by LiteLLM"
        return lanes.why_router(router, alias, self._forced().get(alias, "auto"), PROVEN)

    def _look(self) -> None:
        """Forget what was found out when something has changed since."""
        router = self._router()
        seen = (models.fingerprint(router), id(self._forced()), lanes.of_process(router))
        if seen != self._seen:
            self._seen = seen
            self._makers.clear()
            self._lanes.clear()


def _usage(reply: Reply) -> dict[str, Any]:
    """The tokens in the form that prices are asked with."""
    prompt, completion = reply.prompt_tokens or 0, reply.completion_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": reply.cached_tokens or 0,
            "cache_creation_tokens": reply.cache_write_tokens or 0,
        },
        "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens or 0},
        "cache_read_input_tokens": reply.cached_tokens or 0,
        "cache_creation_input_tokens": reply.cache_write_tokens or 0,
    }

"""Models whose servers speak the caller's own format: what they are sent and what they say is passed on as it is."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing

import aiohttp
import litellm
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.relays import Dialect, Relayed
from bench_proxy.host import lanes, makers, models
from bench_proxy.host.answer import body_of, check, lines_in, reading, rest_of
from bench_proxy.host.lean import LeanLane
from bench_proxy.host.native.answer import answered, data_in, hear_whole, in_litellms_objects, reply_of, usage_of
from bench_proxy.host.native.request import native_request
from bench_proxy.host.native.router import NativeRouterLane
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
        self._by_router = NativeRouterLane(router, priced)
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

    async def complete_native(self, call: NativeCall) -> tuple[bytes, Reply]:
        try:
            target, place = await self._lean.pick(call, self.why_router(call.alias, call.dialect))
        except NeedsRouter:
            return await self._by_router.complete(call)
        request = native_request(target, call, stream=False)
        with place:
            try:
                async with self._lean.post(request) as response:
                    body = await body_of(response)
                with reading():
                    check(target, response, body)
                    hear_whole(call, body)
            except Exception as error:
                raise self._lean.failed(call, target, request, error) from error
        return body, self._succeeded(call, target, request)

    @asynccontextmanager
    async def stream_native(self, call: NativeCall) -> AsyncIterator[AsyncIterator[Sequence[Relayed] | Reply]]:
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

    def reported(self, call: NativeCall) -> Reply:
        return reply_of(call.hearing.said, usage_of(call), None)

    async def _events(
        self, call: NativeCall, target: Target, request: Request, response: aiohttp.ClientResponse
    ) -> AsyncGenerator[Sequence[Relayed] | Reply, None]:
        hearing = call.hearing
        try:
            with reading():
                async with aclosing(lines_in(response.content.iter_any())) as lines:
                    try:
                        async with aclosing(data_in(lines)) as events:
                            async for data in events:
                                yield hearing.heard(answered(data))
                                if hearing.over:
                                    break
                    except aiohttp.ClientError:
                        if not hearing.ended:  # a connection that breaks behind the end
                            raise
                    if hearing.over:
                        await rest_of(lines)
            if not hearing.ended:
                raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")
        except (asyncio.CancelledError, GeneratorExit):
            if hearing.ended:  # nobody waits for what may still come
                self._succeeded(call, target, request)
            raise
        except Exception as error:
            raise self._lean.failed(call, target, request, error) from error
        yield self._succeeded(call, target, request)

    def _succeeded(self, call: NativeCall, target: Target, request: Request) -> Reply:
        said, usage = call.hearing.said, usage_of(call)
        cost = self._lean.succeeded(
            call, target, request, usage, lambda: in_litellms_objects(said, usage, target.model)
        )
        return reply_of(said, usage, cost)

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

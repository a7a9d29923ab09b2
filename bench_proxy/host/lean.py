"""The lean lane: a call by LiteLLM's provider configuration over one HTTP client, a tenth of the router's price.

The deployment is picked by LiteLLM's router, so that health, cooldowns and weights are its own. What is left out is
the router's and the logging's machinery around the call. A deployment that needs anything else takes the router lane.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, closing
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import aiohttp
import litellm
from litellm import Router
from litellm.litellm_core_utils.exception_mapping_utils import exception_type
from litellm.llms.custom_httpx.http_handler import get_ssl_configuration
from litellm.types.utils import ModelResponse

from bench_proxy.errors import UpstreamError
from bench_proxy.host import lanes, models
from bench_proxy.host.answer import (
    Ending,
    body_of,
    check,
    chunks_of,
    in_litellms_objects,
    plain_reply,
    reading,
    understood,
)
from bench_proxy.host.billing import payer
from bench_proxy.host.costs import cost_of
from bench_proxy.host.errors import translate
from bench_proxy.host.picking import Picking
from bench_proxy.host.proxies import Proxies
from bench_proxy.host.reporting import Finished, Reporting, cool
from bench_proxy.host.request import BY_SDK, NeedsRouter, Request, Target, request_for, target_of
from bench_proxy.host.slots import slot
from bench_proxy.host.upstream import reply_of
from bench_proxy.upstream import Call, Event, NativeCall, Reply, Upstream

CONNECT_SECONDS = 10.0

Asked = Call | NativeCall
"""What is billed, cooled and reported alike."""


class LeanLane:
    """Implements `upstream.Upstream`. What it cannot do faithfully goes to `otherwise`, the router lane.

    `forced` says of some models which lane they take: `router` or `lean`, which overrides PROVEN.
    """

    def __init__(
        self,
        router: Callable[[], Router | None],
        otherwise: Upstream,
        reporting: Reporting,
        forced: Callable[[], Mapping[str, str]],
        priced: Callable[[str], bool] = lambda _alias: True,
    ) -> None:
        self._priced = priced
        self._router = router
        self._otherwise = otherwise
        self._reporting = reporting
        self._forced = forced
        self._session: aiohttp.ClientSession | None = None
        self._proxies = Proxies()
        self._picking = Picking()
        self._targets: dict[str, Target] = {}
        self._lanes: dict[str, str] = {}
        self._seen: object = None

    def why_router(self, alias: str) -> str:
        """Why this model takes the router lane; empty when it takes this one. Remembered until something changes."""
        router = self._router()
        seen = (models.fingerprint(router), id(self._forced()), lanes.of_process(router))
        if seen != self._seen:
            self._seen = seen
            self._targets.clear()
            self._lanes.clear()
            self._picking.changed()
        if alias not in self._lanes:
            self._lanes[alias] = lanes.why_router(router, alias, self._forced().get(alias, "auto"))
        return self._lanes[alias]

    def lane(self, alias: str) -> dict[str, str]:
        """Which lane the model takes, and why when it is not this one."""
        return lanes.shown(self.why_router(alias))

    async def complete(self, call: Call) -> Reply:
        try:
            target, request, place = await self._prepare(call, stream=False)
        except NeedsRouter:
            return await self._otherwise.complete(call)
        with place:
            try:
                async with self.post(request) as response:
                    body = await body_of(response)
                with reading():
                    check(target, response, body)
                    if target.plain:
                        reply, usage = plain_reply(target, body)
                    else:
                        answer = understood(target, request, response, body)
                        reply, usage = reply_of(answer, None), getattr(answer, "usage", None)
            except Exception as error:
                raise self.failed(call, target, request, error) from error
        reply = replace(reply, cost=self._cost(call, target, usage))
        if self._reporting.listens():
            told = in_litellms_objects(target, request, response, body, reply)
            self._reporting.ended(_finished(call, target, request, response=told, cost=reply.cost))
        return reply

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[Event]]:
        try:
            target, request, place = await self._prepare(call, stream=True)
        except NeedsRouter:
            async with self._otherwise.stream(call) as events:
                yield events
            return
        with place, closing(await self.open(call, target, request)) as response:
            async with aclosing(self._events(call, target, request, response)) as events:
                yield events

    async def open(self, call: Asked, target: Target, request: Request) -> aiohttp.ClientResponse:
        """The answer to a call that is streamed, once it is known to be one."""
        try:
            response: aiohttp.ClientResponse = await self.post(request)
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                with closing(response):
                    body = await body_of(response)
                with reading():
                    check(target, response, body)
        except Exception as error:
            raise self.failed(call, target, request, error) from error
        return response

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _events(
        self, call: Call, target: Target, request: Request, response: aiohttp.ClientResponse
    ) -> AsyncGenerator[Event, None]:
        """The answer's pieces, then what is known at its end."""
        ending = Ending()
        try:
            with reading():
                async with aclosing(chunks_of(target, request, response)) as chunks:
                    try:
                        async for chunk in chunks:
                            for event in ending.heard(chunk):
                                yield event
                    except aiohttp.ClientError:
                        # A connection that breaks behind the last piece; OpenAI's SDK wants [DONE] before it.
                        if ending.finish_reason is None or target.provider in BY_SDK:
                            raise
                if ending.finish_reason is None:
                    raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")
                answer = ending.answer(target.model)
        except Exception as error:
            raise self.failed(call, target, request, error) from error
        cost = self._cost(call, target, getattr(answer, "usage", None))
        self._reporting.ended(_finished(call, target, request, response=answer, cost=cost))
        yield replace(reply_of(answer, cost), text="", thoughts="", calls=(), reasoned=ending.reasoned)

    def succeeded(
        self, call: Asked, target: Target, request: Request, usage: Any, answer: Callable[[], ModelResponse]
    ) -> float | None:
        """Report a call whose answer another one has read, and say what it cost; `answer` is asked for it only where
        somebody listens.
        """
        cost = self._cost(call, target, usage)
        if self._reporting.listens():
            self._reporting.ended(_finished(call, target, request, response=answer(), cost=cost))
        return cost

    def _cost(self, call: Asked, target: Target, usage: Any) -> float | None:
        if not usage or not self._priced(call.alias):
            return None
        return cost_of(target.deployment, usage, model=target.model, provider=target.provider)

    async def _prepare(self, call: Call, *, stream: bool) -> tuple[Target, Request, AbstractContextManager[None]]:
        """Raises NeedsRouter for what the router lane does better, or has to: also when callbacks fall behind here."""
        target, place = await self.pick(call, self.why_router(call.alias))
        return target, request_for(target, call, stream=stream), place

    async def pick(self, call: Asked, why_router: str) -> tuple[Target, AbstractContextManager[None]]:
        """The deployment that LiteLLM's router would ask, and the place that it has to be held.

        Raises NeedsRouter as above, and UpstreamError where none can be asked.
        """
        if why_router or self._reporting.full():
            raise NeedsRouter
        router = self._router()
        if router is None:
            raise UpstreamError("server_error", 503, "LiteLLM has no models")
        try:
            deployment = await self._picking.deployment(router, call.alias, call.tags)
            target = self._target(deployment)
        except Exception as error:
            raise translate(error) from error
        return target, slot(router, deployment)

    def _target(self, deployment: Mapping[str, Any]) -> Target:
        id = deployment["model_info"]["id"]
        if id not in self._targets:
            self._targets[id] = target_of(deployment)
        return self._targets[id]

    def post(self, request: Request) -> Any:
        if self._session is None or self._session.closed:
            # Without a limit of its own: how many calls run is decided above it.
            trust = get_ssl_configuration()
            connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, keepalive_timeout=60, ssl=trust)
            # What one caller's answer sets must not go out with another's request.
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=jar)
        limit = aiohttp.ClientTimeout(total=request.timeout, sock_connect=min(request.timeout, CONNECT_SECONDS))
        return self._session.post(
            request.url,
            data=request.body,
            headers=request.headers,
            timeout=limit,
            proxy=self._proxies.of(request.url),
            allow_redirects=False,
        )

    def failed(self, call: Asked, target: Target, request: Request, error: Exception) -> UpstreamError:
        """In LiteLLM's classes, so that its cooldowns, its callbacks and our table see what they know."""
        mapped = _mapped(target, error)
        failed = error if isinstance(error, UpstreamError) else translate(mapped)
        # Without those tools it answers.
        if failed.kind != "tools" and (router := self._router()) is not None:
            cool(router, call.alias, target.deployment, mapped)
            self._picking.failed(target.deployment)
        self._reporting.ended(_finished(call, target, request, error=mapped))
        return failed


def _mapped(target: Target, error: Exception) -> Any:
    """The exception that LiteLLM's router would have raised."""
    if isinstance(error, UpstreamError):
        return litellm.APIError(error.status, error.message, target.provider, target.model)
    if isinstance(error, TimeoutError):
        late = litellm.Timeout("the model's server did not answer in time", target.model, target.provider)
        # LiteLLM has one class for both; by this it is known whether a connection was there.
        late.__cause__ = error
        return late
    if isinstance(error, aiohttp.ClientError):
        return litellm.APIConnectionError(f"Connection error: {type(error).__name__}", target.provider, target.model)
    try:
        mapped = exception_type(model=target.model, original_exception=error, custom_llm_provider=target.provider)
    except Exception as raised:  # noqa: BLE001  LiteLLM's function raises what it finds
        mapped = raised
    return mapped if isinstance(mapped, Exception) else error


def _finished(
    call: Asked,
    target: Target,
    request: Request,
    *,
    response: ModelResponse | None = None,
    error: Exception | None = None,
    cost: float | None = None,
) -> Finished:
    if response is not None:
        response._hidden_params = {
            "model_id": target.deployment["model_info"]["id"],
            "api_base": target.api_base,
            "custom_llm_provider": target.provider,
            "response_cost": cost,
        }
    return Finished(
        alias=call.alias,
        deployment=target.deployment,
        provider=target.provider,
        model=target.model,
        messages=request.messages,
        params=request.params,
        metadata={**payer(), "tags": list(call.tags)},
        began=request.began,
        ended=time.time(),
        response=response,
        error=error,
        cost=cost,
        stream=request.stream,
    )

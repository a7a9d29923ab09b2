"""The first route of LiteLLM's app: takes what is for `bench/`, gives everything else on untouched."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from bench_proxy.config import Access
from bench_proxy.errors import BenchError, BodyTooLarge, Denied, RequestTimeout
from bench_proxy.formats.base import Place
from bench_proxy.formats.places import CHAT, place
from bench_proxy.http import body as bodies
from bench_proxy.http import ollama
from bench_proxy.http.answering import Answering
from bench_proxy.http.cors import Claim, claimed, methods_of
from bench_proxy.http.listing import Asked, Listing
from bench_proxy.http.listing import asked as listed
from bench_proxy.http.loopback import refuse_foreign, refuse_pages
from bench_proxy.http.ollama import OllamaRoutes
from bench_proxy.http.responding import Response, send_error
from bench_proxy.http.sent_keys import SENT, carries, take_out

log = logging.getLogger("bench_proxy")

MOST_OWN_BYTES = 4 * 1024 * 1024
READY_SOON = 2.0
"""Seconds that a list of models waits for ours to be known."""

TAKING_JSON = frozenset({"/bench/verdict", "/bench/pending", "/bench/keys"})
"""What is sent here as anything else, as a page may to any address, is refused before it is looked into."""

HANDLER = "bench_proxy.handler"
NO_KEY_OF_LITELLMS = (
    "Authentication Error, a bench key calls bench/ models alone; ask for others with a key that LiteLLM knows"
)
PASSED = "bench_proxy.passed"
"""Marks a request that was given on to LiteLLM, so that it does not come back here."""


class Gate(BaseRoute):
    """Matches the paths that can be ours. `host_app` is LiteLLM's router, `own_app` answers under /bench.

    `ready` waits until the extension can answer; `first` runs once, before the first request of all. With
    `loopback_only` it matches every path, and refuses what comes from a web page, also to LiteLLM's own routes. It
    matches every request with a bench key, and takes that out: no other part of the process sees one.
    """

    def __init__(
        self,
        host_app: ASGIApp,
        own_app: Starlette,
        answering: Answering,
        listing: Listing,
        ollama: OllamaRoutes,
        ready: Callable[[], Awaitable[None]],
        most_bytes: Callable[[], int],
        first: Callable[[], None],
        loopback_only: bool = False,
        access: Callable[[], Access] = Access,
    ) -> None:
        self._host_app = host_app
        self._own_app = own_app
        self._answering = answering
        self._listing = listing
        self._ollama = ollama
        self._ready = ready
        self._most_bytes = most_bytes
        self._first: Callable[[], None] | None = first
        self._loopback_only = loopback_only
        self._access = access

    def matches(self, scope: Scope) -> tuple[Match, dict[str, Any]]:
        if self._first is not None:
            self._first()
            self._first = None
        handler = None if PASSED in scope else self._handler(scope)
        return (Match.NONE, {}) if handler is None else (Match.FULL, {HANDLER: handler})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        take_out(scope, _path(scope))
        if self._loopback_only:
            try:
                refuse_foreign(Headers(scope=scope), self._access())
            except Denied as error:
                await _refuse(error, scope, send)
                return
        handler: ASGIApp = scope[HANDLER]
        await handler(scope, receive, send)

    def claim(self, scope: Scope, method: str) -> Claim | None:
        """What we answer where only address and method of a request are known, as in a browser's preflight."""
        path = _path(scope)
        if path == "/bench" or path.startswith("/bench/"):
            return Claim(methods_of(self._own_app.routes, path), CHAT, ours_alone=True)
        if method == "GET" and (models := listed(path, Headers(scope=scope))) is not None:
            return Claim([method], models.shape.format, ours_alone=models.ours_alone)
        if self._ollama.answers(method, path):
            return Claim([method], ollama.FORMAT, ours_alone=True)
        if method == "POST" and (asked := place(path, scope["query_string"])) is not None:
            return Claim([method], asked.format, ours_alone=asked.host_path is not None)
        return None

    def _handler(self, scope: Scope) -> ASGIApp | None:
        """Who answers this; None for LiteLLM, which is not looked at on its way."""
        if scope["type"] == "http":
            path, method = _path(scope), scope["method"]
            if path == "/bench" or path.startswith("/bench/"):
                return self._own
            if method == "GET" and (models := listed(path, Headers(scope=scope))) is not None:
                return partial(self._listed, models)
            if self._ollama.answers(method, path):
                return partial(self._looked_up, path)
            if method == "POST" and (asked := place(path, scope["query_string"])) is not None:
                return partial(self._asked, asked)
        if scope["type"] not in {"http", "websocket"}:
            return None
        return self._theirs if self._loopback_only or carries(scope) else None

    async def _listed(self, models: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(TimeoutError):  # LiteLLM's own list is there without ours
            async with asyncio.timeout(READY_SOON):
                await self._ready()
        send = claimed(scope, send, ours_alone=models.ours_alone)
        await self._listing(models, scope, receive, send, self._pass_on)

    async def _looked_up(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        await self._ready()
        await self._ollama(path, scope, receive, claimed(scope, send))

    async def _own(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = claimed(scope, send)
        # A probe asks whether this process is ready, and does not wait until it is.
        if not _path(scope).startswith("/bench/health/"):
            await self._ready()
        if scope["method"] in {"POST", "PUT", "PATCH", "DELETE"}:
            try:
                # Read first: a connection that closes on what is unread is reset, and the refusal with it.
                receive = await _read_own(receive)
                if scope["method"] == "POST" and _path(scope) in TAKING_JSON:
                    bodies.check_json(Headers(scope=scope))
            except BenchError as error:
                await send_error(Response(send), CHAT, error)
                return
        try:
            await self._own_app(scope, receive, send)
        except Exception:  # its client has been answered
            log.exception("a request below /bench failed inside bench-proxy")

    async def _asked(self, place: Place, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = await bodies.read(receive, self._most_bytes())
        if (place.model is not None or incoming.may_be_ours()) and not incoming.hung_up:
            await self._ready()
            if await self._answering.answer(place, incoming, scope, receive, claimed(scope, send)):
                return
        if SENT in scope:
            await _refuse(Denied(NO_KEY_OF_LITELLMS, status=401, type="auth_error", code="401"), scope, send)
            return
        await self._theirs(scope, incoming.replay(receive), send)

    async def _theirs(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is not for us. Of a proxy that asks for no key, pages of other origins get no more than bench."""
        if self._loopback_only:
            try:
                refuse_pages(Headers(scope=scope))
            except Denied as error:
                await _refuse(error, scope, send)
                return
        await self._pass_on(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PASSED] = True
        await self._host_app(scope, receive, send)


async def _read_own(receive: Receive) -> Receive:
    """Raises BodyTooLarge, RequestTimeout."""
    incoming = await bodies.read(receive, MOST_OWN_BYTES)
    if incoming.too_large:
        raise BodyTooLarge(f"the body is larger than {MOST_OWN_BYTES // 1024} kB")
    if not (incoming.whole or incoming.hung_up):
        raise RequestTimeout("the body did not arrive; send it without long pauses")
    return incoming.replay(receive)


async def _refuse(error: Denied, scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:100]})
        return
    path = _path(scope)
    if (spoken := place(path, scope["query_string"])) is not None:
        format = spoken.format
    elif (models := listed(path, Headers(scope=scope))) is not None:
        format = models.shape.format
    else:
        format = ollama.FORMAT if path.startswith("/api/") else CHAT
    await send_error(Response(claimed(scope, send)), format, error)


def _path(scope: Scope) -> str:
    """The path below the prefix that the server is mounted at."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path

"""The first route of LiteLLM's app: takes what is for `bench/`, gives everything else on untouched."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from bench_proxy.config import MODEL_PREFIX
from bench_proxy.errors import BodyTooLarge
from bench_proxy.formats.base import Place
from bench_proxy.formats.chat import ChatFormat
from bench_proxy.formats.places import place
from bench_proxy.http import body as bodies
from bench_proxy.http.answering import Answering, Response, send_error
from bench_proxy.http.listing import Listing

log = logging.getLogger("bench_proxy")

LISTS = ("/v1/models", "/models")
MOST_OWN_BYTES = 4 * 1024 * 1024
PASSED = "bench_proxy.passed"
"""Marks a request that was given on to LiteLLM, so that it does not come back here."""


class Gate(BaseRoute):
    """Matches the paths that can be ours. `host_app` is LiteLLM's router, `own_app` answers under /bench.

    `ready` waits until the extension can answer; `first` runs once, before the first request of all.
    """

    def __init__(
        self,
        host_app: ASGIApp,
        own_app: ASGIApp,
        answering: Answering,
        listing: Listing,
        ready: Callable[[], Awaitable[None]],
        most_bytes: Callable[[], int],
        first: Callable[[], None],
    ) -> None:
        self._host_app = host_app
        self._own_app = own_app
        self._answering = answering
        self._listing = listing
        self._ready = ready
        self._most_bytes = most_bytes
        self._first: Callable[[], None] | None = first

    def matches(self, scope: Scope) -> tuple[Match, dict[str, Any]]:
        if self._first is not None:
            self._first()
            self._first = None
        if scope["type"] != "http" or PASSED in scope:
            return Match.NONE, {}
        path = _path(scope)
        ours = (
            (scope["method"] == "POST" and place(path, scope["query_string"]) is not None)
            or path == "/bench"
            or path.startswith("/bench/")
            or (scope["method"] == "GET" and _listed(path) is not None)
        )
        return (Match.FULL if ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path(scope)
        if path == "/bench" or path.startswith("/bench/"):
            await self._ready()
            await self._own(scope, receive, send)
        elif (name := _listed(path)) is not None and scope["method"] == "GET":
            await self._ready()
            await self._listing(name, scope, receive, send, self._pass_on)
        elif (asked := place(path, scope["query_string"])) is not None:
            await self._asked(asked, scope, receive, send)

    async def _own(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in {"POST", "PUT", "PATCH", "DELETE"}:
            incoming = await bodies.read(receive, MOST_OWN_BYTES)
            if incoming.too_large:
                error = BodyTooLarge(f"the body is larger than {MOST_OWN_BYTES // 1024} kB")
                await send_error(Response(send), ChatFormat(), error)
                return
            receive = incoming.replay(receive)
        try:
            await self._own_app(scope, receive, send)
        except Exception:  # its client has been answered
            log.exception("a request below /bench failed inside bench-proxy")

    async def _asked(self, place: Place, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = await bodies.read(receive, self._most_bytes())
        if (place.model is not None or incoming.may_be_ours()) and not incoming.hung_up:
            await self._ready()
            if await self._answering.answer(place, incoming, scope, receive, send):
                return
        await self._pass_on(scope, incoming.replay(receive), send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PASSED] = True
        await self._host_app(scope, receive, send)


def _path(scope: Scope) -> str:
    """The path below the prefix that the server is mounted at."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def _listed(path: str) -> str | None:
    """What a model-list path asks for: "" the list, else the name of one of our models; None when it is neither."""
    for base in LISTS:
        if path == base:
            return ""
        if path[: len(base) + 7].lower() == f"{base}/{MODEL_PREFIX}":
            return MODEL_PREFIX + path[len(base) + 7 :]
    return None

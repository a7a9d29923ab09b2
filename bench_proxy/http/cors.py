"""Which web pages may read our replies: those of `access.allowed_origins`, and no others.

LiteLLM lets every page read every reply, and answers preflights before a route of ours is asked. So this stands around
its own CORS, and leaves to it what is not for us. https://fetch.spec.whatwg.org/#http-cors-protocol
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bench_proxy.errors import Denied
from bench_proxy.formats.base import Format
from bench_proxy.http.responding import RawHeaders, Response, send_error

PAGE = "bench_proxy.page"

EXPOSED = b", ".join(
    [
        *(b"X-Bench-" + name for name in (b"Panel", b"Collection", b"Partial", b"Seats", b"Conversation", b"Call")),
        b"X-Bench-Model",
        b"Retry-After",
    ]
)
"""What a page may read of a reply's headers, beside the few that it always may."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

MAX_AGE = b"600"
"""Seconds for which a browser need not ask again: so long a page may still send what it no longer may read."""

_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")


@dataclass(frozen=True, slots=True)
class Claim:
    """That a request with this address is for us: always, or where LiteLLM answers there too, if its body says so."""

    methods: Collection[str]
    format: Format
    ours_alone: bool


@dataclass(slots=True)
class Page:
    """The page that a request comes from, until it is known who answers it."""

    allowed: bool
    claimed: bool = False


class Cors:
    """Around an app that has CORS of its own. `claim` says what we answer at the address of a request, by a method;
    `origins` whose pages may use it now.
    """

    def __init__(
        self, app: ASGIApp, claim: Callable[[Scope, str], Claim | None], origins: Callable[[], Collection[str]]
    ) -> None:
        self.app = app
        self._claim = claim
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _header(scope, b"origin") if scope["type"] == "http" else None
        if origin is None:
            await self.app(scope, receive, send)
            return
        page = Page(allowed=origin.decode("latin-1") in self._origins())
        if scope["method"] == "OPTIONS" and (method := _header(scope, b"access-control-request-method")) is not None:
            claim = self._claim(scope, method.decode("latin-1"))
            # A preflight has no body that would say whose it is: an address that LiteLLM answers too is ours for the
            # pages that are allowed, who then may ask it of both.
            if claim is not None and (page.allowed or claim.ours_alone):
                await _preflight(claim, origin if page.allowed else None, scope, send)
                return
            await self.app(scope, receive, send)
            return
        scope[PAGE] = page

        async def reply(message: Message) -> None:
            if page.claimed and message["type"] == "http.response.start":
                message = {**message, "headers": _ours(message.get("headers", ()), origin if page.allowed else None)}
            await send(message)

        await self.app(scope, receive, reply)


def claimed(scope: Scope, send: Send, *, ours_alone: bool = True) -> Send:
    """`send` for a reply of ours; not `ours_alone` for one that LiteLLM would also have let other pages read."""
    page: Page | None = scope.get(PAGE)
    if page is None or not (ours_alone or page.allowed):
        return send

    async def claiming(message: Message) -> None:
        page.claimed = True
        await send(message)

    return claiming


def methods_of(routes: Sequence[BaseRoute], path: str) -> list[str]:
    """Which methods have a route at this path."""
    scope: Scope = {"type": "http", "path": path, "root_path": "", "headers": [], "query_string": b""}
    return [m for m in METHODS if any(r.matches({**scope, "method": m})[0] is Match.FULL for r in routes)]


async def _preflight(claim: Claim, origin: bytes | None, scope: Scope, send: Send) -> None:
    response = Response(send)
    if origin is None:
        message = "pages of this origin may not use bench models; an operator allows it by access.allowed_origins"
        refused = Denied(message, status=403, type="permission_error")
        await send_error(response, claim.format, refused, [(b"vary", b"Origin")])
        return
    headers = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", ", ".join(claim.methods).encode()),
        (b"access-control-max-age", MAX_AGE),
        (b"vary", b"Origin, Access-Control-Request-Headers, Access-Control-Request-Private-Network"),
    ]
    asked = Headers(scope=scope)
    if _NAMES.fullmatch(names := asked.get("access-control-request-headers", "")):
        headers.append((b"access-control-allow-headers", names.encode()))
    # A public page that asks for this machine: https://wicg.github.io/private-network-access/
    if asked.get("access-control-request-private-network") == "true":
        headers.append((b"access-control-allow-private-network", b"true"))
    await response.whole(200, "text/plain; charset=utf-8", b"", headers)


def _ours(theirs: RawHeaders, origin: bytes | None) -> RawHeaders:
    """A reply's headers without what LiteLLM allows to everybody, and with what is allowed to this origin."""
    kept = [(name, value) for name, value in theirs if not name.lower().startswith(b"access-control-")]
    varies = b",".join(value for name, value in kept if name.lower() == b"vary")
    if b"origin" not in [part.strip().lower() for part in varies.split(b",")]:
        kept.append((b"vary", b"Origin"))
    if origin is not None:
        kept += [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED)]
    return kept


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    value: bytes
    for name, value in scope["headers"]:
        if name == wanted:
            return value
    return None

"""Web pages: those that an operator allows may read bench replies, all others nothing of them; LiteLLM's stay as they
are.
"""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bench_proxy.formats.ollama.format import OllamaChat
from bench_proxy.formats.places import CHAT, MESSAGES
from bench_proxy.http.cors import PAGE, Claim, Cors, claimed, methods_of

APP, OTHER = "https://app.example", "https://evil.example"
PREFIX = "access-control-"
CLAIMS = {
    "/bench/verdict": Claim(["GET", "POST"], CHAT, ours_alone=True),
    "/api/chat": Claim(["POST"], OllamaChat(), ours_alone=True),
    "/v1/messages": Claim(["POST"], MESSAGES, ours_alone=False),
}


class Ours(BaseRoute):
    """Answers what asks for a bench model, by a header here; a list that LiteLLM has too is `shared`."""

    def matches(self, scope: Scope) -> tuple[Match, dict[str, Any]]:
        ours = dict(scope["headers"]).get(b"x-ours")
        return (Match.FULL, {}) if ours else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        alone = dict(scope["headers"])[b"x-ours"] != b"shared"
        reply = JSONResponse({"text": "y" * 2000}, headers={"X-Bench-Panel": "p1", "Vary": "Accept"})
        await reply(scope, receive, claimed(scope, send, ours_alone=alone))


async def theirs(request: Request) -> JSONResponse:
    return JSONResponse({"method": request.method})


def app(*allowed: str, credentials: bool = False, around: bool = True) -> ASGIApp:
    """As LiteLLM has it: its CORS with a middleware around it, routes of ours first."""
    middleware = Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
    if credentials:
        middleware = Middleware(
            CORSMiddleware, allow_origins=["*"], allow_credentials=True, expose_headers=["x-theirs"]
        )
    host = Starlette(
        routes=[Ours(), Route("/{path:path}", theirs, methods=["GET", "POST"])],
        middleware=[Middleware(GZipMiddleware), middleware],
    )
    host.middleware_stack = host.build_middleware_stack()
    if around:
        gzip = host.middleware_stack.app  # type: ignore[attr-defined]
        gzip.app = Cors(gzip.app, lambda scope, _: CLAIMS.get(scope["path"]), lambda: allowed)
    return host


async def reply(app: ASGIApp, method: str = "POST", path: str = "/v1/messages", **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.request(method, path, headers=names)


async def preflight(app: ASGIApp, path: str, origin: str, method: str = "POST", **headers: str) -> httpx.Response:
    return await reply(app, "OPTIONS", path, origin=origin, access_control_request_method=method, **headers)


def cors_of(response: httpx.Response) -> dict[str, str]:
    """What is said to browsers, without the beginning that all these names have."""
    return {n.removeprefix(PREFIX): v for n, v in response.headers.items() if n.startswith(PREFIX)}


def varies(response: httpx.Response) -> list[str]:
    return [name.strip() for name in response.headers.get("vary", "").split(",")]


# Pages that are not allowed


@pytest.mark.parametrize("credentials", [False, True])
@pytest.mark.parametrize("origin", [OTHER, "null", "", f"{APP}.evil.example", f"{APP}:8443", "http://app.example", "*"])
async def test_a_page_that_is_not_allowed_reads_nothing_of_ours(origin: str, *, credentials: bool) -> None:
    response = await reply(app(APP, credentials=credentials), x_ours="yes", origin=origin)
    assert response.status_code == 200
    assert cors_of(response) == {}
    assert "Origin" in varies(response)


async def test_nobody_is_allowed_unless_it_is_said() -> None:
    assert cors_of(await reply(app(), x_ours="yes", origin=APP)) == {}


@pytest.mark.parametrize("path", ["/bench/verdict", "/api/chat"])
async def test_the_preflight_of_a_page_that_is_not_allowed_is_refused_without_its_name(path: str) -> None:
    response = await preflight(app(APP), path, OTHER)
    assert response.status_code == 403
    assert cors_of(response) == {}
    assert varies(response) == ["Origin"]
    assert "evil" not in response.text
    error = response.json()["error"]
    assert "access.allowed_origins" in (error if path == "/api/chat" else error["message"])


# Pages that are allowed


@pytest.mark.parametrize("credentials", [False, True])
async def test_an_allowed_page_reads_ours_without_credentials_and_never_as_anybody(*, credentials: bool) -> None:
    response = await reply(app("https://first.example", APP, credentials=credentials), x_ours="yes", origin=APP)
    said = cors_of(response)
    assert said.pop("expose-headers").lower().split(", ") == [
        *(f"x-bench-{name}" for name in ("panel", "collection", "partial", "seats", "conversation", "call", "model")),
        "retry-after",
    ]
    assert said == {"allow-origin": APP}
    assert sorted(set(varies(response)) - {"Accept-Encoding"}) == ["Accept", "Origin"]
    assert response.headers["x-bench-panel"] == "p1"
    assert response.json()["text"] == "y" * 2000


@pytest.mark.parametrize("path", [*CLAIMS])
async def test_the_preflight_of_an_allowed_page_allows_what_it_asks_for(path: str) -> None:
    response = await preflight(app(APP), path, APP, access_control_request_headers="authorization,x-bench-reply")
    assert response.status_code == 200
    assert cors_of(response) == {
        "allow-origin": APP,
        "allow-methods": ", ".join(CLAIMS[path].methods),
        "allow-headers": "authorization,x-bench-reply",
        "max-age": "600",
    }
    assert varies(response)[0] == "Origin"


@pytest.mark.parametrize("names", ["", "a:b", "x" * 5000, "a\tb"])
async def test_headers_that_have_no_names_are_not_allowed(names: str) -> None:
    response = await preflight(app(APP), "/bench/verdict", APP, access_control_request_headers=names)
    assert response.status_code == 200
    assert "allow-headers" not in cors_of(response)


async def test_an_allowed_page_of_the_internet_may_ask_a_machine_of_its_own_network() -> None:
    asked = {"access_control_request_private_network": "true"}
    assert cors_of(await preflight(app(APP), "/api/chat", APP, **asked))["allow-private-network"] == "true"
    assert cors_of(await preflight(app(APP), "/api/chat", OTHER, **asked)) == {}


async def test_a_list_that_litellm_has_too_is_for_allowed_pages_as_ours_and_for_others_as_litellms() -> None:
    assert cors_of(await reply(app(APP), x_ours="shared", origin=APP))["allow-origin"] == APP
    assert cors_of(await reply(app(APP), x_ours="shared", origin=OTHER)) == {"allow-origin": "*"}


# What is not for us

UNTOUCHED: dict[str, Mapping[str, str]] = {
    "no page": {},
    "no page, ours": {"x_ours": "yes"},
    "another page": {"origin": OTHER},
    "an allowed page": {"origin": APP},
    "a preflight where both answer": {"method": "OPTIONS", "origin": OTHER, "access_control_request_method": "POST"},
    "a preflight of theirs": {
        "method": "OPTIONS",
        "path": "/key/info",
        "origin": APP,
        "access_control_request_method": "GET",
    },
    "no preflight": {"method": "OPTIONS", "path": "/bench/verdict", "origin": OTHER},
    "a preflight without a page": {
        "method": "OPTIONS",
        "path": "/bench/verdict",
        "access_control_request_method": "POST",
    },
}


@pytest.mark.parametrize("credentials", [False, True])
@pytest.mark.parametrize("asked", UNTOUCHED.values(), ids=UNTOUCHED.keys())
async def test_what_is_not_for_us_is_answered_as_without_us(asked: Mapping[str, str], *, credentials: bool) -> None:
    ours, alone = [await reply(app(APP, credentials=credentials, around=around), **asked) for around in (True, False)]
    assert (ours.status_code, ours.headers, ours.content) == (alone.status_code, alone.headers, alone.content)


async def test_a_request_of_no_page_goes_through_as_it_is() -> None:
    scope: Scope = {"type": "http", "method": "POST", "path": "/bench/verdict", "headers": [(b"host", b"x")]}
    got: list[Any] = []

    async def inner(*given: Any) -> None:
        got.extend(given)

    async def receive() -> Any: ...

    async def send(message: Any) -> None: ...

    await Cors(inner, lambda *_: pytest.fail("asked"), lambda: ())(scope, receive, send)
    assert got == [scope, receive, send]
    assert PAGE not in scope
    assert claimed(scope, send) is send


# Methods


async def test_the_methods_of_a_path_are_those_that_have_a_route() -> None:
    routes = [Route("/a", theirs, methods=["GET"]), Route("/a/{id}", theirs, methods=["DELETE"])]
    routes.append(Route("/a", theirs, methods=["POST"]))
    assert methods_of(routes, "/a") == ["GET", "POST"]
    assert methods_of(routes, "/a/1") == ["DELETE"]
    assert methods_of(routes, "/b") == []

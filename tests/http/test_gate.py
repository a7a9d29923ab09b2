"""The gate by itself: which bodies it takes, and what it says is ours."""

import asyncio
from typing import Any

import orjson
import pytest
from starlette.applications import Starlette
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from bench_proxy.http import body as bodies
from bench_proxy.http.gate import Gate
from bench_proxy.http.ollama import OllamaRoutes


async def _nothing() -> None: ...


async def _never(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("this is not for anyone")


def gate() -> Gate:
    unused: Any = None
    small = OllamaRoutes(unused, unused, unused)
    return Gate(_never, Starlette(), unused, unused, small, _nothing, lambda: 1000, lambda: None)


JSON = [(b"content-type", b"application/json")]


async def answered(receive: Receive, headers: list[tuple[bytes, bytes]]) -> tuple[int, str]:
    """The status of a POST below /bench, and what its error says."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/bench/verdict", "headers": headers, "query_string": b""}
    tried = gate()
    match, found = tried.matches(scope)
    assert match is Match.FULL
    await tried.handle({**scope, **found}, receive, send)
    return sent[0]["status"], orjson.loads(sent[1]["body"])["error"]["message"]


async def test_a_stalled_body_below_bench_is_a_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "READ_SECONDS", 0.01)
    waiting = asyncio.Event()

    async def receive() -> Message:
        await waiting.wait()
        raise AssertionError

    status, message = await answered(receive, JSON)
    assert status == 408
    assert "did not arrive" in message


async def test_a_body_below_bench_that_is_too_large_is_a_413(monkeypatch: pytest.MonkeyPatch) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 1_000_000, "more_body": True}

    status, message = await answered(receive, JSON)
    assert status == 413
    assert "4096 kB" in message


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "text/plain; x=application/json", "application/x-www-form-urlencoded", "text/json"]
)
async def test_what_a_page_may_send_to_any_address_is_a_415_below_bench(kind: str | None) -> None:
    """Without a preflight, that is: a body of another type than JSON, or of none. It is read to its end, or else a
    client that sends all before it reads may find the connection reset, and no refusal.
    """
    unread = [b'{"call": "x", ', b'"useful": true}']

    async def receive() -> Message:
        return {"type": "http.request", "body": unread.pop(0), "more_body": bool(unread)}

    status, message = await answered(receive, [] if kind is None else [(b"content-type", kind.encode())])
    assert status == 415
    assert not unread
    assert "send application/json" in message


def claim(path: str, method: str = "POST", query: bytes = b"") -> tuple[list[str], bool] | None:
    """The methods, and whether LiteLLM never answers there."""
    found = gate().claim({"type": "http", "path": path, "query_string": query, "headers": []}, method)
    return None if found is None else (list(found.methods), found.ours_alone)


def test_what_a_browser_asks_before_it_asks_is_known_by_the_address() -> None:
    assert claim("/bench/anything") == ([], True)
    assert claim("/bench") == ([], True)
    assert claim("/v1/models", "GET") == (["GET"], False)
    assert claim("/models", "GET") == (["GET"], False)
    assert claim("/v1/models/bench/core", "GET") == (["GET"], True)
    assert claim("/v1beta/models", "GET") == (["GET"], True)
    assert claim("/api/tags", "GET") == (["GET"], True)
    assert claim("/api/show") == (["POST"], True)
    assert claim("/api/chat") == (["POST"], True)
    assert claim("/v1beta/models/bench/core:streamGenerateContent", query=b"alt=sse") == (["POST"], True)
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions"):
        assert claim(path) == (["POST"], False)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/benchmarks", "GET"),
        ("/v1/chat/completions", "GET"),
        ("/v1/models", "DELETE"),
        ("/v1/models/gpt", "GET"),
        ("/v1beta/models/gpt:generateContent", "POST"),
        ("/key/generate", "POST"),
    ],
)
def test_what_is_litellms_is_not_claimed(path: str, method: str) -> None:
    assert claim(path, method) is None

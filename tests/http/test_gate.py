"""The gate by itself: what it does with bodies that never come."""

import asyncio
from typing import Any

import orjson
import pytest
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from bench_proxy.http import body as bodies
from bench_proxy.http.gate import Gate


async def _nothing() -> None: ...


async def _never(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("this is not for anyone")


def gate() -> Gate:
    unused: Any = None
    return Gate(_never, _never, unused, unused, unused, _nothing, lambda: 1000, lambda: None)


async def test_a_stalled_body_below_bench_is_a_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "READ_SECONDS", 0.01)
    sent: list[Message] = []
    waiting = asyncio.Event()

    async def receive() -> Message:
        await waiting.wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/bench/verdict", "headers": [], "query_string": b""}
    tried = gate()
    match, found = tried.matches(scope)
    assert match is Match.FULL
    await tried.handle({**scope, **found}, receive, send)
    assert sent[0]["status"] == 408
    assert "did not arrive" in orjson.loads(sent[1]["body"])["error"]["message"]

"""A client that does not hang up and does not read either."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope

from bench_proxy.bench import Caller
from bench_proxy.formats.places import place
from bench_proxy.http import turns
from bench_proxy.http.answering import Answering
from bench_proxy.http.body import Incoming
from tests.doubles import WITHIN, Models, Table

PATH = "/v1/chat/completions"


async def _all(names: Any) -> list[str]:
    return list(names)


async def _authenticate(_scope: Scope, _receive: Receive, _body: Mapping[str, Any] | None) -> Caller:
    return Caller("me", admin=False, allowed=_all)


@pytest.mark.parametrize("read", [1, 3])
async def test_a_client_that_stops_reading_ends_its_turn_and_the_members_call(
    read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "UNREAD_SECONDS", 0.05)
    models = Models(a=["one ", "two ", "three ", asyncio.Event()])
    table = Table(models, members=["a", "b"], timing={"keep_alive": 0.01, "hold_status": 0.05})
    sent = waiting = 0

    async def send(_message: Message) -> None:
        nonlocal sent, waiting
        sent += 1
        if sent > read:
            waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                waiting -= 1

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets that event")

    body = json.dumps({"model": "bench/core:route", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
    scope = {"type": "http", "method": "POST", "path": PATH, "headers": [(b"content-type", b"application/json")]}
    asked = place(PATH)
    assert asked is not None
    incoming = Incoming([{"type": "http.request", "body": body.encode()}], whole=True)
    async with asyncio.timeout(WITHIN):
        await Answering(lambda: table.bench, _authenticate).answer(asked, incoming, scope, receive, send)
    assert (models.open, waiting) == (0, 0)
    assert [report.status for report in table.ledger.turns] == ["cancelled"]

"""A client that does not hang up and does not read either."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope

from bench_proxy.bench import Caller
from bench_proxy.formats.places import place
from bench_proxy.http import responding
from bench_proxy.http.answering import Answering
from bench_proxy.http.body import Incoming
from tests.doubles import WITHIN, Models, Table, fails

PATH = "/v1/chat/completions"


async def _all(names: Any) -> list[str]:
    return list(names)


async def _authenticate(_scope: Scope, _receive: Receive, _body: Mapping[str, Any] | None) -> Caller:
    return Caller("me", admin=False, allowed=_all)


class Unread:
    """A client that takes so many messages and then nothing more, without hanging up."""

    def __init__(self, takes: int) -> None:
        self._left = takes
        self.waiting = 0

    async def send(self, _message: Message) -> None:
        self._left -= 1
        if self._left < 0:
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets that event")

    async def ask(self, table: Table, model: str, *, stream: bool) -> None:
        body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]})
        scope = {"type": "http", "method": "POST", "path": PATH, "headers": [(b"content-type", b"application/json")]}
        asked = place(PATH)
        assert asked is not None
        incoming = Incoming([{"type": "http.request", "body": body.encode()}], whole=True)
        async with asyncio.timeout(WITHIN):
            answering = Answering(lambda: table.bench, _authenticate)
            await answering.answer(asked, incoming, scope, self.receive, self.send)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responding, "UNREAD_SECONDS", 0.05)


@pytest.mark.parametrize("takes", [0, 1, 3])
@pytest.mark.parametrize("silent", [False, True])
async def test_a_client_that_stops_reading_ends_its_turn_and_the_members_call(takes: int, silent: bool) -> None:
    waits = [asyncio.Event()]
    models = Models(a=waits if silent else ["one ", "two ", "three ", *waits])
    table = Table(models, members=["a", "b"], timing={"keep_alive": 0.01, "hold_status": 0.02})
    client = Unread(takes)
    await client.ask(table, "bench/core:route", stream=True)
    assert (models.open, client.waiting) == (0, 0)
    assert [report.status for report in table.ledger.turns] == ["cancelled"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("takes", [0, 1])
async def test_so_does_one_that_does_not_take_the_end(takes: int, stream: bool) -> None:
    models = Models(a=["one ", "two "])
    client, table = Unread(takes), Table(models, members=["a", "b"])
    await client.ask(table, "bench/core:route", stream=stream)
    assert (models.open, client.waiting) == (0, 0)
    assert len(table.ledger.turns) == 1


async def test_so_does_one_that_does_not_take_an_error() -> None:
    models = Models(a=["one ", fails(502, "connection", "cut")])
    client, table = Unread(1), Table(models, members=["a", "b"])
    await client.ask(table, "bench/core:route", stream=True)
    assert client.waiting == 0
    assert [report.status for report in table.ledger.turns] == ["error"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_panel_is_not_held_by_a_client_that_stops_reading(stream: bool) -> None:
    models = Models(a=["one "], b=["two "])
    client, table = Unread(1), Table(models, members=["a", "b"])
    await client.ask(table, "bench/core", stream=stream)
    assert (models.open, client.waiting) == (0, 0)


async def test_a_refusal_is_not_held_by_a_client_that_reads_nothing() -> None:
    client = Unread(0)
    await client.ask(Table(Models(), members=["a", "b"]), "bench/nothing", stream=False)
    assert client.waiting == 0

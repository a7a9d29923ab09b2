"""Pieces of a stream leave together where they are written together, and at once where their writer waits."""

import asyncio
from typing import Any

import pytest

from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Envelope
from bench_proxy.formats.places import CHAT
from bench_proxy.http.responding import Response, send_error
from tests.doubles import WITHIN


class Client:
    """Takes what is sent while its gate is open."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.more = True
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.fault: Exception | None = None

    async def send(self, message: Any) -> None:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        if self.fault is not None:
            raise self.fault
        if message["type"] == "http.response.body":
            assert self.more
            self.more = message.get("more_body", False)
            self.bodies.append(message["body"])


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def response(client: Client) -> Response:
    return Response(client.send)


async def turn_of_the_loop() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_is_written_without_a_wait_leaves_together(client: Client, response: Response) -> None:
    for n in range(5):
        await response.soon(b"%d" % n)
    assert client.bodies == []
    await turn_of_the_loop()
    assert client.bodies == [b"01234"]


async def test_what_its_writer_waits_behind_has_left(client: Client, response: Response) -> None:
    for n in range(3):
        await response.soon(b"%d" % n)
        await turn_of_the_loop()
    assert client.bodies == [b"0", b"1", b"2"]


async def test_whatever_comes_behind_keeps_the_order(client: Client, response: Response) -> None:
    await response.soon(b"1")
    await response.piece(b"2")
    await response.soon(b"3")
    await response.soon(b"4")
    await response.end(b"5")
    await turn_of_the_loop()
    assert client.bodies == [b"12", b"345"]
    assert not client.more


async def test_an_error_comes_behind_what_was_written(client: Client, response: Response) -> None:
    stream = CHAT.turn(Envelope("id", "bench/core:route", 1, False))
    await response.begin(stream, "text/event-stream", [])
    await response.soon(b"said ")
    await send_error(response, CHAT, BenchError("no more"))
    (body,) = client.bodies
    assert body.startswith(b"said data:")
    assert b"no more" in body


async def test_a_writer_waits_for_a_client_that_takes_nothing(client: Client, response: Response) -> None:
    client.gate.clear()
    await response.soon(b"1")
    await turn_of_the_loop()
    behind = [asyncio.create_task(response.soon(b"2")), asyncio.create_task(response.soon(b"3"))]
    await turn_of_the_loop()
    assert (client.waiting, [task.done() for task in behind]) == (1, [False, False])
    client.gate.set()
    async with asyncio.timeout(WITHIN):
        await asyncio.gather(*behind)
        await response.end()
    assert client.bodies == [b"1", b"23", b""]


async def test_a_writer_that_is_stopped_while_it_waits_stops_no_other(client: Client, response: Response) -> None:
    client.gate.clear()
    await response.soon(b"1")
    await turn_of_the_loop()
    behind = asyncio.create_task(response.soon(b"2"))
    await turn_of_the_loop()
    behind.cancel()
    await asyncio.wait([behind])
    client.gate.set()
    async with asyncio.timeout(WITHIN):
        await response.end(b"3")
    assert client.bodies == [b"1", b"3"]


async def test_what_sending_raised_is_raised_to_all_who_write_behind_it(client: Client, response: Response) -> None:
    client.fault = OSError("gone")
    await response.soon(b"1")
    await turn_of_the_loop()
    for writes in (response.soon(b"a sign of life"), response.soon(b"2"), response.end()):
        with pytest.raises(OSError, match="gone"):
            await writes


async def test_who_gives_the_client_up_leaves_nothing_behind(client: Client, response: Response) -> None:
    client.gate.clear()
    await response.soon(b"1")
    await turn_of_the_loop()
    assert client.waiting == 1
    async with asyncio.timeout(WITHIN):
        await response.close()
    assert client.waiting == 0


async def test_what_has_not_left_when_the_client_is_given_up_never_does(client: Client, response: Response) -> None:
    await response.soon(b"1")
    await response.close()
    await turn_of_the_loop()
    assert client.bodies == []


async def test_nothing_leaves_behind_the_end(client: Client, response: Response) -> None:
    await response.end(b"all")
    await response.soon(b"a sign of life")
    await turn_of_the_loop()
    assert client.bodies == [b"all"]

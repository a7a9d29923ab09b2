"""Clients that begin a request and never end it: they wait, and nobody waits for them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.asking import CHAT, ask, connect, question, request_bytes
from tests.proxy import Proxy
from tests.upstream import Upstream

SLOW = 100
"""Of each kind."""

QUESTION = b'{"model": "bench/solo", "messages": [{"role": "user", "content": "Who are you?"}]}'
WHOLE = request_bytes(QUESTION)
BODY = WHOLE.index(QUESTION)
BEGUN = {
    "nothing": (WHOLE, 0),
    "a part of the headers": (WHOLE, 30),
    "a part of the body": (WHOLE, BODY + 10),
    "a part of a chunk": (request_bytes(QUESTION, chunk=20), BODY + 20),
    "a part of a verdict": (request_bytes(b'{"call": "some call"}', path="/bench/verdict"), BODY),
}
"""A request, and how much of it comes at once."""


@pytest.fixture
def slow(proxy: Proxy) -> Iterator[list[tuple[socket.socket, Iterator[int]]]]:
    """Connections on which a request was begun, and what is still to come of it."""
    with ExitStack() as opened:
        begun = []
        for request, at_once in list(BEGUN.values()) * SLOW:
            connection = opened.enter_context(connect(proxy.url))
            connection.sendall(request[:at_once])
            begun.append((connection, iter(request[at_once:])))
        yield begun


def test_many_requests_that_come_byte_by_byte_and_never_end_keep_nobody_from_being_served(
    slow: list[tuple[socket.socket, Iterator[int]]], http: httpx.Client, models: Upstream
) -> None:
    for _ in range(3):
        assert ask(http, "bench/solo").status_code == 200
        assert http.post(CHAT, json=question("ok-a")).status_code == 200
        assert http.get("/bench/health/ready").status_code == 200
        for connection, rest in slow:
            connection.sendall(bytes([next(rest)]))
    assert {call.model for call in models.calls()} == {"ok-a"}


def test_whoever_ends_a_slow_request_after_all_is_answered(proxy: Proxy, models: Upstream) -> None:
    with connect(proxy.url) as connection:
        for at in range(0, len(WHOLE), 7):
            connection.sendall(WHOLE[at : at + 7])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert len(models.calls()) == 1

"""How tests talk to a proxy: questions, streams as events, and bytes that no client library would send."""

import http.client
import json
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from tests.proxy import MASTER_KEY, Proxy

CHAT = "/v1/chat/completions"
DONE = "[DONE]"
KEEP_ALIVE = ": keep-alive"

Json = dict[str, Any]
T = TypeVar("T")


def question(model: str, text: str = "Who are you?", **more: Any) -> Json:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def ask(caller: httpx.Client, model: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> httpx.Response:
    return caller.post(CHAT, json=question(model, **more), headers=headers)


def panel(caller: httpx.Client, model: str, **more: Any) -> Json:
    """The whole reply of a panel that answers."""
    response = ask(caller, model, **more)
    assert response.status_code == 200, response.text
    reply: Json = response.json()
    return reply


def refusal(response: httpx.Response, status: int) -> Json:
    """The error of a refusal in OpenAI's shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    error: Json = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def statuses(data: Json) -> dict[str, str]:
    """Alias -> status, in seat order, from a `bench` object or a panel of the record."""
    return {seat["alias"]: seat["status"] for seat in data["seats"]}


def text_of(chunks: list[Json]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def parsed(block: str) -> Json | str:
    """One event of a stream: its data, or the line itself when it is a comment or the end."""
    if block.startswith(":"):
        return block
    assert block.startswith("data: "), block
    data = block.removeprefix("data: ")
    return DONE if data == DONE else json.loads(data)


def events(response: httpx.Response) -> Iterator[Json | str]:
    """Each event as soon as it is there."""
    rest = b""
    for part in response.iter_raw():
        *blocks, rest = (rest + part).split(b"\n\n")
        yield from (parsed(block.decode()) for block in blocks)
    assert rest == b""


async def async_events(response: httpx.Response) -> AsyncIterator[Json | str]:
    rest = b""
    async for part in response.aiter_raw():
        *blocks, rest = (rest + part).split(b"\n\n")
        for block in blocks:
            yield parsed(block.decode())
    assert rest == b""


def chunks_of(read: list[Json | str]) -> list[Json]:
    """The chunks of a whole stream, which ends with [DONE] and nothing after it."""
    assert read[-1] == DONE, read[-3:]
    return [event for event in read if isinstance(event, dict)]


def streamed(caller: httpx.Client, model: str, **more: Any) -> list[Json]:
    """All chunks of a panel's stream."""
    with caller.stream("POST", CHAT, json=question(model, stream=True, **more)) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        return chunks_of(list(events(response)))


def eventually(look: Callable[[], T], seconds: float = 15) -> T:
    """Look until there is something to see; the last look is returned as it is, for the caller to judge."""
    ends = time.monotonic() + seconds
    while not (seen := look()) and time.monotonic() < ends:
        time.sleep(0.05)
    return seen


@contextmanager
def held(served: Proxy) -> Iterator[sqlite3.Connection]:
    """The proxy's ledger, locked for writing by another process until COMMIT or the end."""
    with closing(sqlite3.connect(served.directory / "bench.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


@dataclass(frozen=True)
class Raw:
    """A reply as it came; names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request_bytes(
    body: bytes = b"",
    *headers: str,
    method: str = "POST",
    path: str = CHAT,
    key: str | None = MASTER_KEY,
    content_type: str | None = "application/json",
    chunk: int = 0,
) -> bytes:
    """A request as it goes over the wire; `chunk` is the size of its chunks, 0 for one body with its length."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines += headers
    if chunk:
        lines.append("Transfer-Encoding: chunked")
        parts = [body[start : start + chunk] for start in range(0, len(body), chunk)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])
    elif body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def connect(url: str) -> socket.socket:
    address = urlsplit(url)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 80), timeout=60)


def send(url: str, request: bytes, method: str = "POST") -> Raw:
    """Send all of a request, then read the reply."""
    with closing(connect(url)) as connection:
        connection.sendall(request)
        reply = http.client.HTTPResponse(connection, method=method)
        with closing(reply):
            reply.begin()
            return Raw(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())

"""A model server that costs next to nothing: answers are serialised once, requests are searched, not parsed.

    python -m benchmarks.upstream --port 9200

A model's name says how it answers, so that no gateway needs a setting for it: `owl-f300-n20-p10` waits 300 ms, then
sends 20 chunks, one every 10 ms. Left out, they are f0, n8 and p0. An answer that is not streamed comes when the last
chunk would have.

The last chunk says when it left, on the clock that all processes of a machine share: so a client can tell how long a
gateway kept an answer after its model was done.
"""

import argparse
import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import cast

import uvloop

NUMBER = re.compile(r"-([fnp])(\d+)")
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
MODEL = re.compile(rb'"model"\s*:\s*"([^"]+)"')
STREAM = re.compile(rb'"stream"\s*:\s*true')
EDGE = 4096
"""Bytes at both ends of a request that are searched; 10 MB of messages between them are only counted."""

CLOCK = 20
"""Digits of the time at which an answer left, in nanoseconds."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: "


@dataclass(frozen=True, slots=True)
class Model:
    """How one model answers. Times are in seconds. A clock goes into the middle of `whole` and of `last`."""

    first: float
    pace: float
    takes: float
    whole: tuple[bytes, bytes]
    chunks: tuple[bytes, ...]
    last: tuple[bytes, bytes]


def pieces(name: str) -> list[str]:
    """What a model says, in chunks, without the clock that ends it."""
    return [f"{name} says", *(f" word{n}" for n in range(1, _numbers(name)["n"] - 1)), " at "]


@cache
def said(name: str) -> re.Pattern[str]:
    """Finds the model's whole answer in a text; its group is the time at which the answer left."""
    return re.compile(re.escape("".join(pieces(name))) + rf"(\d{{{CLOCK}}})")


def _numbers(name: str) -> dict[str, int]:
    return {"f": 0, "n": 8, "p": 0} | {key: int(value) for key, value in NUMBER.findall(name)}


@cache
def model(name: str) -> Model:
    numbers = _numbers(name)
    texts = pieces(name)
    usage = f'"usage":{{"prompt_tokens":10,"completion_tokens":{len(texts)},"total_tokens":{10 + len(texts)}}}'
    base = f'"id":"chatcmpl-1","created":1700000000,"model":"{name}"'
    # The clock is as long as what stands in for it here, so that the length is right.
    message = f'{{"role":"assistant","content":"{"".join(texts)}{"@" * CLOCK}"}}'
    choice = f'{{"index":0,"message":{message},"finish_reason":"stop"}}'
    body = f'{{{base},"object":"chat.completion","choices":[{choice}],{usage}}}'.encode()
    head = HEAD + b"application/json\r\ncontent-length: %d\r\n\r\n" % len(body)

    def event(delta: str, finish: str = "null", more: str = "") -> bytes:
        choice = f'{{"index":0,"delta":{delta},"finish_reason":{finish}}}'
        return f'data: {{{base},"object":"chat.completion.chunk","choices":[{choice}]{more}}}\n\n'.encode()

    events = [event(f'{{"role":"assistant","content":"{text}"}}') for text in texts[:-1]]
    closing = event(f'{{"content":"{texts[-1]}{"@" * CLOCK}"}}') + event("{}", '"stop"', f",{usage}")
    start = HEAD + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = [_chunk(e) for e in events]
    return Model(
        first=numbers["f"] / 1000,
        pace=numbers["p"] / 1000,
        takes=(numbers["f"] + numbers["p"] * len(events)) / 1000,
        whole=_around_clock(head + body),
        chunks=(start + chunks[0], *chunks[1:]),
        last=_around_clock(_chunk(closing + b"data: [DONE]\n\n") + b"0\r\n\r\n"),
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _around_clock(data: bytes) -> tuple[bytes, bytes]:
    before, _, after = data.partition(b"@" * CLOCK)
    return before, after


class Connection(asyncio.Protocol):
    """One client, one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._seen = b""
        self._missing: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is one without saying so

    def data_received(self, data: bytes) -> None:
        if self._missing is None:
            self._seen += data
            head, found, body = self._seen.partition(b"\r\n\r\n")
            if not found:
                return
            length = LENGTH.search(head)
            self._missing = (int(length[1]) if length else 0) - len(body)
        else:
            self._missing -= len(data)
            self._seen = self._seen[:EDGE] + (self._seen[EDGE:] + data)[-EDGE:]
        if self._missing <= 0:
            seen, self._seen, self._missing = self._seen, b"", None
            self._answer(seen)

    def _answer(self, request: bytes) -> None:
        name = MODEL.search(request)
        if name is None:
            self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        asked = model(name[1].decode())
        if STREAM.search(request):
            self._later(asked.first, self._stream, asked, 0)
        else:
            self._later(asked.takes, self._end, asked.whole)

    def _stream(self, asked: Model, number: int) -> None:
        """Write chunk `number`, and all the others at once when the model has no pace."""
        while number < len(asked.chunks):
            self._transport.write(asked.chunks[number])
            number += 1
            if asked.pace:
                self._loop.call_later(asked.pace, self._stream, asked, number)
                return
        self._end(asked.last)

    def _end(self, around: tuple[bytes, bytes]) -> None:
        self._transport.write((b"%020d" % time.monotonic_ns()).join(around))

    def _later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        if seconds:
            self._loop.call_later(seconds, call, *args)
        else:
            call(*args)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))

"""A model server that costs next to nothing: answers are serialised once, requests are searched, not parsed.

    python -m benchmarks.upstream --port 9200

A model's name says how it answers, so that no gateway needs a setting for it: `owl-f300-n20-p10` waits 300 ms, then
sends 20 chunks, one every 10 ms. Left out, they are f0, n8 and p0. An answer that is not streamed comes when the last
chunk would have. Asked at `/v1/messages` it answers in Anthropic's format, anywhere else in that of chat completions.

The last chunk says when it left, on the clock that all processes of a machine share: so a client can tell how long a
gateway kept an answer after its model was done.
"""

import argparse
import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import uvloop

NUMBER = re.compile(r"-([fnp])(\d+)")
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
MODEL = re.compile(rb'"model"\s*:\s*"([^"]+)"')
STREAM = re.compile(rb'"stream"\s*:\s*true')
MESSAGES = b"POST /v1/messages"
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
def model(name: str, *, messages: bool = False) -> Model:
    numbers = _numbers(name)
    texts = pieces(name)
    # The clock is as long as what stands in for it here, so that the length is right.
    texts[-1] += "@" * CLOCK
    body, events = (_messages if messages else _completion)(name, texts)
    head = HEAD + b"application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    start = HEAD + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    first, *chunks, last = map(_chunk, events)
    return Model(
        first=numbers["f"] / 1000,
        pace=numbers["p"] / 1000,
        takes=(numbers["f"] + numbers["p"] * (len(events) - 1)) / 1000,
        whole=_around_clock(head + body.encode()),
        chunks=(start + first, *chunks),
        last=_around_clock(last + b"0\r\n\r\n"),
    )


def _completion(name: str, texts: Sequence[str]) -> tuple[str, list[str]]:
    """A chat completion, and its events, one text each; the last one with all that ends the stream."""
    usage = f'"usage":{{"prompt_tokens":10,"completion_tokens":{len(texts)},"total_tokens":{10 + len(texts)}}}'
    base = f'"id":"chatcmpl-1","created":1700000000,"model":"{name}"'
    message = f'{{"role":"assistant","content":"{"".join(texts)}"}}'
    choice = f'{{"index":0,"message":{message},"finish_reason":"stop"}}'

    def event(delta: str, finish: str = "null", more: str = "") -> str:
        choice = f'{{"index":0,"delta":{delta},"finish_reason":{finish}}}'
        return f'data: {{{base},"object":"chat.completion.chunk","choices":[{choice}]{more}}}\n\n'

    *events, last = [event(f'{{"role":"assistant","content":"{text}"}}') for text in texts]
    last += event("{}", '"stop"', f",{usage}") + "data: [DONE]\n\n"
    return f'{{{base},"object":"chat.completion","choices":[{choice}],{usage}}}', [*events, last]


def _messages(name: str, texts: Sequence[str]) -> tuple[str, list[str]]:
    """The same as a message of Anthropic's; what begins the stream is in its first event."""
    usage = f'"usage":{{"input_tokens":10,"output_tokens":{len(texts)}}}'
    base = f'"id":"msg_1","type":"message","role":"assistant","model":"{name}","stop_sequence":null'

    def event(type: str, more: str = "") -> str:
        return f'event: {type}\ndata: {{"type":"{type}"{more}}}\n\n'

    def delta(text: str) -> str:
        return event("content_block_delta", f',"index":0,"delta":{{"type":"text_delta","text":"{text}"}}')

    first, *events = map(delta, texts)
    begun = event("message_start", f',"message":{{{base},"content":[],"stop_reason":null,{usage}}}')
    begun += event("content_block_start", ',"index":0,"content_block":{"type":"text","text":""}')
    events[-1] += event("content_block_stop", ',"index":0')
    events[-1] += event("message_delta", f',"delta":{{"stop_reason":"end_turn","stop_sequence":null}},{usage}')
    events[-1] += event("message_stop")
    content = f'{{"type":"text","text":"{"".join(texts)}"}}'
    return f'{{{base},"content":[{content}],"stop_reason":"end_turn",{usage}}}', [begun + first, *events]


def _chunk(event: str) -> bytes:
    data = event.encode()
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
        asked = model(name[1].decode(), messages=request.startswith(MESSAGES))
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

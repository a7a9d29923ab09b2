"""Reads a request's body once, decides whom it is for, and can give it on byte for byte."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from bench_proxy.errors import WrongContentType

READ_SECONDS = 60.0
"""How long a client may be silent in the middle of its body."""
WHOLE_SECONDS = 600.0
"""How long a body may take in all: one that comes byte by byte is never silent for long."""

MODEL_KEY = b'"model"'
_KEY = re.compile(re.escape(MODEL_KEY))
_BENCH_AFTER_KEY = re.compile(rb'\s*:\s*"bench["/:\\]', re.IGNORECASE)
MOST_CONTAINERS = 500_000
MOST_COMMAS = 2_000_000
"""In text too: so many are more than any model's window holds."""
RARE = 200
LARGE = 512 * 1024
MANY = 5_000
PIECE = 64 * 1024
SEAM = 256
"""Bytes within which a key and the beginning of its value stand, where a body was cut into messages."""


def may_be_ours(body: bytes) -> bool:
    """Whether `"model": "bench…` stands anywhere in it: cheap, never wrong about a request that is not ours at all."""
    at = 0
    while at >= 0:
        for key in _KEY.finditer(body, at, at + PIECE + len(MODEL_KEY) - 1):
            if _BENCH_AFTER_KEY.match(body, key.end()):
                return True
        # A key begins with a quote: what has none for long, as an image, is passed over at the speed of memory.
        at = body.find(b'"', at + PIECE)
    return False


def count(data: bytes, byte: bytes) -> int:
    """How often it stands there. Looking for a rare one is several times faster than counting it: an image of megabytes
    has none of those that JSON is made of.
    """
    at = -1
    for found in range(RARE):
        if (at := data.find(byte, at + 1)) < 0:
            return found
    return RARE + data.count(byte, at + 1)


@dataclass
class Incoming:
    """A request's body as it came: its messages, so that LiteLLM can be given the very same ones."""

    messages: list[Message] = field(default_factory=list)
    whole: bool = False
    too_large: bool = False
    hung_up: bool = False

    @cached_property
    def body(self) -> bytes:
        """In one piece, which a body that goes on to LiteLLM never needs to be."""
        return b"".join(m.get("body", b"") for m in self.messages)

    @cached_property
    def _containers(self) -> int:
        return count(self.body, b"[") + count(self.body, b"{")

    @cached_property
    def _commas(self) -> int:
        return count(self.body, b",")

    @property
    def sprawls(self) -> bool:
        """Whether it holds so many lists, objects and items that reading them would hold everyone else up."""
        return self._containers > MOST_CONTAINERS or self._commas > MOST_COMMAS

    @property
    def large(self) -> bool:
        """Whether reading it takes so long that it is done in a thread: by its bytes, or by all that is in it."""
        return len(self.body) > LARGE or self._containers + self._commas > MANY

    def may_be_ours(self) -> bool:
        seam = b""
        for message in self.messages:
            piece = message.get("body", b"")
            if may_be_ours(piece) or (seam and may_be_ours(seam + piece[:SEAM])):
                return True
            seam = piece[-SEAM:] if len(piece) >= SEAM else (seam + piece)[-SEAM:]
        return False

    def replay(self, receive: Receive) -> Receive:
        """A `receive` that gives what was read, then goes on where reading stopped."""
        rest = iter(self.messages)

        async def again() -> Message:
            return next(rest, None) or await receive()

        return again


def check_json(headers: Headers) -> None:
    """Raise WrongContentType unless the body is said to be JSON: anything else a web page may send to any address."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise WrongContentType(f'Content-Type is "{kind[:100]}"; send application/json')


async def read(receive: Receive, most: int) -> Incoming:
    """Read until the body ends, passes `most` bytes, stalls for READ_SECONDS, takes WHOLE_SECONDS, or its sender hangs
    up.
    """
    incoming, size = Incoming(), 0
    time = asyncio.get_running_loop().time
    until = time() + WHOLE_SECONDS
    while not (incoming.whole or incoming.too_large or incoming.hung_up):
        try:
            async with asyncio.timeout_at(min(time() + READ_SECONDS, until)):
                message = await receive()
        except TimeoutError:
            break
        incoming.messages.append(message)
        size += len(message.get("body", b""))
        incoming.hung_up = message["type"] == "http.disconnect"
        incoming.whole = not incoming.hung_up and not message.get("more_body", False)
        incoming.too_large = size > most
    return incoming


# Possessive, so that an unterminated string costs one pass; at the end of a cut body such a string is one token.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{}\[\]:,]', re.DOTALL)


MOST_TOKENS = 200_000
"""Of a body that cannot be parsed, which is read before anyone was asked for a key."""


def top_level_model(body: bytes) -> str | None:
    """The value of `model` in the outermost object of a body that cannot be parsed: cut off, or broken further on.

    None too when it stands behind the first MOST_TOKENS. Takes a good part of a second: call it in a thread.
    """
    depth = 0
    key: str | None = None
    last = b""
    for match in islice(_TOKEN.finditer(body), MOST_TOKENS):
        token = match.group()
        if token in {b"{", b"["}:
            depth += 1
        elif token in {b"}", b"]"}:
            depth -= 1
        elif depth == 1 and token == b":":
            key = _text(last)
        elif depth == 1 and token == b",":
            key = None
        elif depth == 1 and token[:1] == b'"' and key == "model":
            return _text(token)
        last = token
    return None


def _text(token: bytes) -> str | None:
    """What a JSON string says; None when it was cut off, since half a name is another one."""
    try:
        text = json.loads(token.decode("utf-8", "replace"), strict=False)
    except ValueError:
        return None
    return text if isinstance(text, str) else None

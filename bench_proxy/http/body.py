"""Reads a request's body once, decides whom it is for, and can give it on byte for byte."""

import asyncio
import json
import re
from dataclasses import dataclass, field

from starlette.types import Message, Receive

READ_SECONDS = 60.0
"""How long a client may be silent in the middle of its body."""

MODEL_KEY = b'"model"'
BENCH_MODEL = re.compile(rb'"model"\s*:\s*"bench["/:\\]', re.IGNORECASE)
_BENCH_AFTER_KEY = re.compile(rb'\s*:\s*"bench["/:\\]', re.IGNORECASE)
FEW = 32


def may_be_ours(body: bytes) -> bool:
    """Whether `"model": "bench…` stands anywhere in it: cheap, never wrong about a request that is not ours at all."""
    at = -1
    for _ in range(FEW):
        at = body.find(MODEL_KEY, at + 1)
        if at < 0:
            return False
        if _BENCH_AFTER_KEY.match(body, at + len(MODEL_KEY)):
            return True
    return BENCH_MODEL.search(body, at) is not None


@dataclass(slots=True)
class Incoming:
    """A request's body as it came: its messages, so that LiteLLM can be given the very same ones."""

    messages: list[Message] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False
    too_large: bool = False
    hung_up: bool = False

    def replay(self, receive: Receive) -> Receive:
        """A `receive` that gives what was read, then goes on where reading stopped."""
        rest = iter(self.messages)

        async def again() -> Message:
            return next(rest, None) or await receive()

        return again


async def read(receive: Receive, most: int) -> Incoming:
    """Read until the body ends, passes `most` bytes, stalls for READ_SECONDS, or its sender hangs up."""
    incoming = Incoming()
    size = 0
    while not (incoming.whole or incoming.too_large or incoming.hung_up):
        try:
            async with asyncio.timeout(READ_SECONDS):
                message = await receive()
        except TimeoutError:
            break
        incoming.messages.append(message)
        size += len(message.get("body", b""))
        incoming.hung_up = message["type"] == "http.disconnect"
        incoming.whole = not incoming.hung_up and not message.get("more_body", False)
        incoming.too_large = size > most
    incoming.body = b"".join(m.get("body", b"") for m in incoming.messages)
    return incoming


# Possessive, so that an unterminated string costs one pass; at the end of a cut body such a string is one token.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{}\[\]:,]', re.DOTALL)


def top_level_model(body: bytes) -> str | None:
    """The value of `model` in the outermost object of a body that cannot be parsed: cut off, or broken further on.

    Costs time that grows with the body: call it in a thread for a large one.
    """
    depth = 0
    key: str | None = None
    last = b""
    for match in _TOKEN.finditer(body):
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

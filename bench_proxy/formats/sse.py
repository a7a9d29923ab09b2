"""Server-sent events, as the formats write them."""

import re

from bench_proxy.formats.base import dumps

CONTENT_TYPE = "text/event-stream; charset=utf-8"

DONE = b"data: [DONE]\n\n"
"""How OpenAI ends a stream of events without names."""

COMMENT = b": keep-alive\n\n"


NAME = re.compile(r"[\w.\-]+", re.ASCII)


def event(value: object, name: str = "") -> bytes:
    return relayed(dumps(value), name)


def relayed(data: bytes, name: str = "") -> bytes:
    """An event whose data is written already, on one line. What a member's server says may be no name of an event, but
    the beginning of another one.
    """
    head = b"event: " + name.encode() + b"\n" if NAME.fullmatch(name) else b""
    return head + b"data: " + data + b"\n\n"

"""What a format must be able to do. Adding one is a module and a row in `formats/places.py`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from bench_proxy.errors import BenchError
from bench_proxy.formats.request import ChatRequest

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a reply repeats of its request: the panel's id, the model as it was asked for, when (Unix seconds)."""

    id: str
    model: str
    created: int
    include_usage: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens over all seats."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Wish:
    """How the reply should come.

    `alternatives`: whether it can hold several answers side by side, which mode `choices` needs. `ready` is the
    whole reply to a request that asks no model anything, as Ollama's clients send to load one.
    """

    stream: bool
    include_usage: bool = False
    alternatives: bool = True
    ready: bytes | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the answers that a reply offers side by side; mostly there is one."""

    text: str
    finish_reason: str = "stop"


class Stream(Protocol):
    """One streamed reply while it is written. Alternatives begin in the order of their indices."""

    def begin(self, index: int = 0) -> bytes:
        """Begin the reply with its first alternative, or another one of them; called once for each, in order."""
        ...

    def text(self, text: str, index: int = 0) -> bytes:
        """A piece of the alternative `index`."""
        ...

    def done(self, index: int = 0) -> bytes:
        """Nothing more comes of this alternative. Not called for a reply that has only one."""
        ...

    def end(self, finish_reasons: Sequence[str], usage: Usage, data: Data) -> bytes:
        """The last events, the format's own terminal one included; one reason an alternative. `data` is `bench`."""
        ...

    def keep_alive(self) -> bytes:
        """Bytes that real clients of the format take as a sign of life and nothing else."""
        ...

    def error(self, error: BenchError) -> bytes:
        """The error after a 200, so that a client raises and does not hang; ends the stream."""
        ...


class Format(Protocol):
    content_type: str
    stream_content_type: str

    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        """Raises InvalidRequest when the body is not of this format; says which field and why."""
        ...

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes: ...

    def stream(self, envelope: Envelope) -> Stream: ...

    def error(self, error: BenchError) -> bytes:
        """The body of a reply that is an error."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """What the address of a request says: its format, and what the body does not.

    `model` is the model that the address names. `count` writes a token count, where that is what is asked for.
    `host_path` is a path that LiteLLM knows, where it does not know this one: it decides by the path what a key may do.
    """

    format: Format
    model: str | None = None
    count: Callable[[int], bytes] | None = None
    host_path: str | None = None


_LINE_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def dumps(value: object) -> bytes:
    """JSON without the three characters at which some clients wrongly end a line."""
    encoded = orjson.dumps(value)
    for raw, escaped in _LINE_SEPARATORS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return encoded

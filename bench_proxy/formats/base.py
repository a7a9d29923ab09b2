"""What a format must be able to do. Adding one is a module and a row in `FORMATS` of `http/gate.py`."""

from collections.abc import Mapping, Sequence
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
    """How the reply should come."""

    stream: bool
    include_usage: bool = False


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the answers that a reply offers side by side; mostly there is one."""

    text: str
    finish_reason: str = "stop"


class Format(Protocol):
    content_type: str
    stream_content_type: str

    def read(self, body: Data) -> tuple[ChatRequest, Wish]:
        """Raises InvalidRequest when the body is not of this format; says which field and why."""
        ...

    def whole(self, envelope: Envelope, answers: Sequence[Alternative], usage: Usage, data: Data) -> bytes: ...

    def begin(self, envelope: Envelope, index: int = 0) -> bytes:
        """Begin the reply with its first alternative, or another one of them; called once for each, in order."""
        ...

    def text(self, envelope: Envelope, text: str, index: int = 0) -> bytes:
        """A piece of the alternative `index`."""
        ...

    def end(self, envelope: Envelope, finish_reasons: Sequence[str], usage: Usage, data: Data) -> bytes:
        """The last events, the format's own terminal one included; one reason an alternative. `data` is `bench`."""
        ...

    def keep_alive(self, envelope: Envelope) -> bytes:
        """Bytes that real clients of the format take as a sign of life and nothing else."""
        ...

    def error(self, error: BenchError) -> bytes:
        """The body of a reply that is an error."""
        ...

    def error_event(self, envelope: Envelope, error: BenchError) -> bytes:
        """The error after a 200, so that a client raises and does not hang; ends the stream."""
        ...


_LINE_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def dumps(value: object) -> bytes:
    """JSON without the three characters at which some clients wrongly end a line."""
    encoded = orjson.dumps(value)
    for raw, escaped in _LINE_SEPARATORS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return encoded

"""What a format must be able to do. Adding one is a module, or a package of its own, and a row in `places.py`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from bench_proxy.errors import BenchError
from bench_proxy.formats.relays import Relaying
from bench_proxy.formats.request import ChatRequest, ToolName

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a reply repeats of its request: the panel's id, the model as it was asked for, when (Unix seconds)."""

    id: str
    model: str
    created: int
    include_usage: bool = False
    tools: Mapping[str, ToolName] = field(default_factory=dict)
    """How the caller knows tools that models know by another name or as another kind."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, of a panel over all seats. Cached ones and those written to a cache are among the prompt's, those of
    reasoning among the completion's.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Wish:
    """How the reply should come.

    `alternatives`: whether it can hold several answers side by side, which mode `choices` needs. `ready` is the
    whole reply to a request that asks no model anything, as Ollama's clients send to load one. `thoughts`: whether
    what a model thinks aloud is wanted in route mode.
    """

    stream: bool
    include_usage: bool = False
    alternatives: bool = True
    thoughts: bool = True
    ready: bytes | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the answers that a reply offers side by side; mostly there is one."""

    text: str
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the caller is to get it. `name` is the one that models know, `arguments` a JSON object as text;
    for a custom tool it is whatever text that tool takes.
    """

    id: str
    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One model's whole answer, as route mode replies with it. The finish reason is in the words of chat."""

    text: str = ""
    thoughts: str = ""
    calls: Sequence[ToolCall] = ()
    finish_reason: str = "stop"


class TurnStream(Protocol):
    """One model's answer while it comes, as route mode streams it: thoughts, text and calls, in any order.

    Only one call is open at a time, and only `arguments` come before it is done.
    """

    def begin(self) -> bytes: ...

    def thought(self, text: str) -> bytes: ...

    def text(self, text: str) -> bytes: ...

    def call(self, call: ToolCall) -> bytes:
        """Open a call; its arguments follow in pieces. Those of a custom tool come in one."""
        ...

    def arguments(self, text: str) -> bytes: ...

    def call_done(self) -> bytes: ...

    def end(self, finish_reason: str, usage: Usage, data: Data) -> bytes:
        """The last events, the format's own terminal one included. `data` is `bench`."""
        ...

    def keep_alive(self) -> bytes: ...

    def error(self, error: BenchError) -> bytes: ...


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

    def spoken(self, envelope: Envelope, spoken: Spoken, usage: Usage, data: Data) -> bytes:
        """The whole reply of route mode."""
        ...

    def turn(self, envelope: Envelope) -> TurnStream:
        """The streamed reply of route mode."""
        ...

    def error(self, error: BenchError) -> bytes:
        """The body of a reply that is an error."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """What the address of a request says: its format, and what the body does not.

    `model` is the model that the address names. `count` writes a token count, where that is what is asked for.
    `host_path` is a path that LiteLLM knows, where it does not know this one: it decides by the path what a key may do.
    `native` passes on the answers of members that speak the format themselves.
    """

    format: Format
    model: str | None = None
    count: Callable[[int], bytes] | None = None
    host_path: str | None = None
    native: Relaying | None = None


_LINE_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def dumps(value: object) -> bytes:
    """JSON without the three characters at which some clients wrongly end a line."""
    return _escaped(orjson.dumps(value))


def one_line(data: bytes) -> bytes:
    """JSON that was written elsewhere, on one line. Within its texts line breaks are escaped already."""
    return _escaped(data.replace(b"\r", b" ").replace(b"\n", b" "))


def _escaped(encoded: bytes) -> bytes:
    for raw, escaped in _LINE_SEPARATORS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return encoded

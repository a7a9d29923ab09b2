"""What a member says in the caller's own format, passed on as it came: whatever its maker signed or invented survives.

A format that some models' servers speak has a module that implements this (`anthropic/relay.py` for one). Its words:

- a *dialect* is such a format; a member is *native* to a request when its maker speaks the caller's dialect;
- a `Relaying` is what a dialect can do; it makes a `Hearing`, which understands one member's answer as far as a turn
  and LiteLLM's books have to know it, and a `Relay`, which writes it for one caller;
- a `Relayed` is an event on its way between the two, `Said` what has been understood so far;
- a `Native` is what the caller sent; it is *foreign* to a member when another maker has answered before, whose
  signatures it must not get. A member that refuses it is *told in chat*: asked once more in chat completions.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bench_proxy.characters import whole
from bench_proxy.formats.request import Json
from bench_proxy.formats.unchecked import as_text

Dialect = Literal["messages", "responses", "gemini"]
"""A format that some models' servers speak by themselves: Anthropic's Messages, OpenAI's Responses, Google's Gemini."""

MOST_BEHIND = 1024 * 1024
"""Bytes of events that are kept back behind the finish reason of an answer: its usage, and what else ends it."""

BENCHS_OWN = frozenset({"model", "stream", "bench", "with"})
"""Fields of a body that are no model's business."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """An event of a member's, to be passed on. `data` is its JSON as it came, `body` what that says."""

    data: bytes
    body: Json


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a tool that the caller runs, as far as it has come: `arguments` in pieces, each as it was sent."""

    id: object
    name: object
    arguments: list[object]


@dataclass(slots=True)
class Said:
    """What is known of an answer. `size`, `thought` and `argued` count characters: of its text, of its thoughts and of
    its calls' arguments. The finish reason is in the words of chat; `usage` is the server's own.
    """

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    size: int = 0
    thought: int = 0
    argued: int = 0
    answers: bool = False
    """Whether there is an answer: text that says something, a call, anything but thoughts."""

    finish_reason: str | None = None
    usage: Json = field(default_factory=dict)
    grounding: list[Json] = field(default_factory=list)
    """Google's own account of its searches, each of which has a price."""

    @property
    def text(self) -> str:
        return whole("".join(self.texts))

    def says(self, text: object) -> None:
        if isinstance(text, str) and text:
            self.texts.append(text)
            self.size += len(text)
            self.answers = self.answers or not text.isspace()

    def thinks(self, text: object) -> None:
        if isinstance(text, str) and text:
            self.thoughts.append(text)
            self.thought += len(text)

    def calls_for(self, id: object, name: object, arguments: object) -> None:
        self.calls.append(Called(id, name, [arguments] if arguments else []))
        self.argued += len(as_text(arguments))
        self.answers = True

    def argues(self, piece: object) -> None:
        """More arguments of the last call."""
        if self.calls:
            self.calls[-1].arguments.append(piece)
        self.argued += len(as_text(piece))


class Hearing(ABC):
    """One answer, as it is understood. What ends a streamed one is kept back until the turn is on the record.

    An event or an answer that is an error never comes this far.
    """

    def __init__(self) -> None:
        self.said = Said()
        self.last: list[Relayed] = []
        """The events from the one that ends the answer on."""

        self.ended = False
        """Whether the answer's end has come."""

        self.over = False
        """Whether the stream's last event has come, behind which nothing is to be read; or too much has."""

        self._behind = 0

    def heard(self, event: Relayed) -> Sequence[Relayed]:
        """What can be passed on now."""
        self.event(event.body)
        if self.said.finish_reason is None and not self.over:
            return (event,)
        self._behind += len(event.data)
        if self._behind > MOST_BEHIND:
            self.over = True
        else:
            self.last.append(event)
        return ()

    @abstractmethod
    def event(self, body: Json) -> None:
        """Understand one event of a stream."""

    @abstractmethod
    def whole(self, body: Json) -> None:
        """Understand all of it at once; what is no answer does not end it."""


class Relay(Protocol):
    """Writes one answer behind what its stream has written, which goes on with signs of life and errors."""

    def write(self, event: Relayed) -> bytes: ...

    def end(self, events: list[Relayed], data: Json) -> bytes:
        """The last events, with `bench` on the one where the format has it."""
        ...


class Relaying(Protocol):
    """A dialect: what a member is sent, how its answer is heard, how it is passed on."""

    dialect: Dialect

    def fitted(self, body: Json, *, foreign: bool, most_output: int | None) -> Json:
        """The body without what its reader could not understand; the one that is given stays as it is.

        What bench-proxy made up itself in the place of a model's own goes always, what a model's maker signed or
        encrypted only if it may be `foreign` to the reader. `most_output` is in tokens.
        """
        ...

    def hearing(self) -> Hearing: ...

    def whole(self, data: bytes, model: str, bench: Json) -> bytes:
        """The whole answer as the caller gets it: by the model that it asked for, with `bench`."""
        ...

    def relay(self, stream: Any, model: str) -> Relay:
        """`stream` is the format's own `TurnStream`, which may have begun the reply."""
        ...


@dataclass(frozen=True, slots=True)
class Native:
    """A request in its caller's own words. `headers` are those by which a caller chooses among a vendor's features,
    in lower case.
    """

    relaying: Relaying
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


def as_sent(body: Json) -> dict[str, Any]:
    """A body without what is bench-proxy's own; `null` is a field that was not sent."""
    return {name: value for name, value in body.items() if value is not None and name not in BENCHS_OWN}

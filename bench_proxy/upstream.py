"""The seam to the models: one call to one model, answered by exactly that model or failed."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from bench_proxy.characters import whole
from bench_proxy.formats.relays import Dialect, Hearing, Relayed
from bench_proxy.formats.request import ChatRequest

MOST_TOKENS = 2**31 - 1
"""What a column of the ledger holds."""

MOST_COST = 1e9
"""US dollars."""

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Call:
    """One call to one model. `timeout` is in seconds; `tags` go to LiteLLM's logs beside the cost."""

    alias: str
    request: ChatRequest
    timeout: float
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. Tokens and cost (US dollars) are None where they are not known.

    `reasoned` says that it thought aloud, which is no answer; `thoughts` is what it thought, as far as it showed it.
    `calls` are the tool calls, each whole.
    """

    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    reasoned: bool = False
    thoughts: str = ""
    calls: tuple["CallPiece", ...] = ()
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def sound(self) -> "Reply":
        """The same with its characters whole and without numbers that cannot be: a model's server may say anything."""
        return replace(
            self,
            text=whole(self.text),
            thoughts=whole(self.thoughts),
            cost=None if (cost := _plausible(self.cost, MOST_COST)) is None else dollars(cost),
            prompt_tokens=_tokens(self.prompt_tokens),
            completion_tokens=_tokens(self.completion_tokens),
            cached_tokens=_tokens(self.cached_tokens),
            cache_write_tokens=_tokens(self.cache_write_tokens),
            reasoning_tokens=_tokens(self.reasoning_tokens),
        )


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of what the model thinks aloud, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a tool call, or all of it, as the model's server sent it.

    Any of it may be missing or odd, and `arguments` anything that JSON can be: `route/untangling.py` puts it right.
    """

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: object = None


Event = Text | Thought | CallPiece | Reply


class Upstream(Protocol):
    async def complete(self, call: Call) -> Reply:
        """Ask once, without retry and without another model in its place.

        Raises UpstreamError for every failure; cancelling it stops the model's call.
        """
        ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """The same, piece by piece; ends with a `Reply` that holds what is known at the end: without text, thoughts
        and calls, which have come.

        Entering and iterating raise UpstreamError; a stream that stops without a terminal event raises one too.
        Leaving the context closes the model's call.
        """
        ...


@dataclass(frozen=True, slots=True)
class NativeCall:
    """One call in the caller's own format to a model whose server speaks it.

    `body` is the caller's, without `model`, `stream` and what is bench-proxy's own; `headers` are those by which a
    vendor lets a caller choose among its own features, as `anthropic-beta`, lower case. `hearing` understands the
    answer, as far as it has come.
    """

    alias: str
    dialect: Dialect
    hearing: Hearing
    body: Mapping[str, Any]
    timeout: float
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


class NativeUpstream(Protocol):
    """The seam for models that speak the caller's format: what they say is relayed as it comes."""

    def maker(self, alias: str, dialect: Dialect) -> str:
        """Whose server this is, where it speaks the dialect; empty where it does not, or nobody has proved it.

        What one maker signed or encrypted is understood by the same maker only.
        """
        ...

    async def complete_native(self, call: NativeCall) -> tuple[bytes, Reply]:
        """The body of the answer, and what is known of it. Raises UpstreamError for every failure, one inside a 200
        included.
        """
        ...

    def stream_native(self, call: NativeCall) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Relayed] | Reply]]:
        """What of each event the hearing lets pass; ends with a `Reply` that holds what is known at the end.

        Entering and iterating raise UpstreamError; an error that comes as an event is one. Leaving the context closes
        the model's call.
        """
        ...

    def reported(self, call: NativeCall) -> Reply:
        """What the model's server has said of its answer's tokens until now, in one that is not over. Never raises."""
        ...


def _tokens(value: int | None) -> int | None:
    known = _plausible(value, MOST_TOKENS)
    return None if known is None else int(known)


def dollars(cost: float) -> float:
    """A price times a number, or a sum of such, without the noise of floats: to 12 digits."""
    return float(f"{cost:.12g}")


def _plausible(value: N | None, most: N) -> N | None:
    """None for NaN, for what is out of range and for what is no number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if 0 <= value <= most else None

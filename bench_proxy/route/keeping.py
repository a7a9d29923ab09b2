"""The words of a conversation: who answers it, what became of each turn, and what keeps both."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bench_proxy.keys import Use
from bench_proxy.upstream import Reply

StickyBy = Literal["header", "client session", "fingerprint", "bench.conversation"]
TurnStatus = Literal["ok", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class Pin:
    """Who answers a conversation. `calls` are the models that have answered in it, in the order in which they first
    did: the nth one's call is `<conversation>.<n>`. `turns` counts its turns.
    """

    conversation: str
    alias: str
    calls: tuple[str, ...] = ()
    turns: int = 0


class Pins(Protocol):
    """The pins of all processes, by sticky key. Neither method raises: a conversation goes on without them."""

    async def get(self, key: str) -> Pin | None: ...

    async def put(self, keys: Collection[str], pin: Pin, seconds: float) -> None:
        """Remember it under each of these for so many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Failed:
    """A member that was asked in a turn and did not answer it: the status and type of its error, and its words."""

    alias: str
    status: int
    type: str
    message: str

    def as_json(self) -> dict[str, Any]:
        return {"alias": self.alias, "error": {"status": self.status, "type": self.type, "message": self.message}}


@dataclass(frozen=True, slots=True)
class NotAsked:
    """A member that could not take a turn, and why."""

    alias: str
    why: str

    def as_json(self) -> dict[str, Any]:
        return {"alias": self.alias, "why": self.why}


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn as it is put on the record: never what was asked, of the answer only its text.

    `sticky` is the key's digest. `turn` counts from 1, `number` is n of the call `<conversation>.<n>`; both call
    and alias are empty where no member answered. Seconds count from the turn's start, `at_ms` is when that was.
    `reply` has what the member used; it is estimated where the answer broke off. `use` is what counts in its owner's
    budget: of all members that were asked, estimated where they do not say it. `left_out` are tools that the member was
    not told of. `keep_text` says whether the record may have the text too.
    """

    conversation: str
    sticky: str
    sticky_by: StickyBy
    collection: str
    model: str
    shape: str
    turn: int
    at_ms: int
    status: TurnStatus
    seconds: float
    call: str = ""
    number: int = 0
    alias: str = ""
    first_piece_seconds: float | None = None
    tool_calls: int = 0
    reply: Reply = field(default_factory=lambda: Reply(""))
    use: Use = field(default_factory=Use)
    failed_over: Sequence[Failed] = ()
    skipped: Sequence[NotAsked] = ()
    left_out: Sequence[str] = ()
    keep_text: bool = True


class TurnKeeping(Protocol):
    """What turns put on the record, and read of it. Each method raises LedgerUnavailable."""

    async def took(self, report: TurnReport, owner: str) -> TurnReport:
        """Returns once the turn is durable, with the conversation and the answered call if they are new: the turn as it
        was recorded, since only the record knows which number it has, and its call, when others were taken at the same
        time. A member that failed over is counted as seated and failed.
        """
        ...

    async def pinned(self, sticky: str, since_ms: int) -> Pin | None:
        """The conversation of this key that had a turn since then, as the record knows it."""
        ...

    async def conversations(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Any:
        """A `bench.Page`, newest first."""
        ...

    async def conversation(self, conversation: str, owner: str | None) -> Mapping[str, Any] | None:
        """With its turns and its calls, each with its verdict."""
        ...

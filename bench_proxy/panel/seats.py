"""The words of a panel: its seats, what became of each, and why others did not sit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from bench_proxy.config import ReplyMode

SeatKind = Literal["member", "explorer", "guest", "merger"]
Status = Literal["ok", "empty", "error", "late"]


@dataclass(frozen=True, slots=True)
class Seat:
    """One model's place on a panel. `mask` is the letter that a blind panel shows instead of the model's name."""

    call: str
    kind: SeatKind
    alias: str
    mask: str = ""

    @property
    def name(self) -> str:
        """What the caller may know of the model."""
        return self.mask or self.alias

    @property
    def shown_kind(self) -> str:
        """A member is asked on every panel: a blind one that told members from explorers would name them."""
        return "blind" if self.mask else self.kind

    @property
    def title(self) -> str:
        """`Member 1: gpt`, numbered as in the call id, so that text and ids agree."""
        if self.mask:
            return f"Seat {self.mask}"
        return f"{self.kind.capitalize()}{f' {self.number}' if self.number else ''}: {self.alias}"

    @property
    def number(self) -> int:
        """The seat's among those of its kind, from 1; 0 for a merger that is the only one."""
        return int(self.call.rpartition("blind" if self.mask else self.kind)[2] or 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of a seat's text, as the model said it."""

    seat: Seat
    text: str


@dataclass(frozen=True, slots=True)
class SeatError:
    """Why a seat failed; `retry_after` in seconds and `context_window` in tokens, where the model's server said so."""

    status: int
    type: str
    message: str
    retry_after: float | None = None
    context_window: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {"status": self.status, "type": self.type, "message": self.message}


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a seat. `seconds` count from the seat's start; `cost` is in US dollars, None when unknown;
    `thought` counts the characters that were thought aloud.
    """

    seat: Seat
    status: Status
    seconds: float
    text: str = ""
    first_token_seconds: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    finish_reason: str | None = None
    error: SeatError | None = None
    thought: int = 0

    def as_json(self) -> dict[str, Any]:
        """The seat in the `bench` object; what is not known is left out."""
        known = {
            "call": self.seat.call,
            "seat": self.seat.shown_kind,
            "alias": self.seat.name,
            "status": self.status,
            "seconds": self.seconds,
            "first_token_seconds": self.first_token_seconds,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            # What an answer cost tells who gave it.
            "cost": None if self.seat.mask else self.cost,
            "finish_reason": self.finish_reason,
            "answer": self.text or None,
            "error": self._shown_error(),
        }
        return {name: value for name, value in known.items() if value is not None}

    def _shown_error(self) -> dict[str, Any] | None:
        """A model's own error message often names it."""
        if self.error is None:
            return None
        return replace(self.error, message=self.error.type).as_json() if self.seat.mask else self.error.as_json()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A model that could have sat and did not, and why."""

    kind: SeatKind
    alias: str
    why: str

    def as_json(self) -> dict[str, str]:
        return {"seat": self.kind, "alias": self.alias, "why": self.why}


@dataclass(frozen=True, slots=True)
class Seating:
    """Who sits on a panel, known once its explorers are reserved."""

    panel: str
    collection: str
    model: str
    reply: ReplyMode
    shape: str
    shape_by: str
    seats: tuple[Seat, ...]
    skipped: tuple[Skipped, ...]

    @property
    def blind(self) -> bool:
        return any(seat.mask for seat in self.seats)


@dataclass(frozen=True, slots=True)
class Report:
    """A panel that is over: the answers in seat order, who merged them, and what all cost together.

    `merged` is the one answer of a merged reply, None when it has to be every answer after all; `gave_up` are the
    mergers that failed before `merger` was asked.
    """

    seating: Seating
    answers: tuple[Answer, ...]
    seconds: float
    note: str = ""
    merger: Answer | None = None
    merged: str | None = None
    gave_up: tuple[Answer, ...] = ()

    @property
    def partial(self) -> bool:
        return bool(self.seating.skipped) or any(a.status != "ok" for a in self.all)

    @property
    def ok(self) -> list[Answer]:
        return [a for a in self.answers if a.status == "ok"]

    @property
    def all(self) -> tuple[Answer, ...]:
        """Of every seat, the merger's included."""
        return self.answers if self.merger is None else (*self.answers, self.merger)

    @property
    def _asked(self) -> tuple[Answer, ...]:
        """All that was paid for."""
        return (*self.all, *self.gave_up)

    @property
    def prompt_tokens(self) -> int:
        return sum(a.prompt_tokens or 0 for a in self._asked)

    @property
    def completion_tokens(self) -> int:
        return sum(a.completion_tokens or 0 for a in self._asked)

    @property
    def cost(self) -> float | None:
        """US dollars over the seats whose cost is known; None when none is."""
        known = [a.cost for a in self._asked if a.cost is not None]
        return round(sum(known), 10) if known else None

    def as_json(self, verdict_url: str) -> Mapping[str, Any]:
        """The `bench` object of `contract.md`."""
        seating = self.seating
        data: dict[str, Any] = {
            "panel": seating.panel,
            "collection": f"bench/{seating.collection}",
            "reply": seating.reply,
            "shape": seating.shape,
            "shape_by": seating.shape_by,
            "partial": self.partial,
            "seats": [a.as_json() for a in self.answers],
            "skipped": [s.as_json() for s in seating.skipped],
        }
        if self.merger is not None:
            data["merger"] = self.merger.as_json()
        if self.gave_up:
            data["gave_up"] = [a.as_json() for a in self.gave_up]
        if self.note:
            data["note"] = self.note
        if self.cost is not None:
            data["cost"] = self.cost
        if verdict_url:
            data["verdict"] = {"method": "POST", "url": verdict_url}
        return data

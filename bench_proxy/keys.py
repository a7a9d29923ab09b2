"""Bench keys, for deployments where LiteLLM has no database of keys: what one is, and how its limits are kept (pure).

A key is 256 random bits, so that a plain digest of it is as good as a slow one: nobody can try them all.
"""

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from math import ceil
from typing import Any, Protocol

from bench_proxy.errors import BudgetSpent, Denied, Overloaded

PREFIX = "bpk_"
FORM = re.compile(r"bpk_[A-Za-z0-9_-]{43}", re.ASCII)
ID = re.compile(r"k\d{8}-\d{6}-[a-z2-7]{16}", re.ASCII)
"""Of a key's id, which is also what owns its panels. LiteLLM's keys have owners of another form."""

MINUTE_MS = 60_000
LONGEST_WAIT = 60
"""Seconds that a client is told to wait. Some sleep as long as they are told, and would say nothing until midnight."""


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(key: str) -> str:
    """What is kept of a key; empty for what has not the form of one, and so is none."""
    return sha256(key.encode()).hexdigest() if FORM.fullmatch(key) else ""


@dataclass(frozen=True, slots=True)
class Use:
    """What requests have used: tokens of prompts and answers, and their cost in US dollars as far as it is known."""

    tokens: int = 0
    cost: float = 0.0

    def __add__(self, more: "Use") -> "Use":
        return Use(self.tokens + more.tokens, self.cost + more.cost)


@dataclass(frozen=True, slots=True)
class Limits:
    """None is no limit. Days are those of UTC, costs in US dollars."""

    requests_a_minute: int | None = None
    tokens_a_day: int | None = None
    cost_a_day: float | None = None

    @property
    def of_day(self) -> bool:
        return self.tokens_a_day is not None or self.cost_a_day is not None


@dataclass(frozen=True, slots=True)
class BenchKey:
    """What is known of a key. `collections` None are all; times are Unix times in milliseconds, None is never."""

    id: str
    name: str
    digest: str = field(repr=False)
    last_four: str
    at_ms: int
    collections: tuple[str, ...] | None = None
    limits: Limits = Limits()
    expires_ms: int | None = None
    revoked_ms: int | None = None
    last_used_ms: int | None = None

    def may_call(self, collection: str) -> bool:
        return self.collections is None or collection in self.collections

    def as_json(self, today: Use) -> dict[str, Any]:
        """As an admin sees it: everything but the key."""
        return {
            "id": self.id,
            "name": self.name,
            "last_four": self.last_four,
            "collections": None if self.collections is None else list(self.collections),
            "requests_a_minute": self.limits.requests_a_minute,
            "tokens_a_day": self.limits.tokens_a_day,
            "cost_a_day": self.limits.cost_a_day,
            "created": self.at_ms / 1000,
            "expires": _seconds(self.expires_ms),
            "revoked": _seconds(self.revoked_ms),
            "last_used": _seconds(self.last_used_ms),
            "today": {"tokens": today.tokens, "cost": today.cost},
        }


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Keys, newest first, each with what it has used today; `next` is the cursor of the following page."""

    keys: Sequence[tuple[BenchKey, Use]]
    next: str | None


class KeyStore(Protocol):
    """Where keys are kept, for all processes of a deployment. Each method raises LedgerUnavailable."""

    async def make_key(self, key: BenchKey) -> None: ...

    async def bench_key(self, digest: str) -> BenchKey | None: ...

    async def bench_keys(self, limit: int, cursor: str | None) -> KeyPage: ...

    async def revoke_key(self, id: str, now_ms: int) -> tuple[BenchKey, Use] | None:
        """The key as it then is; None where there is none. One that was revoked before stays as it is."""
        ...

    async def count_request(self, key: BenchKey, now_ms: int) -> None:
        """One more request of this minute, counted across all processes. Raises Overloaded."""
        ...

    async def hold(self, id: str, key: BenchKey, most: Use, until_ms: int, now_ms: int) -> None:
        """Set aside what a request may use at most, under an id of its own. Raises BudgetSpent, Overloaded."""
        ...

    async def let_go(self, hold: str) -> None:
        """What was set aside is free again; what the request has used counts by then."""
        ...


def judged(key: BenchKey | None, digest: str, now_ms: int) -> BenchKey:
    """The key that was found for a digest, if it is good now. Raises Denied."""
    # Looked up by its digest already; compared once more, in a time that says nothing of how much of it was right.
    if key is None or not digest or not hmac.compare_digest(key.digest, digest):
        raise _denied("this bench key is not known; ask whoever runs this proxy for one")
    if key.revoked_ms is not None:
        raise _denied("this bench key was revoked; ask whoever runs this proxy for another one")
    if key.expires_ms is not None and key.expires_ms <= now_ms:
        raise _denied(f"this bench key expired on {_date(key.expires_ms)}; ask whoever runs this proxy for another one")
    return key


@dataclass(frozen=True, slots=True)
class Minute:
    """How many requests were counted in the minute that began at `start_ms`."""

    start_ms: int = 0
    requests: int = 0


def counted(minute: Minute, limit: int, now_ms: int) -> Minute:
    """One request more. Raises Overloaded until the minute has ended.

    A process whose clock is a little behind goes on in the minute of the others: it must not begin one anew.
    """
    start = now_ms - now_ms % MINUTE_MS
    if start < minute.start_ms <= start + MINUTE_MS:
        start = minute.start_ms
    requests = minute.requests if start == minute.start_ms else 0
    if requests >= limit:
        wait = min(max(1, ceil((start + MINUTE_MS - now_ms) / 1000)), LONGEST_WAIT)
        raise Overloaded(
            f"this key may send {_plural(limit, 'request')} a minute; ask again in {wait} s", retry_after=wait
        )
    return Minute(start, requests + 1)


def check_day(limits: Limits, spent: Use, held: Use, now_ms: int) -> None:
    """Raise BudgetSpent when the day's budget is used up, Overloaded when requests under way may use up the rest.

    As long as nothing is under way, a request is let in until the budget is reached: the last one may go past it by
    what it uses itself. Two that come together cannot: each sets aside the most that it may use.
    """
    for name, limit, used, aside in _budgets(limits, spent, held):
        if used >= limit:
            raise BudgetSpent(
                f"this key has used up its {name} a day ({_amount(used, name)} of {_amount(limit, name)}); "
                f"the day ends at 00:00 UTC, in {_until_tomorrow(now_ms)}",
                retry_after=min(_seconds_left(now_ms), LONGEST_WAIT),
            )
        if used + aside >= limit:
            raise Overloaded(
                f"requests of this key that are under way may use up what is left of its {name} a day "
                f"({_amount(limit - used, name)} of {_amount(limit, name)}); ask again when they are done",
                retry_after=1,
            )


def day_of(now_ms: int) -> str:
    """The day in UTC, as `2026-11-30`."""
    return _at(now_ms).date().isoformat()


def _budgets(limits: Limits, spent: Use, held: Use) -> list[tuple[str, float, float, float]]:
    found: list[tuple[str, float, float, float]] = []
    if limits.tokens_a_day is not None:
        found.append(("tokens", limits.tokens_a_day, spent.tokens, held.tokens))
    if limits.cost_a_day is not None:
        found.append(("cost", limits.cost_a_day, spent.cost, held.cost))
    return found


def _amount(value: float, name: str) -> str:
    return f"${value:,.4f}" if name == "cost" else f"{value:,.0f}"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _seconds_left(now_ms: int) -> int:
    now = _at(now_ms)
    tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1, ceil((tomorrow - now).total_seconds()))


def _until_tomorrow(now_ms: int) -> str:
    hours, minutes = divmod(ceil(_seconds_left(now_ms) / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _date(ms: int) -> str:
    return _at(ms).strftime("%Y-%m-%d %H:%M UTC")


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _denied(message: str) -> Denied:
    return Denied(f"Authentication Error, {message}", status=401, type="auth_error", code="401")


IDENTITY = ("user_api_key_alias", "user_api_key_end_user_id")


def payer_of(key: BenchKey) -> Mapping[str, str]:
    """What LiteLLM's books say of the calls that a key causes: its name and id, and never itself."""
    return dict(zip(IDENTITY, (key.name, key.id), strict=True))

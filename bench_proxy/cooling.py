"""When a model is not asked by choice: after it was rate limited, or while it fails (pure but for the clock given).

A model that cools takes no explorer seat and no new conversation. A member of a collection is asked all the same.
"""

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

FIRST = 30.0
LONGEST = 900.0
"""Seconds for the first failure; each one more in a row doubles them, up to the longest."""

RATE_LIMITED = 60.0
LONGEST_STATED = 3600.0
"""Seconds for a rate limit that does not say how long it lasts, and the most that is believed of one that does."""

REMEMBERED = 3600.0
"""Seconds after its last failure's end until a model that was not asked since begins anew."""

MOST_FAILURES = 64

FAILURES = frozenset(
    {
        "authentication",
        "bad_response",
        "connection",
        "not_found",
        "overloaded",
        "permission",
        "server_error",
        "timeout",
    }
)
"""The kinds of `UpstreamError` that are the model's own. A prompt that is too long, a refusal, a caller's mistake and
a cancelled call are not; `cooling` is LiteLLM's own cooldown, which is counted where it was set.
"""


@dataclass(frozen=True, slots=True)
class Cooled:
    """Since when (`at`, the last failure) and until when a model cools, in seconds of one clock.

    `failures` in a row; a rate limit is none.
    """

    failures: int
    at: float
    until: float


def after(before: Cooled | None, kind: str, *, now: float, began: float, retry_after: float | None) -> Cooled | None:
    """What an error of this kind makes of it; None when it does not cool.

    `began` is when the failed call began. Calls that were under way together fail together, which is one failure.
    """
    row = before.failures if before is not None else 0
    if kind == "rate_limit":
        stated = retry_after if retry_after is not None and retry_after > 0 else RATE_LIMITED
        wait = min(stated, LONGEST_STATED)
    elif kind in FAILURES:
        if before is None or row == 0 or began >= before.at:
            row = min(row + 1, MOST_FAILURES)
        wait = min(FIRST * 2 ** (row - 1), LONGEST)
    else:
        return None
    until = now + wait
    return Cooled(row, now, until if before is None else max(until, before.until))


_STATED = re.compile(
    r"(?:try again|retry)(?:ing)? (?:in|after) |\"retryDelay\":\s*\"",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\s?(\d{1,7}(?:\.\d+)?)\s?(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h)?(?![a-z])", re.IGNORECASE
)
_UNITS = (("mil", 0.001), ("ms", 0.001), ("m", 60.0), ("h", 3600.0), ("", 1.0))
"""Seconds by how a unit begins; the first that fits. Nothing is seconds."""

MOST_PARTS = 4


def stated_wait(message: str) -> float | None:
    """Seconds after which an error lets one ask again: `Please try again in 1m12.5s`, `"retryDelay": "41s"`."""
    said = _STATED.search(message)
    if said is None:
        return None
    wait, at = 0.0, said.end()
    for _ in range(MOST_PARTS):
        part = _PART.match(message, at)
        if part is None:
            break
        unit = (part[2] or "").lower()
        wait += float(part[1]) * next(seconds for begins, seconds in _UNITS if unit.startswith(begins))
        at = part.end()
        if not unit:
            break
    return min(wait, LONGEST_STATED) if wait > 0 else None


class NotShared(Exception):
    """What others know cannot be reached now."""


class SharedCooling(Protocol):
    """What other processes and LiteLLM know. `now` and all times are seconds of the asking process's clock."""

    async def exchange(
        self, changed: Mapping[str, Cooled | None], aliases: Collection[str], now: float
    ) -> Mapping[str, Cooled] | None:
        """Put what changed (None: it no longer cools) and get what all processes know; None when nothing is shared.

        Raises NotShared when it could not be done: what changed is told again.
        """
        ...

    async def hosts(self, aliases: Collection[str], now: float) -> Mapping[str, float]:
        """Until when LiteLLM itself refuses to ask a model, because all its deployments failed."""
        ...


class Cooling:
    """What this process knows. Noting and asking cost nothing; `exchange` does the rest, every now and then.

    `clock` gives seconds that never jump.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cooled: dict[str, Cooled] = {}
        self._hosts: Mapping[str, float] = {}
        self._changed: set[str] = set()

    def failed(self, alias: str, kind: str, *, seconds: float = 0, retry_after: float | None = None) -> None:
        """A call failed after so many seconds."""
        now = self._clock()
        cooled = after(self._cooled.get(alias), kind, now=now, began=now - seconds, retry_after=retry_after)
        if cooled is not None:
            self._cooled[alias] = cooled
            self._changed.add(alias)

    def worked(self, alias: str) -> None:
        """A model answered."""
        if self._cooled.pop(alias, None) is not None:
            self._changed.add(alias)

    def left(self) -> dict[str, float]:
        """The models that cool now, and for how many seconds more."""
        now = self._clock()
        left = {alias: cooled.until - now for alias, cooled in self._cooled.items() if cooled.until > now}
        for alias, until in self._hosts.items():
            if until > now:
                left[alias] = max(left.get(alias, 0), until - now)
        return left

    async def exchange(self, shared: SharedCooling, aliases: Collection[str]) -> None:
        """Tell what changed here, and take what the others and LiteLLM say of these aliases."""
        now = self._clock()
        changed, self._changed = self._changed, set()
        try:
            known = await shared.exchange({a: self._cooled.get(a) for a in changed}, aliases, now)
        except NotShared:
            self._changed |= changed
            known = None
        except BaseException:
            self._changed |= changed
            raise
        if known is not None:
            for alias in aliases:
                # What was noted here in the meantime is newer.
                if alias not in self._changed:
                    self._put(alias, known.get(alias))
        self._hosts = await shared.hosts(aliases, now)
        self._forget(self._clock())

    def _put(self, alias: str, cooled: Cooled | None) -> None:
        if cooled is None:
            self._cooled.pop(alias, None)
        else:
            self._cooled[alias] = cooled

    def _forget(self, now: float) -> None:
        for alias in [a for a, cooled in self._cooled.items() if cooled.until + REMEMBERED < now]:
            del self._cooled[alias]

"""Removes what is older than it is to be kept, in small batches, by one process at a time.

A panel goes with its seats and with all that was said of them; so does a conversation, once its last turn is that old.
Sums and wins stay, and with them everything that is chosen by the record. What bench keys used on a day is read on that
day alone, and goes after a while whatever is kept.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench_proxy.errors import LedgerUnavailable
from bench_proxy.facts import Subject
from bench_proxy.keys import day_of
from bench_proxy.ledger.schema import conversations, facts, key_days, key_holds, panels, picks, seats, turns, verdicts
from bench_proxy.ledger.showing import integer
from bench_proxy.ledger.values import now_ms

log = logging.getLogger("bench_proxy")

EVERY_SECONDS = 3600.0
DAY_MS = 24 * 3600 * 1000

NEVER_ENDED_MS = 2 * DAY_MS
"""How much longer a panel is left that has no end. None runs for so long: its process died."""

MOST_AT_ONCE = 100
"""Panels, or conversations, in one transaction: about 500 rows."""
MOST_TURNS = 500
MOST_KEY_DAYS = 500

KEY_DAYS = 35
"""How long at most it is kept what a key used on a day: for a look back over a month."""

LONG_SECONDS = 0.05
"""What a transaction should take at most: all that is written waits for it. Long answers take longer to remove."""
PAUSE_SECONDS = 0.1
RESTS = 4
"""How many times as long as a transaction took nothing is removed after it."""
LONGEST_PAUSE = 10.0

BATON: Subject = ("", "pruning")
"""The row of `facts` that says when a batch was last removed, by whichever process."""
PASSED_ON_MS = 60_000
"""After which another process may go on: the one that was at it has ended, or waits for its next hour."""

Removal = Callable[[Connection, int, int], int]
"""Removes up to so many of what is older than a time in milliseconds; how many."""


class Write(Protocol):
    def __call__(self, write: Callable[[Connection], Any], *, urgent: bool) -> Awaitable[Any]:
        """Run it in a transaction that has the write lock. Raises LedgerUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction did: how many it removed, the time that it left for others to see, and how long it took."""

    removed: int
    left_ms: int
    seconds: float


class Pruning:
    """Of one process. `keep_days` says how long everything is kept now; 0 is for ever."""

    def __init__(self, write: Write, add_to_facts: Any) -> None:
        """`add_to_facts` puts a row into `facts`, or its time into the one that is there."""
        self._write = write
        self._add_to_facts = add_to_facts
        self._left_ms: int | None = None

    async def run(self, keep_days: Callable[[], int]) -> None:
        """Now and once an hour, until cancelled."""
        while True:
            try:
                if removed := await self.prune(keep_days):
                    log.info("removed %d panels and conversations older than ledger.keep_days", removed)
            except LedgerUnavailable as error:
                log.warning("what is older than ledger.keep_days is still there, and is tried again: %s", error)
            except Exception:  # the next hour is another try
                log.exception("what is older than ledger.keep_days could not be removed")
            await asyncio.sleep(EVERY_SECONDS)

    async def prune(self, keep_days: Callable[[], int]) -> int:
        """Remove all that is too old, with pauses; how many panels and conversations. What is left by one that was
        broken off is found by the next. Raises LedgerUnavailable.
        """
        removed = await self._all(remove, MOST_AT_ONCE, keep_days)
        await self._all(remove_of_keys, MOST_KEY_DAYS, lambda: min(keep_days() or KEY_DAYS, KEY_DAYS))
        return removed

    async def _all(self, removal: Removal, most_at_once: int, keep_days: Callable[[], int]) -> int:
        removed, most = 0, most_at_once
        while (days := keep_days()) > 0:
            before_ms = now_ms() - days * DAY_MS
            once = partial(self._batch, removal, before_ms=before_ms, most=most)
            batch: Batch = await self._write(once, urgent=False)
            if not batch.removed:
                break
            removed, self._left_ms = removed + batch.removed, batch.left_ms
            most = max(1, most // 2) if batch.seconds > LONG_SECONDS else min(most_at_once, most * 2)
            await asyncio.sleep(min(max(PAUSE_SECONDS, RESTS * batch.seconds), LONGEST_PAUSE))
        return removed

    def _batch(self, removal: Removal, connection: Connection, *, before_ms: int, most: int) -> Batch:
        """Of nothing where another process is at it."""
        began = time.monotonic()
        removed = removal(connection, before_ms, most) if self._has_baton(connection) else 0
        left_ms = self._leave_baton(connection) if removed else 0
        return Batch(removed, left_ms, time.monotonic() - began)

    def _has_baton(self, connection: Connection) -> bool:
        """Whoever left the time that stands there goes on, anybody else once it is old."""
        left = sa.select(facts.c.at_ms).where(facts.c.alias == BATON[0], facts.c.served == BATON[1])
        at_ms = connection.execute(left).scalar()
        # A clock that was set back must not keep everyone waiting for it.
        return at_ms is None or at_ms == self._left_ms or abs(now_ms() - integer(at_ms)) > PASSED_ON_MS

    def _leave_baton(self, connection: Connection) -> int:
        row = {"alias": BATON[0], "served": BATON[1], "context_window": None, "tools": None, "vision": None}
        at_ms = now_ms()
        connection.execute(self._add_to_facts, {**row, "at_ms": at_ms})
        return at_ms


def remove(connection: Connection, before_ms: int, most: int) -> int:
    """Remove up to `most` of the oldest panels that ended, else conversations that were silent, since before then.

    0 when nothing is left to remove. Needs an index for everything: what it costs does not grow with the ledger.
    """
    if names := _ended_panels(connection, before_ms, most):
        _remove_answers(connection, names)
        _remove_of(connection, picks.c.panel, names)
        _remove_of(connection, panels.c.id, names)
    elif names := _silent_conversations(connection, before_ms, most):
        _remove_answers(connection, names)
        if _remove_turns(connection, names):
            _remove_of(connection, conversations.c.id, names)
    elif names := _strays(connection, before_ms, most):
        _remove_answers(connection, names)
    return len(names)


def remove_of_keys(connection: Connection, before_ms: int, most: int) -> int:
    """Remove what requests have set aside that are over, and up to `most` of the days before then; how many days.

    A key's next request does the first for that key, and some keys never ask again. Only requests under way have set
    something aside: these rows are too few for an index, which each request would have to write.
    """
    connection.execute(key_holds.delete().where(key_holds.c.until_ms <= now_ms()))
    of = key_days.primary_key.columns
    old = sa.select(*of).where(key_days.c.day < day_of(before_ms)).order_by(key_days.c.day).limit(most)
    return connection.execute(key_days.delete().where(sa.tuple_(*of).in_(old))).rowcount


def _ended_panels(connection: Connection, before_ms: int, most: int) -> Sequence[str]:
    over = panels.c.partial.is_not(None) | (panels.c.at_ms < before_ms - NEVER_ENDED_MS)
    found = sa.select(panels.c.id).where(panels.c.at_ms < before_ms, over)
    return connection.execute(found.order_by(panels.c.at_ms, panels.c.id).limit(most)).scalars().all()


def _silent_conversations(connection: Connection, before_ms: int, most: int) -> Sequence[str]:
    began, last = conversations.c.at_ms, conversations.c.last_ms  # the index is on the first
    found = sa.select(conversations.c.id).where(began < before_ms, last < before_ms)
    return connection.execute(found.order_by(began, conversations.c.id).limit(most)).scalars().all()


def _strays(connection: Connection, before_ms: int, most: int) -> Sequence[str]:
    """Panels of which only seats are there: their own row was never written, or one answered after it was removed."""
    before_ms -= NEVER_ENDED_MS
    # Ids begin with their day, by which the index on them has these seats together.
    day = time.strftime("%Y%m%d", time.gmtime(max(0, before_ms) / 1000))
    of_ids = [seats.c.panel.between(kind, f"{kind}{day}") for kind in "pr"]
    kept = [sa.exists().where(table.c.id == seats.c.panel) for table in (panels, conversations)]
    found = sa.select(seats.c.panel).where(
        sa.or_(*of_ids), seats.c.at_ms < before_ms, *(sa.not_(there) for there in kept)
    )
    return connection.execute(found.distinct().limit(most)).scalars().all()


def _remove_answers(connection: Connection, names: Sequence[str]) -> None:
    """The seats of panels, or the calls of conversations, with what was said of them."""
    calls = sa.select(seats.c.call).where(seats.c.panel.in_(names))
    connection.execute(verdicts.delete().where(verdicts.c.call.in_(calls)))
    _remove_of(connection, seats.c.panel, names)


def _remove_turns(connection: Connection, names: Sequence[str]) -> bool:
    """Whether all of them are gone: a conversation may have so many that they take several transactions."""
    some = sa.select(turns.c.id).where(turns.c.conversation.in_(names)).limit(MOST_TURNS)
    return connection.execute(turns.delete().where(turns.c.id.in_(some))).rowcount < MOST_TURNS


def _remove_of(connection: Connection, column: sa.Column[str], names: Sequence[str]) -> None:
    connection.execute(column.table.delete().where(column.in_(names)))

"""Group commit: one thread that writes whatever is waiting in one transaction.

A caller who needs durability awaits its write; the others leave theirs to be committed with it, in the order in which
they came. A write that is not urgent waits a little for one that is: so the answers of a panel that come together cost
one commit, and the last of them does not wait for that of the first. The queue is bounded: a full one slows callers
down, nothing is dropped.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from bench_proxy.errors import BenchError, LedgerUnavailable

log = logging.getLogger("bench_proxy")

Write = Callable[[Connection], Any]
"""Runs inside the transaction; runs again when another write spoilt the transaction that they shared."""

Failed = Callable[[Exception], None]
"""Told in the event loop when a write that was left has failed, by LedgerUnavailable or its own error."""

_Waiting = tuple[Write, asyncio.Future[Any] | Failed]

LAZY_SECONDS = 0.1
"""How long a write that is not urgent waits for others."""

LOOKS_SECONDS = 1.0
"""How often the thread looks for what waits by itself: an event loop that has ended tells it nothing."""

ROOM_SECONDS = 20.0
"""How long a caller waits for room in the queue."""

MOST_IN_ONE_COMMIT = 500
MOST_TRIES = 5


class Writer:
    """Lives in one event loop, but for `close`, which waits until all that was put is committed: from any.

    `failing` says that the last commit found the database gone, full or locked.
    """

    def __init__(
        self, engine: Engine, last: Callable[[Connection], None] = lambda _: None, *, most_waiting: int = 10_000
    ) -> None:
        """`last` is run in each transaction, behind its writes."""
        self._engine = engine
        self._last = last
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(most_waiting)
        self._waiting: deque[_Waiting] = deque()
        self._wake = threading.Condition()
        self._urgent = False
        self._soon = False
        self._later: asyncio.TimerHandle | None = None
        self._closing = False
        self.failing = False
        self._thread = threading.Thread(target=self._work, name="bench-ledger", daemon=True)
        self._thread.start()

    async def put(self, write: Write, *, urgent: bool = True) -> asyncio.Future[Any]:
        """Queue a write; the future has its result once it is durable, or raises LedgerUnavailable or its own error.
        Raises LedgerUnavailable.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        # A failed write that nobody awaits any more is not worth a warning: whoever gave up has said so.
        future.add_done_callback(_seen)
        await self._queue(write, future, urgent=urgent)
        return future

    async def leave(self, write: Write, failed: Failed) -> None:
        """Queue a write that nobody waits for; of its result only a failure is told. Raises LedgerUnavailable."""
        await self._queue(write, failed, urgent=False)

    async def _queue(self, write: Write, told: asyncio.Future[Any] | Failed, *, urgent: bool) -> None:
        await self._find_room()
        with self._wake:
            if self._closing:
                self._room.release()
                raise LedgerUnavailable("the ledger is closed: the proxy is stopping")
            self._waiting.append((write, told))
        self._see_to_it(urgent=urgent)

    def _see_to_it(self, *, urgent: bool) -> None:
        """Have what waits written: with all else that this turn of the event loop brings, or later. The thread is woken
        once for all of it, since each time costs both a turn at Python's lock.
        """
        if urgent and not self._soon:
            self._soon = True
            self._loop.call_soon(self._hurry)
        elif self._later is None and not self._soon:
            self._later = self._loop.call_later(LAZY_SECONDS, self._hurry)

    def _hurry(self) -> None:
        if self._later is not None:
            self._later.cancel()
        self._soon, self._later = False, None
        with self._wake:
            self._urgent = bool(self._waiting)
            self._wake.notify()

    async def _find_room(self) -> None:
        if not self._room.locked():  # the usual case, which needs no timer
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            raise LedgerUnavailable(f"the ledger is too slow: {len(self._waiting)} writes wait for it") from None

    async def close(self, executor: Executor | None = None) -> None:
        """`executor` has a thread to wait in; the event loop's own may be full of what never ends."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.get_running_loop().run_in_executor(executor, self._thread.join)

    def _work(self) -> None:
        while True:
            with self._wake:
                while not (self._urgent or self._closing):
                    if not self._wake.wait(LOOKS_SECONDS) and (self._waiting or self._loop.is_closed()):
                        break
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_IN_ONE_COMMIT))]
                self._urgent = bool(self._waiting)
            if not batch:
                return
            outcomes = self._commit([write for write, _ in batch])
            settled = list(zip((told for _, told in batch), outcomes, strict=True))
            try:
                self._loop.call_soon_threadsafe(self._settle, settled)
            except RuntimeError:  # the loop has ended; what was put is committed all the same
                for error in (outcome for outcome in outcomes if isinstance(outcome, Exception)):
                    log.error("a write behind the end of its event loop failed: %s", error)
                if not self._waiting:
                    return

    def _commit(self, writes: Sequence[Write], tries: int = MOST_TRIES) -> list[Any]:
        """One outcome a write: its result or an exception."""
        try:
            with self._engine.begin() as connection:
                outcomes = [_expected(write, connection) for write in writes]
                self._last(connection)
            self.failing = False
            return outcomes
        except SQLAlchemyError as error:
            if tries > 1 and _gave_way(error):
                return self._commit(writes, tries - 1)
            if len(writes) == 1 or _is_down(error):
                self.failing = _is_down(error)
                return [LedgerUnavailable(f"the ledger cannot be written ({type(error).__name__})")] * len(writes)
        except Exception as error:  # noqa: BLE001  a fault of ours must end in the one who put it, not in the thread
            if len(writes) == 1:
                return [error]
        # One of them spoilt the transaction for the others: each gets its own.
        return [outcome for write in writes for outcome in self._commit([write])]

    def _settle(self, settled: Sequence[tuple[asyncio.Future[Any] | Failed, Any]]) -> None:
        for _ in settled:
            self._room.release()
        for told, outcome in settled:
            if not isinstance(told, asyncio.Future):
                if isinstance(outcome, Exception):
                    told(outcome)
            elif told.cancelled():
                continue
            elif isinstance(outcome, Exception):
                told.set_exception(outcome)
            else:
                told.set_result(outcome)


def _expected(write: Write, connection: Connection) -> Any:
    """An error that is an answer (no such call) is not a fault of the transaction."""
    try:
        return write(connection)
    except BenchError as refused:
        return refused


def _gave_way(error: SQLAlchemyError) -> bool:
    """Whether PostgreSQL rolled the transaction back for the sake of another one (SQLSTATE class 40)."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "").startswith("40")


def _is_down(error: SQLAlchemyError) -> bool:
    from sqlalchemy.exc import DBAPIError, OperationalError

    return isinstance(error, OperationalError) or (isinstance(error, DBAPIError) and error.connection_invalidated)


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()

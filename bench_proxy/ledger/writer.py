"""Group commit: one thread that writes whatever is waiting in one transaction.

A caller who needs durability awaits its write; the others have theirs committed with it, in the order in which they
were put. A write that nobody waits for waits itself a little, for one that cannot: so the answers of a panel that come
together cost one commit, and the last of them does not wait for that of the first. The queue is bounded: a full one
slows callers down, nothing is dropped.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from bench_proxy.errors import BenchError, LedgerUnavailable

Write = Callable[[Connection], Any]
"""Runs inside the transaction; runs again when another write spoilt the transaction that they shared."""

LAZY_SECONDS = 0.1
"""How long a write that is not urgent waits for others."""

MOST_IN_ONE_COMMIT = 500
MOST_TRIES = 5


class Writer:
    """Lives in one event loop; `close` waits until all that was put is committed.

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
        self._waiting: deque[tuple[Write, asyncio.Future[Any]]] = deque()
        self._wake = threading.Condition()
        self._urgent = False
        self._closing = False
        self.failing = False
        self._thread = threading.Thread(target=self._work, name="bench-ledger", daemon=True)
        self._thread.start()

    async def put(self, write: Write, *, urgent: bool = True) -> asyncio.Future[Any]:
        """Queue a write; the future has its result once it is durable, or raises LedgerUnavailable or its own error."""
        await self._room.acquire()
        future: asyncio.Future[Any] = self._loop.create_future()
        # A failed write that nobody awaits has been logged by the one who put it, or is a late row: not a warning.
        future.add_done_callback(_seen)
        with self._wake:
            if self._closing:
                self._room.release()
                raise LedgerUnavailable("the ledger is closed: the proxy is stopping")
            self._waiting.append((write, future))
            self._urgent |= urgent
            if urgent or len(self._waiting) == 1:
                self._wake.notify()
        return future

    async def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._closing)
                self._wake.wait_for(lambda: self._urgent or self._closing, LAZY_SECONDS)
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_IN_ONE_COMMIT))]
                self._urgent = bool(self._waiting)
            if not batch:
                return
            outcomes = self._commit([write for write, _ in batch])
            settled = list(zip((future for _, future in batch), outcomes, strict=True))
            try:
                self._loop.call_soon_threadsafe(self._settle, settled)
            except RuntimeError:  # the loop has ended; what was put is committed all the same
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

    def _settle(self, settled: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
        for future, outcome in settled:
            self._room.release()
            if future.cancelled():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


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

"""Group commit: in order, none at another's cost, and a caller knows when its write is durable."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from bench_proxy.errors import LedgerUnavailable, NotFound
from bench_proxy.ledger import writer as writers
from bench_proxy.ledger.writer import MOST_IN_ONE_COMMIT, Write, Writer
from tests.ledger.conftest import engine_of

LINES = sa.Table(
    "lines", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("text", sa.String(20), unique=True)
)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """As the ledger opens it, with an empty table beside its own."""
    with engine_of(url) as writing:
        LINES.create(writing)
        yield writing
        LINES.drop(writing)


@pytest.fixture
async def writer(engine: Engine) -> AsyncIterator[Writer]:
    opened = Writer(engine)
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def nothing_is_said_of_failures_that_nobody_awaits(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [r for r in caplog.get_records("call") if r.name == "asyncio"]


def line(text: str) -> Write:
    def write(connection: Connection) -> str:
        connection.execute(LINES.insert(), {"text": text})
        return text

    return write


def lines(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(sa.select(LINES.c.text).order_by(LINES.c.id)).scalars())


class Gate:
    """A write that holds up the transaction that it is in, and with it all writes behind it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, _connection: Connection) -> None:
        self._reached.set()
        assert self._open.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def open(self) -> None:
        self._open.set()


async def held(writer: Writer) -> Gate:
    """The writer is in the middle of a commit until the gate opens."""
    gate = Gate()
    await writer.put(gate)
    await gate.reached()
    return gate


def commits(engine: Engine) -> list[int]:
    """Grows by one with each commit."""
    counted: list[int] = []
    sa.event.listen(engine, "commit", lambda _: counted.append(1))
    return counted


# What fails


async def test_a_write_that_cannot_be_kept_is_refused_to_the_one_who_put_it_alone(
    writer: Writer, engine: Engine
) -> None:
    gate = await held(writer)
    first, twice, last = [await writer.put(line(text)) for text in ("a", "a", "b")]
    gate.open()
    assert (await first, await last) == ("a", "b")
    with pytest.raises(LedgerUnavailable, match=r"cannot be written \(IntegrityError\)"):
        await twice
    assert lines(engine) == ["a", "b"]


async def test_a_fault_of_ours_ends_in_the_one_who_put_it_alone(writer: Writer, engine: Engine) -> None:
    def broken(connection: Connection) -> None:
        line("half")(connection)
        raise ZeroDivisionError

    gate = await held(writer)
    first, fault, last = [await writer.put(write) for write in (line("a"), broken, line("b"))]
    gate.open()
    assert (await first, await last) == ("a", "b")
    with pytest.raises(ZeroDivisionError):
        await fault
    assert lines(engine) == ["a", "b"]


async def test_an_answer_that_is_a_refusal_spoils_no_transaction(writer: Writer, engine: Engine) -> None:
    ran: list[str] = []

    def refuses(_connection: Connection) -> None:
        ran.append("refuses")
        raise NotFound("there is no such call")

    gate = await held(writer)
    counted = commits(engine)
    first, refused, last = [await writer.put(write) for write in (line("a"), refuses, line("b"))]
    gate.open()
    assert (await first, await last) == ("a", "b")
    with pytest.raises(NotFound):
        await refused
    assert (ran, len(counted)) == (["refuses"], 2)


async def test_a_failure_that_nobody_awaits_is_no_ones_failure(writer: Writer, engine: Engine) -> None:
    for text in ("a", "a", "a", "b"):
        await writer.put(line(text))
    await (await writer.put(line("c")))
    assert lines(engine) == ["a", "b", "c"]


async def test_one_who_stopped_waiting_has_its_write_kept_all_the_same(writer: Writer, engine: Engine) -> None:
    gate = await held(writer)
    gone, other = await writer.put(line("a")), await writer.put(line("b"))
    gone.cancel()
    gate.open()
    assert await other == "b"
    assert lines(engine) == ["a", "b"]


class Breakable:
    """A database that can be gone."""

    def __init__(self) -> None:
        self.gone = False
        self._kept = sqlite3.connect("file:breakable?mode=memory&cache=shared", uri=True, check_same_thread=False)
        self.engine = sa.create_engine("sqlite://", creator=self._connect, poolclass=NullPool)
        LINES.create(self.engine)

    def _connect(self) -> sqlite3.Connection:
        if self.gone:
            raise sqlite3.OperationalError("unable to open database file")
        return sqlite3.connect("file:breakable?mode=memory&cache=shared", uri=True, check_same_thread=False)

    def close(self) -> None:
        self._kept.close()
        self.engine.dispose()


@pytest.fixture
def breakable() -> Iterator[Breakable]:
    database = Breakable()
    yield database
    database.close()


async def test_while_the_database_is_gone_writes_are_refused_and_later_ones_are_kept(breakable: Breakable) -> None:
    writer = Writer(breakable.engine)
    gate = await held(writer)
    breakable.gone = True
    lost = [await writer.put(line(text)) for text in ("a", "b")]
    gate.open()
    for future in lost:
        with pytest.raises(LedgerUnavailable, match=r"cannot be written \(OperationalError\)"):
            await future
    breakable.gone = False
    assert await (await writer.put(line("c"))) == "c"
    assert lines(breakable.engine) == ["c"]
    await writer.close()


class Deadlocked(Exception):
    """What a server says to the one of two transactions that it gives up."""

    sqlstate = "40P01"


async def test_a_transaction_that_the_server_gave_up_for_another_is_repeated(writer: Writer, engine: Engine) -> None:
    tries: list[int] = []

    def loses_twice(connection: Connection) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise sa.exc.OperationalError("UPDATE", {}, Deadlocked())
        return line("b")(connection)

    gate = await held(writer)
    first, loser, last = [await writer.put(write) for write in (line("a"), loses_twice, line("c"))]
    gate.open()
    assert (await first, await loser, await last) == ("a", "b", "c")
    assert lines(engine) == ["a", "b", "c"]


# What is kept, and how


async def test_a_write_is_durable_when_its_future_is_done(writer: Writer, engine: Engine) -> None:
    assert await (await writer.put(line("a"))) == "a"
    assert lines(engine) == ["a"]


async def test_what_waits_is_committed_together_and_in_order(writer: Writer, engine: Engine) -> None:
    gate = await held(writer)
    counted = commits(engine)
    texts = [f"{n:03}" for n in range(100)]
    futures = [await writer.put(line(text)) for text in texts]
    done: list[str] = []
    for future in futures:
        future.add_done_callback(lambda f: done.append(f.result()))
    gate.open()
    assert await asyncio.gather(*futures) == texts
    assert lines(engine) == done == texts
    assert len(counted) == 2


async def test_a_commit_has_a_largest_size(writer: Writer, engine: Engine) -> None:
    gate = await held(writer)
    counted = commits(engine)
    futures = [await writer.put(lambda _: None) for _ in range(MOST_IN_ONE_COMMIT + 1)]
    gate.open()
    await asyncio.gather(*futures)
    assert len(counted) == 3


async def test_order_is_kept_also_where_one_of_them_fails(writer: Writer, engine: Engine) -> None:
    gate = await held(writer)
    futures = [await writer.put(line(text)) for text in ("a", "b", "b", "c", "a", "d")]
    gate.open()
    await asyncio.gather(*futures, return_exceptions=True)
    assert lines(engine) == ["a", "b", "c", "d"]


async def test_a_full_queue_slows_callers_down_and_drops_nothing(engine: Engine) -> None:
    writer = Writer(engine, most_waiting=2)
    gate = await held(writer)
    first = await writer.put(line("a"))
    slowed = asyncio.create_task(writer.put(line("b")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not slowed.done()
    gate.open()
    assert (await first, await (await slowed)) == ("a", "b")
    await writer.close()


async def test_one_who_gives_up_while_the_queue_is_full_takes_no_room(engine: Engine) -> None:
    writer = Writer(engine, most_waiting=1)
    gate = await held(writer)
    waiting = asyncio.create_task(writer.put(line("a")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    gate.open()
    for text in "bcd":
        assert await (await writer.put(line(text))) == text
    assert lines(engine) == ["b", "c", "d"]
    await writer.close()


# The end


async def test_closing_commits_all_that_was_put(engine: Engine) -> None:
    writer = Writer(engine)
    gate = await held(writer)
    futures = [await writer.put(line(text)) for text in "abc"]
    closing = asyncio.create_task(writer.close())
    gate.open()
    await closing
    assert lines(engine) == ["a", "b", "c"]
    assert await asyncio.gather(*futures) == ["a", "b", "c"]


async def test_after_closing_nothing_is_taken(engine: Engine) -> None:
    writer = Writer(engine)
    await writer.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        await writer.put(line("a"))
    await writer.close()
    assert lines(engine) == []


async def test_one_that_waits_for_room_when_the_writer_closes_is_told(engine: Engine) -> None:
    writer = Writer(engine, most_waiting=1)
    gate = await held(writer)
    waiting = asyncio.create_task(writer.put(line("a")))
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    gate.open()
    await closing
    with pytest.raises(LedgerUnavailable, match="closed"):
        await waiting


def test_a_loop_that_ends_without_closing_loses_no_write_that_was_put(engine: Engine) -> None:
    gate = Gate()
    kept: list[Any] = []

    async def leave() -> None:
        writer = Writer(engine)
        kept.append(writer._thread)
        await writer.put(gate)
        await gate.reached()
        for n in range(MOST_IN_ONE_COMMIT + 1):
            await writer.put(line(str(n)))

    asyncio.run(leave())
    gate.open()
    for _ in range(3000):
        if len(lines(engine)) == MOST_IN_ONE_COMMIT + 1:
            break
        kept[0].join(0.01)
    assert len(lines(engine)) == MOST_IN_ONE_COMMIT + 1


async def test_what_nobody_waits_for_shares_the_commit_of_what_somebody_does(
    writer: Writer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "LAZY_SECONDS", 60)
    counted = commits(engine)
    lazy = [await writer.put(line(text), urgent=False) for text in "ab"]
    urgent = await writer.put(line("c"))
    assert await asyncio.gather(*lazy, urgent) == ["a", "b", "c"]
    assert lines(engine) == ["a", "b", "c"]
    assert len(counted) == 1


async def test_what_nobody_waits_for_is_committed_all_the_same(writer: Writer, engine: Engine) -> None:
    assert await (await writer.put(line("a"), urgent=False)) == "a"
    assert lines(engine) == ["a"]


async def test_a_writer_that_closes_waits_for_nothing(
    writer: Writer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "LAZY_SECONDS", 60)
    await writer.put(line("a"), urgent=False)
    await writer.close()
    assert lines(engine) == ["a"]


async def test_of_a_write_that_is_left_only_a_failure_is_told(writer: Writer, engine: Engine) -> None:
    told: list[Exception] = []
    for text in ("a", "b", "a"):
        await writer.leave(line(text), told.append)
    await (await writer.put(line("c")))
    assert lines(engine) == ["a", "b", "c"]
    (error,) = told
    assert isinstance(error, LedgerUnavailable)


async def test_what_is_left_while_the_writer_is_at_work_is_written_with_nobody_waiting(
    writer: Writer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "LAZY_SECONDS", 0.01)
    gate = await held(writer)
    await writer.leave(line("a"), pytest.fail)
    await asyncio.sleep(0.05)  # its time is over, and the writer is not free
    gate.open()
    async with asyncio.timeout(30):
        while lines(engine) != ["a"]:  # noqa: ASYNC110  nobody tells when
            await asyncio.sleep(0.01)


async def test_a_queue_that_stays_full_is_said(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "ROOM_SECONDS", 0.01)
    writer = Writer(engine, most_waiting=1)
    gate = await held(writer)
    with pytest.raises(LedgerUnavailable, match="too slow"):
        await writer.put(line("a"))
    gate.open()
    assert await (await writer.put(line("b"))) == "b"
    await writer.close()
    assert lines(engine) == ["b"]


def test_it_is_closed_from_another_loop_than_its_own_and_loses_nothing(engine: Engine) -> None:
    async def put() -> Writer:
        writer = Writer(engine)
        await (await writer.put(line("a")))
        await writer.leave(line("b"), pytest.fail)
        return writer

    async def close(writer: Writer) -> None:
        async with asyncio.timeout(30):
            await writer.close()

    asyncio.run(close(asyncio.run(put())))
    assert lines(engine) == ["a", "b"]


def test_what_was_left_in_a_loop_that_ended_is_written(engine: Engine) -> None:
    async def put() -> Writer:
        writer = Writer(engine)
        await writer.leave(line("a"), pytest.fail)
        return writer

    writer = asyncio.run(put())
    for _ in range(3000):
        if lines(engine):
            break
        writer._thread.join(0.01)
    assert lines(engine) == ["a"]

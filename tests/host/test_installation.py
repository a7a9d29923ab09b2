"""One installation serves callers in several event loops, one after the other and at once, and in none."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from bench_proxy.bench import Bench, Caller
from bench_proxy.config import Config
from bench_proxy.errors import BenchError, InvalidRequest, LedgerUnavailable
from bench_proxy.host.installation import Installation


class Doors:
    """Stands for whoever opens the ledger; remembers who came and went."""

    def __init__(self, *, fails: int = 0) -> None:
        self.opened: list[Any] = []
        self.closed: list[Any] = []
        self.fails = fails

    async def begin(self) -> Bench:
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise LedgerUnavailable("not now")
        bench: Any = object()
        self.opened.append(bench)
        return bench  # type: ignore[no-any-return]

    async def end(self, bench: Bench) -> None:
        self.closed.append(bench)


def caller(_metadata: Mapping[str, Any]) -> Caller:
    raise AssertionError("nobody asks for a panel here")


def installation(doors: Doors, **more: Any) -> Installation:
    return Installation(Config, doors.begin, doors.end, caller, **more)


async def test_callers_at_once_share_one_bench() -> None:
    made = installation(doors := Doors())
    benches = await asyncio.gather(*(made.bench() for _ in range(5)))
    assert set(benches) == set(doors.opened)
    assert len(doors.opened) == 1
    await made.close()
    assert doors.closed == doors.opened


def test_each_event_loop_has_its_own_and_an_ended_ones_is_let_go() -> None:
    made = installation(doors := Doors())
    first = asyncio.run(made.bench())
    second = asyncio.run(made.bench())
    assert doors.opened == [first, second]
    assert doors.closed == [first]
    asyncio.run(made.close())
    assert doors.closed == [first, second]


async def test_a_bench_that_could_not_be_made_is_tried_again() -> None:
    made = installation(doors := Doors(fails=1))
    with pytest.raises(LedgerUnavailable):
        await made.bench()
    assert await made.bench() == doors.opened[0]
    await made.close()


async def test_nothing_is_answered_after_the_end() -> None:
    made = installation(Doors())
    await made.close()
    with pytest.raises(BenchError, match="closed"):
        await made.bench()
    with pytest.raises(BenchError, match="closed"):
        made.wait(made.bench())


def test_synchronous_work_has_a_loop_of_its_own() -> None:
    async def where() -> str:
        return threading.current_thread().name

    made = installation(Doors())
    assert made.wait(where()) == "bench-proxy"
    asyncio.run(made.close())
    assert "bench-proxy" not in {thread.name for thread in threading.enumerate()}


def test_synchronous_work_passes_on_what_it_raises() -> None:
    async def fails() -> None:
        raise ValueError("as it is")

    made = installation(Doors())
    with pytest.raises(ValueError, match="as it is"):
        made.wait(fails())
    asyncio.run(made.close())


async def test_a_loop_is_not_made_to_wait_for_itself() -> None:
    async def nothing() -> None:
        return None

    made = installation(Doors(), home=asyncio.get_running_loop())
    with pytest.raises(InvalidRequest, match="use acompletion"):
        made.wait(nothing())
    await made.close()


async def test_closing_reaches_the_loops_of_other_threads() -> None:
    made = installation(doors := Doors())
    await asyncio.to_thread(made.wait, made.bench())
    await made.bench()
    assert len(doors.opened) == 2
    await made.close()
    assert set(doors.closed) == set(doors.opened)

"""A stream that lasts no longer than its turn."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from bench_proxy.route.deadline import within
from tests.doubles import WITHIN


class Events:
    """The number 0, and when `goes_on` is set three more. `heard` are those that were read; the first sets `came`."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.came = asyncio.Event()
        self.heard: list[int] = []
        self.closed = False

    async def all(self) -> AsyncGenerator[int, None]:
        try:
            yield 0
            for number in range(1, 4):
                await self.goes_on.wait()
                yield number
        finally:
            self.closed = True

    async def read(self, seconds: float, *, busy: float = 0) -> None:
        async with asyncio.timeout(WITHIN), aclosing(within(self.all(), seconds)) as events:
            async for event in events:
                self.heard.append(event)
                self.came.set()
                await asyncio.sleep(busy)


async def test_a_stream_that_says_nothing_more_ends_at_its_time() -> None:
    events = Events()
    with pytest.raises(TimeoutError, match="late"):
        await events.read(0.02)
    assert events.heard == [0]
    assert events.closed
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_nothing_is_waited_for_once_its_reader_was_busy_until_the_end() -> None:
    events = Events()
    with pytest.raises(TimeoutError, match="late"):
        await events.read(0.02, busy=0.1)
    assert events.heard == [0]


async def test_a_stream_that_ends_in_time_leaves_no_limit_behind() -> None:
    events = Events()
    events.goes_on.set()
    await events.read(0.05)
    assert events.heard == [0, 1, 2, 3]
    await asyncio.sleep(0.1)


async def test_a_reader_that_is_cancelled_is_cancelled_and_not_late() -> None:
    events = Events()
    reading = asyncio.create_task(events.read(WITHIN))
    async with asyncio.timeout(WITHIN):
        await events.came.wait()
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert events.closed

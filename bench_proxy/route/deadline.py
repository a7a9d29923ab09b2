"""How long an answer may take to come: at the end of a turn's time its next piece is waited for no more."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def within(events: AsyncIterator[T], seconds: float) -> AsyncGenerator[T, None]:
    """The events; raises TimeoutError where after so many seconds more would have to be waited for.

    One timer for all of them: `asyncio.timeout` around each costs several times as much as the event. It has to be read
    by one task, which is cancelled as `asyncio.timeout` does it, and only while it waits here.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("only a task can be told that it is late")
    cancelled_before = task.cancelling()
    waiting = over = False

    def end() -> None:
        nonlocal over
        over = True
        if waiting:
            task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, end)
    try:
        while not over:
            waiting = True
            try:
                event = await anext(events)
            except StopAsyncIteration:
                return
            except asyncio.CancelledError:
                if over and task.uncancel() <= cancelled_before:
                    break
                raise
            finally:
                waiting = False
            yield event
        raise TimeoutError("late")
    finally:
        timer.cancel()

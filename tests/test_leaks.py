"""A thousand panels of every kind, with models that fail in every way, leave nothing behind."""

import asyncio
import gc
import random
import tracemalloc
from typing import Any

import pytest

from bench_proxy.panel.seats import Report
from tests.doubles import WITHIN, Models, Remembered, Step, Table, fails

MEMBERS = ("ann", "bob", "cat")
EXPLORERS = ("dan", "eve", "fay")
PANELS = 1000
AT_ONCE = 20
SOME_KB = 200 * 1024
"""What may be left: caches of the interpreter and of libraries, far less than a byte a token of a thousand panels."""


class Forgetful(Remembered):
    """Keeps nothing, so that what grows is not the ledger."""

    async def answered(self, *args: Any, **kwargs: Any) -> None: ...

    async def closed(self, report: Report) -> None: ...


class Unreliable(Models):
    """Each call plays another script: a plain answer, a slow one, one that breaks or hangs or fails at once."""

    def __init__(self, source: random.Random) -> None:
        super().__init__()
        self._source = source
        self._never = asyncio.Event()

    def _play(self, alias: str) -> Any:
        self.calls.clear()
        text = [f"{alias} says ", "something ", "longer. " * 50]
        scripts: list[list[Step]] = [
            [*text],
            [0.001, *text],
            [text[0], fails(502, "bad_response")],
            [fails(429, "rate_limit", retry_after=1)],
            [fails(504, "timeout")],
            [ValueError("a fault of ours")],
            [text[0], self._never],
            [self._never],
            [],
            ["Too many requests."],
            [text[0], "\ud83d", "\ude00", "\ud83d"],
        ]
        self.scripts[alias] = self._source.choice(scripts)
        return super()._play(alias)


@pytest.fixture
def source() -> random.Random:
    return random.Random(20261129)  # noqa: S311  the same sequence each time


def table(models: Models) -> Table:
    return Table(
        models,
        members=MEMBERS,
        others=EXPLORERS,
        explorers=2,
        ledger=Forgetful(),
        timing={"seat_timeout": 0.05, "explorer_grace": 0.01},
    )


async def one(here: Table, source: random.Random) -> str:
    """One panel to its end; some of its readers leave in the middle, some callers stop it."""
    asked: dict[str, Any] = {
        "reply": source.choice(["all", "merged", "choices"]),
        "stream": source.random() < 0.7,
        "stream_mode": source.choice(["seats", "live"]),
        "blind": source.random() < 0.2,
        "quorum": source.choice([None, None, 1, 2]),
        "deadline": source.choice([None, None, 0.02]),
    }
    panel, running = await here.open(**asked)
    leaves_after = source.choice([None, None, 0, 1, 5])
    events = panel.events()
    heard = 0
    while heard != leaves_after:
        try:
            await anext(events)
        except StopAsyncIteration:
            break
        heard += 1
    await events.aclose()
    if source.random() < 0.1:
        running.cancel()
    await asyncio.wait([running])
    if running.cancelled():
        return "stopped"
    report = running.exception() or panel.report.result()
    assert isinstance(report, Report), report
    return "answered" if report.ok else "failed"


async def many(here: Table, source: random.Random, count: int) -> dict[str, int]:
    ended: dict[str, int] = {}
    for _ in range(count // AT_ONCE):
        async with asyncio.timeout(WITHIN):
            for how in await asyncio.gather(*(one(here, source) for _ in range(AT_ONCE))):
                ended[how] = ended.get(how, 0) + 1
    return ended


async def test_a_thousand_panels_leave_no_task_no_stream_and_no_memory(source: random.Random) -> None:
    before = asyncio.all_tasks()
    models = Unreliable(source)
    here = table(models)
    await many(here, source, 100)
    gc.collect()
    tracemalloc.start()
    try:
        await many(here, source, AT_ONCE)
        gc.collect()
        at_first, _ = tracemalloc.get_traced_memory()
        ended = await many(here, source, PANELS)
        gc.collect()
        at_last, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(ended.values()) == PANELS
    assert all(ended[how] > PANELS // 100 for how in ("answered", "stopped"))
    assert asyncio.all_tasks() == before
    assert models.open == 0
    assert at_last - at_first < SOME_KB


async def test_as_many_panels_may_run_as_before(source: random.Random) -> None:
    """The count of running panels is back at none, however they ended."""
    here = table(Unreliable(source))
    here.config = here.config.model_copy(
        update={"limits": here.config.limits.model_copy(update={"concurrent_panels": 20})}
    )
    await many(here, source, 200)

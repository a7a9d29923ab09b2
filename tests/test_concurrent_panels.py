"""`limits.concurrent_panels` holds, also for panels that are asked for at the same moment."""

import asyncio

import pytest

from bench_proxy.bench import Caller
from bench_proxy.errors import Overloaded
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.panel.seats import Report
from tests.doubles import Models, Remembered, Table

LIMIT = 3


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def table(gate: asyncio.Event) -> Table:
    models = Models(gpt=[gate, "At last."])
    return Table(models, members=["gpt"], others=["guest"], limits={"concurrent_panels": LIMIT})


async def test_of_many_that_come_at_once_no_more_than_the_limit_run(table: Table, gate: asyncio.Event) -> None:
    async def slowly(names: object) -> list[str]:
        await asyncio.sleep(0)
        return ["guest"]

    async def ask() -> asyncio.Task[None]:
        brief = Brief(model="bench/core", collection="core", reply="all", guests=("guest",))
        request = ChatRequest([{"role": "user", "content": "Who are you?"}], {})
        panel = await table.bench.ask(brief, request, Caller("me", admin=True, allowed=slowly), table.config)
        return table.bench.start(panel)

    asked = await asyncio.gather(*(ask() for _ in range(20)), return_exceptions=True)
    running = [task for task in asked if isinstance(task, asyncio.Task)]
    refused = [error for error in asked if isinstance(error, Overloaded)]
    assert (len(running), len(refused)) == (LIMIT, 20 - LIMIT)
    assert all((error.status, error.retry_after) == (429, 1) for error in refused)
    gate.set()
    await asyncio.gather(*running)
    await table.ask()


async def test_a_panel_that_was_stopped_before_it_began_has_ended(table: Table) -> None:
    for _ in range(2 * LIMIT):
        _, running = await table.open()
        running.cancel()
        await asyncio.wait([running])


async def test_who_asks_one_after_the_other_is_never_one_too_many() -> None:
    """A report is the end of a panel whose seats are all done, though the ledger is still writing."""
    table = Table(Models(), members=["gpt"], ledger=Closing(), limits={"concurrent_panels": 1})
    for _ in range(5):
        panel, _ = await table.open()
        await panel.report
    assert len(table.ledger.reports) < 5


class Closing(Remembered):
    async def closed(self, report: Report) -> None:
        await asyncio.sleep(0.05)
        await super().closed(report)


async def test_a_late_seat_still_counts(table: Table, gate: asyncio.Event) -> None:
    for _ in range(LIMIT):
        panel, _ = await table.open(deadline=0.01)
        assert (await panel.report).answers[0].status == "late"
    with pytest.raises(Overloaded):
        await table.open()
    gate.set()

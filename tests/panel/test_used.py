"""What the seats of a panel count in a budget, whatever becomes of them."""

import asyncio
from collections.abc import Mapping

import pytest

from bench_proxy.keys import Use
from bench_proxy.panel.panel import Panel
from bench_proxy.upstream import Reply, Thought
from tests.doubles import WITHIN, Models, Remembered, Step, Table, fails, until

PROMPT = 7
"""Tokens of what the seats are asked here."""

SILENT = Reply("", "stop")
"""An end that says nothing of what was used."""


def by_alias(table: Table, panel: Panel) -> Mapping[str, Use]:
    seats = panel.seating.result().seats
    return {seat.alias: table.ledger.uses[seat.call] for seat in seats if seat.call in table.ledger.uses}


@pytest.mark.parametrize(
    ("script", "tokens"),
    [
        (["Yes."], 15),
        (["Yes.", SILENT], PROMPT + 1),
        ([Thought("Hm, let me see."), "Yes.", SILENT], PROMPT + 1 + 3),
        ([Thought("Hm, let me see."), SILENT], PROMPT + 3),
        ([fails(500)], 0),
        ([fails(429, "rate_limit")], 0),
        ([fails(502, "connection")], 0),
        ([fails(504, "timeout")], PROMPT),
        ([ZeroDivisionError()], 0),
    ],
)
async def test_a_seat_counts_what_was_reported_or_else_an_estimate(script: list[Step], tokens: int) -> None:
    table = Table(Models(gpt=script), members=["gpt"])
    panel, report = await table.ask()
    assert by_alias(table, panel) == {"gpt": Use(tokens, 0.001 if tokens == 15 else 0.0)}
    assert sum((panel.used.prompt_tokens, panel.used.completion_tokens)) == tokens
    # What is told is what was reported.
    assert report.prompt_tokens + report.completion_tokens == (15 if tokens == 15 else 0)


async def test_a_seat_that_broke_off_counts_what_it_had_said() -> None:
    table = Table(Models(gpt=["Hello there", fails(500)]), members=["gpt"], stream="live")
    panel, _, _ = await table.listen(stream=True)
    assert by_alias(table, panel) == {"gpt": Use(PROMPT + 3)}


async def test_data_counts_by_its_length_where_its_tokens_are_not_reported() -> None:
    table = Table(Models(gpt=["Yes.", SILENT]), members=["gpt"])
    panel, _ = await table.ask([{"type": "text", "text": "Who are you?", "data": "A" * 4000}])
    assert by_alias(table, panel) == {"gpt": Use(PROMPT + 1000 + 1)}


async def test_a_late_seat_counts_what_it_had_said_and_then_what_it_has_used_in_the_end() -> None:
    goes_on = asyncio.Event()
    table = Table(Models(gpt=["Yes."], slow=["Hello there", goes_on]), members=["gpt", "slow"], stream="live")
    panel, running = await table.open(stream=True, deadline=0.05)
    async with asyncio.timeout(WITHIN):
        report = await panel.report
        assert [a.status for a in report.answers] == ["ok", "late"]
        assert panel.used.in_budget == Use(15 + PROMPT + 3, 0.001)
        goes_on.set()
        await running
    assert panel.used.in_budget == Use(30, 0.002)
    assert by_alias(table, panel) == {"gpt": Use(15, 0.001), "slow": Use(15, 0.001)}


async def test_a_merger_has_read_all_the_answers() -> None:
    models = Models(gpt=["x" * 400], claude=["y" * 400], owl=["Both.", SILENT])
    table = Table(models, members=["gpt", "claude"], others=["owl"], reply="merged", merger="owl")
    panel, report = await table.ask(reply="merged")
    assert report.merger is not None
    assert table.ledger.uses[report.merger.seat.call].tokens > 2 * 400 / 4
    assert panel.used.in_budget == sum(table.ledger.uses.values(), Use())


async def test_a_seat_that_is_stopped_counts_its_prompt() -> None:
    models = Models(gpt=["Yes."], slow=[asyncio.Event()])
    table = Table(models, members=["gpt", "slow"])
    panel, running = await table.open()
    await until(lambda: models.asked("slow") and table.ledger.uses)
    running.cancel()
    await asyncio.wait([running], timeout=WITHIN)
    assert by_alias(table, panel) == {"gpt": Use(15, 0.001), "slow": Use(PROMPT)}
    assert panel.used.in_budget == Use(15 + PROMPT, 0.001)


async def test_a_panel_that_is_stopped_before_it_is_seated_counts_what_its_members_used() -> None:
    ledger = Remembered()
    ledger.reserving = asyncio.Event()
    models = Models(gpt=["Yes."], claude=[asyncio.Event()])
    table = Table(models, members=["gpt", "claude"], others=["dan"], explorers=1, ledger=ledger)
    _, running = await table.open()
    await until(lambda: len(models.calls) == 2 and models.open == 1)
    running.cancel()
    await asyncio.wait([running], timeout=WITHIN)
    assert ledger.uses == {}
    assert sorted(use.tokens for use in ledger.off_record) == [PROMPT, 15]

"""What a streamed seat said is told as it comes, and its answer is exactly what was told."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from bench_proxy.panel.fan_out import MAX_ANSWER
from bench_proxy.panel.seats import Answer, Piece
from bench_proxy.upstream import Reply
from tests.doubles import WITHIN, Models, Remembered, Table, fails

HIGH, LOW = "\ud83d", "\ude00"


async def told(models: Models, *members: str, **more: Any) -> tuple[dict[str, str], dict[str, Answer]]:
    """What was heard of each seat in pieces, and its answer."""
    table = Table(models, members=members, **more)
    _, heard, report = await table.listen(stream=True, stream_mode="live")
    pieces: defaultdict[str, str] = defaultdict(str)
    for event in heard:
        if isinstance(event, Piece):
            pieces[event.seat.alias] += event.text
    return pieces, {a.seat.alias: a for a in report.answers}


@pytest.mark.parametrize(
    ("script", "text", "status"),
    [
        (["Hel", "lo"], "Hello", "ok"),
        (["Hel", fails(502)], "Hel", "error"),
        (["Hel", ValueError("ours")], "Hel", "error"),
        (["Hel", Reply("", "length")], "Hel", "ok"),
        ([" ", "\n"], " \n", "empty"),
        ([], "", "empty"),
        (["a", HIGH, LOW, "b"], "a😀b", "ok"),
        ([f"a{HIGH}", f"{LOW}b"], "a😀b", "ok"),
        (["a", HIGH, "b"], "a\N{REPLACEMENT CHARACTER}b", "ok"),
        (["a", LOW, "b"], "a\N{REPLACEMENT CHARACTER}b", "ok"),
        (["a", HIGH, HIGH, LOW], "a\N{REPLACEMENT CHARACTER}😀", "ok"),
        (["a", HIGH], "a\N{REPLACEMENT CHARACTER}", "ok"),
    ],
)
async def test_the_answer_is_what_was_told(script: list[Any], text: str, status: str) -> None:
    pieces, answers = await told(Models(gpt=script), "gpt")
    assert (pieces["gpt"], answers["gpt"].text, answers["gpt"].status) == (text, text, status)
    pieces["gpt"].encode()


async def test_half_a_character_in_a_whole_answer_or_an_error_is_replaced() -> None:
    models = Models(gpt=[f"a{HIGH}b"], claude=[fails(500, message=f"no {LOW}")])
    _, report = await Table(models, members=["gpt", "claude"]).ask()
    gpt, claude = report.answers
    assert gpt.text == "a\N{REPLACEMENT CHARACTER}b"
    assert claude.error is not None
    assert claude.error.message == "no \N{REPLACEMENT CHARACTER}"


async def test_an_answer_without_an_end_is_cut() -> None:
    pieces, answers = await told(Models(gpt=["x" * 5_000_000, "y" * 5_000_000, fails(500)]), "gpt")
    assert len(pieces["gpt"]) == len(answers["gpt"].text) == MAX_ANSWER
    assert (answers["gpt"].status, answers["gpt"].finish_reason) == ("ok", "length")


class Slow(Remembered):
    """Takes its time for a late seat, in which the other late ones go on talking."""

    async def answered(self, *args: Any, **kwargs: Any) -> None:
        await super().answered(*args, **kwargs)
        await asyncio.sleep(0.05)


async def test_a_late_seat_answered_what_was_told_and_no_more() -> None:
    talk = [step for _ in range(100) for step in ("word ", 0.005)]
    models = Models(gpt=["Yes."], slow=talk, slower=talk)
    pieces, answers = await told(models, "gpt", "slow", "slower", ledger=Slow(), deadline=0.1)
    for alias in ("slow", "slower"):
        assert answers[alias].status == "late"
        assert pieces[alias] == answers[alias].text != ""


async def test_numbers_that_cannot_be_are_not_known() -> None:
    odd = Reply("", "stop", prompt_tokens=-1, completion_tokens=2**40, cost=float("nan"))
    _, answers = await told(Models(gpt=["Yes.", odd]), "gpt")
    assert (answers["gpt"].prompt_tokens, answers["gpt"].completion_tokens, answers["gpt"].cost) == (None, None, None)


class Broken(Remembered):
    """Fails in a way that no ledger says it can."""

    async def answered(self, *args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError


async def test_answers_flow_when_they_cannot_be_put_on_the_record() -> None:
    pieces, answers = await told(Models(gpt=["Yes."]), "gpt", ledger=Broken())
    assert (pieces["gpt"], answers["gpt"].status) == ("Yes.", "ok")


async def test_a_panel_that_is_stopped_while_it_is_seated_ends() -> None:
    ledger = Remembered()
    ledger.reserving = asyncio.Event()
    models = Models(gpt=["Yes."], claude=[asyncio.Event()])
    table = Table(models, members=["gpt", "claude"], others=["dan"], explorers=1, ledger=ledger)
    _, running = await table.open()
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait_for(asyncio.wait([running]), WITHIN)
    assert models.open == 0


async def test_a_caller_who_stops_a_panel_leaves_every_answer_on_the_record() -> None:
    models = Models(gpt=["Yes."], claude=["Well", asyncio.Event()])
    table = Table(models, members=["gpt", "claude"])
    panel, running = await table.open(stream=True, stream_mode="live")
    async for event in panel.events():
        if isinstance(event, Answer):
            break
    running.cancel()
    await asyncio.wait([running])
    kept = {a.seat.alias: (a.status, a.text) for a in table.ledger.answers.values()}
    assert kept == {"gpt": ("ok", "Yes."), "claude": ("error", "Well")}

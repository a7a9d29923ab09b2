"""An explorer that fails at once gives its seat to the next stalest, while members work, once; and costs nothing."""

import asyncio

import pytest

from bench_proxy.panel.seats import Answer, Report
from tests.doubles import WITHIN, Models, Remembered, Table, fails

RATE_LIMITED = fails(429, "rate_limit", retry_after=7)


def table(models: Models, *others: str, explorers: int = 1, **more: object) -> Table:
    """One member, `slow`, and explorers that are the staler the earlier they are named."""
    ledger = Remembered()
    ledger.seated = {alias: n for n, alias in enumerate(others, 1)}
    return Table(models, members=["slow"], others=others, explorers=explorers, ledger=ledger, **more)  # type: ignore[arg-type]


def outcome(report: Report) -> dict[str, tuple[str, str]]:
    return {a.seat.call.partition(".")[2]: (a.seat.alias, a.status) for a in report.answers}


async def test_the_next_stalest_takes_the_seat_and_both_are_named() -> None:
    models = Models(slow=[0.2, "At last."], ann=[RATE_LIMITED])
    panel, report = await table(models, "ann", "ben", "cat").ask()
    assert outcome(report) == {
        "member1": ("slow", "ok"),
        "explorer1": ("ann", "error"),
        "explorer2": ("ben", "ok"),
    }
    assert report.partial
    assert [seat.call for seat in report.seating.seats] == [a.seat.call for a in report.answers]
    assert {alias for alias in ("ann", "ben", "cat") if models.asked(alias)} == {"ann", "ben"}
    assert panel.id == report.seating.panel


async def test_an_empty_answer_gives_way_too() -> None:
    _, report = await table(Models(slow=[0.2, "."], ann=[]), "ann", "ben").ask()
    assert outcome(report)["explorer1"] == ("ann", "empty")
    assert outcome(report)["explorer2"] == ("ben", "ok")


async def test_one_that_takes_a_seat_and_fails_is_not_replaced() -> None:
    models = Models(slow=[0.2, "."], ann=[RATE_LIMITED], ben=[RATE_LIMITED])
    _, report = await table(models, "ann", "ben", "cat").ask()
    assert outcome(report) == {
        "member1": ("slow", "ok"),
        "explorer1": ("ann", "error"),
        "explorer2": ("ben", "error"),
    }


async def test_two_that_fail_at_the_same_time_are_replaced_by_two() -> None:
    models = Models(slow=[0.2, "."], ann=[RATE_LIMITED], ben=[RATE_LIMITED])
    _, report = await table(models, "ann", "ben", "cat", "dan", explorers=2).ask()
    assert [alias for alias, _ in outcome(report).values()] == ["slow", "ann", "ben", "cat", "dan"]


async def test_the_last_one_that_is_left_takes_one_seat_only() -> None:
    models = Models(slow=[0.2, "."], ann=[RATE_LIMITED], ben=[RATE_LIMITED])
    _, report = await table(models, "ann", "ben", "cat", explorers=2).ask()
    assert [alias for alias, _ in outcome(report).values()] == ["slow", "ann", "ben", "cat"]
    assert len(models.asked("cat")) == 1


async def test_nobody_is_left_to_take_the_seat() -> None:
    _, report = await table(Models(slow=[0.1, "."], ann=[RATE_LIMITED]), "ann").ask()
    assert outcome(report) == {"member1": ("slow", "ok"), "explorer1": ("ann", "error")}


async def test_a_late_failure_gives_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench_proxy.panel.fan_out.REPLACED_WITHIN", 0.05)
    models = Models(slow=[0.3, "."], ann=[0.1, RATE_LIMITED])
    _, report = await table(models, "ann", "ben").ask()
    assert models.asked("ben") == []
    assert outcome(report)["explorer1"] == ("ann", "error")


async def test_a_member_or_guest_that_fails_is_not_replaced() -> None:
    models = Models(slow=[RATE_LIMITED], ann=[0.1, "."], guest=[RATE_LIMITED])
    _, report = await table(models, "guest", "ann", "ben").ask(guests=("guest",))
    assert {a.seat.alias for a in report.answers} == {"slow", "guest"}


async def test_when_the_members_are_done_nobody_else_is_asked() -> None:
    models = Models(slow=["."], ann=[0.1, RATE_LIMITED])
    _, report = await table(models, "ann", "ben").ask()
    assert models.asked("ben") == []
    assert outcome(report)["explorer1"] == ("ann", "error")


async def test_a_panel_does_not_wait_for_a_seat_to_be_found() -> None:
    """The ledger is slow to say who is next, and meanwhile the members are done: the panel is over."""
    answered = asyncio.Event()
    models = Models(slow=[answered, "."], ann=[RATE_LIMITED])
    here = table(models, "ann", "ben")
    panel, running = await here.open()
    await panel.seating
    here.ledger.reserving = asyncio.Event()
    async with asyncio.timeout(WITHIN):
        async for event in panel.events():
            if isinstance(event, Answer) and event.seat.alias == "ann":
                answered.set()
        report = await panel.report
        await running
    assert models.asked("ben") == []
    assert outcome(report) == {"member1": ("slow", "ok"), "explorer1": ("ann", "error")}


async def test_the_one_that_takes_the_seat_is_kept_waiting_for_no_longer_than_any_explorer() -> None:
    models = Models(slow=[0.1, "."], ann=[RATE_LIMITED], ben=[asyncio.Event()])
    here = table(models, "ann", "ben", timing={"explorer_grace": 0.1, "seat_timeout": 0.5})
    panel, running = await here.open()
    report = await panel.report
    assert outcome(report)["explorer2"] == ("ben", "late")
    await running
    assert here.ledger.answers[f"{panel.id}.explorer2"].status == "error"
    assert here.ledger.late[f"{panel.id}.explorer2"]


async def test_each_seat_has_a_place_of_its_own_on_the_record() -> None:
    models = Models(slow=[0.2, "."], ann=[RATE_LIMITED], ben=[RATE_LIMITED])
    here = table(models, "ann", "ben", "cat", "dan", explorers=2)
    panel, _ = await here.ask()
    by_place = sorted(here.ledger.places, key=lambda call: here.ledger.places[call])
    assert by_place == [
        f"{panel.id}.{seat}" for seat in ("member1", "explorer1", "explorer2", "explorer3", "explorer4")
    ]


async def test_the_words_of_the_one_that_took_the_seat_are_streamed() -> None:
    models = Models(slow=[0.1, "At last."], ann=[RATE_LIMITED], ben=["Here ", "I am."])
    _, heard, _ = await table(models, "ann", "ben").listen(stream=True, stream_mode="live")
    assert [event.text for event in heard if event.seat.alias == "ben"] == ["Here ", "I am.", "Here I am."]

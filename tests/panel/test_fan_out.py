"""The seats of a panel run side by side; each ends in an answer, and none is waited for longer than it has to be."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bench_proxy.formats.request import ChatRequest
from bench_proxy.panel import fan_out as fan_out_module
from bench_proxy.panel.fan_out import MAX_ANSWER, FanOut, Pace
from bench_proxy.panel.seats import Answer, Seat, SeatKind
from tests.doubles import fails
from tests.scripted import Scripted, says

PANEL = "p20260301-120005-abcdefghijklmnop"
REQUEST = ChatRequest([{"role": "user", "content": "Who are you?"}], {"temperature": 0.5})
LONG = 3600.0
SHORT = 0.01
"""Seconds: a limit that a test waits for. Nothing is said of how long that takes."""


def seat(kind: SeatKind, number: int, alias: str) -> Seat:
    return Seat(f"{PANEL}.{kind}{number}", kind, alias)


A, B, C = (seat("member", number, alias) for number, alias in enumerate("abc", 1))
X, Y = (seat("explorer", number, alias) for number, alias in enumerate("xy", 1))


class Record:
    """What was put on the record, in order. A held answer is not there yet, and can be refused."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str, bool]] = []
        self.answers: dict[str, Answer] = {}
        self._held: dict[tuple[str, str], asyncio.Event] = {}
        self._arrived: dict[tuple[str, str], asyncio.Event] = {}
        self.refuses: Exception | None = None

    def hold(self, seat: Seat, status: str) -> asyncio.Event:
        """Keep a seat's answer of this status off the record until the event is set."""
        self._arrived[seat.call, status] = asyncio.Event()
        return self._held.setdefault((seat.call, status), asyncio.Event())

    async def arrival(self, seat: Seat, status: str) -> None:
        await self._arrived[seat.call, status].wait()

    async def keep(self, answer: Answer, late: bool, last: bool) -> None:
        place = (answer.seat.call, answer.status)
        if place in self._held:
            self._arrived[place].set()
            await self._held[place].wait()
        if self.refuses is not None:
            raise self.refuses
        self.kept.append((answer.seat.alias, answer.status, late))
        self.answers[answer.seat.alias] = answer


@pytest.fixture(autouse=True)
async def no_task_is_left_behind() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
    assert not left


@pytest.fixture(autouse=True)
def errors_are_shown(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A task whose exception nobody took is logged by asyncio: it must not be."""
    yield
    assert not [r for r in caplog.get_records("call") if r.name == "asyncio"]


@pytest.fixture
async def upstream() -> AsyncIterator[Scripted]:
    async with Scripted() as scripted:
        yield scripted


@pytest.fixture
def record() -> Record:
    return Record()


def panel(upstream: Scripted, record: Record, *seats: Seat, **pace: Any) -> FanOut:
    """A started panel that waits for ever unless said."""
    limits = {"seat_timeout": LONG, "deadline": LONG, "explorer_grace": LONG, **pace}
    fan_out = FanOut(upstream, REQUEST, Pace(**limits), record.keep, tags=("bench-collection:core",))
    for one in seats:
        fan_out.start(one)
    return fan_out


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(50):
        await asyncio.sleep(0)


def statuses(answers: list[Answer]) -> dict[str, str]:
    return {answer.seat.alias: answer.status for answer in answers}


async def test_all_seats_start_at_once(upstream: Scripted, record: Record) -> None:
    steps = [upstream.expect(alias, says(alias), held=True) for alias in "abcx"]
    fan_out = panel(upstream, record, A, B, C, X)
    for step in steps:
        await step.started()
    assert record.kept == []
    for step in steps:
        step.release()
    assert statuses(await fan_out.until_over()) == dict.fromkeys("abcx", "ok")


async def test_each_model_gets_the_request_as_it_is_and_tags_that_name_panel_and_call(
    upstream: Scripted, record: Record
) -> None:
    step = upstream.expect("a", says("Hello."))
    await panel(upstream, record, A, seat_timeout=42.0).until_over()
    call = await step.started()
    assert (call.alias, call.timeout) == ("a", 42.0)
    assert call.request is REQUEST
    assert call.tags == ("bench-collection:core", f"bench-call:{A.call}")


async def test_an_answer_has_what_the_model_reported(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("Hel", finish_reason="length", prompt_tokens=7, completion_tokens=3, cost=0.25))
    (answer,) = await panel(upstream, record, A).until_over()
    assert (answer.seat, answer.status, answer.text) == (A, "ok", "Hel")
    assert (answer.finish_reason, answer.prompt_tokens, answer.completion_tokens) == ("length", 7, 3)
    assert (answer.cost, answer.error) == (0.25, None)
    assert answer.seconds >= 0


async def test_answers_come_in_the_order_in_which_they_are_given(upstream: Scripted, record: Record) -> None:
    steps = {alias: upstream.expect(alias, says(alias), held=True) for alias in "abc"}
    fan_out = panel(upstream, record, A, B, C)
    over = asyncio.create_task(fan_out.until_over())
    told = fan_out.events()
    for alias in "cab":
        steps[alias].release()
        assert (await anext(told)).seat.alias == alias
    assert [answer.seat.alias for answer in await over] == ["c", "a", "b"]
    assert [answer async for answer in told] == []


async def test_seconds_count_from_the_start_of_each_seat(
    upstream: Scripted, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(fan_out_module, "time", SimpleNamespace(monotonic=lambda: now))
    outcomes = {"a": says("a"), "b": fails(), "c": KeyError(), "x": says("x"), "y": says("y")}
    steps = {alias: upstream.expect(alias, outcome, held=True) for alias, outcome in outcomes.items()}
    fan_out = panel(upstream, record, A, B, C, deadline=10)
    now += 2
    for explorer in (X, Y):
        fan_out.start(explorer)
    for alias in "abcx":
        now += 1
        await steps[alias].started()
        steps[alias].release()
        await settle()
    now += 10
    answers = {answer.seat.alias: answer.seconds for answer in await fan_out.until_over()}
    assert answers == {"a": 3, "b": 4, "c": 5, "x": 4, "y": 14}
    await fan_out.cancel()


# What goes wrong in a seat


async def test_a_models_failure_is_its_seats_error_and_no_other_seats(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", fails(429, "rate_limit", "slow down", retry_after=7.0))
    upstream.expect("b", says("Hello."))
    answers = {answer.seat.alias: answer for answer in await panel(upstream, record, A, B).until_over()}
    error = answers["a"].error
    assert error is not None
    assert (answers["a"].status, answers["a"].text, answers["b"].status) == ("error", "", "ok")
    assert (error.status, error.type, error.message, error.retry_after) == (429, "rate_limit", "slow down", 7.0)


async def test_a_fault_of_ours_is_its_seats_error_without_its_details(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", KeyError("sk-secret at http://10.0.0.7"))
    upstream.expect("b", says("Hello."))
    answers = {answer.seat.alias: answer for answer in await panel(upstream, record, A, B).until_over()}
    error = answers["a"].error
    assert error is not None
    assert (error.status, error.type, error.message) == (500, "internal", "KeyError inside bench-proxy")
    assert answers["b"].status == "ok"


@pytest.mark.parametrize("text", ["", " \n\t "])
async def test_no_text_is_an_empty_answer(upstream: Scripted, record: Record, text: str) -> None:
    upstream.expect("a", says(text, finish_reason="length", completion_tokens=100))
    (answer,) = await panel(upstream, record, A).until_over()
    assert (answer.status, answer.text, answer.finish_reason, answer.completion_tokens) == ("empty", "", "length", 100)


async def test_an_answer_of_nine_megabytes_is_cut_at_eight(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("x" * (9 * 1024 * 1024)))
    (answer,) = await panel(upstream, record, A).until_over()
    assert (answer.status, len(answer.text), MAX_ANSWER) == ("ok", 8 * 1024 * 1024, 8 * 1024 * 1024)


async def test_half_a_character_is_replaced_and_two_halves_are_joined(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("cut \ud83d, whole \ud83d\ude00"))
    upstream.expect("b", fails(message="odd \udc00"))
    answers = {answer.seat.alias: answer for answer in await panel(upstream, record, A, B).until_over()}
    assert answers["a"].text == "cut \N{REPLACEMENT CHARACTER}, whole \N{GRINNING FACE}"
    assert answers["b"].error is not None
    assert answers["b"].error.message == "odd \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("number", [-1, 2**31, 10**40])
async def test_counts_that_no_answer_can_have_are_not_known(upstream: Scripted, record: Record, number: int) -> None:
    upstream.expect("a", says("Hello.", prompt_tokens=number, completion_tokens=number))
    (answer,) = await panel(upstream, record, A).until_over()
    assert (answer.status, answer.prompt_tokens, answer.completion_tokens) == ("ok", None, None)


@pytest.mark.parametrize("number", [0, 2**31 - 1])
async def test_counts_that_an_answer_can_have_are_kept(upstream: Scripted, record: Record, number: int) -> None:
    upstream.expect("a", says("Hello.", prompt_tokens=number, completion_tokens=number, cost=float(number > 0)))
    (answer,) = await panel(upstream, record, A).until_over()
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cost) == (number, number, number > 0)


@pytest.mark.parametrize(("cost", "shown"), [(3 * 0.1, 0.3), (1234.5678, 1234.5678), (0.0, 0.0)])
async def test_a_cost_has_no_noise_of_its_product(
    upstream: Scripted, record: Record, cost: float, shown: float
) -> None:
    upstream.expect("a", says("Hello.", cost=cost))
    (answer,) = await panel(upstream, record, A).until_over()
    assert answer.as_json()["cost"] == shown


@pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf])
async def test_a_cost_that_no_answer_can_have_is_not_known(upstream: Scripted, record: Record, cost: float) -> None:
    upstream.expect("a", says("Hello.", cost=cost))
    (answer,) = await panel(upstream, record, A).until_over()
    assert (answer.status, answer.cost) == ("ok", None)


async def test_a_seat_that_takes_too_long_is_an_error_and_its_model_is_stopped(
    upstream: Scripted, record: Record
) -> None:
    step = upstream.expect("a", says("never"), held=True)
    (answer,) = await panel(upstream, record, A, seat_timeout=SHORT).until_over()
    assert answer.error is not None
    assert (answer.status, answer.error.status, answer.error.type) == ("error", 504, "timeout")
    assert step.cancelled


# The record


async def test_an_answer_is_on_the_record_before_anyone_is_told(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("Hello."))
    write = record.hold(A, "ok")
    fan_out = panel(upstream, record, A)
    over, told = asyncio.create_task(fan_out.until_over()), asyncio.create_task(anext(fan_out.events()))
    await record.arrival(A, "ok")
    await settle()
    assert not over.done()
    assert not told.done()
    write.set()
    assert (await told).seat == A
    assert statuses(await over) == {"a": "ok"}
    assert record.kept == [("a", "ok", False)]


async def test_a_record_that_fails_costs_no_seat_its_answer(
    upstream: Scripted, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    record.refuses = RuntimeError("the record is broken")
    for alias in "ab":
        upstream.expect(alias, says(alias))
    assert statuses(await panel(upstream, record, A, B).until_over()) == {"a": "ok", "b": "ok"}
    assert A.call in caplog.text


async def test_seats_that_answered_are_waited_for_while_their_record_is_written(
    upstream: Scripted, record: Record
) -> None:
    first, second = (upstream.expect(alias, says(alias), held=True) for alias in "ab")
    writes = {alias: record.hold(one, "ok") for alias, one in (("a", A), ("b", B))}
    fan_out = panel(upstream, record, A, B, deadline=0)
    first.release()
    await record.arrival(A, "ok")
    over = asyncio.create_task(fan_out.until_over())
    await settle()
    second.release()
    await record.arrival(B, "ok")
    writes["a"].set()
    await settle()
    writes["b"].set()
    assert statuses(await over) == {"a": "ok", "b": "ok"}
    assert [answer.seat.alias async for answer in fan_out.events()] == ["a", "b"]
    assert record.kept == [("a", "ok", False), ("b", "ok", False)]


# When a panel is over


async def test_every_member_is_waited_for(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("a"))
    step = upstream.expect("b", says("b"), held=True)
    over = asyncio.create_task(panel(upstream, record, A, B, explorer_grace=0).until_over())
    await settle()
    assert record.kept == [("a", "ok", False)]
    assert not over.done()
    step.release()
    assert statuses(await over) == {"a": "ok", "b": "ok"}


async def test_an_explorer_has_its_grace_after_the_members(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("a"))
    step = upstream.expect("x", says("x"), held=True)
    over = asyncio.create_task(panel(upstream, record, A, X).until_over())
    await settle()
    assert not over.done()
    step.release()
    assert statuses(await over) == {"a": "ok", "x": "ok"}


@pytest.mark.parametrize("grace", [0, SHORT])
async def test_an_explorer_is_late_after_its_grace(upstream: Scripted, record: Record, grace: float) -> None:
    upstream.expect("a", fails())
    step = upstream.expect("x", says("x"), held=True)
    fan_out = panel(upstream, record, A, X, explorer_grace=grace)
    assert statuses(await fan_out.until_over()) == {"a": "error", "x": "late"}
    step.release()
    await fan_out.finish()


async def test_the_grace_begins_when_the_last_member_is_done(upstream: Scripted, record: Record) -> None:
    slow, explorer = upstream.expect("a", says("a"), held=True), upstream.expect("x", says("x"), held=True)
    fan_out = panel(upstream, record, A, X, explorer_grace=0)
    over = asyncio.create_task(fan_out.until_over())
    await settle()
    assert not over.done()
    slow.release()
    assert statuses(await over) == {"a": "ok", "x": "late"}
    explorer.release()
    await fan_out.finish()


async def test_explorers_that_have_no_members_beside_them_are_waited_for(upstream: Scripted, record: Record) -> None:
    steps = [upstream.expect(alias, says(alias), held=True) for alias in "xy"]
    over = asyncio.create_task(panel(upstream, record, X, Y, explorer_grace=0).until_over())
    await settle()
    steps[0].release()
    await settle()
    assert not over.done()
    steps[1].release()
    assert statuses(await over) == {"x": "ok", "y": "ok"}


async def test_a_panel_is_over_at_its_quorum_of_answers(upstream: Scripted, record: Record) -> None:
    steps = {alias: upstream.expect(alias, says(alias), held=True) for alias in "abc"}
    fan_out = panel(upstream, record, A, B, C, quorum=2)
    over = asyncio.create_task(fan_out.until_over())
    steps["c"].release()
    await settle()
    assert not over.done()
    steps["a"].release()
    assert statuses(await over) == {"c": "ok", "a": "ok", "b": "late"}
    steps["b"].release()
    await fan_out.finish()


@pytest.mark.parametrize("outcome", [fails(), says("")])
async def test_only_answers_count_for_the_quorum(upstream: Scripted, record: Record, outcome: Any) -> None:
    upstream.expect("a", outcome)
    upstream.expect("b", says("b"))
    step = upstream.expect("c", says("c"), held=True)
    over = asyncio.create_task(panel(upstream, record, A, B, C, quorum=2).until_over())
    await settle()
    assert not over.done()
    step.release()
    assert statuses(await over)["c"] == "ok"


async def test_a_quorum_that_is_never_reached_ends_with_the_seats(upstream: Scripted, record: Record) -> None:
    for alias in "ab":
        upstream.expect(alias, fails())
    assert statuses(await panel(upstream, record, A, B, quorum=2).until_over()) == {"a": "error", "b": "error"}


async def test_a_panel_is_over_at_its_deadline_with_what_is_there(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("a"))
    step = upstream.expect("b", says("b"), held=True)
    fan_out = panel(upstream, record, A, B, deadline=0)
    await settle()
    assert statuses(await fan_out.until_over()) == {"a": "ok", "b": "late"}
    step.release()
    await fan_out.finish()


async def test_a_deadline_ends_the_waiting_when_nobody_answers(upstream: Scripted, record: Record) -> None:
    step = upstream.expect("a", says("a"), held=True)
    fan_out = panel(upstream, record, A, deadline=SHORT)
    assert statuses(await fan_out.until_over()) == {"a": "late"}
    step.release()
    await fan_out.finish()


# Late seats


async def test_a_late_seat_goes_on_and_its_answer_is_recorded_when_it_comes(upstream: Scripted, record: Record) -> None:
    step = upstream.expect("a", says("at last"), held=True)
    fan_out = panel(upstream, record, A, deadline=0)
    (late,) = await fan_out.until_over()
    assert [answer.status async for answer in fan_out.events()] == ["late"]
    assert (late.status, late.text, record.kept) == ("late", "", [("a", "late", False)])
    assert not step.cancelled
    step.release()
    await fan_out.finish()
    assert record.kept == [("a", "late", False), ("a", "ok", True)]
    assert record.answers["a"].text == "at last"


async def test_a_late_seat_ends_by_its_own_limit(upstream: Scripted, record: Record) -> None:
    step = upstream.expect("a", says("never"), held=True)
    fan_out = panel(upstream, record, A, deadline=0, seat_timeout=SHORT)
    await fan_out.until_over()
    await fan_out.finish()
    assert step.cancelled
    assert record.kept == [("a", "late", False), ("a", "error", True)]


async def test_an_answer_that_comes_while_lateness_is_recorded_is_told_as_late_once(
    upstream: Scripted, record: Record
) -> None:
    first, second = (upstream.expect(alias, says(alias), held=True) for alias in "ab")
    write = record.hold(A, "late")
    fan_out = panel(upstream, record, A, B, deadline=0)
    over = asyncio.create_task(fan_out.until_over())
    await record.arrival(A, "late")
    for step in (first, second):
        step.release()
    await settle()
    write.set()
    assert statuses(await over) == {"a": "late", "b": "late"}
    assert [answer.status async for answer in fan_out.events()] == ["late", "late"]
    await fan_out.finish()
    assert sorted(record.kept) == [("a", "late", False), ("a", "ok", True), ("b", "late", False), ("b", "ok", True)]


# Stopping


async def test_cancelling_stops_every_open_models_call_and_records_that(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("a"))
    steps = [upstream.expect(alias, says(alias), held=True) for alias in "bx"]
    fan_out = panel(upstream, record, A, B, X)
    await settle()
    await fan_out.cancel()
    assert all(step.cancelled for step in steps)
    assert sorted(record.kept) == [("a", "ok", False), ("b", "error", False), ("x", "error", False)]
    error = record.answers["b"].error
    assert error is not None
    assert (error.status, error.type) == (499, "cancelled")


async def test_an_answer_that_is_being_recorded_is_not_lost_to_cancelling(upstream: Scripted, record: Record) -> None:
    upstream.expect("a", says("a"))
    write = record.hold(A, "ok")
    fan_out = panel(upstream, record, A)
    await record.arrival(A, "ok")
    stopping = asyncio.create_task(fan_out.cancel())
    await settle()
    assert not stopping.done()
    write.set()
    await stopping
    assert record.kept == [("a", "ok", False)]


async def test_a_cancelled_panel_stops_its_late_seats_too(upstream: Scripted, record: Record) -> None:
    step = upstream.expect("a", says("never"), held=True)
    fan_out = panel(upstream, record, A, deadline=0)
    await step.started()
    await fan_out.until_over()
    await fan_out.cancel()
    assert step.cancelled
    assert record.kept == [("a", "late", False), ("a", "error", True)]


async def test_closing_ends_the_telling(upstream: Scripted, record: Record) -> None:
    step = upstream.expect("a", says("never"), held=True)
    fan_out = panel(upstream, record, A)
    await step.started()
    fan_out.close()
    assert [answer async for answer in fan_out.events()] == []
    await fan_out.cancel()

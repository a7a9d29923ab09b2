"""The use cases without a proxy: asking a panel, with a ledger that works, is slow, or is gone."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from bench_proxy import bench as use_cases
from bench_proxy.bench import Bench, Caller, Judged, Page, Picked
from bench_proxy.catalog import Catalog, HostFacts
from bench_proxy.config import Config
from bench_proxy.errors import BenchError, InvalidRequest, LedgerUnavailable, NotFound, Overloaded, PanelFailed
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.keys import Use
from bench_proxy.marks import Pick
from bench_proxy.panel.fan_out import Pace
from bench_proxy.panel.panel import Panel, check_answered, pace
from bench_proxy.panel.seats import Answer, Report, Seat, SeatError, Seating, Skipped
from bench_proxy.ratings import Wins
from bench_proxy.records import Record, Verdict
from tests.doubles import Remembered, Undecided, fails
from tests.scripted import Scripted, says

REQUEST = ChatRequest([{"role": "user", "content": "Why?"}], {})
CONFIG: dict[str, Any] = {
    "collections": {"core": {"members": ["a", "b"], "explorers": 0}, "explored": {"members": ["a"], "explorers": 2}},
    "timing": {"explorer_grace": 3600},
    "models": {"b": {"explore": False}},
}


class Kept(Remembered):
    """Remembers what it was told and whose it was. It can be gone, and it can be slow to reserve."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, ...]] = []
        self.asked: list[str] = []
        self.scopes: list[str | None] = []
        self.seated = {"x": 2, "y": 1}
        self.gone = False
        self.reserved = asyncio.Event()

    def _write(self, *event: str) -> None:
        if self.gone:
            raise LedgerUnavailable("the ledger cannot be written")
        self.events.append(event)

    async def reserve(self, shape: str, choose: Callable[[Mapping[str, int]], Sequence[str]]) -> list[str]:
        self.reserved.set()
        chosen = await super().reserve(shape, choose)
        self._write("reserved", shape, *chosen)
        return chosen

    async def opened(self, seating: Seating, owner: str, asked: str, at_ms: int) -> None:
        self._write("opened", owner, *(seat.alias for seat in seating.seats))
        self.asked.append(asked)

    async def answered(
        self, seating: Seating, owner: str, answer: Answer, place: int, use: Use, *, late: bool, urgent: bool = True
    ) -> None:
        self._write("answered", answer.seat.alias, answer.status, *(["late"] if late else []))

    async def closed(self, report: Report) -> None:
        self._write("closed")

    async def judge(self, verdict: Verdict, owner: str | None) -> Judged:
        self.scopes.append(owner)
        return Judged(recorded=True, alias="a")

    async def pick(self, pick: Pick, owner: str | None) -> Picked:
        self.scopes.append(owner)
        return Picked(recorded=True, alias="a", over={})

    async def owed(self, calls: Sequence[str], owner: str | None) -> list[str]:
        self.scopes.append(owner)
        return list(calls)

    async def record(self, collection: str | None, owner: str | None) -> list[Record]:
        self.scopes.append(owner)
        return []

    async def wins(self, collection: str | None, owner: str | None) -> Mapping[str, Wins]:
        self.scopes.append(owner)
        return {}

    async def panels(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page:
        self.scopes.append(owner)
        return Page([], None)

    async def panel(self, panel: str, owner: str | None) -> Any:
        self.scopes.append(owner)
        return {"panel": panel} if panel == "p1" else None


@pytest.fixture(autouse=True)
async def no_task_is_left_behind() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
    assert not left


@pytest.fixture
async def upstream() -> AsyncIterator[Scripted]:
    async with Scripted() as scripted:
        yield scripted


@pytest.fixture
def ledger() -> Kept:
    return Kept()


class Served:
    """A bench over the models a, b, x, y, z, and what its `config` is now."""

    def __init__(self, upstream: Scripted, ledger: Kept) -> None:
        self.config = Config.model_validate(CONFIG)
        catalog = Catalog([HostFacts(name, underlying=name) for name in "abxyz"], self.config.models)
        rng = random.Random(7)  # noqa: S311
        self.bench = Bench(upstream, ledger, lambda: self.config, lambda: catalog, Undecided(), rng)

    async def ask(self, collection: str = "core", *guests: str, caller: Caller | None = None, **options: Any) -> Panel:
        asked = {"model": f"bench/{collection}", "collection": collection, "reply": "all", "guests": guests, **options}
        return await self.bench.ask(Brief(**asked), REQUEST, caller or somebody(), self.config)


@pytest.fixture
def served(upstream: Scripted, ledger: Kept) -> Served:
    return Served(upstream, ledger)


def somebody(*may_call: str, admin: bool = False) -> Caller:
    async def allowed(models: Collection[str]) -> list[str]:
        return [model for model in models if model in may_call]

    return Caller("owner", admin, allowed)


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(50):
        await asyncio.sleep(0)


async def run(served: Served, panel: Panel) -> Report:
    await served.bench.start(panel)
    return panel.report.result()


# Refused before any model is asked


async def test_a_turn_is_no_panel(served: Served) -> None:
    with pytest.raises(InvalidRequest, match="/v1/chat/completions") as refused:
        await served.ask(reply="route")
    assert refused.value.param == "model"


async def test_a_guest_that_the_key_may_not_call_is_refused(served: Served) -> None:
    with pytest.raises(InvalidRequest, match='"x"'):
        await served.ask("explored", "x", caller=somebody("y"))


async def test_more_panels_than_may_run_at_once_are_told_to_come_back(served: Served, upstream: Scripted) -> None:
    served.config = Config.model_validate({**CONFIG, "limits": {"concurrent_panels": 1}})
    steps = [upstream.expect(alias, says(alias), held=True) for alias in "ab"]
    running = served.bench.start(await served.ask())
    await settle()
    with pytest.raises(Overloaded) as refused:
        await served.ask()
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    for step in steps:
        step.release()
    await running
    for alias in "ab":
        upstream.expect(alias, says(alias))
    await run(served, await served.ask())


# A panel's life


async def test_a_panel_is_recorded_seat_by_seat_and_reported_in_seat_order(
    served: Served, upstream: Scripted, ledger: Kept
) -> None:
    first = upstream.expect("a", says("A."), held=True)
    upstream.expect("b", says("B."))
    panel = await served.ask()
    running = asyncio.create_task(run(served, panel))
    await settle()
    first.release()
    report = await running
    assert [answer.seat.alias for answer in report.answers] == ["a", "b"]
    assert ledger.events == [
        ("opened", "owner", "a", "b"),
        ("answered", "b", "ok"),
        ("answered", "a", "ok"),
        ("closed",),
    ]
    assert ledger.asked == ["Why?"]
    assert report.note == ""


@pytest.mark.parametrize(("content", "asked"), [("full", "Why?"), ("answers", ""), ("none", "")])
async def test_what_was_asked_is_kept_only_when_the_operator_wants_it(
    served: Served, upstream: Scripted, ledger: Kept, content: str, asked: str
) -> None:
    served.config = Config.model_validate({**CONFIG, "ledger": {"content": content}})
    for alias in "ab":
        upstream.expect(alias, says(alias))
    await run(served, await served.ask())
    assert ledger.asked == [asked]


async def test_members_start_before_the_explorers_are_reserved(
    served: Served, upstream: Scripted, ledger: Kept
) -> None:
    ledger.reserving = asyncio.Event()
    member = upstream.expect("a", says("A."))
    explorers = [upstream.expect(alias, says(alias)) for alias in "zy"]
    running = asyncio.create_task(run(served, await served.ask("explored")))
    await ledger.reserved.wait()
    await member.started()
    assert not any(step.is_started() for step in explorers)
    ledger.reserving.set()
    report = await running
    # z was never seated, and y longer ago than x.
    assert [answer.seat.alias for answer in report.answers] == ["a", "z", "y"]
    assert ledger.events[0] == ("reserved", "general", "z", "y")


async def test_late_answers_are_recorded_before_a_panels_run_ends(
    served: Served, upstream: Scripted, ledger: Kept
) -> None:
    upstream.expect("a", says("A."))
    late = upstream.expect("b", says("B."), held=True)
    panel = await served.ask(quorum=1)
    running = served.bench.start(panel)
    report = await panel.report
    assert [answer.status for answer in report.answers] == ["ok", "late"]
    await settle()
    assert not running.done()
    late.release()
    await running
    assert ledger.events[-1] == ("answered", "b", "ok", "late")


# The ledger fails


async def test_answers_flow_without_the_ledger_and_the_reply_says_so(
    served: Served, upstream: Scripted, ledger: Kept
) -> None:
    ledger.gone = True
    for alias in "ab":
        upstream.expect(alias, says(alias))
    report = await run(served, await served.ask())
    assert [answer.status for answer in report.answers] == ["ok", "ok"]
    assert "ledger" in report.note


async def test_explorers_are_drawn_without_a_ledger_that_is_gone(
    served: Served, upstream: Scripted, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        use_cases, "stalest", lambda models, last, count, _: sorted(models, key=lambda m: m.alias)[:count]
    )
    ledger.gone = True
    for alias in "axy":
        upstream.expect(alias, says(alias))
    report = await run(served, await served.ask("explored"))
    assert [answer.seat.alias for answer in report.answers] == ["a", "x", "y"]


async def test_explorers_are_drawn_without_a_ledger_that_is_too_slow(
    served: Served, upstream: Scripted, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        use_cases, "stalest", lambda models, last, count, _: sorted(models, key=lambda m: m.alias)[:count]
    )
    monkeypatch.setattr(use_cases, "RESERVE_SECONDS", 0.01)
    ledger.reserving = asyncio.Event()
    for alias in "axy":
        upstream.expect(alias, says(alias))
    report = await run(served, await served.ask("explored"))
    assert [answer.seat.kind for answer in report.answers] == ["member", "explorer", "explorer"]


# Stopping


async def test_stopping_a_panel_stops_its_models(served: Served, upstream: Scripted, ledger: Kept) -> None:
    steps = [upstream.expect(alias, says(alias), held=True) for alias in "ab"]
    panel = await served.ask()
    running = served.bench.start(panel)
    for step in steps:
        await step.started()
    running.cancel()
    await asyncio.wait([running])
    assert all(step.cancelled for step in steps)
    assert panel.report.cancelled()
    assert sorted(ledger.events[1:-1]) == [("answered", "a", "error"), ("answered", "b", "error")]
    assert ledger.events[-1][0] == "closed"


@pytest.mark.parametrize("answered", [False, True])
async def test_stopping_a_panel_while_its_explorers_are_reserved_ends_it(
    served: Served, upstream: Scripted, ledger: Kept, answered: bool
) -> None:
    ledger.reserving = asyncio.Event()
    step = upstream.expect("a", says("A."), held=not answered)
    panel = await served.ask("explored")
    running = served.bench.start(panel)
    await ledger.reserved.wait()
    await step.started()
    await settle()
    running.cancel()
    await asyncio.wait([running])
    assert panel.seating.cancelled()
    assert panel.report.cancelled()
    assert [event async for event in panel.events()] == []


async def test_a_stopped_panel_counts_no_more_among_those_that_run(served: Served, upstream: Scripted) -> None:
    served.config = Config.model_validate({**CONFIG, "limits": {"concurrent_panels": 1}})
    steps = [upstream.expect(alias, says(alias), held=True) for alias in "ab"]
    running = served.bench.start(await served.ask())
    for step in steps:
        await step.started()
    running.cancel()
    await asyncio.wait([running])
    for alias in "ab":
        upstream.expect(alias, says(alias))
    await run(served, await served.ask())


# What a panel that lost seats comes to


PANEL = "p20260301-120005-abcdefghijklmnop"


def ended(*ends: str | SeatError, skipped: int = 0) -> Report:
    seats = tuple(Seat(f"{PANEL}.member{n}", "member", f"m{n}") for n in range(1, len(ends) + 1))
    missing = tuple(Skipped("member", f"s{n}", "retired") for n in range(skipped))
    answers = tuple(
        Answer(seat, end, 1.0, text="Yes." if end == "ok" else "")  # type: ignore[arg-type]
        if isinstance(end, str)
        else Answer(seat, "error", 1.0, error=end)
        for seat, end in zip(seats, ends, strict=True)
    )
    return Report(Seating(PANEL, "core", "bench/core", "all", "general", "default", seats, missing), answers, 2.0)


def failed(kind: str, status: int = 500, retry_after: float | None = None) -> SeatError:
    return SeatError(status, kind, "no", retry_after)


LIMITED = failed("rate_limit", 429, 30.0)


def outcome(report: Report, partial: Any = "accept") -> PanelFailed:
    brief = Brief("bench/core", "core", "all", partial=partial)
    with pytest.raises(PanelFailed) as error:
        check_answered(report, brief, {"panel": PANEL})
    return error.value


@pytest.mark.parametrize(
    ("ends", "status", "retry_after"),
    [
        ((LIMITED, failed("rate_limit", 429, 7.4)), 429, 7),
        ((LIMITED, failed("rate_limit", 429)), 429, 30),
        ((failed("rate_limit", 429, 0.1),), 429, 1),
        ((failed("rate_limit", 429),), 429, 60),
        ((failed("context_window", 400), failed("context_window", 413)), 413, None),
        (("late", "late"), 504, None),
        (("late", failed("timeout", 504)), 504, None),
        ((LIMITED, "late"), 502, None),
        ((LIMITED, failed("context_window", 400)), 502, None),
        ((failed("authentication", 401),), 502, None),
        (("empty",), 502, None),
        (("empty", "late"), 502, None),
    ],
)
def test_a_panel_without_an_answer_has_the_status_of_why(
    ends: tuple[Any, ...], status: int, retry_after: int | None
) -> None:
    error = outcome(ended(*ends))
    assert (error.status, error.retry_after, error.data) == (status, retry_after, {"panel": PANEL})


def test_a_panel_without_an_answer_names_each_seat_and_why() -> None:
    message = outcome(ended(LIMITED, "late", "empty")).message
    for told in ("bench/core", "m1 error (429 rate_limit: no)", "m2 late", "m3 empty"):
        assert told in message


@pytest.mark.parametrize("report", [ended("ok", "late"), ended("ok", LIMITED), ended("ok", skipped=1)])
def test_a_partial_panel_is_refused_only_when_that_was_asked(report: Report) -> None:
    check_answered(report, Brief("bench/core", "core", "all"), {})
    error = outcome(report, partial="refuse")
    assert (error.status, error.data) == (502, {"panel": PANEL})


def test_a_refused_partial_panel_names_who_is_missing() -> None:
    message = outcome(ended("ok", LIMITED, skipped=1), partial="refuse").message
    for told in ("m2 error (429 rate_limit: no)", "s0 skipped: retired"):
        assert told in message


def test_a_full_panel_is_an_answer_also_when_partial_ones_are_refused() -> None:
    check_answered(ended("ok", "ok"), Brief("bench/core", "core", "all", partial="refuse"), {})


# How long it waits


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [
        ({}, {}, Pace(300, 300, 15, 0)),
        ({"deadline": 30, "quorum": 2}, {}, Pace(300, 30, 15, 2)),
        ({"deadline": 30, "quorum": 2}, {"deadline": 5.0, "quorum": 1}, Pace(300, 5, 15, 1)),
        ({"deadline": 30}, {"deadline": 60.0}, Pace(300, 60, 15, 0)),
        ({}, {"deadline": 9999.0}, Pace(300, 300, 15, 0)),
    ],
)
def test_the_requests_limits_win_over_the_collections_and_no_panel_outlasts_its_seats(
    own: dict[str, Any], asked: dict[str, Any], expected: Pace
) -> None:
    config = Config.model_validate({"collections": {"core": {"members": ["a"], **own}}})
    assert pace(Brief("bench/core", "core", "all", **asked), config) == expected


# Who sees what


@pytest.mark.parametrize(("admin", "scope"), [(True, None), (False, "owner")])
async def test_an_admin_sees_everything_and_any_other_its_own(
    served: Served, ledger: Kept, admin: bool, scope: str | None
) -> None:
    caller = somebody(admin=admin)
    await served.bench.judge(Verdict("c", True), caller)
    await served.bench.pick(Pick("p1", "c"), caller)
    await served.bench.owed(["c"], caller)
    await served.bench.record(None, caller)
    await served.bench.panels(10, None, None, caller)
    await served.bench.panel("p1", caller)
    assert ledger.scopes == [scope] * 7


async def test_a_panel_that_is_not_there_is_not_found(served: Served) -> None:
    with pytest.raises(NotFound) as error:
        await served.bench.panel("p2", somebody())
    assert (error.value.status, isinstance(error.value, BenchError)) == (404, True)


async def test_a_failed_seat_is_recorded_as_any_other(served: Served, upstream: Scripted, ledger: Kept) -> None:
    upstream.expect("a", fails())
    upstream.expect("b", says("B."))
    report = await run(served, await served.ask())
    assert report.partial
    assert ("answered", "a", "error") in ledger.events

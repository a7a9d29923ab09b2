"""What bench-proxy does, without a framework in sight: ask a panel, record a verdict, read the record."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bench_proxy.catalog import Catalog, Model
from bench_proxy.config import Config
from bench_proxy.errors import InvalidRequest, LedgerUnavailable, NotFound, Overloaded, PanelFailed
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.ids import panel_id
from bench_proxy.panel.fan_out import FanOut, Pace
from bench_proxy.panel.refusals import refuse
from bench_proxy.panel.seating import Plan, explorer_seats, plan, stalest
from bench_proxy.panel.seats import Answer, Report, Seating
from bench_proxy.records import Record, Verdict
from bench_proxy.upstream import Upstream

log = logging.getLogger("bench_proxy")

RESERVE_SECONDS = 1.0
"""How long explorers wait for the ledger before they are drawn without it."""

SERVED_MODES = ("all",)
"""The reply modes that this version answers."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: `owner` is what the ledger knows of the key, `admin` may see and judge everybody's panels.

    `allowed` says which of the given model names this key may call.
    """

    owner: str
    admin: bool
    allowed: Callable[[Collection[str]], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, newest first; `next` is the cursor of the following one."""

    rows: Sequence[Mapping[str, Any]]
    next: str | None


class Ledger(Protocol):
    """What the record must do. An owner of None sees everything, any other only what is its own."""

    async def reserve(self, shape: str, choose: Callable[[Mapping[str, int]], Sequence[str]]) -> list[str]:
        """Let `choose` pick among models by when each was last seated (ms), and mark the picked as seated now.

        Across all processes no two reservations see the same moment.
        """
        ...

    async def opened(self, seating: Seating, owner: str, asked: str, at_ms: int) -> None: ...

    async def answered(self, seating: Seating, owner: str, answer: Answer, *, late: bool) -> None:
        """Returns once the answer is durable. Raises LedgerUnavailable."""
        ...

    async def closed(self, report: Report) -> None: ...

    async def judge(self, verdict: Verdict, owner: str | None) -> bool:
        """Returns whether anything was written, once it is durable. Raises NotFound, LedgerUnavailable."""
        ...

    async def owed(self, calls: Sequence[str], owner: str | None) -> list[str]: ...

    async def record(self, collection: str | None, owner: str | None) -> list[Record]: ...

    async def panels(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page: ...

    async def panel(self, panel: str, owner: str | None) -> Mapping[str, Any] | None: ...

    async def healthy(self) -> bool: ...


class Panel:
    """One panel from the moment it was accepted. `run` drives it; the rest is for whoever reads it."""

    def __init__(
        self, bench: "Bench", config: Config, brief: Brief, request: ChatRequest, owner: str, planned: Plan
    ) -> None:
        self.id = planned.panel
        self.brief = brief
        self.report: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        self.seating: asyncio.Future[Seating] = asyncio.get_running_loop().create_future()
        self._bench = bench
        self._content = config.ledger.content
        self._owner = owner
        self._plan = planned
        self._request = request
        self._note = ""
        self._fan_out = FanOut(
            bench.upstream, request, pace(brief, config), self._keep, (f"bench-collection:{brief.collection}",)
        )

    def answers(self) -> AsyncIterator[Answer]:
        return self._fan_out.answers()

    async def run(self) -> None:
        """Seat, ask, report, and stay until the last late seat is done."""
        began = time.monotonic()
        try:
            for seat in self._plan.seats:
                self._fan_out.start(seat)
            seating = await self._seat()
            self.seating.set_result(seating)
            for seat in seating.seats[len(self._plan.seats) :]:
                self._fan_out.start(seat)
            answers = {a.seat.call: a for a in await self._fan_out.until_over()}
            ordered = tuple(answers[s.call] for s in seating.seats)
            report = Report(seating, ordered, time.monotonic() - began, self._note)
            self.report.set_result(report)
            await self._try(self._bench.ledger.closed(report))
            _log_panel(report)
            await self._fan_out.finish()
        finally:
            # First, since a seat that has answered before the explorers were seated waits for the seating.
            for future in (self.seating, self.report):
                if not future.done():
                    future.cancel()
            await self._fan_out.cancel()
            self._fan_out.close()

    async def _seat(self) -> Seating:
        planned, brief = self._plan, self.brief
        chosen = await self._bench.choose_explorers(planned)
        seating = Seating(
            panel=self.id,
            collection=brief.collection,
            model=brief.model,
            reply=brief.reply,
            shape=planned.shape,
            shape_by=planned.shape_by,
            seats=(*planned.seats, *explorer_seats(self.id, chosen)),
            skipped=planned.skipped,
        )
        asked = self._request.asked() if self._content == "full" else ""
        await self._try(self._bench.ledger.opened(seating, self._owner, asked, int(time.time() * 1000)))
        return seating

    async def _keep(self, answer: Answer, late: bool) -> None:
        # A member can answer before the explorers are seated; its row needs the seating.
        seating = await asyncio.shield(self.seating)
        await self._try(self._bench.ledger.answered(seating, self._owner, answer, late=late))

    async def _try(self, writing: Awaitable[None]) -> None:
        """Answers flow without the ledger; the reply says that they are not on the record."""
        try:
            await writing
        except LedgerUnavailable as error:
            self._note = "The ledger could not be written: verdicts on this panel may not find their calls."
            log.error("panel %s is not wholly on the record: %s", self.id, error)


class Bench:
    """The use cases. One instance a process; `config` and `catalog` are read anew for each request."""

    def __init__(
        self,
        upstream: Upstream,
        ledger: Ledger,
        config: Callable[[], Config],
        catalog: Callable[[], Catalog],
        rng: random.Random | None = None,
    ) -> None:
        self.upstream = upstream
        self.ledger = ledger
        self._config = config
        self._catalog = catalog
        self._rng = rng or random.Random()  # noqa: S311  ties between equal explorers, nothing secret
        self._running = 0

    @property
    def config(self) -> Config:
        return self._config()

    @property
    def catalog(self) -> Catalog:
        return self._catalog()

    async def ask(self, brief: Brief, request: ChatRequest, caller: Caller, config: Config) -> Panel:
        """Accept or refuse a panel; an accepted one runs when `run` is awaited. `config` is what the brief was read by.

        Raises InvalidRequest for what cannot be honoured, Overloaded above `limits.concurrent_panels`, NobodyCanSit.
        """
        _refuse_unserved(brief)
        refuse(request)
        limit = config.limits.concurrent_panels
        if limit and self._running >= limit:
            raise Overloaded(f"{limit} panels are running, as many as limits.concurrent_panels allows", retry_after=1)
        allowed = await caller.allowed(brief.guests) if brief.guests else []
        planned = plan(panel_id(), brief, config, self.catalog, images=request.has_images, allowed=allowed)
        return Panel(self, config, brief, request, caller.owner, planned)

    async def run(self, panel: Panel) -> None:
        self._running += 1
        try:
            await panel.run()
        finally:
            self._running -= 1

    async def choose_explorers(self, planned: Plan) -> list[Model]:
        """The stalest candidates, reserved in the ledger; drawn at random when it does not answer in time."""
        if not planned.open_seats:
            return []
        models = {m.alias: m for m in planned.candidates}

        def choose(last_seated_ms: Mapping[str, int]) -> list[str]:
            chosen = stalest(models.values(), last_seated_ms, planned.open_seats, self._rng)
            return [m.alias for m in chosen]

        try:
            async with asyncio.timeout(RESERVE_SECONDS):
                aliases = await self.ledger.reserve(planned.shape, choose)
        except (TimeoutError, LedgerUnavailable) as error:
            log.warning(
                "explorers of panel %s are drawn without the ledger: %s", planned.panel, str(error) or "too slow"
            )
            aliases = choose({})
        return [models[alias] for alias in aliases]

    async def judge(self, verdict: Verdict, caller: Caller) -> bool:
        """Put a verdict on the record; False when it was there already."""
        return await self.ledger.judge(verdict, _scope(caller))

    async def owed(self, calls: Sequence[str], caller: Caller) -> list[str]:
        return await self.ledger.owed(calls, _scope(caller))

    async def record(self, collection: str | None, caller: Caller) -> list[Record]:
        return await self.ledger.record(collection, _scope(caller))

    async def panels(self, limit: int, cursor: str | None, collection: str | None, caller: Caller) -> Page:
        return await self.ledger.panels(limit, cursor, collection, _scope(caller))

    async def panel(self, panel: str, caller: Caller) -> Mapping[str, Any]:
        found = await self.ledger.panel(panel, _scope(caller))
        if found is None:
            raise NotFound(f"there is no panel {panel[:64]!r}", param="panel")
        return found


def pace(brief: Brief, config: Config) -> Pace:
    """The request's own limits before the collection's before the defaults."""
    timing, collection = config.timing, config.collections[brief.collection]
    deadline = brief.deadline or collection.deadline or timing.seat_timeout
    quorum = collection.quorum if brief.quorum is None else brief.quorum
    return Pace(timing.seat_timeout, min(deadline, timing.seat_timeout), timing.explorer_grace, quorum)


def check_answered(report: Report, brief: Brief, data: Mapping[str, Any]) -> None:
    """Raise PanelFailed when the report is not an answer: no seat answered, or it is partial and that was refused."""
    named = "; ".join(_outcome(a) for a in report.answers)
    if not report.answered:
        status, retry_after = _status_of_failure(report)
        raise PanelFailed(
            f"no seat of bench/{brief.collection} answered: {named}", status=status, retry_after=retry_after, data=data
        )
    if brief.partial == "refuse" and report.partial:
        skipped = "".join(f"; {s.alias} skipped: {s.why}" for s in report.seating.skipped)
        raise PanelFailed(f"the panel is partial, which was refused: {named}{skipped}", status=502, data=data)


def _status_of_failure(report: Report) -> tuple[int, int | None]:
    """429 when every failure was a rate limit, 413 the context window, 504 time; else 502."""
    kinds = {a.error.type if a.error else a.status for a in report.answers}
    if kinds == {"rate_limit"}:
        waits = [a.error.retry_after for a in report.answers if a.error and a.error.retry_after]
        return 429, max(1, round(min(waits, default=60)))
    if kinds == {"context_window"}:
        return 413, None
    return (504 if kinds <= {"late", "timeout"} else 502), None


def _outcome(answer: Answer) -> str:
    why = f" ({answer.error.status} {answer.error.type}: {answer.error.message})" if answer.error else ""
    return f"{answer.seat.alias} {answer.status}{why}"


def _refuse_unserved(brief: Brief) -> None:
    """Modes and options of the contract that this version does not answer are refused, never dropped."""
    if brief.reply not in SERVED_MODES:
        raise InvalidRequest(
            f'reply mode "{brief.reply}" is not answered yet; ask bench/{brief.collection}:all', param="bench.reply"
        )
    if brief.blind:
        raise InvalidRequest('"blind" is not answered yet', param="bench.blind")
    if brief.stream_mode == "live":
        raise InvalidRequest('stream "live" is not answered yet; use "seats"', param="bench.stream")


def _scope(caller: Caller) -> str | None:
    return None if caller.admin else caller.owner


def _log_panel(report: Report) -> None:
    seats = " ".join(f"{a.seat.alias}={a.status}/{a.seconds:.2f}s" for a in report.answers)
    log.info(
        "panel %s collection=%s partial=%s seconds=%.3f %s",
        report.seating.panel, report.seating.collection, report.partial, report.seconds, seats,
    )  # fmt: skip

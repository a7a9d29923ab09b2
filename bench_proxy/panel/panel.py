"""One panel: seated, asked, merged and put on the record, whoever reads it meanwhile."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from bench_proxy.catalog import Catalog, Model
from bench_proxy.config import Config
from bench_proxy.errors import LedgerUnavailable, NobodyCanSit, PanelFailed
from bench_proxy.estimate import Used, used
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.keys import Use
from bench_proxy.panel.fan_out import FanOut, Pace
from bench_proxy.panel.merging import merge_request
from bench_proxy.panel.seating import Numbering, Plan, for_shape
from bench_proxy.panel.seats import Answer, Piece, Report, Seat, Seating
from bench_proxy.size import size
from bench_proxy.upstream import Upstream

log = logging.getLogger("bench_proxy")

RECORD_SECONDS = 20.0
"""How long an answer waits to be on the record before it goes out without."""

LEAST_TO_MERGE = 5.0
"""Seconds that a merger has also when the seats have used up the deadline: their answers are there."""

UNDECIDED = ("general", "default")
"""The shape, and who said so, when nobody did."""


class Keeping(Protocol):
    """What a panel puts on the record. Each method raises LedgerUnavailable."""

    async def opened(self, seating: Seating, owner: str, asked: str, at_ms: int) -> None: ...

    async def answered(
        self, seating: Seating, owner: str, answer: Answer, place: int, use: Use, *, late: bool, urgent: bool = True
    ) -> None:
        """`place` is the seat's on the panel, `use` counts in its owner's budget: once, that of a late one with its
        end. Returns once the answer is durable, and with it all that came before. One that nobody waits for yet
        (`urgent` False) is left to go with the next; that it failed is raised by the next, too.
        """
        ...

    async def count_use(self, owner: str, use: Use) -> None:
        """Count in its owner's budget what a seat has used that is on no panel's record."""
        ...

    async def closed(self, report: Report) -> None: ...


class Staff(Protocol):
    """What a panel leaves to whoever seats it."""

    @property
    def upstream(self) -> Upstream: ...

    @property
    def ledger(self) -> Keeping: ...

    @property
    def catalog(self) -> Catalog: ...

    async def decide_shape(self, request: ChatRequest, config: Config, *, asked: bool) -> tuple[str, str]:
        """The kind of task and who said so; nobody is asked unless a seat depends on it."""
        ...

    async def choose_explorers(self, panel: str, shape: str, candidates: Sequence[Model], count: int) -> list[Model]:
        """The stalest candidates, reserved across all processes."""
        ...

    async def mergers(self, report: Report, config: Config, tokens: int) -> list[str]:
        """Who is asked to merge so many tokens, in order."""
        ...

    def note(self, answer: Answer, request: ChatRequest) -> None:
        """Learn from an answer; waits for nothing."""
        ...


class Panel:
    """One panel from the moment it was accepted. `run` drives it; the rest is for whoever reads it."""

    def __init__(
        self,
        staff: Staff,
        config: Config,
        brief: Brief,
        request: ChatRequest,
        owner: str,
        planned: Plan,
        numbering: Numbering,
        tokens: int,
        *,
        keep_text: bool,
    ) -> None:
        """`tokens` is the size of the request in a budget, `keep_text` says whether the record may have the answers'
        texts.
        """
        self.id = numbering.panel
        self.brief = brief
        self.report: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        self.seating: asyncio.Future[Seating] = asyncio.get_running_loop().create_future()
        self._staff = staff
        self._config = config
        self._catalog = staff.catalog
        self._owner = owner
        self._plan = planned
        self._numbering = numbering
        self._request = request
        self._keep_text = keep_text
        self._note = ""
        self._began = 0.0
        self._pace = pace(brief, config)
        self._left: list[Model] = []
        """Who could still explore."""
        self._added: list[Seat] = []
        """Seats of explorers that took the place of one that failed."""
        self._replacing = asyncio.Lock()
        self._used: dict[str, Used] = {}
        self._stages: asyncio.Queue[FanOut | None] = asyncio.Queue()
        """What `events` follows: the seats, then each merger; None when there will be none any more."""
        self._fan_out = self._stage(request, tokens, piecewise=_told_piecewise(brief, config))

    @property
    def used(self) -> Used:
        """What its seats have used; of those that have not ended, a late one until it was left behind."""
        return sum(self._used.values(), Used())

    async def events(self) -> AsyncGenerator[Piece | Answer, None]:
        """What the seats say and how they end, then the same of the merger; until the panel is over."""
        while (stage := await self._stages.get()) is not None:
            async with aclosing(stage.events()) as events:
                async for event in events:
                    yield event

    async def run(self) -> None:
        """Seat, ask, merge, report, and stay until the last late seat is done."""
        self._began = began = time.monotonic()
        try:
            for seat in self._plan.seats:
                self._fan_out.start(seat)
            seating = await self._seat()
            self.seating.set_result(seating)
            for seat in seating.seats:
                if seat not in self._plan.seats:
                    self._fan_out.start(seat)
            answers = {a.seat.call: a for a in await self._fan_out.until_over()}
            seats = _in_order((*seating.seats, *(s for s in self._added if s.call in answers)))
            seating = replace(seating, seats=seats)
            report = Report(seating, tuple(answers[s.call] for s in seats), time.monotonic() - began)
            if self.brief.reply == "merged":
                report = await self._merge(report)
            report = replace(report, seconds=time.monotonic() - began, note=" ".join([report.note, self._note]).strip())
            self._stages.put_nowait(None)
            self.report.set_result(report)
            await self._try(self._staff.ledger.closed(report))
            _log_panel(report)
            await self._fan_out.finish()
        finally:
            self._stages.put_nowait(None)
            # First, since a seat that is stopped waits for the seating to be put on the record.
            stopped = not self.report.done()
            for future in (self.seating, self.report):
                future.cancel()
            await self._fan_out.cancel()
            if stopped and not self.seating.cancelled() and self.seating.exception() is None:
                await self._close_early(self.seating.result())

    async def _close_early(self, seating: Seating) -> None:
        """A panel that was stopped is over too, with the answers that there are."""
        answers = {a.seat.call: a for a in self._fan_out.answers}
        of = _in_order((*seating.seats, *(s for s in self._added if s.call in answers)))
        told = tuple(answers[seat.call] for seat in of if seat.call in answers)
        note = "The panel was stopped before it was over."
        report = Report(replace(seating, seats=of), told, time.monotonic() - self._began, note)
        await self._try(self._staff.ledger.closed(report))

    def _stage(self, request: ChatRequest, tokens: int, *, piecewise: bool, pace: Pace | None = None) -> FanOut:
        stage = FanOut(
            self._staff.upstream,
            request,
            pace or self._pace,
            partial(self._keep, tokens),
            # A blind seat that came later than the others would be known for an explorer.
            replace=None if self.brief.blind else self._replace,
            tags=(f"bench-panel:{self.id}", f"bench-collection:{self.brief.collection}"),
            piecewise=piecewise,
        )
        self._stages.put_nowait(stage)
        return stage

    async def _seat(self) -> Seating:
        planned, brief = self._plan, self.brief
        shape, shape_by = (planned.shape, planned.shape_by) if planned.shape else await self._decide_shape()
        candidates = for_shape(planned.candidates, self._config.all_shapes[shape])
        chosen = await self._staff.choose_explorers(self.id, shape, candidates, planned.open_seats)
        taken = {m.alias for m in chosen} | {m.family for m in chosen}
        self._left = [m for m in candidates if m.alias not in taken and m.family not in taken]
        seating = Seating(
            panel=self.id,
            collection=brief.collection,
            model=brief.model,
            reply=brief.reply,
            shape=shape,
            shape_by=shape_by,
            seats=_in_order((*planned.seats, *(self._numbering.seat("explorer", m.alias) for m in chosen))),
            skipped=planned.skipped,
        )
        asked = self._request.asked() if self._config.ledger.content == "full" else ""
        await self._try(self._staff.ledger.opened(seating, self._owner, asked, int(time.time() * 1000)))
        return seating

    async def _decide_shape(self) -> tuple[str, str]:
        """Members are at work meanwhile. A decision that is not there when they are done is not waited for."""
        asked = self._plan.open_seats > 0
        deciding = asyncio.create_task(self._staff.decide_shape(self._request, self._config, asked=asked))
        answered = asyncio.create_task(self._fan_out.until_answered())
        try:
            waited = [deciding, answered] if self._plan.seats else [deciding]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            return deciding.result() if deciding.done() else UNDECIDED
        finally:
            for task in (deciding, answered):
                task.cancel()
            await asyncio.wait([deciding, answered])

    async def _replace(self, failed: Seat) -> Seat | None:
        """Another explorer in the place of one that failed at once. Both stay on the panel, named."""
        seating = await asyncio.shield(self.seating)
        async with self._replacing:  # two that fail at the same time are replaced by two
            chosen = await self._staff.choose_explorers(self.id, seating.shape, self._left, 1)
            if not chosen:
                return None
            self._left = [m for m in self._left if m.family != chosen[0].family]
        log.info("panel %s: %s takes the seat of %s", self.id, chosen[0].alias, failed.alias)
        self._added.append(self._numbering.seat("explorer", chosen[0].alias))
        return self._added[-1]

    async def _merge(self, report: Report) -> Report:
        """Let one model write one answer; when none can, the report has every answer and says why."""
        if len(report.ok) < 2:
            only = report.ok[0].text if report.ok else None
            return replace(
                report, merged=only, note="Only one seat answered: its answer stands as it is." if only else ""
            )
        failed: list[str] = []
        request = merge_request(self._request, report.ok)
        measured = size(request.messages, request.settings)
        for alias in await self._staff.mergers(report, self._config, measured.tokens):
            left = self._pace.deadline - (time.monotonic() - self._began)
            answer = await self._ask_merger(request, measured.in_budget, alias, max(left, LEAST_TO_MERGE))
            gave_up = (*report.gave_up, report.merger) if report.merger is not None else ()
            report = replace(report, merger=answer, gave_up=gave_up)
            if answer.status == "ok":
                note = f"{' and '.join(failed)} could not merge." if failed else ""
                return replace(report, merged=answer.text, note=note)
            why = f" ({answer.error.status} {answer.error.type})" if answer.error else f" ({answer.status})"
            failed.append(f"{alias}{why}")
            if self.brief.stream and answer.text.strip():  # its words have left: another would say something else
                note = f"{alias} broke off{why}; the seats' own answers are on the record."
                return replace(report, merged=answer.text, note=note)
        who = f"{' and '.join(failed)} failed" if failed else "no model that may merge can take the answers"
        return replace(report, note=f"Not merged: {who}. These are the answers.")

    async def _ask_merger(self, request: ChatRequest, tokens: int, alias: str, seconds: float) -> Answer:
        """What is left of the panel's deadline is the merger's."""
        seat = self._numbering.seat("merger", alias)
        stage = self._stage(request, tokens, piecewise=self.brief.stream, pace=replace(self._pace, deadline=seconds))
        try:
            stage.start(seat)
            answers = await stage.until_over()
            return answers[0]
        finally:
            await stage.cancel()

    async def _keep(self, tokens: int, answer: Answer, late: bool, last: bool) -> None:
        """`tokens` is the size in a budget of what the seat was asked."""
        self._staff.note(answer, self._request)
        use = self._count(answer, tokens).in_budget
        try:
            # A member can answer before the explorers are seated; its row needs the seating.
            seating = await asyncio.shield(self.seating)
        except asyncio.CancelledError:  # a panel that is stopped before it is seated is not on the record
            await self._try(self._staff.ledger.count_use(self._owner, use))
            raise
        seats = (*seating.seats, *self._added)
        place = seats.index(answer.seat) if answer.seat in seats else len(seats)
        # A streamed reply tells of each seat at once, a whole one of all together.
        urgent = last or self.brief.stream
        kept = answer if self._keep_text else replace(answer, text="")
        keeping = self._staff.ledger.answered(seating, self._owner, kept, place, use, late=late, urgent=urgent)
        await self._try(keeping)

    def _count(self, answer: Answer, tokens: int) -> Used:
        self._used[answer.seat.call] = counted = used(
            self._catalog.get(answer.seat.alias),
            tokens,
            answer.text,
            thought=answer.thought,
            failed=answer.error.type if answer.error else "",
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            cost=answer.cost,
        )
        return counted

    async def _try(self, writing: Awaitable[None]) -> None:
        """Answers flow without the ledger; the reply says that they are not on the record."""
        try:
            async with asyncio.timeout(RECORD_SECONDS):
                await writing
        except (LedgerUnavailable, TimeoutError) as error:
            self._note = "The ledger could not be written: verdicts on this panel may not find their calls."
            log.error("panel %s is not wholly on the record: %s", self.id, str(error) or "too slow")


def _in_order(seats: tuple[Seat, ...]) -> tuple[Seat, ...]:
    """Members, guests, explorers; the seats of a blind panel by their letters, which were drawn at random."""
    return tuple(sorted(seats, key=lambda s: (len(s.mask), s.mask)))


def _told_piecewise(brief: Brief, config: Config) -> bool:
    """Whether the caller hears tokens: only then are the seats asked to stream."""
    live = (brief.stream_mode or config.collections[brief.collection].stream) == "live"
    return brief.stream and (brief.reply == "choices" or (brief.reply == "all" and live))


def pace(brief: Brief, config: Config) -> Pace:
    """The request's own limits before the collection's before the defaults."""
    timing, collection = config.timing, config.collections[brief.collection]
    deadline = brief.deadline or collection.deadline or timing.seat_timeout
    quorum = collection.quorum if brief.quorum is None else brief.quorum
    return Pace(timing.seat_timeout, min(deadline, timing.seat_timeout), timing.explorer_grace, quorum)


def check_answered(report: Report, brief: Brief, data: Mapping[str, Any]) -> None:
    """Raise PanelFailed when the report is not an answer: no seat answered, or it is partial and that was refused."""
    named = "; ".join(_outcome(a) for a in report.answers)
    if not report.answers:  # what was found out of the request's shape left no explorer, and nobody else sits
        raise NobodyCanSit(f"no model explores on {report.seating.shape}, and nobody else sits", code="nobody_can_sit")
    if not report.ok:
        status, retry_after = _status_of_failure(report)
        raise PanelFailed(
            f"no seat of bench/{brief.collection} answered: {named}", status=status, retry_after=retry_after, data=data
        )
    if brief.partial == "refuse" and report.partial:
        skipped = "".join(f"; {s.alias} skipped: {s.why}" for s in report.seating.skipped)
        words = f"the panel is partial, which was refused: {named}{skipped}"
        raise PanelFailed(words, status=502, code="partial_panel", data=data)


def _status_of_failure(report: Report) -> tuple[int, int | None]:
    """429 when every failure was a rate limit, 413 the context window, 504 time; else 502."""
    kinds = {a.error.type if a.error else a.status for a in report.answers}
    if kinds and kinds <= {"rate_limit", "cooling"}:
        waits = [a.error.retry_after for a in report.answers if a.error and a.error.retry_after]
        return 429, max(1, round(min(waits, default=60)))
    if kinds == {"context_window"}:
        return 413, None
    return (504 if kinds <= {"late", "timeout"} else 502), None


def _outcome(answer: Answer) -> str:
    if answer.error is None:
        return f"{answer.seat.name} {answer.status}"
    message = "" if answer.seat.mask else f": {answer.error.message}"
    return f"{answer.seat.name} {answer.status} ({answer.error.status} {answer.error.type}{message})"


def _log_panel(report: Report) -> None:
    seats = " ".join(f"{a.seat.alias}={a.status}/{a.seconds:.2f}s" for a in report.answers)
    log.info(
        "panel %s collection=%s partial=%s seconds=%.3f %s",
        report.seating.panel, report.seating.collection, report.partial, report.seconds, seats,
    )  # fmt: skip

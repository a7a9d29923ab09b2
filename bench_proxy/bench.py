"""What bench-proxy does, without a framework in sight: ask a panel, record a verdict, read the record."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bench_proxy.catalog import Catalog, Model
from bench_proxy.config import MODEL_PREFIX, SERVED_MODES, Config
from bench_proxy.cooling import Cooling
from bench_proxy.errors import InvalidRequest, LedgerUnavailable, NobodyCanSit, NotFound, Overloaded, PanelFailed
from bench_proxy.facts import Facts, Learned, saw
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.ids import panel_id
from bench_proxy.marks import Pick
from bench_proxy.panel.fan_out import FanOut, Pace
from bench_proxy.panel.merging import candidates, merge_request
from bench_proxy.panel.refusals import refuse
from bench_proxy.panel.seating import Numbering, Plan, for_shape, plan, stalest
from bench_proxy.panel.seats import Answer, Piece, Report, Seat, Seating
from bench_proxy.ratings import Wins
from bench_proxy.records import Record, Sums, Verdict, rated
from bench_proxy.size import size
from bench_proxy.upstream import Upstream

log = logging.getLogger("bench_proxy")

RESERVE_SECONDS = 1.0
"""How long a panel waits for the ledger to say who explores or merges, before it decides without it."""

RECORD_SECONDS = 20.0
"""How long an answer waits to be on the record before it goes out without."""

LEAST_TO_MERGE = 5.0
"""Seconds that a merger has also when the seats have used up the deadline: their answers are there."""

SURE = 0.6
"""The confidence from which a decision model's choice counts."""

UNDECIDED = ("general", "default")
"""The shape, and who said so, when nobody did."""

SHAPE_MEANINGS = {
    "general": "a question or task of no special kind",
    "design": "to design or plan something, to weigh options",
    "prose": "to write or edit text for people to read",
    "review": "to find what is wrong in code, text or a plan",
    "code": "to write, change or explain code",
    "enumeration": "to list or collect many items",
    "quick": "a short question with a short answer",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: `owner` is what the ledger knows of the key, `admin` may see and judge everybody's panels.

    `allowed` says which of the given model names this key may call.
    """

    owner: str
    admin: bool
    allowed: Callable[[Collection[str]], Awaitable[list[str]]]


async def callable_collections(caller: Caller, config: Config) -> list[str]:
    """The names of the collections that this key may call."""
    models = await caller.allowed([f"{MODEL_PREFIX}{name}" for name in config.collections])
    return [model.removeprefix(MODEL_PREFIX) for model in models]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, newest first; `next` is the cursor of the following one."""

    rows: Sequence[Mapping[str, Any]]
    next: str | None


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict that is on the record: whether this request put it there, and whose answer it is about.

    A blind panel's seat has its letter for an alias until it was judged.
    """

    recorded: bool
    alias: str


@dataclass(frozen=True, slots=True)
class Picked:
    """A pick that is on the record: whether this request put it there, whose answer was picked, and over which.

    `alias` is None where no answer is picked; `over` has the alias of each call.
    """

    recorded: bool
    alias: str | None
    over: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a decision model chose, and how sure it is, in [0, 1]."""

    option: str
    confidence: float


class Decider(Protocol):
    async def decide(self, model: str, question: str, options: Mapping[str, str]) -> Decision | None:
        """One of `options` (name → meaning) for the question, within two seconds, else None. Never raises."""
        ...


class Ledger(Protocol):
    """What the record must do. An owner of None sees everything, any other only what is its own."""

    async def reserve(self, shape: str, choose: Callable[[Mapping[str, int]], Sequence[str]]) -> list[str]:
        """Let `choose` pick among models by when each was last seated (ms), and mark the picked as seated now.

        Across all processes no two reservations see the same moment.
        """
        ...

    async def opened(self, seating: Seating, owner: str, asked: str, at_ms: int) -> None: ...

    async def answered(
        self, seating: Seating, owner: str, answer: Answer, place: int, *, late: bool, urgent: bool = True
    ) -> None:
        """`place` is the seat's on the panel. Returns once the answer is durable, which one that nobody waits for yet
        (`urgent` False) may be a little later. Raises LedgerUnavailable.
        """
        ...

    async def closed(self, report: Report) -> None: ...

    async def judge(self, verdict: Verdict, owner: str | None) -> Judged:
        """Returns once it is durable. Raises NotFound, InvalidRequest, LedgerUnavailable."""
        ...

    async def pick(self, pick: Pick, owner: str | None) -> Picked:
        """Returns once it is durable. Raises NotFound, InvalidRequest, LedgerUnavailable."""
        ...

    async def owed(self, calls: Sequence[str], owner: str | None) -> list[str]: ...

    async def record(self, collection: str | None, owner: str | None) -> list[Record]:
        """One line a model and shape, without ratings."""
        ...

    async def totals(self) -> list[tuple[str, Sums]]:
        """Over all keys and shapes: a collection's name, and the sums of one of its models in it."""
        ...

    async def wins(self, collection: str | None, owner: str | None) -> Mapping[str, Wins]:
        """How often which model was useful on a panel where which other one was not, or not preferred; by shape."""
        ...

    async def panels(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page: ...

    async def panel(self, panel: str, owner: str | None) -> Mapping[str, Any] | None: ...

    async def healthy(self) -> bool: ...


class Panel:
    """One panel from the moment it was accepted. `run` drives it; the rest is for whoever reads it."""

    def __init__(
        self,
        bench: "Bench",
        config: Config,
        brief: Brief,
        request: ChatRequest,
        owner: str,
        planned: Plan,
        numbering: Numbering,
    ) -> None:
        self.id = numbering.panel
        self.brief = brief
        self.report: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        self.seating: asyncio.Future[Seating] = asyncio.get_running_loop().create_future()
        self._bench = bench
        self._config = config
        self._owner = owner
        self._plan = planned
        self._numbering = numbering
        self._request = request
        self._note = ""
        self._began = 0.0
        self._pace = pace(brief, config)
        self._left: list[Model] = []
        self._added: list[Seat] = []
        self._replacing = asyncio.Lock()
        self._stages: asyncio.Queue[FanOut | None] = asyncio.Queue()
        self._fan_out = self._stage(request, piecewise=_told_piecewise(brief, config))

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
            await self._try(self._bench.ledger.closed(report))
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
        await self._try(self._bench.ledger.closed(report))

    def _stage(self, request: ChatRequest, *, piecewise: bool, pace: Pace | None = None) -> FanOut:
        stage = FanOut(
            self._bench.upstream,
            request,
            pace or self._pace,
            self._keep,
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
        chosen = await self._bench.choose_explorers(self.id, shape, candidates, planned.open_seats)
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
        await self._try(self._bench.ledger.opened(seating, self._owner, asked, int(time.time() * 1000)))
        return seating

    async def _decide_shape(self) -> tuple[str, str]:
        """Members are at work meanwhile. A decision that is not there when they are done is not waited for."""
        asked = self._plan.open_seats > 0
        deciding = asyncio.create_task(self._bench.decide_shape(self._request, self._config, asked=asked))
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
            chosen = await self._bench.choose_explorers(self.id, seating.shape, self._left, 1)
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
        for alias in await self._bench.mergers(report, self._config, request):
            left = self._pace.deadline - (time.monotonic() - self._began)
            answer = await self._ask_merger(request, alias, max(left, LEAST_TO_MERGE))
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

    async def _ask_merger(self, request: ChatRequest, alias: str, seconds: float) -> Answer:
        """What is left of the panel's deadline is the merger's."""
        seat = self._numbering.seat("merger", alias)
        stage = self._stage(request, piecewise=self.brief.stream, pace=replace(self._pace, deadline=seconds))
        try:
            stage.start(seat)
            answers = await stage.until_over()
            return answers[0]
        finally:
            await stage.cancel()

    async def _keep(self, answer: Answer, late: bool, last: bool) -> None:
        self._bench.note(answer, self._request)
        # A member can answer before the explorers are seated; its row needs the seating.
        seating = await asyncio.shield(self.seating)
        seats = (*seating.seats, *self._added)
        place = seats.index(answer.seat) if answer.seat in seats else len(seats)
        # A streamed reply tells of each seat at once, a whole one of all together.
        urgent = last or self.brief.stream
        await self._try(self._bench.ledger.answered(seating, self._owner, answer, place, late=late, urgent=urgent))

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


class Bench:
    """The use cases. One instance a process; `config` and `catalog` are read anew for each request."""

    def __init__(
        self,
        upstream: Upstream,
        ledger: Ledger,
        config: Callable[[], Config],
        catalog: Callable[[], Catalog],
        decider: Decider,
        rng: random.Random | None = None,
        cooling: Cooling | None = None,
        facts: Facts | None = None,
    ) -> None:
        self.upstream = upstream
        self.ledger = ledger
        self.cooling = cooling or Cooling()
        self.facts = facts or Facts()
        self._config = config
        self._catalog = catalog
        self._decider = decider
        self._rng = rng or random.Random()  # noqa: S311  ties between equal explorers, nothing secret
        self._running: set[Panel] = set()

    @property
    def config(self) -> Config:
        return self._config()

    @property
    def catalog(self) -> Catalog:
        return self._catalog()

    async def ask(self, brief: Brief, request: ChatRequest, caller: Caller, config: Config) -> Panel:
        """Accept or refuse a panel; an accepted one runs from `start` on. `config` is what the brief was read by.

        Raises InvalidRequest for what cannot be honoured, Overloaded above `limits.concurrent_panels`,
        PromptTooLarge for a member, NobodyCanSit.
        """
        _refuse_unserved(brief)
        refuse(request, brief.reply)
        if "n" in request.settings:  # one answer a seat; in mode `choices` they are the choices
            request = replace(request, settings={k: v for k, v in request.settings.items() if k != "n"})
        # Beside the guests all others, for the error that says which there are.
        allowed = await caller.allowed({*brief.guests, *self.catalog.aliases}) if brief.guests else []
        numbering = Numbering(panel_id(), self._rng, blind=brief.blind, most=config.limits.max_calls)
        planned = plan(
            numbering,
            brief,
            config,
            self.catalog,
            images=request.has_images,
            tokens=size(request.messages, request.settings).tokens,
            cooling=self.cooling.left(),
            allowed=allowed,
        )
        limit = config.limits.concurrent_panels
        if limit and len(self._running) >= limit:
            raise Overloaded(f"{limit} panels are running, as many as limits.concurrent_panels allows", retry_after=1)
        return Panel(self, config, brief, request, caller.owner, planned, numbering)

    def start(self, panel: Panel) -> asyncio.Task[None]:
        """Let an accepted panel run; it counts as running from now on, until its report or the last of its late seats.

        Called at once after `ask`: nothing comes between the two, so that no two panels take the same place.
        """
        self._running.add(panel)
        running = asyncio.create_task(panel.run(), name=f"panel {panel.id}")
        running.add_done_callback(lambda _: self._running.discard(panel))
        # Before its caller has read the end, so that one who asks panel after panel is never one too many.
        panel.report.add_done_callback(lambda report: self._reported(panel, report))
        return running

    def _reported(self, panel: Panel, report: asyncio.Future[Report]) -> None:
        if report.cancelled() or all(answer.status != "late" for answer in report.result().answers):
            self._running.discard(panel)

    async def decide_shape(self, request: ChatRequest, config: Config, *, asked: bool) -> tuple[str, str]:
        """The kind of task, by the decision model when an explorer depends on it (`asked`), and who said so."""
        if asked and config.decision_model:
            options = {shape: SHAPE_MEANINGS.get(shape, shape) for shape in config.all_shapes if shape != "vision"}
            decided = await self._decider.decide(config.decision_model, request.asked(), options)
            if decided is not None and decided.confidence >= SURE:
                return decided.option, f"decision model {config.decision_model} {decided.confidence:.2f}"
        return UNDECIDED

    async def choose_explorers(self, panel: str, shape: str, candidates: Sequence[Model], count: int) -> list[Model]:
        """The stalest candidates, reserved in the ledger; drawn at random when it does not answer in time."""
        cooling = self.cooling.left()  # anew: a panel chooses once more when an explorer has failed
        models = {m.alias: m for m in candidates if m.alias not in cooling}
        if not count or not models:
            return []

        waiting = True

        def choose(last_seated_ms: Mapping[str, int]) -> list[str]:
            return [m.alias for m in stalest(models.values(), last_seated_ms, count, self._rng)]

        def reserve(last_seated_ms: Mapping[str, int]) -> list[str]:
            # A ledger that comes too late must not mark models as seated that were not asked.
            return choose(last_seated_ms) if waiting else []

        try:
            async with asyncio.timeout(RESERVE_SECONDS):
                aliases = await self.ledger.reserve(shape, reserve)
        except (TimeoutError, LedgerUnavailable) as error:
            waiting = False
            log.warning("explorers of panel %s are drawn without the ledger: %s", panel, str(error) or "too slow")
            aliases = choose({})
        return [models[alias] for alias in aliases]

    async def mergers(self, report: Report, config: Config, request: ChatRequest) -> list[str]:
        """Who is asked to merge, in order; by the configuration alone when the ledger cannot be read."""
        collection = config.collections[report.seating.collection]
        try:
            async with asyncio.timeout(RESERVE_SECONDS):
                lines = await self.ledger.record(None, None)
        except (TimeoutError, LedgerUnavailable):
            lines = []
        records = {r.sums.alias: r for r in lines if r.sums.shape == report.seating.shape}
        tokens = size(request.messages, request.settings).tokens
        return candidates(collection, records, self.catalog, report.ok, tokens=tokens)

    def models(self) -> list[Model]:
        """What LiteLLM serves, and the members that it serves only by a wildcard."""
        catalog = self.catalog
        members = {alias for collection in self.config.collections.values() for alias in collection.members}
        return [*catalog, *(catalog.get(alias) for alias in sorted(members - catalog.aliases))]

    def note(self, answer: Answer, request: ChatRequest) -> None:
        """What an answer tells of its model: whether it works, and what can be learned of it. Waits for nothing."""
        alias, error = answer.seat.alias, answer.error
        if error is not None:
            self.cooling.failed(alias, error.type, seconds=answer.seconds, retry_after=error.retry_after)
        elif answer.status != "late":
            self.cooling.worked(alias)
        news = Learned(
            context_window=error.context_window if error is not None else None,
            vision=True if _saw(answer, request) else None,
        )
        if news != Learned():
            self.learn(alias, news)

    def learn(self, alias: str, news: Learned) -> None:
        """What an answer showed of a model as it is served now. Waits for nothing."""
        self.facts.learn(alias, self.catalog.get(alias).served, news)

    async def judge(self, verdict: Verdict, caller: Caller) -> Judged:
        """Put a verdict on the record, if it is not there already."""
        return await self.ledger.judge(verdict, _scope(caller))

    async def pick(self, pick: Pick, caller: Caller) -> Picked:
        """Put on the record which answer of a panel was the useful one, if it is not there already."""
        return await self.ledger.pick(pick, _scope(caller))

    async def owed(self, calls: Sequence[str], caller: Caller) -> list[str]:
        return await self.ledger.owed(calls, _scope(caller))

    async def record(self, collection: str | None, caller: Caller) -> list[Record]:
        lines = await self.ledger.record(collection, _scope(caller))
        wins = await self.ledger.wins(collection, _scope(caller))
        return await asyncio.to_thread(rated, lines, wins) if wins else lines

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
    if not report.answers:  # what was found out of the request's shape left no explorer, and nobody else sits
        raise NobodyCanSit(f"no model explores on {report.seating.shape}, and nobody else sits", code="nobody_can_sit")
    if not report.ok:
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


def _refuse_unserved(brief: Brief) -> None:
    """Modes and options of the contract that this version does not answer are refused, never dropped."""
    if brief.reply not in SERVED_MODES:
        raise InvalidRequest(
            f'reply mode "{brief.reply}" is not answered by this version; '
            f"ask bench/{brief.collection}:all, or one model by its own name",
            param="bench.reply",
        )


def _saw(answer: Answer, request: ChatRequest) -> bool:
    if answer.status != "ok" or answer.seat.kind == "merger" or not request.has_images:
        return False
    measured = size(request.messages, request.settings)
    return saw(answer.prompt_tokens, measured.text, measured.images)


def _scope(caller: Caller) -> str | None:
    return None if caller.admin else caller.owner


def _log_panel(report: Report) -> None:
    seats = " ".join(f"{a.seat.alias}={a.status}/{a.seconds:.2f}s" for a in report.answers)
    log.info(
        "panel %s collection=%s partial=%s seconds=%.3f %s",
        report.seating.panel, report.seating.collection, report.partial, report.seconds, seats,
    )  # fmt: skip

"""What bench-proxy does, without a framework in sight: ask a panel, record a verdict, read the record."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from bench_proxy.catalog import Catalog, Model
from bench_proxy.config import MODEL_PREFIX, Config
from bench_proxy.cooling import Cooling
from bench_proxy.errors import InvalidRequest, LedgerUnavailable, NotFound, Overloaded
from bench_proxy.facts import Facts, Learned, saw
from bench_proxy.formats.relays import Native
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.ids import panel_id
from bench_proxy.keys import Use
from bench_proxy.marks import Pick
from bench_proxy.panel.merging import candidates
from bench_proxy.panel.panel import UNDECIDED, Keeping, Panel
from bench_proxy.panel.refusals import refuse
from bench_proxy.panel.seating import Numbering, plan, stalest
from bench_proxy.panel.seats import Answer, Report
from bench_proxy.ratings import Wins
from bench_proxy.records import Record, Sums, Verdict, rated
from bench_proxy.route.keeping import Pins, TurnKeeping
from bench_proxy.route.routing import Routing
from bench_proxy.route.shadows import ShadowKeeping
from bench_proxy.route.turn import Turn
from bench_proxy.size import size
from bench_proxy.upstream import NativeUpstream, Upstream

log = logging.getLogger("bench_proxy")

RESERVE_SECONDS = 1.0
"""How long a panel waits for the ledger to say who explores or merges, before it decides without it."""

NO_TURN_HERE = (
    "route mode is answered by the proxy's own routes, as /v1/chat/completions; through LiteLLM's functions ask a"
    " panel, with the suffix :all, :merged or :choices"
)

SURE = 0.6
"""The confidence from which a decision model's choice counts."""

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

    `allowed` says which of the given model names this key may call. `key` is what the host knows of the key, for its
    own rules; nobody else looks into it. `checked` says that the host has found the model of this request among the
    allowed ones. `hold` sets aside the most that a request may use of a budget, for at most so many seconds, until it
    is left; it raises BudgetSpent and Overloaded. None where there is no budget of ours.
    """

    owner: str
    admin: bool
    allowed: Callable[[Collection[str]], Awaitable[list[str]]]
    key: object = field(default=None, repr=False)
    checked: bool = True
    hold: Callable[[Use, float], AbstractAsyncContextManager[None]] | None = None


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


class Ledger(Keeping, TurnKeeping, ShadowKeeping, Protocol):
    """What the record must do. An owner of None sees everything, any other only what is its own."""

    async def reserve(self, shape: str, choose: Callable[[Mapping[str, int]], Sequence[str]]) -> list[str]:
        """Let `choose` pick among models by when each was last seated (ms), and mark the picked as seated now.

        Across all processes no two reservations see the same moment.
        """
        ...

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


class Bench:
    """The use cases; implements `panel.panel.Staff`. One instance an event loop; `config` and `catalog` are read anew
    for each request.
    """

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
        pins: Pins | None = None,
        native: NativeUpstream | None = None,
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
        self.routing = Routing(upstream, ledger, pins, catalog, self.cooling, self.facts, native)

    @property
    def config(self) -> Config:
        return self._config()

    @property
    def catalog(self) -> Catalog:
        return self._catalog()

    async def ask(
        self, brief: Brief, request: ChatRequest, caller: Caller, config: Config, *, keep_text: bool = True
    ) -> Panel:
        """Accept or refuse a panel; an accepted one runs from `start` on. `config` is what the brief was read by,
        `keep_text` says whether the record may have its answers' texts.

        Raises InvalidRequest for what cannot be honoured, Overloaded above `limits.concurrent_panels`,
        PromptTooLarge for a member, NobodyCanSit.
        """
        if brief.reply == "route":
            raise InvalidRequest(NO_TURN_HERE, param="model")
        refuse(request, brief.reply)
        if "n" in request.settings:  # one answer a seat; in mode `choices` they are the choices
            request = replace(request, settings={k: v for k, v in request.settings.items() if k != "n"})
        # Beside the guests all others, for the error that says which there are.
        allowed = await caller.allowed({*brief.guests, *self.catalog.aliases}) if brief.guests else []
        numbering = Numbering(panel_id(), self._rng, blind=brief.blind, most=config.limits.max_calls)
        measured = size(request.messages, request.settings)
        planned = plan(
            numbering,
            brief,
            config,
            self.catalog,
            images=request.has_images,
            tokens=measured.tokens,
            cooling=self.cooling.left(),
            allowed=allowed,
        )
        limit = config.limits.concurrent_panels
        if limit and len(self._running) >= limit:
            raise Overloaded(f"{limit} panels are running, as many as limits.concurrent_panels allows", retry_after=1)
        return Panel(
            self, config, brief, request, caller.owner, planned, numbering, measured.in_budget, keep_text=keep_text
        )

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

    async def mergers(self, report: Report, config: Config, tokens: int) -> list[str]:
        """Who is asked to merge, in order; by the configuration alone when the ledger cannot be read."""
        collection = config.collections[report.seating.collection]
        try:
            async with asyncio.timeout(RESERVE_SECONDS):
                lines = await self.ledger.record(None, None)
        except (TimeoutError, LedgerUnavailable):
            lines = []
        records = {r.sums.alias: r for r in lines if r.sums.shape == report.seating.shape}
        return candidates(collection, records, self.catalog, report.ok, tokens=tokens)

    async def take_turn(
        self,
        brief: Brief,
        request: ChatRequest,
        caller: Caller,
        config: Config,
        native: Native | None = None,
        *,
        keep_text: bool = True,
    ) -> Turn:
        """Accept or refuse a turn of a conversation; whoever reads it lets it run. Raises as `Routing.accept` does."""
        return await self.routing.accept(brief, request, caller.owner, config, native, keep_text=keep_text)

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

    async def conversations(self, limit: int, cursor: str | None, collection: str | None, caller: Caller) -> Page:
        page: Page = await self.ledger.conversations(limit, cursor, collection, _scope(caller))
        return page

    async def conversation(self, conversation: str, caller: Caller) -> Mapping[str, Any]:
        found = await self.ledger.conversation(conversation, _scope(caller))
        if found is None:
            raise NotFound(f"there is no conversation {conversation[:64]!r}", param="conversation")
        return found


def _saw(answer: Answer, request: ChatRequest) -> bool:
    if answer.status != "ok" or answer.seat.kind == "merger" or not request.has_images:
        return False
    measured = size(request.messages, request.settings)
    return saw(answer.prompt_tokens, measured.text, measured.images)


def _scope(caller: Caller) -> str | None:
    return None if caller.admin else caller.owner

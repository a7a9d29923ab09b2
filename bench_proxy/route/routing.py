"""Who takes the turns of a conversation: the pinned member, else the best by the record, or one that explores."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from bench_proxy.catalog import Catalog, Model
from bench_proxy.config import Config
from bench_proxy.cooling import Cooling
from bench_proxy.errors import LedgerUnavailable, UpstreamError
from bench_proxy.facts import Facts, Learned, saw
from bench_proxy.formats.relays import Native
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.ids import conversation_id
from bench_proxy.records import Record
from bench_proxy.route.fitting import prepare, prepare_for_any
from bench_proxy.route.keeping import NotAsked, Pin, Pins, TurnKeeping, TurnReport
from bench_proxy.route.question import Question
from bench_proxy.route.ranking import Needs, nobody, ranked, stalest, takers
from bench_proxy.route.refusals import refuse_panel_options
from bench_proxy.route.shadows import Cast, ShadowKeeping, Shadows
from bench_proxy.route.stickiness import share_of, sticky
from bench_proxy.route.turn import Turn
from bench_proxy.size import Size, size
from bench_proxy.upstream import NativeUpstream, Reply, Upstream

log = logging.getLogger("bench_proxy")

LOOK_UP_SECONDS = 1.0
"""How long a turn waits for the ledger to say who is pinned, who is best or who explores, before it goes on without."""

SPEAKS_OTHERWISE = "it is of another vendor, and what is asked is one vendor's alone"


class Standing(TurnKeeping, ShadowKeeping, Protocol):
    """The ledger, as far as turns need it."""

    async def reserve(self, shape: str, choose: Callable[[Mapping[str, int]], Sequence[str]]) -> list[str]: ...

    async def record(self, collection: str | None, owner: str | None) -> list[Record]: ...


class Routing:
    """Implements `turn.Staff`. `pins` are None where nothing but the ledger remembers, `native` where no member is
    asked in the caller's own format.
    """

    def __init__(
        self,
        upstream: Upstream,
        ledger: Standing,
        pins: Pins | None,
        catalog: Callable[[], Catalog],
        cooling: Cooling,
        facts: Facts,
        native: NativeUpstream | None = None,
    ) -> None:
        self.upstream = upstream
        self.native = native
        self._ledger = ledger
        self._pins = pins
        self._catalog = catalog
        self._cooling = cooling
        self._facts = facts
        self._recording: set[asyncio.Task[TurnReport]] = set()
        self._shadows = Shadows(upstream, ledger, self.heard, new_call_id)

    async def accept(
        self,
        brief: Brief,
        request: ChatRequest,
        owner: str,
        config: Config,
        native: Native | None = None,
        *,
        keep_text: bool = True,
    ) -> Turn:
        """Accept or refuse a turn. `native` is the request as it was sent, for members that speak the same format;
        `keep_text` says whether the record may have the answer's text, and that of a shadow.

        Raises InvalidRequest for what cannot be honoured and for what no member can take, ContextOverflow where only
        their windows are too small.
        """
        refuse_panel_options(brief)
        prepared = prepare(request) if native is None else prepare_for_any(request)
        measured = size(prepared.request.messages, prepared.request.settings)
        needs = _needs(prepared.request, measured)
        collection = config.collections[brief.collection]
        members = [self._catalog().get(alias) for alias in dict.fromkeys(collection.members)]
        others: list[Model] = []
        if prepared.refused is not None:
            others = [model for model in members if not self._speaks(model.alias, native)]
            if len(others) == len(members):
                raise prepared.refused
        able, skipped = takers(
            [model for model in members if model not in others],
            needs,
            try_unknown=config.route.unknown_tools == "try",
        )
        skipped += [NotAsked(model.alias, SPEAKS_OTHERWISE) for model in others]
        if not able:
            raise nobody(brief.collection, members, skipped, needs)
        shape = brief.shape or collection.shape or ("vision" if needs.images else "general")
        key = sticky(brief.collection, owner, brief, prepared.request)

        async def in_order() -> list[Model]:
            return await self._ranked(able, shape, config)

        pin = await self._pinned(key.key, config)
        first = [] if pin is None else self._stays(pin, able)
        if pin is None:
            pin = Pin(conversation_id(), "")
            first = await self._first(pin.conversation, await in_order(), shape, config)
            # What one agent asks at the same time is one conversation: it may have begun meanwhile.
            if self._pins is not None and (begun := await self._pins.get(key.key)) is not None:
                pin, first = begun, self._stays(begun, able)
            else:
                await self.pin([key.key], replace(pin, alias=first[0].alias), config.timing.sticky_idle)
        # The id that a reply tells is one that the client may send with its next turn.
        by_id = key.key_by_id(pin.conversation)
        question = Question(brief, prepared, owner, key, by_id, pin, shape, measured, able, skipped, native, keep_text)
        return Turn(self, config, question, first, in_order, new_call_id)

    def _stays(self, pin: Pin, able: Sequence[Model]) -> list[Model]:
        """The pinned member, unless it cools or cannot take the turn."""
        left = self._cooling.left()
        return [model for model in able if model.alias == pin.alias and model.alias not in left]

    def _speaks(self, alias: str, native: Native | None) -> bool:
        return (
            native is not None and self.native is not None and bool(self.native.maker(alias, native.relaying.dialect))
        )

    async def pin(self, keys: Collection[str], pin: Pin, seconds: float) -> None:
        if self._pins is not None:
            await self._pins.put(keys, pin, seconds)

    def heard(
        self, alias: str, request: ChatRequest, outcome: Reply | UpstreamError, calls: int, seconds: float
    ) -> None:
        if isinstance(outcome, UpstreamError):
            self._cooling.failed(alias, outcome.kind, seconds=seconds, retry_after=outcome.retry_after)
            news = Learned(context_window=outcome.context_window)
        else:
            self._cooling.worked(alias)
            news = Learned(tools=True if calls else None, vision=True if _saw(outcome.prompt_tokens, request) else None)
        if news != Learned():
            self._facts.learn(alias, self._catalog().get(alias).served, news)

    def shadow(self, question: Question, answered: str, turn: int, config: Config) -> None:
        if question.prepared.refused is not None or not config.route.shadow:
            return
        left = self._cooling.left()
        others = [model for model in question.able if model.alias != answered and model.alias not in left]
        brief, conversation = question.brief, question.pin.conversation
        seconds = config.timing.turn
        of = Cast(
            conversation,
            turn,
            brief.collection,
            question.shape,
            question.prepared,
            question.owner,
            seconds,
            question.keep_text,
        )
        self._shadows.cast(of, others, config.route.shadow)

    def keep(self, report: TurnReport, owner: str) -> Awaitable[TurnReport]:
        task = asyncio.create_task(self._ledger.took(report, owner), name=f"turn of {report.conversation}")
        self._recording.add(task)
        task.add_done_callback(self._kept)
        kept = asyncio.shield(task)
        # Whoever does not wait for it is told by the log.
        kept.add_done_callback(lambda done: done.cancelled() or done.exception())
        return kept

    async def finish(self) -> None:
        """Wait for what is still to be put on the record, and stop what nobody waits for."""
        await self._shadows.close()
        while self._recording:
            await asyncio.wait(self._recording)

    def _kept(self, task: asyncio.Task[TurnReport]) -> None:
        self._recording.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a %s is not on the record: %s", task.get_name(), error)

    async def _pinned(self, key: str, config: Config) -> Pin | None:
        """By what this or another process remembers, else by the record, which outlives both."""
        if self._pins is not None and (pin := await self._pins.get(key)) is not None:
            return pin
        since_ms = int((time.time() - config.timing.sticky_idle) * 1000)
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                return await self._ledger.pinned(key, since_ms)
        except (TimeoutError, LedgerUnavailable):
            return None

    async def _ranked(self, models: Sequence[Model], shape: str, config: Config) -> list[Model]:
        """Best first; where the ledger cannot be read, by what the configuration says alone."""
        if len(models) == 1:
            return list(models)
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                lines = await self._ledger.record(None, None)
        except (TimeoutError, LedgerUnavailable):
            lines = []
        return ranked(
            models,
            lines,
            shape=shape,
            cooling=self._cooling.left(),
            paid_for={alias for alias, facts in config.models.items() if facts.paid_for},
            now_ms=int(time.time() * 1000),
        )

    async def _first(self, conversation: str, order: list[Model], shape: str, config: Config) -> list[Model]:
        """The order in which a new conversation asks: a share of them begins with the member whose record is oldest.

        That one is marked as asked now, across all processes, so that conversations which begin together spread out.
        """
        if len(order) == 1 or share_of(conversation) >= config.route.explore_share:
            return order
        cooling, waiting = self._cooling.left(), True

        def choose(last_seated_ms: Mapping[str, int]) -> list[str]:
            # A ledger that comes too late must not mark a model that was not asked.
            alias = stalest(order, last_seated_ms, cooling) if waiting else ""
            return [alias] if alias else []

        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                chosen = await self._ledger.reserve(shape, choose)
        except (TimeoutError, LedgerUnavailable) as error:
            waiting = False
            log.warning("conversation %s explores nobody: %s", conversation, str(error) or "the ledger is too slow")
            return order
        return sorted(order, key=lambda model: model.alias not in chosen)


def new_call_id() -> str:
    """For a tool call to which its model gave no id: letters, digits and a line, which nearly every vendor takes."""
    return f"call_{secrets.token_hex(12)}"


def _needs(request: ChatRequest, measured: Size) -> Needs:
    return Needs(tools=bool(request.settings.get("tools")), images=measured.images > 0, tokens=measured.tokens)


def _saw(prompt_tokens: int | None, request: ChatRequest) -> bool:
    if not request.has_images:
        return False
    measured = size(request.messages, request.settings)
    return saw(prompt_tokens, measured.text, measured.images)

"""Hand-written doubles of what stands around `Bench`: models that say what a script says, a ledger in memory.

models = Models(gpt=["Hel", "lo"], claude=[fails(429, "rate_limit")], qwen=[gate, "at last"])
table = Table(models, members=["gpt", "claude"], others=["qwen"], explorers=1)
panel, report = await table.ask()
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from bench_proxy.bench import Bench, Caller, Decision, Judged, Page, Picked
from bench_proxy.catalog import Catalog, HostFacts
from bench_proxy.config import Config, parse
from bench_proxy.errors import UpstreamError
from bench_proxy.formats.relays import Dialect, Relayed
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.formats.splicing import read
from bench_proxy.keys import Use
from bench_proxy.marks import Pick
from bench_proxy.panel.panel import Panel
from bench_proxy.panel.seats import Answer, Piece, Report, Seating
from bench_proxy.ratings import Wins
from bench_proxy.records import Record, Sums, Verdict
from bench_proxy.route.keeping import Pin, Pins, TurnReport
from bench_proxy.route.shadows import Shadow
from bench_proxy.upstream import Call, CallPiece, Event, NativeCall, NativeUpstream, Reply, Text, Thought

Step = str | float | asyncio.Event | Exception | Thought | CallPiece | Reply
"""Of a script: text that is said, seconds or an event that is waited for, how it fails, what it thinks and calls, how
it ends.
"""

NativeStep = bytes | float | asyncio.Event | Exception

WITHIN = 20
"""Seconds after which a test has failed; none needs them."""


async def until(there: Callable[[], object]) -> None:
    """Wait for what the doubles tell nobody."""
    async with asyncio.timeout(WITHIN):
        while not there():  # noqa: ASYNC110
            await asyncio.sleep(0)


def fails(status: int = 500, kind: str = "server_error", message: str = "down", **more: Any) -> UpstreamError:
    return UpstreamError(kind, status, message, **more)


class Models:
    """Each plays its script at every call; one without says "I am <alias>."

    `open` counts the calls under way and the streams that were not closed, `calls` has every call.
    """

    def __init__(self, **scripts: Sequence[Step]) -> None:
        self.scripts: dict[str, Sequence[Step]] = dict(scripts)
        self.calls: list[Call] = []
        self.open = 0

    def asked(self, alias: str) -> list[Call]:
        return [call for call in self.calls if call.alias == alias]

    async def complete(self, call: Call) -> Reply:
        async with self.stream(call) as events:
            text, thoughts = "", ""
            calls: list[CallPiece] = []
            async for event in events:
                match event:
                    case Reply():
                        return replace(event, text=text, thoughts=thoughts, calls=tuple(calls))
                    case CallPiece():
                        calls.append(event)
                    case Thought():
                        thoughts += event.text
                    case Text():
                        text += event.text
        raise fails(502, "bad_response", "the stream ended without a terminal event")

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[Event]]:
        self.calls.append(call)
        self.open += 1
        events = self._play(call.alias)
        try:
            yield events
        finally:
            await events.aclose()
            self.open -= 1

    async def _play(self, alias: str) -> Any:
        for step in self.scripts.get(alias, [f"I am {alias}."]):
            match step:
                case str():
                    yield Text(step)
                case Reply():
                    yield step
                    return
                case Exception():
                    raise step
                case Thought() | CallPiece():
                    yield step
                case asyncio.Event():
                    await step.wait()
                case _:
                    await asyncio.sleep(step)
        yield Reply("", "stop", prompt_tokens=10, completion_tokens=5, cost=0.001)


class Natives:
    """Models that speak the caller's format. Each plays its script at every call: what its server sends (an event as
    JSON, or the whole body), seconds or an event that is waited for, how it fails.

    natives = Natives({"claude": "anthropic"}, claude=[message_start, fails(529, "overloaded")])
    """

    def __init__(
        self, makers: Mapping[str, str], **scripts: Sequence[bytes | float | asyncio.Event | Exception]
    ) -> None:
        self.makers = dict(makers)
        self.scripts = dict(scripts)
        self.calls: list[NativeCall] = []
        self.open = 0
        self.closed = asyncio.Event()

    def maker(self, alias: str, dialect: Dialect) -> str:
        return self.makers.get(alias, "")

    async def complete_native(self, call: NativeCall) -> tuple[bytes, Reply]:
        async with self._playing(call) as bodies:
            async for body in bodies:
                call.hearing.whole(body.body)
                return body.data, _heard(call)
        raise fails(502, "bad_response", "no body came")

    @asynccontextmanager
    async def stream_native(self, call: NativeCall) -> AsyncIterator[AsyncIterator[Sequence[Relayed] | Reply]]:
        async with self._playing(call) as events:
            yield _events(call, events)

    def reported(self, call: NativeCall) -> Reply:
        return _heard(call)

    @asynccontextmanager
    async def _playing(self, call: NativeCall) -> AsyncIterator[AsyncIterator[Relayed]]:
        self.calls.append(call)
        self.open += 1
        events = self._play(call.alias)
        try:
            first = self.scripts[call.alias][:1]
            if first and isinstance(first[0], UpstreamError):
                raise first[0]
            yield events
        finally:
            await events.aclose()
            self.open -= 1
            self.closed.set()

    async def _play(self, alias: str) -> Any:
        for step in self.scripts[alias]:
            match step:
                case bytes():
                    yield Relayed(step, read(step))
                case Exception():
                    raise step
                case asyncio.Event():
                    await step.wait()
                case _:
                    await asyncio.sleep(step)


async def _events(call: NativeCall, events: AsyncIterator[Relayed]) -> AsyncIterator[Sequence[Relayed] | Reply]:
    async for event in events:
        yield call.hearing.heard(event)
    if call.hearing.ended:
        yield _heard(call)


def _heard(call: NativeCall) -> Reply:
    said = call.hearing.said
    prompt, completion = said.usage.get("input_tokens"), said.usage.get("output_tokens")
    return Reply(said.text, said.finish_reason, prompt, completion, None if completion is None else completion / 1000)


class Remembered:
    """A ledger in memory: the answers by call, and what they used; who was seated when. `lines` is what its record
    says, `off_record` what was used by seats of no panel.
    """

    def __init__(self, lines: Sequence[Record] = ()) -> None:
        self.lines = list(lines)
        self.answers: dict[str, Answer] = {}
        self.late: dict[str, bool] = {}
        self.places: dict[str, int] = {}
        self.uses: dict[str, Use] = {}
        self.off_record: list[Use] = []
        self.reports: list[Report] = []
        self.turns: list[TurnReport] = []
        self.shadows: list[Shadow] = []
        self.seated: dict[str, int] = {}
        self.reserving: asyncio.Event | None = None

    async def reserve(self, shape: str, choose: Callable[[Mapping[str, int]], Sequence[str]]) -> list[str]:
        chosen = list(choose(self.seated))
        self.seated.update(dict.fromkeys(chosen, len(self.seated) + 1))
        if self.reserving is not None:
            await self.reserving.wait()
        return chosen

    async def opened(self, seating: Seating, owner: str, asked: str, at_ms: int) -> None: ...

    async def answered(
        self, seating: Seating, owner: str, answer: Answer, place: int, use: Use, *, late: bool, urgent: bool = True
    ) -> None:
        self.uses[answer.seat.call] = use
        self.answers[answer.seat.call] = answer
        self.late[answer.seat.call] = late
        self.places[answer.seat.call] = place

    async def count_use(self, owner: str, use: Use) -> None:
        self.off_record.append(use)

    async def closed(self, report: Report) -> None:
        self.reports.append(report)

    async def judge(self, verdict: Verdict, owner: str | None) -> Judged:
        raise NotImplementedError

    async def pick(self, pick: Pick, owner: str | None) -> Picked:
        raise NotImplementedError

    async def owed(self, calls: Sequence[str], owner: str | None) -> list[str]:
        return list(calls)

    async def record(self, collection: str | None, owner: str | None) -> list[Record]:
        return self.lines

    async def totals(self) -> list[tuple[str, Sums]]:
        return []

    async def wins(self, collection: str | None, owner: str | None) -> Mapping[str, Wins]:
        return {}

    async def panels(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page:
        return Page([], None)

    async def panel(self, panel: str, owner: str | None) -> None:
        return None

    async def shadowed(self, shadow: Shadow, owner: str) -> None:
        self.shadows.append(shadow)

    async def took(self, report: TurnReport, owner: str) -> TurnReport:
        self.turns.append(report)
        return report

    async def pinned(self, sticky: str, since_ms: int) -> Pin | None:
        recent = [t for t in self.turns if t.sticky == sticky and t.at_ms + 1000 * t.seconds >= since_ms]
        if not recent:
            return None
        of_conversation = [t for t in self.turns if t.conversation == recent[-1].conversation]
        alias_of = {t.number: t.alias for t in reversed(of_conversation) if t.number}
        calls = tuple(alias_of.get(n, "") for n in range(1, max(alias_of, default=0) + 1))
        alias = next((t.alias for t in reversed(of_conversation) if t.alias), "")
        return Pin(recent[-1].conversation, alias, calls, len(of_conversation))

    async def conversations(self, limit: int, cursor: str | None, collection: str | None, owner: str | None) -> Page:
        return Page([], None)

    async def conversation(self, conversation: str, owner: str | None) -> None:
        return None

    async def healthy(self) -> bool:
        return True


class Undecided:
    async def decide(self, model: str, question: str, options: Mapping[str, str]) -> Decision | None:
        return None


class Table:
    """A `Bench` with one collection, `core`, its members, and others that may explore."""

    def __init__(
        self,
        models: Models,
        *,
        members: Sequence[str],
        others: Sequence[str] = (),
        ledger: Remembered | None = None,
        timing: Mapping[str, float] | None = None,
        limits: Mapping[str, float] | None = None,
        route: Mapping[str, Any] | None = None,
        facts: Mapping[str, Mapping[str, Any]] | None = None,
        pins: Pins | None = None,
        native: NativeUpstream | None = None,
        **collection: Any,
    ) -> None:
        block = {
            "collections": {"core": {"members": list(members), "explorers": 0, "shape": "general", **collection}},
            "models": {name: {"family": name, **(facts or {}).get(name, {})} for name in (*members, *others)},
            "route": dict(route or {}),
            "timing": dict(timing or {}),
            "limits": dict(limits or {}),
        }
        self.models = models
        self.ledger = ledger or Remembered()
        self.config: Config = parse(block, "the test")
        self.catalog = Catalog([HostFacts(name, underlying=name) for name in (*members, *others)], self.config.models)
        self.bench = Bench(
            self.models,
            self.ledger,
            lambda: self.config,
            lambda: self.catalog,
            Undecided(),
            rng=random.Random(20261129),  # noqa: S311  the same ties each time
            pins=pins,
            native=native,
        )

    async def open(self, content: Any = "Who are you?", **brief: Any) -> tuple[Panel, asyncio.Task[None]]:
        """A panel that runs; the caller awaits both."""
        asked = Brief(**{"model": "bench/core", "collection": "core", "reply": "all", **brief})
        request = ChatRequest([{"role": "user", "content": content}], {})
        panel = await self.bench.ask(asked, request, Caller("me", admin=True, allowed=_all), self.config)
        return panel, self.bench.start(panel)

    async def ask(self, content: Any = "Who are you?", **brief: Any) -> tuple[Panel, Report]:
        """A panel from its first event to its last late seat, and its report."""
        panel, _, report = await self.listen(content, **brief)
        return panel, report

    async def listen(self, content: Any = "Who are you?", **brief: Any) -> tuple[Panel, list[Piece | Answer], Report]:
        """The same, with all that was heard meanwhile."""
        panel, running = await self.open(content, **brief)
        async with asyncio.timeout(WITHIN):
            heard = [event async for event in panel.events()]
            report = await panel.report
            await running
        return panel, heard, report


async def _all(names: Any) -> list[str]:
    return list(names)

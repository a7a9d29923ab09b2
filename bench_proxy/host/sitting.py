"""A panel that was asked for through LiteLLM: run, and told in our own words, whole or piece by piece."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from bench_proxy.config import Config
from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Alternative, Usage
from bench_proxy.panel import voices
from bench_proxy.panel.panel import Panel, check_answered
from bench_proxy.panel.seats import Answer, Piece, Report
from bench_proxy.panel.voices import Delta

log = logging.getLogger("bench_proxy")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Said:
    """How a panel ended: its answers, the tokens of all seats together, and its `bench` object."""

    alternatives: Sequence[Alternative]
    usage: Usage
    data: Mapping[str, Any]


class Sitting:
    """One panel for one caller. It goes on when the caller has left, unless its collection says otherwise."""

    def __init__(self, panel: Panel, config: Config, running: asyncio.Task[None], verdict_url: str) -> None:
        self.panel = panel
        self._collection = config.collections[panel.brief.collection]
        self._running = running
        self._verdict_url = verdict_url

    async def whole(self) -> Said:
        """Raises PanelFailed when there is no answer."""
        try:
            return self._said(await self._told(self.panel.report))
        except asyncio.CancelledError:
            self._hung_up()
            raise

    async def pieces(self) -> AsyncGenerator[Delta | Said, None]:
        """The text as it comes, and how the panel ended. Raises PanelFailed when there is no answer.

        Nothing is told before a seat has spoken: until then a failure can still become another model's answer.
        """
        over = False
        try:
            voice = voices.voice(self.panel.brief, self._collection.stream, self._verdict_url)
            waiting = voice.opening(await self._told(self.panel.seating))
            spoken = False
            async with aclosing(self.panel.events()) as events:
                async for event in events:
                    waiting += voice.heard(event)
                    spoken = spoken or self._counts(event)
                    while spoken and waiting:
                        yield waiting.pop(0)
            report = await self._told(self.panel.report)
            over = True
            said = self._said(report)
            for delta in [*waiting, *voice.closing(report)]:
                yield delta
            yield said
        finally:
            if not over:
                self._hung_up()

    def _counts(self, event: Piece | Answer) -> bool:
        """Whether the panel will not fail any more; one that must not be partial can until its end."""
        return self.panel.brief.partial != "refuse" and (isinstance(event, Piece) or event.status == "ok")

    async def _told(self, future: asyncio.Future[T]) -> T:
        """What the panel has to tell, or why it never will."""
        either: list[asyncio.Future[Any]] = [future, self._running]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if future.done() and not future.cancelled():
            return future.result()
        if not self._running.cancelled():
            self._running.result()
        raise BenchError("the panel was stopped: bench-proxy is closing")

    def _said(self, report: Report) -> Said:
        data = report.as_json(self._verdict_url)
        check_answered(report, self.panel.brief, data)
        alternatives = voices.alternatives(report, self._verdict_url)
        return Said(alternatives, Usage(report.prompt_tokens, report.completion_tokens), data)

    def _hung_up(self) -> None:
        cancels = self._collection.on_disconnect == "cancel"
        if not self._running.done():
            log.info("panel %s: the caller left; %s", self.panel.id, "stopping it" if cancels else "it goes on")
            if cancels:
                self._running.cancel()

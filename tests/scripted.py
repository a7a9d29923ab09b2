"""An `Upstream` that does what a test wrote down, and nothing else, one step at a time; its answers are whole.

Models that talk, piece by piece and to anyone who asks, are `Models` in `tests/doubles.py`.

    async with Scripted() as upstream:
        answer = upstream.expect("gpt", says("Hello."), held=True)
        …
        await answer.started()
        answer.release()

Leaving the block fails when a model was asked that nobody expected, or was expected and not asked.
"""

import asyncio
from collections import defaultdict, deque
from types import TracebackType
from typing import Any, Self

from bench_proxy.upstream import Call, Reply


def says(text: str, **more: Any) -> Reply:
    return Reply(text, **{"finish_reason": "stop", **more})


class Step:
    """One expected call: how it ends, and how far it has come."""

    def __init__(self, outcome: Reply | Exception, *, held: bool) -> None:
        self.outcome = outcome
        self.call: Call | None = None
        self.cancelled = False
        self._started = asyncio.Event()
        self._go_on = asyncio.Event()
        if not held:
            self._go_on.set()

    async def started(self) -> Call:
        """Wait until the model was asked."""
        await self._started.wait()
        assert self.call is not None
        return self.call

    def is_started(self) -> bool:
        return self._started.is_set()

    def release(self) -> None:
        self._go_on.set()

    async def run(self, call: Call) -> Reply:
        self.call = call
        self._started.set()
        try:
            await self._go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Scripted:
    def __init__(self) -> None:
        self._steps: defaultdict[str, deque[Step]] = defaultdict(deque)
        self._unexpected: list[str] = []

    def expect(self, alias: str, outcome: Reply | Exception, *, held: bool = False) -> Step:
        """The next call of this model ends so, when it is `held` not before `release`."""
        step = Step(outcome, held=held)
        self._steps[alias].append(step)
        return step

    async def complete(self, call: Call) -> Reply:
        if not self._steps[call.alias]:
            # The caller may turn what is raised here into an answer, so that it is remembered too.
            self._unexpected.append(call.alias)
            raise AssertionError(f"nobody expected a call of {call.alias}")
        return await self._steps[call.alias].popleft().run(call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if fault is None:
            unused = [alias for alias, steps in self._steps.items() if steps]
            assert not self._unexpected, f"asked without being expected: {self._unexpected}"
            assert not unused, f"expected and not asked: {unused}"

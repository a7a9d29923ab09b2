"""The host's rules around a bench request, as far as whoever answers it has to know them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from starlette.types import Scope

from bench_proxy.bench import Caller
from bench_proxy.errors import BenchError
from bench_proxy.formats.base import Spoken, Usage
from bench_proxy.formats.request import ChatRequest
from bench_proxy.panel.seats import Answer, Report


class Admitted(Protocol):
    """One request that the rules let in."""

    @property
    def request(self) -> ChatRequest:
        """What the models are to get: a rule may have changed it."""
        ...

    @property
    def rewritten(self) -> bool:
        """Whether one has, so that the caller's own words must reach nobody."""
        ...

    @property
    def reviews(self) -> bool:
        """Whether a rule reads the answers before they leave: nothing of them may have left by then."""
        ...

    async def clear(self) -> None:
        """Wait for the rules that are looked up beside the models' work. Raises the refusal."""
        ...

    async def review(self, answers: Sequence[Spoken], usage: Usage) -> Sequence[Spoken]:
        """The answers as they may leave, in their order; counts what they used. Raises the refusal."""
        ...

    async def settle(self, usage: Usage) -> None:
        """The request is answered, and used this much; whatever is held for it is given back. Counts once."""
        ...

    async def failed(self, error: BenchError) -> BenchError:
        """The request gets this error for an answer; returns the one that a rule puts in its place."""
        ...


class Rules(Protocol):
    def applied(
        self, caller: Caller, model: str, request: ChatRequest, scope: Scope, body: Mapping[str, Any], *, stream: bool
    ) -> AbstractAsyncContextManager[Admitted]:
        """Ask once for a whole bench request, before any model is asked. What it holds is given back at the latest
        when the context is left. `model` is the collection, whatever its mode; `body` is what the caller sent.

        Entering raises the refusal, or InsteadOfModels when a rule answers in the models' place.
        """
        ...


class Free:
    """The admitted of a request for which there are no rules."""

    rewritten = False
    reviews = False

    def __init__(self, request: ChatRequest) -> None:
        self.request = request

    async def clear(self) -> None:
        return

    async def review(self, answers: Sequence[Spoken], usage: Usage) -> Sequence[Spoken]:
        return answers

    async def settle(self, usage: Usage) -> None:
        return

    async def failed(self, error: BenchError) -> BenchError:
        return error


class NoRules:
    """Where no host has any."""

    @asynccontextmanager
    async def applied(
        self, caller: Caller, model: str, request: ChatRequest, scope: Scope, body: Mapping[str, Any], *, stream: bool
    ) -> AsyncIterator[Admitted]:
        yield Free(request)


def reported(report: Report) -> Usage:
    """What the models' servers say."""
    return Usage(report.prompt_tokens, report.completion_tokens)


async def reviewed(admitted: Admitted, report: Report, usage: Usage) -> Report:
    """A panel's report with its texts as they may leave: the seats', the merger's, what was merged. `usage` counts."""
    answers = [*report.all, *report.gave_up]
    texts = list(dict.fromkeys(text for text in (*(a.text for a in answers), report.merged) if text))
    if not texts:
        await admitted.settle(usage)
        return report
    left = await admitted.review([Spoken(text) for text in texts], usage)
    fresh = {text: spoken.text for text, spoken in zip(texts, left, strict=True)}

    def told(answer: Answer) -> Answer:
        return replace(answer, text=fresh.get(answer.text, answer.text))

    return replace(
        report,
        answers=tuple(map(told, report.answers)),
        merger=None if report.merger is None else told(report.merger),
        merged=None if report.merged is None else fresh.get(report.merged, report.merged),
        gave_up=tuple(map(told, report.gave_up)),
    )

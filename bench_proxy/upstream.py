"""The seam to the models: one call to one model, answered by exactly that model or failed."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bench_proxy.formats.request import ChatRequest


@dataclass(frozen=True, slots=True)
class Call:
    """One call to one model. `timeout` is in seconds; `tags` go to LiteLLM's logs beside the cost."""

    alias: str
    request: ChatRequest
    timeout: float
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. Tokens and cost (US dollars) are None where they are not known.

    `reasoned` says that it thought aloud, which is no answer.
    """

    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    reasoned: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer, never empty."""

    text: str


class Upstream(Protocol):
    async def complete(self, call: Call) -> Reply:
        """Ask once, without retry and without another model in its place.

        Raises UpstreamError for every failure; cancelling it stops the model's call.
        """
        ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[AsyncIterator[Text | Reply]]:
        """The same, piece by piece; ends with a `Reply` that holds what is known at the end, its text empty.

        Entering and iterating raise UpstreamError; a stream that stops without a terminal event raises one too.
        Leaving the context closes the model's call.
        """
        ...

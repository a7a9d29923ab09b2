"""Shadow turns: another member answers the same turn as well, to be judged later. Nobody waits for it, and the tools
that it calls are never run.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bench_proxy.catalog import Model
from bench_proxy.errors import LedgerUnavailable, UpstreamError
from bench_proxy.formats.base import ToolCall
from bench_proxy.formats.request import ChatRequest
from bench_proxy.route.fitting import Prepared, fit
from bench_proxy.route.stickiness import share_of
from bench_proxy.route.untangling import whole
from bench_proxy.upstream import Call, Reply, Upstream

log = logging.getLogger("bench_proxy")

MOST_AT_ONCE = 16
"""Shadow turns of one process; what comes above it is left out, and said in the log."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """A shadow turn as it is put on the record, under the call `<conversation>.shadow<turn>`.

    `answer` is its text with the tools that it would have called; `error` is why there is none. Seconds, `at_ms` and
    `keep_text` as in a `TurnReport`.
    """

    conversation: str
    call: str
    turn: int
    collection: str
    shape: str
    alias: str
    at_ms: int
    seconds: float
    reply: Reply = field(default_factory=lambda: Reply(""))
    answer: str = ""
    error: UpstreamError | None = None
    keep_text: bool = True


@dataclass(frozen=True, slots=True)
class Cast:
    """What a shadow is cast of: the turn `turn` of a conversation, answered by another model."""

    conversation: str
    turn: int
    collection: str
    shape: str
    prepared: Prepared
    owner: str
    seconds: float
    keep_text: bool


class ShadowKeeping(Protocol):
    async def shadowed(self, shadow: Shadow, owner: str) -> None:
        """Put it on the record as an offload of its own. Raises LedgerUnavailable."""
        ...


Heard = Callable[[str, ChatRequest, Reply | UpstreamError, int, float], None]
"""As `turn.Staff.heard`."""


class Shadows:
    """Those of one process."""

    def __init__(self, upstream: Upstream, ledger: ShadowKeeping, heard: Heard, new_id: Callable[[], str]) -> None:
        self._upstream = upstream
        self._ledger = ledger
        self._heard = heard
        self._new_id = new_id
        self._running: set[asyncio.Task[None]] = set()

    def cast(self, of: Cast, others: Sequence[Model], share: float) -> None:
        """Let one of the others answer as well, in a share of all turns. Which ones, and by whom, the conversation's
        id and the turn decide.
        """
        drawn = share_of(f"{of.conversation} {of.turn}")
        if not others or drawn >= share:
            return
        if len(self._running) >= MOST_AT_ONCE:
            log.warning("turn %d of %s has no shadow: %d are being cast", of.turn, of.conversation, MOST_AT_ONCE)
            return
        model = others[int(drawn / share * len(others))]
        # In a context of its own: it is not the caller's doing, and not billed to the caller's key.
        casting = self._answer(of, model)
        task = asyncio.create_task(casting, name=f"shadow of {of.conversation}", context=contextvars.Context())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Stop those that are under way; nobody is owed their answers."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _answer(self, of: Cast, model: Model) -> None:
        at_ms, began = int(time.time() * 1000), time.monotonic()
        call = f"{of.conversation}.shadow{of.turn}"
        request = fit(of.prepared.request, model)
        tags = (f"bench-conversation:{of.conversation}", f"bench-collection:{of.collection}", f"bench-call:{call}")
        reply, answer, error = Reply(""), "", None
        try:
            async with asyncio.timeout(of.seconds):
                asked = Call(model.alias, request, of.seconds, (*tags, "bench-shadow"))
                reply = (await self._upstream.complete(asked)).sound()
                calls, _ = whole(reply, of.prepared.tools, self._new_id)
                answer = _with_calls(reply.text, calls)
        except TimeoutError:
            error = UpstreamError("timeout", 504, f"no answer within {of.seconds:g} seconds")
        except UpstreamError as failed:
            error = failed
        seconds = time.monotonic() - began
        self._heard(model.alias, request, error or reply, len(reply.calls), seconds)
        shadow = Shadow(
            of.conversation,
            call,
            of.turn,
            of.collection,
            of.shape,
            model.alias,
            at_ms,
            seconds,
            reply,
            answer,
            error,
            of.keep_text,
        )
        try:
            await self._ledger.shadowed(shadow, of.owner)
        except LedgerUnavailable as lost:
            log.warning("%s is not on the record: %s", call, lost)


def _with_calls(text: str, calls: Sequence[ToolCall]) -> str:
    """What whoever judges it reads."""
    return "\n\n".join(filter(str.strip, [text, *(f"[calls {call.name} {call.arguments}]" for call in calls)]))

"""Runs the seats of one panel side by side and says when the panel is over."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.request import ChatRequest
from bench_proxy.panel.seats import Answer, Seat, SeatError
from bench_proxy.upstream import Call, Reply, Upstream

log = logging.getLogger("bench_proxy")

MAX_ANSWER = 8 * 1024 * 1024
"""Characters of an answer that are kept; the rest of a runaway answer is cut."""

MAX_TOKENS = 2**31 - 1
"""What the ledger's columns hold."""

MAX_COST = 1e9
"""US dollars that one answer can have cost."""

N = TypeVar("N", int, float)

Keep = Callable[[Answer, bool], Awaitable[None]]
"""Puts an answer on the record; the flag says that the panel had not waited for it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a panel waits, in seconds; `quorum` 0 waits for all."""

    seat_timeout: float
    deadline: float
    explorer_grace: float
    quorum: int = 0


class FanOut:
    """The seats of one panel while they run.

    Every seat is a task of its own that ends in an `Answer`, never in an exception. An answer is on the record
    before anyone reads it here. Seats still open when the panel is over are reported `late` and run on until their
    own limit; `finish` waits for them.
    """

    def __init__(self, upstream: Upstream, request: ChatRequest, pace: Pace, keep: Keep, tags: tuple[str, ...]) -> None:
        self._upstream = upstream
        self._request = request
        self._pace = pace
        self._keep = keep
        self._tags = tags
        self._started = time.monotonic()
        self._open: dict[asyncio.Task[None], Seat] = {}
        self._began: dict[str, float] = {}
        self._keeping: set[asyncio.Task[None]] = set()
        self._answers: dict[str, Answer] = {}
        self._told: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._over = False

    def start(self, seat: Seat) -> None:
        self._began[seat.call] = time.monotonic()
        task = asyncio.create_task(self._run(seat), name=f"seat {seat.call}")
        self._open[task] = seat
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def until_over(self) -> list[Answer]:
        """Wait as long as the panel has to; the answers come back in the order in which they were given."""
        grace_ends: float | None = None
        while self._open:
            now = time.monotonic()
            if self._pace.quorum and self._count_ok() >= self._pace.quorum:
                break
            ends = self._started + self._pace.deadline
            if self._explorers_alone():
                grace_ends = grace_ends or now + self._pace.explorer_grace
                ends = min(ends, grace_ends)
            if now >= ends:
                break
            await asyncio.wait(self._open, timeout=ends - now, return_when=asyncio.FIRST_COMPLETED)
        while self._keeping:  # these have answered; only their place on the record is still being written
            await asyncio.wait(self._keeping)
        self._over = True
        for seat in list(self._open.values()):
            await self._report(Answer(seat, "late", seconds=time.monotonic() - self._began[seat.call]))
        self.close()
        return list(self._answers.values())

    def close(self) -> None:
        """End `answers`: nothing more will be told."""
        self._told.put_nowait(None)

    async def answers(self) -> AsyncIterator[Answer]:
        """Each answer once it is on the record, until the panel is over. For one reader."""
        while (answer := await self._told.get()) is not None:
            yield answer

    async def finish(self) -> None:
        """Wait for the late seats; each ends by its own limit."""
        if self._open:
            await asyncio.wait(self._open)

    async def cancel(self) -> None:
        """Stop the models of all open seats; what has been answered still goes on the record."""
        for task in self._open.keys() - self._keeping:
            task.cancel()
        await self.finish()

    async def _run(self, seat: Seat) -> None:
        began = self._began[seat.call]
        try:
            async with asyncio.timeout(self._pace.seat_timeout):
                call = Call(
                    seat.alias, self._request, self._pace.seat_timeout, (*self._tags, f"bench-call:{seat.call}")
                )
                reply = await self._upstream.complete(call)
            answer = _answer(seat, reply, time.monotonic() - began)
        except TimeoutError:
            message = f"no answer within {self._pace.seat_timeout:g} seconds"
            answer = _failed(seat, UpstreamError("timeout", 504, message), time.monotonic() - began)
        except UpstreamError as error:
            answer = _failed(seat, error, time.monotonic() - began)
        except asyncio.CancelledError:
            stopped = UpstreamError("cancelled", 499, "stopped because the caller hung up or the proxy is stopping")
            await self._report(_failed(seat, stopped, time.monotonic() - began))
            raise
        except Exception as error:  # noqa: BLE001  a fault of ours in one seat must not take the others with it
            message = f"{type(error).__name__} inside bench-proxy"
            answer = _failed(seat, UpstreamError("server_error", 500, message), time.monotonic() - began)
        if (task := asyncio.current_task()) is not None:
            self._keeping.add(task)
            task.add_done_callback(self._keeping.discard)
        await self._report(answer)

    async def _report(self, answer: Answer) -> None:
        late = self._over and answer.status != "late"
        try:
            await self._keep(answer, late)
        except Exception:
            log.exception("call %s is not on the record", answer.seat.call)
        if not late:
            self._answers[answer.seat.call] = answer
            self._told.put_nowait(answer)

    def _count_ok(self) -> int:
        return sum(a.status == "ok" for a in self._answers.values())

    def _explorers_alone(self) -> bool:
        """Whether only explorers are still open beside seats that were worth waiting for."""
        open_kinds = {seat.kind for seat in self._open.values()}
        return open_kinds == {"explorer"} and any(a.seat.kind != "explorer" for a in self._answers.values())


def _answer(seat: Seat, reply: Reply, seconds: float) -> Answer:
    """Text is an answer, also when it was cut by length; none is `empty`, only reasoning included."""
    answer = Answer(
        seat,
        "ok" if reply.text.strip() else "empty",
        seconds,
        text=_kept(reply.text),
        prompt_tokens=_plausible(reply.prompt_tokens, MAX_TOKENS),
        completion_tokens=_plausible(reply.completion_tokens, MAX_TOKENS),
        cost=_plausible(reply.cost, MAX_COST),
        finish_reason=reply.finish_reason,
    )
    return replace(answer, text="") if answer.status == "empty" else answer


def _failed(seat: Seat, error: UpstreamError, seconds: float) -> Answer:
    message = _kept(error.message)
    return Answer(seat, "error", seconds, error=SeatError(error.status, error.kind, message, error.retry_after))


def _kept(text: str) -> str:
    """What can be passed on of a text: half a surrogate pair, as some models' servers send it, has no UTF-8."""
    text = text[:MAX_ANSWER]
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _plausible(value: N | None, most: N) -> N | None:
    """A number as a model's server may report it; NaN and what is out of range are not known."""
    return value if value is not None and 0 <= value <= most else None

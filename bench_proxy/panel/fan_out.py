"""Runs the seats of one panel side by side and says when the panel is over."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from bench_proxy.characters import Characters, whole
from bench_proxy.errors import UpstreamError
from bench_proxy.formats.request import ChatRequest
from bench_proxy.panel.notices import is_quota_notice
from bench_proxy.panel.seats import Answer, Piece, Seat, SeatError
from bench_proxy.upstream import Call, Reply, Text, Thought, Upstream

log = logging.getLogger("bench_proxy")

MAX_ANSWER = 8 * 1024 * 1024
"""Characters of an answer that are kept; the rest of a runaway answer is cut."""

REPLACED_WITHIN = 2.0
"""Seconds within which an explorer that fails gives its seat to another."""

Keep = Callable[[Answer, bool, bool], Awaitable[None]]
"""Puts an answer on the record, or leaves it to go with the next; the flags say that the panel had not waited for it,
and that it waits for no other: then that one and all before are on the record.
"""

Replace = Callable[[Seat], Awaitable[Seat | None]]
"""Another explorer for the seat of one that failed at once, or None."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a panel waits, in seconds; `quorum` 0 waits for all."""

    seat_timeout: float
    deadline: float
    explorer_grace: float
    quorum: int = 0


@dataclass(slots=True)
class _Running:
    """One seat while it runs: what it has said, whether its answer is being kept, and is."""

    seat: Seat
    began: float
    replaces: bool = False
    keeping: bool = False
    kept: bool = False
    ok: bool = False
    first: float | None = None
    size: int = 0
    thought: int = 0
    characters: Characters = field(default_factory=Characters)
    parts: list[str] = field(default_factory=list)

    def seconds(self) -> float:
        """To the millisecond: a number that is rounded again for each place that shows it would differ among them."""
        return round(time.monotonic() - self.began, 3)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def take(self, text: str) -> str:
        """Keep a piece; returns what of it fits under the cap. A character that was cut in two waits for its end."""
        if self.first is None:
            self.first = self.seconds()
        kept = self.characters.take(text)[: MAX_ANSWER - self.size]
        self.size += len(kept)
        self.parts.append(kept)
        return kept

    def rest(self) -> str:
        text = self.characters.rest()
        self.parts.append(text)
        return text


class FanOut:
    """The seats of one panel while they run.

    Every seat is a task of its own that ends in an `Answer`, never in an exception. An answer is kept (see `Keep`)
    before anyone reads it here, and all are on the record when the panel is over. Seats still open then are reported
    `late` and run on until their own limit; `finish` waits for them. `piecewise` asks the models to stream, so that
    `events` has their pieces.
    """

    def __init__(
        self,
        upstream: Upstream,
        request: ChatRequest,
        pace: Pace,
        keep: Keep,
        *,
        replace: Replace | None = None,
        tags: tuple[str, ...] = (),
        piecewise: bool = False,
    ) -> None:
        self._upstream = upstream
        self._request = request
        self._pace = pace
        self._keep = keep
        self._replace = replace
        self._tags = tags
        self._piecewise = piecewise
        self._started = time.monotonic()
        self._open: dict[asyncio.Task[None], _Running] = {}
        self._answers: dict[str, Answer] = {}
        self._told: asyncio.Queue[Piece | Answer | None] = asyncio.Queue()
        self._heard = True
        self._over = False
        self._stirred = asyncio.Event()

    def start(self, seat: Seat, *, replaces: bool = False) -> None:
        running = _Running(seat, time.monotonic(), replaces)
        task = asyncio.create_task(self._run(running), name=f"seat {seat.call}")
        self._open[task] = running
        task.add_done_callback(self._left)

    async def until_answered(self) -> None:
        """Wait until no seat that was started is worth waiting for: all have answered, the quorum has, or the
        deadline is over. It is for the time before the seating is known: no answer is on the record yet.
        """
        left = self._started + self._pace.deadline - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                while not self._enough():
                    self._stirred.clear()
                    await self._stirred.wait()

    async def until_over(self) -> list[Answer]:
        """Wait as long as the panel has to; the answers come back in the order in which they were given."""
        grace_ends: float | None = None
        while self._awaited():
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
        # These have answered; only their place on the record is still being written.
        while any(running.keeping for running in self._awaited()):
            self._stirred.clear()
            await self._stirred.wait()
        self._over = True
        # All of them now: what one goes on saying while another is put on the record is not told any more.
        late = [_late(running) for running in self._awaited()]
        await asyncio.gather(*(self._report(answer) for answer in late))
        self.close()
        return self.answers

    @property
    def answers(self) -> list[Answer]:
        """What has been answered and kept."""
        return list(self._answers.values())

    def close(self) -> None:
        """End `events`: nothing more will be told."""
        self._told.put_nowait(None)

    async def events(self) -> AsyncGenerator[Piece | Answer, None]:
        """Pieces as they come and each answer once it is kept, until the panel is over. For one reader.

        What waits here is bounded by what the answers may hold; a reader that leaves costs nothing more.
        """
        try:
            while (event := await self._told.get()) is not None:
                yield event
        finally:
            self._heard = False
            self._told = asyncio.Queue()

    async def finish(self) -> None:
        """Wait for the late seats; each ends by its own limit."""
        while self._open:
            await asyncio.wait(self._open)

    async def cancel(self) -> None:
        """Stop the models of all open seats and end `events`; what has been answered still goes on the record."""
        for task, running in list(self._open.items()):
            if running.kept or not running.keeping:
                task.cancel()
        try:
            await self.finish()
        finally:
            self.close()

    async def _run(self, running: _Running) -> None:
        try:
            answer = await self._ask(running)
        except asyncio.CancelledError:
            why = "stopped: the caller hung up, the time to merge was over, or the proxy is stopping"
            stopped = UpstreamError("cancelled", 499, why)
            await self._report(_failed(running, stopped))
            raise
        running.keeping, running.ok = True, answer.status == "ok"
        self._stirred.set()
        await self._report(answer)
        running.kept = True
        self._stirred.set()
        if self._replace is not None and self._gives_way(running, answer):
            another = await self._replace(running.seat)
            if another is not None and self._members_work():
                self.start(another, replaces=True)

    async def _ask(self, running: _Running) -> Answer:
        seat, limit = running.seat, self._pace.seat_timeout
        call = Call(seat.alias, self._request, limit, (*self._tags, f"bench-call:{seat.call}"))
        try:
            async with asyncio.timeout(limit):
                if self._piecewise:
                    reply = await self._listen(call, running)
                else:
                    reply = await self._upstream.complete(call)
        except TimeoutError:
            return _failed(running, UpstreamError("timeout", 504, f"no whole answer within {limit:g} seconds"))
        except UpstreamError as error:
            return _failed(running, error)
        except Exception as error:  # noqa: BLE001  a fault of ours in one seat must not take the others with it
            return _failed(running, UpstreamError("internal", 500, f"{type(error).__name__} inside bench-proxy"))
        answer = _answer(running, reply)
        if is_quota_notice(answer.text, self._request):
            notice = SeatError(429, "rate_limit", "the answer is a notice about a quota")
            return replace(answer, status="error", error=notice)
        return answer

    async def _listen(self, call: Call, running: _Running) -> Reply:
        async with self._upstream.stream(call) as events:
            async for event in events:
                if isinstance(event, Reply):
                    if text := running.rest():
                        self._tell(Piece(running.seat, text))
                    return replace(event, text=running.text)
                if isinstance(event, Text) and (text := running.take(event.text)):
                    self._tell(Piece(running.seat, text))
                elif isinstance(event, Thought):
                    running.thought += len(event.text)
                if running.size >= MAX_ANSWER:
                    return Reply(running.text, finish_reason="length")
        raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")

    async def _report(self, answer: Answer) -> None:
        late = self._over and answer.status != "late"
        try:
            await self._keep(answer, late, self._over or self._enough())
        except Exception:
            log.exception("call %s is not on the record", answer.seat.call)
        if not late:
            self._answers[answer.seat.call] = answer
            self._tell(answer)

    def _tell(self, event: Piece | Answer) -> None:
        if self._heard and not (self._over and isinstance(event, Piece)):
            self._told.put_nowait(event)

    def _gives_way(self, running: _Running, answer: Answer) -> bool:
        """An explorer that failed at once while members still work; the one that takes its place does not again."""
        return (
            running.seat.kind == "explorer"
            and not running.replaces
            and answer.status in {"error", "empty"}
            and answer.seconds < REPLACED_WITHIN
            and self._members_work()
        )

    def _members_work(self) -> bool:
        """Whether the panel waits for a member anyway, so that one more explorer costs it nothing."""
        working = {running.seat.kind for running in self._open.values() if not running.keeping}
        return not self._over and bool(working - {"explorer"})

    def _awaited(self) -> list[_Running]:
        """The seats whose answers are not kept yet; others may still be finding a seat to replace them."""
        return [running for running in self._open.values() if not running.kept]

    def _left(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        self._stirred.set()

    def _enough(self) -> bool:
        if all(running.keeping for running in self._open.values()):
            return True
        answering = sum(running.ok and not running.kept for running in self._open.values())
        return 0 < self._pace.quorum <= self._count_ok() + answering

    def _count_ok(self) -> int:
        return sum(a.status == "ok" for a in self._answers.values())

    def _explorers_alone(self) -> bool:
        """Whether only explorers are still open beside seats that were worth waiting for."""
        open_kinds = {running.seat.kind for running in self._awaited()}
        return open_kinds == {"explorer"} and any(a.seat.kind != "explorer" for a in self._answers.values())


def _answer(running: _Running, reply: Reply) -> Answer:
    """Text is an answer, also when it was cut by length; none is `empty`, only reasoning included."""
    reply = reply.sound()
    text = reply.text[:MAX_ANSWER]
    return Answer(
        running.seat,
        "ok" if text.strip() else "empty",
        running.seconds(),
        text=text if text.strip() else running.text,
        first_token_seconds=running.first,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cost=reply.cost,
        finish_reason=reply.finish_reason,
        thought=running.thought + len(reply.thoughts),
    )


def _failed(running: _Running, error: UpstreamError) -> Answer:
    """What was said before it failed is kept."""
    return Answer(
        running.seat,
        "error",
        running.seconds(),
        text=running.text,
        first_token_seconds=running.first,
        error=SeatError(error.status, error.kind, whole(error.message), error.retry_after, error.context_window),
        thought=running.thought,
    )


def _late(running: _Running) -> Answer:
    return Answer(
        running.seat,
        "late",
        running.seconds(),
        text=running.text,
        first_token_seconds=running.first,
        thought=running.thought,
    )

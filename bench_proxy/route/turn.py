"""One turn of a conversation: members are asked one after the other until one answers, and it goes on the record."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bench_proxy.catalog import Model
from bench_proxy.config import Config
from bench_proxy.errors import BenchError, TurnFailed, UpstreamError
from bench_proxy.estimate import Used
from bench_proxy.formats.base import Spoken, Usage
from bench_proxy.formats.relays import Relayed, Relaying
from bench_proxy.formats.request import ChatRequest
from bench_proxy.route.attempts import Attempt, ChatAttempt, NativeAttempt
from bench_proxy.route.deadline import within
from bench_proxy.route.failover import Failover
from bench_proxy.route.keeping import TurnStatus
from bench_proxy.route.question import Question
from bench_proxy.route.recording import Recorder, TurnRecord
from bench_proxy.route.untangling import Piece
from bench_proxy.upstream import NativeUpstream, Reply, Text, Thought, Upstream

log = logging.getLogger("bench_proxy")

MOST_ANSWER = 8 * 1024 * 1024
"""Characters of an answer that are relayed at most, thoughts included."""

READ_AT_ONCE = 32
"""Events that are passed on before others have their turn: what is there already is read without any wait, and members
that flood their streams would keep everybody else from the event loop.
"""

ASKED_ANEW = frozenset({"bad_request", "tools"})
"""Kinds of errors by which a member says that it cannot be asked in the caller's own words: it may not know all of
them, or not know what another model has said in them. Told in those of chat it may know the same.
"""


class Staff(Recorder, Protocol):
    """What a turn leaves to whoever takes it."""

    @property
    def upstream(self) -> Upstream: ...

    @property
    def native(self) -> NativeUpstream | None: ...

    def heard(
        self, alias: str, request: ChatRequest, outcome: Reply | UpstreamError, calls: int, seconds: float
    ) -> None:
        """Learn from how a member's call ended, and how many tools it called; waits for nothing."""
        ...

    def shadow(self, question: Question, answered: str, turn: int, config: Config) -> None:
        """Let another member answer as well, where the configuration wants that; waits for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Begun:
    """A member answers. `known` says that its call is on the record already, from an earlier turn. `relaying` passes
    on what it says, where that comes in the caller's own format.
    """

    alias: str
    call: str
    known: bool
    relaying: Relaying | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How the answer ended: `data` is the `bench` object, `last` the events that end one in the caller's own format."""

    finish_reason: str
    usage: Usage
    data: Mapping[str, Any]
    last: Sequence[Relayed] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """A whole answer: `spoken`, or `relayed` where it came in the caller's own format."""

    begun: Begun
    spoken: Spoken
    usage: Usage
    data: Mapping[str, Any]
    relayed: bytes = b""


class Turn:
    """Use either `pieces` or `whole`, once. A task that is cancelled in it ends the member's call."""

    def __init__(
        self,
        staff: Staff,
        config: Config,
        question: Question,
        first: Sequence[Model],
        others: Callable[[], Awaitable[Sequence[Model]]],
        new_id: Callable[[], str],
    ) -> None:
        """`first` are asked first, the `others` when those have failed: to rank them takes a look at the record."""
        self.tools = question.prepared.tools
        self._staff = staff
        self._config = config
        self._question = question
        self._failover = Failover(first, attempts=config.route.attempts, tokens=question.size.tokens)
        self._others: Callable[[], Awaitable[Sequence[Model]]] | None = others
        self._unranked = len(question.able) - len(first)
        self._new_id = new_id
        self._told_in_chat: Model | None = None
        self._asked: Attempt | None = None
        """Who is asked now."""

        self._record = TurnRecord(staff, question, config.timing.sticky_idle)
        self._limit = min(question.brief.deadline or config.timing.turn, config.timing.turn)
        self._until = time.monotonic() + self._limit
        self._taken = 0.0
        """Seconds for which the caller has taken what there was."""

    @property
    def conversation(self) -> str:
        return self._record.conversation

    @property
    def number(self) -> int:
        return self._record.number

    @property
    def used(self) -> Used:
        """What has been used by members whose calls have ended."""
        return self._record.used

    async def pieces(self) -> AsyncGenerator[Begun | Piece | Relayed | Ended, None]:
        """The answer as it comes: who answers, the pieces, the end. A member that fails before its first piece is
        replaced unseen.

        Raises the refusal when nobody answers, and TurnFailed when the one who had begun breaks off.
        """
        with self._on_record():
            while (attempt := await self._next()) is not None:
                async with AsyncExitStack() as stack:
                    try:
                        events, held = await self._open(stack, attempt)
                    except UpstreamError as error:
                        self._failed(attempt, error)
                        continue
                    begun, told = await self._begin(attempt), time.monotonic()
                    yield begun
                    for piece in held:
                        yield piece
                    self._taken += time.monotonic() - told
                    try:
                        async with aclosing(self._heard(events, attempt)) as rest:
                            async for piece in rest:
                                yield piece
                    except UpstreamError as error:
                        raise await self._broken(attempt, error) from error
                yield await self._ended(attempt)
                return
            raise await self._refusal()

    async def whole(self) -> Answered:
        """The whole answer. Nothing leaves before it is there, so that any failure is the next member's turn.

        Raises the refusal when nobody answers.
        """
        with self._on_record():
            while (attempt := await self._next()) is not None:
                try:
                    await self._complete(attempt)
                except UpstreamError as error:
                    self._failed(attempt, error)
                    continue
                begun = await self._begin(attempt)
                ended = await self._ended(attempt)
                spoken = attempt.spoken if isinstance(attempt, ChatAttempt) else Spoken()
                relayed = attempt.data if isinstance(attempt, NativeAttempt) else b""
                return Answered(replace(begun, call=ended.data["call"]), spoken, ended.usage, ended.data, relayed)
            raise await self._refusal()

    @contextmanager
    def _on_record(self) -> Iterator[None]:
        """Around all that a turn does: it goes on the record also when it is broken off."""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            if not self._record.told:
                self._stopped("cancelled")
                log.info("conversation %s: the caller left in turn %d", self.conversation, self.number)
            raise
        except BenchError:
            raise
        except Exception:  # a fault of ours, which says nothing of the member
            self._stopped("error")
            log.exception("turn %d of %s failed inside bench-proxy", self.number, self.conversation)
            raise

    async def _next(self) -> Attempt | None:
        if (model := self._told_in_chat) is not None:
            self._told_in_chat = None
            self._asked = self._in_chat(model)
            return self._asked
        model = self._failover.next()
        if model is None and self._others is not None and not self._failover.over:
            others, self._others, self._unranked = self._others, None, 0
            self._failover.add(await others())
            model = self._failover.next()
        if model is None or time.monotonic() >= self._until:
            return None
        self._asked = self._natively(model) or self._in_chat(model)
        return self._asked

    def _in_chat(self, model: Model) -> Attempt:
        return ChatAttempt(model, self._staff.upstream, self._question.prepared, self._new_id)

    def _natively(self, model: Model) -> Attempt | None:
        """None where the member does not speak the caller's format."""
        upstream, native = self._staff.native, self._question.native
        if upstream is None or native is None:
            return None
        dialect = native.relaying.dialect
        if not (maker := upstream.maker(model.alias, dialect)):
            return None
        foreign = any(upstream.maker(alias, dialect) != maker for alias in self._question.pin.calls)
        return NativeAttempt(model, upstream, native, foreign=foreign)

    def _can_be_told_in_chat(self, attempt: Attempt) -> bool:
        if attempt.relaying is None or attempt.answers or self._question.prepared.refused is not None:
            return False
        return time.monotonic() < self._until

    async def _open(self, stack: AsyncExitStack, attempt: Attempt) -> tuple[AsyncIterator[Any], list[Piece | Relayed]]:
        """The member's stream once its first piece is there, and all that came until then."""
        held: list[Piece | Relayed] = []
        size = 0
        opened = False
        limit = min(self._config.timing.first_piece, self._until - time.monotonic())
        try:
            async with asyncio.timeout(limit):
                left = max(self._until - time.monotonic(), 0.001)
                events = await stack.enter_async_context(attempt.stream(left, self._record.tags(attempt.model.alias)))
                opened = True
                async for event in events:
                    # What could be the beginning of more is held until the end, and may be all that comes.
                    heard = attempt.heard(event)
                    held += heard
                    size += sum(map(_size, heard))
                    if attempt.answers:
                        attempt.first_piece = time.monotonic() - attempt.since
                        return events, held
                    if attempt.over:
                        break
                    if size > MOST_ANSWER:
                        raise _too_large()
            raise _empty()
        except TimeoutError:
            raise _late(limit) from None
        except UpstreamError as error:
            if not opened or error.kind != "bad_request":
                raise
            # What it had accepted cannot be what was wrong with the request.
            raise UpstreamError("server_error", 502, error.message, retry_after=error.retry_after) from error

    async def _heard(self, events: AsyncIterator[Any], attempt: Attempt) -> AsyncGenerator[Piece | Relayed, None]:
        """The pieces behind the first one, until the member has ended well. Raises UpstreamError."""
        if attempt.over:
            return
        read = 0
        try:
            async with aclosing(within(events, self._until - time.monotonic())) as in_time:
                async for event in in_time:
                    read += 1
                    if read % READ_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    pieces = attempt.heard(event)
                    if attempt.size + attempt.thought > MOST_ANSWER and not attempt.over:
                        raise _too_large()
                    for piece in pieces:
                        told = time.monotonic()
                        yield piece
                        self._taken += time.monotonic() - told
                    if attempt.over:
                        return
        except TimeoutError:
            # Of a member whose caller has used up the time nobody knows how long it would have taken.
            raise (_untaken if self._taken > self._limit / 2 else _late)(self._limit) from None
        raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")

    async def _complete(self, attempt: Attempt) -> None:
        """Within its share of the turn, so that a member which never answers leaves time for another."""
        left = self._until - time.monotonic()
        others = self._failover.attempts_left(self._unranked)
        limit = max(min(self._config.timing.first_piece, left), left / (others + 1))
        try:
            async with asyncio.timeout(limit):
                await attempt.complete(max(limit, 0.001), self._record.tags(attempt.model.alias))
        except TimeoutError:
            raise _late(limit) from None
        if not attempt.answers:
            raise _empty()
        if len(attempt.reply.text) > MOST_ANSWER:
            raise _too_large()

    async def _begin(self, attempt: Attempt) -> Begun:
        """Who answers is pinned."""
        alias = attempt.model.alias
        call, known = await self._record.begin(alias)
        return Begun(alias, call, known=known, relaying=attempt.relaying)

    def _failed(self, attempt: Attempt, error: UpstreamError) -> None:
        self._asked = None
        self._record.count(attempt, error.kind)
        if self._can_be_told_in_chat(attempt) and error.kind in ASKED_ANEW:
            log.info(
                "conversation %s: %s is asked anew, in chat: %s", self.conversation, attempt.model.alias, error.message
            )
            self._told_in_chat = attempt.model
            return
        seconds = time.monotonic() - attempt.since
        self._staff.heard(attempt.model.alias, self._question.prepared.request, error, 0, seconds)
        self._failover.failed_with(attempt.model, error)
        log.info("conversation %s: %s failed: %d %s", self.conversation, attempt.model.alias, error.status, error.kind)

    async def _ended(self, attempt: Attempt) -> Ended:
        """The end is told when the turn is on the record."""
        reply = attempt.reply
        alias, seconds = attempt.model.alias, time.monotonic() - attempt.since
        self._staff.heard(alias, self._question.prepared.request, reply, attempt.calls, seconds)
        report, data = await self._record.answered(attempt, self._failover.failed)
        self._staff.shadow(self._question, alias, report.turn, self._config)
        last = attempt.last if isinstance(attempt, NativeAttempt) else ()
        return Ended(reply.finish_reason or "stop", _usage(reply), data, last)

    async def _broken(self, attempt: Attempt, error: UpstreamError) -> TurnFailed:
        self._failed(attempt, error)
        data = await self._record.broke_off(attempt, error, self._failover.failed)
        alias = attempt.model.alias
        words = f"{alias} broke off after its answer had begun: {error.status} {error.kind}: {error.message}"
        if error.kind == "cancelled":
            words = error.message
        return TurnFailed(words, status=502, code="answer_broke_off", data=data)

    async def _refusal(self) -> BenchError:
        data = await self._record.refused(self._failover.failed)
        error = self._failover.refusal(self._question.brief.collection)
        error.data = data
        return error

    def _stopped(self, status: TurnStatus) -> None:
        self._record.stopped(status, self._asked, self._failover.failed)


def _late(seconds: float) -> UpstreamError:
    return UpstreamError("timeout", 504, f"no answer within {seconds:g} seconds")


def _untaken(seconds: float) -> UpstreamError:
    words = f"the caller took most of the turn's {seconds:g} seconds to read the answer, which was stopped then"
    return UpstreamError("cancelled", 499, words)


def _empty() -> UpstreamError:
    return UpstreamError("bad_response", 502, "the answer was empty")


def _too_large() -> UpstreamError:
    return UpstreamError("bad_response", 502, "the answer is larger than any answer is")


def _size(piece: Piece | Relayed) -> int:
    """What of a piece takes room while it is held back. A call is not: it is an answer."""
    match piece:
        case Relayed():
            return len(piece.data)
        case Text() | Thought():
            return len(piece.text)
        case _:
            return 0


def _usage(reply: Reply) -> Usage:
    return Usage(
        reply.prompt_tokens or 0,
        reply.completion_tokens or 0,
        reply.cached_tokens or 0,
        reply.cache_write_tokens or 0,
        reply.reasoning_tokens or 0,
    )

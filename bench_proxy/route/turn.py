"""One turn of a conversation: members are asked one after the other until one answers, and it goes on the record."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bench_proxy.catalog import Model
from bench_proxy.config import Config
from bench_proxy.errors import BenchError, LedgerUnavailable, TurnFailed, UpstreamError
from bench_proxy.estimate import Used, used
from bench_proxy.formats.base import Spoken, Usage
from bench_proxy.formats.relays import Native, Relayed, Relaying
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.keys import Use
from bench_proxy.route.attempts import Attempt, ChatAttempt, NativeAttempt
from bench_proxy.route.deadline import within
from bench_proxy.route.failover import Failover
from bench_proxy.route.fitting import Prepared
from bench_proxy.route.keeping import NotAsked, Pin, TurnReport, TurnStatus
from bench_proxy.route.stickiness import Sticky
from bench_proxy.route.untangling import Piece
from bench_proxy.size import Size
from bench_proxy.upstream import NativeUpstream, Reply, Text, Thought, Upstream

log = logging.getLogger("bench_proxy")

RECORD_SECONDS = 20.0
"""How long a turn waits to be on the record before its end is told without."""

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


class Staff(Protocol):
    """What a turn leaves to whoever takes it."""

    @property
    def upstream(self) -> Upstream: ...

    @property
    def native(self) -> NativeUpstream | None: ...

    async def pin(self, keys: Collection[str], pin: Pin, seconds: float) -> None:
        """Remember who answers the conversation. Never raises."""
        ...

    def heard(
        self, alias: str, request: ChatRequest, outcome: Reply | UpstreamError, calls: int, seconds: float
    ) -> None:
        """Learn from how a member's call ended, and how many tools it called; waits for nothing."""
        ...

    def shadow(self, question: "Question", answered: str, turn: int, config: Config) -> None:
        """Let another member answer as well, where the configuration wants that; waits for nothing."""
        ...

    def keep(self, report: TurnReport, owner: str) -> Awaitable[TurnReport]:
        """Put the turn on the record, also when whoever waits for it is cancelled. Raises LedgerUnavailable."""
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


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked in a turn, by whom, and how its conversation is known: by its sticky key, and by the key of its own
    id. `size` is that of the prompt, `able` are the members that can take it, `native` is what the caller sent,
    for members that speak its format. `keep_text` is as in a `TurnReport`.
    """

    brief: Brief
    prepared: Prepared
    owner: str
    sticky: Sticky
    by_id: str
    pin: Pin
    shape: str
    size: Size
    able: Sequence[Model] = ()
    skipped: Sequence[NotAsked] = ()
    native: Native | None = None
    keep_text: bool = True


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
        self.conversation = question.pin.conversation
        self.number = question.pin.turns + 1
        self.tools = question.prepared.tools
        self.used = Used()
        """What has been used by members whose calls have ended."""

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

        self._reported = False
        self._at_ms = int(time.time() * 1000)
        self._began = time.monotonic()
        limit = min(question.brief.deadline or config.timing.turn, config.timing.turn)
        self._until = self._began + limit

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
                    yield await self._begin(attempt)
                    for piece in held:
                        yield piece
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
            if not self._reported:
                self._broken_off("cancelled")
                log.info("conversation %s: the caller left in turn %d", self.conversation, self.number)
            raise
        except BenchError:
            raise
        except Exception:  # a fault of ours, which says nothing of the member
            self._broken_off("error")
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
                events = await stack.enter_async_context(attempt.stream(left, self._tags(attempt.model)))
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
                        yield piece
                    if attempt.over:
                        return
        except TimeoutError:
            raise _late(self._until - self._began) from None
        raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")

    async def _complete(self, attempt: Attempt) -> None:
        """Within its share of the turn, so that a member which never answers leaves time for another."""
        left = self._until - time.monotonic()
        others = self._failover.attempts_left(self._unranked)
        limit = max(min(self._config.timing.first_piece, left), left / (others + 1))
        try:
            async with asyncio.timeout(limit):
                await attempt.complete(max(limit, 0.001), self._tags(attempt.model))
        except TimeoutError:
            raise _late(limit) from None
        if not attempt.answers:
            raise _empty()
        if len(attempt.reply.text) > MOST_ANSWER:
            raise _too_large()

    def _tags(self, model: Model) -> tuple[str, ...]:
        return (
            f"bench-conversation:{self.conversation}",
            f"bench-collection:{self._question.brief.collection}",
            f"bench-call:{self._call_of(model.alias)[0]}",
        )

    def _call_of(self, alias: str) -> tuple[str, int, tuple[str, ...]]:
        """The call of this model in the conversation, its number, and the models that have then answered."""
        calls = self._question.pin.calls
        if alias not in calls:
            calls = (*calls, alias)
        number = calls.index(alias) + 1
        return f"{self.conversation}.{number}", number, calls

    async def _begin(self, attempt: Attempt) -> Begun:
        """Who answers is pinned."""
        alias, calls = attempt.model.alias, self._question.pin.calls
        await self._pin(alias, calls, self.number)
        return Begun(alias, self._call_of(alias)[0], known=alias in calls, relaying=attempt.relaying)

    async def _pin_as_recorded(self, kept: TurnReport) -> None:
        """Only now is the call one of the conversation's, so that none is told which nobody finds."""
        pinned = self._question.pin.calls
        calls = [*pinned, *("" for _ in range(kept.number - len(pinned)))]
        calls[kept.number - 1] = kept.alias
        if tuple(calls) != pinned or kept.turn != self.number:
            await self._pin(kept.alias, tuple(calls), kept.turn)

    async def _pin(self, alias: str, calls: tuple[str, ...], turns: int) -> None:
        pin = Pin(self.conversation, alias, calls, turns)
        keys = {self._question.sticky.key, self._question.by_id}
        await self._staff.pin(keys, pin, self._config.timing.sticky_idle)

    def _failed(self, attempt: Attempt, error: UpstreamError) -> None:
        self._asked = None
        self._count(attempt, error.kind)
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
        self._count(attempt)
        report = self._report("ok", attempt, reply)
        kept = await self._record(report)
        data = self._as_json(kept or report)
        if kept is None:
            data["note"] = "The ledger could not be written: a verdict on this call may not find it."
        else:
            await self._pin_as_recorded(kept)
        self._staff.shadow(self._question, alias, (kept or report).turn, self._config)
        _log_turn(kept or report)
        last = attempt.last if isinstance(attempt, NativeAttempt) else ()
        return Ended(reply.finish_reason or "stop", _usage(reply), data, last)

    async def _broken(self, attempt: Attempt, error: UpstreamError) -> TurnFailed:
        self._failed(attempt, error)
        report = self._report("error", attempt, self._estimated(attempt, error.kind))
        report = await self._record(report) or report
        alias = attempt.model.alias
        words = f"{alias} broke off after its answer had begun: {error.status} {error.kind}: {error.message}"
        return TurnFailed(words, status=502, code="answer_broke_off", data=self._as_json(report))

    async def _refusal(self) -> BenchError:
        report = self._report("error", None, Reply(""))
        report = await self._record(report) or report
        error = self._failover.refusal(self._question.brief.collection)
        error.data = self._as_json(report)
        return error

    def _broken_off(self, status: TurnStatus) -> None:
        """What was used until then is on the record, as far as it can be known."""
        attempt, kind = self._asked, "internal" if status == "error" else status
        reply = Reply("") if attempt is None else self._estimated(attempt, kind)
        if attempt is not None and not self._reported:
            self._count(attempt, kind)
        self._staff.keep(self._report(status, attempt, reply), self._question.owner)

    def _estimated(self, attempt: Attempt, failed: str) -> Reply:
        """What is known of an answer that was broken off. A member that was stopped does not say all that it used."""
        if attempt.over:
            return attempt.reply
        known = self._used_by(attempt, failed)
        read, answer = known.prompt_tokens, known.completion_tokens
        return replace(attempt.reported, text=attempt.said, prompt_tokens=read, completion_tokens=answer)

    def _count(self, attempt: Attempt, failed: str = "") -> None:
        self.used += self._used_by(attempt, failed)

    def _used_by(self, attempt: Attempt, failed: str) -> Used:
        reply = attempt.reported
        return used(
            attempt.model,
            self._question.size.in_budget,
            reply.text or attempt.said,
            thought=attempt.thought or len(reply.thoughts),
            argued=attempt.argued,
            failed=failed,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            cost=reply.cost,
        )

    async def _record(self, report: TurnReport) -> TurnReport | None:
        """The turn as it was recorded; None when it could not be."""
        self._reported = True
        try:
            async with asyncio.timeout(RECORD_SECONDS):
                return await self._staff.keep(report, self._question.owner)
        except (LedgerUnavailable, TimeoutError) as error:
            log.error("conversation %s is not wholly on the record: %s", self.conversation, str(error) or "too slow")
            return None

    def _report(self, status: TurnStatus, attempt: Attempt | None, reply: Reply) -> TurnReport:
        question = self._question
        answering: dict[str, Any] = {}
        if attempt is not None:
            call, number, _ = self._call_of(attempt.model.alias)
            answering = {"call": call, "number": number, "alias": attempt.model.alias}
            answering |= {"first_piece_seconds": attempt.first_piece, "tool_calls": attempt.calls}
        return TurnReport(
            conversation=self.conversation,
            sticky=question.sticky.key,
            sticky_by=question.sticky.by,
            collection=question.brief.collection,
            model=question.brief.model,
            shape=question.shape,
            turn=self.number,
            at_ms=self._at_ms,
            status=status,
            seconds=time.monotonic() - self._began,
            reply=reply,
            # Once, whatever goes wrong behind it.
            use=Use() if self._reported else self.used.in_budget,
            failed_over=self._failover.failed,
            skipped=question.skipped,
            # Whoever speaks the caller's own format is told of everything.
            left_out=() if attempt is not None and attempt.relaying else question.prepared.left_out,
            keep_text=question.keep_text,
            **answering,
        )

    def _as_json(self, report: TurnReport) -> dict[str, Any]:
        """The `bench` object; what there is none of is left out."""
        said: dict[str, Any] = {
            "collection": f"bench/{report.collection}",
            "reply": "route",
            "conversation": report.conversation,
            "call": report.call,
            "alias": report.alias,
            "turn": report.turn,
            "sticky_by": report.sticky_by,
            "failed_over": [failed.as_json() for failed in report.failed_over],
            "skipped": [one.as_json() for one in report.skipped],
            "seconds": round(report.seconds, 3),
        }
        if report.first_piece_seconds is not None:
            said["first_piece_seconds"] = round(report.first_piece_seconds, 3)
        if report.reply.cost is not None:
            said["cost"] = report.reply.cost
        if report.left_out:
            said["left_out"] = list(report.left_out)
        return said


def _log_turn(report: TurnReport) -> None:
    failed = "".join(f" {one.alias}={one.status}" for one in report.failed_over)
    log.info(
        "turn %d of %s collection=%s alias=%s seconds=%.3f calls=%d%s",
        report.turn, report.conversation, report.collection, report.alias, report.seconds, report.tool_calls, failed,
    )  # fmt: skip


def _late(seconds: float) -> UpstreamError:
    return UpstreamError("timeout", 504, f"no answer within {seconds:g} seconds")


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

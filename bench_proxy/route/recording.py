"""What became of one turn: who answers it in which call, what it has used, and what of it goes on the record."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

from bench_proxy.errors import LedgerUnavailable, UpstreamError
from bench_proxy.estimate import Used, used
from bench_proxy.keys import Use
from bench_proxy.route.attempts import Attempt
from bench_proxy.route.keeping import Failed, Pin, TurnReport, TurnStatus
from bench_proxy.route.question import Question
from bench_proxy.upstream import Reply

log = logging.getLogger("bench_proxy")

RECORD_SECONDS = 20.0
"""How long a turn waits to be on the record before its end is told without."""


class Recorder(Protocol):
    async def pin(self, keys: Collection[str], pin: Pin, seconds: float) -> None:
        """Remember who answers the conversation. Never raises."""
        ...

    def keep(self, report: TurnReport, owner: str) -> Awaitable[TurnReport]:
        """Put the turn on the record, also when whoever waits for it is cancelled. Raises LedgerUnavailable."""
        ...


class TurnRecord:
    """One turn's. What it `used` are the calls that were counted; a turn is put on the record once, by one of
    `answered`, `broke_off`, `refused` and `stopped`. The first three return the `bench` object.
    """

    def __init__(self, recorder: Recorder, question: Question, sticky_seconds: float) -> None:
        self.conversation = question.pin.conversation
        self.number = question.pin.turns + 1
        self.used = Used()
        self.told = False
        """Whether it is on the record, or on its way there."""

        self._recorder = recorder
        self._question = question
        self._sticky_seconds = sticky_seconds
        self._at_ms = int(time.time() * 1000)
        self._began = time.monotonic()

    def tags(self, alias: str) -> tuple[str, ...]:
        return (
            f"bench-conversation:{self.conversation}",
            f"bench-collection:{self._question.brief.collection}",
            f"bench-call:{self._call_of(alias)[0]}",
        )

    async def begin(self, alias: str) -> tuple[str, bool]:
        """Pin who answers; returns its call, and whether that is on the record from an earlier turn."""
        calls = self._question.pin.calls
        await self._pin(alias, calls, self.number)
        return self._call_of(alias)[0], alias in calls

    def count(self, attempt: Attempt, failed: str = "") -> None:
        """Count what a call has used, which failed by an error of this kind or did not."""
        self.used += self._used_by(attempt, failed)

    async def answered(self, attempt: Attempt, failed_over: Sequence[Failed]) -> tuple[TurnReport, dict[str, Any]]:
        """Also the report as it was recorded. Returns when it is durable, or cannot be."""
        self.count(attempt)
        report = self._report("ok", failed_over, attempt, attempt.reply)
        kept = await self._put(report)
        data = self._as_json(kept or report)
        if kept is None:
            data["note"] = "The ledger could not be written: a verdict on this call may not find it."
        else:
            await self._pin_as_recorded(kept)
        _log_turn(kept or report)
        return kept or report, data

    async def broke_off(self, attempt: Attempt, error: UpstreamError, failed_over: Sequence[Failed]) -> dict[str, Any]:
        """A member failed after its answer had begun; what it has used is counted."""
        report = self._report("error", failed_over, attempt, self._estimated(attempt, error.kind))
        return self._as_json(await self._put(report) or report)

    async def refused(self, failed_over: Sequence[Failed]) -> dict[str, Any]:
        """Nobody answered."""
        report = self._report("error", failed_over, None, Reply(""))
        return self._as_json(await self._put(report) or report)

    def stopped(self, status: TurnStatus, attempt: Attempt | None, failed_over: Sequence[Failed]) -> None:
        """The turn ends here; what was used until then is on the record, as far as it can be known. Not waited for."""
        kind = "internal" if status == "error" else status
        reply = Reply("") if attempt is None else self._estimated(attempt, kind)
        if attempt is not None and not self.told:
            self.count(attempt, kind)
        self._recorder.keep(self._report(status, failed_over, attempt, reply), self._question.owner)

    def _call_of(self, alias: str) -> tuple[str, int]:
        """The call of this model in the conversation, and its number."""
        calls = self._question.pin.calls
        number = (calls if alias in calls else (*calls, alias)).index(alias) + 1
        return f"{self.conversation}.{number}", number

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
        await self._recorder.pin(keys, pin, self._sticky_seconds)

    def _estimated(self, attempt: Attempt, failed: str) -> Reply:
        """What is known of an answer that was broken off. A member that was stopped does not say all that it used."""
        if attempt.over:
            return attempt.reply
        known = self._used_by(attempt, failed)
        read, answer = known.prompt_tokens, known.completion_tokens
        return replace(attempt.reported, text=attempt.said, prompt_tokens=read, completion_tokens=answer)

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

    async def _put(self, report: TurnReport) -> TurnReport | None:
        """The turn as it was recorded; None when it could not be."""
        self.told = True
        try:
            async with asyncio.timeout(RECORD_SECONDS):
                return await self._recorder.keep(report, self._question.owner)
        except (LedgerUnavailable, TimeoutError) as error:
            log.error("conversation %s is not wholly on the record: %s", self.conversation, str(error) or "too slow")
            return None

    def _report(
        self, status: TurnStatus, failed_over: Sequence[Failed], attempt: Attempt | None, reply: Reply
    ) -> TurnReport:
        question = self._question
        answering: dict[str, Any] = {}
        if attempt is not None:
            call, number = self._call_of(attempt.model.alias)
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
            use=Use() if self.told else self.used.in_budget,
            failed_over=failed_over,
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

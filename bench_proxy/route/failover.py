"""Which member is asked next when one fails, and what the caller is told when none is left (pure)."""

import math
from collections.abc import Sequence

from bench_proxy.catalog import Model
from bench_proxy.errors import BenchError, ContextOverflow, InvalidRequest, TurnFailed, UpstreamError
from bench_proxy.route.keeping import Failed

LONGEST_WAIT = 60
"""Seconds of Retry-After at most: some clients sleep as long as they are told, without a word."""

TRANSIENT = frozenset(
    {"bad_response", "connection", "cooling", "internal", "overloaded", "rate_limit", "server_error", "timeout"}
)
"""Kinds of failure that may be gone when one asks again."""

CALLERS_OWN = frozenset({400, 413, 422})
"""Statuses of a bad request that every member would answer with, since what was asked is at fault."""


class Failover:
    """The members that are still to be asked in one turn, best first, at most `attempts` of them."""

    def __init__(self, members: Sequence[Model], *, attempts: int, tokens: int) -> None:
        self._left = list(members)
        self._attempts = attempts
        self._tokens = tokens
        self._overflowed: int | None = None
        self._errors: list[tuple[Model, UpstreamError]] = []

    @property
    def failed(self) -> tuple[Failed, ...]:
        return tuple(Failed(model.alias, error.status, error.kind, error.message) for model, error in self._errors)

    @property
    def over(self) -> bool:
        """Whether nobody else is asked, whoever there is: the attempts are used up, or what was asked is at fault."""
        return self._attempts <= 0 or bool(self._errors and _is_callers_own(self._errors[-1][1]))

    def attempts_left(self, unranked: int = 0) -> int:
        """How many more may be asked; `unranked` are those that are still to be added."""
        return min(len(self._left) + unranked, self._attempts)

    def add(self, members: Sequence[Model]) -> None:
        """Behind those that are there, whoever has failed already not again."""
        asked = {model.alias for model, _ in self._errors}
        self._left += [model for model in members if model.alias not in asked and model not in self._left]
        self._make_room()

    def next(self) -> Model | None:
        """Who is asked now; None when nobody is left, or nobody else is to be asked."""
        if self.over or not self._left:
            return None
        self._attempts -= 1
        return self._left.pop(0)

    def failed_with(self, model: Model, error: UpstreamError) -> None:
        self._errors.append((model, error))
        if error.kind == "context_window":
            window = error.context_window or model.context_window or 0
            self._overflowed = max(window, self._overflowed or 0)
            self._make_room()

    def _make_room(self) -> None:
        """What was too long for one can only be taken by a member with a larger window, or one that nobody knows."""
        if (window := self._overflowed) is None:
            return
        self._left = [m for m in self._left if m.context_window is None or m.context_window > window]
        self._left.sort(key=lambda m: -(m.context_window or 0))

    def refusal(self, collection: str) -> BenchError:
        """What the caller is told when nobody answered."""
        if not self._errors:
            words = f"the time for this turn was over before a member of bench/{collection} could be asked"
            return TurnFailed(f"{words}; leave bench.deadline out, or make it longer", status=504)
        last = self._errors[-1][1]
        named = "; ".join(f"{model.alias}: {_said(error)}" for model, error in self._errors)
        if _is_callers_own(last):
            # In the member's own words, since they say what to change.
            return InvalidRequest(f"{self._errors[-1][0].alias} refused the request: {last.message}", code=last.kind)
        kinds = {error.kind for _, error in self._errors}
        if "context_window" in kinds:
            stated = [error.context_window or model.context_window for model, error in self._errors]
            windows = [window for window in stated if window is not None]
            return ContextOverflow(self._tokens, max(windows, default=None))
        words = f"no member of bench/{collection} answered: {named}"
        if kinds <= {"rate_limit", "cooling"}:
            return TurnFailed(words, status=429, retry_after=self._wait())
        if kinds == {"timeout"}:
            return TurnFailed(words, status=504)
        return TurnFailed(words, status=502, hopeless=kinds.isdisjoint(TRANSIENT))

    def _wait(self) -> int:
        """The smallest wait that was stated, in whole seconds, at least one."""
        stated = [error.retry_after for _, error in self._errors if error.retry_after is not None]
        return max(1, min(math.ceil(min(stated, default=LONGEST_WAIT)), LONGEST_WAIT))


def _is_callers_own(error: UpstreamError) -> bool:
    return error.kind == "bad_request" and error.status in CALLERS_OWN


def _said(error: UpstreamError) -> str:
    return f"{error.status} {error.kind}"

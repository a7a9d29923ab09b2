"""Who is let in: callers with a bench key by what the ledger says of it, all others by LiteLLM."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from starlette.types import Receive, Scope

from bench_proxy.bench import Caller
from bench_proxy.config import MODEL_PREFIX
from bench_proxy.errors import BudgetSpent, LedgerUnavailable, Overloaded
from bench_proxy.http.answering import Authenticate
from bench_proxy.http.sent_keys import SENT, Sent
from bench_proxy.keys import BenchKey, KeyStore, Use, judged, payer_of

FRESH_SECONDS = 1.0
"""How long what was read of a key is believed: so long a revoked one may go on."""

MOST_REMEMBERED = 10_000
"""Keys, those that do not exist included."""

SEEN_SECONDS = 60
"""How exactly it is kept when a key was used last, where its requests are not counted."""

PATIENCE_SECONDS = 1.0
AGAIN_SECONDS = 0.1
"""How long a request waits for others of its key to be done, where they may use up the day's budget, and how often it
looks: so one that comes right behind another finds what that one has really used.
"""


def _any_body(_body: Mapping[str, Any]) -> None:
    return


class Admission:
    """An `Authenticate` before LiteLLM's own. `charge` says whom the calls of this context are billed to; `collections`
    are those that are configured now; `check` raises Denied for a body that the host would not take with a key of its
    own either.
    """

    def __init__(
        self,
        host: Authenticate,
        store: Callable[[], KeyStore],
        charge: Callable[[Mapping[str, Any]], None],
        collections: Callable[[], Collection[str]],
        check: Callable[[Mapping[str, Any]], None] = _any_body,
    ) -> None:
        self._host = host
        self._check = check
        self._store = store
        self._charge = charge
        self._collections = collections
        self._known: dict[str, tuple[float, BenchKey | None]] = {}
        self._background: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, body: Mapping[str, Any] | None) -> Caller:
        """Raises Denied for a key that is not good, Overloaded for one that asks too often; LedgerUnavailable."""
        sent: Sent | None = scope.get(SENT)
        if sent is None:
            return await self._host(scope, receive, body)
        key = judged(await self._look_up(sent.digest), sent.digest, _now_ms())
        if body is not None:
            self._check(body)
            await self._count(key)
            self._charge(payer_of(key))
        return self._caller(key)

    async def _look_up(self, digest: str) -> BenchKey | None:
        if not digest:
            return None
        read, key = self._known.get(digest, (0.0, None))
        if time.monotonic() - read > FRESH_SECONDS or not read:
            # From before it is read: what is revoked meanwhile is believed no longer than any other.
            read = time.monotonic()
            key = await self._store().bench_key(digest)
            self._remember(digest, read, key)
        return key

    def _remember(self, digest: str, read: float, key: BenchKey | None) -> None:
        self._known.pop(digest, None)
        self._known[digest] = (read, key)
        if len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]

    async def _count(self, key: BenchKey) -> None:
        now = _now_ms()
        if key.limits.requests_a_minute is not None:
            await self._store().count_request(key, now)
        elif now - (key.last_used_ms or 0) > 1000 * SEEN_SECONDS:
            self._later(self._store().count_request(key, now))

    def _caller(self, key: BenchKey) -> Caller:
        async def allowed(models: Collection[str]) -> list[str]:
            """Collections: a bench key calls no model by itself, and so may seat no guest. LiteLLM may have a model
            whose name looks like one.
            """
            ours = {f"{MODEL_PREFIX}{name}" for name in self._collections() if key.may_call(name)}
            return [model for model in models if model in ours]

        hold = partial(self._holding, key) if key.limits.of_day else None
        return Caller(owner=key.id, admin=False, allowed=allowed, checked=False, hold=hold)

    @asynccontextmanager
    async def _holding(self, key: BenchKey, most: Use, seconds: float) -> AsyncIterator[None]:
        """Set aside what a request may use, until it is done. Raises BudgetSpent, Overloaded."""
        hold, refused = secrets.token_hex(16), False
        try:
            try:
                await self._set_aside(hold, key, most, seconds)
            except Overloaded:
                refused = True
                raise
            yield
        finally:
            # Not waited for: who was cancelled ends at once. What it has used was put into the ledger before.
            if not refused:
                self._later(self._store().let_go(hold))

    async def _set_aside(self, hold: str, key: BenchKey, most: Use, seconds: float) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            now = _now_ms()
            try:
                await self._store().hold(hold, key, most, now + round(1000 * seconds), now)
                return
            except BudgetSpent:
                raise
            except Overloaded:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(_quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _quietly(work: Any) -> None:
    with suppress(LedgerUnavailable, Overloaded):  # said elsewhere already; what was set aside ends by itself
        await work


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Pins shared with other processes through the Redis of LiteLLM's cache, where the operator configured one."""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

from litellm import Router

from bench_proxy.route.keeping import Pin

log = logging.getLogger("bench_proxy")

PREFIX = "bench:pin:"

MOST_REMEMBERED = 100_000
"""Conversations in the memory of one process; the record knows the others."""

REDIS_SECONDS = 1.0
"""How long a turn waits for Redis to say who is pinned, or to be told."""

MOST_CALLS = 64
MOST_TURNS = 2**31


class Memory:
    """Pins of this process. LiteLLM's own memory does not prolong what is there, and keeps 200 values of all kinds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST_REMEMBERED) -> None:
        self._clock = clock
        self._most = most
        self._pins: OrderedDict[str, tuple[float, Pin]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def get(self, key: str) -> Pin | None:
        until, pin = self._pins.get(key, (0.0, None))
        return pin if self._clock() < until else None

    def put(self, key: str, pin: Pin, seconds: float) -> None:
        self._pins[key] = (self._clock() + seconds, pin)
        self._pins.move_to_end(key)
        while self._is_first_to_go():
            self._pins.popitem(last=False)

    def _is_first_to_go(self) -> bool:
        """Whether the pin that was put longest ago is to be forgotten; it is the first that expires."""
        until, _ = next(iter(self._pins.values()), (math.inf, None))
        return until <= self._clock() or len(self._pins) > self._most


class HostPins:
    """Implements `route.keeping.Pins`. Redis is asked first, since another process may have pinned another model;
    without it, or while it fails, this process's memory says what it knows.
    """

    def __init__(self, router: Callable[[], Router | None]) -> None:
        self._router = router
        self._memory = Memory()
        self._reachable = True

    async def get(self, key: str) -> Pin | None:
        if (redis := self._redis()) is not None:
            try:
                async with asyncio.timeout(REDIS_SECONDS):
                    found = await redis.async_get_cache(PREFIX + key)
            except Exception as error:  # noqa: BLE001  conversations go on without Redis
                self._told(reachable=False, why=type(error).__name__)
            else:
                if (pin := _read(found)) is not None:
                    return pin
        return self._memory.get(key)

    async def put(self, keys: Collection[str], pin: Pin, seconds: float) -> None:
        for key in keys:
            self._memory.put(key, pin, seconds)
        if (redis := self._redis()) is None:
            return
        written = {"conversation": pin.conversation, "alias": pin.alias, "calls": list(pin.calls), "turns": pin.turns}
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                ttl = max(1, math.ceil(seconds))
                await asyncio.gather(*(redis.async_set_cache(PREFIX + key, written, ttl=ttl) for key in keys))
        except Exception as error:  # noqa: BLE001  conversations go on without Redis
            self._told(reachable=False, why=type(error).__name__)
        else:
            self._told(reachable=True)

    def _redis(self) -> Any:
        router = self._router()
        return None if router is None else router.cache.redis_cache

    def _told(self, *, reachable: bool, why: str = "") -> None:
        if reachable != self._reachable:
            log.warning("who is pinned is %s", "shared again" if reachable else f"not shared: Redis fails ({why})")
        self._reachable = reachable


def _read(found: object) -> Pin | None:
    """What cannot have been written by us is no pin."""
    if not isinstance(found, dict):
        return None
    conversation, alias, calls, turns = (found.get(name) for name in ("conversation", "alias", "calls", "turns"))
    named = isinstance(conversation, str) and isinstance(alias, str) and conversation != ""
    listed = isinstance(calls, list) and len(calls) <= MOST_CALLS and all(isinstance(call, str) for call in calls)
    counted = isinstance(turns, int) and not isinstance(turns, bool) and 0 <= turns <= MOST_TURNS
    if not (named and listed and counted):
        return None
    return Pin(conversation, alias, tuple(calls), turns)  # type: ignore[arg-type]

"""Cooling shared with other processes through LiteLLM's cache, and LiteLLM's own cooldown of deployments."""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from litellm import Router

from bench_proxy.cooling import LONGEST_STATED, MOST_FAILURES, REMEMBERED, Cooled, NotShared

log = logging.getLogger("bench_proxy")

PREFIX = "bench:cooling:"

LATEST_MS = 2**53
"""What a float holds exactly."""


class HostCooling:
    """Implements `cooling.SharedCooling` over the router's `DualCache`: its Redis where the operator configured one.

    Its memory is not used: it is this process's alone, and would hide what others wrote. In Redis times stand as
    milliseconds since the epoch, the one clock that processes share; here they are the asking process's own.
    """

    def __init__(self, router: Callable[[], Router | None]) -> None:
        self._router = router
        self._reachable = True

    async def exchange(
        self, changed: Mapping[str, Cooled | None], aliases: Collection[str], now: float
    ) -> Mapping[str, Cooled] | None:
        router = self._router()
        redis = None if router is None else router.cache.redis_cache
        if redis is None:
            return None
        try:
            known = await _exchange(redis, changed, aliases, time.time() - now)
        except Exception as error:  # cooling is a help: without Redis each process has its own
            self._told(reachable=False, why=type(error).__name__)
            raise NotShared from error
        if known is None:
            self._told(reachable=False)
            raise NotShared
        self._told(reachable=True)
        return known

    async def hosts(self, aliases: Collection[str], now: float) -> Mapping[str, float]:
        router = self._router()
        if router is None:
            return {}
        left = await cooldowns(router)
        until = {}
        for alias in aliases if left else ():
            deployments = [d["model_info"]["id"] for d in router.get_model_list(model_name=alias) or ()]
            if deployments and all(id in left for id in deployments):
                until[alias] = now + min(left[id] for id in deployments)
        return until

    def _told(self, *, reachable: bool, why: str = "") -> None:
        if reachable != self._reachable:
            log.warning("cooling is %s", "shared again" if reachable else f"not shared: Redis fails {why}".rstrip())
        self._reachable = reachable


async def cooldowns(router: Router) -> dict[str, float]:
    """For how many seconds more LiteLLM does not ask a deployment, by its id."""
    now = time.time()
    active = await router.cooldown_cache.async_get_active_cooldowns(
        model_ids=router.get_model_ids(), parent_otel_span=None
    )
    return {id: value["timestamp"] + value["cooldown_time"] - now for id, value in active}


async def _exchange(
    redis: Any, changed: Mapping[str, Cooled | None], aliases: Collection[str], epoch: float
) -> Mapping[str, Cooled] | None:
    """`epoch` is what the clock of this process lacks of the time since 1970. None when Redis cannot be read."""
    for alias, cooled in changed.items():
        if cooled is None:
            await redis.async_delete_cache(PREFIX + alias)
        else:
            ttl = math.ceil(cooled.until + REMEMBERED - (time.time() - epoch))
            await redis.async_set_cache(PREFIX + alias, _written(cooled, epoch), ttl=max(1, ttl))
    if not aliases:
        return {}
    found = await redis.async_batch_get_cache([PREFIX + alias for alias in aliases])
    if len(found) < len(set(aliases)):  # LiteLLM keeps a failed read to itself
        return None
    return _read(((alias, found.get(PREFIX + alias)) for alias in aliases), epoch)


def _written(cooled: Cooled, epoch: float) -> dict[str, int]:
    at, until = (round((moment + epoch) * 1000) for moment in (cooled.at, cooled.until))
    return {"failures": cooled.failures, "at_ms": at, "until_ms": until}


def _read(found: Iterable[tuple[str, object]], epoch: float) -> dict[str, Cooled]:
    """What cannot have been written by us is left out; a clock that is wrong elsewhere cools for an hour at most."""
    latest = time.time() - epoch + LONGEST_STATED
    cooled = {}
    for alias, value in found:
        if not isinstance(value, dict):
            continue
        numbers = [value.get(name) for name in ("failures", "at_ms", "until_ms")]
        failures, at_ms, until_ms = (n if isinstance(n, int | float) else math.nan for n in numbers)
        # Compared before anything is computed: neither NaN nor a number beyond all floats passes.
        if not (0 <= failures <= MOST_FAILURES and 0 <= at_ms < LATEST_MS and 0 <= until_ms < LATEST_MS):
            continue
        at, until = (min(ms / 1000 - epoch, latest) for ms in (at_ms, until_ms))
        cooled[alias] = Cooled(int(failures), at, until)
    return cooled

"""Tells LiteLLM of the lean lane's calls: its cooldowns at once, its callbacks and spend logs in the background.

LiteLLM's own logging costs many times what a call costs. It is run only when something listens: a callback of the
operator's, a database that keeps spend, a limit that counts tokens.
"""

import asyncio
import logging
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import litellm
from litellm import Router
from litellm.constants import LOGGING_WORKER_CONCURRENCY
from litellm.types.utils import ModelResponse
from litellm.utils import Rules, function_setup

log = logging.getLogger("bench_proxy")

MOST_WAITING = 500
"""Calls whose report waits, each with its messages; above it calls are left to the router lane."""

TOLD_AT_ONCE = LOGGING_WORKER_CONCURRENCY
"""Calls that are being reported: as many as LiteLLM's own worker has, so that a slow callback gets as far with both."""

TOLD_WITHIN = 30.0
CLOSED_WITHIN = 30.0
"""Seconds that a callback of the operator's may take, and all of them together at the end."""

CANCELLED_WITHIN = 5.0
"""Seconds in which a callback that was cancelled ends, before nobody waits for it any more."""

OWN = frozenset(
    {
        "PromptCacheObserver",
        "ResponsesIDSecurity",
        "Router",
        "ServiceLogging",
        "SkillsInjectionHook",
        "_PROXY_CacheControlCheck",
        "_PROXY_MaxBudgetPerSessionHandler",
        "_PROXY_MaxIterationsHandler",
        "_PROXY_MaxParallelRequestsHandler_v3",
        "_PROXY_SensitiveDataRoutingHandler",
        "_PROXY_VirtualKeyModelMaxBudgetLimiter",
    }
)
"""LiteLLM's own hooks, to which a finished call tells nothing where there is no database and no key has limits."""

LISTS = ("success_callback", "failure_callback", "_async_success_callback", "_async_failure_callback")


@dataclass(frozen=True, slots=True)
class Finished:
    """A call that ended, as LiteLLM's logging wants to know it. Times are seconds since the epoch."""

    alias: str
    deployment: Mapping[str, Any]
    provider: str
    model: str
    messages: Any
    params: Mapping[str, Any]
    metadata: Mapping[str, Any]
    began: float
    ended: float
    response: ModelResponse | None = None
    error: Exception | None = None
    cost: float | None = None
    stream: bool = False


class Reporting:
    """Reports in the background, in the order in which calls ended, several at once; `close` reports what still waits.

    Nobody waits for it: who makes calls asks `full` before each, and makes no more of them while it is.
    """

    def __init__(self, *, limits: Callable[[], bool] = lambda: False) -> None:
        """`limits` says whether LiteLLM has keys with limits or budgets to keep: then every call counts."""
        self._limits = limits
        self._seen: tuple[object, ...] = ()
        self._heard = False
        self._waiting: deque[Finished] = deque()
        self._telling: set[asyncio.Task[None]] = set()

    def listens(self) -> bool:
        """Whether anyone in this process wants to hear of finished calls. Cheap: asked for each call."""
        if self._limits():
            return True
        seen = tuple(id(callback) for name in LISTS for callback in getattr(litellm, name))
        if seen != self._seen:
            self._seen = seen
            self._heard = any(_name(callback) not in OWN for name in LISTS for callback in getattr(litellm, name))
        return self._heard

    def full(self) -> bool:
        """Whether so many reports wait that a call had better be made where somebody else reports it."""
        return len(self._waiting) >= MOST_WAITING

    def ended(self, call: Finished) -> None:
        """Take a call that ended; its answer is on its way already, whatever the callbacks do."""
        if not self.listens():
            return
        self._waiting.append(call)
        if len(self._telling) < TOLD_AT_ONCE:
            self._tell_on()

    def _tell_on(self) -> None:
        self._telling.add(asyncio.create_task(self._tell_waiting(), name="bench-reporting"))

    async def close(self) -> None:
        """Report all that waits, and what ends meanwhile; give up on what a callback holds up for too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSED_WITHIN):
                while self._telling or self._waiting:
                    if not self._telling:  # an event loop that ends has cancelled those who told
                        self._tell_on()
                    await asyncio.wait(self._telling)
        if self._telling:
            log.error("LiteLLM was not told of %d calls", len(self._telling) + len(self._waiting))
            self._waiting.clear()
            stopped, self._telling = self._telling, set()
            for task in stopped:
                task.cancel()
            await asyncio.wait(stopped, timeout=CANCELLED_WITHIN)

    async def _tell_waiting(self) -> None:
        try:
            while self._waiting:
                await _told(self._waiting.popleft())
                # Callbacks that never wait would otherwise hold the event loop for a whole backlog.
                await asyncio.sleep(0)
        finally:
            # By itself and at once: one that has found nothing waiting must not be counted when the next call ends.
            self._telling -= {asyncio.current_task()}


async def _told(call: Finished) -> None:
    try:
        async with asyncio.timeout(TOLD_WITHIN):
            await _tell(call)
    except Exception:
        log.exception("LiteLLM could not be told of a call to %s", call.alias)


def cool(router: Router, alias: str, deployment: Mapping[str, Any], error: Exception) -> None:
    """What LiteLLM's router does with a failed call: it decides whether the deployment rests, and for how long."""
    kwargs = {
        "exception": error,
        "litellm_params": {"model_info": deployment.get("model_info"), "metadata": {"model_group": alias}},
    }
    router.deployment_callback_on_failure(kwargs, None, None, None)


async def _tell(call: Finished) -> None:
    """LiteLLM's own logging of one call, as its router would have had it."""
    info = dict(call.deployment.get("model_info") or {})
    metadata = {
        **call.metadata,
        "model_group": call.alias,
        "deployment": call.deployment["litellm_params"]["model"],
        "model_info": info,
        "api_base": call.deployment["litellm_params"].get("api_base"),
    }
    logging_obj, _ = function_setup(
        original_function="acompletion",
        litellm_call_id=str(uuid.uuid4()),
        rules_obj=Rules(),
        start_time=_when(call.began),
        model=call.model,
        messages=call.messages,
        metadata=metadata,
        stream=call.stream,
    )
    logging_obj.update_environment_variables(
        litellm_params={"metadata": metadata, "model_info": info, "acompletion": True},
        optional_params=dict(call.params),
        model=call.model,
        custom_llm_provider=call.provider,
    )
    began, ended = (_when(t) for t in (call.began, call.ended))
    if call.error is not None:
        text = "".join(traceback.format_exception_only(call.error))
        await logging_obj.dispatch_failure_handlers(call.error, text, prefer_async_handlers=True)
    else:
        await logging_obj.dispatch_success_handlers(call.response, began, ended, False, prefer_async_handlers=True)


def _when(seconds: float) -> datetime:
    """LiteLLM compares these with times of its own, which have no time zone."""
    return datetime.fromtimestamp(seconds)  # noqa: DTZ006


def _name(callback: object) -> str:
    owner = getattr(callback, "__self__", callback)
    return owner if isinstance(owner, str) else type(owner).__name__

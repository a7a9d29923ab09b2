"""Tells LiteLLM of the lean lane's calls: its cooldowns at once, its callbacks and spend logs in the background.

LiteLLM's own logging costs many times what a call costs. It is run only when something listens: a callback of the
operator's, a database that keeps spend, a limit that counts tokens.
"""

import asyncio
import logging
import traceback
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import litellm
from litellm import Router
from litellm.types.utils import ModelResponse
from litellm.utils import Rules, function_setup

log = logging.getLogger("bench_proxy")

MOST_WAITING = 500
"""Calls whose report waits, each with its messages; above it the lane waits too, so that none is lost."""

TOLD_WITHIN = 30.0
CLOSED_WITHIN = 30.0
"""Seconds that a callback of the operator's may take, and all of them together at the end."""

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
    """One background task that reports in the order in which calls ended; `close` reports what still waits."""

    def __init__(self, *, limits: Callable[[], bool] = lambda: False) -> None:
        """`limits` says whether LiteLLM has keys with limits or budgets to keep: then every call counts."""
        self._limits = limits
        self._seen: tuple[object, ...] = ()
        self._heard = False
        self._waiting: asyncio.Queue[Finished] = asyncio.Queue(MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def listens(self) -> bool:
        """Whether anyone in this process wants to hear of finished calls. Cheap: asked for each call."""
        if self._limits():
            return True
        seen = tuple(id(callback) for name in LISTS for callback in getattr(litellm, name))
        if seen != self._seen:
            self._seen = seen
            self._heard = any(_name(callback) not in OWN for name in LISTS for callback in getattr(litellm, name))
        return self._heard

    async def ended(self, call: Finished) -> None:
        if not self.listens():
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="bench-reporting")
        await self._waiting.put(call)

    async def close(self) -> None:
        """Report all that waits, then stop."""
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSED_WITHIN):
                    await self._waiting.join()
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while True:
            call = await self._waiting.get()
            try:
                async with asyncio.timeout(TOLD_WITHIN):
                    await _tell(call)
            except Exception:
                log.exception("LiteLLM could not be told of a call to %s", call.alias)
            finally:
                self._waiting.task_done()


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

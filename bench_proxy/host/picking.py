"""Which deployment of a model is asked: LiteLLM's router says so, by health, cooldowns and weights."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import litellm
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy.hooks.model_max_budget_limiter import PROXY_VirtualKeyModelMaxBudgetLimiter

PICKED_SECONDS = 0.1
"""How long the only deployment of a model is not asked for again: a pick costs as much as writing the request and
reading its answer, and a busy process makes hundreds a second. So long a cooldown that LiteLLM's own calls began may go
unseen; one that ours begin is seen at once.
"""

LETS_ALL = (CustomLogger.async_filter_deployments, PROXY_VirtualKeyModelMaxBudgetLimiter.async_filter_deployments)
"""Callbacks' filters that leave the deployments as they are."""


class Picking:
    def __init__(self) -> None:
        self._only: dict[str, bool] = {}
        self._picked: dict[str, tuple[float, Mapping[str, Any]]] = {}

    async def deployment(self, router: Router, alias: str, tags: Sequence[str]) -> Mapping[str, Any]:
        """Raises LiteLLM's error where none can be asked."""
        until, picked = self._picked.get(alias, (0.0, None))
        if picked is not None and time.monotonic() < until:
            return picked
        asked = {"metadata": {"tags": list(tags)}}
        picked = dict(await router.async_get_available_deployment(model=alias, request_kwargs=asked, messages=None))
        if alias not in self._only:
            self._only[alias] = _is_only(router, alias)
        if self._only[alias]:
            self._picked[alias] = (time.monotonic() + PICKED_SECONDS, picked)
        return picked

    def failed(self, alias: str) -> None:
        """It may rest now."""
        self._picked.pop(alias, None)

    def changed(self) -> None:
        """The router, its models or its callbacks are others now."""
        self._only.clear()
        self._picked.clear()


def _is_only(router: Router, alias: str) -> bool:
    """Whether a model has one deployment, and whether that can be asked depends on no single call."""
    if router.enable_tag_filtering or len(router.get_model_list(model_name=alias) or ()) != 1:
        return False
    choosing = {getattr(type(callback), "async_filter_deployments", None) for callback in litellm.callbacks}
    return choosing <= {None, *LETS_ALL}

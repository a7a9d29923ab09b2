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
        self._changes = 0

    async def deployment(self, router: Router, alias: str, tags: Sequence[str]) -> Mapping[str, Any]:
        """Raises LiteLLM's error where none can be asked."""
        until, picked = self._picked.get(alias, (0.0, None))
        if picked is not None and time.monotonic() < until:
            return picked
        before, asked = self._changes, {"metadata": {"tags": list(tags)}}
        picked = dict(await router.async_get_available_deployment(model=alias, request_kwargs=asked, messages=None))
        # What has changed while the router was asked may have changed its mind.
        if self._changes == before and self._is_only(router, alias):
            self._picked[alias] = (time.monotonic() + PICKED_SECONDS, picked)
        return picked

    def failed(self, deployment: Mapping[str, Any]) -> None:
        """It may rest now, whatever names it is called by."""
        self._changes += 1
        id = deployment["model_info"]["id"]
        self._picked = {alias: kept for alias, kept in self._picked.items() if kept[1]["model_info"]["id"] != id}

    def changed(self) -> None:
        """The router, its models or its callbacks are others now."""
        self._changes += 1
        self._picked.clear()
        self._only.clear()

    def _is_only(self, router: Router, alias: str) -> bool:
        if alias not in self._only:
            deployments = router.get_model_list(model_name=alias) or ()
            self._only[alias] = len(deployments) == 1 and not chosen_by_call(router)
        return self._only[alias]


def chosen_by_call(router: Router) -> bool:
    """Whether it may depend on the single call which deployment is asked, or whether one can be."""
    filters = {getattr(type(callback), "async_filter_deployments", None) for callback in litellm.callbacks}
    own_strategy = "async_get_available_deployment" in vars(router)
    tags_or_plugins = router.enable_tag_filtering or bool(router.routing_plugins)
    return tags_or_plugins or own_strategy or not filters <= {None, *LETS_ALL}

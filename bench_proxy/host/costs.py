"""What an answer cost, by the prices that LiteLLM knows."""

from collections.abc import Mapping
from typing import Any

import litellm
from litellm import ModelResponse
from litellm.types.utils import Usage

SIMPLE = frozenset({"input_cost_per_token", "output_cost_per_token"})


def cost_of(deployment: Mapping[str, Any], usage: Any, *, model: str, provider: str) -> float | None:
    """US dollars for this usage: by the deployment's own prices before LiteLLM's map; None when it knows none.

    LiteLLM's function is left to what needs it (caches, tiers, reasoning): it costs ten times a multiplication.
    """
    try:
        usage = usage if isinstance(usage, Usage) else Usage(**usage)
    except (TypeError, ValueError):  # what a server says of its tokens may be anything
        return None
    own = deployment.get("model_info") or {}
    prices = own if own.get("input_cost_per_token") is not None else deployment["litellm_params"]
    if prices.get("input_cost_per_token") is not None:
        if {name for name, value in prices.items() if "_cost" in name and value is not None} <= SIMPLE:
            prompt = (usage.prompt_tokens or 0) * float(prices["input_cost_per_token"])
            return float(prompt + (usage.completion_tokens or 0) * float(prices.get("output_cost_per_token") or 0))
        model = own.get("id") or model  # the router registers a deployment's prices under its id
    try:
        answer = ModelResponse(model=model, usage=usage)
        return float(litellm.completion_cost(answer, model=model, custom_llm_provider=provider))
    except Exception:  # noqa: BLE001  LiteLLM raises for a model that it has no price of
        return None

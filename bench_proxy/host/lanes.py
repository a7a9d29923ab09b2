"""Which lane a model takes, and why: the lean one unless something is set that only LiteLLM's router honours."""

import os
import re
from collections.abc import Mapping, Set
from typing import Any

import litellm
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger

from bench_proxy.host import models
from bench_proxy.host.request import DEFAULTS, target_of
from bench_proxy.host.slots import LIMITS

PROVEN = frozenset(
    {
        "anthropic",
        "azure",
        "cerebras",
        "deepinfra",
        "deepseek",
        "fireworks_ai",
        "groq",
        "hosted_vllm",
        "mistral",
        "nvidia_nim",
        "openai",
        "openrouter",
        "perplexity",
        "together_ai",
        "xai",
    }
)
"""Providers whose calls the conformance tests have compared, byte by byte, on both lanes."""

HONOURED = frozenset(
    {
        # In the router's choice of a deployment, and in its count of the calls in flight.
        "order",
        "weight",
        *LIMITS,
        # In the request.
        "api_base",
        "api_key",
        "api_version",
        "base_url",
        "custom_llm_provider",
        "drop_params",
        "model",
        *DEFAULTS,
        # In the cost.
        "input_cost_per_token",
        "output_cost_per_token",
        # By neither lane: a call has one attempt, and a time limit of its own that comes before the deployment's.
        "max_retries",
        "num_retries",
        "timeout",
    }
)
"""What a deployment may set and still be called without the router; anything else is the router's to understand."""

HONOURED_DEFAULTS = frozenset({"metadata", "timeout", "max_retries"})
"""What the router's own defaults may hold without changing what a provider gets."""

UNSAID: tuple[object, ...] = (None, False, [], {})
"""Values of a deployment's parameter that say nothing."""

ENVIRONMENT = (
    "ANTHROPIC_API_BASE",
    "ANTHROPIC_BASE_URL",
    "LITELLM_ANTHROPIC_DISABLE_URL_SUFFIX",
    "OPENAI_ORGANIZATION",
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
    "OPENAI_API_BASE",
    "OPENAI_BASE_URL",
)
"""Settings of the process that change how LiteLLM reaches a provider."""

DATED_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(?:-preview)?")

NO_KEY = "its key is not in the deployment"


def why_router(router: Router | None, alias: str, forced: str, proven: Set[str] = PROVEN) -> str:
    """Why the model takes the router lane; empty when it takes the lean one.

    `forced` is what the configuration says: `router`, or `lean`, which overrides `proven`, or `auto`.
    """
    if forced == "router":
        return "the configuration says so"
    if router is None:
        return "LiteLLM has no models"
    deployments = router.get_model_list(model_name=alias) or []
    if "*" in "".join(d["model_name"] for d in deployments) or not deployments:
        return "a wildcard serves it"
    reasons = (_needs_of_process(router), *(_needs(d, None if forced == "lean" else proven) for d in deployments))
    return next((why for why in reasons if why), "")


def shown(why: str) -> dict[str, str]:
    """A lane as `GET /bench/models` shows it, and why it is the router's when it is."""
    return {"lane": "router", "lane_because": why} if why else {"lane": "lean"}


def lanes_of(model_list: list[dict[str, Any]], forced: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The lane of each model of a configuration that is not running."""
    router = Router(model_list=model_list)
    aliases = [alias for alias in router.get_model_names() if "*" not in alias]
    lanes = {alias: shown(why_router(router, alias, forced.get(alias, "auto"))) for alias in aliases}
    for entry in model_list:
        found = lanes.get(str(entry.get("model_name")), {})
        variable = str(entry.get("litellm_params", {}).get("api_key")).partition("os.environ/")[2]
        if found.get("lane_because") == NO_KEY and variable and not os.environ.get(variable):
            found["lane_because"] = f"{variable} is not set here"
    return lanes


def of_process(router: Router | None) -> object:
    """Changes when what the whole process is set up for may have changed; cheap, since it is asked for each call."""
    if router is None:
        return None
    callbacks = tuple(id(callback) for callback in litellm.callbacks)
    checks = (bool(router.optional_callbacks), router.enable_tag_filtering, bool(router.routing_plugins))
    return (litellm.cache is None, litellm.api_base, bool(litellm.headers), checks, callbacks)


def _needs_of_process(router: Router) -> str:
    """What the whole process is set up for that only the router's way of calling does."""
    if litellm.cache is not None or router.cache_responses:
        return "LiteLLM caches answers"
    if router.routing_strategy != "simple-shuffle":
        return f"the router's strategy is {router.routing_strategy}"
    if litellm.api_base or litellm.headers:
        return "litellm_settings change the address or the headers of every call"
    if router.stream_timeout or router.request_timeout:
        return "the router has a time limit for streams"
    if router.enable_pre_call_checks or router.optional_callbacks:
        return "the router checks calls before they are made"
    defaults = router.default_litellm_params
    if any(value not in UNSAID for name, value in defaults.items() if name not in HONOURED_DEFAULTS):
        return "the router has settings for every call"
    for callback in litellm.callbacks:
        hook = getattr(type(callback), "async_pre_call_deployment_hook", None)
        if hook is not None and hook is not CustomLogger.async_pre_call_deployment_hook:
            return f"the callback {type(callback).__name__} changes calls to deployments"
    set_here = [name for name in ENVIRONMENT if os.environ.get(name)]
    return f"{set_here[0]} is set" if set_here else ""


def _needs(deployment: Mapping[str, Any], proven: Set[str] | None) -> str:
    """What this deployment is set up for that only the router's way of calling does."""
    params = deployment["litellm_params"]
    unknown = [name for name, value in params.items() if name not in HONOURED and value not in UNSAID]
    if unknown:
        return f"the deployment sets {unknown[0]}"
    # By its name first: for some providers LiteLLM's look-up signs in to them.
    provider = str(params.get("custom_llm_provider") or models.provider_of(params["model"]))
    if proven is not None and provider not in proven:
        return f"{provider or 'its provider'} has not been compared on both lanes"
    target = target_of(deployment)
    if target.config is None or target.config.uses_async_transform_request or target.config.has_custom_stream_wrapper:
        return f"LiteLLM calls {target.provider} by a way of its own"
    if target.provider == "azure" and not DATED_VERSION.fullmatch(str(params.get("api_version"))):
        return "its api_version is not a date"
    return "" if params.get("api_key") or target.provider == "hosted_vllm" else NO_KEY

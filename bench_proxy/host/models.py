"""What LiteLLM's router was told of its models, and what LiteLLM's model map says of them, as our catalog takes it."""

import os
from collections.abc import Mapping
from typing import Any

import litellm
from litellm import Router
from litellm.litellm_core_utils.fallback_generalizations import match_capability_generalizations
from litellm.litellm_core_utils.get_model_cost_map import GetModelCostMap
from litellm.types.utils import LlmProvidersSet
from litellm.utils import get_potential_model_names

from bench_proxy.catalog import HostFacts, Mapped
from bench_proxy.config import MODEL_PREFIX, panel_names

CHATTING = frozenset({"chat", "completion", "responses"})
"""The modes of models that answer messages."""


def hosted(router: Router | None) -> list[HostFacts]:
    """One entry a deployment; wildcards (`openai/*`) name no model of their own and are left out, as are collections
    and all other names that begin like one, which nobody can call.

    Costs some 0.03 ms a deployment: call it when the router or the configuration changed, not on each request.
    """
    if router is None:
        return []
    left_out = panels(router)
    names = dict.fromkeys(name for name in router.get_model_names() if "*" not in name and name not in left_out)
    models = [name for name in names if not name.lower().startswith(MODEL_PREFIX)]
    return [facts for name in models for facts in found(router, name)]


def panels(router: Router) -> frozenset[str]:
    """The names of models that are collections: an entry of `model_list` says `model: bench/…`."""
    entries = [{"model_name": d.get("model_name"), "litellm_params": _params(d)} for d in router.model_list]
    return panel_names(entries, router.model_group_alias or {})


def found(router: Router | None, alias: str) -> list[HostFacts]:
    """The deployments behind a name, those of a wildcard that serves it included."""
    deployments = [] if router is None else router.get_model_list(model_name=alias) or []
    return [_facts(router, alias, deployment) for deployment in deployments]


def fingerprint(router: Router | None) -> object:
    """Changes when the router, its deployments or LiteLLM's model map were replaced: cheap enough for each request."""
    model_map = id(GetModelCostMap.loaded_model_cost_map())
    return None if router is None else (id(router), hash(tuple(map(id, router.model_list))), model_map)


def _facts(router: Any, alias: str, deployment: Mapping[str, Any]) -> HostFacts:
    """What the deployment itself says goes before LiteLLM's map.

    LiteLLM's own group and model information is of no use: it keeps one entry for all deployments of an underlying
    model, so that what is said of one of them is said of all.
    """
    params, info = _params(deployment), dict(deployment.get("model_info") or {})
    underlying = str(params.get("model") or alias).replace("*", alias.partition("/")[2] or alias)
    entry = _mapped(str(info.get("base_model") or params.get("base_model") or underlying), params)
    # What a server says of its own limits, where LiteLLM asks it.
    own = {**router.get_discovered_model_info(info.get("id")), **{k: v for k, v in info.items() if v is not None}}
    return HostFacts(
        alias,
        underlying=underlying,
        chats=(own.get("mode") or entry.get("mode") or "chat") in CHATTING and not underlying.startswith(MODEL_PREFIX),
        tools=_boolean(own.get("supports_function_calling")),
        vision=_boolean(own.get("supports_vision")),
        context_window=_tokens(own.get("max_input_tokens")),
        max_output=_tokens(own.get("max_output_tokens")),
        input_cost_per_token=_price("input_cost_per_token", own, params),
        output_cost_per_token=_price("output_cost_per_token", own, params),
        mapped=Mapped(
            tools=_boolean(entry.get("supports_function_calling")),
            vision=_boolean(entry.get("supports_vision")),
            context_window=_tokens(entry.get("max_input_tokens")),
            max_output=_tokens(entry.get("max_output_tokens")),
            input_cost_per_token=_price("input_cost_per_token", entry),
            output_cost_per_token=_price("output_cost_per_token", entry),
        ),
        served=str(params.get("api_base") or ""),
    )


def _mapped(model: str, params: Mapping[str, Any]) -> Any:
    """The entry of LiteLLM's map as it was loaded, which no deployment has written to; else its rules for families."""
    provider = params.get("custom_llm_provider") or provider_of(model)
    names = list(dict.fromkeys(v for k, v in get_potential_model_names(model, provider).items() if k != PROVIDER))
    catalog = GetModelCostMap.loaded_model_cost_map()
    for name in names:
        entry = catalog.get(str(name))
        if entry is not None and _same_provider(entry.get("litellm_provider"), provider):
            return entry
    if any(name in catalog for name in names):
        return {}
    return next((rules for name in names if (rules := match_capability_generalizations(str(name)))), {})


PROVIDER = "custom_llm_provider"


def provider_of(model: str) -> str:
    """From the name alone where it says it: for some providers LiteLLM's look-up signs in to them."""
    prefix = model.partition("/")[0]
    if "/" in model and prefix in LlmProvidersSet:
        return prefix
    try:
        return str(litellm.get_llm_provider(model)[1])
    except litellm.BadRequestError:
        return ""


BASES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
"""Where LiteLLM looks for the address of a deployment that has none."""


def is_openais_own(deployment: Mapping[str, Any]) -> bool:
    """Whether OpenAI or Azure serves it, and not one of the many servers that speak as they do."""
    params = deployment["litellm_params"]
    elsewhere = params.get("api_base") or params.get("base_url") or next(filter(None, map(os.environ.get, BASES)), "")
    provider = str(params.get("custom_llm_provider") or provider_of(params["model"]))
    return provider == "azure" or (provider == "openai" and (not elsewhere or "api.openai.com" in elsewhere))


def _same_provider(entry: object, provider: str) -> bool:
    """Entries name variants: `vertex_ai-anthropic_models`, `bedrock_converse`."""
    return not entry or not provider or str(entry).startswith(provider.partition("_converse")[0])


def _tokens(value: object) -> int | None:
    """Operators write numbers as text too; 0 says nothing."""
    try:
        count = int(float(value)) if isinstance(value, int | float | str) else 0
    except (ValueError, OverflowError):
        return None
    return count if count > 0 else None


def _price(name: str, *places: Mapping[str, Any]) -> float | None:
    for place in places:
        try:
            return float(place[name])
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _params(deployment: Mapping[str, Any]) -> Any:
    params = deployment.get("litellm_params") or {}
    return params if isinstance(params, dict) else params.model_dump()

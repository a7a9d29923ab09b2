"""Whose servers speak a format by themselves, and whose they are: what one maker signed, no other understands."""

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from litellm import Router
from litellm.llms.openai_like.responses.transformation import OpenAILikeResponsesConfig
from litellm.types.utils import LlmProviders
from litellm.utils import ProviderConfigManager

from bench_proxy.formats.relays import Dialect
from bench_proxy.host.models import is_openais_own, provider_of

BY_CHAT = "openai/chat_completions/"
"""How a model's name says that LiteLLM shall never call its `/v1/responses`."""

KEYS = {"azure": "AZURE_API_KEY", "openai": "OPENAI_API_KEY"}
"""Where LiteLLM looks for the key of a deployment that has none."""


def maker(router: Router | None, alias: str, dialect: Dialect) -> str:
    """Whose server answers this model's calls in the dialect; empty where it has none, or where its deployments are
    not the same maker's, since each call may go to another of them.
    """
    deployments = [] if router is None else router.get_model_list(model_name=alias) or []
    makers = {MAKERS[dialect](deployment) for deployment in deployments}
    return makers.pop() if len(makers) == 1 else ""


def provider_named(deployment: Mapping[str, Any]) -> str:
    params = deployment["litellm_params"]
    return str(params.get("custom_llm_provider") or provider_of(params["model"]))


def responses_config(deployment: Mapping[str, Any], model: str, provider: str) -> Any:
    """LiteLLM's configuration for `/v1/responses` on this provider; None where it would go by chat completions."""
    known = {p.value for p in LlmProviders}
    config = (
        ProviderConfigManager.get_provider_responses_api_config(model=model, provider=LlmProviders(provider))
        if provider in known
        else None
    )
    if config is None and RESPONSES in _endpoints(deployment):
        return OpenAILikeResponsesConfig()
    return config


def _of_anthropic(deployment: Mapping[str, Any]) -> str:
    return "anthropic" if provider_named(deployment) == "anthropic" else ""


def _of_google(deployment: Mapping[str, Any]) -> str:
    """Vertex serves others' models too."""
    provider, model = provider_named(deployment), str(deployment["litellm_params"]["model"])
    gemini = provider == "gemini" or (provider == "vertex_ai" and "gemini" in model.rpartition("/")[2])
    return "google" if gemini else ""


def _of_responses(deployment: Mapping[str, Any]) -> str:
    """OpenAI encrypts for an organisation, and so the maker is one: a digest, which shows neither it nor its key."""
    params, provider = deployment["litellm_params"], provider_named(deployment)
    if not _speaks_responses(deployment, provider):
        return ""
    key = params.get("api_key") or os.environ.get(KEYS.get(provider, ""), "")
    base = params.get("api_base") or params.get("base_url")
    said = [str(value or "") for value in (base, params.get("organization"), key)]
    return f"{provider}-{hashlib.blake2b(orjson.dumps(said), digest_size=8).hexdigest()}"


def _speaks_responses(deployment: Mapping[str, Any], provider: str) -> bool:
    """OpenAI's own servers do. Of others the operator says so, with LiteLLM's `mode` or `supported_endpoints`."""
    params = deployment["litellm_params"]
    if params.get("use_chat_completions_api") or str(params["model"]).startswith(BY_CHAT):
        return False
    said = (deployment.get("model_info") or {}).get("mode") == "responses" or RESPONSES in _endpoints(deployment)
    return (said or is_openais_own(deployment)) and responses_config(deployment, params["model"], provider) is not None


RESPONSES = "/v1/responses"


def _endpoints(deployment: Mapping[str, Any]) -> tuple[str, ...]:
    named = (deployment.get("model_info") or {}).get("supported_endpoints")
    return tuple(named) if isinstance(named, list | tuple) else ()


MAKERS: Mapping[Dialect, Callable[[Mapping[str, Any]], str]] = {
    "messages": _of_anthropic,
    "responses": _of_responses,
    "gemini": _of_google,
}

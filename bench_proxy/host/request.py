"""A call as its provider wants it: URL, headers and body, written by LiteLLM's own functions for that provider."""

import copy
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import litellm
import orjson
from litellm.exceptions import LITELLM_EXCEPTION_TYPES
from litellm.llms.openai.chat.gpt_transformation import OpenAIGPTConfig
from litellm.types.utils import LlmProviders
from litellm.utils import ProviderConfigManager, get_optional_params

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.request import ChatRequest
from bench_proxy.host.errors import scrub, translate
from bench_proxy.host.fetching import nothing_fetched
from bench_proxy.host.ownership import Taker, fitted, taker_of
from bench_proxy.host.upstream import model_settings
from bench_proxy.upstream import Call

BY_SDK = frozenset({"cerebras", "deepinfra", "nvidia_nim", "openai", "perplexity"})
"""Providers that LiteLLM's router reaches through OpenAI's SDK, which names the type that it accepts, and does not say
that a call is not streamed.
"""

DEFAULTS = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed")
"""Settings that a deployment may have for calls that do not say otherwise."""


LONGEST_SMALL = 2000
MOST_SMALL = 100
LONGEST_REMEMBERED = 1_000_000
MOST_LARGE = 8
"""Bytes of settings whose translation is remembered, and how many of them for a deployment: few of those that are
large, which are the tools of agents.
"""


class NeedsRouter(Exception):
    """This very call asks for something that only the router lane does."""


@dataclass(frozen=True, slots=True)
class Target:
    """One deployment, ready to be called."""

    deployment: Mapping[str, Any]
    model: str
    provider: str
    api_base: str | None
    api_key: str | None
    config: Any
    reader: Any
    plain: bool
    defaults: Mapping[str, Any]
    taker: Taker
    small: dict[bytes, bytes] = field(default_factory=dict, compare=False, repr=False)
    large: dict[bytes, bytes] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One call as the provider gets it. Beside it, what LiteLLM's translation of the answer wants to see again."""

    url: str
    headers: dict[str, str]
    data: dict[str, Any]
    body: bytes
    messages: list[dict[str, Any]]
    params: dict[str, Any]
    litellm_params: dict[str, Any]
    timeout: float
    began: float
    stream: bool


def target_of(deployment: Mapping[str, Any]) -> Target:
    params = deployment["litellm_params"]
    model, provider, key, base = litellm.get_llm_provider(
        model=params["model"],
        custom_llm_provider=params.get("custom_llm_provider"),
        api_base=params.get("api_base") or params.get("base_url"),
        api_key=params.get("api_key"),
    )
    known = {p.value for p in LlmProviders}
    config = (
        ProviderConfigManager.get_provider_chat_config(model=model, provider=LlmProviders(provider))
        if provider in known
        else None
    )
    return Target(
        deployment=deployment,
        model=model,
        provider=provider,
        api_base=params.get("api_base") or params.get("base_url") or base,
        api_key=params.get("api_key") or key,
        config=config,
        # LiteLLM leaves reading Azure's answers to OpenAI's SDK; they have OpenAI's form.
        reader=OpenAIGPTConfig() if provider == "azure" else config,
        plain=getattr(type(config), "transform_response", None) is OpenAIGPTConfig.transform_response,
        defaults={name: params[name] for name in DEFAULTS if params.get(name) is not None},
        taker=taker_of([deployment]),
    )


def request_for(target: Target, call: Call, *, stream: bool) -> Request:
    """Everything that LiteLLM's translation says of this call.

    Raises NeedsRouter, and UpstreamError for settings that it cannot translate: that is the caller's doing.
    """
    try:
        with nothing_fetched():
            return _translated(target, call, stream=stream)
    except NeedsRouter:
        raise
    except tuple(LITELLM_EXCEPTION_TYPES) as known:
        raise translate(known) from known
    except Exception as error:
        said = f"LiteLLM cannot write this request for {target.provider} ({type(error).__name__}: {error})"
        raise UpstreamError("bad_request", 400, scrub(said)) from error


def _translated(target: Target, call: Call, *, stream: bool) -> Request:
    own = model_settings(call.request.settings, lambda: [target.deployment])
    messages, own = fitted(call.request.messages, own, target.taker)
    settings = {**target.defaults, **own}
    if stream:
        settings["stream_options"] = {"include_usage": True}
    messages = target.config.translate_developer_role_to_system_role(messages=messages)
    if version := target.deployment["litellm_params"].get("api_version"):
        settings["api_version"] = version
    params = _params_of(target, settings, stream=stream)
    litellm_params = {"api_base": target.api_base, "api_key": target.api_key, "drop_params": True}
    json_mode, extra = params.pop("json_mode", False), params.pop("extra_body", None)
    if json_mode or params.pop("fake_stream", False):
        raise NeedsRouter
    asked = {"model": target.model, "optional_params": params, "litellm_params": litellm_params}
    keyed = {"api_key": target.api_key, "api_base": target.api_base}
    headers = _headers_of(target, messages, asked, keyed)
    data = target.config.transform_request(messages=messages, headers=headers, **asked)
    if extra:
        data |= target.config.transform_extra_body(
            extra_body=extra, request=data, model=target.model, litellm_params=litellm_params
        )
    if stream and target.config.supports_stream_param_in_request_body:
        data["stream"] = True
    elif data.get("stream") is False and target.provider in BY_SDK:
        del data["stream"]
    url = _url(target, asked, keyed, stream=stream)
    body = orjson.dumps(_sharing(data, call.request))
    return Request(url, headers, data, body, messages, params, litellm_params, call.timeout, time.time(), stream)


def _params_of(target: Target, settings: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """The settings in the provider's words. Remembered: LiteLLM takes a fifth of a call's time to say the same again,
    or milliseconds where there are tools, which an agent sends with each turn. What is remembered is JSON, which is
    read five times as fast as objects are copied.
    """
    # Not sorted: models write the fields of a schema in its order.
    key = orjson.dumps([stream, settings])
    if len(key) > LONGEST_REMEMBERED:
        return _said_to(target, settings, stream=stream)
    remembered, most = (target.small, MOST_SMALL) if len(key) <= LONGEST_SMALL else (target.large, MOST_LARGE)
    key = key if remembered is target.small else hashlib.blake2b(key).digest()
    known = remembered.pop(key, None)
    if known is None:
        params = _said_to(target, settings, stream=stream)
        known = _as_json(params)
        if known is None:
            return params
        if len(remembered) >= most:
            del remembered[next(iter(remembered))]
    remembered[key] = known  # behind those that were asked for longer ago
    return orjson.loads(known)  # type: ignore[no-any-return]


def _said_to(target: Target, settings: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    params: dict[str, Any] = get_optional_params(
        model=target.model,
        custom_llm_provider=target.provider,
        stream=stream,
        drop_params=True,
        # LiteLLM changes tools and schemas in place, which are the other seats' too.
        **copy.deepcopy(settings),
    )
    return params


def _as_json(params: dict[str, Any]) -> bytes | None:
    """None where reading it again would not yield the same."""
    try:
        known = orjson.dumps(params)
        return known if orjson.loads(known) == params else None
    except (TypeError, ValueError):
        return None


def _sharing(data: dict[str, Any], request: ChatRequest) -> dict[str, Any]:
    """The body with the caller's messages encoded once for all seats, where this provider takes them as they came."""
    if not request.large or data.get("messages") != request.messages:
        return data
    return {**data, "messages": orjson.Fragment(request.encoded_messages)}


def _headers_of(target: Target, messages: Any, asked: Mapping[str, Any], keyed: Mapping[str, Any]) -> dict[str, str]:
    """The provider's own headers, and those by which LiteLLM says that a call is its."""
    sent: dict[str, str] = dict(target.config.get_attribution_headers())
    if target.provider == "openrouter":
        sent |= {
            "HTTP-Referer": os.environ.get("OR_SITE_URL") or "https://litellm.ai",
            "X-Title": os.environ.get("OR_APP_NAME") or "liteLLM",
        }
    if target.provider == "azure":
        return {"api-key": str(target.api_key), "Content-Type": "application/json", "Accept": "application/json"}
    if target.provider in BY_SDK:
        sent["Accept"] = "application/json"
    headers: dict[str, str] = target.config.validate_environment(headers=sent, messages=messages, **asked, **keyed)
    return headers


def _url(target: Target, asked: Mapping[str, Any], keyed: Mapping[str, Any], *, stream: bool) -> str:
    if target.provider == "azure":
        # https://learn.microsoft.com/azure/ai-services/openai/reference: the deployment stands in the path.
        version = target.deployment["litellm_params"]["api_version"]
        base = str(target.api_base).rstrip("/")
        return f"{base}/openai/deployments/{target.model}/chat/completions?api-version={version}"
    if target.provider == "anthropic":
        base = target.api_base or "https://api.anthropic.com"
        return base if base.endswith("/v1/messages") else f"{base}/v1/messages"
    url: str = target.config.get_complete_url(stream=stream, **asked, **keyed)
    return url

"""A call in the caller's own format, as the model's server wants it: the caller's body, with the model's name in it.

URL and headers are written by LiteLLM's own functions for the provider.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from litellm.exceptions import LITELLM_EXCEPTION_TYPES
from litellm.types.router import GenericLiteLLMParams
from litellm.types.utils import LlmProviders
from litellm.utils import ProviderConfigManager

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.relays import Dialect
from bench_proxy.host.errors import scrub, translate
from bench_proxy.host.makers import responses_config
from bench_proxy.host.request import Request, Target
from bench_proxy.upstream import NativeCall

CHOICES: Mapping[Dialect, frozenset[str]] = {
    "messages": frozenset({"anthropic-beta", "anthropic-version"}),
    "responses": frozenset(),
    "gemini": frozenset(),
}
"""Headers of the caller's that reach the model's server. No other does: a key of the caller's would take the place of
the deployment's.
"""

ASKED: Mapping[Dialect, str] = {"messages": "messages", "responses": "input", "gemini": "contents"}
"""Where a body has the conversation."""


def native_request(target: Target, call: NativeCall, *, stream: bool) -> Request:
    """Raises UpstreamError where LiteLLM's functions cannot say how the server is reached."""
    try:
        url, headers = WAYS[call.dialect](target, call, stream)
    except tuple(LITELLM_EXCEPTION_TYPES) as known:
        raise translate(known) from known
    except Exception as error:
        said = f"LiteLLM cannot write this request for {target.provider} ({type(error).__name__}: {error})"
        raise UpstreamError("bad_request", 400, scrub(said)) from error
    headers = {"Content-Type": "application/json", **{name: str(value) for name, value in headers.items()}}
    data = _data(target, call, stream=stream)
    return Request(
        url=url,
        headers={name: value for name, value in headers.items() if name != "content-type"},
        data=data,
        body=_as_json(data),
        messages=asked(call),
        params={name: value for name, value in call.body.items() if name != ASKED[call.dialect]},
        litellm_params={},
        timeout=call.timeout,
        began=time.time(),
        stream=stream,
    )


def chosen(call: NativeCall) -> dict[str, str]:
    return {name: value for name, value in call.headers.items() if name in CHOICES[call.dialect]}


def asked(call: NativeCall) -> list[Any]:
    """The conversation as it stands in the body, for those who log it."""
    said = call.body.get(ASKED[call.dialect])
    return said if isinstance(said, list) else [{"role": "user", "content": said}]


def _data(target: Target, call: NativeCall, *, stream: bool) -> dict[str, Any]:
    """Gemini's model, and whether it streams, stand in the address."""
    if call.dialect == "gemini":
        return dict(call.body)
    model = target.model.removeprefix("responses/") if call.dialect == "responses" else target.model
    return {"model": model, **call.body, **({"stream": True} if stream else {})}


def _as_json(data: Mapping[str, Any]) -> bytes:
    """Half a surrogate pair is JSON too, if it is escaped."""
    try:
        return orjson.dumps(data)
    except TypeError:
        return json.dumps(data).encode()


def _by_messages(target: Target, call: NativeCall, _stream: bool) -> tuple[str, Mapping[str, Any]]:
    config: Any = ProviderConfigManager.get_provider_anthropic_messages_config(
        model=target.model, provider=LlmProviders(target.provider)
    )
    keyed: dict[str, Any] = {
        "api_key": target.api_key,
        "api_base": target.api_base,
        "model": target.model,
        "litellm_params": {},
    }
    body = dict(call.body)
    headers, base = config.validate_anthropic_messages_environment(
        headers=chosen(call), messages=body.get("messages") or [], optional_params=body, **keyed
    )
    return config.get_complete_url(optional_params={}, **{**keyed, "api_base": base}), headers


def _by_responses(target: Target, call: NativeCall, _stream: bool) -> tuple[str, Mapping[str, Any]]:
    config = responses_config(target.deployment, target.model, target.provider)
    version = target.deployment["litellm_params"].get("api_version")
    params = {"api_key": target.api_key, "api_base": target.api_base, "api_version": version}
    headers = config.validate_environment(
        headers=chosen(call), model=target.model, litellm_params=GenericLiteLLMParams(**params)
    )
    return config.get_complete_url(api_base=target.api_base, litellm_params=params), headers


def _by_gemini(target: Target, _call: NativeCall, stream: bool) -> tuple[str, Mapping[str, Any]]:
    config: Any = ProviderConfigManager.get_provider_google_genai_generate_content_config(
        model=target.model, provider=LlmProviders(target.provider)
    )
    headers, url = config.sync_get_auth_token_and_url(
        api_base=target.api_base, model=target.model, litellm_params={"api_key": target.api_key}, stream=stream
    )
    return url, headers


WAYS: Mapping[Dialect, Callable[[Target, NativeCall, bool], tuple[str, Mapping[str, Any]]]] = {
    "messages": _by_messages,
    "responses": _by_responses,
    "gemini": _by_gemini,
}

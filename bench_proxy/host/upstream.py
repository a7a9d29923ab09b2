"""The router lane: a seat's call through LiteLLM's router, so that deployments, keys, logs and costs are LiteLLM's."""

from collections.abc import Callable, Mapping
from typing import Any

from litellm import Router
from litellm.types.utils import is_litellm_owned_kwarg

from bench_proxy.errors import UpstreamError
from bench_proxy.host.errors import translate
from bench_proxy.upstream import Call, Reply

ROUTER_STEERING = frozenset(
    {
        "api_base", "api_key", "api_version", "base_url", "cache", "caching", "content_policy_fallbacks",
        "context_window_fallbacks", "default_fallbacks", "default_headers", "deployment_id", "disable_fallbacks",
        "drop_params", "extra_body", "extra_headers", "fallbacks", "litellm_metadata", "max_fallbacks", "max_retries",
        "messages", "metadata", "model", "num_retries", "organization", "original_function", "priority",
        "request_timeout", "specific_deployment", "stream", "stream_options", "timeout",
    }
)  # fmt: skip
"""Fields that would steer LiteLLM instead of reaching the model; beside what LiteLLM itself calls its own."""


class RouterLane:
    """Implements `upstream.Upstream`. The router is looked up for each call: LiteLLM replaces it on a reload."""

    def __init__(self, router: Callable[[], Router | None]) -> None:
        self._router = router

    async def complete(self, call: Call) -> Reply:
        router = self._router()
        if router is None:
            raise UpstreamError("server_error", 503, "LiteLLM has no models")
        try:
            response = await router.acompletion(
                model=call.alias,
                # LiteLLM and its callbacks may change messages in place; the other seats hold the same list.
                messages=[dict(message) for message in call.request.messages],
                stream=False,
                timeout=call.timeout,
                # One attempt by exactly this model: LiteLLM's retries wait seconds and hide Retry-After.
                num_retries=0,
                max_retries=0,
                disable_fallbacks=True,
                drop_params=True,
                metadata={"tags": list(call.tags)},
                **model_settings(call.request.settings),
            )
        except Exception as error:
            raise translate(error) from error
        return _reply(response)


def model_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of the caller's settings is the model's business."""
    return {name: value for name, value in settings.items() if not steers_litellm(name)}


def steers_litellm(name: str) -> bool:
    return name in ROUTER_STEERING or name.startswith(("_", "mock_")) or bool(is_litellm_owned_kwarg(name))


def _reply(response: Any) -> Reply:
    try:
        choice = response.choices[0]
        text = choice.message.content
    except (AttributeError, IndexError, TypeError):
        raise UpstreamError("bad_response", 502, "the model's server answered without a choice") from None
    usage = getattr(response, "usage", None)
    return Reply(
        text=text if isinstance(text, str) else "",
        finish_reason=choice.finish_reason,
        prompt_tokens=getattr(usage, "prompt_tokens", None),
        completion_tokens=getattr(usage, "completion_tokens", None),
        cost=_cost(response),
    )


def _cost(response: Any) -> float | None:
    """What LiteLLM worked out; a model without a price has none, which is not the same as free."""
    hidden = getattr(response, "_hidden_params", None) or {}
    cost = hidden.get("response_cost")
    return float(cost) if isinstance(cost, int | float) else None

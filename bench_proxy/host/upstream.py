"""The router lane: a seat's call through LiteLLM's router, so that deployments, keys, logs and costs are LiteLLM's."""

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from litellm import ModelResponse, Router
from litellm.proxy.auth.auth_utils import _BANNED_REQUEST_BODY_PARAMS
from litellm.proxy.litellm_pre_call_utils import _UNTRUSTED_ROOT_CONTROL_FIELDS
from litellm.types.utils import is_litellm_owned_kwarg

from bench_proxy.errors import UpstreamError
from bench_proxy.host.billing import payer
from bench_proxy.host.calls import pieces
from bench_proxy.host.errors import translate
from bench_proxy.host.fetching import guard, nothing_fetched
from bench_proxy.host.models import is_openais_own
from bench_proxy.host.nesting import seated
from bench_proxy.host.ownership import fitted, taker_of
from bench_proxy.host.tokens import details
from bench_proxy.upstream import Call, Event, Reply, Text, Thought

ROUTER_STEERING = frozenset(
    {
        "additional_drop_params", "allowed_openai_params", "api_base", "api_key", "api_version", "base_url", "cache",
        "caching", "content_policy_fallbacks", "context_window_fallbacks", "default_fallbacks", "default_headers",
        "deployment_id", "disable_fallbacks", "drop_params", "extra_body", "extra_headers", "fallbacks",
        "litellm_metadata", "max_fallbacks", "max_retries", "messages", "metadata", "model",
        "model_group_retry_policy", "models", "num_retries", "organization", "original_function", "priority",
        "request_timeout", "route", "specific_deployment", "stream", "stream_options", "timeout",
    }
)  # fmt: skip
"""Fields that would steer LiteLLM, or lead OpenRouter to other models (`models`, `route`), instead of reaching the
model; beside what LiteLLM itself calls its own.
"""

NOT_FROM_CALLERS = frozenset({*_BANNED_REQUEST_BODY_PARAMS, *_UNTRUSTED_ROOT_CONTROL_FIELDS})
"""What LiteLLM's proxy takes out of a body, or refuses: where a provider is called, with whose credentials, and which
callbacks the process has from then on. Its router believes all of it.
"""


class RouterLane:
    """Implements `upstream.Upstream`. The router is looked up for each call: LiteLLM replaces it on a reload.

    `priced` says whether a model's price is known: LiteLLM says 0 also where it is not.
    """

    def __init__(
        self, router: Callable[[], Router | None], priced: Callable[[str], bool] = lambda _alias: True
    ) -> None:
        self._router = router
        self._priced = priced
        guard()

    async def complete(self, call: Call) -> Reply:
        response = await self._ask(call, stream=False)
        return reply_of(response, _cost(response, priced=self._priced(call.alias)))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[Event]]:
        chunks = await self._ask(call, stream=True)
        # Closed by name and not by the garbage collector: LiteLLM's generators crash Python 3.11 when dropped.
        invented = _is_mocked(self._router(), chunks)
        async with aclosing(_events(chunks, priced=self._priced(call.alias), invented=invented)) as events:
            try:
                yield events
            finally:
                await _close(chunks)

    async def _ask(self, call: Call, *, stream: bool) -> Any:
        router = self._router()
        if router is None:
            raise UpstreamError("server_error", 503, "LiteLLM has no models")
        deployments = router.get_model_list(model_name=call.alias) or []
        settings = model_settings(call.request.settings, lambda: deployments)
        messages, settings = fitted(call.request.messages, settings, taker_of(deployments))
        if stream:
            settings["stream_options"] = {"include_usage": True}
        try:
            with nothing_fetched(), seated():
                return await router.acompletion(
                    model=call.alias,
                    messages=messages,
                    stream=stream,
                    timeout=call.timeout,
                    # One attempt by exactly this model: LiteLLM's retries wait seconds and hide Retry-After.
                    num_retries=0,
                    max_retries=0,
                    disable_fallbacks=True,
                    drop_params=True,
                    metadata={**payer(), "tags": list(call.tags)},
                    # Changed in place as well, for some providers.
                    **copy.deepcopy(settings),
                )
        except Exception as error:
            raise translate(error) from error


def model_settings(
    settings: Mapping[str, Any], deployments: Callable[[], Iterable[Mapping[str, Any]]]
) -> dict[str, Any]:
    """What of the caller's settings is the business of the model that these deployments serve."""
    kept = {name: value for name, value in settings.items() if not steers_litellm(name)}
    if not SAMPLERS.isdisjoint(kept) and any(map(is_openais_own, deployments())):
        kept = {name: value for name, value in kept.items() if name not in SAMPLERS}
    return kept


SAMPLERS = frozenset({"top_k", "min_p", "repetition_penalty"})
"""Settings that other formats and most servers have. LiteLLM gives OpenAI those too, which refuses the request."""


def steers_litellm(name: str) -> bool:
    named = name in ROUTER_STEERING or name in NOT_FROM_CALLERS
    return named or name.startswith(("_", "mock_")) or bool(is_litellm_owned_kwarg(name))


def reply_of(response: Any, cost: float | None) -> Reply:
    """LiteLLM's answer in our words."""
    try:
        choice = response.choices[0]
        text = choice.message.content or getattr(choice.message, "refusal", None)
    except (AttributeError, IndexError, TypeError):
        raise UpstreamError("bad_response", 502, "the model's server answered without a choice") from None
    usage = getattr(response, "usage", None)
    thoughts = getattr(choice.message, "reasoning_content", None)
    return Reply(
        text=text if isinstance(text, str) else "",
        thoughts=thoughts if isinstance(thoughts, str) else "",
        reasoned=bool(thoughts),
        calls=tuple(pieces(choice.message, whole=True)),
        finish_reason=choice.finish_reason,
        # LiteLLM writes zeros where the server said nothing.
        prompt_tokens=getattr(usage, "prompt_tokens", None) or None,
        completion_tokens=getattr(usage, "completion_tokens", None) or None,
        cost=cost,
        **details(usage),
    )


async def _events(chunks: Any, *, priced: bool, invented: bool) -> AsyncGenerator[Event, None]:
    """LiteLLM's chunks in our words. One that it has `invented` itself has no end of its own, and is never cut."""
    finish_reason: str | None = None
    usage: Any = None
    reasoned = False
    try:
        async for chunk in chunks:
            usage = getattr(chunk, "usage", None) or usage
            for choice in [c for c in chunk.choices if not c.index][:1]:  # one was asked for
                finish_reason = choice.finish_reason or finish_reason
                if thought := getattr(choice.delta, "reasoning_content", None):
                    reasoned = True
                    if isinstance(thought, str):
                        yield Thought(thought)
                if text := choice.delta.content:
                    yield Text(text)
                for piece in pieces(choice.delta):
                    yield piece
    except Exception as error:
        raise translate(error) from error
    if finish_reason is None or not (invented or _was_ended(chunks)):
        raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")
    yield Reply(
        text="",
        finish_reason=finish_reason,
        prompt_tokens=getattr(usage, "prompt_tokens", None),
        completion_tokens=getattr(usage, "completion_tokens", None),
        cost=_streamed_cost(chunks, usage) if priced else None,
        reasoned=reasoned,
        **details(usage),
    )


def _was_ended(chunks: Any) -> bool:
    """Whether the model's server ended the stream. LiteLLM makes up a "stop" where none came, but keeps the server's
    own chunks without it.
    """
    own = getattr(chunks, "chunks", None)
    return not isinstance(own, list) or any(choice.finish_reason for chunk in own for choice in chunk.choices)


def _is_mocked(router: Router | None, chunks: Any) -> bool:
    """Whether LiteLLM answers by itself, from the deployment's `mock_response`."""
    id = (getattr(chunks, "_hidden_params", None) or {}).get("model_id")
    deployment = router.get_deployment(model_id=id) if router is not None and id else None
    return deployment is not None and getattr(deployment.litellm_params, "mock_response", None) is not None


async def _close(chunks: Any) -> None:
    """End the model's call; LiteLLM's wrapper closes the provider's stream that it holds."""
    close = getattr(chunks, "aclose", None)
    if close is not None:
        with suppress(Exception):  # a stream that was cut cannot always be closed once more
            await close()


def _streamed_cost(chunks: Any, usage: Any) -> float | None:
    """As LiteLLM works it out for its own log, later: until then a stream's cost stands at 0."""
    if usage is None:
        return None
    with suppress(Exception):  # a price that cannot be worked out is not known
        whole = ModelResponse(model=chunks.model, usage=usage)
        return float(chunks.logging_obj.response_cost_calculator(result=whole))
    return None


def _cost(response: Any, *, priced: bool) -> float | None:
    """What LiteLLM worked out; a model without a price has none, which is not the same as free."""
    hidden = getattr(response, "_hidden_params", None) or {}
    cost = hidden.get("response_cost")
    return float(cost) if isinstance(cost, int | float) and (cost or priced) else None

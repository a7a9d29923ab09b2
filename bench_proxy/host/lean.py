"""The lean lane: a call by LiteLLM's provider configuration over one HTTP client, a tenth of the router's price.

The deployment is picked by LiteLLM's router, so that health, cooldowns and weights are its own; parameters, URL,
headers, request and answer are translated by LiteLLM's own functions for that provider. What is left out is the
router's and the logging's machinery around the call. A deployment that needs anything else takes the router lane.
"""

import json
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import aiohttp
import httpx
import litellm
import orjson
from litellm import Router
from litellm.exceptions import LITELLM_EXCEPTION_TYPES
from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.core_helpers import map_finish_reason
from litellm.litellm_core_utils.exception_mapping_utils import exception_type
from litellm.llms.anthropic.chat.handler import ModelResponseIterator as AnthropicStream
from litellm.llms.custom_httpx.http_handler import get_ssl_configuration
from litellm.llms.openai.chat.gpt_transformation import OpenAIChatCompletionStreamingHandler, OpenAIGPTConfig
from litellm.types.utils import LlmProviders, ModelResponse
from litellm.utils import ProviderConfigManager, get_optional_params

from bench_proxy.errors import UpstreamError
from bench_proxy.formats.request import ChatRequest
from bench_proxy.host import models
from bench_proxy.host.billing import payer
from bench_proxy.host.costs import cost_of
from bench_proxy.host.errors import LONGEST_READ, said_in, scrub, translate
from bench_proxy.host.fetching import nothing_fetched
from bench_proxy.host.proxies import Proxies
from bench_proxy.host.reporting import Finished, Reporting, cool
from bench_proxy.host.slots import LIMITS, slot
from bench_proxy.host.upstream import RouterLane, model_settings, reply_of
from bench_proxy.upstream import Call, Reply, Text, Upstream

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

BY_SDK = frozenset({"cerebras", "deepinfra", "nvidia_nim", "openai", "perplexity"})
"""Providers that LiteLLM's router reaches through OpenAI's SDK, which names the type that it accepts, and does not say
that a call is not streamed.
"""

PLAIN = frozenset(
    {
        "model",
        "api_key",
        "api_base",
        "base_url",
        "api_version",
        "custom_llm_provider",
        "drop_params",
        "weight",
        "order",
        "timeout",
        "max_retries",
        "num_retries",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "seed",
        "input_cost_per_token",
        "output_cost_per_token",
        *LIMITS,
    }
)
"""What a deployment may say and still be called without the router; anything else is the router's to understand."""

PLAIN_DEFAULTS = frozenset({"metadata", "timeout", "max_retries"})
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


DEFAULTS = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed")
"""Settings that a deployment may have for calls that do not say otherwise."""

DATED_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(?:-preview)?")
CONNECT_SECONDS = 10.0
LONGEST_LINE = 8 * 1024 * 1024
LARGEST_BODY = 32 * 1024 * 1024

MISREAD = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading an answer ends in that does not have the form of one."""


NO_KEY = "its key is not in the deployment"


class NeedsRouter(Exception):
    """This very call asks for something that only the router lane does."""


class NoLogging:
    """Stands where LiteLLM's translation functions expect the logging object of a call; nothing is logged there."""

    litellm_call_id = ""
    stream = False

    def __init__(self) -> None:
        self.model_call_details: dict[str, Any] = {}
        self.optional_params: dict[str, Any] = {}
        self.litellm_params: dict[str, Any] = {}

    def pre_call(self, *_args: Any, **_kwargs: Any) -> None: ...

    def post_call(self, *_args: Any, **_kwargs: Any) -> None: ...


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


class LeanLane:
    """Implements `upstream.Upstream`. What it cannot do faithfully goes to `otherwise`, the router lane.

    `forced` says of some models which lane they take: `router` or `lean`, which overrides PROVEN.
    """

    def __init__(
        self,
        router: Callable[[], Router | None],
        otherwise: Upstream,
        reporting: Reporting,
        forced: Callable[[], Mapping[str, str]],
        priced: Callable[[str], bool] = lambda _alias: True,
    ) -> None:
        self._priced = priced
        self._router = router
        self._otherwise = otherwise
        self._reporting = reporting
        self._forced = forced
        self._session: aiohttp.ClientSession | None = None
        self._proxies = Proxies()
        self._targets: dict[str, Target] = {}
        self._lanes: dict[str, str] = {}
        self._seen: object = None

    def why_router(self, alias: str) -> str:
        """Why this model takes the router lane; empty when it takes this one. Remembered until something changes."""
        router = self._router()
        seen = (models.fingerprint(router), id(self._forced()))
        if seen != self._seen:
            self._seen = seen
            self._targets.clear()
            self._lanes.clear()
        if alias not in self._lanes:
            self._lanes[alias] = _judge(router, alias, self._forced().get(alias, "auto"))
        return self._lanes[alias]

    def lane(self, alias: str) -> dict[str, str]:
        """Which lane the model takes, and why when it is not this one."""
        why = self.why_router(alias)
        return {"lane": "router", "lane_because": why} if why else {"lane": "lean"}

    async def complete(self, call: Call) -> Reply:
        try:
            target, request, place = await self._prepare(call, stream=False)
        except NeedsRouter:
            return await self._otherwise.complete(call)
        with place:
            try:
                async with self._post(request) as response:
                    body = await _body(response)
                with _reading():
                    _check(target, response, body)
                    if target.plain and not self._reporting.listens():
                        return self._read(call, target, body)
                    answer = _understood(target, request, response, body)
            except Exception as error:
                raise self._failed(call, target, request, error) from error
        cost = _cost(target, answer) if self._priced(call.alias) else None
        self._reporting.ended(_finished(call, target, request, response=answer, cost=cost))
        return reply_of(answer, cost)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[Text | Reply]]:
        try:
            target, request, place = await self._prepare(call, stream=True)
        except NeedsRouter:
            async with self._otherwise.stream(call) as events:
                yield events
            return
        with place, closing(await self._open(call, target, request)) as response:
            async with aclosing(self._events(call, target, request, response)) as events:
                yield events

    async def _open(self, call: Call, target: Target, request: Request) -> aiohttp.ClientResponse:
        """The answer to a call that is streamed, once it is known to be one."""
        try:
            response: aiohttp.ClientResponse = await self._post(request)
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                with closing(response):
                    body = await _body(response)
                with _reading():
                    _check(target, response, body)
        except Exception as error:
            raise self._failed(call, target, request, error) from error
        return response

    def _read(self, call: Call, target: Target, body: bytes) -> Reply:
        """An answer in OpenAI's form, read as LiteLLM reads it and without its objects."""
        answer = _json(body)
        if answer.get("error"):
            raise _error_in_stream(target, answer["error"])
        choice, usage = answer["choices"][0], answer.get("usage")
        message = choice["message"]
        reply = Reply(
            text=text if isinstance(text := message.get("content"), str) else "",
            finish_reason=map_finish_reason(choice.get("finish_reason") or "stop"),
            prompt_tokens=(usage or {}).get("prompt_tokens") or None,
            completion_tokens=(usage or {}).get("completion_tokens") or None,
            reasoned=bool(message.get("reasoning_content") or message.get("reasoning")),
        )
        if not usage or not self._priced(call.alias):
            return reply
        return replace(reply, cost=cost_of(target.deployment, usage, model=target.model, provider=target.provider))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _events(
        self, call: Call, target: Target, request: Request, response: aiohttp.ClientResponse
    ) -> AsyncGenerator[Text | Reply, None]:
        """The answer's pieces, then what is known at its end."""
        ending = Ending()
        try:
            with _reading():
                async with aclosing(_chunks(target, response)) as chunks:
                    async for chunk in chunks:
                        if text := ending.heard(chunk):
                            yield Text(text)
                if ending.finish_reason is None:
                    raise UpstreamError("bad_response", 502, "the stream ended without a terminal event")
                answer = ending.answer(target.model)
        except Exception as error:
            raise self._failed(call, target, request, error) from error
        cost = _cost(target, answer) if self._priced(call.alias) else None
        self._reporting.ended(_finished(call, target, request, response=answer, cost=cost))
        yield replace(reply_of(answer, cost), text="", reasoned=ending.reasoned)

    async def _prepare(self, call: Call, *, stream: bool) -> tuple[Target, Request, AbstractContextManager[None]]:
        """Raises NeedsRouter for what the router lane does better, or has to: also when callbacks fall behind here."""
        if self.why_router(call.alias) or self._reporting.full():
            raise NeedsRouter
        router = self._router()
        if router is None:
            raise UpstreamError("server_error", 503, "LiteLLM has no models")
        try:
            deployment = await router.async_get_available_deployment(
                model=call.alias, request_kwargs={"metadata": {"tags": list(call.tags)}}, messages=None
            )
            target = self._target(deployment)
        except Exception as error:
            raise translate(error) from error
        return target, _request(target, call, stream=stream), slot(router, deployment)

    def _target(self, deployment: Mapping[str, Any]) -> Target:
        id = deployment["model_info"]["id"]
        if id not in self._targets:
            self._targets[id] = _target_of(deployment)
        return self._targets[id]

    def _post(self, request: Request) -> Any:
        if self._session is None or self._session.closed:
            # Without a limit of its own: how many calls run is decided above it.
            trust = get_ssl_configuration()
            connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, keepalive_timeout=60, ssl=trust)
            # What one caller's answer sets must not go out with another's request.
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=jar)
        limit = aiohttp.ClientTimeout(total=request.timeout, sock_connect=min(request.timeout, CONNECT_SECONDS))
        return self._session.post(
            request.url,
            data=request.body,
            headers=request.headers,
            timeout=limit,
            proxy=self._proxies.of(request.url),
            allow_redirects=False,
        )

    def _failed(self, call: Call, target: Target, request: Request, error: Exception) -> UpstreamError:
        """In LiteLLM's classes, so that its cooldowns, its callbacks and our table see what they know."""
        mapped = _mapped(target, error)
        if (router := self._router()) is not None:
            cool(router, call.alias, target.deployment, mapped)
        self._reporting.ended(_finished(call, target, request, error=mapped))
        return error if isinstance(error, UpstreamError) else translate(mapped)


class Ending:
    """What a stream has said of its end so far."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.usage: Any = None
        self.reasoned = False
        self._id = ""
        self._parts: list[str] = []

    def heard(self, chunk: Mapping[str, Any]) -> str:
        """Take one chunk in OpenAI's form; returns its text."""
        self._id = self._id or str(chunk.get("id") or "")
        self.usage = chunk.get("usage") or self.usage
        choices = chunk.get("choices")
        if not choices:
            return ""
        choice = choices[0]
        delta = choice.get("delta") or {}
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.reasoned = self.reasoned or bool(delta.get("reasoning_content") or delta.get("reasoning"))
        text = delta.get("content") or ""
        if not isinstance(text, str):
            raise UpstreamError("bad_response", 502, "a piece of the stream has content that is not text")
        self._parts.append(text)
        return text

    def answer(self, model: str) -> ModelResponse:
        """The whole answer, for LiteLLM's callbacks and cost."""
        return ModelResponse(
            id=self._id,
            model=model,
            choices=[
                {
                    "index": 0,
                    "finish_reason": self.finish_reason,
                    "message": {"role": "assistant", "content": "".join(self._parts)},
                }
            ],
            usage=self.usage,
        )


def lanes_of(model_list: list[dict[str, Any]], forced: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The lane of each model of a configuration that is not running."""
    router = Router(model_list=model_list)
    lane = LeanLane(lambda: router, RouterLane(lambda: router), Reporting(), lambda: forced)
    lanes = {alias: lane.lane(alias) for alias in router.get_model_names() if "*" not in alias}
    for entry in model_list:
        found = lanes.get(str(entry.get("model_name")), {})
        variable = str(entry.get("litellm_params", {}).get("api_key")).partition("os.environ/")[2]
        if found.get("lane_because") == NO_KEY and variable and not os.environ.get(variable):
            found["lane_because"] = f"{variable} is not set here"
    return lanes


def _judge(router: Router | None, alias: str, forced: str) -> str:
    if forced == "router":
        return "the configuration says so"
    if router is None:
        return "LiteLLM has no models"
    deployments = router.get_model_list(model_name=alias) or []
    if "*" in "".join(d["model_name"] for d in deployments) or not deployments:
        return "a wildcard serves it"
    reasons = (_needs_of_process(router), *(_needs(d, proven=forced == "lean") for d in deployments))
    return next((why for why in reasons if why), "")


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
    if any(value not in UNSAID for name, value in router.default_litellm_params.items() if name not in PLAIN_DEFAULTS):
        return "the router has settings for every call"
    for callback in litellm.callbacks:
        hook = getattr(type(callback), "async_pre_call_deployment_hook", None)
        if hook is not None and hook is not CustomLogger.async_pre_call_deployment_hook:
            return f"the callback {type(callback).__name__} changes calls to deployments"
    set_here = [name for name in ENVIRONMENT if os.environ.get(name)]
    return f"{set_here[0]} is set" if set_here else ""


def _needs(deployment: Mapping[str, Any], *, proven: bool) -> str:
    """What this deployment is set up for that only the router's way of calling does."""
    params = deployment["litellm_params"]
    unknown = [name for name, value in params.items() if name not in PLAIN and value not in UNSAID]
    if unknown:
        return f"the deployment sets {unknown[0]}"
    # By its name first: for some providers LiteLLM's look-up signs in to them.
    provider = str(params.get("custom_llm_provider") or models.provider_of(params["model"]))
    if provider not in PROVEN and not proven:
        return f"{provider or 'its provider'} has not been compared on both lanes"
    target = _target_of(deployment)
    if target.config is None or target.config.uses_async_transform_request or target.config.has_custom_stream_wrapper:
        return f"LiteLLM calls {target.provider} by a way of its own"
    if target.provider == "azure" and not DATED_VERSION.fullmatch(str(params.get("api_version"))):
        return "its api_version is not a date"
    return "" if params.get("api_key") or target.provider == "hosted_vllm" else NO_KEY


def _target_of(deployment: Mapping[str, Any]) -> Target:
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
    )


def _request(target: Target, call: Call, *, stream: bool) -> Request:
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
    settings = {**target.defaults, **model_settings(call.request.settings)}
    if stream:
        settings["stream_options"] = {"include_usage": True}
    messages = [dict(message) for message in call.request.messages]
    if version := target.deployment["litellm_params"].get("api_version"):
        settings["api_version"] = version
    params = get_optional_params(
        model=target.model, custom_llm_provider=target.provider, stream=stream, drop_params=True, **settings
    )
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


def _understood(target: Target, request: Request, response: aiohttp.ClientResponse, body: bytes) -> ModelResponse:
    raw = httpx.Response(response.status, content=body, headers=list(response.raw_headers))
    answer: ModelResponse = target.reader.transform_response(
        model=target.model,
        raw_response=raw,
        model_response=ModelResponse(),
        logging_obj=NoLogging(),
        request_data=request.data,
        messages=request.messages,
        optional_params=request.params,
        litellm_params=request.litellm_params,
        encoding=None,
        api_key=target.api_key,
    )
    return answer


@contextmanager
def _reading() -> Iterator[None]:
    """Around the reading of an answer, and of nothing else: what it trips over is the server's doing."""
    try:
        yield
    except aiohttp.ClientError:  # some of them are ValueErrors too
        raise
    except MISREAD as error:
        words = "the model's server answered with what is no chat completion"
        raise UpstreamError("bad_response", 502, words) from error


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The whole answer, unless it is larger than any answer is."""
    parts: list[bytes] = []
    size = 0
    async for data in response.content.iter_any():
        parts.append(data)
        size += len(data)
        if size > LARGEST_BODY:
            raise UpstreamError("bad_response", 502, f"the answer is larger than {LARGEST_BODY // 2**20} MB")
    return b"".join(parts)


def _check(target: Target, response: aiohttp.ClientResponse, body: bytes) -> None:
    if response.status >= HTTPStatus.BAD_REQUEST:
        headers = httpx.Headers(list(response.raw_headers))
        text = body.decode(errors="replace")
        # OpenAI's SDK hands LiteLLM the message inside; the others give it the body as it came. LiteLLM's search of a
        # message of megabytes would hold the event loop for seconds.
        said = said_in(text)[:LONGEST_READ] if target.provider == "openai" or len(text) > LONGEST_READ else text
        raise target.config.get_error_class(error_message=said, status_code=response.status, headers=headers)
    if response.status >= HTTPStatus.MULTIPLE_CHOICES:
        raise UpstreamError("bad_response", 502, f"the model's server answered with a redirect ({response.status})")


async def _chunks(target: Target, response: aiohttp.ClientResponse) -> AsyncGenerator[Mapping[str, Any], None]:
    """The stream's events in OpenAI's form; by LiteLLM's parser where the provider has another."""
    async with aclosing(_lines(response)) as lines:
        parsed = _reader(target, _decoded(lines))
        if type(parsed) is not OpenAIChatCompletionStreamingHandler:
            async for piece in parsed:
                yield _in_openai_form(piece)
            return
        async for line in lines:
            if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
                chunk = _json(data)
                if chunk.get("error"):
                    raise _error_in_stream(target, chunk["error"])
                yield chunk


def _json(data: bytes) -> Any:
    """As OpenAI's SDK reads it, which takes half a surrogate pair and bytes that are no UTF-8."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data.decode("utf-8", "replace"))


def _reader(target: Target, lines: AsyncIterator[str]) -> Any:
    """LiteLLM's parser of this provider's stream."""
    if target.provider == "anthropic":
        return AnthropicStream(streaming_response=lines, sync_stream=False)
    return target.reader.get_model_response_iterator(streaming_response=lines, sync_stream=False)


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Lines end at LF alone: U+2028 and its like are text."""
    rest = b""
    async for data in response.content.iter_any():
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")
        if len(rest) > LONGEST_LINE:
            raise UpstreamError("bad_response", 502, "a line of the stream has no end")
    if rest:
        yield rest


async def _decoded(lines: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    async for line in lines:
        yield line.decode("utf-8", "replace")


def _in_openai_form(piece: Any) -> Mapping[str, Any]:
    """LiteLLM's two kinds of parsed chunk."""
    if isinstance(piece, dict):  # GenericStreamingChunk
        delta = {"content": piece.get("text")}
        return {
            "choices": [{"delta": delta, "finish_reason": piece.get("finish_reason") or None}],
            "usage": piece.get("usage"),
        }
    choices = [
        {
            "delta": {"content": c.delta.content, "reasoning_content": getattr(c.delta, "reasoning_content", None)},
            "finish_reason": c.finish_reason,
        }
        for c in piece.choices[:1]
    ]
    return {"id": piece.id, "choices": choices, "usage": getattr(piece, "usage", None)}


def _error_in_stream(target: Target, error: Any) -> Exception:
    """An error that came inside a 200."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    message = error.get("message") if isinstance(error, dict) else str(error)
    found: Exception = target.config.get_error_class(error_message=str(message), status_code=status, headers={})
    return found


def _mapped(target: Target, error: Exception) -> Any:
    """The exception that LiteLLM's router would have raised."""
    if isinstance(error, UpstreamError):
        return litellm.APIError(error.status, error.message, target.provider, target.model)
    if isinstance(error, TimeoutError):
        return litellm.Timeout("the model's server did not answer in time", target.model, target.provider)
    if isinstance(error, aiohttp.ClientError):
        return litellm.APIConnectionError(f"Connection error: {type(error).__name__}", target.provider, target.model)
    try:
        mapped = exception_type(model=target.model, original_exception=error, custom_llm_provider=target.provider)
    except Exception as raised:  # noqa: BLE001  LiteLLM's function raises what it finds
        mapped = raised
    return mapped if isinstance(mapped, Exception) else error


def _cost(target: Target, answer: ModelResponse) -> float | None:
    usage = getattr(answer, "usage", None)
    return usage and cost_of(target.deployment, usage, model=target.model, provider=target.provider)


def _finished(
    call: Call,
    target: Target,
    request: Request,
    *,
    response: ModelResponse | None = None,
    error: Exception | None = None,
    cost: float | None = None,
) -> Finished:
    if response is not None:
        response._hidden_params = {
            "model_id": target.deployment["model_info"]["id"],
            "api_base": target.api_base,
            "custom_llm_provider": target.provider,
            "response_cost": cost,
        }
    return Finished(
        alias=call.alias,
        deployment=target.deployment,
        provider=target.provider,
        model=target.model,
        messages=request.messages,
        params=request.params,
        metadata={**payer(), "tags": list(call.tags)},
        began=request.began,
        ended=time.time(),
        response=response,
        error=error,
        cost=cost,
        stream=request.stream,
    )

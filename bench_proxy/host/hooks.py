"""LiteLLM's hooks around a bench request: its limits, guardrails and callbacks, each run once, however many seats.

What LiteLLM does for a request of its own (`common_request_processing.py`, `utils.py` in its proxy) is done here in the
same order: the hooks before the call, those beside it, those on the answer, those on a failure.
"""

import asyncio
import copy
import logging
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import litellm
from litellm.exceptions import ModifyResponseException
from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy import proxy_server
from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.common_request_processing import proxy_exception_from_route_error
from litellm.proxy.hooks.parallel_request_limiter_v3 import RequestRateLimiterStash, _request_stash
from litellm.proxy.litellm_pre_call_utils import add_litellm_data_to_request
from litellm.proxy.utils import ProxyLogging, pipeline_managed_guardrail_names
from litellm.types.guardrails import GuardrailEventHooks
from litellm.utils import Rules as CallRules
from litellm.utils import function_setup
from starlette.requests import Request
from starlette.types import Scope

from bench_proxy.bench import Caller
from bench_proxy.errors import BenchError, Denied, InsteadOfModels
from bench_proxy.formats.base import Spoken, Usage
from bench_proxy.formats.request import ChatRequest
from bench_proxy.host.reporting import OWN
from bench_proxy.host.reviewing import (
    PIECES,
    WHOLE,
    observes,
    overrides,
    read_in_pieces,
    reads_pieces_alone,
    response_of,
    said_by,
)

log = logging.getLogger("bench_proxy")

T = TypeVar("T")

CALL = "acompletion"
ROUTE = "/v1/chat/completions"
"""Guardrails read a request by its route. They are shown every format in the form of chat completions."""

FOR_LITELLM = ("guardrails", "policies", "metadata", "litellm_metadata", "tags", "user")
"""Fields of a body that are meant for LiteLLM, in any format."""

PIPELINES = "_guardrail_pipelines"
"""Where LiteLLM's policies put the guardrails that they run one behind the other."""

DECIDED_WITHIN = 120.0
"""Seconds that rules may take before the call, beside it, on the answer and on a failure. LiteLLM waits for ever."""

STOPPED_WITHIN = 5.0
"""Seconds that a rule which is not waited for any more has to stop."""

HOOKS = (
    "async_pre_call_hook",
    "async_moderation_hook",
    "async_post_call_failure_hook",
    WHOLE,
    *PIECES,
)
"""What makes a callback more than one that is told of finished calls."""

LIMITS = tuple(
    name
    for name in UserAPIKeyAuth.model_fields
    if any(
        part in name for part in ("rpm", "tpm", "tpd", "parallel", "metadata", "cache_controls", "agent", "throttle")
    )
)
"""What of a key, its user, team, organization or project can make one of LiteLLM's own hooks do something."""


class RequestFailed(Exception):
    """How LiteLLM's callbacks are told of a failure that is none of LiteLLM's."""

    def __init__(self, error: BenchError) -> None:
        super().__init__(error.message)
        self.message = error.message
        self.status_code = error.status


class Hooks:
    """Implements `http.rules.Rules`."""

    def __init__(self) -> None:
        self._seen: object = None
        self._acts = False

    @asynccontextmanager
    async def applied(
        self, caller: Caller, model: str, request: ChatRequest, scope: Scope, body: Mapping[str, Any], *, stream: bool
    ) -> AsyncIterator["Admitted"]:
        auth = caller.key if isinstance(caller.key, UserAPIKeyAuth) else UserAPIKeyAuth()
        admitted = Admitted(auth, model, request, scope, body, stream=stream)
        try:
            if self._acting() or is_limited(auth):
                await admitted.enter()
            yield admitted
        except BenchError as error:
            answer = await admitted.failed(error)
            if answer is error:
                raise
            raise answer from error
        finally:
            await admitted.close()

    def _acting(self) -> bool:
        """Whether a callback of the operator's has hooks. LiteLLM keeps the list that this reads until it changes."""
        known = ProxyLogging.callback_capabilities()
        if known is not self._seen:
            self._seen = known
            self._acts = any(acts(callback) for callback in known.resolved_callbacks)
        return self._acts


def acts(callback: object) -> bool:
    if type(callback).__name__ in OWN:
        return False
    return isinstance(callback, CustomGuardrail) or any(overrides(callback, hook) for hook in HOOKS)


def is_limited(auth: UserAPIKeyAuth) -> bool:
    """Whether LiteLLM may have limits for this key. With its database, tags and sessions may have some too."""
    return proxy_server.prisma_client is not None or any(getattr(auth, name) for name in LIMITS)


class Admitted:
    """Implements `http.rules.Admitted`. Until `enter` it is one for which there are no rules.

    LiteLLM remembers what a request holds in a variable of the request's context. Its hooks run in a context of their
    own: the seats' calls must not find it, and a request that was sent behind another one begins in that one's.
    """

    def __init__(
        self,
        auth: UserAPIKeyAuth,
        model: str,
        request: ChatRequest,
        scope: Scope,
        body: Mapping[str, Any],
        *,
        stream: bool,
    ) -> None:
        self.request = request
        self.rewritten = False
        self._auth = auth
        self._model = model
        self._scope = scope
        self._body = body
        self._stream = stream
        self._data: dict[str, Any] = {}
        self._entered = False
        self._settled = False
        self._failed = False
        self._clearing: asyncio.Task[Any] | None = None

    async def enter(self) -> None:
        """Raises the refusal of a hook, or what it says in the models' place."""
        self._entered = True
        self._auth = self._auth.model_copy(update={"request_route": ROUTE})
        self._context = copy_context()
        self._forget()
        try:
            await _decided(self._inside(self._admit()))
        except Exception as error:
            raise refusal(error) from error
        known = ProxyLogging.callback_capabilities()
        if known.has_guardrail or known.has_moderation_override:
            beside = self._logging.during_call_hook(data=self._data, user_api_key_dict=self._auth, call_type=CALL)
            self._clearing = asyncio.create_task(beside, context=self._context, name="guardrails beside a request")

    async def clear(self) -> None:
        if self._clearing is None:
            return
        try:
            await _decided(asyncio.shield(self._clearing))
        except Exception as error:
            raise refusal(error) from error

    @cached_property
    def reviews(self) -> bool:
        return self._entered and (bool(self._reading) or bool(self._data["metadata"].get(PIPELINES)))

    @cached_property
    def _reading(self) -> list[CustomLogger]:
        """Callbacks that read the answers. Of what is no guardrail LiteLLM calls another hook for streams."""
        return [c for c in ProxyLogging.callback_capabilities().resolved_callbacks if self._reads(c)]

    def _reads(self, callback: CustomLogger) -> bool:
        if isinstance(callback, CustomGuardrail):
            runs = callback.should_run_guardrail(data=self._data, event_type=GuardrailEventHooks.post_call)
            return runs is True  # LiteLLM asks so: some return other things
        if self._stream and observes(callback):
            return False
        return acts(callback) and any(overrides(callback, hook) for hook in (PIECES if self._stream else (WHOLE,)))

    async def review(self, answers: Sequence[Spoken], usage: Usage) -> Sequence[Spoken]:
        if not self.reviews:
            await self.settle(usage)
            return answers
        try:
            return await _decided(self._inside(self._review(answers, usage)))
        except Exception as error:
            raise refusal(error) from error
        finally:
            await self.settle(usage)

    async def settle(self, usage: Usage) -> None:
        if not self._entered or self._settled:
            return
        self._settled = True
        await asyncio.shield(self._inside(self._count(usage)))
        # What was held is given back: a failure that comes later must not give it back once more.
        self._forget()

    async def failed(self, error: BenchError) -> BenchError:
        if not self._entered or self._failed:
            return error
        self._failed = True
        raised = error.__cause__ if isinstance(error, Denied) else None
        cause = raised if isinstance(raised, Exception) else RequestFailed(error)
        telling = self._inside(self._tell(cause))
        if not (await asyncio.wait([telling], timeout=DECIDED_WITHIN))[0]:
            _give_up(telling)
            log.error("LiteLLM's callbacks were not told within %g s of a request that failed", DECIDED_WITHIN)
            return error
        self._settled = True
        instead = telling.result()
        return error if instead is None else refusal(instead)

    async def close(self) -> None:
        """Give back whatever is still held, for a request that nobody waits for any more."""
        if not self._entered:
            return
        if self._clearing is not None:
            _give_up(self._clearing)
            await asyncio.wait([self._clearing], timeout=STOPPED_WITHIN)
        if not self._settled:
            self._settled = True
            await asyncio.shield(self._inside(self._drop()))

    @property
    def _logging(self) -> ProxyLogging:
        found: ProxyLogging = proxy_server.proxy_logging_obj
        return found

    @property
    def _limiter(self) -> CustomLogger | None:
        return self._logging.get_proxy_hook("parallel_request_limiter")

    def _inside(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return asyncio.create_task(work, context=self._context)

    def _forget(self) -> None:
        self._context.run(_request_stash.set, RequestRateLimiterStash())

    async def _admit(self) -> None:
        asked = self.request
        for_litellm = {name: self._body[name] for name in FOR_LITELLM if name in self._body}
        # Copies, as hooks change what they are given in place.
        self._data = {
            **copy.deepcopy({**asked.settings, **for_litellm}),
            "model": self._model,
            "messages": copy.deepcopy(list(asked.messages)),
            "stream": self._stream,
        }
        data = await add_litellm_data_to_request(
            data=self._data,
            request=Request({**self._scope, "path": ROUTE, "raw_path": ROUTE.encode()}),
            user_api_key_dict=self._auth,
            proxy_config=proxy_server.proxy_config,
            general_settings=proxy_server.general_settings,
            version=proxy_server.version,
        )
        data["litellm_call_id"] = str(uuid.uuid4())
        logging_obj, data = function_setup(
            original_function=CALL,
            rules_obj=CallRules(),
            start_time=datetime.now(),  # noqa: DTZ005  LiteLLM compares it with times of its own
            **data,
        )
        data["litellm_logging_obj"] = logging_obj
        self._data = data
        before = set(data)
        self._data = await self._logging.pre_call_hook(user_api_key_dict=self._auth, data=data, call_type=CALL)
        if self._data.get("model") != self._model:
            raise Denied(
                f'a rule of this proxy sends this request to the model "{self._data.get("model")}"; ask that one',
                status=400,
                type="invalid_request_error",
                param="model",
            )
        self._take_over(before)

    def _take_over(self, before: set[str]) -> None:
        """What the hooks have changed is what the models get; their limits may have cut the length of an answer."""
        asked, data, messages = self.request, self._data, self._data.get("messages")
        if not (isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages)):
            raise BenchError("a hook of this proxy left no messages that a model could get; its operator has to look")
        settings: dict[str, Any] = {}
        for name, value in asked.settings.items():
            if name in FOR_LITELLM or name not in before:
                settings[name] = value
            elif name in data:
                settings[name] = data[name]
        more = data.keys() - before
        settings |= {name: data[name] for name in more if name in litellm.OPENAI_CHAT_COMPLETION_PARAMS}
        self.rewritten = messages != list(asked.messages) or settings != dict(asked.settings)
        if self.rewritten:
            self.request = replace(asked, messages=messages, settings=settings, _encoded=[])

    async def _review(self, answers: Sequence[Spoken], usage: Usage) -> Sequence[Spoken]:
        response = await self._logging.post_call_success_hook(
            data=self._data, response=response_of(self._model, answers, usage), user_api_key_dict=self._auth
        )
        left = said_by(response, answers)
        if self._stream:
            in_pipelines = pipeline_managed_guardrail_names(self._data, "post_call")
            for callback in self._reading:
                if reads_pieces_alone(callback) and getattr(callback, "guardrail_name", None) not in in_pipelines:
                    # Each answer is a stream of its own, as hooks take a stream for one answer.
                    left = [await read_in_pieces(callback, self._model, a, self._auth, self._data) for a in left]
        return left

    async def _tell(self, cause: Exception) -> Exception | None:
        try:
            instead: Exception | None = await self._logging.post_call_failure_hook(
                request_data=self._data, original_exception=cause, user_api_key_dict=self._auth
            )
        except Exception:
            log.exception("LiteLLM could not be told of a request that failed")
            return None
        return instead

    async def _count(self, usage: Usage) -> None:
        """As LiteLLM's own logging has it count the tokens of a call, and give back its slot."""
        await self._logging.update_request_status(litellm_call_id=self._data["litellm_call_id"], status="success")
        if self._limiter is None:
            return
        metadata = {**self._data["metadata"], "model_group": self._model}
        call = {
            "litellm_call_id": self._data["litellm_call_id"],
            "litellm_params": {"metadata": metadata},
            "standard_logging_object": {"metadata": metadata},
            "user": self._data.get("user"),
        }
        now = datetime.now()  # noqa: DTZ005
        await self._limiter.async_log_success_event(call, response_of(self._model, [], usage), now, now)

    async def _drop(self) -> None:
        if self._limiter is not None:
            await self._limiter.async_post_call_failure_hook(self._data, asyncio.CancelledError(), self._auth)


async def _decided(work: "asyncio.Future[T]") -> T:
    """Its result. A hook that raises CancelledError has failed; whoever waits for it was not cancelled by that. One
    that takes too long is given up, whether it lets itself be stopped or not.
    """
    try:
        done, _ = await asyncio.wait([work], timeout=DECIDED_WITHIN)
    except asyncio.CancelledError:
        _give_up(work)
        raise
    if not done:
        _give_up(work)
        raise Denied(
            f"a rule of this proxy has not decided within {DECIDED_WITHIN:g} s; its operator has to look",
            status=504,
            type="server_error",
        )
    if work.cancelled():
        raise BenchError("a hook of this proxy was broken off; its operator has to look")
    return work.result()


def _give_up(work: "asyncio.Future[Any]") -> None:
    work.cancel()
    work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


def refusal(error: Exception) -> BenchError:
    """What a hook raised, with its status and in its words."""
    if isinstance(error, BenchError):
        return error
    if isinstance(error, ModifyResponseException):
        return InsteadOfModels(error.message)
    said = proxy_exception_from_route_error(error)
    code = str(said.code)
    if code == "500":
        log.error("a hook of LiteLLM's failed: %s: %s", type(error).__name__, error)
    headers = {str(name).lower(): str(value) for name, value in (getattr(error, "headers", None) or {}).items()}
    wait = headers.get("retry-after", "")
    return Denied(
        str(said.message) or f"a rule of this proxy refuses this request and does not say why ({type(error).__name__})",
        status=int(code) if code.isdigit() else 500,
        type=str(getattr(said.type, "value", said.type)),
        param=said.param if isinstance(said.param, str) else None,
        code=code,
        retry_after=int(wait) if wait.isdigit() else None,
    )

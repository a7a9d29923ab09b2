"""LiteLLM's exceptions in our words: one table, by class, the nearest base first."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import httpx
import litellm
import pydantic
from litellm import exceptions
from litellm.types.router import RouterErrors, RouterRateLimitError, RouterRateLimitErrorBasic

from bench_proxy.cooling import stated_wait
from bench_proxy.errors import BenchError, UpstreamError
from bench_proxy.overflow import is_overflow, is_token_rate, stated_window
from bench_proxy.tool_refusals import STATUSES, is_tool_refusal

log = logging.getLogger("bench_proxy")

KIND_OF: Mapping[type[BaseException], str] = {
    exceptions.APIConnectionError: "connection",
    exceptions.APIError: "server_error",
    exceptions.APIResponseValidationError: "bad_response",
    exceptions.AuthenticationError: "authentication",
    exceptions.BadGatewayError: "server_error",
    exceptions.BadRequestError: "bad_request",
    exceptions.BlockedPiiEntityError: "content_policy",
    exceptions.BudgetExceededError: "rate_limit",
    exceptions.CallerCredentialAuthenticationError: "authentication",
    exceptions.CallerCredentialRateLimitError: "rate_limit",
    exceptions.ContentPolicyViolationError: "content_policy",
    exceptions.ContextWindowExceededError: "context_window",
    exceptions.GuardrailRaisedException: "content_policy",
    exceptions.ImageFetchError: "bad_request",
    exceptions.InternalServerError: "server_error",
    exceptions.InvalidRequestError: "bad_request",
    exceptions.JSONSchemaValidationError: "bad_response",
    exceptions.LiteLLMUnknownProvider: "bad_request",
    exceptions.MalformedRequestFieldError: "bad_request",
    exceptions.MidStreamFallbackError: "server_error",
    exceptions.MockException: "server_error",
    exceptions.ModelNotMappedError: "bad_request",
    exceptions.ModifyResponseException: "content_policy",
    exceptions.NotFoundError: "not_found",
    exceptions.OpenAIError: "server_error",
    exceptions.PaymentRequiredError: "permission",
    exceptions.PermissionDeniedError: "permission",
    exceptions.RateLimitError: "rate_limit",
    exceptions.RejectedRequestError: "content_policy",
    exceptions.SensitiveDataRouteException: "content_policy",
    exceptions.ServiceUnavailableError: "overloaded",
    exceptions.Timeout: "timeout",
    exceptions.UnprocessableEntityError: "bad_request",
    exceptions.UnsupportedParamsError: "bad_request",
    exceptions.VectorStoreSearchError: "bad_request",
    RouterRateLimitError: "rate_limit",
    RouterRateLimitErrorBasic: "rate_limit",
    asyncio.TimeoutError: "timeout",
    # LiteLLM checks what a caller sent with it before it asks anyone.
    pydantic.ValidationError: "bad_request",
}

STATUS_OF = {
    "authentication": 401,
    "bad_request": 400,
    "bad_response": 502,
    "connection": 502,
    "content_policy": 400,
    "context_window": 400,
    "cooling": 429,
    "internal": 500,
    "not_found": 404,
    "overloaded": 503,
    "permission": 403,
    "rate_limit": 429,
    "server_error": 500,
    "timeout": 504,
    "tools": 400,
}
KIND_OF_STATUS = {401: "authentication", 402: "permission", 403: "permission", 404: "not_found", 408: "timeout",
                  413: "context_window", 429: "rate_limit", 503: "overloaded", 504: "timeout",
                  529: "overloaded"}  # fmt: skip

VAGUE = frozenset({"bad_request", "connection", "server_error"})
"""Where LiteLLM puts what it has no class for: the message says more."""

REFUSING_TOOLS = VAGUE | {None, "context_window", "not_found"}
"""Where it puts a refusal of tools: OpenRouter's as not found, that of a tool's long name as too long a prompt."""

UNREACHABLE = re.compile(
    r"Cannot connect to host|Connect call failed|All connection attempts failed|Connection (?:error|refused)",
    re.IGNORECASE,
)
"""How LiteLLM's HTTP clients say that nobody listens; LiteLLM makes one a server's error, another a connection's."""

NOT_CONNECTED = (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout)
"""How they say that nobody has taken the connection in time, which LiteLLM makes a timeout like any other."""

MOST_CAUSES = 16

LONGEST_MESSAGE = 500
LONGEST_READ = 20_000
LONGEST_RETRY_AFTER = 3600.0


def translate(error: BaseException) -> UpstreamError:
    """Never raises; an exception that the table lacks is a server error under its own name."""
    kind = next((KIND_OF[base] for base in type(error).__mro__ if base in KIND_OF), None)
    status = getattr(error, "status_code", None)
    status = status if isinstance(status, int) and 400 <= status <= 599 else None
    message = _said(error)
    if getattr(error, "all_deployments_in_cooldown", False):
        return _cooling(error)
    if RouterErrors.no_deployments_available.value in message:
        kind = "rate_limit"
    unreachable = kind in {"connection", "server_error"} and UNREACHABLE.search(message[:LONGEST_READ])
    if unreachable or (kind == "timeout" and _never_connected(error)):
        return UpstreamError("connection", STATUS_OF["connection"], "the model's server cannot be reached")
    kind = _kind(kind, status, message)
    if status is None or kind in {"rate_limit", "timeout"} or (kind in {"context_window", "tools"} and status >= 500):
        status = STATUS_OF[kind]
    return UpstreamError(
        kind,
        status,
        scrub(message),
        retry_after=retry_after(error) or (stated_wait(message[:LONGEST_READ]) if kind == "rate_limit" else None),
        context_window=stated_window(message) if kind == "context_window" else None,
    )


def _kind(kind: str | None, status: int | None, message: str) -> str:
    """The kind where LiteLLM's class does not say it: from the message, else from the status."""
    # LiteLLM makes a connection's error of what it does not know of a provider, whatever its status was.
    refused = status is None or status in STATUSES or kind == "connection"
    if refused and kind in REFUSING_TOOLS and is_tool_refusal(message):
        return "tools"
    if kind is not None and kind not in VAGUE:
        return kind
    if status == 413 and is_token_rate(message):
        return "rate_limit"
    if is_overflow(message):
        return "context_window"
    if status is not None and (kind is None or (kind == "server_error" and status < 500)):
        return KIND_OF_STATUS.get(status, "server_error" if kind is None else "bad_request")
    return kind or "server_error"


def _never_connected(error: BaseException) -> bool:
    """Whether a timeout, or what it was made of, was that of a connection: the model's server has been sent nothing."""
    cause: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if isinstance(cause, NOT_CONNECTED):
            return True
        cause = cause and (cause.__cause__ or cause.__context__)
    return False


def _said(error: BaseException) -> str:
    try:
        return str(getattr(error, "message", None) or error) or type(error).__name__
    except Exception:  # noqa: BLE001  some of LiteLLM's build their text from fields that may be missing
        return type(error).__name__


def _cooling(error: BaseException) -> UpstreamError:
    wait = retry_after(error)
    how_long = f"for {wait:g} s " if wait else ""
    return UpstreamError(
        "cooling",
        STATUS_OF["cooling"],
        f"not asked: LiteLLM lets this model rest {how_long}(its cooldown), because all its deployments failed",
        retry_after=wait,
    )


_NOISE = re.compile(r"^(?:litellm\.[A-Za-z]+:\s*|[A-Za-z_]+(?:Exception|Error)\s*-\s*|[A-Za-z]+Error:\s*)+")
_SECRET = re.compile(
    # Addresses and query strings.
    r"\b[a-z]{2,10}://[^\s'\"<>)]+|\?[\w.-]+=[^\s'\"]+|(?<=to host )[^\s'\"]+|"
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9A-Fa-f:]{2,39}\](?::\d+)?|"
    r"(?<![\w:])[0-9A-Fa-f:]{0,39}::[0-9A-Fa-f:]{0,39}(?![\w:])|\b(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}\b|"
    r"\blocalhost:\d+\b|(?<![\w.-])[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}:\d{2,5}\b|"
    # Keys, as vendors begin and mask them.
    r"\b(?:sk|pk|rk|bpk|gsk|hf|xai|nvapi|pplx|gh[a-z]|xox[a-z])[-_][-_*A-Za-z0-9]{8,}|"
    r"\b(?:AIza|AKIA|eyJ)[-_.*A-Za-z0-9]{8,}|(?i:\b(?:bearer|basic))\s+[^\s'\"]+"
)
_NAMED_KEY = re.compile(r"(?i)(\bapi[ _-]?key\b(?: provided)?\s*[:=]\s*)[^\s'\",;]*[^\s'\",;.]")
"""A key of no form that is known, by what stands before it."""

_DATA = re.compile(
    r"(?:data:[\w.+/-]{0,100};base64,)?[A-Za-z0-9+/_-]{120,}={0,2}|data:[\w.+/-]{0,100};base64,[^\s'\"]*",
    re.IGNORECASE,
)
_APPENDIX = re.compile(
    # Nothing unbounded before it: a message may be spaces for its whole length.
    r"(?:Traceback \(most recent call last\)|No fallback model group found|Received Model Group=|"
    r"Available Model Group|LiteLLM Retried|This looks like a bug in LiteLLM).*$",
    re.DOTALL,
)


def said_in(body: str) -> str:
    """The message inside a JSON error body, whatever stands around it; the text itself where there is none."""
    start, end = body.find("{"), body.rfind("}") + 1
    try:
        error = json.loads(body[start:end]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return body
    inner = error.get("error", error) if isinstance(error, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    return message if isinstance(message, str) and message else body


def scrub(message: str) -> str:
    """What a model's server said, without addresses, keys, image data, LiteLLM's class names and notes on fallbacks."""
    kept = _DATA.sub("[data]", _NOISE.sub("", message[:LONGEST_READ].strip()))
    kept = said_in(_APPENDIX.sub("", kept))
    kept = _NAMED_KEY.sub(r"\1[removed]", " ".join(kept.split()))
    kept = _SECRET.sub("[removed]", kept)
    return kept if len(kept) <= LONGEST_MESSAGE else kept[: LONGEST_MESSAGE - 1] + "…"


def retry_after(error: BaseException) -> float | None:
    """Seconds that the model's server asked us to wait, at most an hour."""
    headers = getattr(error, "litellm_response_headers", None) or getattr(
        getattr(error, "response", None), "headers", None
    )
    stated = httpx.Headers(headers).get("retry-after") or getattr(error, "cooldown_time", None)
    seconds = _seconds(stated)
    return min(seconds, LONGEST_RETRY_AFTER) if seconds > 0 else None


def _seconds(stated: object) -> float:
    """Retry-After is seconds or a date; 0 for what is neither."""
    with suppress(TypeError, ValueError):
        return float(str(stated))
    with suppress(TypeError, ValueError):
        return (parsedate_to_datetime(str(stated)) - datetime.now(UTC)).total_seconds()
    return 0


@contextmanager
def in_litellms_words(model: str) -> Iterator[None]:
    """Raise our errors as LiteLLM's own classes, which its fallbacks and its clients know."""
    try:
        yield
    except BenchError as error:
        raise _litellms(error, model) from error
    except Exception as error:
        log.exception("a panel asked through LiteLLM failed inside bench-proxy")
        words = "internal error in bench-proxy; its log says more"
        raise exceptions.InternalServerError(words, llm_provider="bench", model=model) from error


LITELLMS = {
    404: exceptions.NotFoundError,
    408: exceptions.Timeout,
    # Its status is 400; fallbacks for the context window look at the class.
    413: exceptions.ContextWindowExceededError,
    429: exceptions.RateLimitError,
    502: exceptions.BadGatewayError,
    503: exceptions.ServiceUnavailableError,
    504: exceptions.Timeout,
}


def _litellms(error: BenchError, model: str) -> Exception:
    others = exceptions.BadRequestError if error.status < 500 else exceptions.InternalServerError
    of_its_status = LITELLMS.get(error.status, others)
    more: dict[str, Any] = {}
    if of_its_status is exceptions.Timeout:
        more["exception_status_code"] = error.status
    if error.status == 429:
        # Once for LiteLLM's proxy, which takes no header from a response, and once for its router, which reads that.
        more["headers"] = {"retry-after": str(error.retry_after or 60)}
        more["response"] = httpx.Response(429, headers=more["headers"])
    made: Exception = of_its_status(error.message, llm_provider="bench", model=model, **more)
    return made


def all_litellm_exceptions() -> set[type[BaseException]]:
    """Every exception class that LiteLLM's module of them defines; a test holds the table against it."""
    return {
        cls
        for cls in vars(exceptions).values()
        if isinstance(cls, type) and issubclass(cls, BaseException) and cls.__module__ == exceptions.__name__
    } | {litellm.Timeout}

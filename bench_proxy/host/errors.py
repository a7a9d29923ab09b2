"""LiteLLM's exceptions in our words: one table, by class, the nearest base first."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
import litellm
from litellm import exceptions
from litellm.types.router import RouterErrors, RouterRateLimitError, RouterRateLimitErrorBasic

from bench_proxy.errors import UpstreamError

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
}

STATUS_OF = {
    "authentication": 401,
    "bad_request": 400,
    "bad_response": 502,
    "connection": 502,
    "content_policy": 400,
    "context_window": 400,
    "not_found": 404,
    "overloaded": 503,
    "permission": 403,
    "rate_limit": 429,
    "server_error": 500,
    "timeout": 504,
}
KIND_OF_STATUS = {401: "authentication", 403: "permission", 404: "not_found", 408: "timeout", 413: "context_window",
                  429: "rate_limit", 503: "overloaded", 504: "timeout", 529: "overloaded"}  # fmt: skip

CONTEXT_WINDOW = re.compile(
    r"context_length_exceeded|context (?:window|length|limit|size)|maximum (?:prompt|model) length|"
    r"(?:prompt|input) is too long|too many tokens|input token count.*exceeds|`inputs` tokens \+",
    re.IGNORECASE,
)
LONGEST_MESSAGE = 500
LONGEST_READ = 20_000
LONGEST_RETRY_AFTER = 3600.0


def translate(error: BaseException) -> UpstreamError:
    """Never raises; an exception that the table lacks is a server error under its own name."""
    kind = next((KIND_OF[base] for base in type(error).__mro__ if base in KIND_OF), None)
    status = getattr(error, "status_code", None)
    if kind is None:
        kind = KIND_OF_STATUS.get(status, "server_error") if isinstance(status, int) else "server_error"
    message = _said(error)
    if kind == "bad_request" and CONTEXT_WINDOW.search(message):
        kind = "context_window"
    if RouterErrors.no_deployments_available.value in message:
        kind = "rate_limit"
    if not (isinstance(status, int) and 400 <= status <= 599) or kind in {"rate_limit", "timeout"}:
        status = STATUS_OF[kind]
    return UpstreamError(kind, status, scrub(message), retry_after=retry_after(error))


def _said(error: BaseException) -> str:
    try:
        return str(getattr(error, "message", None) or error) or type(error).__name__
    except Exception:  # noqa: BLE001  some of LiteLLM's build their text from fields that may be missing
        return type(error).__name__


_NOISE = re.compile(r"^(?:litellm\.[A-Za-z]+:\s*|[A-Za-z]+(?:Exception|Error)\s*-\s*|[A-Za-z]+Error:\s*)+")
_SECRET = re.compile(
    # Addresses and query strings.
    r"\b[a-z]{2,10}://[^\s'\"<>)]+|\?[\w.-]+=[^\s'\"]+|(?<=to host )[^\s'\"]+|"
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9A-Fa-f:]{2,39}\](?::\d+)?|"
    r"(?<![\w:])[0-9A-Fa-f:]{0,39}::[0-9A-Fa-f:]{0,39}(?![\w:])|\b(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}\b|"
    r"\blocalhost:\d+\b|(?<![\w.-])[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}:\d{2,5}\b|"
    # Keys, as vendors begin and mask them.
    r"\b(?:sk|pk|rk|bpk|gsk|hf|xai|nvapi|pplx|gh[a-z]|xox[a-z])[-_][-_*A-Za-z0-9]{8,}|"
    r"\b(?:AIza|AKIA|eyJ)[-_.*A-Za-z0-9]{8,}|(?i:\b(?:bearer|basic))\s+[^\s'\"]+|"
    # Images.
    r"\bdata:[\w.+/-]+;base64,[\w+/=-]*"
)
_APPENDIX = re.compile(
    r"\s*(?:No fallback model group found|Received Model Group=|Available Model Group|LiteLLM Retried).*$", re.DOTALL
)


def scrub(message: str) -> str:
    """What a model's server said, without addresses, keys, LiteLLM's class names and its notes on fallbacks."""
    kept = _APPENDIX.sub("", _NOISE.sub("", message[:LONGEST_READ].strip()))
    kept = _SECRET.sub("[removed]", " ".join(kept.split()))
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


def all_litellm_exceptions() -> set[type[BaseException]]:
    """Every exception class that LiteLLM's module of them defines; a test holds the table against it."""
    return {
        cls
        for cls in vars(exceptions).values()
        if isinstance(cls, type) and issubclass(cls, BaseException) and cls.__module__ == exceptions.__name__
    } | {litellm.Timeout}

"""LiteLLM's exceptions in our words: one table, by class, the nearest base first."""

import asyncio
import json
import re
from collections.abc import Mapping

import litellm
from litellm import exceptions
from litellm.types.router import RouterErrors, RouterRateLimitError

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
    exceptions.ContentPolicyViolationError: "content_policy",
    exceptions.ContextWindowExceededError: "context_window",
    exceptions.GuardrailRaisedException: "content_policy",
    exceptions.InternalServerError: "server_error",
    exceptions.InvalidRequestError: "bad_request",
    exceptions.JSONSchemaValidationError: "bad_response",
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
    RouterRateLimitError: "rate_limit",
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
    r"maximum context length|context_length_exceeded|context window|prompt is too long|too many tokens|"
    r"input token count.*exceeds|exceeds the (?:model|maximum)",
    re.IGNORECASE,
)
LONGEST_MESSAGE = 500
LONGEST_RETRY_AFTER = 3600.0


def translate(error: BaseException) -> UpstreamError:
    """Never raises; an exception that the table lacks is a server error under its own name."""
    kind = next((KIND_OF[base] for base in type(error).__mro__ if base in KIND_OF), None)
    status = getattr(error, "status_code", None)
    if kind is None:
        kind = KIND_OF_STATUS.get(status, "server_error") if isinstance(status, int) else "server_error"
    message = str(getattr(error, "message", None) or error) or type(error).__name__
    if kind == "bad_request" and CONTEXT_WINDOW.search(message):
        kind = "context_window"
    if RouterErrors.no_deployments_available.value in message:
        kind = "rate_limit"
    if not (isinstance(status, int) and 400 <= status <= 599):
        status = STATUS_OF[kind]
    elif kind == "timeout":
        status = 504
    return UpstreamError(kind, status, scrub(message), retry_after=retry_after(error))


_NOISE = re.compile(r"^(?:litellm\.[A-Za-z]+:\s*|[A-Za-z_]+(?:Exception|Error)\s*-\s*|[A-Za-z]+Error:\s*)+")
_SECRET = re.compile(
    r"https?://[^\s'\"<>)]+|\b(?:sk|pk|rk|key|bpk|AIza|ghp|xox[a-z])[-_A-Za-z0-9]{8,}|"
    r"(?i:bearer)\s+[^\s'\"]+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\blocalhost:\d+\b"
)
_APPENDIX = re.compile(
    r"\s*(?:No fallback model group found|Received Model Group=|Available Model Group|LiteLLM Retried|"
    r"Traceback \(most recent call last\)|This looks like a bug in LiteLLM).*$",
    re.DOTALL,
)
_JSON = re.compile(r"\{.*\}", re.DOTALL)


def said_in(body: str) -> str:
    """The message inside a JSON error body, whatever stands around it; the text itself where there is none."""
    found = _JSON.search(body)
    try:
        error = json.loads(found.group()) if found else None
    except ValueError:
        return body
    inner = error.get("error", error) if isinstance(error, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    return message if isinstance(message, str) and message else body


def scrub(message: str) -> str:
    """What a model's server said, without addresses, keys, LiteLLM's class names and its notes on fallbacks."""
    kept = said_in(_APPENDIX.sub("", _NOISE.sub("", message.strip())))
    kept = _SECRET.sub("[removed]", " ".join(kept.split()))
    return kept if len(kept) <= LONGEST_MESSAGE else kept[: LONGEST_MESSAGE - 1] + "…"


def retry_after(error: BaseException) -> float | None:
    """Seconds that the model's server asked us to wait, at most an hour."""
    headers = getattr(error, "litellm_response_headers", None) or getattr(
        getattr(error, "response", None), "headers", None
    )
    cooldown = getattr(error, "cooldown_time", None)
    stated = (headers.get("retry-after") if headers is not None else None) or cooldown
    try:
        seconds = float(stated)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return min(seconds, LONGEST_RETRY_AFTER) if seconds > 0 else None


def all_litellm_exceptions() -> set[type[BaseException]]:
    """Every exception class that LiteLLM's module of them defines; a test holds the table against it."""
    return {
        cls
        for cls in vars(exceptions).values()
        if isinstance(cls, type) and issubclass(cls, BaseException) and cls.__module__ == exceptions.__name__
    } | {litellm.Timeout}

"""LiteLLM's exceptions cross the border in our words, whichever they are, and say nothing that nobody may know."""

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from litellm import exceptions
from litellm.types import router
from pydantic import BaseModel, ValidationError

from bench_proxy.errors import KINDS, UpstreamError
from bench_proxy.host.errors import (
    KIND_OF,
    KIND_OF_STATUS,
    LONGEST_MESSAGE,
    STATUS_OF,
    retry_after,
    said_in,
    scrub,
    translate,
)

REQUEST = httpx.Request("POST", "https://api.example.org/v1/chat/completions")


def defined_in(module: Any) -> list[type[BaseException]]:
    return [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls) and issubclass(cls, BaseException) and cls.__module__ == module.__name__
    ]


THEIRS = sorted({*defined_in(exceptions), *defined_in(router)}, key=lambda cls: cls.__name__)
NAMES = [cls.__name__ for cls in THEIRS]

# What an exception of theirs is made of, by the names of its arguments.
ARGUMENTS: dict[str, Any] = {
    "message": "it did not work",
    "model": "gpt",
    "llm_provider": "openai",
    "status_code": 500,
    "request_data": {},
    "raw_response": "{}",
    "schema": "{}",
    "current_cost": 2.0,
    "max_budget": 1.0,
    "entity_type": "PERSON",
    "route_to_model": "gpt",
    "session_id": "1",
    "failures": (),
    "cooldown_time": 7.0,
    "enable_pre_call_checks": False,
    "cooldown_list": [],
}


def made(cls: type[BaseException], status: int = 400) -> BaseException:
    if "__init__" not in vars(cls) and Exception in cls.__bases__:
        return cls("it did not work")
    arguments = {**ARGUMENTS, "response": httpx.Response(status, request=REQUEST)}
    needed = [
        name
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    return cls(**{name: arguments[name] for name in needed})


def bad_request(message: str) -> UpstreamError:
    return translate(exceptions.BadRequestError(message, model="gpt", llm_provider="openai"))


# The table


def test_litellm_has_exceptions() -> None:
    assert len(THEIRS) > 30


@pytest.mark.parametrize("cls", THEIRS, ids=NAMES)
def test_every_exception_of_litellms_is_in_the_table(cls: type[BaseException]) -> None:
    assert cls in KIND_OF, f"host/errors.py does not say what {cls.__name__} is"


def test_the_table_holds_no_exception_that_litellm_has_not() -> None:
    assert KIND_OF.keys() - {asyncio.TimeoutError, ValidationError} <= set(THEIRS)


def test_every_kind_is_one_of_ours_and_has_a_status() -> None:
    assert set(KIND_OF.values()) | set(KIND_OF_STATUS.values()) <= set(STATUS_OF) <= KINDS


@pytest.mark.parametrize("cls", THEIRS, ids=NAMES)
def test_every_exception_of_litellms_becomes_ours(cls: type[BaseException]) -> None:
    error = translate(made(cls))
    assert error.kind == KIND_OF[cls]
    assert 400 <= error.status <= 599
    assert error.message


SAID = [
    (exceptions.AuthenticationError, "authentication", 401),
    (exceptions.PermissionDeniedError, "permission", 403),
    (exceptions.NotFoundError, "not_found", 404),
    (exceptions.RateLimitError, "rate_limit", 429),
    (exceptions.Timeout, "timeout", 504),
    (exceptions.ContextWindowExceededError, "context_window", 400),
    (exceptions.BadRequestError, "bad_request", 400),
    (exceptions.ContentPolicyViolationError, "content_policy", 400),
    (exceptions.ServiceUnavailableError, "overloaded", 503),
    (exceptions.BudgetExceededError, "rate_limit", 429),
    (router.RouterRateLimitError, "rate_limit", 429),
    (router.RouterRateLimitErrorBasic, "rate_limit", 429),
]


@pytest.mark.parametrize(("cls", "kind", "status"), SAID, ids=[cls.__name__ for cls, _, _ in SAID])
def test_what_it_means_is_said_by_kind_and_status(cls: type[BaseException], kind: str, status: int) -> None:
    error = translate(made(cls, status))
    assert (error.kind, error.status) == (kind, status)


def test_running_out_of_time_is_a_timeout() -> None:
    assert (translate(TimeoutError()).kind, translate(TimeoutError()).status) == ("timeout", 504)


def test_a_status_that_the_models_server_gave_is_kept() -> None:
    error = exceptions.APIError(529, "overloaded", "anthropic", "claude")
    assert (translate(error).kind, translate(error).status) == ("server_error", 529)


class Unheard(Exception):
    status_code: object = None


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (None, "server_error", 500),
        (401, "authentication", 401),
        (403, "permission", 403),
        (404, "not_found", 404),
        (408, "timeout", 504),
        (413, "context_window", 413),
        (429, "rate_limit", 429),
        (503, "overloaded", 503),
        (529, "overloaded", 529),
        (418, "server_error", 418),
        (200, "server_error", 500),
        (999, "server_error", 500),
        ("429", "server_error", 500),
    ],
)
def test_an_exception_that_nobody_has_heard_of_is_known_by_its_status(status: object, kind: str, said: int) -> None:
    unheard = Unheard("who knows")
    unheard.status_code = status
    error = translate(unheard)
    assert (error.kind, error.status, error.message) == (kind, said, "who knows")


def test_an_exception_without_words_is_known_by_its_name() -> None:
    assert translate(Unheard()).message == "Unheard"


class Broken(Exception):
    def __str__(self) -> str:
        raise AttributeError("no message")


def test_translating_never_fails() -> None:
    assert translate(Broken()).kind == "server_error"


# The context window

TOO_LONG = [
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    "Error code: 400 - {'error': {'code': 'context_length_exceeded', 'message': 'Please reduce the length.'}}",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 200001 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length",
    "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
    "Prompt contains 33000 tokens, too large for model with 32768 maximum context length",
    "This model's maximum prompt length is 131072 but the request contains 131100 tokens.",
    "the request exceeds the available context size, try increasing it",
    "Input is too long for requested model.",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
]
NOT_TOO_LONG = [
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "The image exceeds the maximum size of 5 MB.",
    "temperature 3 exceeds the maximum of 2",
    "Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 80.",
    "Too many images in the request.",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_vendors_wordings_for_a_prompt_that_is_too_long_are_known(message: str) -> None:
    assert bad_request(message).kind == "context_window"


@pytest.mark.parametrize("message", NOT_TOO_LONG)
def test_other_things_that_are_too_large_are_no_matter_of_the_context_window(message: str) -> None:
    assert bad_request(message).kind == "bad_request"


# What is not said


@pytest.mark.parametrize(
    ("message", "secret"),
    [
        ("see https://api.internal.example:8443/v1/chat?key=abc for more", "api.internal"),
        ("redirected to http://10.1.2.3/v1", "10.1.2.3"),
        ("Cannot connect to host vllm.default.svc.cluster.local:8000 ssl:default [Name not known]", "cluster.local"),
        ("Cannot connect to host ollama:11434 ssl:default [Connect call failed ('10.0.0.5', 11434)]", "ollama"),
        ("Connect call failed ('10.0.0.5', 11434)", "10.0.0.5"),
        ("Connect call failed ('::1', 11434, 0, 0)", "::1"),
        ("no route to [2001:db8::7]:8000", "2001:db8"),
        ("no route to 2001:0db8:0000:0000:0000:ff00:0042:8329", "ff00:0042"),
        ("connection to localhost:8000 refused", "localhost"),
        ("connection to models.example.org:8000 refused", "models.example"),
        ("POST /openai/deployments/gpt?api-version=2024-02-01&api-key=0123456789abcdef failed", "0123456789abcdef"),
        ("Incorrect API key provided: sk-1234567890abcdef1234.", "1234567890"),
        ("Incorrect API key provided: sk-proj-********************AbCd. You can find your key.", "AbCd"),
        ("invalid key sk-ant-api03-abcdefghijk_lmnop", "abcdefghijk"),
        ("API key AIzaSyA1234567890abcdefghij is invalid", "SyA123"),
        ("token hf_abcdefghijklmnop has no access", "abcdefghijklmnop"),
        ("gsk_abcdefghijklmnop is not a valid key", "abcdefghijklmnop"),
        ("bpk_Abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", "Abcdefgh"),
        ("AKIAIOSFODNN7EXAMPLE cannot assume", "IOSFODNN7"),
        ("Authorization: Bearer abc.def-ghi", "abc.def"),
        ("authorization: bearer abcdef", "abcdef"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("could not decode data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA", "iVBORw0KGgo"),
        ("could not decode DATA:;base64,iVBORw0KGgo= of the file", "iVBORw0KGgo"),
        (f"could not decode {'iVBORw0KGgo/' * 20}==", "iVBORw0KGgo"),
    ],
)
def test_no_address_key_query_string_or_image_is_told(message: str, secret: str) -> None:
    kept = scrub(message)
    assert secret not in kept
    assert "[removed]" in kept or "[data]" in kept


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens must be at most 4096",
        "model gpt-4.1-2025-04-14 does not exist",
        "unexpected keyword_argument or keyboard_layout in pkg_resources",
        "The skeptical skeleton took a risk-adjusted view at 12:30:45.",
        "a ratio of 3:10, version 1.2.3, std::vector and reqwest::Error",
        "messages.0.content.1: the host is down (code:42)",
        "Rate limit reached for gpt-4o in organization: limit 30000, used 29000. Please try again in 7.2s.",
    ],
)
def test_ordinary_words_are_kept(message: str) -> None:
    assert scrub(message) == message


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("litellm.RateLimitError: RateLimitError: OpenAIException - slow down", "slow down"),
        ("litellm.AuthenticationError: AuthenticationError: AnthropicException - no such key", "no such key"),
        ("slow down. Received Model Group=gpt\nAvailable Model Group Fallbacks=None", "slow down."),
        ("slow down LiteLLM Retried: 2 times, LiteLLM Max Retries: 3", "slow down"),
        ("slow\n\n   down", "slow down"),
        ("", ""),
    ],
)
def test_litellms_own_words_around_the_message_are_left_out(message: str, kept: str) -> None:
    assert scrub(message) == kept


def test_a_message_has_a_longest_length() -> None:
    kept = scrub("words " * 1000)
    assert (len(kept), kept[-1]) == (LONGEST_MESSAGE, "…")


@pytest.mark.parametrize(
    "error",
    [
        exceptions.InternalServerError(
            "InternalServerError: Hosted_vllmException - Cannot connect to host 127.0.0.1:8000 ssl:<ssl.SSLContext>",
            "hosted_vllm",
            "m",
        ),
        exceptions.InternalServerError("InternalServerError: OpenAIException - Connection error.", "openai", "m"),
        exceptions.APIConnectionError("Connection error: ClientConnectorError", "openai", "m"),
    ],
)
def test_a_server_that_nobody_answers_at_is_unreachable(error: Exception) -> None:
    told = translate(error)
    assert (told.kind, told.status, told.message) == ("connection", 502, "the model's server cannot be reached")


def test_a_translated_error_is_scrubbed() -> None:
    error = exceptions.AuthenticationError(
        "AuthenticationError: OpenAIException - Incorrect API key provided: sk-1234567890abcdef. See https://x.org/keys",
        llm_provider="openai",
        model="gpt",
    )
    assert translate(error).message == "Incorrect API key provided: [removed]. See [removed]"


def test_a_message_of_a_megabyte_is_scrubbed_in_one_pass() -> None:
    # Far slower than one pass would be a hang, which the time limit of the tests ends.
    for text in ("a." * 500_000, "1." * 500_000, ":" * 1_000_000, "sk-" * 300_000, "0:" * 500_000, "host " * 200_000):
        assert len(scrub(text)) <= LONGEST_MESSAGE


# How long to wait


def limited(**headers: str) -> exceptions.RateLimitError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx.Response(429, headers=named, request=REQUEST)
    return exceptions.RateLimitError("slow down", llm_provider="openai", model="gpt", response=response)


def at(delta: timedelta) -> str:
    return format_datetime(datetime.now(UTC) + delta, usegmt=True)


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("3600", 3600.0),
        ("86400", 3600.0),
        ("inf", 3600.0),
        ("0", None),
        ("-5", None),
        ("nan", None),
        ("soon", None),
        ("", None),
        (at(timedelta(hours=2)), 3600.0),
        (at(timedelta(hours=-2)), None),
    ],
)
def test_the_wait_that_the_models_server_stated_is_kept_up_to_an_hour(stated: str, seconds: float | None) -> None:
    assert retry_after(limited(retry_after=stated)) == seconds


def test_no_wait_stated_is_none() -> None:
    assert retry_after(limited()) is None
    assert retry_after(ValueError("no")) is None


@pytest.mark.parametrize("headers", [{"retry-after": "7"}, {"Retry-After": "7"}, httpx.Headers({"RETRY-AFTER": "7"})])
def test_headers_that_litellm_put_on_the_error_are_read_in_any_case(headers: Any) -> None:
    error = exceptions.InternalServerError("no", llm_provider="openai", model="gpt")
    error.litellm_response_headers = headers
    assert retry_after(error) == 7.0


def test_the_cooldown_of_litellms_router_is_a_wait() -> None:
    error = made(router.RouterRateLimitError)
    assert (translate(error).kind, translate(error).retry_after) == ("rate_limit", 7.0)


def test_a_router_without_deployments_left_is_a_rate_limit_also_under_another_class() -> None:
    error = exceptions.BadRequestError(
        f"{router.RouterErrors.no_deployments_available.value}, try again", model="gpt", llm_provider="openai"
    )
    assert translate(error).kind == "rate_limit"


@pytest.mark.parametrize("body", ["{" * 300_000, "}" + "{" * 300_000, '{"a":' * 20_000 + "1" + "}" * 20_000, "}{"])
def test_an_error_body_that_is_hard_to_search_is_taken_as_it_is(body: str) -> None:
    # A search that grows with the square of the length would be a hang, which the time limit of the tests ends.
    assert said_in(body) == body
    assert len(scrub(body)) <= LONGEST_MESSAGE


HOSTILE = (
    "a" + " " * 20_000 + "b",
    "\n" * 20_000,
    "Traceback " * 2_000,
    "7" * 20_000,
    "a-" * 10_000,
    "http:" * 4_000,
    "sk-" * 7_000,
    "api key " * 2_500,
    ".a" * 10_000,
    "::" * 10_000,
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("message", HOSTILE, ids=lambda message: repr(message[:6]))
def test_a_message_that_repeats_itself_is_translated_in_no_time(message: str) -> None:
    """What is read in time that grows with the square of its length would take minutes here."""
    for _ in range(30):
        translate(exceptions.BadRequestError(message, "m", "openai"))


def test_a_field_that_litellm_cannot_read_is_the_callers_fault() -> None:
    class Fields(BaseModel):
        region: str

    with pytest.raises(ValidationError) as refused:
        Fields.model_validate({"region": 5})
    told = translate(refused.value)
    assert (told.kind, told.status) == ("bad_request", 400)

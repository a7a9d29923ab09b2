"""What LiteLLM raises, in our words, where its class alone does not say it."""

import time
from email.utils import formatdate

import httpx
import litellm
import pytest

from bench_proxy.errors import KINDS
from bench_proxy.host.errors import STATUS_OF, scrub, translate


def api_error(status: int, message: str) -> litellm.APIError:
    return litellm.APIError(status_code=status, message=message, llm_provider="openai", model="gpt")


def refusal(kind: type[Exception], message: str) -> Exception:
    return kind(message=message, llm_provider="openai", model="gpt")  # type: ignore[call-arg]


OVERFLOW = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9102 tokens."
LLAMA = '{"error":{"code":500,"message":"the request exceeds the available context size.","n_ctx":4096}}'
TOO_MUCH_A_MINUTE = "Request too large for model `x` on tokens per minute (TPM): Limit 6000. Please try again in 3.5s."


@pytest.mark.parametrize(
    ("error", "kind", "status", "window"),
    [
        (refusal(litellm.ContextWindowExceededError, OVERFLOW), "context_window", 400, 8192),
        (refusal(litellm.ContextWindowExceededError, "too long"), "context_window", 400, None),
        (refusal(litellm.BadRequestError, OVERFLOW), "context_window", 400, 8192),
        (refusal(litellm.InternalServerError, LLAMA), "context_window", 400, 4096),
        (refusal(litellm.APIConnectionError, f"OllamaException - {LLAMA}"), "context_window", 400, 4096),
        (api_error(413, "Payload Too Large"), "context_window", 413, None),
        (api_error(413, TOO_MUCH_A_MINUTE), "rate_limit", 429, None),
        (refusal(litellm.RateLimitError, TOO_MUCH_A_MINUTE), "rate_limit", 429, None),
        (refusal(litellm.BadRequestError, "max_tokens: 9 > 8192, which is the maximum"), "bad_request", 400, None),
        (refusal(litellm.ContentPolicyViolationError, OVERFLOW), "content_policy", 400, None),
    ],
)
def test_a_prompt_that_is_too_long_is_told_by_its_words(
    error: Exception, kind: str, status: int, window: int | None
) -> None:
    said = translate(error)
    assert (said.kind, said.status, said.context_window) == (kind, status, window)


LONG_NAME = "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64."


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (refusal(litellm.BadRequestError, "llama3 does not support tools"), "tools", 400),
        (refusal(litellm.NotFoundError, "No endpoints found that support tool use."), "tools", 404),
        (refusal(litellm.ContextWindowExceededError, LONG_NAME), "tools", 400),
        (refusal(litellm.APIConnectionError, "OllamaException - llama3 does not support tools"), "tools", 400),
        (api_error(422, "tools.0.custom.input_schema: JSON schema is invalid."), "tools", 422),
        (refusal(litellm.InternalServerError, "llama3 does not support tools"), "server_error", 500),
        (refusal(litellm.RateLimitError, "too many tools"), "rate_limit", 429),
        (refusal(litellm.BadRequestError, "tool_choice: Input should be a valid dictionary"), "bad_request", 400),
        (refusal(litellm.NotFoundError, "The model `tools-a` does not exist"), "not_found", 404),
    ],
)
def test_a_refusal_of_tools_is_told_by_its_words(error: Exception, kind: str, status: int) -> None:
    said = translate(error)
    assert (said.kind, said.status, said.context_window) == (kind, status, None)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(402, "permission"), (404, "not_found"), (409, "bad_request"), (418, "bad_request"), (500, "server_error")],
)
def test_what_litellm_has_no_class_for_is_told_by_its_status(status: int, kind: str) -> None:
    assert translate(api_error(status, "no")).kind == kind


def test_a_wait_stands_in_the_words_where_no_header_has_it() -> None:
    assert translate(refusal(litellm.RateLimitError, TOO_MUCH_A_MINUTE)).retry_after == 3.5
    assert translate(refusal(litellm.InternalServerError, "try again in 5s")).retry_after is None


@pytest.mark.parametrize(
    ("header", "wait"),
    [("30", 30), ("0.5", 0.5), ("7200", 3600), ("0", None), ("-1", None), ("nan", None), ("soon", None), ("", None)],
)
def test_a_wait_in_the_header_is_a_number_of_seconds_up_to_an_hour(header: str, wait: float | None) -> None:
    assert translate(limited(header)).retry_after == wait


def test_a_wait_in_the_header_may_be_a_date() -> None:
    stated = translate(limited(formatdate(time.time() + 90, usegmt=True))).retry_after
    assert stated == pytest.approx(90, abs=2)
    assert translate(limited(formatdate(time.time() - 90, usegmt=True))).retry_after is None


def limited(retry_after: str) -> litellm.RateLimitError:
    request = httpx.Request("POST", "https://example.com")
    response = httpx.Response(429, headers={"retry-after": retry_after}, request=request)
    return litellm.RateLimitError("slow down", llm_provider="openai", model="gpt", response=response)


def test_every_kind_that_is_translated_to_is_one() -> None:
    assert set(STATUS_OF) <= KINDS


DATA = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ" * 100


@pytest.mark.parametrize(
    "said",
    [
        f"Invalid image: data:image/png;base64,{DATA} is not one",
        f"Invalid image: {DATA}== is not one",
        "Invalid image: 'DATA:image/png;base64,AAAA' is not one",
        f'{{"image_url": {{"url": "data:image/jpeg;base64,{DATA}"}}}}',
    ],
)
def test_image_data_that_a_server_repeats_is_left_out(said: str) -> None:
    assert "[data]" in scrub(said)
    assert "iVBOR" not in scrub(said)
    assert "AAAA" not in scrub(said)


def test_a_long_error_of_words_is_kept_as_far_as_it_fits() -> None:
    assert scrub("the server is tired " * 1000).startswith("the server is tired the server")

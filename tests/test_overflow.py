"""What model servers say to a prompt that is too long, and the window that can be read from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.overflow import LARGEST_WINDOW, SMALLEST_WINDOW, is_overflow, is_token_rate, stated_window

# Who says it, what, and the window in it.
STATED = [
    (
        "openai",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9102 tokens. Please "
        "reduce the length of the messages.",
        8192,
    ),
    (
        "openai functions",
        "This model's maximum context length is 8192 tokens. However, you requested 8213 tokens (6683 in the messages, "
        "730 in the functions, and 800 in the completion).",
        8192,
    ),
    (
        "openai responses",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300122 tokens.",
        272_000,
    ),
    (
        "azure",
        "AzureException - Error code: 400 - {'error': {'message': \"This model's maximum context length is 128000 "
        "tokens. However, your messages resulted in 179011 tokens.\", 'code': 'context_length_exceeded'}}",
        128_000,
    ),
    (
        "anthropic",
        '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 202095 tokens > 200000 '
        'maximum"}}',
        200_000,
    ),
    (
        "anthropic with output",
        "input length and `max_tokens` exceed context limit: 190000 + 21333 > 204798, decrease input length or "
        "`max_tokens` and try again",
        204_798,
    ),
    (
        "gemini",
        '{"error": {"code": 400, "message": "The input token count (1200293) exceeds the maximum number of tokens '
        'allowed (1048576).", "status": "INVALID_ARGUMENT"}}',
        1_048_576,
    ),
    (
        "vertex",
        "Unable to submit request because the input token count is 1100000 but model only supports up to 1048576.",
        1_048_576,
    ),
    (
        "mistral",
        "Prompt contains 41337 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32_768,
    ),
    (
        "cohere",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 6354. Try using a shorter "
        "prompt, or enabling prompt truncation.",
        4081,
    ),
    (
        "cohere with output",
        "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354.",
        2048,
    ),
    (
        "together",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens and "
        "512 `max_new_tokens`",
        4097,
    ),
    ("tgi", "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000", 4095),
    (
        "vllm",
        "This model's maximum context length is 32768 tokens. However, you requested 40960 tokens (32768 in the "
        "messages, 8192 in the completion). Please reduce the length of the messages or completion.",
        32_768,
    ),
    (
        "vllm decoder",
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that it is not.",
        8192,
    ),
    ("sglang", "The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4096),
    (
        "sglang request",
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a "
        "total of 9000 tokens.",
        8192,
    ),
    (
        "llama.cpp",
        '{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context '
        'size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}',
        8192,
    ),
    (
        "ollama",
        "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it",
        8192,
    ),
    ("llama-cpp-python", "Requested tokens (1407) exceed context window of 1024", 1024),
    (
        "lm studio",
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
        4096,
    ),
    (
        "deepseek",
        "This model's maximum context length is 131072 tokens. However, you requested 133034 tokens (125034 in the "
        "messages, 8000 in the completion).",
        131_072,
    ),
    (
        "bedrock anthropic",
        "BedrockException - The model returned the following errors: prompt is too long: 213462 tokens > "
        "200000 maximum",
        200_000,
    ),
    (
        "bedrock titan",
        "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9113",
        8192,
    ),
    (
        "openrouter",
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens (180000 "
        "of text input, 20000 in the output). Please reduce the length of either one, or use the middle-out transform.",
        131_072,
    ),
    (
        "xai",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        131_072,
    ),
    ("fireworks", "The prompt is too long: 40112, model maximum context length: 32768", 32_768),
    ("cerebras", "Please reduce the length of the messages. Current length is 9000 while limit is 8192", 8192),
    ("moonshot", "Invalid request: Your request exceeded model token limit: 8192", 8192),
    ("dashscope", "Range of input length should be [1, 30720]", 30_720),
    ("github", "prompt token count of 150000 exceeds the limit of 128000", 128_000),
    (
        "watsonx",
        "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model",
        4096,
    ),
    ("thousands", "This model's maximum context length is 1,048,576 tokens.", 1_048_576),
]
UNSTATED = [
    ("groq", "Please reduce the length of the messages or completion."),
    (
        "openai responses",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    ("bedrock", "Input is too long for requested model."),
    ("cohere", "too many tokens: size limit exceeded by 1234 tokens. Try using shorter or fewer inputs."),
    ("code", "{'error': {'message': 'no', 'code': 'context_length_exceeded'}}"),
    ("tiny", "This model's maximum context length is 77 tokens."),
    ("zero", "This model's maximum context length is 0 tokens."),
    ("endless", f"This model's maximum context length is {'9' * 5000} tokens."),
    ("vague", "the prompt size exceeds the context window size and cannot be processed"),
]
OTHER = [
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided "
    "100000.",
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "The maximum tokens you requested exceeds the model limit of 4096. Try again with a lower maximum tokens value.",
    "Request too large for model `llama-3.1-8b-instant` on tokens per minute (TPM): Limit 6000, Requested 7012, please "
    "reduce your message size and try again.",
    "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 28000, Requested 4000.",
    "Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 100.",
    "you exceeded your current quota, please check your plan",
    "Overloaded",
    "",
]


@pytest.mark.parametrize(("message", "window"), [s[1:] for s in STATED], ids=[s[0] for s in STATED])
def test_the_window_that_a_vendor_states_is_read(message: str, window: int) -> None:
    assert stated_window(message) == window
    assert is_overflow(message)


@pytest.mark.parametrize("message", [u[1] for u in UNSTATED], ids=[u[0] for u in UNSTATED])
def test_an_overflow_that_states_no_usable_window_is_one_all_the_same(message: str) -> None:
    assert is_overflow(message)
    assert stated_window(message) is None


@pytest.mark.parametrize("message", OTHER)
def test_limits_of_output_rates_and_quotas_are_no_windows(message: str) -> None:
    assert not is_overflow(message)
    assert stated_window(message) is None


def test_a_limit_of_tokens_over_time_is_told_apart() -> None:
    assert is_token_rate("Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7012")
    assert not is_token_rate("This model's maximum context length is 8192 tokens.")


@given(st.text())
def test_any_text_gives_a_window_that_can_be_one_or_none(message: str) -> None:
    window = stated_window(message)
    assert window is None or SMALLEST_WINDOW <= window <= LARGEST_WINDOW


@given(st.integers(-(10**15), 10**15))
def test_any_number_gives_a_window_that_can_be_one_or_none(number: int) -> None:
    window = stated_window(f"This model's maximum context length is {number} tokens.")
    assert window == (number if SMALLEST_WINDOW <= number <= LARGEST_WINDOW else None)


def test_a_megabyte_of_error_is_read_at_once() -> None:
    message = "maximum context length is " + "(1 " * 400_000
    for _ in range(100):  # in time that grows with the square, the test would not end
        assert stated_window(message) is None
        assert is_overflow(message)


HOSTILE = ("7" * 10_000, "7," * 5_000, "7_" * 5_000, "tokens > " * 1_000, "maximum context length " * 400, "(" * 10_000)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("message", HOSTILE, ids=lambda message: message[:9])
def test_a_message_that_repeats_itself_is_read_in_no_time(message: str) -> None:
    """What is read in time that grows with the square of its length would take minutes here."""
    for _ in range(100):
        is_overflow(message)
        stated_window(message)

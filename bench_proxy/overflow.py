"""What model servers say when a prompt is too long for the model, and the context window that they state (pure).

There is no common code or field for it, only sentences. Each of them below is one that a server was seen to say;
what they are is listed in `tests/test_overflow.py`.
"""

import re

SMALLEST_WINDOW = 512
"""Tokens. No model that chats has less: a smaller number in an error is about something else."""

LARGEST_WINDOW = 1_000_000_000
"""Tokens. More is a number that means something else, a time or an id."""

READ = 10_000
"""Characters of an error that are looked at; a server may put the whole prompt behind its sentence."""

_DIGITS = r"\d[\d,_]{0,15}"
"""Of bounded length: a message may repeat what it was sent, and that may be digits for a thousand characters."""

_N = rf"\(?\[?`?({_DIGITS})"

_STATED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # OpenAI, Azure, DeepSeek, vLLM, SGLang, OpenRouter, Fireworks, xAI
        rf"maximum (?:context|prompt|input|sequence|model) (?:length|size|window)(?: is| of|:)? {_N}",
        # Mistral
        rf"(?<![\d,_])({_DIGITS}) maximum context length",
        # Anthropic, also behind Bedrock and Vertex
        rf"tokens? > {_N} maximum",
        rf"exceed context limit: [\d,_ +]{{1,60}} > {_N}",
        # Gemini, Vertex
        rf"maximum number of tokens allowed {_N}",
        rf"token count is [\d,_]{{1,20}} but (?:the )?model only supports up to {_N}",
        # Cohere, watsonx
        rf"number of (?:input )?tokens[^.]{{0,60}} cannot exceed (?:the total tokens limit )?{_N}",
        # Text Generation Inference, Together
        rf"`inputs` tokens \+ `max_new_tokens` must be <= {_N}",
        rf"`inputs` must have less than {_N}",
        # llama.cpp, Ollama, LM Studio, SGLang
        rf"available context size {_N}",
        rf"\"n_ctx\":\s*{_N}",
        rf"exceed(?:s|ed)? (?:the )?(?:model'?s? )?context (?:window|length|size) (?:of )?{_N}",
        rf"(?:model's|with) context length (?:of only )?{_N}",
        # Bedrock's Titan
        rf"max input tokens: {_N}",
        # OpenAI's Responses models, GitHub, Moonshot, Cerebras, DashScope
        rf"input tokens exceed the configured limit of {_N}",
        rf"prompt token count of [\d,_]{{1,20}} exceeds the limit of {_N}",
        rf"exceeded model token limit: {_N}",
        rf"current length is [\d,_]{{1,20}} while limit is {_N}",
        rf"range of input length should be \[1, ({_DIGITS})\]",
        rf"input tokens, limit is {_N}",
    )
)

_UNSTATED = re.compile(
    r"context_length_exceeded|exceed_context_size_error|model_context_window_exceeded|prompt is too long|"
    r"(?:prompt|input|request|message|conversation|content)\w* (?:is |are )?too (?:long|large) for "
    r"(?:the |this )?(?:requested )?model|"
    r"exceeds? (?:the |this |its )?(?:available |maximum |model'?s? |allowed )*context (?:window|length|size|limit)|"
    r"maximum context length|context (?:window|length|size) (?:was |is |has been )?exceeded|"
    r"input length (?:exceeds|and `max_tokens` exceed)|too many (?:input )?tokens: |"
    r"reduce the length of (?:the |your )?(?:messages|prompt|input)",
    re.IGNORECASE,
)

_A_MINUTE = re.compile(r"per[ -]?min(?:ute)?\b|\bTPM\b|per[ -]?(?:day|hour)\b|\bTPD\b", re.IGNORECASE)


def is_overflow(message: str) -> bool:
    """Whether this says that the prompt does not fit the model. A rate limit in tokens a minute is none."""
    read = message[:READ]
    return not _A_MINUTE.search(read) and bool(_UNSTATED.search(read) or any(p.search(read) for p in _STATED))


def is_token_rate(message: str) -> bool:
    """Whether a limit is of tokens over time: some servers say "too large" to a prompt above what a minute allows."""
    return bool(_A_MINUTE.search(message[:READ]))


def stated_window(message: str) -> int | None:
    """The context window in tokens that an error states, or None when it states none that can be one."""
    read = message[:READ]
    if _A_MINUTE.search(read):
        return None
    for pattern in _STATED:
        if found := pattern.search(read):
            window = int(re.sub(r"[,_]", "", found[1])[:12])
            return window if SMALLEST_WINDOW <= window <= LARGEST_WINDOW else None
    return None

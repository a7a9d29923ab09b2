"""What model servers say when a model cannot call tools, or they will not take these tools (pure).

Another model may well take them. There is no common code for it, only sentences, which are listed by vendor in
`tests/test_tool_refusals.py`.
"""

import re

STATUSES = frozenset({400, 404, 422})
"""Those with which servers refuse tools."""

READ = 10_000
"""Characters of an error that are looked at; a server may repeat all tools behind its sentence."""

_CALLING = r"(?:tool|function)[ _-]?(?:use|call(?:s|ing)?)"
_NOT = r"(?:does not|doesn'?t|do not|don'?t|cannot|can'?t)"

_CANNOT = (
    # Ollama, Cohere; Bedrock; xAI, DeepSeek
    rf"{_NOT} support (?:the use of )?(?:tools|functions)\b",
    rf"{_NOT} support [`'\"]?{_CALLING}",
    # OpenRouter
    r"no endpoints found that support tool use",
    # OpenAI, Azure, Perplexity; Groq
    r"'?\b(?:tools|functions|tool_choice)'? (?:is|are) not supported (?:with|in|by|for) this model",
    rf"{_CALLING}[`'\"]? (?:is|are) (?:not|currently not) (?:supported|enabled|available)",
    # Novita
    rf"features? {_CALLING} not support",
    # vLLM; llama.cpp
    r"--enable-auto-tool-choice",
    r"\btools? param requires --jinja",
    # Servers that know no such field
    r"'loc': \[?\(?'body', 'tools'",
)

_REFUSED = (
    # OpenAI, Azure
    r"invalid schema for function",
    r"invalid_function_parameters",
    r"invalid '(?:tools|functions)(?:\[\d{1,4}\][\w.\[\]]{0,80})?':",
    # Gemini, Vertex
    r"at '(?:request\.)?tools\[\d{1,4}\]",
    r"\btools\[\d{1,4}\]\.function_?declarations\[\d{1,4}\]",
    r"function_?declarations? [^\n]{0,120}\bschema\b",
    r"invalid function name",
    # Anthropic, also behind Bedrock and Vertex
    r"\btools\.\d{1,4}\.",
    r"\btools: tool names must be unique",
    r"\btoolConfig\.tools\.",
    # Moonshot
    r"\btools\.function\.parameters\b",
    # Groq, of a call that its model got wrong
    r"tool_use_failed",
    r"failed to call a function",
    r"tool call validation failed",
    # xAI and others, of how many there are
    r"maximum (?:number of )?tools (?:limit )?(?:reached|exceeded)",
    r"too many (?:tools|functions)\b",
)

_SAID = re.compile("|".join((*_CANNOT, *_REFUSED)), re.IGNORECASE)


def is_tool_refusal(message: str) -> bool:
    """Whether this says that the model calls no tools, or that these ones are not taken."""
    return bool(_SAID.search(message[:READ]))

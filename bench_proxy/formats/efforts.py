"""How much a model should think, in the words of chat completions.

Thinking switched off (Gemini's budget 0, Anthropic's `disabled`, Ollama's `false`) says nothing: each model thinks as
it does by itself. LiteLLM gives the word for it, `none`, to models that refuse it (o3, gpt-oss, Gemini 2.5 Pro).
"""

from collections.abc import Sequence

Budgets = Sequence[tuple[int, str]]
"""From so many thinking tokens on -> the effort."""

ANTHROPICS: Budgets = ((10_000, "high"), (5_000, "medium"), (2_000, "low"))
"""Less is minimal. LiteLLM draws the same lines."""

GOOGLES: Budgets = ((8_193, "high"), (1_025, "medium"), (1, "low"))
"""https://ai.google.dev/gemini-api/docs/openai#thinking; 0 is off, and -1 leaves it to the model."""

SHARED = {"xhigh": "high", "max": "high"}
"""A level that only some vendors have -> the nearest that all have: for Gemini LiteLLM raises at more than `high`."""


def of_level(level: str | None) -> str | None:
    """All other levels, also those that nobody here knows, stay as they were sent."""
    return SHARED.get(level, level) if level else None


def of_budget(tokens: int | None, budgets: Budgets, least: str | None = None) -> str | None:
    """The effort for a budget, `least` for one below all."""
    return None if tokens is None else next((effort for start, effort in budgets if tokens >= start), least)

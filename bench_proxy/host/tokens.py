"""What of a call's tokens were read from a cache, written to one, or thought: what the usage of its answer says."""

from collections.abc import Mapping
from typing import Any


def details(usage: Any) -> dict[str, Any]:
    """The fields of `Reply` that say it; `usage` is JSON, LiteLLM's object or None. None where nothing is said.

    OpenAI's names, then what DeepSeek and Anthropic write in their place:
    https://platform.openai.com/docs/api-reference/chat/object#chat-object-usage
    """
    prompt, completion = _of(usage, "prompt_tokens_details"), _of(usage, "completion_tokens_details")
    return {
        "cached_tokens": _count(prompt, "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens")
        or _count(usage, "cache_read_input_tokens"),
        "cache_write_tokens": _count(prompt, "cache_write_tokens")
        or _count(prompt, "cache_creation_tokens")
        or _count(usage, "cache_creation_input_tokens"),
        "reasoning_tokens": _count(completion, "reasoning_tokens") or _count(usage, "reasoning_tokens"),
    }


def _count(of: Any, name: str) -> int | None:
    """LiteLLM writes zeros where the server said nothing."""
    value = _of(of, name)
    return value if isinstance(value, int) and value > 0 else None


def _of(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)

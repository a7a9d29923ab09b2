"""What of a conversation may go to a model that others have answered in: what belongs to its maker does not travel."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from litellm.llms.anthropic.common_utils import AnthropicModelInfo

from bench_proxy.formats.request import Json
from bench_proxy.host.models import is_openais_own, provider_of
from bench_proxy.host.tool_ids import Rule, mapped, rule_of, unsigned

CLAUDES = frozenset({"thinking_blocks"})
OPENROUTERS = frozenset({"reasoning_details"})
GOOGLES = frozenset({"extra_content", "provider_specific_fields", "thought_signature"})
OPENAIS = frozenset({"reasoning_items"})
NOBODYS = frozenset({"encrypted_content", "reasoning_opaque", "reasoning_signature", "signature"})
"""Fields of messages and of tool calls that hold reasoning signed or encrypted by whoever did it. Nobody can tell
whose the last are, and each vendor answers without.
"""

PLAIN_THOUGHTS = frozenset({"reasoning", "reasoning_content"})
"""What a model thought, in plain text. Some want it back, and these vendors refuse a message that has it."""
REFUSING_THOUGHTS = frozenset({"azure", "cerebras", "groq", "mistral"})

OWNED = CLAUDES | OPENROUTERS | GOOGLES | OPENAIS | NOBODYS | PLAIN_THOUGHTS

CLAUDES_PARTS = frozenset({"redacted_thinking", "thinking"})

THINKING = frozenset({"reasoning_effort", "thinking"})
"""Settings that let Claude think."""


@dataclass(frozen=True, slots=True)
class Taker:
    """Who gets the conversation, and what it may not see.

    `rules` are those of its ids of tool calls. `must_prove` says of Claude that it thinks again only after its own
    thoughts: with thinking on, the last calls must follow a block of it, and other models' calls have none.
    https://docs.claude.com/en/docs/build-with-claude/extended-thinking#preserving-thinking-blocks
    """

    rules: tuple[Rule, ...] = ()
    signed: bool = False
    dropped: frozenset[str] = frozenset()
    must_prove: bool = False


def taker_of(deployments: Iterable[Mapping[str, Any]]) -> Taker:
    """Of a model with several deployments: what each of them takes, since LiteLLM picks the one that is asked."""
    return _taker(frozenset(map(_who, deployments)))


def _who(deployment: Mapping[str, Any]) -> tuple[str, str, bool]:
    params = deployment["litellm_params"]
    model = str(params["model"])
    return str(params.get("custom_llm_provider") or provider_of(model)), model, is_openais_own(deployment)


@lru_cache(maxsize=512)
def _taker(who: frozenset[tuple[str, str, bool]]) -> Taker:
    rules = {rule for provider, model, _ in who if (rule := rule_of(provider, model)) is not None}
    kept = [_kept(provider, model, own) for provider, model, own in who]
    return Taker(
        rules=tuple(rules),
        signed=bool(who) and all(_is_gemini(provider, model) for provider, model, _ in who),
        dropped=OWNED - (frozenset.intersection(*kept) if kept else PLAIN_THOUGHTS),
        must_prove=any(_is_claude(provider, model) and not _adapts(provider, model) for provider, model, _ in who),
    )


def _kept(provider: str, model: str, openais_own: bool) -> frozenset[str]:
    kept = frozenset() if openais_own or provider in REFUSING_THOUGHTS else PLAIN_THOUGHTS
    if _is_claude(provider, model):
        kept |= CLAUDES
    if _is_gemini(provider, model):
        kept |= GOOGLES
    if provider == "openrouter":
        kept |= OPENROUTERS
    if openais_own:
        kept |= OPENAIS
    return kept


def _is_claude(provider: str, model: str) -> bool:
    return provider == "anthropic" or "claude" in model.lower()


def _is_gemini(provider: str, model: str) -> bool:
    return provider == "gemini" or (provider.startswith("vertex_ai") and rule_of(provider, model) is None)


def _adapts(provider: str, model: str) -> bool:
    """Whether it thinks as it sees fit, for which its earlier calls need no thoughts before them."""
    return bool(AnthropicModelInfo.is_adaptive_thinking_model(model.partition("/")[2] or model, provider))


def fitted(
    messages: Sequence[Json], settings: dict[str, Any], taker: Taker
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The conversation and the settings as the taker may have them.

    The messages are copies, and so are the parts of their content: LiteLLM changes both in place, and the caller's go
    to others too.
    """
    if taker.must_prove and not THINKING.isdisjoint(settings) and _unproven(messages):
        # Claude takes no thoughts while it may not think.
        settings = {name: value for name, value in settings.items() if name not in THINKING}
        return [_fitted(message, taker.dropped | CLAUDES, taker) for message in messages], settings
    return [_fitted(message, taker.dropped, taker) for message in messages], settings


def _unproven(messages: Sequence[Json]) -> bool:
    """Whether the last message with tool calls has no thoughts of Claude's."""
    last = next((message for message in reversed(messages) if message.get("tool_calls")), None)
    return last is not None and not last.get("thinking_blocks")


def _fitted(message: Json, dropped: frozenset[str], taker: Taker) -> dict[str, Any]:
    made = dict(message) if dropped.isdisjoint(message) else _without(message, dropped)
    if isinstance(content := made.get("content"), list):
        made["content"] = _parts(content, dropped)
    if isinstance(calls := made.get("tool_calls"), list):
        made["tool_calls"] = [_call(call, dropped, taker) if isinstance(call, dict) else call for call in calls]
    if isinstance(id := made.get("tool_call_id"), str):
        made["tool_call_id"] = _id(id, taker)
    return made


def _parts(content: list[Any], dropped: frozenset[str]) -> Any:
    copied = [dict(part) if isinstance(part, dict) else part for part in content]
    if CLAUDES.isdisjoint(dropped):
        return copied
    kept = [part for part in copied if not (isinstance(part, dict) and part.get("type") in CLAUDES_PARTS)]
    return kept if kept or not copied else ""


def _call(call: Json, dropped: frozenset[str], taker: Taker) -> Json:
    made = _without(call, dropped)
    if isinstance(id := made.get("id"), str):
        made["id"] = _id(id, taker)
    if isinstance(function := made.get("function"), dict) and not dropped.isdisjoint(function):
        made["function"] = _without(function, dropped)
    return made


def _id(id: str, taker: Taker) -> str:
    return mapped(id if taker.signed else unsigned(id), taker.rules)


def _without(fields: Json, dropped: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in dropped}

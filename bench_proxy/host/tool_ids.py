"""Ids of tool calls that a vendor would refuse, because another vendor's model gave them (pure).

A conversation may move from model to model, and an id is given once and repeated for ever. A refused one becomes an id
that depends on nothing but itself: the call and its result, this turn and the next, say the same.
"""

import hashlib
import re
import string
from collections.abc import Iterable

Rule = re.Pattern[str]

ANTHROPICS: Rule = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""https://docs.claude.com/en/api/messages and
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html
"""

MISTRALS: Rule = re.compile(r"[a-zA-Z0-9]{9}")
"""https://docs.mistral.ai/api/, and vLLM with Mistral's tokenizer."""

OPENAIS: Rule = re.compile(r".{1,40}", re.DOTALL)
"""OpenAI's and Azure's chat completions refuse longer ones by their length."""

SIGNATURE = "__thought__"
"""Behind it LiteLLM puts Gemini's thought signature, which may be thousands of characters and is Google's own:
https://ai.google.dev/gemini-api/docs/thought-signatures
"""

_ALPHABET = string.ascii_letters + string.digits
_MISTRALS_LENGTH = 9


def rule_of(provider: str, model: str) -> Rule | None:
    """What this provider's model takes as an id; None for anything. Gateways pass on what their vendors refuse."""
    named = model.lower()
    if provider == "mistral" or any(name in named for name in ("mistral", "ministral", "magistral", "devstral")):
        return MISTRALS
    if provider in {"anthropic", "bedrock", "bedrock_converse"} or "claude" in named:
        return ANTHROPICS
    return OPENAIS if provider in {"azure", "openai"} else None


def unsigned(id: str) -> str:
    """The id without a thought signature."""
    return id.partition(SIGNATURE)[0] or id if SIGNATURE in id else id


def mapped(id: str, rules: Iterable[Rule]) -> str:
    """The id where all rules take it, else one that they take."""
    refusing = [rule for rule in rules if not rule.fullmatch(id)]
    if not refusing:
        return id
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass"))
    if MISTRALS not in refusing:
        return f"call_{digest.hexdigest()[:32]}"
    number, letters = int.from_bytes(digest.digest()), []
    for _ in range(_MISTRALS_LENGTH):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)

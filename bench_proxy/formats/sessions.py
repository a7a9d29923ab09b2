"""The id that a client gives its session by itself: what it sends with every turn, without being asked to."""

from collections.abc import Mapping
from typing import Any

import orjson

HEADERS = (
    "x-claude-code-session-id",
    # Codex: one session may have several threads, each with its own conversation.
    "thread-id",
    "session-id",
    # opencode
    "x-session-affinity",
    "x-session-id",
    "x-litellm-session-id",
)
"""The most telling first."""

PATHS = (
    ("metadata", "session_id"),
    ("litellm_session_id",),
    # Claude Code writes an object as text there.
    ("metadata", "user_id", "session_id"),
    # Codex's is its conversation, but others give one key to all of theirs that begin alike.
    ("prompt_cache_key",),
)
"""Where one may stand in the body, the most telling first."""

LONGEST = 256
"""Characters of an id."""

LONGEST_TEXT = 2000
"""Characters of text that is read as an object."""

NOTHING = frozenset({"-", "0", "[object object]", "false", "n/a", "nan", "nil", "none", "null", "true", "undefined"})
"""What clients send that meant to send an id and had none."""


def session_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """The id, or None where there is none that could be one. `headers` has lower-case names."""
    for name in HEADERS:
        if session := _id(headers.get(name)):
            return session
    for path in PATHS:
        if session := _id(_at(body, path)):
            return session
    return None


def _id(said: object) -> str | None:
    if not isinstance(said, str) or len(said) > LONGEST:
        return None
    id = said.strip()
    return id if id and id.isprintable() and id.lower() not in NOTHING else None


def _at(body: Mapping[str, Any], path: tuple[str, ...]) -> object:
    found: object = body
    for name in path:
        found = _object(found).get(name)
    return found


def _object(value: object) -> Mapping[str, Any]:
    if isinstance(value, str) and len(value) <= LONGEST_TEXT and value.lstrip().startswith("{"):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}
    return value if isinstance(value, Mapping) else {}

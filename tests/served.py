"""What the shared proxy serves: its models, its collections, and the rest of its `bench:` block.

A test that needs another collection adds it here; only what needs other settings of the whole proxy starts its own.
"""

from typing import Any

WELL_BEHAVED = (
    *(f"ok-{name}" for name in "abcdefgh"),
    *(f"ok-explorer-{name}" for name in "abc"),
    *(f"slow300-{name}" for name in "abc"),
    *(f"gate-{name}" for name in "abcd"),
    *(f"step-{name}" for name in "abcd"),
    *(f"pace50-{name}" for name in "ab"),
    *(f"unicode-{name}" for name in "ab"),
    *(f"tools-{name}" for name in "ab"),
    *(f"echo-{name}" for name in "ab"),
    *(f"length-{name}" for name in "ab"),
    *(f"usageless-{name}" for name in "ab"),
    "tools2-a",
    "think-a",
    "in800-out120-a",
    "big-a",
)
FAILING = (
    *(f"hang-{name}" for name in "ab"),
    *(f"drip-{name}" for name in "ab"),
    *(f"fail500-{name}" for name in "ab"),
    *(f"fail{status}-a" for status in (400, 401, 403, 404, 408, 422, 503, 529)),
    "slow300-fail500-a",
    "once-fail500-a",
    *(f"rate-{name}" for name in "ab"),
    "rate30-a",
    *(f"context-{name}" for name in "ab"),
    *(f"empty-{name}" for name in "ab"),
    *(f"null-{name}" for name in "ab"),
    *(f"cut-{name}" for name in "ab"),
    "cut0-a",
    *(f"stall-{name}" for name in "ab"),
    "stall0-a",
    *(f"midfail-{name}" for name in "ab"),
    *(f"unfinished-{name}" for name in "ab"),
    *(f"garbage-{name}" for name in "ab"),
    *(f"html-{name}" for name in "ab"),
    "huge-a",
)
EXPLORERS = tuple(f"ok-explorer-{name}" for name in "abc")

# Alias -> the upstream's name: the same, so that a reply's text names the alias.
MODELS: dict[str, str] = {name: name for name in WELL_BEHAVED + FAILING}

COLLECTIONS: dict[str, dict[str, Any]] = {
    "solo": {"members": ["ok-a"], "explorers": 0, "description": "One model."},
    "pair": {"members": ["ok-a", "ok-b"], "explorers": 0, "description": "Two models.", "tags": ["small"]},
    "trio": {"members": ["ok-a", "ok-b", "ok-c"], "explorers": 0, "shape": "general"},
    "explored": {"members": ["ok-a", "ok-b"], "explorers": 2, "shape": "general"},
    "gated": {"members": ["gate-a", "gate-b", "gate-c"], "explorers": 0, "shape": "general"},
    "live": {"members": ["step-a", "step-b", "step-c"], "explorers": 0, "shape": "general", "stream": "live"},
    "partial": {"members": ["ok-a", "fail500-a"], "explorers": 0, "shape": "general"},
    "broken": {"members": ["fail500-a", "html-a"], "explorers": 0, "shape": "general"},
    "limited": {"members": ["rate-a", "rate30-a"], "explorers": 0, "shape": "general"},
    "too-long": {"members": ["context-a", "context-b"], "explorers": 0, "shape": "general"},
    "silent": {"members": ["hang-a", "hang-b"], "explorers": 0, "shape": "general", "deadline": 1},
    "slow": {"members": ["ok-a", "hang-a"], "explorers": 0, "shape": "general", "deadline": 1},
    "quorum": {"members": ["ok-a", "ok-b", "hang-a"], "explorers": 0, "shape": "general", "quorum": 2},
    "merged": {"members": ["ok-a", "ok-b"], "explorers": 0, "shape": "general", "reply": "merged", "merger": "ok-c"},
    "choices": {"members": ["ok-a", "ok-b"], "explorers": 0, "shape": "general", "reply": "choices"},
    "routed": {"members": ["ok-a", "ok-b"], "explorers": 0, "reply": "route"},
    "failover": {"members": ["fail500-a", "ok-b"], "explorers": 0, "reply": "route"},
    "all-fail": {"members": ["fail500-a", "fail500-b"], "explorers": 0, "reply": "route"},
    "agents": {"members": ["tools-a", "tools-b"], "explorers": 0, "reply": "route"},
    "echoes": {"members": ["echo-a", "echo-b"], "explorers": 0, "shape": "general"},
    "unicode": {"members": ["unicode-a", "unicode-b"], "explorers": 0, "shape": "general"},
}

BENCH: dict[str, Any] = {
    "collections": COLLECTIONS,
    # Every name its own family; none but the explorers is asked without being a member.
    "models": {name: {"family": name, "explore": name in EXPLORERS, "tools": True} for name in MODELS},
    # Short enough that a test can see each limit act, long enough for a busy machine.
    "timing": {
        "seat_timeout": 15,
        "explorer_grace": 5,
        "keep_alive": 1,
        "first_piece": 5,
        "turn": 20,
        "hold_status": 3,
    },
}

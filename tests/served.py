"""What the shared proxies serve: their models, their collections, and the rest of their `bench:` blocks.

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
FAILS_FIRST = (
    "fail401-route", "fail403-route", "fail404-route", "fail408-route", "fail409-route", "rate-route",
    "fail500-route", "fail503-route", "fail529-route", "notools-route", "badschema-route", "garbage-route",
    "html-route", "empty-route", "null-route", "cut0-route", "stall0-route", "midfail0-route", "unfinished0-route",
    "hang-route", "context-route",
)  # fmt: skip
"""Members that fail before their first piece, each in another way; the collection of each has one that works too."""
ROUTED_WELL = ("ok-routed-a", "ok-routed-b", "ok-spare")
ROUTED = (
    *FAILS_FIRST,
    *(
        f"fail500-route-{name}{how}"
        for name in ("chat", "responses", "completions", "messages", "gemini", "ollama")
        for how in ("", "-streamed")
    ),
    *(f"tools-{name}" for name in ("call-a", "call-b")),
    *(f"tools2-atonce-{name}" for name in ("a", "b")),
    "tools2-objects-a",
    "tools2-idless-a",
    "think-aloud-tools2-a",
    "later-fail500-route",
    "midfail2-route",
    "pace200-route",
    "gate-route",
    "cached-thought-route",
)
EXPLORERS = tuple(f"ok-explorer-{name}" for name in "abc")
SEEING = ("ok-h",)
# Explorers of one shape alone: no other shape admits a model of their role.
WIDE = tuple(f"ok-wide-{name}" for name in "abcdefghij")
ROLES = {**dict.fromkeys(WIDE, "light"), "rate-explorer": "code", "gate-explorer": "vision"}
SHAPES = {"wide": ["light"], "limited": ["code"], "patient": ["vision"]}

# Alias -> the upstream's name: the same, so that a reply's text names the alias.
MODELS: dict[str, str] = {name: name for name in (*WELL_BEHAVED, *FAILING, *ROUTED, *ROUTED_WELL, *ROLES)}

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
    "silent": {"members": ["gate-c", "gate-d"], "explorers": 0, "shape": "general", "deadline": 1},
    "slow": {"members": ["ok-a", "gate-d"], "explorers": 0, "shape": "general", "deadline": 1},
    "quorum": {"members": ["ok-a", "ok-b", "gate-d"], "explorers": 0, "shape": "general", "quorum": 2},
    "merged": {"members": ["ok-a", "ok-b"], "explorers": 0, "shape": "general", "reply": "merged", "merger": "ok-c"},
    "choices": {"members": ["ok-a", "ok-b"], "explorers": 0, "shape": "general", "reply": "choices"},
    # Nothing but route mode asks these: no other test's verdicts say who is the best of them.
    "duo": {"members": ["ok-routed-a", "ok-routed-b"], "explorers": 0},
    "routed": {"members": ["ok-routed-a", "ok-routed-b"], "reply": "route"},
    "agents": {"members": ["tools-a", "tools-b"], "reply": "route"},
    **{f"route-{one}": {"members": [one, "ok-spare"], "reply": "route"} for one in ROUTED},
    "route-all-fail": {"members": ["fail500-a", "html-b"], "reply": "route"},
    "route-limited": {"members": ["rate-a", "rate30-a"], "reply": "route"},
    "route-too-long": {"members": ["context-a", "context-b"], "reply": "route"},
    "route-refused": {"members": ["fail422-a", "ok-spare"], "reply": "route"},
    "route-echo": {"members": ["echo-a"], "reply": "route"},
    "route-blind": {"members": ["ok-a"], "reply": "route"},
    "route-calls": {"members": ["tools2-a"], "reply": "route"},
    "route-thoughts": {"members": ["think-a"], "reply": "route"},
    "route-breaks-off": {"members": ["midfail-a"], "reply": "route"},
    "route-steps": {"members": ["step-a"], "reply": "route"},
    "route-seeing": {"members": ["ok-h"], "reply": "route"},
    "echoes": {"members": ["echo-a", "echo-b"], "explorers": 0, "shape": "general"},
    "unicode": {"members": ["unicode-a", "unicode-b"], "explorers": 0, "shape": "general"},
    "outcomes": {
        "members": ["ok-a", "empty-a", "null-a", "length-a", "fail500-a"],
        "explorers": 0,
        "shape": "general",
    },
    "garbled": {"members": ["ok-a", "garbage-a", "cut-a", "html-a"], "explorers": 0, "shape": "general"},
    "metered": {
        "members": ["in800-out120-a", "ok-a", "usageless-a", "fail500-a"],
        "explorers": 0,
        "shape": "general",
    },
    "timed-out": {"members": ["fail408-a"], "explorers": 0, "shape": "general"},
    "overdue": {"members": ["ok-a", "gate-a", "gate-b"], "explorers": 0, "shape": "general"},
    "cancelled": {"members": ["gate-a", "gate-b"], "explorers": 0, "shape": "general", "on_disconnect": "cancel"},
    "one-gate": {"members": ["gate-a"], "explorers": 0, "shape": "general"},
    "huge": {"members": ["huge-a", "ok-a"], "explorers": 0, "shape": "general"},
    "crowd": {"members": ["slow300-a", "slow300-b"], "explorers": 0, "shape": "general"},
    "wide": {"members": ["ok-a"], "explorers": 2, "shape": "wide"},
    "hasty": {"members": ["gate-a"], "explorers": 1, "shape": "limited"},
    "patient": {"members": ["ok-h"], "explorers": 1, "shape": "patient"},
    "guests": {"members": ["ok-a"], "explorers": 2, "shape": "general"},
    "seeing": {"members": ["ok-h"], "explorers": 0},
    "cut-short": {"members": ["length-a"], "explorers": 0, "shape": "general"},
    "paged": {"members": ["ok-a"], "explorers": 0},
}

BENCH: dict[str, Any] = {
    "collections": COLLECTIONS,
    "shapes": SHAPES,
    "route": {"explore_share": 0},
    # Every name its own family; none but the explorers is asked without being a member.
    "models": {
        name: {
            "family": name,
            "role": ROLES.get(name, "general"),
            "explore": name in EXPLORERS or name in ROLES,
            "tools": True,
            "vision": True if name in SEEING else None,
        }
        for name in MODELS
    },
    # Short enough that a test can see each limit act, long enough for a busy machine; a seat's own limit is seen to
    # act on the proxy without a key.
    "timing": {
        "seat_timeout": 60,
        "explorer_grace": 3,
        "keep_alive": 1,
        "first_piece": 5,
        "turn": 20,
        "hold_status": 3,
    },
}


def forced(bench: dict[str, Any], lane: str) -> dict[str, Any]:
    """The same with every model called on this lane; `auto` where bench-proxy decides."""
    return {**bench, "models": {name: {**facts, "lane": lane} for name, facts in bench["models"].items()}}


LANES = ("auto", "router")
"""What tests of panels run on: the lean lane, which all of these models may take, and LiteLLM's router."""

# The proxy without a key.

KEYLESS_MODELS: dict[str, str] = {name: name for name in ("ok-a", "ok-b", "hang-a", "gate-a")}
KEYLESS_BENCH: dict[str, Any] = {
    "collections": {
        "pair": {"members": ["ok-a", "ok-b"], "explorers": 0},
        "hanging": {"members": ["ok-a", "hang-a"], "explorers": 0},
        "gated": {"members": ["gate-a"], "explorers": 0},
        "leaving": {"members": ["gate-a"], "explorers": 1, "on_disconnect": "cancel"},
    },
    "models": {name: {"family": name, "explore": name == "ok-b"} for name in KEYLESS_MODELS},
    "timing": {"seat_timeout": 4},
    "limits": {"concurrent_panels": 3},
}
PROBE = '''
"""Tells what LiteLLM looks like from inside, and that another callback than ours stays in its lists."""

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy import proxy_server

CONFIG_FILE_WHILE_LOADING = proxy_server.user_config_file_path
LISTS = ("callbacks", "input_callback", "success_callback", "failure_callback", "service_callback",
         "_async_success_callback", "_async_failure_callback")


class Probe(CustomLogger):
    pass


handle = Probe()


@proxy_server.app.get("/probe")
async def probe() -> dict:
    return {
        "config_file_while_loading": CONFIG_FILE_WHILE_LOADING,
        "routes": [type(route).__name__ for route in proxy_server.app.router.routes],
        "callbacks": {name: [type(c).__name__ for c in getattr(litellm, name)] for name in LISTS},
    }
'''

# Two processes, and keys that may call some collections only.

WORKERS_MODELS: dict[str, str] = {name: name for name in ("ok-a", "ok-b", "ok-c", *WIDE)}
WORKERS_BENCH: dict[str, Any] = {
    "collections": {
        "pair": {"members": ["ok-a", "ok-b"], "explorers": 0, "description": "Two models.", "tags": ["small"]},
        "secret": {"members": ["ok-b"], "explorers": 1, "shape": "general", "description": "For few."},
        "wide": {"members": ["ok-a"], "explorers": 2, "shape": "wide"},
    },
    "shapes": SHAPES,
    "models": {
        name: {"family": name, "role": ROLES.get(name, "general"), "explore": name in WIDE} for name in WORKERS_MODELS
    },
}
ALICE = "sk-alice-may-call-the-pair-and-one-model"
BOB = "sk-bob-may-call-all-collections-and-no-model"
WHO = f'''
"""LiteLLM's custom authentication: the administrator, and two whose keys are limited."""

import os

from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth
from litellm.proxy.proxy_server import master_key


async def check(request, api_key: str) -> UserAPIKeyAuth:
    # In one write: other processes write to the same file.
    os.write(1, f"asked of process {{os.getpid()}}\\n".encode())
    if api_key == master_key:
        return UserAPIKeyAuth(api_key=api_key, user_role=LitellmUserRoles.PROXY_ADMIN)
    if api_key == "{ALICE}":
        return UserAPIKeyAuth(api_key=api_key, models=["bench/pair", "ok-c"])
    if api_key == "{BOB}":
        return UserAPIKeyAuth(api_key=api_key, models=["bench/*"])
    raise Exception("who is that?")
'''

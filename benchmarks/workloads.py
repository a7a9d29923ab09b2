"""What is measured: a table of cases, each asked of several gateways by turns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from benchmarks import kept
from benchmarks.load import Ask

BARE = "LiteLLM"
CONTROL = "LiteLLM again"
"""A second process of the same: how far it is from the first is what this machine can tell apart."""
MOUNTED = "bench-proxy"
ROUTED = "bench-proxy, router lane"
REFERENCE = "aiohttp fan-out"
"""The practical limit: `reference.py` does nothing but fan out."""
ON_DISK = "ledger on disk"
IN_MEMORY = "ledger in memory"
NO_CONTENT = "ledger on disk, content: none"
UNRECORDED = "no ledger"
"""Four more with bench-proxy, for one workload: a process that has done others before it has more to collect."""
LITTLE_KEPT = "1,000 answers kept"
MUCH_KEPT = "1,000,000 answers kept"
KEPT = {LITTLE_KEPT: 1_000, MUCH_KEPT: 1_000_000}
"""Answers in the ledger when the process starts, and a tenth as many conversations."""
MANY_COLLECTIONS = "1,000 further collections"
GATEWAYS = (
    *(BARE, CONTROL, MOUNTED, ROUTED, REFERENCE),
    *(ON_DISK, IN_MEMORY, NO_CONTENT, UNRECORDED),
    *(LITTLE_KEPT, MUCH_KEPT, MANY_COLLECTIONS),
)

QUESTION = (
    "We have a job that takes a minute and a caller who waits for it. What would you do, and what would you not do?"
)
FAST = [f"m{n}" for n in range(1, 6)]
PACED = {
    "300 ms": [f"m{n}-f300" for n in range(1, 6)],
    "2 s": [f"m{n}-f2000" for n in range(1, 6)],
    "2.3 s": [f"m{n}-f2300" for n in range(1, 6)],
}
CHUNKS = (500, 2)
"""Of a streamed turn: many, for what each costs; hardly any, for the first one."""
STREAMED = {f"chunks-{n}": f"m1-n{n}" for n in CHUNKS}
TRANSLATED = {f"messages-{n}": f"claude-n{n}" for n in CHUNKS}
"""Whose models speak another format than the caller: LiteLLM's own parser of that format has to read each event."""
HELD = {"held": "m1-f300-n32-p500"}
"""A stream of 16 s, so that the first one is still open when a slow gateway has begun the last one."""
ROUTES = STREAMED | TRANSLATED | HELD
"""The one member of each collection that is asked for turns."""
MODELS = dict.fromkeys(
    [*FAST, *(name for names in PACED.values() for name in names), *STREAMED.values(), *HELD.values()], "hosted_vllm"
) | dict.fromkeys(TRANSLATED.values(), "anthropic")
"""The provider of each model."""
EXPLORED = "explored"
"""A collection whose explorers are the other two of the fast models."""
MANY, FEW = "500 chunks as fast as they come", "2 chunks"
PARSED = ", from an Anthropic server"
ALONE = "3 members, models take 300 ms, 1 at a time"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  a file system in memory, not a temporary file


@dataclass(frozen=True, slots=True)
class Case:
    """`turn` is what each gateway is asked at once. A round has `windows` windows of `turns` turns for each gateway,
    `at_once` of them in flight, the first of which start over `spread` seconds.

    A case that is `held` measures memory and threads instead: it has one window a round, since what a process has once
    taken it keeps. One that is `full` is left out of a short run.
    """

    workload: str
    title: str
    gateways: tuple[str, ...]
    """The first is the one that the others are compared with."""
    turn: Callable[[str], Sequence[Ask]]
    turns: int
    at_once: int
    windows: int = 1
    spread: float = 0.0
    held: bool = False
    full: bool = False


@dataclass(frozen=True, slots=True)
class Further:
    """What one more of something costs: the difference of two cases, of which the first has `more` of it."""

    title: str
    workload: str
    much: str
    little: str
    more: int


def block(gateway: str, ledger: Path) -> Mapping[str, Any] | None:
    """The `bench:` block of a gateway; `ledger` is where its file may be."""
    if gateway in {BARE, CONTROL}:
        return None
    lane = "router" if gateway == ROUTED else "auto"
    further = {f"further-{n}": FAST[:3] for n in range(1000 if gateway == MANY_COLLECTIONS else 0)}
    seated = {name: {"members": members, "explorers": 0} for name, members in (collections() | further).items()}
    return {
        "models": {name: {"lane": lane, "vision": True, "explore": name in FAST} for name in MODELS},
        "collections": {**seated, EXPLORED: {"members": FAST[:3], "explorers": 2}},
        "ledger": {
            "url": f"sqlite:///{ledger / 'bench.db'}",
            "content": "none" if gateway == NO_CONTENT else "full",
        },
    }


def collections() -> Mapping[str, Sequence[str]]:
    """The members of each."""
    return (
        {f"fast-{n}": FAST[:n] for n in (1, 3, 5)}
        | {_collection(pace, n): names[:n] for pace, names in PACED.items() for n in (1, 3, 5)}
        | {name: [member] for name, member in ROUTES.items()}
    )


def _collection(pace: str, members: int) -> str:
    return f"paced-{pace.replace(' ', '').replace('.', '-')}-{members}"


def _chat(model: str, content: object = QUESTION, *, stream: bool = False) -> bytes:
    body = {"model": model, "messages": [{"role": "user", "content": content}]}
    return orjson.dumps({**body, "stream": True} if stream else body)


def plain(content: object = QUESTION, *, stream: bool = False) -> Callable[[str], Sequence[Ask]]:
    """A chat completion that is not for `bench/`."""
    asked = [Ask(_chat(FAST[0], content, stream=stream), (FAST[0],), stream)]
    return lambda _: asked


def panel(
    collection: str, members: Sequence[str], content: object = QUESTION, *, stream: bool = False
) -> Callable[[str], Sequence[Ask]]:
    """A panel; of LiteLLM alone its client asks each member, all at the same time."""
    fan_out = [Ask(_chat(member, content, stream=stream), (member,), stream) for member in members]
    asked = [Ask(_chat(f"bench/{collection}", content, stream=stream), tuple(members), stream, exact=False)]
    return lambda gateway: fan_out if gateway in {BARE, CONTROL} else asked


def turn(collection: str) -> Callable[[str], Sequence[Ask]]:
    """A streamed turn of a conversation; of LiteLLM alone its client asks the member itself."""
    member = ROUTES[collection]
    own = [Ask(_chat(member, stream=True), (member,), stream=True)]
    asked = [Ask(_chat(f"bench/{collection}:route", stream=True), (member,), stream=True)]
    return lambda gateway: own if gateway in {BARE, CONTROL} else asked


def conversations(question: Callable[[], str]) -> Callable[[str], Sequence[Ask]]:
    """The first turn of one, another each time."""
    asked = [Ask(lambda: _chat("bench/fast-3:route", question()), (), exact=False)]
    return lambda _: asked


def verdicts() -> Callable[[str], Sequence[Ask]]:
    """Each on another answer of those that were kept, and another one than it had."""
    asked = {}
    for gateway, answers in KEPT.items():
        told = ({"call": kept.call(n % answers), "useful": n // answers % 2 == 0} for n in count())
        asked[gateway] = [Ask(partial(_next, told), (), path="/bench/verdict")]
    return lambda gateway: asked[gateway]


def _next(told: Iterator[object]) -> bytes:
    return orjson.dumps(next(told))


def shown(path: str) -> Callable[[str], Sequence[Ask]]:
    asked = [Ask(b"", (), path=path)]
    return lambda _: asked


def history(turns: int) -> Callable[[str], Sequence[Ask]]:
    """A panel that is asked at the end of a long conversation."""
    said = [{"role": ("user", "assistant")[n % 2], "content": QUESTION * 3} for n in range(turns - turns % 2)]
    messages = [*said, {"role": "user", "content": QUESTION}]
    fan_out = [Ask(orjson.dumps({"model": name, "messages": messages}), (name,)) for name in FAST[:3]]
    asked = [Ask(orjson.dumps({"model": "bench/fast-3", "messages": messages}), tuple(FAST[:3]), exact=False)]
    return lambda gateway: fan_out if gateway == BARE else asked


def _image(size: int) -> list[dict[str, object]]:
    url = "data:image/png;base64," + "iVBORw0KGgo" * (size // 11)
    return [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": url}}]


def cases() -> list[Case]:
    beside = (BARE, CONTROL, MOUNTED)
    against = (BARE, MOUNTED)
    lanes = (BARE, MOUNTED, ROUTED, REFERENCE)
    limit = (REFERENCE, MOUNTED)
    between = (REFERENCE, BARE, MOUNTED)
    routed = (BARE, MOUNTED, ROUTED)
    more = (MOUNTED, MANY_COLLECTIONS)
    ledgers = (UNRECORDED, ON_DISK, IN_MEMORY, NO_CONTENT)
    paced = {pace: panel(_collection(pace, 3), names[:3]) for pace, names in PACED.items()}
    streamed = panel(_collection("300 ms", 3), PACED["300 ms"][:3], stream=True)
    image = panel("fast-3", FAST[:3], _image(10_000_000))
    numbers = count()
    new = conversations(lambda: f"{QUESTION} ({next(numbers)})")
    fast, explored = panel("fast-3", FAST[:3]), panel(EXPLORED, FAST)
    kept_cases = {
        "a panel of 3": fast,
        "a panel of 3 and 2 explorers": explored,
        "the first turn of a conversation": new,
        "a verdict": verdicts(),
        "the record": shown("/bench/record"),
        "the newest 20 panels": shown("/bench/panels?limit=20"),
    }
    return [
        # Before anything else has filled the processes' memory.
        Case("held", "200 turns", between, turn("held"), turns=200, at_once=200, spread=2, held=True, full=True),
        Case("passthrough", "whole", beside, plain(), turns=150, at_once=8, windows=20),
        Case("passthrough", "streamed", beside, plain(stream=True), turns=80, at_once=8, windows=16),
        Case("passthrough", "1 MB of text", beside, plain("So it goes. " * 83_000), turns=30, at_once=2, windows=8),
        Case("passthrough", "10 MB image", beside, plain(_image(10_000_000)), turns=8, at_once=1, windows=8),
        Case("panel", "3 members", lanes, panel("fast-3", FAST[:3]), turns=64, at_once=16, windows=5),
        Case("panel", "5 members", lanes, panel("fast-5", FAST[:5]), turns=48, at_once=16, windows=5),
        Case("panel", "3 members, alone", lanes, panel("fast-3", FAST[:3]), turns=24, at_once=1, windows=3),
        Case("image", "10 MB to 3 members", between, image, turns=6, at_once=1, windows=2, full=True),
        Case("crowd", "200 within a second", limit, paced["2.3 s"], turns=200, at_once=200, spread=1),
        Case("crowd", "200 in one instant", limit, paced["2.3 s"], turns=200, at_once=200),
        Case("panel-end", "models take 300 ms", against, paced["300 ms"], turns=320, at_once=16, spread=0.3),
        Case("panel-end", "models take 2 s", against, paced["2 s"], turns=96, at_once=16, spread=2),
        Case("streams", "200 panels of 3 at once, models take 300 ms", against, streamed, turns=200, at_once=200),
        Case("turns", MANY, routed, turn("chunks-500"), turns=16, at_once=8, windows=4),
        Case("turns", FEW, routed, turn("chunks-2"), turns=80, at_once=8, windows=8),
        Case("turns", f"{MANY}{PARSED}", against, turn("messages-500"), turns=16, at_once=8, windows=4),
        Case("turns", f"{FEW}{PARSED}", against, turn("messages-2"), turns=80, at_once=8, windows=8),
        Case("ledger", "3 members", ledgers, panel("fast-3", FAST[:3]), turns=64, at_once=16, windows=8, full=True),
        Case("ledger", ALONE, ledgers, paced["300 ms"], turns=30, at_once=1, full=True),
        *(
            Case("growth", title, tuple(KEPT), asked, turns=64, at_once=8, windows=6, full=True)
            for title, asked in kept_cases.items()
        ),
        Case("growth", "a panel of 3, of many collections", more, fast, turns=64, at_once=8, windows=6, full=True),
        Case(
            "growth",
            "a panel of 3 behind 1,000 turns",
            against,
            history(1000),
            turns=12,
            at_once=4,
            windows=4,
            full=True,
        ),
    ]


def further() -> list[Further]:
    return [
        Further("a seat", "panel", "5 members", "3 members", 2),
        Further("a chunk of a turn", "turns", MANY, FEW, CHUNKS[0] - CHUNKS[1]),
        Further(f"a chunk of a turn{PARSED}", "turns", f"{MANY}{PARSED}", f"{FEW}{PARSED}", CHUNKS[0] - CHUNKS[1]),
    ]

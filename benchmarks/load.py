"""A closed loop of clients: so many at a time, each asking again once it has its answer, which is checked."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import aiohttp
import orjson

from benchmarks import upstream

PATH = "/v1/chat/completions"
LIMIT = aiohttp.ClientTimeout(total=120)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and the models whose answers must come back for it. `exact`: nothing but theirs.

    A body that is asked for is another one each time; without one it is a GET.
    """

    body: bytes | Callable[[], bytes]
    models: tuple[str, ...]
    stream: bool = False
    exact: bool = True
    path: str = PATH


@dataclass(slots=True)
class Outcome:
    """Times are in seconds, one for each turn: from its first byte sent until the last byte of its last answer."""

    total: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    """Until the first byte of the body of its first answer."""
    over: list[float] = field(default_factory=list)
    """What is left of the total without the time that its slowest model takes."""
    after: list[float] = field(default_factory=list)
    """From the moment when the last of its models had sent its answer."""
    beside: list[float] = field(default_factory=list)
    """What is left of the total without the slowest seat, as the reply says how long it took."""
    spans: list[tuple[float, float]] = field(default_factory=list)
    """When the first byte came and when the last one, on one clock."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Of the whole load."""


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    changes = sorted([*((began, 1) for began, _ in spans), *((ended, -1) for _, ended in spans)])
    return max(accumulate(change for _, change in changes), default=0)


class WrongAnswer(Exception):
    """The answer came, and is not what the models said."""


async def run(url: str, key: str, turn: Sequence[Ask], *, turns: int, at_once: int, spread: float = 0.0) -> Outcome:
    """Take `turns` turns, `at_once` at a time. The requests of one turn are sent together: a client's own fan-out.

    The clients start over `spread` seconds, so that they do not go on asking in the same instant for ever.
    """
    outcome = Outcome()
    left = iter(range(turns))
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, headers=headers, connector=connector, timeout=LIMIT) as session:
        began = time.monotonic()
        starts = (spread * client / at_once for client in range(at_once))
        await asyncio.gather(*(_client(session, turn, left, outcome, start) for start in starts))
        outcome.seconds = time.monotonic() - began
    return outcome


async def _client(
    session: aiohttp.ClientSession, turn: Sequence[Ask], left: Iterator[int], outcome: Outcome, start: float
) -> None:
    await asyncio.sleep(start)
    for _ in left:
        began = time.monotonic()
        try:
            answers = await asyncio.gather(*(_ask(session, ask) for ask in turn))
            first, ended = min(a.first for a in answers), max(a.ended for a in answers)
            sent = max(_sent(answer, ask) for answer, ask in zip(answers, turn, strict=True))
        except (WrongAnswer, aiohttp.ClientError, TimeoutError) as error:
            outcome.faults.append(f"{type(error).__name__}: {error}"[:300])
            continue
        outcome.total.append(ended - began)
        outcome.first.append(first - began)
        outcome.spans.append((first, ended))
        slowest = max((upstream.model(name).takes for ask in turn for name in ask.models), default=0.0)
        outcome.over.append(ended - began - slowest)
        outcome.after.append(ended - sent)
        seats = [s["seconds"] for a in answers for s in a.bench.get("seats", ())]
        if seats:
            outcome.beside.append(ended - began - max(seats))


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    bench: dict[str, Any]
    first: float
    ended: float


async def _ask(session: aiohttp.ClientSession, ask: Ask) -> Answer:
    first = 0.0
    body = b""
    content = ask.body if isinstance(ask.body, bytes) else ask.body()
    async with session.request("POST" if content else "GET", ask.path, data=content or None) as response:
        async for piece in response.content.iter_any():
            first = first or time.monotonic()
            body += piece
        ended = time.monotonic()
        if response.status != 200:
            raise WrongAnswer(f"{response.status} {body[:200]!r}")
    if not ask.models:
        return Answer("", {}, first, ended)
    text, bench = _streamed(body) if ask.stream else _whole(body)
    return Answer(text, bench, first, ended)


def _whole(body: bytes) -> tuple[str, dict[str, Any]]:
    answer = orjson.loads(body)
    return answer["choices"][0]["message"]["content"], answer.get("bench") or {}


def _streamed(body: bytes) -> tuple[str, dict[str, Any]]:
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    if not events or events.pop() != b"[DONE]":
        raise WrongAnswer("the stream was cut")
    text: list[str] = []
    bench: dict[str, Any] = {}
    for event in map(orjson.loads, events):
        text += [choice["delta"].get("content") or "" for choice in event.get("choices", ())]
        bench = event.get("bench") or bench
    return "".join(text), bench


def _sent(answer: Answer, ask: Ask) -> float:
    """When the slowest model had sent its answer. Raises WrongAnswer when one is missing or not as it was said."""
    times = [] if ask.models else [answer.ended]
    for name in ask.models:
        pattern = upstream.said(name)
        found = pattern.fullmatch(answer.text) if ask.exact else pattern.search(answer.text)
        if found is None:
            raise WrongAnswer(f"{name} is not in {answer.text[:200]!r}")
        times.append(int(found[1]) / 1e9)
    return max(times)

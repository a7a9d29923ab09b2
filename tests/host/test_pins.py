"""Who answers a conversation, as processes tell one another over Redis, and as one remembers it without."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from litellm import Router

from bench_proxy.host import pins
from bench_proxy.host.pins import MOST_CALLS, PREFIX, HostPins, Memory
from bench_proxy.route.keeping import Pin
from tests.redis_server import redis_server

PIN = Pin("r1", "gpt", ("claude", "gpt"), 3)


class Redis:
    """One that holds what it was given, fails, or never answers."""

    def __init__(self, *, fails: bool = False, hangs: bool = False) -> None:
        self.kept: dict[str, object] = {}
        self.fails = fails
        self.hangs = hangs

    async def async_get_cache(self, key: str) -> object:
        await self._work()
        return self.kept.get(key)

    async def async_set_cache(self, key: str, value: object, ttl: int) -> None:
        await self._work()
        self.kept[key] = value

    async def _work(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise ConnectionError("refused")


def process(redis: Any) -> HostPins:
    router: Any = SimpleNamespace(cache=SimpleNamespace(redis_cache=redis))
    return HostPins(lambda: router)


# Over Redis.


@pytest.fixture(scope="module")
def redis_port() -> Iterator[int]:
    with redis_server() as port:
        if port is None:
            pytest.skip("there is no redis-server here")
        yield port


async def test_another_process_finds_the_pin(redis_port: int) -> None:
    one, other = (Router(model_list=[], redis_host="127.0.0.1", redis_port=redis_port) for _ in range(2))
    await HostPins(lambda: one).put(["key"], PIN, 60)
    assert await HostPins(lambda: other).get("key") == PIN
    assert await HostPins(lambda: other).get("another") is None


@pytest.mark.parametrize("redis", [Redis(fails=True), Redis(hangs=True)])
async def test_without_redis_the_process_goes_on_with_what_it_remembers(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pins, "REDIS_SECONDS", 0.05)
    alone = process(redis)
    await alone.put(["key"], PIN, 60)
    assert await alone.get("key") == PIN
    assert len([r for r in caplog.records if "not shared" in r.message]) == 1


async def test_what_another_process_has_pinned_counts_more_than_what_this_one_remembers() -> None:
    shared = Redis()
    one, other = process(shared), process(shared)
    await one.put(["key"], PIN, 60)
    moved = Pin("r1", "claude", PIN.calls, 4)
    await other.put(["key"], moved, 60)
    assert await one.get("key") == moved


@pytest.mark.parametrize(
    "odd",
    [
        "text",
        {},
        {"conversation": "", "alias": "gpt", "calls": [], "turns": 1},
        {"conversation": "r1", "alias": "gpt", "calls": ["gpt", 7], "turns": 1},
        {"conversation": "r1", "alias": "gpt", "calls": ["gpt"] * (MOST_CALLS + 1), "turns": 1},
        {"conversation": "r1", "alias": "gpt", "calls": [], "turns": True},
        {"conversation": "r1", "alias": "gpt", "calls": [], "turns": -1},
    ],
)
async def test_what_cannot_have_been_written_here_is_no_pin(odd: object) -> None:
    shared = Redis()
    shared.kept[PREFIX + "key"] = odd
    assert await process(shared).get("key") is None


# In memory.


def test_a_pin_is_forgotten_after_its_time_and_the_last_one_counts() -> None:
    now = [0.0]
    memory = Memory(lambda: now[0])
    memory.put("key", PIN, 10)
    now[0] = 9
    assert memory.get("key") == PIN
    memory.put("key", PIN, 10)
    now[0] = 18
    assert memory.get("key") == PIN
    now[0] = 19
    assert memory.get("key") is None


def test_what_is_over_takes_no_room() -> None:
    now = [0.0]
    memory = Memory(lambda: now[0])
    for number in range(100):
        now[0] = number
        memory.put(f"key {number}", PIN, 10)
    assert len(memory) == 10


def test_of_too_many_the_oldest_are_forgotten() -> None:
    memory = Memory(lambda: 0.0, most=2)
    for key in ("one", "two", "one", "three"):
        memory.put(key, PIN, 10)
    assert [key for key in ("one", "two", "three") if memory.get(key)] == ["one", "three"]

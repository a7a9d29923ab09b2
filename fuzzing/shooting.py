"""Sends shots at a proxy, several at once, and reads what comes back until the connection ends."""

import asyncio
import http.client
import io
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from fuzzing.bodies import operations
from fuzzing.judging import Reply
from fuzzing.shots import Shot, Target

SECONDS = 45.0
"""Longer than a panel may take with the settings below; what takes longer hangs."""

RESET = "the connection was reset"
"""What becomes of a reply that was sent before all of the request was read. Ours come after that."""

COLLECTIONS: dict[str, Any] = {
    "pair": {"members": ["ok-a", "ok-h"], "explorers": 0},
    "broken": {"members": ["fail500-a", "html-a"], "explorers": 0},
    "routed": {"members": ["ok-h", "ok-a"], "reply": "route"},
    "agents": {"members": ["tools-a", "garbage-a"], "reply": "route"},
    "merged": {"members": ["ok-a", "ok-h"], "explorers": 0, "reply": "merged", "merger": "ok-c"},
    "choices": {"members": ["ok-a", "ok-h"], "explorers": 0, "reply": "choices"},
    "live": {"members": ["ok-a", "midfail-a"], "explorers": 0, "stream": "live"},
}
MODELS = ("ok-a", "ok-c", "ok-h", "fail500-a", "html-a", "tools-a", "garbage-a", "midfail-a")
BENCH: dict[str, Any] = {
    "collections": COLLECTIONS,
    "models": {name: {"family": name, "tools": True, "vision": name == "ok-h"} for name in MODELS},
    "timing": {"seat_timeout": 10, "explorer_grace": 1, "keep_alive": 1, "first_piece": 5, "turn": 20},
}
"""The `bench:` block of the proxy that is shot at, with members that answer and members that fail."""

UPSTREAM_KEY = "sk-upstream"


class _Whole(io.BytesIO):
    """What `http.client` takes for a connection."""

    def makefile(self, *_: Any, **__: Any) -> "_Whole":
        return self


def aim(client: httpx.Client) -> Target:
    """Look at a proxy, make a bench key, and have a panel's own text to imitate."""
    master = client.headers["authorization"].removeprefix("Bearer ")
    description = client.get("/bench/openapi.json").raise_for_status().json()
    made = client.post("/bench/keys", json={"name": "fuzz", "collections": ["pair", "routed"]}).raise_for_status()
    question = {"model": "bench/pair", "messages": [{"role": "user", "content": "Who are you?"}]}
    asked = client.post("/v1/chat/completions", json=question).raise_for_status().json()
    seats = [seat["call"] for seat in asked["bench"]["seats"]]
    said = [*seats, asked["bench"]["panel"], asked["choices"][0]["message"]["content"]]
    return Target(operations(description), [master, made.json()["key"]], said)


async def shoot(url: str, shot: Shot) -> Reply | str:
    """The reply, or what is wrong where there is none."""
    address = urlsplit(url)
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            try:
                with suppress(ConnectionError):  # refused before all of it was sent: the reply says why
                    writer.write(shot.encoded())
                    await writer.drain()
                data = await reader.read(-1)
            finally:
                writer.close()
    except TimeoutError:
        return f"hangs: no whole reply within {SECONDS:.0f} s"
    except ConnectionResetError:
        return RESET
    except OSError as error:
        return f"the connection failed: {error}"
    return _reply(data, shot.method)


def _reply(data: bytes, method: str) -> Reply | str:
    read = http.client.HTTPResponse(_Whole(data), method=method)  # type: ignore[arg-type]
    try:
        read.begin()
        return Reply(read.status, {name.lower(): value for name, value in read.getheaders()}, read.read())
    except http.client.HTTPException as error:
        return f"no HTTP reply ({type(error).__name__}): {data[:200]!r}"


async def volley(url: str, shots: Sequence[Shot]) -> list[Reply | str]:
    """All of them at once, each on a connection of its own."""
    return await asyncio.gather(*(shoot(url, shot) for shot in shots))

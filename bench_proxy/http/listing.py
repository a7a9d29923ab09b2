"""`GET /v1/models`: LiteLLM's own list, then the collections that the caller may call."""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from bench_proxy.bench import Bench
from bench_proxy.catalog import together
from bench_proxy.config import SERVED_MODES
from bench_proxy.errors import BenchError, UnknownModel
from bench_proxy.formats.brief import collection_of
from bench_proxy.formats.chat import ChatFormat
from bench_proxy.http.answering import Authenticate, Response, send_error

PassOn = Callable[[Scope, Receive, Send], Awaitable[None]]

STARTED = int(time.time())


class Listing:
    def __init__(self, bench: Callable[[], Bench], authenticate: Authenticate) -> None:
        self._bench = bench
        self._authenticate = authenticate

    async def __call__(self, name: str, scope: Scope, receive: Receive, send: Send, pass_on: PassOn) -> None:
        """One of our models, or with an empty name LiteLLM's answer with ours behind."""
        if name:
            await self._one(name, scope, receive, send)
        else:
            await self._all(scope, receive, send, pass_on)

    async def _one(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        response, format = Response(send), ChatFormat()
        try:
            caller = await self._authenticate(scope, receive, None)
            entries = {e["id"]: e for e in await self._entries(caller.allowed)}
            if name not in entries:
                known = ", ".join(entries) or "none"
                raise UnknownModel(f'there is no model "{name[:200]}"; of bench this key sees: {known}', param="model")
            await response.whole(200, format.content_type, orjson.dumps(entries[name]), [])
        except BenchError as error:
            await send_error(response, format, error)

    async def _all(self, scope: Scope, receive: Receive, send: Send, pass_on: PassOn) -> None:
        host = _Captured()
        await pass_on(scope, receive, host.send)
        ours = await self._ours(scope, receive) if host.status == 200 else []
        await host.give(send, _appended(host.body, ours, Headers(scope=scope)) if ours else host.body)

    async def _ours(self, scope: Scope, receive: Receive) -> list[dict[str, Any]]:
        try:
            caller = await self._authenticate(scope, receive, None)
            return await self._entries(caller.allowed)
        except BenchError:
            return []  # LiteLLM let this caller see its list; ours is only for those it also lets in

    async def _entries(self, allowed: Callable[[list[str]], Awaitable[list[str]]]) -> list[dict[str, Any]]:
        """Each collection under its plain name, and once per mode that this version answers."""
        bench = self._bench()
        config, catalog = bench.config, bench.catalog
        entries = []
        for model in await allowed([f"bench/{name}" for name in config.collections]):
            name = collection_of(model)
            collection = config.collections[name]
            about = {
                "description": collection.description,
                "tags": list(collection.tags),
                "reply": collection.reply,
                "members": list(collection.members),
                "explorers": config.explorers_of(name),
                "shape": collection.shape,
                "merger": collection.merger,
                "together": together([catalog.get(alias) for alias in collection.members]),
            }
            for mode in (collection.reply, *SERVED_MODES):
                id = model if mode == collection.reply else f"{model}:{mode}"
                entry = {"id": id, "object": "model", "created": STARTED, "owned_by": "bench"}
                entries.append({**entry, "bench": {**about, "reply": mode}})
        return list({e["id"]: e for e in entries}.values())


class _Captured:
    """LiteLLM's reply, held until ours is behind it."""

    def __init__(self) -> None:
        self.status = 500
        self.body = b""
        self._start: Message = {"type": "http.response.start", "status": 500, "headers": []}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start, self.status = message, message["status"]
        else:
            self.body += message.get("body", b"")

    async def give(self, send: Send, body: bytes) -> None:
        kept = [(k, v) for k, v in self._start["headers"] if k.lower() != b"content-length"]
        length = (b"content-length", str(len(body)).encode())
        await send({**self._start, "headers": [*kept, length]})
        await send({"type": "http.response.body", "body": body})


def _appended(body: bytes, ours: list[dict[str, Any]], headers: Headers) -> bytes:
    """The list with ours at its end; a reply that is no list of models stays as it is."""
    try:
        listed = json.loads(body)
    except ValueError:
        return body
    if not (isinstance(listed, dict) and isinstance(listed.get("data"), list)):
        return body
    if "anthropic-version" in headers:
        ours = [
            {"type": "model", "id": e["id"], "display_name": e["id"], "created_at": _rfc3339(e["created"])}
            for e in ours
        ]
        listed["last_id"] = ours[-1]["id"]
    listed["data"] += ours
    return orjson.dumps(listed)


def _rfc3339(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

"""The lists of models, in the shape of whoever asks: LiteLLM's own models, then the collections that a key may call."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from bench_proxy.bench import Bench
from bench_proxy.catalog import together
from bench_proxy.config import MODEL_PREFIX, REPLY_MODES
from bench_proxy.errors import BenchError, UnknownModel
from bench_proxy.formats.base import Format, dumps
from bench_proxy.formats.brief import collection_of
from bench_proxy.formats.gemini import format as gemini
from bench_proxy.formats.places import CHAT, MESSAGES
from bench_proxy.http.answering import Authenticate
from bench_proxy.http.responding import Response, send_error
from bench_proxy.http.sent_keys import SENT

PassOn = Callable[[Scope, Receive, Send], Awaitable[None]]
Entry = Mapping[str, Any]

STARTED = int(time.time())
HOST_LIST = "/v1/models"
GEMINI_LIST = "/v1beta/models"
LISTS = (HOST_LIST, "/models", GEMINI_LIST)


@dataclass(frozen=True, slots=True)
class Shape:
    """How one vendor's clients want a model written, and an error."""

    format: Format
    entry: Callable[[Entry], Entry]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a path asks for: the list, or with a `name` one model of it. `ours_alone` where LiteLLM has no answer."""

    shape: Shape
    name: str
    ours_alone: bool


class Listing:
    def __init__(self, bench: Callable[[], Bench], authenticate: Authenticate) -> None:
        self._bench = bench
        self._authenticate = authenticate

    async def __call__(self, asked: Asked, scope: Scope, receive: Receive, send: Send, pass_on: PassOn) -> None:
        response = Response(send)
        try:
            if asked.shape is GEMINI:
                await self._gemini(asked.name, scope, receive, response, send, pass_on)
            elif asked.name:
                caller = await self._authenticate(scope, receive, None)
                found = _found(asked.name, await self.entries(caller.allowed))
                await response.whole(200, CHAT.content_type, dumps(asked.shape.entry(found)), [])
            else:
                await self._appended(asked.shape, scope, receive, send, pass_on)
        except BenchError as error:
            await send_error(response, asked.shape.format, error)

    async def _appended(self, shape: Shape, scope: Scope, receive: Receive, send: Send, pass_on: PassOn) -> None:
        """LiteLLM's answer with ours at its end; one that is no list of models stays as it is. LiteLLM knows no bench
        keys, which see collections alone.
        """
        if SENT in scope:
            caller = await self._authenticate(scope, receive, None)
            entries = [dict(shape.entry(entry)) for entry in await self.entries(caller.allowed)]
            await Response(send).whole(200, CHAT.content_type, dumps(_listed(shape, entries)), [])
            return
        if shape is not OPENAI:  # LiteLLM's own refusal is in OpenAI's shape alone
            await self._authenticate(scope, receive, None)
        host = await _captured(scope, receive, pass_on)
        models = host.models
        ours = await self._ours(scope, receive) if models is not None else []
        if models is None or not ours:
            await host.give(send, host.body)
            return
        listed = json.loads(host.body)
        listed["data"] = [*models, *(shape.entry(entry) for entry in ours)]
        if shape is ANTHROPIC:
            listed["last_id"] = ours[-1]["id"]
        await host.give(send, dumps(listed))

    async def _gemini(
        self, name: str, scope: Scope, receive: Receive, response: Response, send: Send, pass_on: PassOn
    ) -> None:
        """LiteLLM has no such list: its own one is translated."""
        scope = _with_the_key_of_its_query(scope)
        caller = await self._authenticate(scope, receive, None)  # first, since its refusal is not in this shape
        hosts: Sequence[Entry] = ()
        if SENT not in scope:
            host = await _captured({**scope, "path": HOST_LIST, "raw_path": HOST_LIST.encode()}, receive, pass_on)
            hosts = host.models or ()
        models = [*hosts, *await self.entries(caller.allowed)]
        written = [GEMINI.entry(found) for found in ([_found(name, models)] if name else models)]
        await response.whole(200, CHAT.content_type, dumps(written[0] if name else {"models": written}), [])

    async def _ours(self, scope: Scope, receive: Receive) -> list[dict[str, Any]]:
        try:
            caller = await self._authenticate(scope, receive, None)
            return await self.entries(caller.allowed)
        except BenchError:
            return []  # LiteLLM let this caller see its list; ours is only for those it also lets in

    async def entries(self, allowed: Callable[[list[str]], Awaitable[list[str]]]) -> list[dict[str, Any]]:
        """Each collection under its plain name, and once per mode that this version answers, in OpenAI's shape."""
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
            for mode in (collection.reply, *REPLY_MODES):
                id = model if mode == collection.reply else f"{model}:{mode}"
                entry = {"id": id, "object": "model", "created": STARTED, "owned_by": "bench"}
                entries.append({**entry, "bench": {**about, "reply": mode}})
        return list({e["id"]: e for e in entries}.values())


def asked(path: str, headers: Headers) -> Asked | None:
    """What a GET of this path asks for; None when that is LiteLLM's to answer."""
    base = next((base for base in LISTS if path == base or path.startswith(f"{base}/")), None)
    if base is None:
        return None
    shape = _shape(base, headers)
    name = path[len(base) + 1 :]
    if name[: len(MODEL_PREFIX)].lower() == MODEL_PREFIX:
        name = MODEL_PREFIX + name[len(MODEL_PREFIX) :]
    elif name and shape is not GEMINI:
        return None
    return Asked(shape, name, ours_alone=bool(name) or base == GEMINI_LIST)


def _shape(base: str, headers: Headers) -> Shape:
    """Three vendors' clients ask for the same paths, and are told apart by what else they send."""
    if base == GEMINI_LIST or "x-goog-api-key" in headers:
        return GEMINI
    return ANTHROPIC if "anthropic-version" in headers else OPENAI


def _with_the_key_of_its_query(scope: Scope) -> Scope:
    """Google's clients may send the key as `?key=`, which LiteLLM looks at on other paths of Google's alone."""
    key = parse_qs(scope["query_string"].decode("latin-1")).get("key")
    if not key or "x-goog-api-key" in Headers(scope=scope):
        return scope
    return {**scope, "headers": [*scope["headers"], (b"x-goog-api-key", key[-1].encode("latin-1", "replace"))]}


def _found(name: str, models: Sequence[Entry]) -> Entry:
    by_id = {model["id"]: model for model in models}
    if (model := by_id.get(name) or by_id.get(_plain(name, by_id))) is not None:
        return model
    ours = ", ".join(m["id"] for m in models if m["id"].startswith(MODEL_PREFIX)) or "none"
    raise UnknownModel(f'there is no model "{name[:200]}"; of bench this key sees: {ours}', param="model")


def _plain(name: str, by_id: Mapping[str, Entry]) -> str:
    """The name under which the list has it: `:latest` is no mode, and a collection's own mode is left out there."""
    collection, _, mode = name.partition(":")
    own = by_id.get(collection, {}).get("bench", {}).get("reply")
    return collection if mode in {"latest", own} else name


def _listed(shape: Shape, entries: Sequence[Entry]) -> Entry:
    if shape is not ANTHROPIC:
        return {"object": "list", "data": entries}
    first, last = (entries[0]["id"], entries[-1]["id"]) if entries else (None, None)
    return {"data": entries, "has_more": False, "first_id": first, "last_id": last}


class _Captured:
    """LiteLLM's reply, held until ours is behind it."""

    def __init__(self) -> None:
        self.body = b""
        self._start: Message = {"type": "http.response.start", "status": 500, "headers": []}

    @property
    def models(self) -> list[dict[str, Any]] | None:
        """The models that it lists; None for a reply that is no list. Those under our prefix it is never asked."""
        if self._start["status"] != 200:
            return None
        try:
            listed = json.loads(self.body)
        except ValueError:
            return None
        models = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(models, list):
            return None
        return [model for model in models if not str(model.get("id")).lower().startswith(MODEL_PREFIX)]

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self.body += message.get("body", b"")

    async def give(self, send: Send, body: bytes) -> None:
        kept = [(k, v) for k, v in self._start["headers"] if k.lower() != b"content-length"]
        length = (b"content-length", str(len(body)).encode())
        await send({**self._start, "headers": [*kept, length]})
        await send({"type": "http.response.body", "body": body})


async def _captured(scope: Scope, receive: Receive, pass_on: PassOn) -> _Captured:
    host = _Captured()
    await pass_on(scope, receive, host.send)
    return host


def _as_it_is(entry: Entry) -> Entry:
    return entry


def _anthropic(entry: Entry) -> Entry:
    """https://docs.anthropic.com/en/api/models-list"""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry["created"]))
    return {"type": "model", "id": entry["id"], "display_name": entry["id"], "created_at": created}


def _gemini(entry: Entry) -> Entry:
    """https://ai.google.dev/api/models"""
    bench = entry.get("bench", {})
    window = bench.get("together", {}).get("context_window")
    return {
        "name": f"models/{entry['id']}",
        "displayName": entry["id"],
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
        **({"description": bench["description"]} if bench.get("description") else {}),
        **({"inputTokenLimit": window} if window else {}),
        **({"bench": bench} if bench else {}),
    }


OPENAI = Shape(CHAT, _as_it_is)
ANTHROPIC = Shape(MESSAGES, _anthropic)
GEMINI = Shape(gemini.WHOLE, _gemini)

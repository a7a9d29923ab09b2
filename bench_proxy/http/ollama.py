"""What Ollama's clients ask beside their questions: which models there are, what they can do, which version this is.

https://docs.ollama.com/api
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from bench_proxy.bench import Bench
from bench_proxy.catalog import sees
from bench_proxy.config import MODEL_PREFIX
from bench_proxy.errors import BenchError, InvalidRequest, UnknownModel
from bench_proxy.formats.base import dumps
from bench_proxy.formats.brief import LONGEST_ECHO
from bench_proxy.formats.ollama.format import OllamaChat
from bench_proxy.formats.ollama.lines import rfc3339
from bench_proxy.http import body as bodies
from bench_proxy.http.answering import Authenticate, check_transport
from bench_proxy.http.responding import Response, send_error

Json = dict[str, Any]
Entries = Callable[[Callable[[list[str]], Awaitable[list[str]]]], Awaitable[list[Json]]]
"""The model list's entries for a caller, by what this caller may call."""

FORMAT = OllamaChat()

VERSION = "0.14.0"
"""Clients refuse an Ollama that is too old for what they need of it. From 0.6.4 on `show` lists capabilities, which
GitHub Copilot asks for; 0.14.0 is the first to speak OpenAI's Responses and Anthropic's Messages too, as LiteLLM does.
"""

OPEN = frozenset({"/api", "/api/", "/api/version"})
"""Probes, which say nothing of anybody's models."""
LOOKED_UP = OPEN | {"/api/tags", "/api/ps"}
SHOW = "/api/show"

ARCHITECTURE = "bench"


class OllamaRoutes:
    """Answers for `bench/…` alone: the other models of this proxy are not asked in Ollama's way."""

    def __init__(self, bench: Callable[[], Bench], entries: Entries, authenticate: Authenticate) -> None:
        self._bench = bench
        self._entries = entries
        self._authenticate = authenticate

    def answers(self, method: str, path: str) -> bool:
        if path == SHOW:
            return method == "POST"
        return path in LOOKED_UP and method in {"GET", "HEAD"}

    async def __call__(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        response = Response(send)
        try:
            answer = await (self._show(scope, receive) if path == SHOW else self._looked_up(path, scope, receive))
            await response.whole(200, FORMAT.content_type, dumps(answer), [])
        except BenchError as error:
            await send_error(response, FORMAT, error)

    async def _looked_up(self, path: str, scope: Scope, receive: Receive) -> Json:
        if path in OPEN:
            return {"version": VERSION}
        entries = await self._of_caller(scope, receive)
        # No model is in the memory of this machine.
        return {"models": [_listed(entry) for entry in entries] if path == "/api/tags" else []}

    async def _show(self, scope: Scope, receive: Receive) -> Json:
        config = self._bench().config
        incoming = await bodies.read(receive, config.limits.max_body_bytes)
        check_transport(incoming, Headers(scope=scope), config)
        entries = {entry["id"]: entry for entry in await self._of_caller(scope, receive)}
        name = _named(incoming.body)
        entry = entries.get(_plain(name, entries))
        if entry is None:
            known = ", ".join(entries) or "none"
            raise UnknownModel(f'there is no model "{name[:LONGEST_ECHO]}"; this key may ask: {known}', param="model")
        return _shown(entry, self._able(entry["bench"]))

    def _able(self, about: Json) -> list[str]:
        """What may be asked here. A panel asks all its members, and takes no tools. A route asks one that can, so that
        one is enough; that a model thinks nobody knows of its members.
        """
        if about["reply"] != "route":
            return [name for name in about["together"]["capabilities"] if name != "tools"]
        catalog = self._bench().catalog
        members = [catalog.get(alias) for alias in about["members"]]
        able = {"vision": any(map(sees, members)), "tools": any(model.tools for model in members)}
        return [name for name, can in able.items() if can]

    async def _of_caller(self, scope: Scope, receive: Receive) -> list[Json]:
        caller = await self._authenticate(scope, receive, None)
        return await self._entries(caller.allowed)


def _named(body: bytes) -> str:
    """The model of `/api/show`, which older clients call `name`."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        asked = None
    if not isinstance(asked, dict):
        raise InvalidRequest("the body is not JSON, or not UTF-8; send one JSON object")
    name = asked.get("model") or asked.get("name")
    if not isinstance(name, str):
        raise InvalidRequest('"model": send the name of a model', param="model")
    return name


def _plain(name: str, entries: Mapping[str, Json]) -> str:
    """The name under which the list has it: `:latest` is no mode, and a collection's own mode is left out there."""
    if name[: len(MODEL_PREFIX)].lower() == MODEL_PREFIX:
        name = MODEL_PREFIX + name[len(MODEL_PREFIX) :]
    collection, _, mode = name.partition(":")
    own = collection in entries and mode in {"latest", entries[collection]["bench"]["reply"]}
    return collection if own else name


def _listed(entry: Json) -> Json:
    return {
        "name": entry["id"],
        "model": entry["id"],
        "modified_at": rfc3339(entry["created"]),
        "size": 0,
        "digest": hashlib.sha256(entry["id"].encode()).hexdigest(),
        "details": _details(),
        "bench": entry["bench"],
    }


def _shown(entry: Json, able: list[str]) -> Json:
    about = entry["bench"]
    together = about["together"]
    info = {"general.architecture": ARCHITECTURE, "general.basename": entry["id"]}
    if (window := together["context_window"]) is not None:
        info[f"{ARCHITECTURE}.context_length"] = window
    return {
        "modelfile": f"FROM {entry['id']}\n",
        "parameters": "",
        "template": "",
        "details": _details(),
        "model_info": info,
        "capabilities": ["completion", *able],
        "modified_at": rfc3339(entry["created"]),
        "bench": about,
    }


def _details() -> Json:
    return {
        "parent_model": "",
        "format": "",
        "family": ARCHITECTURE,
        "families": [ARCHITECTURE],
        "parameter_size": "",
        "quantization_level": "",
    }

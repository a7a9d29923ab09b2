"""A request for a bench model is refused in its format and says nothing that its key may not know."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import orjson
import pytest
from starlette.types import Message, Receive, Scope

from bench_proxy.bench import Bench, Caller
from bench_proxy.catalog import Catalog, HostFacts
from bench_proxy.config import Config
from bench_proxy.errors import Denied
from bench_proxy.formats.places import place
from bench_proxy.http.answering import Answering
from bench_proxy.http.body import Incoming
from bench_proxy.upstream import Call, Reply
from tests.doubles import Models, Table, Undecided

Json = dict[str, Any]

CONFIG = Config.model_validate(
    {
        "collections": {
            "core": {"members": ["gpt"], "description": "For all."},
            "secret": {"members": ["gpt"], "description": "For the few."},
        }
    }
)
USER = {"role": "user", "content": "Hello."}


class Asked:
    """Answers to one request after another; `authorized` is what LiteLLM was asked to authorize."""

    def __init__(self, *, denied: bool = False) -> None:
        catalog = Catalog([HostFacts("gpt", underlying="gpt")], {})
        # Nothing here gets as far as a model or the ledger.
        bench = Bench(Models(), None, lambda: CONFIG, lambda: catalog, Undecided())  # type: ignore[arg-type]
        self.authorized: list[Mapping[str, Any] | None] = []
        self._denied = denied
        self._answering = Answering(lambda: bench, self._authenticate)

    async def _authenticate(self, _scope: Scope, _receive: Receive, body: Mapping[str, Any] | None) -> Caller:
        self.authorized.append(body)
        if self._denied:
            raise Denied("no such key", status=401, type="auth_error", code="401")

        async def allowed(models: Collection[str]) -> list[str]:
            return [model for model in models if model == "bench/core"]

        return Caller("owner", admin=False, allowed=allowed)

    async def __call__(
        self, body: bytes, kind: str = "application/json", **more: bool
    ) -> tuple[bool, int, dict[str, str], Json]:
        """Whether it was ours, the status, the headers and the body of the reply."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        incoming = Incoming([{"type": "http.request", "body": body}], **{"whole": True, **more})
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [(b"content-type", kind.encode())],
        }
        asked = place("/v1/chat/completions")
        assert asked is not None
        ours = await self._answering.answer(asked, incoming, scope, receive, send)
        if not sent:
            return ours, 0, {}, {}
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return ours, sent[0]["status"], headers, orjson.loads(b"".join(m.get("body", b"") for m in sent[1:]))


def body(model: str = "bench/core", **more: Any) -> bytes:
    return orjson.dumps({"model": model, "messages": [USER], **more})


@pytest.mark.parametrize(
    "text", [body("gpt"), body("benchmark"), b'["bench/core"]', b"null", b'{"x": "bench/core"}', b"", b"{"]
)
async def test_a_body_that_turns_out_to_be_litellms_is_left_alone(text: bytes) -> None:
    asked = Asked()
    assert await asked(text) == (False, 0, {}, {})
    assert asked.authorized == []


@pytest.mark.parametrize(
    "model", ["bench", "bench/", "bench/corr", "bench/core:merge", "bench/secret:merge", "bench/nobody"]
)
async def test_what_can_be_called_instead_is_what_this_key_may_call(model: str) -> None:
    ours, status, _, reply = await Asked()(body(model))
    assert ours
    assert status in {400, 404}
    assert "bench/core: For all." in reply["error"]["message"]
    assert "few" not in reply["error"]["message"]


@pytest.mark.parametrize("model", ["bench/core", "bench/core:all", "BENCH/core:latest"])
async def test_litellm_authorizes_the_collection_whatever_mode_is_asked_of_it(model: str) -> None:
    asked = Asked(denied=True)
    await asked(body(model))
    assert asked.authorized == [{"model": "bench/core", "messages": [USER]}]


async def test_a_refusal_of_litellms_comes_in_the_callers_format() -> None:
    _, status, headers, reply = await Asked(denied=True)(body())
    assert (status, headers["www-authenticate"], headers["content-type"]) == (401, "Bearer", "application/json")
    assert reply == {"error": {"message": "no such key", "type": "auth_error", "param": None, "code": "401"}}


@pytest.mark.parametrize("text", [b'{"model": "bench/core", "messages": [', b'{"model": "bench/core", "x": "\xff"}'])
async def test_a_body_that_is_not_json_is_told_only_to_those_who_may_call(text: bytes) -> None:
    _, status, _, reply = await Asked()(text)
    assert (status, reply["error"]["type"]) == (400, "invalid_request_error")
    assert (await Asked(denied=True)(text))[1] == 401


NOT_JSON = (
    "",
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/jsonp",
    "multipart/form-data; boundary=x",
)


@pytest.mark.parametrize("kind", NOT_JSON)
async def test_a_content_type_other_than_json_is_refused(kind: str) -> None:
    _, status, _, reply = await Asked()(body(), kind)
    assert status == 415
    assert "application/json" in reply["error"]["message"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.api+json"])
async def test_json_is_json_under_any_of_its_names(kind: str) -> None:
    assert (await Asked()(body("bench/corr"), kind))[1] == 404


async def test_a_body_over_the_cap_says_what_to_send_instead() -> None:
    _, status, _, reply = await Asked()(body(), too_large=True, whole=False)
    assert status == 413
    for told in ("20 MB", "URLs", "smaller images"):
        assert told in reply["error"]["message"]


async def test_a_body_that_did_not_arrive_is_a_timeout() -> None:
    assert (await Asked()(b'{"model": "bench/core",', whole=False))[1] == 408


@pytest.mark.parametrize(("levels", "status"), [(101, 400), (10_000, 400), (100, 404)])
async def test_nesting_over_a_hundred_levels_is_refused(levels: int, status: int) -> None:
    # The body itself is the first level.
    deep = b"[" * (levels - 1) + b"]" * (levels - 1)
    text = b'{"model": "bench/corr", "messages": [{"role": "user", "content": "x"}], "x": ' + deep + b"}"
    _, told, _, reply = await Asked()(text)
    assert told == status, reply


@pytest.mark.parametrize("stream", [False, True])
async def test_a_proxy_that_stops_ends_a_reply_in_its_format(stream: bool) -> None:
    asked_of = asyncio.Event()

    class Silent(Models):
        async def complete(self, call: Call) -> Reply:
            asked_of.set()
            return await super().complete(call)

    table = Table(Silent(gpt=[asyncio.Event()]), members=["gpt"])
    sent: list[Message] = []
    begun, hung_up = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> None:
        sent.append(message)
        begun.set()

    async def receive() -> Message:
        await hung_up.wait()
        raise AssertionError

    async def authenticate(*_: Any) -> Caller:
        begun.set()
        return Caller("me", admin=True, allowed=_all)

    asked = place("/v1/chat/completions")
    assert asked is not None
    incoming = Incoming([{"type": "http.request", "body": body(stream=stream)}], whole=True)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    answering = asyncio.create_task(
        Answering(lambda: table.bench, authenticate).answer(asked, incoming, scope, receive, send)
    )
    await begun.wait()
    await asked_of.wait()
    answering.cancel()
    await asyncio.wait([answering])
    assert answering.cancelled()
    told = b"".join(message.get("body", b"") for message in sent)
    assert b"the proxy is stopping" in told
    if stream:
        assert told.endswith(b"data: [DONE]\n\n")
        assert sent[-1]["more_body"] is False
    else:
        assert sent[0]["status"] == 503


async def _all(names: Collection[str]) -> list[str]:
    return list(names)

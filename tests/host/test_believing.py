"""LiteLLM is asked once about requests that say the same, and each time about all that it might say otherwise of."""

import secrets
import warnings
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import litellm
import pytest
from starlette.types import Message, Scope

from bench_proxy.bench import Caller
from bench_proxy.errors import Denied
from bench_proxy.host.billing import charge, payer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # as pydantic sees LiteLLM's types
    from litellm.proxy import proxy_server
    from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth

    from bench_proxy.host import auth as auth_module
    from bench_proxy.host import believing
    from bench_proxy.host.auth import Authentication
    from bench_proxy.host.believing import Believed, Believing

KEY = "sk-" + secrets.token_hex(16)
BODY = {"model": "bench/pair", "messages": [{"role": "user", "content": "one"}], "temperature": 0.5}


class Asked:
    """LiteLLM's own authentication, and how often it was asked."""

    def __init__(self) -> None:
        self.times = 0
        self._asks = auth_module.user_api_key_auth

    async def __call__(self, *args: Any, **given: Any) -> UserAPIKeyAuth:
        self.times += 1
        return await self._asks(*args, **given)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    counting = Asked()
    monkeypatch.setattr(auth_module, "user_api_key_auth", counting)
    monkeypatch.setattr(proxy_server, "master_key", KEY)
    monkeypatch.setattr(proxy_server, "general_settings", {"master_key": KEY})
    yield counting
    proxy_server.user_api_key_cache.flush_cache()


async def nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def scope(*, path: str = "/v1/chat/completions", key: str = KEY, client: str = "127.0.0.1", **headers: str) -> Scope:
    sent = {"authorization": f"Bearer {key}", "content-type": "application/json", **headers}
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "client": (client, 4711),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()],
        "state": {},
    }


async def ask(
    authentication: Authentication, said: Scope | None = None, body: Mapping[str, Any] | None = BODY
) -> Caller:
    return await authentication(said or scope(), nothing, body)


async def test_what_says_the_same_is_asked_about_once(asked: Asked) -> None:
    authentication = Authentication()
    first = await ask(authentication)
    paid = payer()
    assert paid["user_api_key"]
    for n in range(5):
        body = {**BODY, "messages": [{"role": "user", "content": str(n) * 1000}]}
        charge({})
        caller = await ask(authentication, {**scope(content_length=str(n)), "client": ("127.0.0.1", n)}, body)
        assert (caller.owner, caller.admin, caller.checked) == (first.owner, True, True)
        assert caller.key == first.key
        assert payer() == paid
        assert await caller.allowed(["bench/pair"]) == ["bench/pair"]
    assert asked.times == 1


@pytest.mark.parametrize(
    "other",
    [
        {"said": scope(path="/chat/completions")},
        {"said": scope(client="127.0.0.2")},
        {"said": scope(x_litellm_tags="a,b")},
        {"said": scope(x_forwarded_for="10.0.0.1")},
        {"said": {**scope(), "query_string": b"a=b"}},
        {"said": {**scope(), "root_path": "/llm"}},
        {"body": {**BODY, "model": "bench/other"}},
        {"body": {**BODY, "user": "someone"}},
        {"body": {**BODY, "metadata": {"tags": ["a"]}}},
        {"body": {**BODY, "tools": [{"type": "function", "function": {"name": "look"}}]}},
        {"body": None},
    ],
)
async def test_whatever_else_is_another_is_asked_about_anew(asked: Asked, other: dict[str, Any]) -> None:
    authentication = Authentication()
    await ask(authentication)
    await ask(authentication, **other)
    assert asked.times == 2
    await ask(authentication)
    await ask(authentication, **other)
    assert asked.times == 2


@pytest.mark.parametrize("key", ["sk-wrong", KEY[:-1], KEY + "x", ""])
async def test_a_refusal_is_never_believed(asked: Asked, key: str) -> None:
    authentication = Authentication()
    await ask(authentication)
    for n in range(3):
        with pytest.raises(Denied) as refused:
            await ask(authentication, scope(key=key))
        assert refused.value.status == 401
        assert asked.times == n + 2


async def test_a_body_that_litellm_refuses_is_refused_each_time(asked: Asked) -> None:
    authentication = Authentication()
    await ask(authentication)
    for _ in range(2):
        with pytest.raises(Denied):
            await ask(authentication, body={**BODY, "api_base": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (proxy_server, "prisma_client", object()),
        (proxy_server, "user_custom_auth", object()),
        (proxy_server, "open_telemetry_logger", object()),
        (proxy_server, "general_settings", {"master_key": KEY, "allowed_ips": ["10.0.0.1"]}),
        (proxy_server, "general_settings", {"master_key": KEY, "a_setting_to_come": True}),
        (litellm, "max_budget", 1.0),
        (litellm, "service_callback", ["prometheus_system"]),
    ],
)
async def test_nothing_is_believed_where_more_than_the_request_decides(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, value: object
) -> None:
    remembered = Believing()
    digest, _ = remembered.of(scope(), BODY)
    assert digest is not None
    remembered.remember(digest, Believed(master(), {}))
    assert remembered.of(scope(), BODY)[1] is not None
    monkeypatch.setattr(where, name, value)
    assert remembered.of(scope(), BODY) == (None, None)


async def test_another_master_key_ends_what_is_believed_of_the_old_one(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    authentication = Authentication()
    await ask(authentication)
    monkeypatch.setattr(proxy_server, "master_key", "sk-another")
    with pytest.raises(Denied):
        await ask(authentication)


async def test_it_is_believed_for_a_time(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    authentication = Authentication()
    await ask(authentication)
    now = believing.time.monotonic()
    monkeypatch.setattr(believing.time, "monotonic", lambda: now + believing.BELIEVED_SECONDS + 1)
    await ask(authentication)
    assert asked.times == 2


async def test_the_request_is_left_as_litellm_leaves_it(asked: Asked) -> None:
    """Its hooks and its tracing look there."""
    authentication = Authentication()
    for _ in range(2):
        said = scope()
        await ask(authentication, said)
        assert isinstance(said["state"]["litellm_received_at"], datetime)
        assert said["parsed_body"][1]["model"] == BODY["model"]
    assert asked.times == 1


async def test_where_no_key_is_asked_nothing_is_believed(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_server, "master_key", None)
    assert Believing().of(scope(key=believing.LITELLM_PROXY_MASTER_KEY_ALIAS), BODY) == (None, None)


async def test_what_one_request_writes_into_it_no_other_sees(asked: Asked) -> None:
    authentication = Authentication()
    first = (await ask(authentication)).key
    assert isinstance(first, UserAPIKeyAuth)
    first.metadata["seen"] = "by the first"
    first.models.append("a model")
    first.end_user_id = "someone"
    second = (await ask(authentication)).key
    assert isinstance(second, UserAPIKeyAuth)
    assert (second.metadata, second.models, second.end_user_id) == ({}, [], None)
    assert asked.times == 1


def test_only_the_master_key_is_believed() -> None:
    remembered = Believing()
    remembered.remember(b"1", Believed(UserAPIKeyAuth(api_key="hash", user_role=LitellmUserRoles.PROXY_ADMIN), {}))
    assert len(remembered) == 0


async def test_what_is_kept_of_a_request_is_short(asked: Asked) -> None:
    authentication = Authentication()
    for times in (1, 2):
        await ask(authentication, body={**BODY, "user": "x" * (believing.LONGEST_ID + 1)})
        assert asked.times == times


def test_it_holds_so_many_and_none_that_is_long(asked: Asked) -> None:
    remembered = Believing()
    for n in range(believing.MOST_BELIEVED + 10):
        remembered.remember(str(n).encode(), Believed(master(), {}))
    assert len(remembered) == believing.MOST_BELIEVED
    assert remembered.of(scope(), {**BODY, "tools": ["x" * believing.LONGEST]}) == (None, None)
    assert remembered.of(scope(), {**BODY, "seed": 2**70}) == (None, None)


def master() -> UserAPIKeyAuth:
    return UserAPIKeyAuth(api_key=believing.LITELLM_PROXY_MASTER_KEY_ALIAS, user_role=LitellmUserRoles.PROXY_ADMIN)

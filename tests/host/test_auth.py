"""Who is in: LiteLLM decides, and its refusals come out in OpenAI's shape."""

from typing import Any

import httpx
import pytest

from tests.asking import CHAT, Json, ask, panel, question, refusal, statuses
from tests.proxy import MASTER_KEY, Proxy
from tests.served import ALICE, BOB
from tests.upstream import Upstream

ROUTES: list[tuple[str, str, Json | None]] = [
    ("POST", CHAT, question("bench/pair")),
    ("POST", CHAT, question("bench/pair", stream=True)),
    ("POST", "/chat/completions", question("bench/nothing")),
    ("POST", "/bench/verdict", {"call": "x", "useful": True}),
    ("POST", "/bench/pending", {"calls": ["x"]}),
    ("GET", "/bench/record", None),
    ("GET", "/bench/panels", None),
    ("GET", "/bench/panels/x", None),
    ("GET", "/bench/conversations", None),
    ("GET", "/bench/conversations/x", None),
    ("GET", "/bench/collections", None),
    ("GET", "/bench/collections/pair", None),
    ("GET", "/v1/models/bench/pair", None),
]


@pytest.fixture
def nobody(proxy: Proxy, models: Upstream) -> Any:
    with httpx.Client(base_url=proxy.url, trust_env=False) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer sk-wrong"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic c2std3Jvbmc6"},
        {"Authorization": f"Bearer {MASTER_KEY[:-1]}"},
        {"Authorization": f"Bearer {MASTER_KEY}x"},
        {"x-api-key": "sk-wrong"},
        {"x-goog-api-key": "sk-wrong"},
    ],
    ids=lambda headers: ": ".join(*headers.items()).replace(MASTER_KEY[:-1], "key") if headers else "none",
)
@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
def test_a_missing_or_wrong_key_is_401(
    nobody: httpx.Client, models: Upstream, method: str, path: str, body: Json | None, headers: dict[str, str]
) -> None:
    response = nobody.request(method, path, json=body, headers=headers)
    assert response.headers["www-authenticate"] == "Bearer"
    if "completions" in path:  # Claude Code would ask for minutes
        assert response.headers["x-should-retry"] == "false"
    if path.startswith("/v1/models") and "x-goog-api-key" in headers:
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["status"]) == (401, 401, "UNAUTHENTICATED")
    else:
        error = refusal(response, 401)
        assert error["type"] == "auth_error"
    assert "Authentication Error" in error["message"]
    for leak in ("prisma", "ModuleNotFoundError", "Traceback", "No connected db", MASTER_KEY[:-1], "sk-wrong"):
        assert leak not in response.text
    assert models.calls() == []


def test_a_missing_key_is_named_as_such(nobody: httpx.Client) -> None:
    assert "No api key passed in" in refusal(ask(nobody, "bench/pair"), 401)["message"]


@pytest.mark.parametrize("header", ["x-api-key", "x-goog-api-key", "api-key", "Ocp-Apim-Subscription-Key"])
def test_the_key_may_come_in_any_vendors_header(nobody: httpx.Client, models: Upstream, header: str) -> None:
    headers = {header: MASTER_KEY}
    reply = nobody.post(CHAT, json=question("bench/pair"), headers=headers)
    assert statuses(reply.json()["bench"]) == {"ok-a": "ok", "ok-b": "ok"}
    call = reply.json()["bench"]["seats"][0]["call"]
    verdict = nobody.post("/bench/verdict", json={"call": call, "useful": True}, headers=headers)
    assert verdict.json()["recorded"] is True
    assert nobody.get("/v1/models/bench/pair", headers=headers).status_code == 200
    for call_ in models.calls():
        assert MASTER_KEY not in str(call_.headers)


def test_no_key_is_kept_or_logged(proxy: Proxy, http: httpx.Client, nobody: httpx.Client, models: Upstream) -> None:
    wrong = "sk-0b1c2d3e4f5a6b7c8d9e"
    panel(http, "bench/partial")
    refusal(ask(nobody, "bench/pair"), 401)
    refusal(nobody.get("/bench/panels", headers={"Authorization": f"Bearer {wrong}"}), 401)
    kept = [proxy.log_path, *proxy.directory.glob("bench.db*")]
    assert len(kept) >= 2
    for file in kept:
        content = file.read_bytes()
        for key in (MASTER_KEY, wrong, "sk-upstream"):
            assert key.encode() not in content, file


def test_without_a_master_key_nobody_needs_one(keyless: Proxy, models: Upstream) -> None:
    with keyless.client() as anybody:
        assert "authorization" not in anybody.headers
        data = panel(anybody, "bench/pair")["bench"]
        assert statuses(data) == {"ok-a": "ok", "ok-b": "ok"}
        call = data["seats"][0]["call"]
        assert anybody.post("/bench/verdict", json={"call": call, "useful": True}).json()["recorded"] is True
        assert anybody.post("/bench/pending", json={"calls": [call]}).json()["owed"] == []
        assert anybody.get(f"/bench/panels/{data['panel']}").json()["panel"] == data["panel"]
        assert "bench/pair" in [entry["id"] for entry in anybody.get("/v1/models").json()["data"]]
        assert anybody.get("/bench/collections/pair").json()["members"] == ["ok-a", "ok-b"]
        assert anybody.get("/bench/record").json()["models"]


def test_without_a_master_key_a_key_does_no_harm(keyless: Proxy, models: Upstream) -> None:
    with keyless.client(headers={"Authorization": "Bearer sk-anything"}) as somebody:
        data = panel(somebody, "bench/pair")["bench"]
        assert somebody.get(f"/bench/panels/{data['panel']}").status_code == 200


# Keys that may not do everything.


@pytest.fixture
def alice(workers: Proxy, models: Upstream) -> Any:
    """May call bench/pair and ok-c."""
    with workers.client(headers={"Authorization": f"Bearer {ALICE}"}) as client:
        yield client


@pytest.fixture
def bob(workers: Proxy, models: Upstream) -> Any:
    """May call all collections and no model."""
    with workers.client(headers={"Authorization": f"Bearer {BOB}"}) as client:
        yield client


@pytest.fixture
def admin(workers: Proxy, models: Upstream) -> Any:
    with workers.client() as client:
        yield client


def test_custom_authentication_that_refuses_is_401(workers: Proxy, models: Upstream) -> None:
    with workers.client(headers={"Authorization": "Bearer sk-stranger"}) as stranger:
        for response in (ask(stranger, "bench/pair"), stranger.get("/bench/panels")):
            refusal(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"


def test_a_collection_that_a_key_may_not_call_is_refused_and_not_described(
    alice: httpx.Client, models: Upstream
) -> None:
    for model in ("bench/secret", "bench/secret:all", "BENCH/secret"):
        error = refusal(ask(alice, model), 403)
        assert error["type"] == "key_model_access_denied"
        assert "For few." not in error["message"]
    refusal(alice.get("/bench/collections/secret"), 404)
    refusal(alice.get("/v1/models/bench/secret"), 404)
    assert models.calls() == []


def test_a_key_sees_the_collections_that_it_may_call(
    alice: httpx.Client, bob: httpx.Client, admin: httpx.Client
) -> None:
    def seen(caller: httpx.Client) -> set[str]:
        named = {entry["model"] for entry in caller.get("/bench/collections").json()["collections"]}
        listed = {entry["id"] for entry in caller.get("/v1/models").json()["data"] if entry["id"].startswith("bench/")}
        modes = ("", ":merged", ":choices", ":route")
        assert {name for name in listed if "*" not in name} == {name + mode for name in named for mode in modes}
        return named

    assert seen(alice) == {"bench/pair"}
    assert seen(bob) == seen(admin) == {"bench/pair", "bench/secret", "bench/wide"}
    assert "secret" not in refusal(ask(alice, "bench/pair:odd"), 400)["message"]
    assert "secret" in refusal(ask(bob, "bench/pair:odd"), 400)["message"]
    assert "For few." in refusal(ask(bob, "bench/nothing"), 404)["message"]


def test_a_guest_must_be_a_model_that_the_key_may_call_and_a_member_need_not(
    alice: httpx.Client, bob: httpx.Client, models: Upstream
) -> None:
    data = panel(alice, "bench/pair", **{"with": ["ok-c"]})["bench"]
    assert statuses(data) == {"ok-a": "ok", "ok-b": "ok", "ok-c": "ok"}
    models.clear()
    assert "ok-wide-a" in refusal(ask(alice, "bench/pair", **{"with": ["ok-wide-a"]}), 400)["message"]
    assert "ok-c" in refusal(ask(bob, "bench/pair", **{"with": ["ok-c"]}), 400)["message"]
    assert models.calls() == []


def test_what_another_key_asked_is_not_there(alice: httpx.Client, bob: httpx.Client, admin: httpx.Client) -> None:
    data = panel(alice, "bench/pair")["bench"]
    name, call = data["panel"], data["seats"][0]["call"]
    said = {"call": call, "useful": True}
    refusal(bob.get(f"/bench/panels/{name}"), 404)
    refusal(bob.post("/bench/verdict", json=said), 404)
    assert bob.post("/bench/pending", json={"calls": [call]}).json()["owed"] == []
    assert name not in [shown["panel"] for shown in bob.get("/bench/panels").json()["panels"]]

    assert alice.get(f"/bench/panels/{name}").json()["seats"][0]["answer"] == "I am ok-a."
    assert name in [shown["panel"] for shown in alice.get("/bench/panels").json()["panels"]]
    assert alice.post("/bench/verdict", json=said).json()["recorded"] is True

    assert admin.get(f"/bench/panels/{name}").json()["seats"][0]["verdict"]["useful"] is True
    assert admin.post("/bench/verdict", json={**said, "useful": False}).json()["recorded"] is True


def test_a_key_sees_only_its_own_record(alice: httpx.Client, bob: httpx.Client, admin: httpx.Client) -> None:
    def answered(caller: httpx.Client, alias: str) -> int:
        lines = caller.get("/bench/record").json()["models"]
        return sum(line["answered"] for line in lines if line["alias"] == alias)

    before = {name: answered(caller, "ok-b") for name, caller in (("alice", alice), ("bob", bob), ("admin", admin))}
    panel(bob, "bench/secret", bench={"explorers": 0})
    assert answered(alice, "ok-b") == before["alice"]
    assert answered(bob, "ok-b") == before["bob"] + 1
    assert answered(admin, "ok-b") == before["admin"] + 1

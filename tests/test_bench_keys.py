"""Bench keys through a real proxy, in every format and with the vendors' own libraries."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from google import genai
from google.genai import errors, types

from bench_proxy.estimate import written
from bench_proxy.keys import new_key
from bench_proxy.size import size
from tests.asking import CHAT, Json, ask, connect, eventually, question, refusal, request_bytes, statuses
from tests.cli.test_commands import failed, run, succeeded
from tests.proxy import MASTER_KEY, Proxy
from tests.upstream import Upstream

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

Make = Callable[..., str]

USER = {"role": "user", "content": "Who are you?"}
GEMINI_BODY = {"contents": [{"role": "user", "parts": [{"text": "Who are you?"}]}]}
ASKED: dict[str, tuple[str, Json]] = {
    "chat": (CHAT, question("bench/pair")),
    "chat streamed": (CHAT, question("bench/pair", stream=True)),
    "route": (CHAT, question("bench/routed")),
    "responses": ("/v1/responses", {"model": "bench/pair", "input": "Who are you?"}),
    "completions": ("/v1/completions", {"model": "bench/pair", "prompt": "Who are you?"}),
    "messages": ("/v1/messages", {"model": "bench/pair", "max_tokens": 50, "messages": [USER]}),
    "gemini": ("/v1beta/models/bench/pair:generateContent", GEMINI_BODY),
    "ollama": ("/api/chat", {"model": "bench/pair", "messages": [USER], "stream": False}),
}
LOOKED_UP = [
    "/v1/models", "/v1/models/bench/pair", "/v1beta/models", "/api/tags", "/bench/record", "/bench/panels",
    "/bench/panels/x", "/bench/conversations", "/bench/collections", "/bench/collections/pair", "/bench/models",
    "/bench/keys",
]  # fmt: skip


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def make(http: httpx.Client) -> Make:
    """Makes a key as an admin does; the key itself, or all that is told of it."""

    def made(*, whole: bool = False, **limits: Any) -> Any:
        response = http.post("/bench/keys", json={"name": "ann", **limits})
        assert response.status_code == 201, response.text
        return response.json() if whole else response.json()["key"]

    return made


@pytest.fixture
def anyone(proxy: Proxy, models: Upstream) -> Iterator[httpx.Client]:
    """Sends no key unless told."""
    with httpx.Client(base_url=proxy.url, trust_env=False, timeout=60) as client:
        yield client


def message_of(response: httpx.Response, format: str) -> str:
    """What a refusal says, in the format's own shape."""
    error = response.json()
    if format == "ollama":
        assert set(error) == {"error"}
        return str(error["error"])
    if format == "messages":
        assert error["type"] == "error"
    if format == "gemini":
        assert error["error"]["code"] == response.status_code
    return str(error["error"]["message"])


# Keys that are not good


@pytest.mark.parametrize("format", ASKED)
@pytest.mark.parametrize("fault", ["unknown", "malformed", "revoked"])
def test_a_key_that_is_not_good_is_a_401_in_the_format_s_own_shape(
    anyone: httpx.Client, http: httpx.Client, models: Upstream, make: Make, format: str, fault: str
) -> None:
    key = new_key()
    if fault == "malformed":
        key = key[:-1]
    elif fault == "revoked":
        made = make(whole=True)
        key = made["key"]  # type: ignore[index]
        assert http.delete(f"/bench/keys/{made['id']}").status_code == 200  # type: ignore[index]
    path, body = ASKED[format]
    response = anyone.post(path, json=body, headers=bearer(key))
    assert response.status_code == 401, response.text
    assert response.headers["www-authenticate"] == "Bearer"
    said = {"revoked": "this bench key was revoked"}.get(fault, "this bench key is not known")
    assert said in message_of(response, format)
    assert key[4:12] not in response.text
    assert models.calls() == []


@pytest.mark.parametrize("path", LOOKED_UP)
def test_nothing_is_told_to_a_key_that_is_not_known(anyone: httpx.Client, path: str) -> None:
    response = anyone.get(path, headers=bearer(new_key()))
    assert response.status_code == 401, response.text
    assert "pair" not in response.text


def test_a_key_works_until_it_expires(anyone: httpx.Client, http: httpx.Client, make: Make) -> None:
    assert (
        "is over" in refusal(http.post("/bench/keys", json={"name": "x", "expires": time.time() - 1}), 400)["message"]
    )
    key = make(expires=time.time() + 1.5)
    assert anyone.get("/bench/collections", headers=bearer(key)).status_code == 200
    eventually(lambda: anyone.get("/bench/collections", headers=bearer(key)).status_code == 401)
    assert "expired on" in refusal(anyone.get("/bench/collections", headers=bearer(key)), 401)["message"]


def test_a_revoked_key_stops_in_every_process_within_two_seconds(workers: Proxy, models: Upstream) -> None:
    with workers.client() as admin:
        made = admin.post("/bench/keys", json={"name": "ann"}).json()

        def statuses_now() -> set[int]:
            """Over connections of their own, which the processes share out among themselves."""
            return {
                httpx.get(f"{workers.url}/bench/collections", headers=bearer(made["key"]), trust_env=False).status_code
                for _ in range(12)
            }

        assert statuses_now() == {200}
        assert admin.delete(f"/bench/keys/{made['id']}").json()["revoked"] is not None
        time.sleep(2)
        assert statuses_now() == {401}


# What it may not do


@pytest.mark.parametrize("format", ASKED)
def test_a_collection_that_a_key_may_not_call_is_like_one_that_is_not_there(
    anyone: httpx.Client, models: Upstream, make: Make, format: str
) -> None:
    key = make(collections=["solo"])
    path, body = ASKED[format]
    asked, unknown = [], "pear" if format != "route" else "routes"
    for name in ("routed" if format == "route" else "pair", unknown):
        there = {**body, "model": f"bench/{name}"} if "model" in body else body
        response = anyone.post(path.replace("bench/pair", f"bench/{name}"), json=there, headers=bearer(key))
        message = message_of(response, format)
        assert "bench/trio" not in message
        asked.append((response.status_code, message.replace(f'"{name}"', "this")))
    assert asked[0] == asked[1]
    assert asked[0][0] == 404
    assert "bench/solo: One model." in asked[0][1]
    assert models.calls() == []


def test_no_model_of_litellms_is_called_with_a_bench_key(anyone: httpx.Client, models: Upstream, make: Make) -> None:
    key = make()
    for headers in (bearer(key), {"x-api-key": key}, {"x-goog-api-key": key}, {"api-key": key}):
        error = refusal(ask(anyone, "ok-a", headers=headers, stream=True), 401)
        assert "a bench key calls bench/ models alone" in error["message"]
    for format, (path, body) in ASKED.items():
        there = {**body, "model": "ok-a"} if "model" in body else body
        response = anyone.post(path.replace("bench/pair", "ok-a"), json=there, headers=bearer(key))
        assert response.status_code >= 400
        if format in {"ollama", "gemini"}:  # with a model of LiteLLM's, these paths are its own, or nobody's
            continue
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
        assert "a bench key calls bench/ models alone" in message_of(response, format)
    assert models.calls() == []


def test_litellms_other_routes_take_a_bench_key_for_any_key_that_they_do_not_know(
    anyone: httpx.Client, models: Upstream, make: Make
) -> None:
    key = make()
    for method, path in (("GET", "/v1/models/ok-a"), ("GET", "/key/list"), ("POST", "/v1/embeddings")):
        body = {"model": "ok-a", "input": "x"} if method == "POST" else None
        ours = anyone.request(method, path, json=body, headers=bearer(key))
        unknown = anyone.request(method, path, json=body, headers=bearer("a-key-that-nobody-made"))
        assert ours.status_code == unknown.status_code >= 400, path
        assert "bpk_" not in ours.text
    assert models.calls() == []


@pytest.mark.parametrize("name", ["api_base", "aws_bedrock_runtime_endpoint", "user_config", "model_list"])
def test_a_field_that_litellm_takes_from_no_caller_is_refused_with_a_bench_key_too(
    anyone: httpx.Client, http: httpx.Client, models: Upstream, make: Make, name: str
) -> None:
    """Where a model is called, and with whose credentials, is no caller's to say."""
    steering: Any = {name: "http://127.0.0.1:9"}
    for model in ("bench/pair", "bench/routed"):
        ours = refusal(ask(anyone, model, headers=bearer(make()), **steering), 400)
        theirs = refusal(ask(http, model, **steering), 400)
        assert ours["message"] == theirs["message"]
        assert name in ours["message"]
    assert models.calls() == []


def test_no_length_of_an_answer_is_too_long_to_be_set_aside(anyone: httpx.Client, make: Make) -> None:
    key = make(tokens_a_day=10**6, cost_a_day=5)
    assert ask(anyone, "bench/pair", headers=bearer(key), max_tokens=2**63 - 1).status_code == 200


def test_no_guest_is_seated_for_a_bench_key(anyone: httpx.Client, models: Upstream, make: Make) -> None:
    response = ask(anyone, "bench/pair", headers=bearer(make()), **{"with": ["ok-c"]})
    error = refusal(response, 400)
    assert '"ok-c" in "with" is not a model that this key can call' in error["message"]
    assert "ok-d" not in error["message"]
    assert models.calls() == []


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/bench/keys"), ("GET", "/bench/keys"), ("DELETE", "/bench/keys/x")]
)
def test_only_an_admin_makes_lists_and_revokes_keys(anyone: httpx.Client, make: Make, method: str, path: str) -> None:
    refusal(anyone.request(method, path, json={"name": "mine"}), 401)
    error = refusal(anyone.request(method, path, json={"name": "mine"}, headers=bearer(make())), 403)
    assert error["type"] == "permission_error"


def test_the_metrics_are_not_for_bench_keys(anyone: httpx.Client, make: Make) -> None:
    refusal(anyone.get("/bench/metrics", headers=bearer(make())), 403)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "name", "is required"),
        ({"name": ""}, "name", "at least 1"),
        *(
            ({"name": f"a{odd}b"}, "name", '"name": must hold no line ends and no control')
            for odd in ("\0", "\x1b[2J", "\n", "\u2028")
        ),
        ({"name": "x" * 101}, "name", "at most 100"),
        ({"name": "x", "collection": ["pair"]}, "collection", "unknown key"),
        ({"name": "x", "collections": "pair"}, "collections", "list"),
        ({"name": "x", "collections": []}, "collections", "at least 1"),
        ({"name": "x", "collections": ["pear"]}, "collections", 'there is no collection "pear"; did you mean "pair"?'),
        ({"name": "x", "requests_a_minute": 0}, "requests_a_minute", "greater than or equal to 1"),
        ({"name": "x", "requests_a_minute": 1.5}, "requests_a_minute", "integer"),
        ({"name": "x", "tokens_a_day": "many"}, "tokens_a_day", "integer"),
        ({"name": "x", "cost_a_day": 0}, "cost_a_day", "greater than 0"),
        ({"name": "x", "expires": 1e300}, "expires", "less than"),
        ({"name": "x", "expires": -1}, "expires", "greater than"),
    ],
)
def test_a_key_that_cannot_be_made_says_what_is_wrong(http: httpx.Client, body: Json, param: str, words: str) -> None:
    error = refusal(http.post("/bench/keys", json=body), 400)
    assert error["param"] == param
    assert words in error["message"]


# Limits


@pytest.mark.parametrize("format", ASKED)
def test_too_many_requests_are_a_429_in_the_format_s_own_shape(anyone: httpx.Client, make: Make, format: str) -> None:
    key = make(requests_a_minute=1)
    path, body = ASKED[format]
    # Of three, two may fall into two minutes.
    answers = [anyone.post(path, json=body, headers=bearer(key)) for _ in range(3)]
    assert answers[0].status_code == 200, answers[0].text
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert "this key may send 1 request a minute" in message_of(refused[0], format)
    assert 1 <= int(refused[0].headers["retry-after"]) <= 60


def test_looking_things_up_is_not_counted(anyone: httpx.Client, make: Make) -> None:
    key = make(requests_a_minute=1)
    for _ in range(5):
        assert anyone.get("/bench/record", headers=bearer(key)).status_code == 200


async def test_of_ten_at_once_on_a_budget_for_one_one_is_admitted(proxy: Proxy, models: Upstream, make: Make) -> None:
    made: Any = make(whole=True, tokens_a_day=5)
    async with httpx.AsyncClient(
        base_url=proxy.url, headers=bearer(made["key"]), trust_env=False, timeout=60
    ) as caller:
        asking = [asyncio.create_task(caller.post(CHAT, json=question("bench/one-gate"))) for _ in range(10)]
        refused: list[httpx.Response] = []
        for done in asyncio.as_completed(asking):
            refused.append(await done)
            if len(refused) == 9:
                break
        for response in refused:
            error = refusal(response, 429)
            assert "under way may use up what is left of its tokens a day" in error["message"]
            assert response.headers["retry-after"] == "1"
        assert len(models.calls("gate-a")) == 1
        models.release("gate-a")
        (last,) = [
            task.result()
            for task in await asyncio.gather(*asking, return_exceptions=True) and asking
            if task.result().status_code == 200
        ]
        assert statuses(last.json()["bench"]) == {"gate-a": "ok"}
        spent = refusal(await caller.post(CHAT, json=question("bench/one-gate")), 429)
        assert "used up its tokens a day" in spent["message"]
        assert "the day ends at 00:00 UTC" in spent["message"]


@pytest.mark.parametrize("model", ["bench/pair", "bench/routed"])
def test_a_budget_that_is_used_up_is_said_so(anyone: httpx.Client, http: httpx.Client, make: Make, model: str) -> None:
    made: Any = make(whole=True, tokens_a_day=1)
    assert ask(anyone, model, headers=bearer(made["key"])).status_code == 200
    response = ask(anyone, model, headers=bearer(made["key"]))
    error = refusal(response, 429)
    assert "used up its tokens a day" in error["message"]
    # Clients that ask again by themselves are told not to.
    assert response.headers["x-should-retry"] == "false"
    (listed,) = [key for key in http.get("/bench/keys").json()["keys"] if key["id"] == made["id"]]
    assert f"({listed['today']['tokens']} of 1)" in error["message"]
    assert listed["today"]["tokens"] > 1


def test_one_request_after_the_other_is_let_in_as_long_as_the_budget_lasts(anyone: httpx.Client, make: Make) -> None:
    """What the one before has set aside is let go when the next one comes at once."""
    key = make(tokens_a_day=100)
    answers = [ask(anyone, "bench/solo", headers=bearer(key), max_tokens=1000) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 200]


# What its requests use, where no server says it


USED = {"ok": 15, "silent": size([{"role": "user", "content": "Who are you?"}], {}).tokens}
"""Tokens: as a model's server reports them, and the prompt of one that says nothing of it."""


def used_today(http: httpx.Client, id: str) -> int:
    return next(int(key["today"]["tokens"]) for key in http.get("/bench/keys").json()["keys"] if key["id"] == id)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("model", "seats"), [("bench/cancelled", 2), ("bench/route-gate-route", 1)])
def test_a_caller_who_hangs_up_pays_for_what_was_asked(
    proxy: Proxy, http: httpx.Client, models: Upstream, make: Make, model: str, seats: int, stream: bool
) -> None:
    made: Any = make(whole=True)
    body = json.dumps(question(model, stream=stream)).encode()
    with closing(connect(proxy.url)) as leaving:
        leaving.sendall(request_bytes(body, key=made["key"]))
        models.wait_for(lambda calls: len(calls) == seats)
    assert eventually(lambda: used_today(http, made["id"])) == seats * USED["silent"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_reports_no_usage_is_paid_for_by_an_estimate(
    anyone: httpx.Client, http: httpx.Client, make: Make, stream: bool
) -> None:
    made: Any = make(whole=True)
    assert ask(anyone, "bench/metered", headers=bearer(made["key"]), stream=stream).status_code == 200
    estimated = USED["silent"] + written("I am usageless-a.", 0)
    assert used_today(http, made["id"]) == 920 + USED["ok"] + estimated


def test_late_seats_count_when_they_end_and_hold_their_budget_until_then(
    anyone: httpx.Client, http: httpx.Client, models: Upstream, make: Make
) -> None:
    made: Any = make(whole=True, tokens_a_day=100)
    late = ask(anyone, "bench/slow", headers=bearer(made["key"])).json()["bench"]
    assert statuses(late) == {"ok-a": "ok", "gate-d": "late"}
    assert "under way" in refusal(ask(anyone, "bench/solo", headers=bearer(made["key"])), 429)["message"]
    assert used_today(http, made["id"]) == USED["ok"]
    models.release("gate-d")
    assert eventually(lambda: ask(anyone, "bench/solo", headers=bearer(made["key"])).status_code == 200)
    assert used_today(http, made["id"]) == 3 * USED["ok"]


# What it sees


def test_a_key_sees_its_own_collections_alone(anyone: httpx.Client, make: Make) -> None:
    headers = bearer(make(collections=["solo", "bench/pair"]))
    named = {entry["name"] for entry in anyone.get("/bench/collections", headers=headers).json()["collections"]}
    assert named == {"solo", "pair"}
    listed = {entry["id"].partition(":")[0] for entry in anyone.get("/v1/models", headers=headers).json()["data"]}
    assert listed == {"bench/solo", "bench/pair"}
    tags = {entry["name"].partition(":")[0] for entry in anyone.get("/api/tags", headers=headers).json()["models"]}
    assert tags == listed
    google = anyone.get("/v1beta/models", headers=headers).json()["models"]
    assert {entry["name"].partition(":")[0] for entry in google} == {f"models/{name}" for name in listed}
    assert anyone.get("/bench/models", headers=headers).json() == {"models": []}
    refusal(anyone.get("/bench/collections/trio", headers=headers), 404)
    refusal(anyone.get("/v1/models/bench/trio", headers=headers), 404)
    assert anyone.get("/v1/models/bench/solo", headers=headers).json()["id"] == "bench/solo"


def test_a_key_sees_what_it_asked_itself_alone(anyone: httpx.Client, http: httpx.Client, make: Make) -> None:
    mine, other = bearer(make()), bearer(make())
    data = ask(anyone, "bench/pair", headers=mine).json()["bench"]
    turn = ask(anyone, "bench/routed", headers=mine).json()["bench"]
    said = {"call": data["seats"][0]["call"], "useful": True}
    refusal(anyone.get(f"/bench/panels/{data['panel']}", headers=other), 404)
    refusal(anyone.get(f"/bench/conversations/{turn['conversation']}", headers=other), 404)
    refusal(anyone.post("/bench/verdict", json=said, headers=other), 404)
    assert anyone.get("/bench/panels", headers=other).json()["panels"] == []
    assert anyone.get("/bench/record", headers=other).json()["models"] == []

    assert anyone.get(f"/bench/panels/{data['panel']}", headers=mine).json()["panel"] == data["panel"]
    assert anyone.get(f"/bench/conversations/{turn['conversation']}", headers=mine).status_code == 200
    assert anyone.post("/bench/verdict", json=said, headers=mine).json()["recorded"] is True
    record = anyone.get("/bench/record?collection=pair", headers=mine).json()
    assert {line["alias"] for line in record["models"]} == {"ok-a", "ok-b"}
    assert http.get(f"/bench/panels/{data['panel']}").json()["panel"] == data["panel"]


def test_two_keys_never_share_a_conversation(anyone: httpx.Client, make: Make) -> None:
    mine, other = (ask(anyone, "bench/routed", headers=bearer(make())).json()["bench"] for _ in range(2))
    assert mine["conversation"] != other["conversation"]


@pytest.mark.parametrize("given", [{}, {"collections": None}])
def test_a_key_for_all_collections_is_told_as_one(anyone: httpx.Client, make: Make, given: Json) -> None:
    told: Any = make(whole=True, **given)
    assert told["collections"] is None
    assert ask(anyone, "bench/solo", headers=bearer(told["key"])).status_code == 200


def test_the_list_has_all_of_a_key_but_the_key(http: httpx.Client, anyone: httpx.Client, make: Make) -> None:
    told: Any = make(
        whole=True, name="Änn", collections=["pair"], requests_a_minute=60, tokens_a_day=10**6, cost_a_day=0.5
    )
    key = told.pop("key")
    assert (told["name"], told["last_four"], told["collections"]) == ("Änn", key[-4:], ["pair"])
    assert (told["requests_a_minute"], told["tokens_a_day"], told["cost_a_day"]) == (60, 10**6, 0.5)
    assert (told["expires"], told["revoked"], told["last_used"]) == (None, None, None)
    assert ask(anyone, "bench/pair", headers=bearer(key)).status_code == 200
    response = http.get("/bench/keys?limit=1")
    (listed,) = response.json()["keys"]
    assert key not in response.text
    assert listed == {**told, "last_used": listed["last_used"], "today": listed["today"]}
    assert listed["last_used"] >= told["created"]
    assert listed["today"]["tokens"] > 0
    following = http.get("/bench/keys", params={"limit": 1, "cursor": response.json()["next"]}).json()
    assert following["keys"][0]["id"] != listed["id"]


# Where it is sent


@pytest.mark.parametrize("header", ["x-api-key", "x-goog-api-key", "api-key", "X-LiteLLM-API-Key"])
def test_a_key_may_come_in_any_vendors_header(anyone: httpx.Client, make: Make, header: str) -> None:
    assert ask(anyone, "bench/solo", headers={header: make()}).status_code == 200


def test_the_first_one_that_was_sent_is_judged(anyone: httpx.Client, models: Upstream, make: Make) -> None:
    good, wrong = make(), new_key()
    # A right one behind a wrong one helps nobody in, whose ever it is.
    for second in (good, MASTER_KEY):
        refusal(ask(anyone, "bench/solo", headers={**bearer(wrong), "x-api-key": second}), 401)
    refusal(ask(anyone, "bench/solo", headers={**bearer("sk-wrong"), "x-api-key": good}), 401)
    assert models.calls() == []
    for first in (bearer(good), bearer(MASTER_KEY)):
        assert ask(anyone, "bench/solo", headers={**first, "x-api-key": wrong}).status_code == 200
    # A password for another server on the way is no key.
    assert ask(anyone, "bench/solo", headers={"Authorization": "Basic eDp5", "x-api-key": good}).status_code == 200


def test_on_googles_paths_the_key_may_stand_in_the_address(anyone: httpx.Client, make: Make) -> None:
    key, path = make(), "/v1beta/models/bench/solo:generateContent"
    assert anyone.post(f"{path}?key={key}", json=GEMINI_BODY).status_code == 200
    assert anyone.post(f"{path}?alt=json&key=%62{key[1:]}&x=1", json=GEMINI_BODY).status_code == 200
    streamed = anyone.post(f"/v1beta/models/bench/solo:streamGenerateContent?key={key}&alt=sse", json=GEMINI_BODY)
    assert streamed.text.startswith("data: ")
    assert "models/bench/solo" in anyone.get(f"/v1beta/models?key={key}").text
    assert anyone.post(f"{path}?key={new_key()}", json=GEMINI_BODY).status_code == 401
    refusal(anyone.post(f"{CHAT}?key={key}", json=question("bench/solo")), 401)


def test_a_key_is_in_no_log_and_in_no_ledger(proxy: Proxy, anyone: httpx.Client, models: Upstream, make: Make) -> None:
    good, wrong = make(), new_key()
    for key in (good, wrong):
        for path, body in ASKED.values():
            anyone.post(path, json=body, headers=bearer(key))
            anyone.post(f"{path}?key={key}", json={**body, "model": "ok-a"}, headers={"x-api-key": key})
        for path in (*LOOKED_UP, "/v1/models/ok-a", "/model/info", "/nowhere"):
            anyone.get(f"{path}?key={key}", headers={"x-api-key": key})
        anyone.get(f"/v1beta/models?key=%62{key[1:]}")
        anyone.get(f"/v1beta/models?api_key={key}")
        anyone.delete(f"/bench/keys/{key}")
        anyone.get(f"/bench/panels/{key[:4]}%{ord(key[4]):x}{key[5:]}")
    files = [proxy.log_path, *proxy.directory.glob("bench.db*")]
    assert len(files) >= 2
    for file in files:
        content = file.read_bytes()
        for key in (good, wrong):
            assert key[4:-4].encode() not in content, file
    for call in models.calls():
        assert "bpk_" not in str(call.headers)


def test_without_a_master_key_a_bench_key_is_still_judged(keyless: Proxy, models: Upstream) -> None:
    with keyless.client() as anybody:
        made = anybody.post("/bench/keys", json={"name": "ann", "collections": ["pair"]}).json()
        assert ask(anybody, "bench/pair", headers=bearer(made["key"])).status_code == 200
        refusal(ask(anybody, "bench/gated", headers=bearer(made["key"])), 404)
        refusal(ask(anybody, "bench/pair", headers=bearer(new_key())), 401)
        refusal(anybody.get("/bench/keys", headers=bearer(made["key"])), 403)
        listed = anybody.get("/v1/models", headers=bearer(made["key"])).json()["data"]
        assert {entry["id"].partition(":")[0] for entry in listed} == {"bench/pair"}


# The vendors' own libraries


def test_openais_library(proxy: Proxy, models: Upstream, make: Make) -> None:
    client = httpx.Client(trust_env=False)
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=make(collections=["pair"]), http_client=client) as sdk:
        asked = sdk.chat.completions.create(model="bench/pair", messages=[{"role": "user", "content": "Who?"}])
        assert "I am ok-a." in (asked.choices[0].message.content or "")
        assert "I am ok-b." in sdk.responses.create(model="bench/pair", input="Who?").output_text
        assert "I am ok-a." in sdk.completions.create(model="bench/pair", prompt="Who?").choices[0].text
        assert {model.id for model in sdk.models.list()} >= {"bench/pair", "bench/pair:route"}
        with pytest.raises(openai.NotFoundError):
            sdk.chat.completions.create(model="bench/trio", messages=[{"role": "user", "content": "Who?"}])
        with pytest.raises(openai.AuthenticationError, match="bench key is not known"):
            sdk.with_options(api_key=new_key()).responses.create(model="bench/pair", input="Who?")


def test_anthropics_library(proxy: Proxy, models: Upstream, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with anthropic.Anthropic(base_url=proxy.url, api_key=make(collections=["pair"])) as sdk:
        asked: Any = {"max_tokens": 50, "messages": [USER]}
        assert "I am ok-a." in str(sdk.messages.create(model="bench/pair", **asked).content)
        with sdk.messages.stream(model="bench/pair", **asked) as stream:
            assert "I am ok-b." in stream.get_final_text()
        assert sdk.messages.count_tokens(model="bench/pair", messages=asked["messages"]).input_tokens > 0
        assert "bench/pair" in {model.id for model in sdk.models.list()}
        with pytest.raises(anthropic.NotFoundError):
            sdk.messages.create(model="bench/trio", **asked)
        with pytest.raises(anthropic.AuthenticationError, match="bench key is not known"):
            sdk.with_options(api_key=new_key()).messages.create(model="bench/pair", **asked)


def test_googles_library(proxy: Proxy, models: Upstream, make: Make) -> None:
    options = types.HttpOptions(
        base_url=proxy.url,
        client_args={"trust_env": False},
        async_client_args={"trust_env": False},
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    with genai.Client(api_key=make(collections=["pair"]), http_options=options) as sdk:
        assert "I am ok-a." in (sdk.models.generate_content(model="bench/pair", contents="Who?").text or "")
        assert "models/bench/pair" in {model.name for model in sdk.models.list()}
        with pytest.raises(errors.ClientError) as refused:
            sdk.models.generate_content(model="bench/trio", contents="Who?")
        assert refused.value.code == 404
    with genai.Client(api_key=new_key(), http_options=options) as sdk, pytest.raises(errors.ClientError) as refused:
        sdk.models.generate_content(model="bench/pair", contents="Who?")
    assert (refused.value.code, refused.value.status) == (401, "UNAUTHENTICATED")


def test_ollamas_library(proxy: Proxy, models: Upstream, make: Make) -> None:
    with ollama.Client(host=proxy.url, headers=bearer(make(collections=["pair"])), trust_env=False) as sdk:
        assert "I am ok-a." in (sdk.chat(model="bench/pair", messages=[USER]).message.content or "")
        assert {model.model for model in sdk.list().models} >= {"bench/pair"}
        with pytest.raises(ollama.ResponseError) as refused:
            sdk.chat(model="bench/trio", messages=[USER])
        assert refused.value.status_code == 404
    with ollama.Client(host=proxy.url, headers=bearer(new_key()), trust_env=False) as sdk:
        with pytest.raises(ollama.ResponseError, match="bench key is not known") as refused:
            sdk.list()
        assert refused.value.status_code == 401


# The command


@pytest.fixture
def here(proxy: Proxy, models: Upstream) -> dict[str, str]:
    return {"BENCH_URL": proxy.url, "BENCH_KEY": MASTER_KEY}


def test_the_command_says_what_the_proxy_refuses(here: dict[str, str], tmp_path: Any, make: Make) -> None:
    mine = here | {"BENCH_KEY": make()}
    for command in (("create", "x"), ("list",), ("revoke", "k1")):
        assert "403" in failed(run(tmp_path, "key", *command, **mine))
    assert "there is no collection" in failed(run(tmp_path, "key", "create", "x", "--collection", "pear", **here))
    for option in ("--days", "--cost-a-day"):
        assert "no number to count with" in failed(run(tmp_path, "key", "create", "x", option, "nan", **here))
    unknown = failed(run(tmp_path, "key", "revoke", "k20261130-000000-aaaaaaaaaaaaaaaa", **here))
    assert "404" in unknown
    assert "bench-proxy key list" in unknown
    assert "is no id" in failed(run(tmp_path, "key", "revoke", "../panels", **here))


def test_the_command_makes_lists_and_revokes(here: dict[str, str], tmp_path: Any, anyone: httpx.Client) -> None:
    limits = ("--collection", "pair", "--requests-a-minute", "60", "--cost-a-day", "2.5", "--days", "30")
    made = run(tmp_path, "key", "create", "ann's laptop", *limits, **here)
    key = succeeded(made).strip()
    assert ask(anyone, "bench/pair", headers=bearer(key)).status_code == 200
    listed = succeeded(run(tmp_path, "key", "list", **here))
    (line,) = [line for line in listed.splitlines() if "ann's laptop" in line and key[-4:] in line]
    assert "pair; 60 requests a minute; " in line
    assert " of 2.5 dollars today; expires " in line
    assert key not in listed
    id = line.split()[0]
    assert made.stderr.startswith(id)
    assert succeeded(run(tmp_path, "key", "revoke", id, **here)) == f"{id} (ann's laptop): revoked\n"
    eventually(lambda: ask(anyone, "bench/pair", headers=bearer(key)).status_code == 401)

"""`GET /bench/conversations` and what a verdict may say of them; the record and the metrics count their turns."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench_proxy.bench import Bench, Caller
from bench_proxy.http import routes
from bench_proxy.ids import conversation_id
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.route.keeping import Failed, TurnReport
from bench_proxy.upstream import Reply
from tests.doubles import Models, Table

Json = dict[str, Any]


async def nobody(_: Any) -> list[str]:
    return []


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Table]:
    ledger = await SqlLedger.open(f"sqlite:///{tmp_path / 'bench.db'}", lambda: "full")
    yield Table(Models(), members=["ann", "ben"], ledger=ledger)  # type: ignore[arg-type]
    await ledger.close()


@pytest.fixture
async def http(table: Table) -> AsyncIterator[httpx.AsyncClient]:
    async def authenticate(scope: Any, receive: Any, body: Any) -> Caller:
        key = dict(scope["headers"]).get(b"x-key", b"me").decode()
        return Caller(key, admin=key == "admin", allowed=nobody)

    def bench() -> Bench:
        return table.bench

    app = routes.build(bench, authenticate, lambda _: {})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bench") as client:
        yield client


async def take(table: Table, *aliases: str, owner: str = "me", over: tuple[str, ...] = (), **more: Any) -> str:
    """A conversation of as many turns, each of which another model answered; its id."""
    name = conversation_id()
    for n, alias in enumerate(aliases, 1):
        report = TurnReport(
            **{
                "conversation": name,
                "sticky": "0" * 64,
                "sticky_by": "header",
                "collection": "core",
                "model": "bench/core:route",
                "shape": "code",
                "turn": n,
                "at_ms": 1_772_366_400_000 + n,
                "status": "ok",
                "seconds": 1.0,
                "call": f"{name}.{n}",
                "number": n,
                "alias": alias,
                "reply": Reply(f"I am {alias}.", "stop", 10, 5, 0.25),
                "failed_over": [Failed(a, 500, "server_error", "down") for a in over],
                **more,
            }
        )
        await table.ledger.took(report, owner)
    return name


async def read(http: httpx.AsyncClient, path: str, status: int = 200, key: str = "me", **params: Any) -> Json:
    response = await http.get(path, params=params, headers={"x-key": key})
    assert response.status_code == status, response.text
    body: Json = response.json()
    return body


async def say(http: httpx.AsyncClient, status: int = 200, key: str = "me", **said: Any) -> Json:
    response = await http.post("/bench/verdict", json=said, headers={"x-key": key})
    assert response.status_code == status, response.text
    body: Json = response.json()
    return body


@pytest.mark.parametrize("name", ["r20260301-120005-abcdefghijklmnop", "nothing", "r' OR '1'='1", "%00", "ü"])
async def test_a_conversation_that_does_not_exist_is_404(http: httpx.AsyncClient, name: str) -> None:
    error = (await read(http, f"/bench/conversations/{name}", 404))["error"]
    assert (error["param"], error["type"]) == ("conversation", "invalid_request_error")


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 201}, {"limit": "x"}, {"cursor": "x"}, {"cursor": "x" * 200}]
)
async def test_a_list_that_cannot_be_is_refused_by_its_place(http: httpx.AsyncClient, params: Json) -> None:
    error = (await read(http, "/bench/conversations", 400, **params))["error"]
    assert error["param"] == next(iter(params))


async def test_what_is_another_keys_is_404_and_in_no_list_but_an_admins(http: httpx.AsyncClient, table: Table) -> None:
    name = await take(table, "ann", owner="you")
    path = f"/bench/conversations/{name}"
    await read(http, path, 404)
    assert (await read(http, "/bench/conversations"))["conversations"] == []
    for key in ("you", "admin"):
        assert (await read(http, path, key=key))["conversation"] == name
        (listed,) = (await read(http, "/bench/conversations", key=key))["conversations"]
        assert listed["conversation"] == name
    for call in (name, f"{name}.1"):
        assert (await say(http, 404, call=call, useful=True))["error"]["param"] == "call"


async def test_a_conversation_has_its_calls_and_every_turn(http: httpx.AsyncClient, table: Table) -> None:
    name = await take(table, "ann", "ben", over=("cat",))
    shown = await read(http, f"/bench/conversations/{name}")
    assert (shown["alias"], shown["turns"], shown["collection"]) == ("ben", 2, "bench/core")
    assert [(call["call"], call["alias"], call["answer"]) for call in shown["calls"]] == [
        (f"{name}.1", "ann", "I am ann."),
        (f"{name}.2", "ben", "I am ben."),
    ]
    assert [(turn["turn"], turn["alias"]) for turn in shown["history"]] == [(1, "ann"), (2, "ben")]
    error = {"status": 500, "type": "server_error", "message": "down"}
    assert shown["history"][0]["failed_over"] == [{"alias": "cat", "error": error}]


async def test_a_list_is_paged_and_has_no_answers(http: httpx.AsyncClient, table: Table) -> None:
    names = [await take(table, "ann", at_ms=n) for n in range(3)]
    await take(table, "ann", at_ms=9, collection="other")
    first = await read(http, "/bench/conversations", limit=2, collection="bench/core")
    rest = await read(http, "/bench/conversations", limit=2, collection="core", cursor=first["next"])
    listed = first["conversations"] + rest["conversations"]
    assert [each["conversation"] for each in listed] == names[::-1]
    assert rest["next"] is None
    assert "I am" not in json.dumps(listed)
    assert "history" not in listed[0]


async def test_a_verdict_on_a_conversation_is_one_on_its_only_call(http: httpx.AsyncClient, table: Table) -> None:
    name = await take(table, "ann")
    said = await say(http, call=name, useful=True, real=["it leaks"])
    assert (said["recorded"], said["alias"]) == (True, "ann")
    assert (await say(http, call=f"{name}.1", useful=True, real=["it leaks"]))["recorded"] is False
    (call,) = (await read(http, f"/bench/conversations/{name}"))["calls"]
    assert call["verdict"]["useful"] is True
    assert not call["owed"]


async def test_a_verdict_on_a_conversation_of_several_models_is_refused_with_their_calls(
    http: httpx.AsyncClient, table: Table
) -> None:
    name = await take(table, "ann", "ben")
    error = (await say(http, 400, call=name, useful=True))["error"]
    assert error["param"] == "call"
    for call in (f"{name}.1 (ann)", f"{name}.2 (ben)"):
        assert call in error["message"]


async def test_a_pick_on_a_conversation_is_refused_in_words(http: httpx.AsyncClient, table: Table) -> None:
    name = await take(table, "ann", "ben")
    error = (await say(http, 400, panel=name, best=f"{name}.1"))["error"]
    assert error["param"] == "panel"
    assert "verdict" in error["message"]
    assert (await say(http, 404, key="you", panel=name, best=f"{name}.1"))["error"]["param"] == "panel"


async def test_the_record_has_the_claims(http: httpx.AsyncClient, table: Table) -> None:
    name = await take(table, "ann")
    await say(http, call=name, useful=True, real=["a", "b"], false=["c"])
    (line,) = (await read(http, "/bench/record"))["models"]
    assert (line["useful"], line["claims_held"], line["claims_failed"]) == (1, 2, 1)
    await say(http, call=name, useful=None)
    (line,) = (await read(http, "/bench/record"))["models"]
    assert (line["useful"], line["claims_held"], line["claims_failed"]) == (0, 0, 0)


async def test_turns_and_failovers_are_counted_by_collection_and_model(http: httpx.AsyncClient, table: Table) -> None:
    await take(table, "ann", "ann", over=("ben", "someone"))
    text = (await http.get("/bench/metrics", headers={"x-key": "admin"})).text
    for line in (
        'bench_turns_total{alias="ann",collection="core"} 2.0',
        'bench_turns_total{alias="ben",collection="core"} 0.0',
        'bench_failovers_total{alias="ben",collection="core"} 2.0',
        'bench_failovers_total{alias="other",collection="core"} 2.0',
        'bench_seats_total{alias="ben",collection="core",outcome="failed"} 2.0',
    ):
        assert line in text.splitlines()


async def test_the_schema_and_the_list_of_routes_name_them(http: httpx.AsyncClient) -> None:
    paths = (await read(http, "/bench/openapi.json"))["paths"]
    assert {"/bench/conversations", "/bench/conversations/{conversation}"} <= set(paths)
    assert "conversations" in (await read(http, "/bench/nothing", 404))["error"]["message"]

"""`POST /bench/verdict` takes a verdict or a pick, and `GET /bench/record` has the ratings that follow."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench_proxy.bench import Bench, Caller
from bench_proxy.http import routes
from bench_proxy.ledger.store import SqlLedger
from tests.doubles import Models, Table, fails

Json = dict[str, Any]


async def nobody(_: Any) -> list[str]:
    return []


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Table]:
    ledger = await SqlLedger.open(f"sqlite:///{tmp_path / 'bench.db'}", lambda: "full")
    models = Models(ann=["Yes."], ben=["No."], cat=[fails(500)])
    yield Table(models, members=["ann", "ben", "cat"], ledger=ledger)  # type: ignore[arg-type]
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


async def say(http: httpx.AsyncClient, status: int = 200, key: str = "me", **said: Any) -> Json:
    headers = {"x-key": key, "content-type": "application/json"}
    # Not by the client, which does not send the half of a character that one test needs.
    response = await http.post("/bench/verdict", content=json.dumps(said), headers=headers)
    assert response.status_code == status, response.text
    body: Json = response.json()
    return body


async def refused(http: httpx.AsyncClient, status: int, **said: Any) -> Json:
    error: Json = (await say(http, status, **said))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_a_pick(http: httpx.AsyncClient, table: Table) -> None:
    panel, _ = await table.ask()
    best = f"{panel.id}.member2"
    said = await say(http, panel=panel.id, best=best, note="short", by="eve")
    assert said == {
        "panel": panel.id,
        "best": best,
        "note": "short",
        "by": "eve",
        "recorded": True,
        "alias": "ben",
        "over": [{"call": f"{panel.id}.member1", "alias": "ann"}],
    }
    assert (await say(http, panel=panel.id, best=best, note="short", by="eve"))["recorded"] is False
    shown = (await http.get(f"/bench/panels/{panel.id}")).json()
    assert shown["best"] == best
    assert [seat["owed"] for seat in shown["seats"]] == [False, False, False]


async def test_a_pick_is_withdrawn(http: httpx.AsyncClient, table: Table) -> None:
    panel, _ = await table.ask()
    calls = [f"{panel.id}.member1", f"{panel.id}.member2"]
    await say(http, panel=panel.id, best=calls[0])
    said = await say(http, panel=panel.id, best=None)
    assert (said["recorded"], said["alias"], said["over"]) == (True, None, [])
    assert (await http.post("/bench/pending", json={"calls": calls})).json() == {"owed": calls}
    assert (await say(http, panel=panel.id, best=None))["recorded"] is False


async def test_a_verdict_is_taken_as_before(http: httpx.AsyncClient, table: Table) -> None:
    panel, _ = await table.ask()
    call = f"{panel.id}.member1"
    said = await say(http, call=call, useful=True, real=["it leaks"])
    assert (said["call"], said["recorded"], said["alias"]) == (call, True, "ann")
    assert said["verdict"] == {"useful": True, "note": "", "real": ["it leaks"], "false": [], "by": ""}


async def test_a_blind_panel_is_revealed_by_its_pick(http: httpx.AsyncClient, table: Table) -> None:
    panel, report = await table.ask(blind=True)
    best = next(a.seat for a in report.answers if a.seat.alias == "ben")
    before = (await http.get(f"/bench/panels/{panel.id}")).text
    assert "ann" not in before
    assert "ben" not in before.replace("bench", "")
    assert (await say(http, call=best.call, useful=None))["alias"] == best.mask
    said = await say(http, panel=panel.id, best=best.call)
    assert (said["alias"], [of["alias"] for of in said["over"]]) == ("ben", ["ann"])
    shown = (await http.get(f"/bench/panels/{panel.id}")).json()
    assert {seat["alias"] for seat in shown["seats"]} == {"ann", "ben", "cat"}
    assert {seat["seat"] for seat in shown["seats"]} == {"member"}


async def test_what_cannot_be_picked(http: httpx.AsyncClient, table: Table) -> None:
    panel, _ = await table.ask()
    other, _ = await table.ask()
    best = f"{panel.id}.member1"
    unknown = "p20260301-120005-abcdefghijklmnop"
    assert (await refused(http, 404, panel=unknown, best=best))["param"] == "panel"
    assert (await refused(http, 404, panel=panel.id, best=f"{panel.id}.member9"))["param"] == "best"
    assert "another panel" in (await refused(http, 400, panel=panel.id, best=f"{other.id}.member1"))["message"]
    assert "did not answer" in (await refused(http, 400, panel=panel.id, best=f"{panel.id}.member3"))["message"]
    assert (await refused(http, 404, key="you", panel=panel.id, best=best))["param"] == "panel"
    assert (await say(http, key="admin", panel=panel.id, best=best))["alias"] == "ann"


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ({}, "call"),
        ({"call": "x"}, "useful"),
        ({"call": "x", "useful": "yes"}, "useful"),
        ({"call": "x", "useful": True, "usefull": 1}, "usefull"),
        ({"panel": "p"}, "best"),
        ({"best": "p.member1"}, "panel"),
        ({"panel": "p", "best": 1}, "best"),
        ({"panel": "p", "best": "p.member1", "useful": True}, "useful"),
        ({"panel": "p", "best": "p.member1", "call": "x"}, "call"),
        ({"panel": "p\0", "best": None}, "panel"),
        ({"panel": "p", "best": None, "note": "\0"}, "note"),
        ({"call": "x\0", "useful": True}, "call"),
        ({"call": "x", "useful": True, "real": ["\0"]}, "real.0"),
        ({"call": "x", "useful": True, "note": "\ud800"}, "note"),
    ],
)
async def test_what_is_no_verdict_is_refused_by_its_place(http: httpx.AsyncClient, said: Json, place: str) -> None:
    assert (await refused(http, 400, **said))["param"] == place


@pytest.mark.parametrize("body", [b"[]", b"null", b'"panel"', b"{", b""])
async def test_what_is_no_object_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    response = await http.post("/bench/verdict", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert "object" in response.json()["error"]["message"]


async def test_the_record_has_ratings_where_panels_were_judged(http: httpx.AsyncClient, table: Table) -> None:
    for _ in range(4):
        panel, _ = await table.ask()
        await say(http, panel=panel.id, best=f"{panel.id}.member2")
    ann, ben, cat = (await http.get("/bench/record")).json()["models"]
    assert (ben["preferred"], ben["not_preferred"], ben["useful"], ben["owed"]) == (4, 0, 4, 0)
    assert (ann["preferred"], ann["not_preferred"], ann["not_useful"], ann["owed"]) == (0, 4, 0, 0)
    assert ben["rating"] == -ann["rating"] > 100
    assert ann["rating_95"][0] < ann["rating"] < ann["rating_95"][1]
    assert (ann["compared"], ben["compared"]) == (4, 4)
    assert (cat["rating"], cat["rating_95"], cat["compared"]) == (None, None, 0)
    for of, compared in (("core", 4), ("bench/core", 4), ("other", None)):
        models = (await http.get("/bench/record", params={"collection": of})).json()["models"]
        assert [m["compared"] for m in models if m["alias"] == "ann"] == ([] if compared is None else [compared])


async def test_verdicts_that_differ_within_a_panel_are_comparisons(http: httpx.AsyncClient, table: Table) -> None:
    panel, _ = await table.ask()
    await say(http, call=f"{panel.id}.member1", useful=True)
    assert [m["compared"] for m in (await http.get("/bench/record")).json()["models"]] == [0, 0, 0]
    await say(http, call=f"{panel.id}.member2", useful=False)
    assert [m["compared"] for m in (await http.get("/bench/record")).json()["models"]] == [1, 1, 0]
    await say(http, call=f"{panel.id}.member2", useful=None)
    assert [m["compared"] for m in (await http.get("/bench/record")).json()["models"]] == [0, 0, 0]


async def test_another_key_sees_no_ratings_of_what_it_did_not_judge(http: httpx.AsyncClient, table: Table) -> None:
    panel, _ = await table.ask()
    await say(http, panel=panel.id, best=f"{panel.id}.member2")
    response = await http.get("/bench/record", headers={"x-key": "you"})
    assert response.json()["models"] == []


async def test_the_schema_names_both_bodies(http: httpx.AsyncClient) -> None:
    schema = (await http.get("/bench/openapi.json")).json()
    body = schema["paths"]["/bench/verdict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {of["$ref"].rpartition("/")[2] for of in body["oneOf"]} == {"GivenVerdict", "GivenPick"}


async def test_a_fault_of_ours_is_an_error_in_openais_shape(table: Table) -> None:
    async def authenticate(scope: Any, receive: Any, body: Any) -> Caller:
        raise RuntimeError("nobody expected this")

    app = routes.build(lambda: table.bench, authenticate, lambda _: {})
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://bench") as client:
        response = await client.get("/bench/panels")
    assert response.status_code == 500
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "nobody expected this" not in error["message"]

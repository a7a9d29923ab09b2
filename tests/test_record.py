"""Verdicts, and what the record says of models, calls and panels."""

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.asking import (
    CHAT,
    Json,
    async_events,
    events,
    eventually,
    held,
    panel,
    question,
    refusal,
    request_bytes,
    send,
    statuses,
    text_of,
)
from tests.proxy import Proxy
from tests.upstream import Upstream

DEEP = 100_000


@pytest.fixture
def seats(http: httpx.Client, models: Upstream) -> list[Json]:
    """The seats of a panel that has just answered; one of them failed."""
    found: list[Json] = panel(http, "bench/partial")["bench"]["seats"]
    return found


def judge(caller: httpx.Client, call: str, useful: bool | None, **more: Any) -> Json:
    response = caller.post("/bench/verdict", json={"call": call, "useful": useful, **more})
    assert response.status_code == 200, response.text
    reply: Json = response.json()
    return reply


def owed(caller: httpx.Client, *calls: str) -> list[str]:
    response = caller.post("/bench/pending", json={"calls": list(calls)})
    assert response.status_code == 200, response.text
    found: list[str] = response.json()["owed"]
    return found


def line(caller: httpx.Client, alias: str, shape: str = "general", **where: str) -> Json:
    """The record of one model on one shape; zeros where there is none."""
    lines = caller.get("/bench/record", params=where).json()["models"]
    found = [entry for entry in lines if (entry["alias"], entry["shape"]) == (alias, shape)]
    return found[0] if found else dict.fromkeys(("seated", "answered", "failed", "useful", "not_useful", "owed"), 0)


def seat_of(caller: httpx.Client, call: str) -> Json:
    panel_id = call.partition(".")[0]
    (seat,) = [s for s in caller.get(f"/bench/panels/{panel_id}").json()["seats"] if s["call"] == call]
    found: Json = seat
    return found


# Verdicts that are refused.


@pytest.mark.parametrize("call", ["p20260101-000000-aaaaaaaaaaaaaaaa.member1", "nothing", "x' OR '1'='1", "ü", "%"])
def test_a_verdict_on_an_unknown_call_is_404(http: httpx.Client, call: str) -> None:
    error = refusal(http.post("/bench/verdict", json={"call": call, "useful": True}), 404)
    assert error["param"] == "call"
    assert call in error["message"]


def test_a_verdict_on_a_seat_that_failed_is_refused(http: httpx.Client, seats: list[Json]) -> None:
    failed = seats[1]["call"]
    error = refusal(http.post("/bench/verdict", json={"call": failed, "useful": True}), 400)
    assert "did not answer (error)" in error["message"]
    assert "verdict" not in seat_of(http, failed)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"5",
        b"[]",
        b'"call"',
        b"{}",
        b'{"call": "x"}',
        b'{"useful": true}',
        b'{"call": 5, "useful": true}',
        b'{"call": "", "useful": true}',
        b'{"call": "' + b"x" * 129 + b'", "useful": true}',
        b'{"call": "x", "useful": "yes"}',
        b'{"call": "x", "useful": 1}',
        b'{"call": "x", "useful": true, "note": 5}',
        b'{"call": "x", "useful": true, "note": null}',
        b'{"call": "x", "useful": true, "note": "' + b"x" * 10_001 + b'"}',
        b'{"call": "x", "useful": true, "real": "claim"}',
        b'{"call": "x", "useful": true, "false": [5]}',
        b'{"call": "x", "useful": true, "verdict": "good"}',
        b'{"call": "x\\u0000", "useful": true}',
        b'{"call": "x", "useful": true, "note": "\\ud800"}',
        b'{"call": "x", "useful": true, "note": "\xff"}',
        b"[" * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b'{"call": "x", "useful": true, "real": ' + b"[" * 900 + b"]" * 900 + b"}",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_a_verdict_that_is_none_is_a_400_in_shape(proxy: Proxy, body: bytes) -> None:
    reply = send(proxy.url, request_bytes(body, path="/bench/verdict"))
    assert reply.status == 400, reply.body[:500]
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert len(reply.body) < 2000


@pytest.mark.parametrize("chunk", [0, 65_536], ids=["with its length", "chunked"])
def test_a_huge_verdict_is_413(proxy: Proxy, chunk: int) -> None:
    body = json.dumps({"call": "x", "useful": True, "note": "x" * 6_000_000}).encode()
    reply = send(proxy.url, request_bytes(body, path="/bench/verdict", chunk=chunk))
    assert reply.status == 413
    assert reply.json()["error"]["message"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_verdict_that_is_not_said_to_be_json_is_refused(
    proxy: Proxy, http: httpx.Client, seats: list[Json], content_type: str | None
) -> None:
    call = seats[0]["call"]
    body = json.dumps({"call": call, "useful": True}).encode()
    reply = send(proxy.url, request_bytes(body, path="/bench/verdict", content_type=content_type))
    assert reply.status == 415
    assert "application/json" in reply.json()["error"]["message"]
    assert owed(http, call) == [call]


# Verdicts.


def test_a_verdict_is_recorded_once(http: httpx.Client, seats: list[Json]) -> None:
    call = seats[0]["call"]
    said = {"note": "right, 漢字 \u2028", "real": ["one", "two"], "false": ["three"], "by": "me"}
    before = line(http, "ok-a")
    reply = judge(http, call, True, **said)
    assert reply == {"call": call, "recorded": True, "alias": "ok-a", "verdict": {"useful": True, **said}}
    assert judge(http, call, True, **said)["recorded"] is False
    after = line(http, "ok-a")
    assert (after["useful"] - before["useful"], after["not_useful"] - before["not_useful"]) == (1, 0)
    assert after["owed"] == before["owed"] - 1
    shown = seat_of(http, call)["verdict"]
    assert {name: shown[name] for name in ("useful", *said)} == {"useful": True, **said}


def test_another_verdict_replaces_the_first_and_both_stay_in_the_history(
    http: httpx.Client, seats: list[Json], proxy: Proxy
) -> None:
    call = seats[0]["call"]
    before = line(http, "ok-a")
    judge(http, call, True, note="good")
    assert judge(http, call, False, note="on second thought")["recorded"] is True
    after = line(http, "ok-a")
    assert (after["useful"] - before["useful"], after["not_useful"] - before["not_useful"]) == (0, 1)
    assert seat_of(http, call)["verdict"]["note"] == "on second thought"
    with closing(sqlite3.connect(proxy.directory / "bench.db")) as ledger:
        history = ledger.execute("SELECT useful, note FROM verdicts WHERE call = ? ORDER BY id", (call,)).fetchall()
    assert history == [(1, "good"), (0, "on second thought")]


def test_a_verdict_can_be_withdrawn(http: httpx.Client, seats: list[Json]) -> None:
    call = seats[0]["call"]
    before = line(http, "ok-a")
    judge(http, call, False)
    assert owed(http, call) == []
    assert judge(http, call, None)["recorded"] is True
    assert owed(http, call) == [call]
    after = line(http, "ok-a")
    assert {n: after[n] for n in ("useful", "not_useful", "owed")} == {
        n: before[n] for n in ("useful", "not_useful", "owed")
    }
    assert judge(http, call, True)["recorded"] is True


async def test_a_verdict_in_the_instant_of_the_last_byte_finds_its_call(proxy: Proxy, models: Upstream) -> None:
    async with proxy.async_client() as caller:

        async def one() -> int:
            async with caller.stream("POST", CHAT, json=question("bench/trio", stream=True)) as response:
                async for event in async_events(response):
                    if isinstance(event, dict) and "bench" in event:
                        call = event["bench"]["seats"][2]["call"]
            return (await caller.post("/bench/verdict", json={"call": call, "useful": True})).status_code

        assert await asyncio.gather(*(one() for _ in range(40))) == [200] * 40


async def test_verdicts_on_one_call_at_once_are_counted_once(
    proxy: Proxy, http: httpx.Client, seats: list[Json]
) -> None:
    call = seats[0]["call"]
    before = line(http, "ok-a")
    async with proxy.async_client() as caller:
        saying = [caller.post("/bench/verdict", json={"call": call, "useful": True}) for _ in range(30)]
        replies = await asyncio.gather(*saying)
    assert [reply.json()["recorded"] for reply in replies].count(True) == 1
    assert line(http, "ok-a")["useful"] == before["useful"] + 1


# What is owed.


def test_answers_that_nobody_judged_are_owed(http: httpx.Client, seats: list[Json]) -> None:
    answered, failed = (seat["call"] for seat in seats)
    assert owed(http, failed, "nothing", answered, answered) == [answered]
    judge(http, answered, False)
    assert owed(http, failed, "nothing", answered) == []


@pytest.mark.parametrize("calls", [[], "x", [5], None, ["x"] * 1001, [""]])
def test_pending_takes_a_list_of_calls(http: httpx.Client, calls: Any) -> None:
    assert refusal(http.post("/bench/pending", json={"calls": calls}), 400)["param"].startswith("calls")


# The record.


def test_the_record_counts_what_became_of_each_seat(http: httpx.Client, models: Upstream) -> None:
    before = {alias: line(http, alias) for alias in ("ok-a", "fail500-a")}
    panel(http, "bench/partial")
    ok, failing = line(http, "ok-a"), line(http, "fail500-a")
    assert ok["seated"] == before["ok-a"]["seated"] + 1
    assert ok["answered"] == before["ok-a"]["answered"] + 1
    assert ok["owed"] == before["ok-a"]["owed"] + 1
    assert failing["failed"] == before["fail500-a"]["failed"] + 1
    assert (failing["answered"], failing["owed"]) == (0, 0)
    assert 0 <= ok["wilson_90"][0] <= ok["wilson_90"][1] <= 1


def test_the_record_of_a_collection_holds_only_its_own(http: httpx.Client, seats: list[Json]) -> None:
    judge(http, seats[0]["call"], True)
    for name in ("partial", "bench/partial"):
        assert line(http, "ok-a", collection=name)["useful"] >= 1
    assert line(http, "ok-a", collection="partial")["seated"] <= line(http, "ok-a")["seated"]
    assert http.get("/bench/record", params={"collection": "nothing"}).json()["models"] == []


def test_a_shape_has_a_line_of_its_own(http: httpx.Client, models: Upstream) -> None:
    panel(http, "bench/pair", bench={"shape": "design"})
    assert line(http, "ok-b", shape="design")["seated"] >= 1


# Panels.


def test_a_panel_says_what_was_asked_and_answered(http: httpx.Client, models: Upstream) -> None:
    text = "What is 漢? " + "x" * 500
    data = panel(http, "bench/partial", messages=[{"role": "user", "content": text}])["bench"]

    def look() -> Json:
        found: Json = http.get(f"/bench/panels/{data['panel']}").json()
        return found

    # Its answers are there before the reply; that it is over is written beside the reply.
    assert statuses(look()) == statuses(data)
    assert eventually(lambda: look()["over"])
    shown = look()
    assert shown["panel"] == data["panel"]
    assert shown["collection"] == "bench/partial"
    assert shown["asked"] == text
    assert (shown["over"], shown["partial"]) == (True, True)
    assert statuses(shown) == {"ok-a": "ok", "fail500-a": "error"}
    ok, failed = shown["seats"]
    assert (ok["call"], ok["answer"], ok["owed"]) == (data["seats"][0]["call"], "I am ok-a.", True)
    assert failed["error"]["status"] == 500
    assert failed["owed"] is False
    (listed,) = http.get("/bench/panels", params={"limit": 1}).json()["panels"]
    assert listed["panel"] == data["panel"]
    assert listed["asked"] == text[:200]
    assert "answer" not in listed["seats"][0]


def test_image_data_is_never_on_the_record(http: httpx.Client, models: Upstream, proxy: Proxy) -> None:
    pixels = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"
    parts = [
        {"type": "text", "text": "See?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixels}"}},
    ]
    data = panel(http, "bench/seeing", messages=[{"role": "user", "content": parts}])["bench"]
    shown = http.get(f"/bench/panels/{data['panel']}").json()
    assert shown["asked"].startswith("See?\n[image: image/png")
    assert data["shape"] == "vision"
    assert models.calls("ok-h")[0].body["messages"][0]["content"] == parts
    for file in proxy.directory.glob("bench.db*"):
        assert pixels.encode() not in file.read_bytes()
    assert pixels not in proxy.log()


def test_pages_hold_every_panel_once_newest_first(http: httpx.Client, models: Upstream) -> None:
    made = [panel(http, "bench/paged")["bench"]["panel"] for _ in range(7)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    sizes = []
    while True:
        page = http.get("/bench/panels", params={"collection": "paged", "limit": 3, **cursor}).json()
        sizes.append(len(page["panels"]))
        seen += [shown["panel"] for shown in page["panels"]]
        if page["next"] is None:
            break
        # A panel that comes while someone pages is on none of the pages behind.
        panel(http, "bench/paged")
        cursor = {"cursor": page["next"]}
    assert seen == made[::-1]
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "cursor=x", "cursor=1", "cursor=-1.p", "cursor=9" * 99]
)
def test_a_page_that_cannot_be_is_refused(http: httpx.Client, query: str) -> None:
    refusal(http.get(f"/bench/panels?{query}"), 400)


@pytest.mark.parametrize("name", ["p20260101-000000-aaaaaaaaaaaaaaaa", "x", "%00", "..%2f..", "x" * 5000])
def test_an_unknown_panel_is_404(http: httpx.Client, name: str) -> None:
    refusal(http.get(f"/bench/panels/{name}"), 404)


# A ledger that somebody else holds.


def test_a_panel_is_seated_without_the_ledger_and_tells_nothing_that_is_not_on_it(
    proxy: Proxy, http: httpx.Client, models: Upstream
) -> None:
    with (
        held(proxy) as other,
        proxy.client() as reader,
        http.stream("POST", CHAT, json=question("bench/explored", stream=True)) as response,
    ):
        assert response.status_code == 200
        reading = (event for event in events(response) if isinstance(event, dict))
        opening = text_of([next(reading), next(reading)])
        assert "4 seats" in opening
        panel_id = response.headers["x-bench-panel"]
        models.wait_for(lambda calls: len([call for call in calls if call.end]) == 4)
        assert reader.get("/bench/health/ready").status_code == 200
        refusal(reader.get(f"/bench/panels/{panel_id}"), 404)
        other.execute("COMMIT")
        rest = list(reading)
    assert list(statuses(rest[-1]["bench"]).values()) == ["ok"] * 4
    assert statuses(http.get(f"/bench/panels/{panel_id}").json()) == statuses(rest[-1]["bench"])


async def test_a_verdict_is_acknowledged_only_when_it_is_written(
    proxy: Proxy, http: httpx.Client, seats: list[Json]
) -> None:
    call = seats[0]["call"]
    async with proxy.async_client() as caller:
        with held(proxy) as other:
            judging = asyncio.create_task(caller.post("/bench/verdict", json={"call": call, "useful": True}))
            done, _ = await asyncio.wait([judging], timeout=0.5)
            assert not done
            assert await asyncio.to_thread(owed, http, call) == [call]
            other.execute("COMMIT")
            assert (await judging).json()["recorded"] is True
    assert owed(http, call) == []


# What can be called, probes, and routes that are none.


def test_collections_are_listed_and_found(http: httpx.Client) -> None:
    listed = {entry["name"]: entry for entry in http.get("/bench/collections").json()["collections"]}
    assert listed["pair"]["members"] == ["ok-a", "ok-b"]
    assert listed["pair"]["model"] == "bench/pair"
    assert http.get("/bench/collections/pair").json() == listed["pair"]
    refusal(http.get("/bench/collections/nothing"), 404)


@pytest.mark.parametrize("path", ["/bench/health/live", "/bench/health/ready"])
def test_probes_need_no_key_and_ask_no_model(proxy: Proxy, models: Upstream, path: str) -> None:
    with httpx.Client(base_url=proxy.url, trust_env=False) as anybody:
        response = anybody.get(path)
    assert response.status_code == 200
    assert response.json()["status"] == "ok"
    assert models.calls() == []


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/bench", "/bench/", "/bench/nothing", "/bench/health", "/bench/record/x"])
def test_an_unknown_route_is_404_in_shape(http: httpx.Client, method: str, path: str) -> None:
    assert "verdict" in refusal(http.request(method, path), 404)["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/bench/verdict"),
        ("PUT", "/bench/verdict"),
        ("DELETE", "/bench/panels/x"),
        ("POST", "/bench/record"),
        ("PATCH", "/bench/health/live"),
        ("GET", "/bench/pending"),
    ],
)
def test_a_wrong_method_is_405_in_shape_and_says_which_is_right(http: httpx.Client, method: str, path: str) -> None:
    response = http.request(method, path)
    refusal(response, 405)
    assert response.headers["allow"] in {"GET", "POST"}

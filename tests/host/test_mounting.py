"""How the extension sits in a LiteLLM proxy: in front of its own routes, and out of the way of everything else."""

import asyncio
import gzip
import json
import re
from typing import Any

import httpx
import pytest

from tests.asking import CHAT, Json, Raw, ask, panel, question, refusal, request_bytes, send, statuses
from tests.proxy import MASTER_KEY, Proxy, ProxyFailed
from tests.upstream import Call, Upstream

PLAIN = json.dumps(question("ok-a")).encode()
VOLATILE_HEADERS = re.compile(
    r"(.*-)?(date|content-length|request-id|call-id)|x-litellm-.*(duration|overhead|timing).*"
)
VOLATILE = re.compile(rb'chatcmpl-[0-9a-f-]+|call_\d+|req-\d+|"created":\s*\d+|[0-9a-f]{8}-[0-9a-f-]{27}')
FORM = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nbench/pair\r\n--x--\r\n'


def body(model: str = "ok-a", **more: Any) -> bytes:
    return json.dumps(question(model, **more)).encode()


UNTOUCHED: dict[str, bytes] = {
    "plain": request_bytes(PLAIN),
    "streamed": request_bytes(body(stream=True, stream_options={"include_usage": True})),
    "chunked": request_bytes(PLAIN, chunk=1000),
    "byte by byte": request_bytes(PLAIN, chunk=1),
    "expecting 100": request_bytes(PLAIN, "Expect: 100-continue"),
    "short path": request_bytes(PLAIN, path="/chat/completions"),
    "query string": request_bytes(PLAIN, path=f"{CHAT}?api-version=1"),
    "trailing slash": request_bytes(PLAIN, path=f"{CHAT}/"),
    "not JSON": request_bytes(b'{"model": "ok-a", oops'),
    "cut off": request_bytes(PLAIN[:-3]),
    "empty": request_bytes(b""),
    "no UTF-8": request_bytes(b'{"model": "ok-a", "messages": [{"role": "user", "content": "\xff"}]}'),
    "another encoding": request_bytes(gzip.compress(PLAIN, mtime=0), "Content-Encoding: gzip"),
    "another type": request_bytes(PLAIN, content_type="text/plain"),
    "no type": request_bytes(PLAIN, content_type=None),
    "form": request_bytes(FORM, content_type="multipart/form-data; boundary=x"),
    "bench in a message": request_bytes(body(text='ask "bench" or {"model": "bench/pair"}')),
    "bench in a nested object": request_bytes(body(messages=[{"role": "user", "content": "x", "model": "bench/pair"}])),
    "bench in a tool": request_bytes(
        body("tools-a", tools=[{"type": "function", "function": {"name": "f", "parameters": {"model": "bench/pair"}}}])
    ),
    "bench in a call's arguments": request_bytes(
        body(
            messages=[
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"model": "bench/pair"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "1", "content": "x"},
            ]
        )
    ),
    "bench before the model": request_bytes(b'{"bench": {"model": "bench/pair"}, ' + PLAIN[1:]),
    "bench and then another": request_bytes(b'{"model": "bench/pair", ' + PLAIN[1:]),
    "a name that begins alike": request_bytes(body("benchmark-x")),
    "a name that is nearly ours": request_bytes(body("bench-pair")),
    "a name with bench in it": request_bytes(body("x/bench/pair")),
    "a model that refuses": request_bytes(body("fail400-a")),
    "get": request_bytes(method="GET", content_type=None),
    "head": request_bytes(method="HEAD", content_type=None),
    "put": request_bytes(PLAIN, method="PUT"),
    "options": request_bytes(method="OPTIONS", content_type=None),
    "preflight": request_bytes(
        b"", "Origin: https://example.com", "Access-Control-Request-Method: POST", method="OPTIONS", content_type=None
    ),
    "of a page": request_bytes(PLAIN, "Origin: https://example.com"),
    "streamed to a page": request_bytes(body(stream=True), "Origin: https://example.com"),
    "the preflight of another route": request_bytes(
        b"",
        "Origin: https://example.com",
        "Access-Control-Request-Method: GET",
        method="OPTIONS",
        path="/key/info",
        content_type=None,
    ),
    "wrong key": request_bytes(PLAIN, key="sk-wrong"),
    "no key": request_bytes(PLAIN, key=None),
    "another model on /v1/responses": request_bytes(body("ok-a", input="x"), path="/v1/responses"),
    "another route": request_bytes(body("bench/pair", input="x"), path="/v1/embeddings"),
    "another deployment path": request_bytes(PLAIN, path="/openai/deployments/ok-a/chat/completions"),
    "one model": request_bytes(method="GET", path="/v1/models/ok-a", content_type=None),
    "model info": request_bytes(method="GET", path="/v1/models/bench", content_type=None),
    "the list with a wrong key": request_bytes(method="GET", path="/v1/models", key="sk-wrong", content_type=None),
    "the list without a key": request_bytes(method="GET", path="/v1/models", key=None, content_type=None),
    "head of the list": request_bytes(method="HEAD", path="/v1/models", content_type=None),
    "liveness": request_bytes(method="GET", path="/health/liveliness", content_type=None),
    "nothing": request_bytes(method="GET", path="/benchmarks", content_type=None),
    "large": request_bytes(body(text="x" * 21_000_000)),
    "large, chunked and model last": request_bytes(
        json.dumps({"messages": [{"role": "user", "content": "x" * 21_000_000}], "model": "ok-a"}).encode(),
        chunk=65_536,
    ),
}


def reply_of(raw: Raw) -> tuple[int, dict[str, str], bytes]:
    """A reply without what differs from one request to the next."""
    headers = {name: value for name, value in raw.headers.items() if not VOLATILE_HEADERS.fullmatch(name)}
    return raw.status, headers, VOLATILE.sub(b"*", raw.body)


def call_of(call: Call) -> tuple[str, Json, dict[str, str]]:
    """What reached the model's server."""
    headers = {name: value for name, value in call.headers.items() if not VOLATILE_HEADERS.fullmatch(name)}
    return call.path, call.body, headers


@pytest.mark.parametrize("request_", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_what_is_not_for_bench_is_answered_as_by_litellm_alone(
    proxy: Proxy, bare: Proxy, models: Upstream, request_: bytes
) -> None:
    method = request_.partition(b" ")[0].decode()
    theirs = send(bare.url, request_, method)
    reached = models.calls()
    models.clear()
    ours = send(proxy.url, request_, method)
    assert reply_of(ours) == reply_of(theirs)
    assert list(map(call_of, models.calls())) == list(map(call_of, reached))


def test_a_request_in_packets_is_litellms_as_before(proxy: Proxy, bare: Proxy, models: Upstream) -> None:
    """A caller who pauses inside its body, and one who hangs up there."""

    async def slowly(served: Proxy, parts: int) -> int | None:
        async def pieces() -> Any:
            for start in range(0, len(PLAIN), len(PLAIN) // 3):
                yield PLAIN[start : start + len(PLAIN) // 3]
                await asyncio.sleep(0.05)

        async with served.async_client() as caller:
            response = await caller.post(CHAT, content=pieces(), headers={"Content-Type": "application/json"})
            return response.status_code

    assert [asyncio.run(slowly(served, 3)) for served in (proxy, bare)] == [200, 200]
    assert [call.body for call in models.calls()] == [question("ok-a")] * 2


def test_errors_of_litellms_own_are_not_ours(proxy: Proxy, models: Upstream) -> None:
    with proxy.client() as caller:
        response = ask(caller, "fail401-a")
    assert response.status_code == 401
    assert "bench" not in response.json()
    assert "x-bench-panel" not in response.headers


# Named in the configuration.


def test_a_shim_and_several_mentions_mount_it_once(keyless: Proxy, models: Upstream) -> None:
    with keyless.client() as caller:
        assert caller.get("/probe").json()["routes"].count("Gate") == 1
        assert statuses(panel(caller, "bench/pair")["bench"]) == {"ok-a": "ok", "ok-b": "ok"}
    assert len(models.calls()) == 2


def test_its_object_is_taken_out_of_litellms_callbacks_and_no_other(keyless: Proxy, models: Upstream) -> None:
    with keyless.client() as caller:
        ask(caller, "ok-a")
        callbacks = caller.get("/probe").json()["callbacks"]
    assert not any("Gateway" in names for names in callbacks.values())
    assert "Probe" in callbacks["callbacks"]


def test_the_file_that_litellm_was_started_with_is_known_while_it_loads_callbacks(keyless: Proxy) -> None:
    with keyless.client() as caller:
        assert caller.get("/probe").json()["config_file_while_loading"] == str(keyless.config_path)


@pytest.mark.proxy
def test_a_block_that_cannot_be_used_stops_the_start_and_each_fault_is_told(upstream: Upstream) -> None:
    faulty = {
        "collections": {
            "Pair": {"members": ["ok-a"]},
            "pair": {"members": ["ok-a", "ok-z"], "membrs": 1, "reply": "everything"},
            "nested": {"members": ["bench/pair"]},
            "empty": {"members": []},
        },
        "timing": {"keep_alive": -1},
        "limit": {},
    }
    broken = Proxy(upstream.api_base, {"ok-a": "ok-a"}, bench=faulty)
    try:
        with pytest.raises(ProxyFailed, match="before it was ready"):
            broken.start()
        assert broken.exit_code != 0
        log = broken.log()
        for fault in (
            "bench.collections.Pair: a collection's name is",
            'bench.collections.pair.members.1: LiteLLM has no model "ok-z"; did you mean "ok-a"?',
            'bench.collections.pair.membrs: unknown key; did you mean "members"?',
            "bench.collections.pair.reply: 'everything' is not one of all, merged, choices, route",
            "bench.collections.nested.members.0: bench/pair is a collection",
            "bench.collections.empty.members",
            "bench.timing.keep_alive",
            'bench.limit: unknown key; did you mean "limits"?',
        ):
            assert fault in log
    finally:
        broken.close()


@pytest.mark.proxy
def test_a_ledger_that_cannot_be_opened_leaves_litellm_as_it_is(upstream: Upstream) -> None:
    bench = {"collections": {"solo": {"members": ["ok-a"]}}, "ledger": {"url": "sqlite:////dev/null/bench.db"}}
    with Proxy(upstream.api_base, {"ok-a": "ok-a"}, bench=bench) as served, served.client() as caller:
        assert ask(caller, "ok-a").status_code == 200
        assert [entry["id"] for entry in caller.get("/v1/models").json()["data"]] == ["ok-a"]
        refusal(ask(caller, "bench/solo"), 503)
        refusal(caller.get("/bench/health/ready"), 503)
        assert caller.get("/bench/health/live").status_code == 200
        assert "/dev/null/bench.db cannot be opened" in served.log()


# Several processes.


async def test_workers_share_one_ledger(workers: Proxy, models: Upstream) -> None:
    async def one() -> str:
        async with workers.async_client() as caller:
            response = await caller.post(CHAT, json=question("bench/pair"))
            data = response.json()["bench"]
            verdict = await caller.post("/bench/verdict", json={"call": data["seats"][0]["call"], "useful": True})
            assert verdict.json()["recorded"] is True
            found: str = data["panel"]
            return found

    made = await asyncio.gather(*(one() for _ in range(40)))
    assert len(set(made)) == 40
    assert len(set(re.findall(r"asked of process (\d+)", workers.log()))) == 2
    for name in made:
        # Each look is a connection of its own, and so may be answered by either process.
        with workers.client() as caller:
            shown = caller.get(f"/bench/panels/{name}").json()
        assert [seat.get("verdict", {}).get("useful") for seat in shown["seats"]] == [True, None]


def test_a_verdict_may_go_to_any_worker(workers: Proxy, models: Upstream) -> None:
    with workers.client() as caller:
        calls = [panel(caller, "bench/pair")["bench"]["seats"][0]["call"] for _ in range(12)]
    for call in calls:
        with httpx.Client(base_url=workers.url, trust_env=False) as other:
            headers = {"Authorization": f"Bearer {MASTER_KEY}"}
            reply = other.post("/bench/verdict", json={"call": call, "useful": False}, headers=headers)
        assert reply.json()["recorded"] is True

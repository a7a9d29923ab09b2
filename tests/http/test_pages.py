"""A real proxy and the web: what its pages may do, by which names it is reached, and what it keeps of what was said."""

import json
import os
import queue
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import httpx
import pytest
import sqlalchemy as sa

from bench_proxy.ledger.database import migrate, open_engines
from bench_proxy.ledger.schema import panels
from bench_proxy.ledger.values import now_ms
from tests.asking import CHAT, ask, eventually, question, refusal, request_bytes, send
from tests.proxy import Proxy
from tests.upstream import Upstream

Json = dict[str, Any]

APP, OTHER = "https://app.example", "https://evil.example"
NAME = "bench.internal"
PREFIX = "access-control-"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OLD, YOUNG = "p20200101-120000-aaaaaaaaaaaaaaaa", "p20200101-120000-bbbbbbbbbbbbbbbb"
DAY_MS = 24 * 3600 * 1000


class PageServer:
    """Serves one page, which tells it what it could read."""

    PAGE: ClassVar[str] = """<script>
async function read(path, body) {
  try {
    const headers = {"Content-Type": "application/json", "Authorization": "Bearer x", "X-Bench-Reply": "all"};
    const sent = body ? {method: "POST", headers, body: JSON.stringify(body)} : {headers};
    const reply = await fetch(location.hash.slice(1) + path, sent);
    return {status: reply.status, panel: reply.headers.get("x-bench-panel"), text: await reply.text()};
  } catch (error) { return {error: String(error)}; }
}
const ask = model => read("/v1/chat/completions", {model, messages: [{role: "user", content: "Hi"}]});
(async () => {
  const seen = {panel: await ask("bench/pair"), theirs: await ask("ok-a"), record: await read("/bench/record")};
  await fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
})();
</script>"""

    def __init__(self) -> None:
        self.seen: queue.Queue[Json] = queue.Queue()
        told, page = self.seen, self.PAGE.encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(page)

            def do_POST(self) -> None:
                told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def page_server() -> Iterator[PageServer]:
    with closing(PageServer()) as served:
        yield served


def kept(file: Path) -> None:
    """A ledger of two panels, one of them older than a day."""
    writer, reader = open_engines(f"sqlite:///{file}")
    migrate(writer)
    row: Json = {"owner": "o", "collection": "pair", "model": "bench/pair", "reply": "all", "shape": "general"}
    row |= {"shape_by": "default", "asked": "Why?", "skipped": "[]", "partial": False, "note": ""}
    ages = {OLD: DAY_MS + 60_000, YOUNG: DAY_MS - 3_600_000}
    with writer.begin() as connection:
        connection.execute(sa.insert(panels), [{**row, "id": i, "at_ms": now_ms() - age} for i, age in ages.items()])
    writer.dispose()
    reader.dispose()


@pytest.fixture(scope="module")
def local_proxy(
    upstream: Upstream, page_server: PageServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """As `bench-proxy serve` starts it without a key."""
    directory = tmp_path_factory.mktemp("local")
    kept(directory / "bench.db")
    bench = {
        "collections": {"pair": {"members": ["ok-a", "ok-b"], "explorers": 0}},
        "models": {name: {"family": name} for name in ("ok-a", "ok-b")},
        "access": {
            "allowed_origins": [APP, f"http://127.0.0.1:{page_server.port}"],
            "allowed_hosts": [NAME],
        },
        "ledger": {"keep_days": 1},
    }
    models = {"ok-a": "ok-a", "ok-b": "ok-b"}
    env = {"BENCH_LOOPBACK_ONLY": "true"}
    with Proxy(upstream.api_base, models, bench=bench, key=None, env=env, cwd=directory) as running:
        yield running


@pytest.fixture
def local(local_proxy: Proxy) -> Iterator[httpx.Client]:
    with local_proxy.client() as client:
        yield client


def cors_of(response: httpx.Response) -> dict[str, str]:
    return {n.removeprefix(PREFIX): v for n, v in response.headers.items() if n.startswith(PREFIX)}


def preflight(caller: httpx.Client, path: str, origin: str, method: str = "POST") -> httpx.Response:
    asked = {"Origin": origin, "Access-Control-Request-Method": method}
    return caller.options(path, headers={**asked, "Access-Control-Request-Headers": "authorization,content-type"})


MESSAGES = [{"role": "user", "content": "Hi"}]
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
ASKED: dict[str, Json] = {
    CHAT: {"model": "bench/pair", "messages": MESSAGES},
    "/v1/responses": {"model": "bench/pair", "input": "Hi"},
    "/v1/completions": {"model": "bench/pair", "prompt": "Hi"},
    "/v1/messages": {"model": "bench/pair", "messages": MESSAGES, "max_tokens": 100},
    "/v1beta/models/bench/pair:generateContent": CONTENTS,
    "/api/chat": {"model": "bench/pair", "messages": MESSAGES},
    "/api/show": {"model": "bench/pair"},
    "/bench/pending": {"calls": ["p1.member1"]},
}
READ = ("/bench/record", "/bench/health/live", "/api/tags", "/v1/models", "/v1beta/models", "/v1/models/bench/pair")


# Pages, where no key is asked


@pytest.mark.parametrize("path", ASKED)
def test_an_allowed_page_may_ask_in_every_format(local: httpx.Client, path: str) -> None:
    allowed = preflight(local, path, APP)
    assert allowed.status_code == 200
    said = cors_of(allowed)
    assert (said["allow-origin"], said["allow-methods"]) == (APP, "POST")
    assert said["allow-headers"] == "authorization,content-type"
    response = local.post(path, json=ASKED[path], headers={"Origin": APP})
    assert response.status_code == 200, response.text
    assert sorted(cors_of(response)) == ["allow-origin", "expose-headers"]
    assert cors_of(response)["allow-origin"] == APP
    assert "origin" in response.headers["vary"].lower()


@pytest.mark.parametrize("path", READ)
def test_an_allowed_page_may_look_things_up(local: httpx.Client, path: str) -> None:
    said = cors_of(preflight(local, path, APP, "GET"))
    assert (said["allow-origin"], said["allow-methods"]) == (APP, "GET")
    response = local.get(path, headers={"Origin": APP})
    assert response.status_code == 200, response.text
    assert cors_of(response)["allow-origin"] == APP
    assert "allow-credentials" not in cors_of(response)


def test_an_allowed_page_may_read_a_stream_and_an_error(local: httpx.Client) -> None:
    streamed = local.post(CHAT, json=question("bench/pair", stream=True), headers={"Origin": APP})
    assert streamed.text.endswith("data: [DONE]\n\n")
    refused = ask(local, "bench/nothing", headers={"Origin": APP})
    refusal(refused, 404)
    assert [cors_of(r)["allow-origin"] for r in (streamed, refused)] == [APP, APP]


def test_an_allowed_page_gets_nothing_of_litellms_own(local: httpx.Client, models: Upstream) -> None:
    for response in (
        ask(local, "ok-a", headers={"Origin": APP}),
        local.get("/v1/model/info", headers={"Origin": APP}),
        local.post("/key/generate", json={}, headers={"Origin": APP}),
    ):
        assert "bench models alone" in refusal(response, 403)["message"]
        assert cors_of(response)["allow-origin"] == APP
    assert models.calls() == []


@pytest.mark.parametrize("path", [*ASKED, "/v1/model/info"])
def test_other_pages_are_refused_and_cannot_read_even_that(local: httpx.Client, models: Upstream, path: str) -> None:
    response = local.post(path, json=ASKED.get(path, {}), headers={"Origin": OTHER})
    assert response.status_code == 403
    assert cors_of(response) == {}
    assert models.calls() == []


@pytest.mark.parametrize("path", ["/bench/verdict", "/api/chat", "/v1beta/models/bench/pair:generateContent"])
def test_the_preflights_of_other_pages_are_refused_where_only_bench_answers(local: httpx.Client, path: str) -> None:
    response = preflight(local, path, OTHER)
    assert response.status_code == 403
    assert cors_of(response) == {}
    assert "evil" not in response.text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/show", "/bench/verdict"])
def test_what_a_page_may_send_without_asking_first_is_refused(local: httpx.Client, path: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    body = json.dumps(ASKED.get(path, {"call": "p1.member1", "useful": True})).encode()
    assert local.post(path, content=body, headers=headers).status_code == 415


# Names


@pytest.mark.parametrize("path", ["/bench/record", "/v1/models", "/health/liveliness"])
def test_names_that_are_allowed_reach_it_and_others_do_not(local_proxy: Proxy, path: str) -> None:
    def status(host: str) -> int:
        asked = request_bytes(method="GET", path=path, key=None, content_type=None).replace(
            b"Host: test", host.encode()
        )
        return send(local_proxy.url, asked, "GET").status

    assert status(f"Host: {NAME}:4000") == 200
    assert status(f"Host: 127.0.0.1:{local_proxy.port}") == 200
    assert status("Host: evil.example") == 403


# Where a key is asked


def test_where_nobody_is_allowed_no_page_reads_bench_and_litellm_stays_as_it_is(http: httpx.Client) -> None:
    ours = ask(http, "bench/pair", headers={"Origin": OTHER})
    assert ours.status_code == 200
    assert cors_of(ours) == {}
    theirs = ask(http, "ok-a", headers={"Origin": OTHER})
    assert cors_of(theirs)["allow-origin"] == "*"
    assert cors_of(preflight(http, CHAT, OTHER))["allow-origin"] == "*"
    assert preflight(http, "/bench/verdict", OTHER).status_code == 403


# In a browser


@contextmanager
def browsed(address: str, profile: Path) -> Iterator[None]:
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        f"--user-data-dir={profile}",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = subprocess.Popen([*command, address], start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        yield
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_browser_lets_pages_do_what_was_allowed_and_no_more(
    local_proxy: Proxy, page_server: PageServer, tmp_path: Path, host: str
) -> None:
    """The page is one and the same; its origin under the other name is not allowed."""
    with browsed(f"http://{host}:{page_server.port}/#{local_proxy.url}", tmp_path):
        seen = page_server.seen.get(timeout=90)
    if host == "localhost":
        assert all(set(read) == {"error"} for read in seen.values()), seen
        return
    assert seen["panel"]["status"] == 200
    assert seen["panel"]["panel"].startswith("p")
    assert seen["record"]["status"] == 200
    assert seen["theirs"]["status"] == 403


# What is kept


def test_what_is_too_old_is_removed_when_it_starts(local: httpx.Client) -> None:
    assert eventually(lambda: local.get(f"/bench/panels/{OLD}").status_code == 404)
    assert local.get(f"/bench/panels/{YOUNG}").json()["asked"] == "Why?"


# A key, where none was asked; the last test, since it changes the proxy's configuration


def test_require_key_asks_for_a_bench_key_where_litellm_asks_for_none(
    local_proxy: Proxy, local: httpx.Client, models: Upstream
) -> None:
    made = local.post("/bench/keys", json={"name": "page"})
    assert made.status_code == 201, made.text
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    local_proxy.config["bench"]["access"]["require_key"] = True
    local_proxy.write_config()
    assert eventually(lambda: local.get("/bench/record").status_code == 401)
    for response in (
        ask(local, "bench/pair"),
        ask(local, "bench/pair", headers={"Authorization": "Bearer sk-any"}),
        local.get("/bench/panels"),
        local.get("/bench/keys"),
        local.post("/bench/keys", json={"name": "mine"}),
    ):
        assert "bench-proxy key create" in refusal(response, 401)["message"]
    assert local.get("/api/tags").status_code == 401
    assert not any(model["id"].startswith("bench/") for model in local.get("/v1/models").json()["data"])
    assert models.calls() == []
    assert ask(local, "bench/pair", headers=headers).status_code == 200
    assert local.get("/bench/panels", headers=headers).status_code == 200
    assert local.get("/bench/health/ready").status_code == 200
    assert ask(local, "ok-a").status_code == 200

"""Requests that nobody means well: never a fault of ours, never a hang, never a word too much."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.errors import BenchError
from bench_proxy.formats.places import place
from fuzzing.bodies import ASKING, OPTIONS, TO_GEMINI
from fuzzing.judging import Reply, faults, faults_of_log
from fuzzing.running import Run
from fuzzing.shooting import BENCH, MODELS, UPSTREAM_KEY, aim
from fuzzing.shots import DICE, Shot, changed
from tests.proxy import Proxy
from tests.upstream import Upstream

REQUESTS, AT_ONCE, SEED = 800, 8, 20261130
"""The same requests each time; `make fuzz` draws others, and more."""


@pytest.fixture(scope="module")
def fuzzed_proxy(upstream: Upstream) -> Iterator[Proxy]:
    models = {name: name for name in MODELS}
    with Proxy(upstream.api_base, models, bench=BENCH, router_settings={"disable_cooldowns": True}) as running:
        yield running


def test_no_request_gets_a_fault_of_ours_a_hang_or_a_secret(fuzzed_proxy: Proxy, upstream: Upstream) -> None:
    upstream.clear()
    with fuzzed_proxy.client() as client:
        target = aim(client)
        secrets = [*target.keys, UPSTREAM_KEY, urlsplit(upstream.api_base).netloc]
        run = Run(fuzzed_proxy.url, target, secrets)
        run.go(REQUESTS, AT_ONCE, SEED)
        assert not run.faults
        # Or else the requests are no longer of every kind, and the rest of this test says little.
        assert {"200", "400", "401", "404", "415"} <= {status.split()[0] for status in run.statuses}
        assert set(MODELS) <= {call.model for call in upstream.calls()}
        assert client.get("/bench/health/ready").json() == {"status": "ok", "ledger": "ok", "configuration": "ok"}
        assert client.get("/bench/panels").json()["panels"], "SQL in a request has emptied the ledger"
    assert not faults_of_log(fuzzed_proxy.log(), secrets)


ASKED = Shot("POST", "/v1/messages", (), b"{}", "anthropic")
RIGHT = Reply(400, {}, b'{"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}')


@pytest.mark.parametrize(
    "reply",
    [
        replace(RIGHT, status=500),
        replace(RIGHT, body=b""),
        replace(RIGHT, body=b"Internal Server Error"),
        replace(RIGHT, body=b'{"error": {"message": "no", "type": "x", "param": null, "code": null}}'),
        replace(RIGHT, body=RIGHT.body.replace(b"no", b"with sk-upstream")),
        replace(RIGHT, headers={"x-said": "sk-upstream"}),
        replace(RIGHT, status=200, body=b'File "/srv/bench_proxy/bench.py", line 1'),
    ],
)
def test_what_no_reply_may_be_is_seen(reply: Reply) -> None:
    assert not faults(ASKED, RIGHT, [UPSTREAM_KEY])
    assert faults(ASKED, reply, [UPSTREAM_KEY])


def test_what_no_log_may_hold_is_seen() -> None:
    ours = 'Traceback (most recent call last):\n  File "/x/litellm/a.py"\n  File "/x/bench_proxy/b.py"\nKeyError'
    theirs = 'Traceback (most recent call last):\n  File "/x/bench_proxy/b.py"\n  File "/x/litellm/a.py"\nKeyError'
    assert faults_of_log(ours, [])
    assert faults_of_log("a bench request failed inside bench-proxy", [])
    assert faults_of_log("asked with sk-upstream", [UPSTREAM_KEY])
    assert not faults_of_log(theirs, [UPSTREAM_KEY])


READ = [*((path, body) for path, bodies in ASKING.items() if place(path) for body in bodies)]
READ += [
    (f"/v1beta/models/bench/pair:{action}", body) for action in ("generateContent", "countTokens") for body in TO_GEMINI
]


@pytest.mark.parametrize(("path", "body"), READ, ids=[f"{path} {n}" for n, (path, _) in enumerate(READ)])
@given(data=st.data())
def test_a_conversation_that_is_wrong_anywhere_is_read_or_refused(
    path: str, body: dict[str, Any], data: st.DataObject
) -> None:
    """Beside any object at all (`test_every_format`): right ones with something wrong at any depth."""
    document = data.draw(changed({**body, "model": "bench/pair", "bench": OPTIONS}, (), data.draw(DICE)))
    asked = place(path)
    assert asked is not None
    try:
        asked.format.read(document)
    except BenchError as error:
        assert 400 <= error.status < 500  # noqa: PT017  it may be refused and need not be

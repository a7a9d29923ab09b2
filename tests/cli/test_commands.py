"""The commands as someone types them: in a process of their own, against a proxy that runs."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import yaml

from tests.asking import ask, panel, statuses
from tests.proxy import INHERITED, MASTER_KEY, ROOT, Proxy, deployment
from tests.upstream import Upstream

CALL = re.compile(r"p\d{8}-\d{6}-[a-z2-7]{16}\.member1")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the developer's own keys and settings."""
    own = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return own | {"HOME": str(home), "PYTHONPATH": str(ROOT), "NO_PROXY": "*", "PYTHONUNBUFFERED": "1"} | more


def run(
    folder: Path, *arguments: str, timeout: float = 60, typed: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench_proxy", *arguments],
        cwd=folder,
        env=environment(folder, **env),
        input=typed,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )


def succeeded(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def failed(result: subprocess.CompletedProcess[str], code: int = 1) -> str:
    assert result.returncode == code, (result.stdout, result.stderr)
    assert "Traceback" not in result.stderr
    return result.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# ask and verdict.


@pytest.fixture
def here(proxy: Proxy, models: Upstream) -> dict[str, str]:
    """What the environment says of the proxy."""
    return {"BENCH_URL": proxy.url, "BENCH_KEY": MASTER_KEY}


@pytest.mark.parametrize(
    "command", [("ask", "pair", "Hello?"), ("ask", "pair", "Hello?", "--json"), ("verdict", "x", "--useful")]
)
def test_a_proxy_that_is_not_there_is_said_so(tmp_path: Path, command: tuple[str, ...]) -> None:
    message = failed(run(tmp_path, *command, BENCH_URL=f"http://127.0.0.1:{free_port()}"))
    assert "is it running?" in message


@pytest.mark.parametrize("command", [("ask", "pair", "Hello?"), ("verdict", "x", "--useful")])
def test_a_wrong_key_is_said_so_and_not_shown(here: dict[str, str], tmp_path: Path, command: tuple[str, ...]) -> None:
    message = failed(run(tmp_path, *command, **(here | {"BENCH_KEY": "sk-not-this-one"})))
    assert "401" in message
    assert "set BENCH_KEY or LITELLM_MASTER_KEY" in message
    assert "sk-not-this-one" not in message


def test_the_address_may_have_the_v1_of_openais_clients(here: dict[str, str], tmp_path: Path) -> None:
    env = here | {"BENCH_URL": f"{here['BENCH_URL']}/v1/"}
    assert "I am ok-a." in succeeded(run(tmp_path, "ask", "pair", "Who are you?", **env))


def test_asking_an_unknown_collection_says_what_there_is(here: dict[str, str], tmp_path: Path) -> None:
    for flags in ((), ("--json",)):
        message = failed(run(tmp_path, "ask", "pear", "Hello?", *flags, **here))
        assert "404" in message
        assert "bench/pair: Two models." in message


def test_asking_a_panel_that_fails_says_why(here: dict[str, str], tmp_path: Path) -> None:
    for flags in ((), ("--json",)):
        assert "fail500-a" in failed(run(tmp_path, "ask", "broken", "Hello?", *flags, **here))


def test_ask_prints_every_answer(here: dict[str, str], tmp_path: Path, models: Upstream) -> None:
    models.say("ok-b", "Ünï — 漢字 \u2028 end")
    text = succeeded(run(tmp_path, "ask", "pair", "Who are you, ü?", **here))
    assert text.startswith("# bench/pair\n")
    assert "I am ok-a." in text
    assert "Ünï — 漢字 \u2028 end" in text
    assert CALL.search(text)
    assert [call.body["messages"] for call in models.calls()] == [[{"role": "user", "content": "Who are you, ü?"}]] * 2


def test_ask_says_who_answered_in_route_mode(here: dict[str, str], tmp_path: Path, models: Upstream) -> None:
    answer, _, who = succeeded(run(tmp_path, "ask", "pair:route", "Who are you?", **here)).partition("\n\n")
    alias = answer.removeprefix("I am ").removesuffix(".")
    assert re.fullmatch(rf"{alias}, \d+\.\d s, `r\d{{8}}-\d{{6}}-[a-z2-7]{{16}}\.1`\n", who)
    data = json.loads(succeeded(run(tmp_path, "ask", "pair:route", "Who are you?", "--json", **here)))
    assert data["answer"] == f"I am {data['alias']}."
    assert data["conversation"] not in who


def test_ask_takes_its_options(here: dict[str, str], tmp_path: Path) -> None:
    options = ("--with", "ok-c", "--with", "ok-d", "--shape", "prose", "--explorers", "0", "--json")
    data = json.loads(succeeded(run(tmp_path, "ask", "bench/guests", "Hello?", *options, **here)))
    assert statuses(data) == {"ok-a": "ok", "ok-c": "ok", "ok-d": "ok"}
    assert (data["shape"], data["shape_by"]) == ("prose", "request")


def test_ask_takes_the_proxy_and_the_key_as_options(proxy: Proxy, models: Upstream, tmp_path: Path) -> None:
    data = json.loads(
        succeeded(run(tmp_path, "ask", "pair", "Hello?", "--json", "--url", f"{proxy.url}/", "--key", MASTER_KEY))
    )
    assert statuses(data) == {"ok-a": "ok", "ok-b": "ok"}


def test_the_master_key_in_the_environment_is_enough(proxy: Proxy, models: Upstream, tmp_path: Path) -> None:
    succeeded(run(tmp_path, "ask", "pair", "Hello?", BENCH_URL=proxy.url, LITELLM_MASTER_KEY=MASTER_KEY))


def test_a_verdict_must_say_which(here: dict[str, str], tmp_path: Path) -> None:
    assert "--useful" in failed(run(tmp_path, "verdict", "x", **here), 2)


def test_a_verdict_on_an_unknown_call_is_said_so(here: dict[str, str], tmp_path: Path) -> None:
    assert "there is no call" in failed(run(tmp_path, "verdict", "nothing", "--useful", **here))


def test_a_verdict_on_a_panel_is_told_its_calls(here: dict[str, str], tmp_path: Path, http: httpx.Client) -> None:
    bench = panel(http, "bench/pair")["bench"]
    told = failed(run(tmp_path, "verdict", bench["panel"], "--useful", **here))
    assert f"judge one of its calls: {', '.join(seat['call'] for seat in bench['seats'])}" in told


def test_a_verdict_is_recorded_and_the_same_again_is_not(
    here: dict[str, str], tmp_path: Path, http: httpx.Client
) -> None:
    call = panel(http, "bench/pair")["bench"]["seats"][0]["call"]
    first = succeeded(run(tmp_path, "verdict", call, "--not-useful", "--note", "beside the point", **here))
    assert first == f"{call}: not useful\n"
    again = succeeded(run(tmp_path, "verdict", call, "--not-useful", "--note", "beside the point", **here))
    assert "already" in again
    seat = http.get(f"/bench/panels/{call.partition('.')[0]}").json()["seats"][0]
    assert (seat["verdict"]["useful"], seat["verdict"]["note"]) == (False, "beside the point")


def test_a_question_may_come_from_standard_input(tmp_path: Path, here: dict[str, str], models: Upstream) -> None:
    succeeded(run(tmp_path, "ask", "echoes", "-", typed="a diff\nof two lines", **here))
    assert "a diff\nof two lines" in models.calls("echo-a")[-1].body["messages"][-1]["content"]


@pytest.mark.parametrize(("question", "typed"), [("", ""), ("-", "\n")])
def test_nobody_is_asked_nothing(tmp_path: Path, here: dict[str, str], question: str, typed: str) -> None:
    assert "no question" in failed(run(tmp_path, "ask", "echoes", question, typed=typed, **here))


# serve and demo.


@contextmanager
def serving(folder: Path, port: int, *arguments: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """`bench-proxy serve` until it answers; killed at the end if it is still there."""
    log = folder / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench_proxy", "serve", "--port", str(port), *arguments],
            cwd=folder,
            env=environment(folder, **env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        ends = time.monotonic() + 90
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=5) as probe:
            while not answers(probe):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < ends, log.read_text()
                time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def answers(probe: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return probe.get("/bench/health/ready").status_code == 200
    return False


def configuration(folder: Path, upstream: Upstream) -> None:
    """A file that LiteLLM could be started with; bench-proxy is not named in it as a callback."""
    bench = {"collections": {"pair": {"members": ["ok-a", "ok-b"], "explorers": 0}}}
    models = [deployment(name, name, upstream.api_base) for name in ("ok-a", "ok-b")]
    text = yaml.safe_dump({"model_list": models, "bench": bench})
    (folder / "litellm_config.yaml").write_text(text, encoding="utf-8")


@pytest.mark.proxy
def test_serve_asks_no_key_on_this_machine_and_ends_well_on_sigterm(tmp_path: Path, models: Upstream) -> None:
    configuration(tmp_path, models)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with serving(tmp_path, port) as process:
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as anybody:
            assert statuses(panel(anybody, "bench/pair")["bench"]) == {"ok-a": "ok", "ok-b": "ok"}
            assert ask(anybody, "ok-a").json()["choices"][0]["message"]["content"] == "I am ok-a."
            listed = [entry["id"] for entry in anybody.get("/v1/models").json()["data"]]
            assert {"ok-a", "bench/pair"} <= set(listed)
            assert ask(anybody, "bench/pair", headers={"Origin": url}).status_code == 200
            for foreign in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": f"evil.example:{port}"}):
                for path in ("/bench/panels", "/v1/models", "/health/liveliness"):
                    assert anybody.get(path, headers=foreign).status_code == 403
                refused = ask(anybody, "bench/pair", headers=foreign)
                assert refused.status_code == 403
                assert "LITELLM_MASTER_KEY" in refused.json()["error"]["message"]
        assert len(models.calls("ok-b")) == 2
        text = succeeded(run(tmp_path, "ask", "pair", "Hello?", BENCH_URL=url))
        call = CALL.search(text)
        assert call is not None
        succeeded(run(tmp_path, "verdict", call[0], "--useful", BENCH_URL=url))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    log = (tmp_path / "serve.log").read_text()
    assert f"bench-proxy on {url}, no key needed" in log
    assert "Traceback" not in log


@pytest.mark.proxy
def test_the_demo_shows_the_whole_round_and_ends_well(tmp_path: Path) -> None:
    result = run(tmp_path, "demo", timeout=110, LITELLM_MASTER_KEY="sk-of-the-developer", TMPDIR=str(tmp_path))
    text = succeeded(result)
    assert "# bench/core" in text
    for member in ("careful-owl", "quick-swift", "blunt-badger"):
        assert member in text
    assert CALL.search(text)
    assert ".member1: useful" in text
    assert re.search(r"careful-owl +\w+ +2 +2 +0 +1 +1\n", text)
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_not_set_here_is_named(tmp_path: Path) -> None:
    params = {"model": "openai/gpt", "api_key": "os.environ/A_KEY"}
    document = {
        "model_list": [
            {"model_name": "gpt", "litellm_params": params},
            {"model_name": "panel", "litellm_params": {"model": "bench/core"}},
        ],
        "bench": {"collections": {"core": {"members": ["gpt"]}}},
    }
    (tmp_path / "litellm_config.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    told = succeeded(run(tmp_path, "check-config", "--lanes"))
    assert "gpt: router lane (A_KEY is not set here)" in told
    told = succeeded(run(tmp_path, "check-config", "--lanes", A_KEY="sk-1"))
    assert "gpt: lean lane\n" in told


def test_the_demo_asks_nobody_elses_proxy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        message = failed(run(tmp_path, "demo", "--keep", "--port", str(taken.getsockname()[1])))
    assert "cannot be used" in message


def test_a_demo_that_is_kept_streams_in_every_mode_and_ends_with_its_terminal(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "bench_proxy", "demo", "--keep", "--port", str(port)]
    env = environment(tmp_path, TMPDIR=str(tmp_path), BENCH_URL=f"http://127.0.0.1:{port}")
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as kept:
        try:
            assert kept.stdout is not None
            assert any("Ctrl-C stops it" in line for line in kept.stdout)
            for name in ("core:choices", "core:merged"):
                text = succeeded(run(tmp_path, "ask", name, "How?", BENCH_URL=env["BENCH_URL"]))
                assert "careful-owl" in text
                assert CALL.search(text)
                assert "bad_response" not in text
        finally:
            kept.send_signal(signal.SIGHUP)
        assert kept.wait(60) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{env['BENCH_URL']}/bench/health/live")
    assert list(tmp_path.iterdir()) == []

"""`bench-proxy serve` starts nothing that others could use without a key, and says why."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bench_proxy.cli import main
from bench_proxy.host import server

MODELS = [{"model_name": "gpt", "litellm_params": {"model": "openai/gpt"}}]
BENCH = {"collections": {"core": {"members": ["gpt"]}}}
NO_KEY = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"
HOOKS = "LITELLM_WORKER_STARTUP_HOOKS"
OTHERS = ("0.0.0.0", "::", "192.0.2.7", "bench.example.org", "")


def has_ipv6() -> bool:
    """Containers often have none."""
    with suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


LOOPBACK = ["127.0.0.1", "localhost", *(["::1"] if has_ipv6() else [])]


class Started(list[tuple[Path, str, int]]):
    """What LiteLLM's proxy was started with; nothing is."""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`serve` sets variables and signals for the process that it becomes: here they are put back."""
    monkeypatch.chdir(tmp_path)
    # A copy: what is set in it is gone with it.
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in ("LITELLM_MASTER_KEY", "BENCH_CONFIG", NO_KEY, HOOKS):
        os.environ.pop(name, None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    calls = Started()
    monkeypatch.setattr(server, "serve", lambda config, host, port: calls.append((config, host, port)))
    return calls


def write(**more: Any) -> None:
    Path("litellm_config.yaml").write_text(yaml.safe_dump({"model_list": MODELS, "bench": BENCH, **more}))


def serve(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["serve", *arguments])


def refused(started: Started, *arguments: str) -> str:
    result = serve(*arguments)
    assert result.exit_code != 0
    assert started == []
    assert NO_KEY not in os.environ
    assert "Traceback" not in result.output
    return result.stderr


@contextmanager
def taken(host: str) -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as other:
        other.bind((host, 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.fixture
def port() -> int:
    """One that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free: int = probe.getsockname()[1]
        return free


# Refused


@pytest.mark.parametrize("host", OTHERS)
def test_without_a_key_nothing_is_served_that_others_can_reach(started: Started, host: str) -> None:
    write()
    told = refused(started, "--host", host)
    for word in (host, "LITELLM_MASTER_KEY", "127.0.0.1"):
        assert word in told


@pytest.mark.parametrize("settings", [{"master_key": None}, {"master_key": ""}, {"master_key": "os.environ/UNSET_KEY"}])
def test_a_key_that_is_not_set_is_no_key(started: Started, settings: dict[str, Any]) -> None:
    write(general_settings=settings)
    assert "no master key is set" in refused(started, "--host", "0.0.0.0")


def test_permitting_litellm_to_start_without_a_key_does_not_open_it_to_others(started: Started) -> None:
    write()
    os.environ[NO_KEY] = "true"
    result = serve("--host", "0.0.0.0")
    assert result.exit_code == 1
    assert started == []


@pytest.mark.parametrize("host", LOOPBACK)
def test_a_port_that_is_taken_is_refused(started: Started, host: str) -> None:
    write()
    with taken("127.0.0.1" if host == "localhost" else host) as port:
        told = refused(started, "--host", host, "--port", str(port))
    assert f"{host}:{port} cannot be used" in told
    assert "choose another --port" in told


def test_an_address_that_is_not_this_machines_is_refused(started: Started, port: int) -> None:
    write()
    os.environ["LITELLM_MASTER_KEY"] = "sk-long-enough"
    assert "cannot be used" in refused(started, "--host", "192.0.2.7", "--port", str(port))


@pytest.mark.parametrize("number", ["0", "65536", "-1", "http"])
def test_a_number_that_is_no_port_is_refused(started: Started, number: str) -> None:
    write()
    assert "--port" in refused(started, "--port", number)


def test_a_faulty_configuration_is_refused_with_every_fault(started: Started) -> None:
    write(bench={"collections": {"core": {"members": ["gtp"], "reply": "al"}}})
    told = refused(started)
    assert "bench.collections.core.members.0" in told
    assert "bench.collections.core.reply" in told


def test_a_configuration_that_is_not_there_is_refused(started: Started) -> None:
    assert "nowhere.yaml" in refused(started, "--config", "nowhere.yaml")


# Served


@pytest.mark.parametrize("host", LOOPBACK)
def test_on_this_machine_no_key_is_needed(started: Started, port: int, host: str) -> None:
    write()
    result = serve("--host", host, "--port", str(port))
    assert result.exit_code == 0, result.output
    assert started == [(Path("litellm_config.yaml"), host, port)]
    assert os.environ[NO_KEY] == "true"
    assert "no key needed" in result.stderr


def test_it_says_that_bench_needs_a_key_where_nothing_else_does(started: Started, port: int) -> None:
    write(bench={**BENCH, "access": {"require_key": True}})
    result = serve("--port", str(port))
    assert result.exit_code == 0, result.output
    assert "no key needed but for bench" in result.stderr


@pytest.mark.parametrize("where", ["file", "environment"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_a_key_it_is_asked_for_everywhere(started: Started, port: int, host: str, where: str) -> None:
    if where == "file":
        write(general_settings={"master_key": "sk-long-enough"})
    else:
        write()
        os.environ["LITELLM_MASTER_KEY"] = "sk-long-enough"
    result = serve("--host", host, "--port", str(port))
    assert result.exit_code == 0, result.output
    assert len(started) == 1
    assert NO_KEY not in os.environ
    assert "no key needed" not in result.output
    assert "sk-long-enough" not in result.output


def test_the_extension_is_mounted_whether_or_not_the_file_names_it(started: Started, port: int) -> None:
    write()
    os.environ[HOOKS] = "somebody.elses:hook"
    assert serve("--port", str(port)).exit_code == 0
    assert os.environ[HOOKS] == "somebody.elses:hook,bench_proxy.wiring:gateway"
    assert os.environ["CONFIG_FILE_PATH"] == "litellm_config.yaml"


def test_no_price_list_is_fetched_unless_the_operator_wants_it(started: Started, port: int) -> None:
    write()
    os.environ.pop("LITELLM_LOCAL_MODEL_COST_MAP", None)
    assert serve("--port", str(port)).exit_code == 0
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "False"
    assert serve("--port", str(port)).exit_code == 0
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "False"

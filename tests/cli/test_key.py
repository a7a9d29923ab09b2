"""`bench-proxy key`: what it sends and what it prints."""

import json
from importlib import import_module
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from bench_proxy.cli import main
from bench_proxy.cli.key import _line
from bench_proxy.keys import BenchKey, Limits, Use

SECRET = "bpk_" + "x" * 43


def shown(
    collections: tuple[str, ...] | None = None, limits: Limits | None = None, today: Use | None = None
) -> dict[str, Any]:
    known = BenchKey("k20261130-042344-plxokog6vgqi3g44", "ann", "d1", "wxyz", 1, collections, limits or Limits())
    return known.as_json(today or Use())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The bodies that a proxy is sent, which has three keys."""
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            bodies.append(json.loads(request.content))
            return httpx.Response(201, json={"key": SECRET, **shown()})
        return httpx.Response(200, json={"keys": [shown(), shown(()), shown(("core", "small"))], "next": None})

    here = httpx.MockTransport(answer)
    command = import_module("bench_proxy.cli.key")  # the package has its command under this name
    monkeypatch.setattr(command, "client", lambda url, key: httpx.Client(base_url=url, transport=here))
    return bodies


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["key", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_list_says_of_each_key_whether_it_calls_all_collections_some_or_none(sent: list[dict[str, Any]]) -> None:
    said = [line.partition(" ann: ")[2].partition(";")[0] for line in run("list").splitlines()]
    assert said == ["all collections", "no collection", "core, small"]


@pytest.mark.parametrize(("options", "collections"), [((), None), (("--collection", "core"), ["core"])])
def test_a_key_is_for_all_collections_unless_some_are_named(
    sent: list[dict[str, Any]], options: tuple[str, ...], collections: list[str] | None
) -> None:
    assert run("create", "ann", *options) == f"{SECRET}\n"
    assert [body["collections"] for body in sent] == [collections]


@pytest.mark.parametrize(
    ("limits", "today", "said"),
    [
        (Limits(), Use(), "all collections; never used"),
        (Limits(), Use(2_000_000, 0.25), "all collections; 2,000,000 tokens today; 0.25 dollars today; never used"),
        (Limits(tokens_a_day=500), Use(720), "all collections; 720 of 500 tokens today; never used"),
        (Limits(cost_a_day=2.5), Use(), "all collections; 0 of 2.5 dollars today; never used"),
        (Limits(requests_a_minute=1), Use(), "all collections; 1 request a minute; never used"),
        (Limits(requests_a_minute=60), Use(), "all collections; 60 requests a minute; never used"),
    ],
)
def test_the_list_says_what_was_used_of_which_limit(limits: Limits, today: Use, said: str) -> None:
    assert _line(shown(limits=limits, today=today)).endswith(f" ann: {said}")


def test_a_key_that_is_to_be_revoked_is_not_shown() -> None:
    told = CliRunner().invoke(main, ["key", "revoke", SECRET])
    assert told.exit_code == 1
    assert "by its id" in told.output
    assert SECRET not in told.output


@pytest.mark.parametrize(
    ("env", "key"),
    [
        ({"BENCH_KEY": "sk-admin", "LITELLM_MASTER_KEY": "sk-master"}, "sk-admin"),
        ({"BENCH_KEY": SECRET, "LITELLM_MASTER_KEY": "sk-master"}, "sk-master"),
        ({"BENCH_KEY": SECRET, "LITELLM_MASTER_KEY": None}, SECRET),
        ({"BENCH_KEY": None, "LITELLM_MASTER_KEY": "sk-master"}, "sk-master"),
    ],
)
def test_the_master_key_asks_where_bench_key_holds_a_bench_key(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str | None], key: str
) -> None:
    asked = []

    def client(url: str, key: str) -> httpx.Client:
        asked.append(key)
        answer = httpx.Response(200, json={"keys": [], "next": None})
        return httpx.Client(base_url=url, transport=httpx.MockTransport(lambda _: answer))

    monkeypatch.setattr(import_module("bench_proxy.cli.key"), "client", client)
    assert CliRunner(env=env).invoke(main, ["key", "list"]).exit_code == 0
    assert asked == [key]

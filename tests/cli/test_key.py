"""`bench-proxy key`: what it sends and what it prints."""

import json
from importlib import import_module
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from bench_proxy.cli import main
from bench_proxy.keys import BenchKey, Use

SECRET = "bpk_" + "x" * 43


def shown(collections: tuple[str, ...] | None) -> dict[str, Any]:
    known = BenchKey("k20261130-042344-plxokog6vgqi3g44", "ann", "d1", "wxyz", 1, collections)
    return known.as_json(Use())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The bodies that a proxy is sent, which has three keys."""
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            bodies.append(json.loads(request.content))
            return httpx.Response(201, json={"key": SECRET, **shown(None)})
        return httpx.Response(200, json={"keys": [shown(None), shown(()), shown(("core", "small"))], "next": None})

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

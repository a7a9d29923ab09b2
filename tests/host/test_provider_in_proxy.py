"""A model of LiteLLM's proxy whose deployment is a collection takes LiteLLM's own route, and works there."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, OpenAI

from tests.proxy import EXTENSION, Proxy, ProxyFailed
from tests.upstream import Upstream

Json = dict[str, Any]

BOOKS = '''
"""Writes down what LiteLLM's callbacks are told."""
import json
import os
from litellm.integrations.custom_logger import CustomLogger


class Books(CustomLogger):
    def _note(self, kind, kwargs):
        metadata = kwargs["litellm_params"]["metadata"]
        line = {
            "kind": kind,
            "model": kwargs["model"],
            "cost": kwargs.get("response_cost"),
            "key": metadata.get("user_api_key"),
            "origin": metadata.get("internal_call_origin"),
            "tags": metadata.get("tags"),
        }
        with open(os.environ["BOOKS"], "a") as file:
            file.write(json.dumps(line) + "\\n")

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        self._note("ok", kwargs)

    async def async_log_failure_event(self, kwargs, response_obj, start_time, end_time):
        self._note("failed", kwargs)


books = Books()
'''
OTHER = '''
"""Another custom provider, so that LiteLLM's configuration has a table of them."""
from litellm import CustomLLM


class Other(CustomLLM):
    async def acompletion(self, **call):
        response = call["model_response"]
        response.choices[0].message.content = "I am another."
        return response


other = Other()
'''
MEMBERS = ("ok-a", "ok-b", "ok-c", "fail500-a", "rate7-a", "gate-a", "context-a")
COLLECTIONS: dict[str, Json] = {
    "core": {"members": ["ok-a", "ok-b"]},
    "choices": {"members": ["ok-a", "ok-b"], "reply": "choices"},
    "live": {"members": ["ok-a", "ok-b"], "stream": "live"},
    "broken": {"members": ["fail500-a"]},
    "limited": {"members": ["rate7-a"]},
    "too-long": {"members": ["context-a"]},
    "silent": {"members": ["gate-a"], "deadline": 0.2},
    "late": {"members": ["ok-a", "gate-a"], "quorum": 1},
}
MESSAGES: Any = [{"role": "user", "content": "Who are you?"}]


def block() -> Json:
    return {
        "collections": {name: {"explorers": 0, "shape": "general", **c} for name, c in COLLECTIONS.items()},
        "models": {name: {"family": name} for name in MEMBERS},
        "timing": {"seat_timeout": 15},
    }


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("books") / "books.jsonl"


@pytest.fixture(scope="module")
def proxy(upstream: Upstream, ledger: Path) -> Iterator[Proxy]:
    prices = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.001}
    models: Json = {name: {"litellm_params": {"model": f"openai/{name}", **prices}} for name in MEMBERS}
    models |= {f"panel-{name}": {"litellm_params": {"model": f"bench/{name}"}} for name in COLLECTIONS}
    models["another"] = {"litellm_params": {"model": "other/one"}}
    running = Proxy(
        upstream.api_base,
        models,
        bench=block(),
        callbacks=[EXTENSION, "books.books"],
        litellm_settings={"custom_provider_map": [{"provider": "other", "custom_handler": "other.other"}]},
        router_settings={
            "disable_cooldowns": True,
            "num_retries": 0,
            "fallbacks": [{"fail500-a": ["panel-core"]}, {"panel-broken": ["ok-c"]}],
        },
        files={"books.py": BOOKS, "other.py": OTHER},
        env={"BOOKS": str(ledger)},
    )
    with running:
        yield running


@pytest.fixture
def server(upstream: Upstream) -> Upstream:
    upstream.clear()
    return upstream


@pytest.fixture
def client(proxy: Proxy, server: Upstream) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{proxy.url}/v1", api_key=proxy.key, max_retries=0) as client:
        yield client


def said(streamed: list[Any], index: int = 0) -> str:
    return "".join(c.delta.content or "" for chunk in streamed for c in chunk.choices if c.index == index)


def test_a_collection_answers_under_a_models_name(client: OpenAI) -> None:
    answer: Any = client.chat.completions.create(model="panel-core", messages=MESSAGES)
    assert answer.model == "panel-core"
    assert [seat["answer"] for seat in answer.bench["seats"]] == ["I am ok-a.", "I am ok-b."]
    assert answer.bench["verdict"] == {"method": "POST", "url": "/bench/verdict"}
    assert answer.choices[0].message.content.startswith("# bench/core\n\n")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (20, 10)


@pytest.mark.parametrize("model", ["panel-core", "panel-live"])
def test_it_streams(model: str, client: OpenAI) -> None:
    streamed: list[Any] = list(
        client.chat.completions.create(
            model=model, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    )
    text = said(streamed)
    assert "I am ok-a." in text
    assert "I am ok-b." in text
    assert {chunk.model for chunk in streamed} == {model}
    assert [c.finish_reason for chunk in streamed for c in chunk.choices if c.finish_reason] == ["stop"]
    assert [chunk.usage.total_tokens for chunk in streamed if chunk.usage] == [30]
    [data] = [chunk.bench for chunk in streamed if getattr(chunk, "bench", None)]
    assert [seat["status"] for seat in data["seats"]] == ["ok", "ok"]


def test_streamed_choices_are_put_together_by_openais_own_reader(client: OpenAI) -> None:
    with client.chat.completions.stream(model="panel-choices", messages=MESSAGES) as stream:
        whole = stream.get_final_completion()
    assert [c.message.content for c in whole.choices] == ["I am ok-a.", "I am ok-b."]
    assert [c.finish_reason for c in whole.choices] == ["stop", "stop"]


@pytest.mark.parametrize("stream", [False, True])
def test_it_is_the_fallback_of_a_failing_model(stream: bool, client: OpenAI) -> None:
    answer: Any = client.chat.completions.create(model="fail500-a", messages=MESSAGES, stream=stream)
    text = said(list(answer)) if stream else answer.choices[0].message.content
    assert text.startswith("# bench/core\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_is_its_fallback(stream: bool, client: OpenAI) -> None:
    answer: Any = client.chat.completions.create(model="panel-broken", messages=MESSAGES, stream=stream)
    assert (said(list(answer)) if stream else answer.choices[0].message.content) == "I am ok-c."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "status", "says"),
    [
        ("panel-limited", 429, "rate7-a error (429 rate_limit"),
        ("panel-too-long", 400, "context-a error (400 context_window"),
        ("panel-silent", 504, "gate-a late"),
    ],
)
def test_a_failure_has_its_status(model: str, status: int, says: str, stream: bool, client: OpenAI) -> None:
    with pytest.raises(APIStatusError) as failed:
        client.chat.completions.create(model=model, messages=MESSAGES, stream=stream)
    assert failed.value.status_code == status
    assert says in failed.value.message
    if status == 429 and not stream:
        assert failed.value.response.headers["retry-after"] == "7"


def test_options_come_with_the_body_or_as_headers(client: OpenAI, server: Upstream) -> None:
    in_body: Any = client.chat.completions.create(
        model="panel-core", messages=MESSAGES, extra_body={"bench": {"with": ["ok-c"]}}
    )
    in_header: Any = client.chat.completions.create(
        model="panel-core", messages=MESSAGES, extra_headers={"X-Bench-With": "ok-c", "X-Bench-Reply": "choices"}
    )
    assert [seat["alias"] for seat in in_body.bench["seats"]] == ["ok-a", "ok-b", "ok-c"]
    assert [c.message.content for c in in_header.choices] == ["I am ok-a.", "I am ok-b.", "I am ok-c."]
    assert all("bench" not in call.body for call in server.calls())


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/completions"])
def test_litellms_other_formats_reach_it_too(path: str, proxy: Proxy, server: Upstream) -> None:
    asked = {"messages": MESSAGES, "max_tokens": 50} if path == "/v1/messages" else {"input": "Who are you?"}
    asked = {"prompt": "Who are you?"} if path == "/v1/completions" else asked
    with proxy.client() as http:
        response = http.post(path, json={"model": "panel-core", **asked})
    assert response.status_code == 200, response.text
    assert "I am ok-a." in response.text
    assert "I am ok-b." in response.text


def test_another_custom_provider_still_answers(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="another", messages=MESSAGES)
    assert answer.choices[0].message.content == "I am another."


def lines(ledger: Path, count: int) -> list[Json]:
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        found = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
        if len(found) >= count:
            break
        time.sleep(0.05)
    time.sleep(0.3)  # for one too many
    return [json.loads(line) for line in ledger.read_text().splitlines()]


@pytest.mark.parametrize("stream", [False, True])
def test_each_call_is_logged_once_and_to_the_key_that_asked(stream: bool, client: OpenAI, ledger: Path) -> None:
    before = len(lines(ledger, 0)) if ledger.exists() else 0
    answer: Any = client.chat.completions.create(model="panel-core", messages=MESSAGES, stream=stream)
    if stream:
        list(answer)
    logged = {line["model"]: line for line in lines(ledger, before + 3)[before:]}
    assert len(lines(ledger, before + 3)) == before + 3
    assert {name: line["cost"] for name, line in logged.items()} == {"core": 0.0, "ok-a": 0.015, "ok-b": 0.015}
    assert logged["core"]["key"]
    assert {line["key"] for line in logged.values()} == {logged["core"]["key"]}
    # What another call has caused is billed, and not counted against the key's token limits once more.
    assert {name: line["origin"] for name, line in logged.items()} == {
        "core": None,
        "ok-a": "bench_proxy",
        "ok-b": "bench_proxy",
    }
    assert "bench-collection:core" in logged["ok-a"]["tags"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("collection", ["core", "live"])
def test_the_seats_of_a_panel_are_billed_to_the_key_that_asked(
    collection: str, stream: bool, client: OpenAI, ledger: Path
) -> None:
    """Asked on our own route, too, of which LiteLLM's callbacks hear nothing else."""
    list(client.chat.completions.create(model="ok-c", messages=MESSAGES, stream=True))
    before = len(lines(ledger, 1))
    asked_by = lines(ledger, 1)[-1]["key"]
    answer: Any = client.chat.completions.create(model=f"bench/{collection}", messages=MESSAGES, stream=stream)
    panel = ([c for c in answer if c.model_extra and "bench" in c.model_extra][-1] if stream else answer).bench["panel"]
    logged = {line["model"]: line for line in lines(ledger, before + 2)[before:]}
    assert {name: line["cost"] for name, line in logged.items()} == {"ok-a": 0.015, "ok-b": 0.015}
    for number, name in enumerate(("ok-a", "ok-b"), 1):
        assert logged[name]["key"] == asked_by
        assert logged[name]["origin"] == "bench_proxy"
        assert {
            f"bench-panel:{panel}",
            f"bench-call:{panel}.member{number}",
            f"bench-collection:{collection}",
        } <= set(logged[name]["tags"])


def test_the_answers_are_on_the_record(client: OpenAI, proxy: Proxy) -> None:
    answer: Any = client.chat.completions.create(model="panel-core", messages=MESSAGES)
    with proxy.client() as http:
        kept = http.get(f"/bench/panels/{answer.bench['panel']}").json()
        judged = http.post("/bench/verdict", json={"call": answer.bench["seats"][0]["call"], "useful": True})
    assert kept["collection"] == "bench/core"
    assert judged.json()["recorded"] is True


def test_a_member_that_is_a_collection_stops_the_start(upstream: Upstream) -> None:
    models: Json = {"ok-a": "ok-a", "panel": {"litellm_params": {"model": "bench/core"}}}
    collections = {"core": {"members": ["ok-a"]}, "outer": {"members": ["ok-a", "panel"]}}
    with pytest.raises(ProxyFailed, match=r"collections\.outer\.members\.1"):
        Proxy(upstream.api_base, models, bench={"collections": collections}).__enter__()


def test_a_late_seat_does_not_hold_up_the_end(upstream: Upstream, server: Upstream, tmp_path: Path) -> None:
    models: Json = {name: name for name in MEMBERS} | {"panel": {"litellm_params": {"model": "bench/late"}}}
    with Proxy(upstream.api_base, models, bench=block(), cwd=tmp_path) as proxy:
        with proxy.client() as http:
            answer = http.post("/v1/chat/completions", json={"model": "panel", "messages": MESSAGES}).json()
        assert [seat["status"] for seat in answer["bench"]["seats"]] == ["ok", "late"]
        proxy.restart()
        with proxy.client() as http:
            kept = http.get(f"/bench/panels/{answer['bench']['panel']}").json()
    assert kept["seats"][0]["status"] == "ok"

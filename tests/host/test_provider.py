"""A collection as a model of LiteLLM's: in a router, in fallbacks, in the bare SDK, asynchronous and synchronous."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import litellm
import pytest
from litellm import Router
from litellm.integrations.custom_logger import CustomLogger
from pydantic import BaseModel

from bench_proxy import install
from bench_proxy.config import COLLECTION_NAME, OTHERS_NAMES
from bench_proxy.errors import ConfigError
from bench_proxy.host.provider import PROVIDING
from bench_proxy.sdk import Installed
from tests.upstream import Upstream

Json = dict[str, Any]

MEMBERS = (
    "ok-a", "ok-b", "ok-c", "echo-a", "fail500-a", "rate7-a", "context-a", "gate-a", "gate-b", "step-a", "step-b",
    "cut2-a",
)  # fmt: skip
WITHIN = 10
"""Seconds after which a test has failed; nothing here takes any."""

COLLECTIONS: Json = {
    "core": {"members": ["ok-a", "ok-b"], "shape": "general"},
    "live": {"members": ["step-a", "step-b"], "stream": "live"},
    "choices": {"members": ["ok-a", "ok-b"], "reply": "choices"},
    "merged": {"members": ["ok-a", "ok-b"], "reply": "merged", "merger": "ok-c"},
    "partial": {"members": ["ok-a", "fail500-a"]},
    "broken": {"members": ["fail500-a"]},
    "limited": {"members": ["rate7-a"]},
    "too-long": {"members": ["context-a"]},
    "late": {"members": ["ok-a", "gate-b"]},
    "silent": {"members": ["gate-b"], "deadline": 0.2},
    "echo": {"members": ["echo-a"]},
    "held": {"members": ["gate-a"]},
    "stopped": {"members": ["gate-a"], "on_disconnect": "cancel"},
    "gpt-4o": {"members": ["ok-a"]},
}
MESSAGES = [{"role": "user", "content": "Who are you?"}]


def deployment(model: str, server: Upstream, alias: str = "") -> Json:
    params = {"model": f"openai/{model}", "api_base": server.api_base, "api_key": "sk-upstream"}
    prices = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.001}
    return {"model_name": alias or model, "litellm_params": {**params, **prices}}


def panel(alias: str, model: str) -> Json:
    return {"model_name": alias, "litellm_params": {"model": model}}


def router_of(server: Upstream, *entries: Json, **settings: Any) -> Router:
    listed = [deployment(name, server) for name in MEMBERS]
    return Router(model_list=[*listed, *entries], **{"num_retries": 0, "disable_cooldowns": True, **settings})


def block(**more: Any) -> Json:
    collections = {name: {"explorers": 0, **collection} for name, collection in COLLECTIONS.items()}
    return {"collections": collections, "models": {name: {"family": name} for name in MEMBERS}, **more}


@pytest.fixture
def server(upstream: Upstream) -> Upstream:
    upstream.clear()
    return upstream


@pytest.fixture
def router(server: Upstream) -> Router:
    named = [panel(name, f"bench/{name}") for name in COLLECTIONS]
    fallbacks = [{"fail500-a": ["core"]}, {"broken": ["ok-c"]}, {"limited": ["ok-c"]}]
    return router_of(
        server,
        *named,
        panel("bench/*", "bench/*"),
        fallbacks=fallbacks,
        context_window_fallbacks=[{"too-long": ["ok-c"]}],
    )


@pytest.fixture
async def installed(router: Router, tmp_path: Path, server: Upstream) -> AsyncIterator[Installed]:
    async with install(router, block(), ledger=f"sqlite:///{tmp_path}/bench.db") as handle:
        yield handle
        for held in ("gate-a", "gate-b"):  # closing waits for late seats
            server.release(held, 10)


@pytest.fixture
def for_nobody(router: Router, tmp_path: Path) -> Iterator[Installed]:
    """Installed for a program without an event loop."""
    handle = install(router, block(), ledger=f"sqlite:///{tmp_path}/bench.db")
    yield handle
    asyncio.run(handle.close())


class Books(CustomLogger):
    """What LiteLLM's callbacks are told."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str, float | None]] = []

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.lines.append(("ok", kwargs["model"], kwargs["response_cost"]))

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.lines.append(("failed", kwargs["model"], None))

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.lines.append(("ok, synchronous", kwargs["model"], kwargs["response_cost"]))

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.lines.append(("failed, synchronous", kwargs["model"], None))


@pytest.fixture
def books() -> Books:
    kept = Books()
    litellm.callbacks = [kept]
    return kept


async def settled(books: Books, count: int) -> list[tuple[str, str, float | None]]:
    """The lines, sorted, once there are so many and LiteLLM has had the time to write one too many."""
    async with asyncio.timeout(WITHIN):
        while len(books.lines) < count:  # noqa: ASYNC110  they come from threads too
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    return sorted(books.lines, key=str)


async def ask(model: str = "bench/core", **more: Any) -> Any:
    return await asyncio.wait_for(litellm.acompletion(model=model, messages=MESSAGES, **more), WITHIN)


async def chunks(stream: Any) -> list[Any]:
    async with asyncio.timeout(WITHIN):
        return [chunk async for chunk in stream]


def text(streamed: list[Any], index: int = 0) -> str:
    choices = [choice for chunk in streamed for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def finishes(streamed: list[Any]) -> dict[int, str]:
    return {c.index: c.finish_reason for chunk in streamed for c in chunk.choices if c.finish_reason}


# Whole

WAYS = ("a router's name", "a router's wildcard", "no router")


@pytest.mark.parametrize("way", WAYS)
async def test_a_collection_answers_like_any_model(way: str, router: Router, installed: Installed) -> None:
    call = litellm.acompletion if way == "no router" else router.acompletion
    response = await call(model="core" if way == "a router's name" else "bench/core", messages=MESSAGES)
    assert response.model == "bench/core"
    assert response.id == f"chatcmpl-{response.bench['panel']}"
    [choice] = response.choices
    assert choice.finish_reason == "stop"
    assert "I am ok-a." in choice.message.content
    assert "I am ok-b." in choice.message.content
    assert response.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "total_tokens": 30,
    }


async def test_the_bench_data_is_a_field_of_the_response(installed: Installed) -> None:
    response = await ask()
    assert [(seat["alias"], seat["status"], seat["answer"]) for seat in response.bench["seats"]] == [
        ("ok-a", "ok", "I am ok-a."),
        ("ok-b", "ok", "I am ok-b."),
    ]
    assert response.model_dump()["bench"] == response.bench
    assert "verdict" not in response.bench
    assert response.choices[0].message.content.endswith(
        f"Say which answers were useful by their call ids, such as `{response.bench['panel']}.member1`.\n"
    )


async def test_a_public_url_says_where_verdicts_go(router: Router, tmp_path: Path) -> None:
    config = block(access={"public_url": "https://bench.example.com/"})
    async with install(router, config, ledger=f"sqlite:///{tmp_path}/bench.db"):
        response = await ask()
    assert response.bench["verdict"]["url"] == "https://bench.example.com/bench/verdict"


async def test_the_reply_mode_is_named_behind_the_collection(installed: Installed) -> None:
    response = await ask("bench/core:choices")
    assert [c.message.content for c in response.choices] == ["I am ok-a.", "I am ok-b."]
    assert response.model == "bench/core:choices"


async def test_a_merged_reply(installed: Installed) -> None:
    response = await ask("bench/merged")
    assert response.choices[0].message.content.startswith("I am ok-c.")
    assert response.bench["merger"]["alias"] == "ok-c"


async def test_a_partial_panel_answers_and_says_so(installed: Installed) -> None:
    response = await ask("bench/partial")
    assert response.bench["partial"] is True
    assert "**Partial panel**: fail500-a failed (500 server_error)" in response.choices[0].message.content


class Joke(BaseModel):
    punchline: str


async def test_settings_reach_the_models_as_they_were_sent(installed: Installed, server: Upstream) -> None:
    response = await ask(
        "bench/echo",
        max_completion_tokens=7,
        temperature=0,
        seed=4,
        top_p=0.5,
        stop=["END"],
        logit_bias={"5": 1},
        reasoning_effort="low",
        drop_params=True,
        top_k=5,
        extra_body={"vendor": {"own": 1}, "bench": {"explorers": 0}},
    )
    [call] = server.calls()
    assert {k: v for k, v in call.body.items() if k not in {"model", "messages"}} == {
        "max_completion_tokens": 7,
        "temperature": 0,
        "seed": 4,
        "top_p": 0.5,
        "stop": ["END"],
        "logit_bias": {"5": 1},
        "reasoning_effort": "low",
        "top_k": 5,
        "vendor": {"own": 1},
    }
    assert response.bench["seats"][0]["status"] == "ok"


async def test_what_litellm_does_not_know_of_a_provider_is_let_in_by_name(
    installed: Installed, server: Upstream
) -> None:
    with pytest.raises(litellm.UnsupportedParamsError):
        await ask("bench/echo", reasoning_effort="low")
    await ask("bench/echo", reasoning_effort="low", allowed_openai_params=["reasoning_effort"])
    assert [call.body["reasoning_effort"] for call in server.calls()] == ["low"]


async def test_a_response_format_may_be_a_class(installed: Installed, server: Upstream) -> None:
    await ask("bench/echo", response_format=Joke)
    [call] = server.calls()
    assert call.body["response_format"]["json_schema"]["name"] == "Joke"


async def test_messages_reach_the_models_as_they_were_sent(installed: Installed, server: Upstream) -> None:
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Who are you?", "name": "me"},
    ]
    await litellm.acompletion(model="bench/echo", messages=said)
    assert server.calls()[0].body["messages"] == said


@pytest.mark.parametrize("way", ["bench", "extra_body"])
async def test_options_are_taken_and_do_not_reach_the_models(way: str, installed: Installed, server: Upstream) -> None:
    options = {"with": ["ok-c"], "shape": "review", "blind": False}
    response = await ask("bench/echo", **({"bench": options} if way == "bench" else {"extra_body": {"bench": options}}))
    assert {seat["alias"]: seat["seat"] for seat in response.bench["seats"]} == {"echo-a": "member", "ok-c": "guest"}
    assert response.bench["shape_by"] == "request"
    assert all("bench" not in call.body and "with" not in call.body for call in server.calls())


# Streamed


@pytest.mark.parametrize("way", WAYS)
async def test_a_stream_says_what_a_whole_reply_says(way: str, router: Router, installed: Installed) -> None:
    call = litellm.acompletion if way == "no router" else router.acompletion
    model = "core" if way == "a router's name" else "bench/core"
    streamed = await chunks(await call(model=model, messages=MESSAGES, stream=True))
    said = text(streamed)
    assert said.startswith("# bench/core\n\n")
    assert "I am ok-a." in said
    assert "I am ok-b." in said
    assert streamed[0].choices[0].delta.role == "assistant"
    assert finishes(streamed) == {0: "stop"}
    assert streamed[-1].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in streamed}) == 1


async def test_a_stream_carries_the_bench_data_once_before_its_last_chunk(installed: Installed) -> None:
    streamed = await chunks(await ask(stream=True))
    [(at, data)] = [(i, chunk.bench) for i, chunk in enumerate(streamed) if getattr(chunk, "bench", None)]
    assert at == len(streamed) - 2
    assert [seat["answer"] for seat in data["seats"]] == ["I am ok-a.", "I am ok-b."]


async def test_a_stream_reports_the_tokens_of_all_seats(installed: Installed) -> None:
    streamed = await chunks(await ask(stream=True, stream_options={"include_usage": True}))
    [usage] = [chunk.usage for chunk in streamed if getattr(chunk, "usage", None)]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 10, 30)


async def test_live_text_comes_as_it_is_said(installed: Installed, server: Upstream) -> None:
    server.release("step-b", 100)
    server.release("step-a", 1)
    stream = aiter(await ask("bench/live", stream=True))
    said = ""
    async with asyncio.timeout(WITHIN):
        while "step-b" not in said or "I " not in said:
            said += (await anext(stream)).choices[0].delta.content or ""
        server.release("step-a", 100)
        async for chunk in stream:
            said += chunk.choices[0].delta.content or ""
    assert "I am step-a." in said
    assert "I am step-b." in said


async def test_streamed_choices_are_whole_by_their_index(installed: Installed) -> None:
    streamed = await chunks(await ask("bench/choices", stream=True))
    assert (text(streamed, 0), text(streamed, 1)) == ("I am ok-a.", "I am ok-b.")
    assert finishes(streamed) == {0: "stop", 1: "stop"}
    begun = [c.index for chunk in streamed for c in chunk.choices if c.delta.role]
    assert begun == [0, 1]


async def test_a_streamed_merge(installed: Installed) -> None:
    streamed = await chunks(await ask("bench/merged", stream=True))
    assert text(streamed).startswith("I am ok-c.\n\n---\n\nMerged by ok-c")


# Refusals and failures

FAILURES = [
    ("bench/broken", litellm.BadGatewayError, 502, "fail500-a error (500 server_error"),
    ("bench/limited", litellm.RateLimitError, 429, "rate7-a error (429 rate_limit"),
    ("bench/too-long", litellm.ContextWindowExceededError, 400, "context-a error (400 context_window"),
    ("bench/silent", litellm.Timeout, 504, "gate-b late"),
    ("bench/nothing", litellm.NotFoundError, 404, "bench/core"),
    ("bench/core:loud", litellm.BadRequestError, 400, ":merged"),
]


@pytest.mark.parametrize(("model", "kind", "status", "says"), FAILURES, ids=[f[0] for f in FAILURES])
async def test_a_failure_is_one_of_litellms_own(
    model: str, kind: type[Exception], status: int, says: str, installed: Installed
) -> None:
    with pytest.raises(kind) as failed:
        await ask(model)
    assert getattr(failed.value, "status_code", None) == status
    assert says in str(failed.value)


@pytest.mark.parametrize(("model", "kind", "status", "says"), FAILURES, ids=[f[0] for f in FAILURES])
async def test_a_streamed_failure_is_too_before_the_first_chunk(
    model: str, kind: type[Exception], status: int, says: str, router: Router, installed: Installed
) -> None:
    with pytest.raises(kind) as failed:
        await router.acompletion(model=model, messages=MESSAGES, stream=True, disable_fallbacks=True)
    assert getattr(failed.value, "status_code", None) == status
    assert says in str(failed.value)


async def test_without_a_router_litellm_wraps_a_streams_failure(installed: Installed) -> None:
    with pytest.raises(litellm.exceptions.MidStreamFallbackError) as failed:
        await chunks(await ask("bench/broken", stream=True))
    assert isinstance(failed.value.original_exception, litellm.BadGatewayError)
    assert failed.value.is_pre_first_chunk


async def test_a_rate_limit_says_how_long(installed: Installed) -> None:
    with pytest.raises(litellm.RateLimitError) as failed:
        await ask("bench/limited")
    assert failed.value.response.headers["retry-after"] == "7"


async def test_a_partial_panel_that_is_refused_fails_before_its_first_chunk(
    router: Router, installed: Installed
) -> None:
    refused = {"bench": {"partial": "refuse"}}
    with pytest.raises(litellm.BadGatewayError, match="partial, which was refused"):
        await router.acompletion(model="bench/partial", messages=MESSAGES, stream=True, **refused)


@pytest.mark.parametrize(
    "asked",
    [
        {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]},
        {"n": 2},
        {"bench": {"surprise": 1}},
        {"bench": {"with": ["nobody"]}},
        {"temperature": "hot"},
    ],
    ids=lambda asked: next(iter(asked)),
)
async def test_what_a_panel_cannot_honour_is_refused_and_nobody_is_asked(
    asked: Json, installed: Installed, server: Upstream
) -> None:
    with pytest.raises(litellm.BadRequestError):
        await ask(**asked)
    assert server.calls() == []


async def test_it_answers_nothing_but_chat(installed: Installed) -> None:
    with pytest.raises(litellm.BadRequestError, match="chat completions only"):
        await litellm.aembedding(model="bench/core", input=["x"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_collection_is_the_fallback_of_a_failing_model(
    stream: bool, router: Router, installed: Installed
) -> None:
    response = await router.acompletion(model="fail500-a", messages=MESSAGES, stream=stream)
    said = text(await chunks(response)) if stream else response.choices[0].message.content
    assert said.startswith("# bench/core\n\n")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failing", ["broken", "limited", "too-long"])
async def test_a_model_is_the_fallback_of_a_failing_collection(
    failing: str, stream: bool, router: Router, installed: Installed
) -> None:
    response = await router.acompletion(model=failing, messages=MESSAGES, stream=stream)
    said = text(await chunks(response)) if stream else response.choices[0].message.content
    assert said == "I am ok-c."


async def test_a_time_out_is_a_deadline(installed: Installed) -> None:
    response = await ask("bench/late", timeout=0.3)
    assert {s["alias"]: s["status"] for s in response.bench["seats"]} == {"ok-a": "ok", "gate-b": "late"}


async def test_a_fault_of_ours_tells_nothing_of_itself(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the secret")

    monkeypatch.setattr("bench_proxy.host.installation.read_brief", broken)
    with pytest.raises(litellm.InternalServerError) as failed:
        await ask()
    assert "the secret" not in str(failed.value)
    assert "the secret" in caplog.text


# Callers who leave


async def test_a_panel_goes_on_when_its_caller_has_left(installed: Installed, server: Upstream) -> None:
    asking = asyncio.create_task(litellm.acompletion(model="bench/held", messages=MESSAGES))
    await asyncio.to_thread(server.wait_for, lambda calls: calls)
    asking.cancel()
    await asyncio.wait([asking])
    server.release("gate-a")
    await installed.close()
    [call] = server.calls()
    assert (call.status, call.hung_up) == (200, False)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_panel_stops_with_its_caller_where_the_collection_says_so(
    stream: bool, installed: Installed, server: Upstream
) -> None:
    async def asks() -> None:
        response = await litellm.acompletion(model="bench/stopped", messages=MESSAGES, stream=stream)
        if stream:
            await chunks(response)

    asking = asyncio.create_task(asks())
    await asyncio.to_thread(server.wait_for, lambda calls: calls)
    asking.cancel()
    await asyncio.wait([asking])
    await asyncio.to_thread(server.wait_for, lambda calls: calls[0].hung_up)


async def test_late_seats_are_waited_for_by_close(installed: Installed, server: Upstream) -> None:
    await ask("bench/held", bench={"with": ["ok-a"], "quorum": 1})
    closing = asyncio.create_task(installed.close())
    await asyncio.sleep(0)
    assert not closing.done()
    server.release("gate-a")
    await asyncio.wait_for(closing, WITHIN)
    assert [call.hung_up for call in server.calls("gate-a")] == [False]


# The books


async def test_each_call_is_logged_once(installed: Installed, books: Books) -> None:
    await ask()
    assert await settled(books, 3) == [("ok", "core", 0.0), ("ok", "ok-a", 0.015), ("ok", "ok-b", 0.015)]


@pytest.mark.parametrize("usage", [None, {"include_usage": True}])
async def test_each_streamed_call_is_logged_once(
    usage: Json | None, router: Router, installed: Installed, books: Books
) -> None:
    await chunks(await router.acompletion(model="core", messages=MESSAGES, stream=True, stream_options=usage))
    assert await settled(books, 3) == [("ok", "core", 0.0), ("ok", "ok-a", 0.015), ("ok", "ok-b", 0.015)]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_collection_named_like_a_model_does_not_cost_what_that_costs(
    stream: bool, installed: Installed, books: Books
) -> None:
    response = await ask("bench/gpt-4o", stream=stream)
    if stream:
        await chunks(response)
    assert await settled(books, 2) == [("ok", "gpt-4o", 0.0), ("ok", "ok-a", 0.015)]


async def test_each_failure_is_logged_once(installed: Installed, books: Books) -> None:
    with pytest.raises(litellm.BadGatewayError):
        await ask("bench/broken")
    assert await settled(books, 2) == [("failed", "broken", None), ("failed", "fail500-a", None)]


# Names


def known_names() -> list[str]:
    """Everything that LiteLLM takes for a model's or a provider's name and that a collection could be called."""
    names = {name for key in litellm.model_cost for name in (key, key.partition("/")[2])}
    names |= {str(getattr(provider, "value", provider)) for provider in litellm.provider_list}
    return sorted(name for name in names if COLLECTION_NAME.fullmatch(name))


def test_a_collection_named_like_a_known_model_is_still_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM looks at the name behind the provider too, and sends some to the vendor that they sound like."""
    reached: list[str] = []

    def reach(**call: Any) -> Any:
        reached.append(call["model"])
        return call["model_response"]

    monkeypatch.setattr(PROVIDING, "completion", reach)
    names = [name for name in known_names() if not any(word in name for word in OTHERS_NAMES)]
    assert "gpt-4o" in names
    assert len(names) > 500
    for name in names:
        litellm.completion(model=f"bench/{name}", messages=MESSAGES)
    assert reached == names


@pytest.mark.parametrize("name", ["replicate", "my-replicate-2", "clarifai"])
def test_names_that_litellm_sends_elsewhere_are_refused(name: str, router: Router) -> None:
    with pytest.raises(ConfigError, match="choose another"):
        install(router, {"collections": {name: {"members": ["ok-a"]}}})


# Several installations


@pytest.fixture
async def two(server: Upstream, tmp_path: Path) -> AsyncIterator[tuple[Router, Router]]:
    """Two routers with the very same list of models, and each with a `core` of its own."""
    routers = router_of(server, panel("panel", "bench/core")), router_of(server, panel("panel", "bench/core"))
    families = {name: {"family": name} for name in MEMBERS}
    first = {"collections": {"core": {"members": ["ok-a"], "explorers": 0}}, "models": families}
    second = {
        "collections": {
            "core": {"members": ["ok-b"], "explorers": 0},
            "other": {"members": ["ok-c"], "explorers": 0},
        },
        "models": families,
    }
    handles = [
        install(router, config, ledger=f"sqlite:///{tmp_path}/{index}.db")
        for index, (router, config) in enumerate(zip(routers, (first, second), strict=True))
    ]
    yield routers
    for handle in handles:
        await handle.close()


def seats(response: Any) -> list[str]:
    return [seat["alias"] for seat in response.bench["seats"]]


async def test_each_routers_calls_reach_its_own_installation(two: tuple[Router, Router]) -> None:
    for router, member in zip(two, ("ok-a", "ok-b"), strict=True):
        assert seats(await router.acompletion(model="panel", messages=MESSAGES)) == [member]
        streamed = await chunks(await router.acompletion(model="panel", messages=MESSAGES, stream=True))
        assert f"I am {member}." in text(streamed)


async def test_two_routers_at_once_are_kept_apart(two: tuple[Router, Router]) -> None:
    asked = [router.acompletion(model="panel", messages=MESSAGES) for _ in range(5) for router in two]
    responses = await asyncio.gather(*asked)
    assert [seats(response) for response in responses] == [["ok-a"], ["ok-b"]] * 5


async def test_a_bare_call_goes_where_its_collection_is(two: tuple[Router, Router]) -> None:
    assert seats(await ask("bench/other")) == ["ok-c"]


async def test_a_bare_call_that_two_could_answer_is_refused(two: tuple[Router, Router], server: Upstream) -> None:
    with pytest.raises(litellm.BadRequestError, match='2 installations of bench-proxy have a collection "core"'):
        await ask("bench/core")
    assert server.calls() == []


async def test_a_bare_call_that_nobody_can_answer_is_refused(two: tuple[Router, Router]) -> None:
    with pytest.raises(litellm.NotFoundError, match="no installation of bench-proxy has"):
        await ask("bench/nothing")


async def test_nobody_answers_when_nothing_is_installed(server: Upstream) -> None:
    with pytest.raises(litellm.NotFoundError, match="no installation of bench-proxy has"):
        await ask("bench/core")


@pytest.mark.parametrize("mark", ["gone", ["no name"]])
async def test_a_mark_that_nobody_has_is_refused(mark: Any, installed: Installed) -> None:
    with pytest.raises(litellm.NotFoundError, match="was closed"):
        await ask(metadata={"bench_installation": mark})


async def test_a_closed_installation_answers_no_more(router: Router, installed: Installed) -> None:
    await installed.close()
    with pytest.raises(litellm.NotFoundError):
        await ask("bench/core")
    with pytest.raises(litellm.NotFoundError):
        await router.acompletion(model="core", messages=MESSAGES)


# A panel inside a panel


@pytest.mark.parametrize(
    ("collection", "where"),
    [
        ({"members": ["ok-a", "core"]}, "collections.outer.members.1"),
        ({"members": ["ok-a"], "merger": "core"}, "collections.outer.merger"),
        ({"members": ["anything/core"]}, "collections.outer.members.0"),
        ({"members": ["renamed"]}, "collections.outer.members.0"),
    ],
)
def test_a_collection_behind_a_models_name_is_no_member(collection: Json, where: str, server: Upstream) -> None:
    router = router_of(
        server,
        panel("core", "bench/core"),
        panel("anything/*", "bench/*"),
        model_group_alias={"renamed": "core"},
    )
    with pytest.raises(ConfigError) as refused:
        install(router, {"collections": {"core": {"members": ["ok-a"]}, "outer": collection}})
    assert [fault.partition(":")[0] for fault in refused.value.faults] == [where]
    assert "is a collection itself" in str(refused.value)


async def test_a_collection_behind_a_models_name_is_no_explorer_and_no_guest(
    router: Router, tmp_path: Path, server: Upstream
) -> None:
    config = block()
    config["collections"]["core"]["explorers"] = 2
    config["models"] |= {name: {"family": name, "explore": False} for name in MEMBERS}
    async with install(router, config, ledger=f"sqlite:///{tmp_path}/bench.db"):
        response = await ask(bench={"with": ["live"]})
    assert seats(response) == ["ok-a", "ok-b"]
    assert [s["alias"] for s in response.bench["skipped"]] == ["live"]


@pytest.mark.parametrize("stream", ["seats", "live"])
async def test_a_seat_that_asks_for_a_panel_fails_and_the_others_answer(
    stream: str, router: Router, installed: Installed, server: Upstream
) -> None:
    """A deployment that became a collection behind everybody's back."""
    await ask()
    server.clear()
    for known in router.model_list:
        if known["model_name"] == "ok-b":
            known["litellm_params"]["model"] = "bench/echo"
    streamed = await chunks(await ask(stream=True, bench={"stream": stream}))
    [data] = [chunk.bench for chunk in streamed if getattr(chunk, "bench", None)]
    first, second = data["seats"]
    assert (first["alias"], first["status"]) == ("ok-a", "ok")
    assert (second["alias"], second["error"]["status"]) == ("ok-b", 400)
    assert "a panel cannot sit on a panel" in second["error"]["message"]
    assert [call.model for call in server.calls()] == ["ok-a"]


# Without an event loop


def test_a_synchronous_call_is_answered(router: Router, for_nobody: Installed) -> None:
    for call, model in ((litellm.completion, "bench/core"), (router.completion, "core")):
        response = call(model=model, messages=MESSAGES)
        assert seats(response) == ["ok-a", "ok-b"]
        assert response.usage.total_tokens == 30


def test_a_synchronous_stream_comes_as_it_is_said(router: Router, for_nobody: Installed) -> None:
    for call, model in ((litellm.completion, "bench/core"), (router.completion, "core")):
        streamed = list(call(model=model, messages=MESSAGES, stream=True))
        assert "I am ok-a." in text(streamed)
        assert finishes(streamed) == {0: "stop"}


def test_a_synchronous_failure_is_one_of_litellms_own(for_nobody: Installed) -> None:
    with pytest.raises(litellm.BadGatewayError, match="fail500-a error"):
        litellm.completion(model="bench/broken", messages=MESSAGES)
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(model="bench/nothing", messages=MESSAGES)


def test_a_synchronous_fallback(router: Router, for_nobody: Installed) -> None:
    assert seats(router.completion(model="fail500-a", messages=MESSAGES)) == ["ok-a", "ok-b"]
    assert router.completion(model="broken", messages=MESSAGES).choices[0].message.content == "I am ok-c."


def test_synchronous_calls_from_many_threads(for_nobody: Installed) -> None:
    answers: list[list[str]] = []

    def work() -> None:
        answers.append(seats(litellm.completion(model="bench/core", messages=MESSAGES)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN)
    assert answers == [["ok-a", "ok-b"]] * 8


async def test_a_synchronous_call_inside_an_event_loop_is_answered_too(installed: Installed) -> None:
    """As in a notebook: the loop that it blocks is not the one that works."""
    assert seats(litellm.completion(model="bench/core", messages=MESSAGES)) == ["ok-a", "ok-b"]


def test_a_panel_goes_on_when_its_synchronous_stream_is_dropped(for_nobody: Installed, server: Upstream) -> None:
    server.release("step-a", 1)
    stream = litellm.completion(model="bench/live", messages=MESSAGES, stream=True)
    next(iter(stream))
    stream.close()
    server.release("step-a", 100)
    server.release("step-b", 100)
    server.wait_for(lambda calls: len(calls) == 2 and all(call.end for call in calls))
    assert not any(call.hung_up for call in server.calls())


def test_each_synchronous_call_is_logged_once(for_nobody: Installed, books: Books) -> None:
    litellm.completion(model="bench/core", messages=MESSAGES)
    lines = asyncio.run(settled(books, 3))
    assert lines == [("ok", "ok-a", 0.015), ("ok", "ok-b", 0.015), ("ok, synchronous", "core", 0.0)]


# The record


async def test_what_was_answered_can_be_judged(installed: Installed) -> None:
    response = await ask()
    judged = await installed.verdict(response.bench["seats"][0]["call"], useful=True, note="right")
    assert (judged.recorded, judged.alias) == (True, "ok-a")
    lines = {line.sums.alias: line.sums for line in await installed.record()}
    assert (lines["ok-a"].useful, lines["ok-a"].answered, lines["ok-b"].useful) == (1, 1, 0)


def test_the_record_is_one_over_all_event_loops(for_nobody: Installed) -> None:
    call = asyncio.run(ask()).bench["seats"][0]["call"]
    litellm.completion(model="bench/core", messages=MESSAGES)
    assert asyncio.run(for_nobody.verdict(call, useful=True)).recorded
    [line] = [line for line in asyncio.run(for_nobody.record("core")) if line.sums.alias == "ok-a"]
    assert line.sums.answered == 2


# The configuration


@pytest.mark.parametrize("form", ["a block", "a block under its name", "a file", "a LiteLLM file"])
async def test_the_configuration_may_be_a_mapping_or_a_file(form: str, router: Router, tmp_path: Path) -> None:
    settings = {"collections": {"core": {"members": ["ok-a"], "explorers": 0}}}
    forms: dict[str, Any] = {"a block": settings, "a block under its name": {"bench": settings}}
    file = tmp_path / "bench.yaml"
    file.write_text(json.dumps(settings if form == "a file" else {"model_list": [], "bench": settings}))
    config = forms.get(form, file)
    async with install(router, config, ledger=f"sqlite:///{tmp_path}/bench.db"):
        assert seats(await ask("bench/core")) == ["ok-a"]


def test_every_fault_of_the_configuration_is_said(router: Router) -> None:
    with pytest.raises(ConfigError) as refused:
        install(router, {"collections": {"core": {"members": ["ok-aa"], "replies": "all"}}})
    assert 'LiteLLM has no model "ok-aa"; did you mean "ok-a"?' in str(refused.value) or "replies" in str(refused.value)

"""What is known of a model, who says it, what is learned, and what a panel makes of it."""

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.catalog import Catalog, HostFacts, Mapped, Model, fits
from bench_proxy.config import CollectionSettings, Config, ModelFacts
from bench_proxy.errors import LedgerUnavailable, PromptTooLarge
from bench_proxy.facts import Facts, Learned, Subject, learned, saw
from bench_proxy.formats.request import Brief
from bench_proxy.ledger.store import SqlLedger
from bench_proxy.panel.merging import candidates
from bench_proxy.panel.seating import Numbering, Plan, plan
from tests.proxy import Proxy
from tests.upstream import Upstream

Json = dict[str, Any]

# Precedence


def known(*deployments: HostFacts, facts: ModelFacts | None = None, news: Learned | None = None) -> Model:
    learnt = {}
    if news is not None:
        served = Catalog(deployments, {}).get(deployments[0].alias).served
        learnt = {(deployments[0].alias, served): news}
    return Catalog(deployments, {} if facts is None else {"gpt": facts}, learnt).get("gpt")


def deployed(underlying: str = "openai/gpt-4o", **more: Any) -> HostFacts:
    return HostFacts("gpt", underlying, **more)


MAPPED = Mapped(tools=True, vision=True, context_window=128_000, max_output=16_384, input_cost_per_token=0.01)


def test_the_operator_goes_before_litellm_before_what_was_learned_before_the_map() -> None:
    window, map_alone = Learned(context_window=32_000), deployed(mapped=MAPPED)
    told = deployed(context_window=64_000, mapped=MAPPED)
    stages = [
        (known(told, facts=ModelFacts(context_window=8_000), news=window), 8_000, "config"),
        (known(told, news=window), 64_000, "LiteLLM"),
        (known(map_alone, news=window), 32_000, "learned"),
        (known(map_alone), 128_000, "model map"),
        (known(deployed()), None, "unknown"),
    ]
    for model, value, source in stages:
        assert (model.context_window, model.sources["context_window"]) == (value, source)


def test_a_groups_window_is_the_smallest_of_its_deployments() -> None:
    model = known(deployed(context_window=8_000), deployed(mapped=MAPPED), deployed("openai/other"))
    assert (model.context_window, model.sources["context_window"]) == (8_000, "LiteLLM")
    model = known(deployed(context_window=200_000), deployed(mapped=MAPPED))
    assert (model.context_window, model.sources["context_window"]) == (128_000, "model map")


def test_a_learned_window_is_that_of_the_deployments_that_state_none() -> None:
    model = known(deployed(context_window=8_000), deployed(mapped=MAPPED), news=Learned(context_window=4_000))
    assert (model.context_window, model.sources["context_window"]) == (4_000, "learned")


@pytest.mark.parametrize(
    ("each", "together", "source"),
    [
        ((True, True), True, "LiteLLM"),
        ((True, False), False, "LiteLLM"),
        ((True, None), None, "unknown"),
        ((False, None), False, "LiteLLM"),
    ],
)
def test_a_group_can_do_what_all_its_deployments_can(
    each: tuple[bool | None, ...], together: bool | None, source: str
) -> None:
    model = known(*(deployed(vision=can) for can in each))
    assert (model.vision, model.sources["vision"]) == (together, source)


def test_what_was_learned_of_an_alias_is_forgotten_with_its_deployments() -> None:
    before, after = deployed("openai/small"), deployed("openai/large")
    served = Catalog([before], {}).get("gpt").served
    news = {("gpt", served): Learned(context_window=4096)}
    assert Catalog([before], {}, news).get("gpt").context_window == 4096
    assert Catalog([after], {}, news).get("gpt").context_window is None
    elsewhere = HostFacts("gpt", "openai/small", served="another place")
    assert Catalog([elsewhere], {}, news).get("gpt").context_window is None


def test_a_second_deployment_of_the_same_kind_changes_nothing() -> None:
    one, two = Catalog([deployed()], {}).get("gpt"), Catalog([deployed(), deployed()], {}).get("gpt")
    assert one.served == two.served
    assert "openai" not in one.served


def test_a_price_of_nothing_is_known_and_no_price_is_not() -> None:
    assert known(deployed(input_cost_per_token=0.0)).priced
    assert not known(deployed()).priced


def test_a_name_that_only_a_wildcard_serves_is_looked_up() -> None:
    catalog = Catalog([], {}, find=lambda alias: [HostFacts(alias, "openai/gpt-4o", mapped=MAPPED)])
    assert catalog.get("openai/gpt-4o").context_window == 128_000


# Learning


def test_a_window_is_only_ever_lowered_and_a_capability_only_learned() -> None:
    assert Learned(8192) | Learned(4096) == Learned(4096)
    assert Learned(4096) | Learned(8192) == Learned(4096)
    assert Learned(tools=True) | Learned(vision=True) == Learned(None, tools=True, vision=True)


@pytest.mark.parametrize(
    "value", [None, 0, -1, 511, 77.5, float("nan"), float("inf"), 10**400, -(10**400), "4096", b"", True, [], {}]
)
def test_what_cannot_be_a_window_is_none(value: object) -> None:
    assert learned(context_window=value).context_window is None


@pytest.mark.parametrize(
    ("value", "fact"), [(True, True), (1, True), (False, None), (0, None), ("yes", None), (7, None)]
)
def test_what_cannot_be_a_capability_is_none(value: object, fact: bool | None) -> None:
    assert learned(tools=value).tools is fact


@pytest.mark.parametrize(
    ("prompt_tokens", "shown"),
    [(None, False), (12, False), (90, False), (285, True), (1105, True)],
)
def test_that_a_model_saw_is_shown_by_what_it_counted_and_not_by_its_answer(
    prompt_tokens: int | None, shown: bool
) -> None:
    assert saw(prompt_tokens, text_tokens=20, images=1) is shown
    assert not saw(prompt_tokens, text_tokens=20, images=0)


class Kept:
    """A `FactStore` in memory, which may fail."""

    def __init__(self) -> None:
        self.facts: dict[Subject, Learned] = {}
        self.down = False

    async def learn(self, facts: Any) -> None:
        self._check()
        for subject, news in facts.items():
            self.facts[subject] = self.facts.get(subject, Learned()) | news

    async def learned(self) -> dict[Subject, Learned]:
        self._check()
        return dict(self.facts)

    def _check(self) -> None:
        if self.down:
            raise LedgerUnavailable("down")


async def test_processes_learn_from_each_other() -> None:
    store, one, two = Kept(), Facts(), Facts()
    one.learn("gpt", "here", Learned(8192))
    two.learn("gpt", "here", Learned(4096, tools=True))
    assert one.known == {("gpt", "here"): Learned(8192)}
    for facts in (one, two, one):
        await facts.exchange(store)
    assert one.known == two.known == store.facts == {("gpt", "here"): Learned(4096, tools=True)}


async def test_what_was_learned_while_the_store_was_down_is_told_later() -> None:
    store, facts = Kept(), Facts()
    facts.learn("gpt", "here", Learned(4096))
    store.down = True
    with pytest.raises(LedgerUnavailable):
        await facts.exchange(store)
    facts.learn("gpt", "here", Learned(vision=True))
    store.down = False
    await facts.exchange(store)
    assert store.facts == {("gpt", "here"): Learned(4096, vision=True)}


async def test_the_version_changes_with_what_is_known_and_only_then() -> None:
    store, facts = Kept(), Facts()
    facts.learn("gpt", "here", Learned(4096))
    version = facts.version
    facts.learn("gpt", "here", Learned(8192))
    await facts.exchange(store)
    assert facts.version == version
    store.facts[("other", "there")] = Learned(tools=True)
    await facts.exchange(store)
    assert facts.version > version


# In the ledger


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "bench.db"


@pytest.fixture
async def ledger(file: Path) -> AsyncIterator[SqlLedger]:
    opened = await SqlLedger.open(f"sqlite:///{file}", lambda: "full")
    yield opened
    await opened.close()


ODD = [0, -1, 511, 2**62, 1.5, float("inf"), "text", "", b"\xff\x00", None, "NaN", "4096", True]
AS_IT_STANDS = st.sampled_from(ODD) | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=20)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), AS_IT_STANDS, AS_IT_STANDS, AS_IT_STANDS), max_size=6))
def test_any_facts_give_a_valid_seating(rows: list[tuple[str, object, object, object]]) -> None:
    hosts = [HostFacts(alias, alias, vision=True if alias == "a" else None) for alias in "abc"]
    served = {m.alias: m.served for m in Catalog(hosts, {})}
    facts: dict[Subject, Learned] = {}
    for alias, window, tools, vision in rows:
        subject = (alias, served[alias])
        facts[subject] = facts.get(subject, Learned()) | learned(window, tools, vision)
    catalog = Catalog(hosts, {}, facts)
    for images in (False, True):
        try:
            planned = seated(["a", "b"], catalog, images=images, tokens=600)
        except PromptTooLarge:
            assert not all(fits(catalog.get(alias), 600) for alias in "ab")
        else:
            assert all(fits(catalog.get(seat.alias), 600) for seat in planned.seats)
            assert all(fits(model, 600) for model in planned.candidates)


async def test_odd_rows_do_not_hide_the_others(file: Path, ledger: SqlLedger) -> None:
    await ledger.learn({("good", "here"): Learned(4096, tools=True)})
    with closing(sqlite3.connect(file)) as database, database:
        for number, value in enumerate(ODD):
            row = (f"odd{number}", "here", value, value, value, 0)
            database.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?)", row)
    found = await ledger.learned()
    assert found[("good", "here")] == Learned(4096, tools=True)
    assert len(found) == len(ODD) + 1
    for number in range(len(ODD)):
        window = found[(f"odd{number}", "here")].context_window
        assert window is None or window >= 512
    await ledger.learn({("odd6", "here"): Learned(8192)})
    assert (await ledger.learned())[("odd6", "here")].context_window == 8192


# Seating by size and sight


def seated(members: list[str], catalog: Catalog, *, brief: Json | None = None, **more: Any) -> Plan:
    config = Config.model_validate({"collections": {"core": {"members": members, "explorers": 2}}})
    asked = Brief("bench/core", "core", "all", **(brief or {}))
    given: Json = {"images": False, "allowed": list(asked.guests), **more}
    return plan(Numbering("p1", most=5), asked, config, catalog, **given)


def sized(**windows: int | None) -> Catalog:
    return Catalog([HostFacts(alias, alias, context_window=window) for alias, window in windows.items()], {})


def test_a_prompt_that_is_too_large_for_members_is_refused_and_names_each_with_its_window() -> None:
    with pytest.raises(PromptTooLarge) as refused:
        seated(["a", "b", "c", "d"], sized(a=8192, b=128_000, c=4096, d=None), tokens=10_000)
    assert refused.value.status == 413
    assert "about 10,000 tokens" in refused.value.message
    assert "a (8,192 tokens), c (4,096 tokens)" in refused.value.message
    assert "128,000" not in refused.value.message


def test_a_prompt_as_large_as_the_window_fits() -> None:
    assert [s.alias for s in seated(["a"], sized(a=8192), tokens=8192).seats] == ["a"]


def test_an_unknown_window_is_never_refused() -> None:
    assert [s.alias for s in seated(["a"], sized(a=None), tokens=10**9).seats] == ["a"]


def test_a_member_that_sits_out_anyway_does_not_refuse_the_panel() -> None:
    hosts = [
        HostFacts("a", "a"),
        HostFacts("eye", "eye", context_window=600),
        HostFacts("old", "old", context_window=600),
    ]
    facts = {"eye": ModelFacts(role="vision"), "old": ModelFacts(retired=True)}
    planned = seated(["a", "eye", "old"], Catalog(hosts, facts), tokens=1000)
    assert [s.alias for s in planned.seats] == ["a"]
    assert {s.alias: s.why for s in planned.skipped} == {
        "eye": "only for images, and there is none in the request",
        "old": "retired",
    }


def test_a_guest_that_is_too_small_is_skipped_and_its_seat_goes_to_an_explorer() -> None:
    planned = seated(["a"], sized(a=None, g=600, x=None, y=700), brief={"guests": ("g",)}, tokens=1000)
    assert [(s.kind, s.alias, s.why) for s in planned.skipped] == [
        ("guest", "g", "its context window of 600 tokens is too small")
    ]
    assert planned.open_seats == 2
    assert [m.alias for m in planned.candidates] == ["x"]


def test_a_specialist_for_images_explores_only_on_images_whatever_the_shape() -> None:
    hosts = [HostFacts("a", "a", vision=True), HostFacts("eye", "eye", vision=True)]
    catalog = Catalog(hosts, {"eye": ModelFacts(role="vision")})
    assert [m.alias for m in seated(["a"], catalog, images=True).candidates] == ["eye"]
    assert seated(["a"], catalog, brief={"shape": "vision"}).candidates == ()


def test_a_merger_whose_window_is_too_small_for_the_answers_is_not_asked() -> None:
    catalog = sized(a=600, b=None, c=8192)
    members = CollectionSettings(members=("a", "b", "c"))
    assert candidates(members, {}, catalog, [], tokens=1000) == ["b", "c"]
    assert candidates(members, {}, catalog, [], tokens=600) == ["a", "b"]
    assert candidates(CollectionSettings(members=("b",), merger="a"), {}, catalog, [], tokens=1000) == []


# Through a real proxy

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk" + "QUJD" * 400
INLINE = f"data:image/png;base64,{PNG}"

WHO = """
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth

async def check(request, api_key):
    if api_key.endswith("limited"):
        return UserAPIKeyAuth(api_key=api_key, models=["bench/plain", "plain", "stated"])
    return UserAPIKeyAuth(api_key=api_key, user_role=LitellmUserRoles.PROXY_ADMIN)
"""


def info(model: str, **stated: Any) -> Json:
    return {"litellm_params": {"model": f"openai/{model}"}, "model_info": stated}


MODELS: dict[str, Any] = {
    "plain": "ok-plain",
    # The same model of the same provider, of which something is said in one place alone.
    "embedder": info("gpt-4o", mode="embedding", max_input_tokens=777, supports_vision=False),
    "mapped": "gpt-4o",
    "group": [
        info("ok-group", max_input_tokens=8192, supports_function_calling=True, supports_vision=True),
        info("ok-other", max_input_tokens=4096, supports_function_calling=True, supports_vision=False),
    ],
    "stated": info("ok-stated", max_input_tokens=64_000),
    "small": info("ok-small", max_input_tokens=1000),
    "explorer": "ok-explorer",
    "learner": "context4096-learner",
    "lost": "context2048-lost",
    "seer": info("in3000-seer", supports_vision=True),
    "specialist": "in3000-specialist",
    "boaster": "ok-boaster",
    "priced": info("ok-priced", input_cost_per_token=0.00001, output_cost_per_token=0.00002),
    "free": info("ok-free", input_cost_per_token=0, output_cost_per_token=0),
    "fetcher": {"litellm_params": {"model": "gemini/gemini-2.5-flash"}},
    "by-name/*": {"litellm_params": {"model": "openai/*"}},
}


def collection(*members: str, explorers: int = 0, **more: Any) -> Json:
    return {"members": list(members), "explorers": explorers, **more}


BENCH: Json = {
    "collections": {
        "plain": collection("plain", shape="general"),
        "small": collection("plain", "small", "explorer"),
        "guests": collection("plain", explorers=2, shape="general"),
        "learning": collection("learner", "plain"),
        "lost": collection("lost", "plain"),
        "images": collection("seer", "plain", "specialist", "fetcher"),
        "boasting": collection("boaster"),
        "blind": collection("plain", "explorer"),
        "costs": collection("plain", "priced", "free"),
        "merged": collection("seer", "specialist", reply="merged", merger="plain"),
        "wild": collection("by-name/gpt-4o-mini"),
    },
    "models": {
        **{alias: {"family": alias, "explore": alias == "explorer"} for alias in MODELS if "*" not in alias},
        "stated": {"family": "stated", "explore": False, "context_window": 32_768, "max_output": 2048},
        "specialist": {"family": "specialist", "role": "vision", "explore": False},
        "boaster": {"family": "boaster", "role": "vision", "explore": False},
    },
}


@pytest.fixture(scope="module")
def ledger_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("facts") / "bench.db"


def proxy_over(upstream: Upstream, ledger_file: Path) -> Proxy:
    return Proxy(
        upstream.api_base,
        MODELS,
        bench={**BENCH, "ledger": {"url": f"sqlite:///{ledger_file}"}},
        router_settings={"disable_cooldowns": True},
        # So that a download would be made, were it not for us.
        litellm_settings={"user_url_validation": False},
        general_settings={"custom_auth": "who.check", "custom_auth_run_common_checks": True},
        files={"who.py": WHO},
    )


@pytest.fixture(scope="module")
def facts_proxy(upstream: Upstream, ledger_file: Path) -> Iterator[Proxy]:
    with proxy_over(upstream, ledger_file) as running:
        yield running


@pytest.fixture
def caller(facts_proxy: Proxy, upstream: Upstream) -> Iterator[httpx.Client]:
    upstream.clear()
    with facts_proxy.client() as client:
        yield client


def ask(caller: httpx.Client, model: str, content: Any = "Who are you?", **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": content}], **more}
    return caller.post("/v1/chat/completions", json=body)


def answered(response: httpx.Response) -> Json:
    assert response.status_code == 200, response.text
    data: Json = response.json()["bench"]
    return data


def statuses(data: Json) -> dict[str, str]:
    return {seat["alias"]: seat["status"] for seat in data["seats"]}


def picture(url: str) -> list[Json]:
    return [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]


def models_of(caller: httpx.Client, **headers: str) -> dict[str, Json]:
    response = caller.get("/bench/models", headers=headers)
    assert response.status_code == 200, response.text
    return {model["alias"]: model for model in response.json()["models"]}


def eventually(check: Callable[[], bool], seconds: float = 15) -> None:
    ends = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.2)


def said(model: Json, name: str) -> tuple[Any, str]:
    return model[name], model["sources"][name]


def test_every_model_is_listed_with_each_fact_and_who_says_it(caller: httpx.Client) -> None:
    listed = models_of(caller)
    assert set(MODELS) - {"by-name/*"} | {"by-name/gpt-4o-mini"} == set(listed)
    assert set(listed["plain"]) == {
        "alias", "role", "family", "chats", "context_window", "max_output", "tools", "vision", "input_cost_per_token",
        "output_cost_per_token", "explore", "retired", "cooling_until", "sources", "lane",
    }  # fmt: skip
    assert said(listed["stated"], "context_window") == (32_768, "config")
    assert said(listed["stated"], "max_output") == (2048, "config")
    assert said(listed["small"], "context_window") == (1000, "LiteLLM")
    assert said(listed["seer"], "vision") == (True, "LiteLLM")
    assert said(listed["mapped"], "context_window") == (128_000, "model map")
    assert said(listed["mapped"], "tools") == (True, "model map")
    assert said(listed["plain"], "context_window") == (None, "unknown")
    assert said(listed["plain"], "vision") == (None, "unknown")
    assert said(listed["priced"], "input_cost_per_token") == (0.00001, "LiteLLM")
    assert said(listed["free"], "output_cost_per_token") == (0, "LiteLLM")
    assert said(listed["plain"], "input_cost_per_token") == (None, "unknown")
    assert said(listed["specialist"], "role") == ("vision", "config")
    assert said(listed["plain"], "role") == ("general", "unknown")
    assert (listed["explorer"]["explore"], listed["plain"]["explore"], listed["plain"]["retired"]) == (
        True,
        False,
        False,
    )
    assert listed["plain"]["cooling_until"] is None


def test_what_is_said_of_one_deployment_does_not_reach_another_of_the_same_model(caller: httpx.Client) -> None:
    listed = models_of(caller)
    assert (listed["embedder"]["chats"], listed["mapped"]["chats"]) == (False, True)
    assert said(listed["embedder"], "context_window") == (777, "LiteLLM")
    assert said(listed["mapped"], "vision") == (True, "model map")


def test_a_group_has_the_smallest_window_and_what_all_can(caller: httpx.Client) -> None:
    group = models_of(caller)["group"]
    assert said(group, "context_window") == (4096, "LiteLLM")
    assert said(group, "tools") == (True, "LiteLLM")
    assert said(group, "vision") == (False, "LiteLLM")


def test_a_member_behind_a_wildcard_is_known_by_its_own_name(caller: httpx.Client) -> None:
    wild = models_of(caller)["by-name/gpt-4o-mini"]
    assert said(wild, "context_window") == (128_000, "model map")
    assert wild["family"] == "gpt-4o-mini"


def test_a_key_sees_only_the_models_that_it_may_call(caller: httpx.Client) -> None:
    assert set(models_of(caller, Authorization="Bearer sk-limited")) == {"plain", "stated"}


def test_a_prompt_too_large_for_a_member_is_refused_and_nobody_is_asked(
    caller: httpx.Client, upstream: Upstream
) -> None:
    response = ask(caller, "bench/small", "word " * 4000)
    assert response.status_code == 413
    error = response.json()["error"]
    assert "small (1,000 tokens)" in error["message"]
    assert "explorer" not in error["message"]
    assert (error["code"], error["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert upstream.calls() == []


def test_a_streamed_prompt_too_large_keeps_its_status(caller: httpx.Client) -> None:
    assert ask(caller, "bench/small", "word " * 4000, stream=True).status_code == 413


def test_base64_data_does_not_make_a_prompt_too_large(caller: httpx.Client) -> None:
    response = ask(caller, "bench/images", picture(f"data:image/png;base64,{'QUJD' * 500_000}"))
    assert statuses(answered(response)) | {"fetcher": "error"} == {"seer": "ok", "specialist": "ok", "fetcher": "error"}


def test_a_guest_that_is_too_small_is_skipped_and_an_explorer_sits(caller: httpx.Client) -> None:
    data = answered(ask(caller, "bench/guests", "word " * 4000, bench={"with": ["small"]}))
    assert statuses(data) == {"plain": "ok", "explorer": "ok"}
    assert data["skipped"] == [
        {"seat": "guest", "alias": "small", "why": "its context window of 1,000 tokens is too small"}
    ]


def test_a_window_is_learned_from_an_error_and_refuses_the_next_prompt(
    caller: httpx.Client, upstream: Upstream, ledger_file: Path
) -> None:
    data = answered(ask(caller, "bench/learning", "word " * 4000))
    assert statuses(data) == {"learner": "error", "plain": "ok"}
    assert data["seats"][0]["error"]["type"] == "context_window"
    assert said(models_of(caller)["learner"], "context_window") == (4096, "learned")
    refused = ask(caller, "bench/learning", "word " * 4000)
    assert refused.status_code == 413
    assert "learner (4,096 tokens)" in refused.json()["error"]["message"]
    eventually(lambda: ("learner", 4096) in windows(ledger_file))
    assert models_of(caller)["learner"]["cooling_until"] is None


def windows(ledger_file: Path) -> set[tuple[str, int | None]]:
    with closing(sqlite3.connect(ledger_file)) as database:
        return set(database.execute("SELECT alias, context_window FROM facts"))


def test_another_process_knows_what_was_learned_within_seconds_and_after_a_start(
    caller: httpx.Client, upstream: Upstream, ledger_file: Path
) -> None:
    answered(ask(caller, "bench/learning", "word " * 100))
    eventually(lambda: ("learner", 4096) in windows(ledger_file))
    with proxy_over(upstream, ledger_file) as other, other.client() as client:
        assert said(models_of(client)["learner"], "context_window") == (4096, "learned")
        assert said(models_of(client)["lost"], "context_window") == (None, "unknown")
        answered(ask(caller, "bench/lost"))
        eventually(lambda: said(models_of(client)["lost"], "context_window") == (2048, "learned"))


def test_images_go_to_those_that_see_and_the_others_are_named(caller: httpx.Client, upstream: Upstream) -> None:
    data = answered(ask(caller, "bench/images", picture(INLINE)))
    assert data["shape"] == "vision"
    assert {s["alias"]: s["why"] for s in data["skipped"]} == {"plain": "cannot see images"}
    assert {"seer", "specialist"} <= set(statuses(data))
    assert [call.model for call in upstream.calls("ok-plain")] == []
    assert upstream.calls("in3000-seer")[0].body["messages"][0]["content"][1]["image_url"]["url"] == INLINE


def test_an_image_as_text_instead_of_an_object_is_one_too(caller: httpx.Client) -> None:
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": INLINE}]
    data = answered(ask(caller, "bench/images", content))
    assert data["shape"] == "vision"
    assert "plain" not in statuses(data)


def test_a_specialist_for_images_sits_out_without_them(caller: httpx.Client) -> None:
    data = answered(ask(caller, "bench/images"))
    assert "specialist" not in statuses(data)
    assert {s["alias"] for s in data["skipped"]} == {"specialist"}


def test_images_that_nobody_can_see_are_refused(caller: httpx.Client, upstream: Upstream) -> None:
    response = ask(caller, "bench/blind", picture(INLINE))
    assert response.status_code == 400
    assert "plain: cannot see images" in response.json()["error"]["message"]
    assert upstream.calls() == []


def test_sight_is_learned_from_what_was_counted_and_not_from_an_answer(caller: httpx.Client) -> None:
    answered(ask(caller, "bench/boasting", picture(INLINE)))
    answered(ask(caller, "bench/images", picture(INLINE)))
    listed = models_of(caller)
    assert said(listed["specialist"], "vision") == (True, "learned")
    assert said(listed["boaster"], "vision") == (None, "unknown")


def test_no_address_of_an_image_is_fetched(caller: httpx.Client, upstream: Upstream) -> None:
    url = f"{upstream.url}/picture.png"
    data = answered(ask(caller, "bench/images", picture(url)))
    assert statuses(data) == {"seer": "ok", "specialist": "ok", "fetcher": "error"}
    assert all(call.path != "/picture.png" for call in upstream.calls())
    failed = next(seat for seat in data["seats"] if seat["alias"] == "fetcher")
    assert (failed["error"]["status"], failed["error"]["type"]) == (400, "bad_request")
    assert "send it as base64" in failed["error"]["message"]
    assert upstream.calls("in3000-seer")[0].body["messages"][0]["content"][1]["image_url"]["url"] == url


def test_image_data_stands_nowhere_but_in_what_the_models_get(
    caller: httpx.Client, facts_proxy: Proxy, upstream: Upstream, ledger_file: Path
) -> None:
    response = ask(caller, "bench/merged", picture(INLINE))
    data = answered(response)
    merging = upstream.calls("ok-plain")[0]
    assert "[image: image/png, 1 kB]" in json.dumps(merging.body)
    asked = caller.get(f"/bench/panels/{data['panel']}").json()["asked"]
    assert asked == "What is this?\n[image: image/png, 1 kB]"
    kept = ledger_file.read_bytes() + Path(f"{ledger_file}-wal").read_bytes()
    for place in (response.text, json.dumps(merging.body), facts_proxy.log()):
        assert PNG[:60] not in place
    assert PNG[:60].encode() not in kept


def test_what_a_model_costs_is_not_said_when_its_price_is_not_known(caller: httpx.Client) -> None:
    data = answered(ask(caller, "bench/costs"))
    costs = {seat["alias"]: seat.get("cost", "unknown") for seat in data["seats"]}
    assert costs == {"plain": "unknown", "priced": pytest.approx(10 * 0.00001 + 5 * 0.00002), "free": 0}
    assert data["cost"] == pytest.approx(0.0002)
    assert "cost" not in answered(ask(caller, "bench/plain"))


def test_a_streamed_seat_costs_the_same(caller: httpx.Client) -> None:
    more = {"stream": True, "bench": {"stream": "live"}}
    lines = ask(caller, "bench/costs", **more).text.splitlines()
    data = next(json.loads(line[6:])["bench"] for line in lines if '"bench":' in line)
    costs = {seat["alias"]: seat.get("cost", "unknown") for seat in data["seats"]}
    assert costs == {"plain": "unknown", "priced": pytest.approx(10 * 0.00001 + 5 * 0.00002), "free": 0}

"""What is known of a model, who said it, and which names are one model."""

from typing import Any

import pytest

from bench_proxy.catalog import Catalog, HostFacts, Model, family, sees, together
from bench_proxy.config import ModelFacts

# Families

SAME = [
    # Dates, in each form that vendors write them.
    ("gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o-2024-11-20", "azure/gpt-4o"),
    ("gpt-4o-mini", "gpt-4o-mini-2024-07-18"),
    ("gpt-4.1", "gpt-4.1-2025-04-14"),
    ("gpt-4", "gpt-4-0613", "gpt-4-0314"),
    ("gpt-3.5-turbo", "gpt-3.5-turbo-0125", "gpt-3.5-turbo-1106"),
    ("o3-mini", "o3-mini-2025-01-31"),
    (
        "claude-3-7-sonnet",
        "claude-3-7-sonnet-20250219",
        "claude-3-7-sonnet-latest",
        "anthropic/claude-3-7-sonnet-latest",
    ),
    ("claude-sonnet-4", "claude-sonnet-4-20250514", "vertex_ai/claude-sonnet-4@20250514"),
    ("mistral-large", "mistral-large-2407", "mistral-large-2411", "mistral/mistral-large-latest"),
    ("command-r", "command-r-03-2024", "command-r-08-2024"),
    ("gemini-2.5-flash", "gemini-2.5-flash-preview-05-20", "gemini-2.5-flash-preview-09-2025"),
    ("deepseek-r1", "deepseek-r1-0528", "openrouter/deepseek/deepseek-r1:free", "deepseek-ai/DeepSeek-R1"),
    # Quantisations.
    ("qwen2.5-coder-32b", "qwen2.5-coder-32b-awq", "Qwen2.5-Coder-32B-GPTQ", "qwen2.5-coder-32b-int4"),
    ("llama-3.1-8b", "Llama-3.1-8B-fp8", "llama-3.1-8b.Q4_K_M.gguf", "llama-3.1-8b-q8_0", "llama-3.1-8b-4bit"),
    ("llama-3.1-8b", "llama-3.1-8b-nvfp4", "llama-3.1-8b-bnb-4bit", "llama-3.1-8b-iq4_xs", "mlx/llama-3.1-8b-bf16"),
    ("gpt-oss-20b", "gpt-oss-20b-mxfp4", "openai/gpt-oss-20b", "ollama/gpt-oss:20b-mxfp4"),
    # Sizes.
    ("llama-3.3-70b", "llama-3.3-8b", "groq/llama-3.3"),
    ("qwen3", "qwen3-0.6b", "qwen3-235b-a22b", "ollama/qwen3:30b-a3b-q4_K_M"),
    ("mixtral-8x7b", "mixtral-8x22b", "mixtral"),
    # The cuts.
    ("qwen2.5", "ollama/qwen2.5:7b", "qwen2.5:7b-instruct-q4_0", "hf.co/Qwen/Qwen2.5:latest"),
    ("claude-3-opus", "claude-3-opus@20240229", "openrouter/anthropic/claude-3-opus:beta"),
]
DIFFERENT = [
    ("gpt-4o", "gpt-4o-mini"),
    ("gpt-4o", "gpt-4"),
    ("gpt-4", "gpt-4.1"),
    ("gpt-4.1", "gpt-4.1-mini"),
    ("gpt-4.1-mini", "gpt-4.1-nano"),
    ("o1", "o3"),
    ("o1-mini", "o3-mini"),
    ("claude-3-5-sonnet-20240620", "claude-3-7-sonnet-20250219"),
    ("claude-opus-4-20250514", "claude-sonnet-4-20250514"),
    ("claude-3-opus", "claude-3-haiku"),
    ("gemini-2.5-pro", "gemini-2.5-flash"),
    ("gemini-2.5-flash", "gemini-2.0-flash"),
    ("gemini-2.5-flash", "gemini-2.5-flash-lite"),
    ("mistral-large-2407", "mistral-small-2407"),
    ("command-r-08-2024", "command-r-plus-08-2024"),
    ("deepseek-r1", "deepseek-v3"),
    ("llama-3.1-8b", "llama-3.3-8b"),
    ("qwen2.5-32b", "qwen2.5-coder-32b"),
    ("qwen2.5", "qwen3"),
]


@pytest.mark.parametrize("names", SAME, ids=[names[0] for names in SAME])
def test_dates_latest_quantisations_sizes_and_vendors_make_no_other_family(names: tuple[str, ...]) -> None:
    assert len({family(name) for name in names}) == 1, {name: family(name) for name in names}


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_versions_tiers_and_lines_are_families_of_their_own(one: str, other: str) -> None:
    assert family(one) != family(other)


@pytest.mark.parametrize("name", ["", "-latest", "8b", "latest", "a", "/", ":", "gpt-", "-", "x/y/z/Q4_K_M.gguf"])
def test_any_name_has_a_family(name: str) -> None:
    assert isinstance(family(name), str)


def test_a_family_is_the_name_after_the_last_slash_in_small_letters() -> None:
    assert family("openrouter/Meta/Llama-Guard") == "llama-guard"


# Precedence


def model(facts: ModelFacts | None = None, **host: Any) -> Model:
    known = {} if facts is None else {"gpt": facts}
    return Catalog([HostFacts("gpt", underlying="openai/gpt-4o-2024-08-06", **host)], known).get("gpt")


STATED = [
    ("tools", False, True),
    ("tools", True, False),
    ("vision", False, True),
    ("vision", True, False),
    ("context_window", 8192, 128_000),
    ("max_output", 512, 16_384),
]


@pytest.mark.parametrize(("name", "operators", "hosts"), STATED)
def test_what_the_operator_says_wins_over_what_litellm_says(name: str, operators: object, hosts: object) -> None:
    assert getattr(model(ModelFacts.model_validate({name: operators}), **{name: hosts}), name) == operators


@pytest.mark.parametrize(("name", "_operators", "hosts"), STATED)
def test_what_the_operator_leaves_out_is_litellms(name: str, _operators: object, hosts: object) -> None:
    assert getattr(model(ModelFacts(role="code"), **{name: hosts}), name) == hosts


@pytest.mark.parametrize("name", ["tools", "vision", "context_window", "max_output", "input_cost_per_token"])
def test_what_nobody_says_is_unknown(name: str) -> None:
    assert getattr(model(), name) is None


def test_the_family_is_that_of_the_providers_name_and_not_of_the_alias() -> None:
    assert model().family == "gpt-4o"


def test_a_family_that_the_operator_says_wins_and_has_no_case() -> None:
    assert model(ModelFacts(family="Fourth")).family == "fourth"


def test_a_models_role_is_general_and_it_may_explore_unless_said() -> None:
    unsaid = model()
    assert (unsaid.role, unsaid.explore, unsaid.retired) == ("general", True, False)
    said = model(ModelFacts(role="light", explore=False, retired=True))
    assert (said.role, said.explore, said.retired) == ("light", False, True)


def test_a_model_that_only_a_wildcard_serves_is_known_by_its_name_and_the_operators_facts() -> None:
    catalog = Catalog([], {"openai/gpt-4o-mini": ModelFacts(tools=True)})
    assert "openai/gpt-4o-mini" not in catalog
    served = catalog.get("openai/gpt-4o-mini")
    assert (served.alias, served.family, served.chats, served.tools) == (
        "openai/gpt-4o-mini",
        "gpt-4o-mini",
        True,
        True,
    )


def test_facts_of_models_that_litellm_does_not_serve_make_no_model() -> None:
    catalog = Catalog([HostFacts("gpt", underlying="openai/gpt-4o")], {"gone": ModelFacts()})
    assert catalog.aliases == {"gpt"}
    assert [m.alias for m in catalog] == ["gpt"]


@pytest.mark.parametrize(
    ("facts", "host", "can"),
    [
        (ModelFacts(), None, False),
        (ModelFacts(), True, True),
        (ModelFacts(vision=False), True, False),
        (ModelFacts(vision=True), False, True),
        (ModelFacts(role="vision"), None, True),
    ],
)
def test_a_model_whose_vision_is_unknown_cannot_see(facts: ModelFacts, host: bool | None, can: bool) -> None:
    assert sees(model(facts, vision=host)) is can


# What a collection can do as one


def members(*hosts: HostFacts) -> list[Model]:
    return list(Catalog(hosts, {}))


def hosted(alias: str, **facts: Any) -> HostFacts:
    return HostFacts(alias, underlying=alias, **facts)


def test_a_collections_window_is_its_smallest_and_those_without_one_are_named() -> None:
    known = together(members(hosted("a", context_window=8192), hosted("b"), hosted("c", context_window=4096)))
    assert known["context_window"] == 4096
    assert known["context_unknown"] == ["b"]


def test_a_collection_without_any_known_window_has_none() -> None:
    known = together(members(hosted("a"), hosted("b")))
    assert known["context_window"] is None
    assert known["context_unknown"] == ["a", "b"]


def test_a_collection_can_do_what_all_its_members_can() -> None:
    able = hosted("a", tools=True, vision=True)
    assert together(members(able, hosted("b", tools=True, vision=False)))["capabilities"] == ["tools"]
    assert together(members(able, hosted("b", vision=True)))["capabilities"] == ["vision"]
    assert together(members(able))["capabilities"] == ["vision", "tools"]


def test_a_collection_of_nobody_can_do_nothing() -> None:
    assert together([])["capabilities"] == []


def test_a_collection_costs_what_its_members_cost_together() -> None:
    costs = [hosted("a", input_cost_per_token=0.0000025), hosted("b", input_cost_per_token=0.0000015)]
    assert together(members(*costs))["cost_per_1k_in"] == 0.004
    assert together(members(*costs, hosted("free", input_cost_per_token=0.0)))["cost_per_1k_in"] == 0.004


def test_a_collection_with_a_member_of_unknown_price_has_no_price() -> None:
    assert together(members(hosted("a", input_cost_per_token=0.0000025), hosted("b")))["cost_per_1k_in"] is None

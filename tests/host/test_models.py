"""What LiteLLM was told of its models and what its map says, each deployment by itself."""

from typing import Any

import litellm
import pytest
from litellm import Router
from litellm.litellm_core_utils.get_model_cost_map import GetModelCostMap

from bench_proxy.catalog import Catalog, HostFacts, Model
from bench_proxy.host.models import fingerprint, found, hosted
from bench_proxy.host.provider import PROVIDING


def entry(alias: str, model: str, info: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    given = {"model_info": info} if info else {}
    return {"model_name": alias, "litellm_params": {"model": model, "api_key": "x", **params}, **given}


LISTED = [
    # Says of gpt-4o what is true of no other deployment.
    entry("embedder", "openai/gpt-4o", {"mode": "embedding", "max_input_tokens": 777, "supports_vision": False}),
    entry("gpt", "openai/gpt-4o"),
    entry("group", "openai/gpt-4o"),
    entry("group", "openai/mystery", {"max_input_tokens": "32768"}, api_base="http://127.0.0.1:9/v1"),
    entry("claude", "anthropic/claude-sonnet-4-5"),
    entry("bare", "gpt-4o-mini"),
    entry("azure", "azure/my-deployment", {"base_model": "azure/gpt-4o"}, api_base="https://x", api_version="1"),
    entry("bedrock", "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    entry("lookalike", "hosted_vllm/gpt-4o", api_base="http://127.0.0.1:9/v1"),
    entry("embedding", "openai/text-embedding-3-small"),
    entry("rule", "anthropic/claude-newfamily-7"),
    entry("odd", "openai/zzz", {"max_input_tokens": 0, "max_output_tokens": "many", "input_cost_per_token": 0}),
    entry("own-price", "openai/zzz", input_cost_per_token=0.000001),
    entry("openai/*", "openai/*"),
]


@pytest.fixture(scope="module")
def router() -> Router:
    return Router(model_list=LISTED, model_group_alias={"nickname": "gpt"})


@pytest.fixture(scope="module")
def catalog(router: Router) -> Catalog:
    return Catalog(hosted(router), {}, find=lambda alias: found(router, alias))


def fact(model: Model, name: str) -> tuple[Any, str]:
    return getattr(model, name), model.sources[name]


def test_litellm_lets_what_is_said_of_one_deployment_reach_another(router: Router) -> None:
    """Why its own group information is not used. When this fails, LiteLLM has mended it."""
    group = router.get_model_group_info(model_group="gpt")
    assert group is not None
    assert (group.mode, group.max_input_tokens) != ("chat", 128_000)


def test_here_it_does_not(catalog: Catalog) -> None:
    gpt, embedder = catalog.get("gpt"), catalog.get("embedder")
    assert (gpt.chats, embedder.chats) == (True, False)
    assert fact(gpt, "context_window") == (128_000, "model map")
    assert fact(gpt, "vision") == (True, "model map")
    assert fact(embedder, "context_window") == (777, "LiteLLM")
    assert fact(embedder, "vision") == (False, "LiteLLM")


def test_the_map_as_it_was_loaded_holds_nothing_of_the_deployments(router: Router) -> None:
    loaded = GetModelCostMap.loaded_model_cost_map()
    assert "gpt-4o" in loaded
    assert not any(deployment["model_info"]["id"] in loaded for deployment in router.model_list)
    assert loaded["gpt-4o"]["max_input_tokens"] == 128_000
    assert litellm.model_cost["gpt-4o"]["max_input_tokens"] != 128_000


@pytest.mark.parametrize(
    ("alias", "window", "vision"),
    [
        ("claude", 200_000, True),
        ("bare", 128_000, True),
        ("azure", 128_000, True),
        ("bedrock", 200_000, True),
        ("rule", 200_000, True),
        ("nickname", 128_000, True),
        ("openai/gpt-4o", 128_000, True),
        ("lookalike", None, None),
        ("openai/never-heard-of", None, None),
        ("never-heard-of", None, None),
    ],
)
def test_a_model_is_found_in_the_map_as_its_provider_calls_it(
    catalog: Catalog, alias: str, window: int | None, vision: bool | None
) -> None:
    model = catalog.get(alias)
    assert (model.context_window, model.vision) == (window, vision)


def test_a_group_has_the_smallest_window_and_what_all_can(catalog: Catalog) -> None:
    assert fact(catalog.get("group"), "context_window") == (32_768, "LiteLLM")
    assert fact(catalog.get("group"), "vision") == (None, "unknown")


def test_a_model_that_does_not_chat_is_told_by_the_map(catalog: Catalog) -> None:
    assert not catalog.get("embedding").chats


def test_numbers_that_say_nothing_are_unknown(catalog: Catalog) -> None:
    odd = catalog.get("odd")
    assert (odd.context_window, odd.max_output) == (None, None)
    assert fact(odd, "input_cost_per_token") == (0, "LiteLLM")


def test_a_price_among_the_parameters_is_one_too(catalog: Catalog) -> None:
    assert fact(catalog.get("own-price"), "input_cost_per_token") == (0.000001, "LiteLLM")


def test_a_wildcard_is_no_model_of_its_own(catalog: Catalog) -> None:
    assert "openai/*" not in catalog
    assert len(hosted(None)) == 0


def test_a_collection_among_litellms_models_is_no_model() -> None:
    PROVIDING.register()  # LiteLLM takes such an entry only from a provider that it knows
    router = Router(model_list=[entry("gpt", "openai/gpt-4o"), entry("panel", "bench/core")])
    assert [h.alias for h in hosted(router)] == ["gpt"]


def test_a_model_that_is_named_like_a_collection_is_none_that_can_be_called() -> None:
    names = ("gpt", "bench/no-collection", "Bench/gpt")
    router = Router(model_list=[entry(name, "openai/gpt-4o") for name in names])
    assert [h.alias for h in hosted(router)] == ["gpt"]


def test_the_fingerprint_changes_with_the_deployments() -> None:
    router = Router(model_list=LISTED[:2])
    before = fingerprint(router)
    assert fingerprint(router) == before
    router.set_model_list(LISTED[:3])
    assert fingerprint(router) != before


def test_each_deployment_is_an_entry(router: Router) -> None:
    assert [h.underlying for h in hosted(router) if h.alias == "group"] == ["openai/gpt-4o", "openai/mystery"]
    assert isinstance(found(router, "gpt")[0], HostFacts)

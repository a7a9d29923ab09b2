"""What bench-proxy relies on in LiteLLM: when one of these fails after an update, so does something here."""

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.asking import ask
from tests.proxy import Proxy, deployment
from tests.upstream import Upstream

# LiteLLM's modules warn of what they use as they are imported.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def litellm() -> Iterator[ModuleType]:
    """LiteLLM in this process; its price list is the one that it brings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        patch.setenv("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
        import litellm

        yield litellm


@pytest.fixture
def router(litellm: ModuleType, models: Upstream) -> Any:
    """A router that would retry and fall back."""
    names = {"ok-a": "ok-a", "fail500-a": "fail500-a", "rate-a": "rate-a", "hang-a": "hang-a"}
    deployments = [deployment(alias, name, models.api_base) for alias, name in names.items()]
    deployments.append(
        {
            "model_name": "known",
            "litellm_params": {"model": "openai/known", "api_base": models.api_base, "api_key": "x"},
            "model_info": {
                "mode": "chat",
                "max_input_tokens": 1000,
                "supports_vision": True,
                "input_cost_per_token": 0.5,
            },
        }
    )
    deployments.append({"model_name": "wild/*", "litellm_params": {"model": "openai/*", "api_key": "x"}})
    return litellm.Router(
        model_list=deployments,
        num_retries=3,
        fallbacks=[{"fail500-a": ["ok-a"]}, {"rate-a": ["ok-a"]}],
        disable_cooldowns=True,
    )


ASKED = [{"role": "user", "content": "Who are you?"}]


@pytest.mark.parametrize(("model", "status"), [("fail500-a", 500), ("rate-a", 429)])
async def test_a_call_without_retries_and_fallbacks_is_one_call(
    router: Any, models: Upstream, model: str, status: int
) -> None:
    with pytest.raises(Exception, match=model) as caught:
        await router.acompletion(
            model=model, messages=ASKED, num_retries=0, max_retries=0, disable_fallbacks=True, timeout=10
        )
    assert getattr(caught.value, "status_code", None) == status
    assert [call.model for call in models.calls()] == [model]


async def test_a_router_that_may_does_retry_and_fall_back(router: Any, models: Upstream) -> None:
    """Else the test above would prove nothing."""
    reply = await router.acompletion(model="fail500-a", messages=ASKED, num_retries=1, max_retries=0)
    assert reply.choices[0].message.content == "I am ok-a."
    assert [call.model for call in models.calls()] == ["fail500-a", "fail500-a", "ok-a"]


async def test_a_rate_limit_carries_the_stated_wait(router: Any) -> None:
    from bench_proxy.host.errors import translate

    with pytest.raises(Exception, match="rate-a") as caught:
        await router.acompletion(model="rate-a", messages=ASKED, num_retries=0, max_retries=0, disable_fallbacks=True)
    error = translate(caught.value)
    assert (error.kind, error.status, error.retry_after) == ("rate_limit", 429, 7)


async def test_a_timeout_is_one(router: Any) -> None:
    from bench_proxy.host.errors import translate

    with pytest.raises(Exception, match=r"(?i)timeout|timed out") as caught:
        await router.acompletion(
            model="hang-a", messages=ASKED, num_retries=0, max_retries=0, disable_fallbacks=True, timeout=0.2
        )
    assert translate(caught.value).kind == "timeout"


def test_a_group_tells_what_is_known_of_it(router: Any) -> None:
    known = router.get_model_group_info(model_group="known")
    assert known.max_input_tokens == 1000
    assert known.supports_vision is True
    assert known.mode == "chat"
    assert known.input_cost_per_token == 0.5
    plain = router.get_model_group_info(model_group="ok-a")
    assert plain.max_input_tokens is None
    assert "known" in router.get_model_names()


def test_the_router_says_whether_it_serves_a_name(router: Any) -> None:
    assert router.get_model_list(model_name="ok-a")
    assert router.get_model_list(model_name="wild/gpt-4o")
    assert not router.get_model_list(model_name="nobody")
    assert not router.get_model_list(model_name="bench/pair")


async def test_a_keys_list_of_models_may_name_collections(litellm: ModuleType, router: Any) -> None:
    from litellm.proxy._types import ProxyException, UserAPIKeyAuth
    from litellm.proxy.auth.auth_checks import can_key_call_model

    async def may(models: list[str], model: str) -> bool:
        try:
            await can_key_call_model(
                model=model, llm_model_list=[], valid_token=UserAPIKeyAuth(models=models), llm_router=router
            )
        except ProxyException:
            return False
        return True

    assert await may([], "bench/pair")
    assert await may(["bench/pair"], "bench/pair")
    assert await may(["bench/*"], "bench/pair")
    assert not await may(["bench/pair"], "bench/secret")
    assert not await may(["bench/*"], "ok-a")
    assert not await may(["ok-a"], "bench/pair")


def test_authentication_takes_the_headers_that_we_hand_it(litellm: ModuleType) -> None:
    from litellm.proxy.auth.user_api_key_auth import user_api_key_auth

    from bench_proxy.host.auth import KEY_HEADERS

    parameters = inspect.signature(user_api_key_auth).parameters
    assert "request" in parameters
    assert set(KEY_HEADERS) <= set(parameters)
    required = {name for name, p in parameters.items() if p.default is inspect.Parameter.empty}
    assert required <= {"request", *KEY_HEADERS}


async def test_authentication_takes_the_body_that_we_have_parsed(litellm: ModuleType) -> None:
    from litellm.proxy.common_utils.http_parsing_utils import _read_request_body, safe_set_request_parsed_body
    from starlette.requests import Request

    async def never() -> Any:
        raise AssertionError("the body was read again")

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    request = Request(scope, never)
    safe_set_request_parsed_body(request, {"model": "bench/pair"})
    assert await _read_request_body(request) == {"model": "bench/pair"}


@pytest.mark.parametrize(
    "name",
    [
        "api_base", "api_key", "mock_response", "fallbacks", "num_retries", "metadata", "litellm_call_id",
        "aws_bedrock_runtime_endpoint", "aws_role_name", "azure_ad_token", "vertex_credentials", "user_config",
        "callbacks", "service_callback", "disable_global_guardrails",
    ],
)  # fmt: skip
def test_litellm_knows_its_own_fields(litellm: ModuleType, name: str) -> None:
    from bench_proxy.host.upstream import steers_litellm

    assert steers_litellm(name)


@pytest.mark.parametrize("name", ["temperature", "response_format", "seed", "top_k", "reasoning_effort", "tools"])
def test_litellm_leaves_the_models_fields_alone(litellm: ModuleType, name: str) -> None:
    from bench_proxy.host.upstream import steers_litellm

    assert not steers_litellm(name)


def test_a_config_file_may_hold_a_block_that_litellm_does_not_know(proxy: Proxy, models: Upstream) -> None:
    assert "bench" in yaml.safe_load(proxy.config_path.read_text(encoding="utf-8"))
    with proxy.client() as caller:
        assert ask(caller, "ok-a").json()["choices"][0]["message"]["content"] == "I am ok-a."


def test_every_callback_list_that_we_look_into_is_there(litellm: ModuleType) -> None:
    from bench_proxy.host.mount import CALLBACK_LISTS

    for name in CALLBACK_LISTS:
        assert isinstance(getattr(litellm, name), list)
    assert callable(litellm.logging_callback_manager.remove_callback_from_list_by_object)

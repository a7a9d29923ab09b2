"""What LiteLLM's router knows of its models, as our catalog takes it."""

from typing import Any

from litellm import Router

from bench_proxy.catalog import HostFacts


def hosted(router: Router | None) -> list[HostFacts]:
    """One entry a model name; wildcards (`openai/*`) name no model of their own and are left out.

    Costs some milliseconds a model: call it when the router or the configuration changed, not on each request.
    """
    if router is None:
        return []
    return [_facts(router, name) for name in router.get_model_names() if "*" not in name]


def fingerprint(router: Router | None) -> object:
    """Changes when the router was replaced or its deployments were: cheap enough for each request."""
    return None if router is None else (id(router), len(router.model_list), tuple(map(id, router.model_list[:64])))


def _facts(router: Router, alias: str) -> HostFacts:
    deployments = router.get_model_list(model_name=alias) or []
    underlying = str(_params(deployments[0]).get("model") or alias) if deployments else alias
    group = router.get_model_group_info(model_group=alias)
    if group is None:
        return HostFacts(alias, underlying=underlying)
    infos = [d.get("model_info") or {} for d in deployments]
    return HostFacts(
        alias,
        underlying=underlying,
        chats=(group.mode or "chat") in {"chat", "completion", "responses"},
        tools=_stated(infos, "supports_function_calling", mapped=group.supports_function_calling),
        vision=_stated(infos, "supports_vision", mapped=group.supports_vision),
        context_window=int(group.max_input_tokens) if group.max_input_tokens else None,
        max_output=int(group.max_output_tokens) if group.max_output_tokens else None,
        input_cost_per_token=group.input_cost_per_token,
    )


def _stated(infos: list[Any], name: str, *, mapped: bool) -> bool | None:
    """A capability is what all deployments have; LiteLLM's map says yes or does not know."""
    own = [info.get(name) for info in infos]
    if any(value is False for value in own):
        return False
    if own and all(value is True for value in own):
        return True
    return True if mapped else None


def _params(deployment: Any) -> Any:
    params = deployment.get("litellm_params") or {}
    return params if isinstance(params, dict) else params.model_dump()

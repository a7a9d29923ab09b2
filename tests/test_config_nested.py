"""A collection that hides behind another name of LiteLLM's is found when the configuration is read."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench_proxy.config import load
from bench_proxy.errors import ConfigError

GPT = {"model_name": "gpt", "litellm_params": {"model": "openai/gpt-4o"}}
PANEL = {"model_name": "panel", "litellm_params": {"model": "bench/core"}}
MIXED = {"model_name": "gpt", "litellm_params": {"model": "bench/core"}}
WILDCARD = {"model_name": "team/*", "litellm_params": {"model": "bench/*"}}


def faults(folder: Path, outer: dict[str, Any], *, more: dict[str, Any] | None = None, **block: Any) -> list[str]:
    collections = {"core": {"members": ["gpt"]}, "outer": outer}
    document = {"model_list": [GPT, PANEL, WILDCARD], **(more or {}), "bench": {"collections": collections, **block}}
    file = folder / "litellm_config.yaml"
    file.write_text(yaml.safe_dump(document))
    try:
        load(file)
    except ConfigError as refused:
        return list(refused.faults)
    return []


@pytest.mark.parametrize(
    ("outer", "where"),
    [
        ({"members": ["gpt", "panel"]}, "bench.collections.outer.members.1"),
        ({"members": ["gpt"], "merger": "panel"}, "bench.collections.outer.merger"),
        ({"members": ["team/core"]}, "bench.collections.outer.members.0"),
    ],
)
def test_a_member_or_a_merger_that_is_a_collection_is_a_fault(tmp_path: Path, outer: Any, where: str) -> None:
    [fault] = faults(tmp_path, outer)
    assert fault.startswith(f"{where}: LiteLLM's model ")
    assert "is a collection itself; a panel cannot sit on a panel" in fault


def test_so_is_a_decision_model(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, {"members": ["gpt"]}, decision_model="panel")
    assert fault.startswith("bench.decision_model: ")


@pytest.mark.parametrize("alias", ["panel", {"model": "panel", "hidden": True}])
def test_an_alias_of_one_is_one(tmp_path: Path, alias: Any) -> None:
    more = {"router_settings": {"model_group_alias": {"renamed": alias}}}
    [fault] = faults(tmp_path, {"members": ["renamed"]}, more=more)
    assert '"renamed" is a collection itself' in fault


def test_one_in_an_included_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text(
        yaml.safe_dump({"model_list": [{"model_name": "other", "litellm_params": {"model": "bench/core"}}]})
    )
    [fault] = faults(tmp_path, {"members": ["other"]}, more={"include": ["more.yaml"]})
    assert '"other" is a collection itself' in fault


def test_one_deployment_of_several_is_enough(tmp_path: Path) -> None:
    more = {"model_list": [GPT, MIXED]}
    assert len(faults(tmp_path, {"members": ["gpt"]}, more=more)) == 2


def test_a_collection_in_the_list_of_models_is_none_as_such(tmp_path: Path) -> None:
    assert faults(tmp_path, {"members": ["gpt"]}) == []


@pytest.mark.parametrize("name", ["replicate", "my-replicates", "clarifai-2"])
def test_names_that_litellm_takes_for_a_vendors_are_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "litellm_config.yaml"
    file.write_text(yaml.safe_dump({"model_list": [GPT], "bench": {"collections": {name: {"members": ["gpt"]}}}}))
    with pytest.raises(ConfigError, match=f"collections.{name}: LiteLLM would send"):
        load(file)

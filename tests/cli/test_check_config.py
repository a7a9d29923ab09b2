"""`bench-proxy check-config` says everything that is wrong with a configuration, and starts nothing."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bench_proxy.cli import main

MODELS = [{"model_name": name, "litellm_params": {"model": f"openai/{name}"}} for name in ("gpt", "claude")]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCH_CONFIG", raising=False)


def write(name: str, document: object) -> None:
    Path(name).write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check-config", *arguments])


def bench(**collections: Any) -> dict[str, Any]:
    return {"collections": collections}


def test_every_fault_is_listed_with_its_place_and_the_exit_code_is_one() -> None:
    faulty = bench(core={"members": ["gtp"], "merget": "gpt"}, pair={"members": ["gpt"], "reply": "al"})
    write("litellm_config.yaml", {"model_list": MODELS, "bench": faulty})
    result = check()
    assert result.exit_code == 1
    assert result.stdout == ""
    for told in (
        "litellm_config.yaml: 3 faults",
        'bench.collections.core.merget: unknown key; did you mean "merger"?',
        'bench.collections.core.members.0: LiteLLM has no model "gtp"; did you mean "gpt"?',
        "bench.collections.pair.reply: 'al' is not one of all, merged, choices, route",
    ):
        assert told in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("text", [None, "bench: {", "- gpt"])
def test_a_file_that_cannot_be_read_is_said_without_a_traceback(text: str | None) -> None:
    if text is not None:
        Path("other.yaml").write_text(text, encoding="utf-8")
    result = check("--config", "other.yaml")
    assert result.exit_code == 1
    assert "other.yaml" in result.stderr
    assert "Traceback" not in result.output


def test_a_file_that_is_not_there_is_named_with_its_folder(tmp_path: Path) -> None:
    for result in (check(), CliRunner().invoke(main, ["serve"])):
        assert result.exit_code == 1
        assert f"{tmp_path / 'litellm_config.yaml'} cannot be read: " in result.stderr
        assert "--config" in result.stderr


def test_a_good_configuration_is_shown_with_what_each_collection_is() -> None:
    collections = bench(
        core={"members": ["gpt", "claude"]}, agents={"members": ["gpt"], "reply": "route", "explorers": 0}
    )
    called = {"litellm_settings": {"callbacks": ["bench_proxy.gateway"]}}
    write("litellm_config.yaml", {"model_list": MODELS, "bench": collections, **called})
    result = check()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "litellm_config.yaml: 2 collections, no fault",
        "  bench/core: gpt, claude + 2 explorers, all",
        "  bench/agents: gpt, route",
    ]


@pytest.mark.parametrize("settings", [None, {}, {"callbacks": ["bench_proxy.gatway"]}, {"callbacks": "other"}])
def test_a_file_that_litellm_itself_will_not_load_the_block_of_is_noted(settings: object) -> None:
    block = bench(core={"members": ["gpt"]})
    write("litellm_config.yaml", {"model_list": MODELS, "bench": block, "litellm_settings": settings})
    result = check()
    assert result.exit_code == 0
    assert "does not name bench_proxy.gateway" in result.stderr


def test_lists_and_mappings_are_called_so() -> None:
    write("litellm_config.yaml", {"model_list": MODELS, "bench": bench(core={"members": "gpt"}, pair=["gpt"])})
    told = check().stderr
    assert "bench.collections.core.members: should be a list, as in [one, another], not text" in told
    assert "bench.collections.pair: should be a mapping" in told


def test_a_model_that_is_near_no_other_is_told_which_there_are() -> None:
    write("litellm_config.yaml", {"model_list": MODELS, "bench": bench(core={"members": ["openai/gpt-4o"]})})
    assert "its model_names are: claude, gpt" in check().stderr


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"model_list": MODELS}, "bench: there is no such block"),
        ({"model_list": MODELS, "bnech": bench(core={"members": ["gpt"]})}, 'bnech: write "bench"'),
        ({"litellm_settings": {"bench": bench(core={"members": ["gpt"]})}}, "litellm_settings.bench: move it"),
        (bench(core={"members": ["gpt"]}), "is a bench block itself; give LiteLLM's file"),
        ({"model_list": MODELS, "bench": {}}, "bench.collections: there is none"),
    ],
)
def test_a_configuration_with_nothing_in_it_is_no_sound_one(document: object, told: str) -> None:
    write("litellm_config.yaml", document)
    result = check()
    assert result.exit_code == 1
    assert told in result.stderr


def test_the_file_that_the_block_stands_in_is_named() -> None:
    write("bench.yaml", bench(core={"members": ["gpt"]}))
    write("litellm_config.yaml", {"model_list": MODELS, "bench": {"file": "bench.yaml"}})
    assert check().stdout.startswith("bench.yaml: 1 collection")


def test_bench_config_is_checked_in_the_place_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    write("litellm_config.yaml", {"model_list": MODELS, "bench": bench(core={"members": ["gpt"]})})
    write("other.yaml", bench(core={"members": ["nobody"]}))
    monkeypatch.setenv("BENCH_CONFIG", "other.yaml")
    result = check()
    assert result.exit_code == 1
    assert "other.yaml: 1 fault" in result.stderr


def test_the_projects_own_configuration_has_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    result = check()
    assert result.exit_code == 0, result.stderr

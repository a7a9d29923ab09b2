"""What stops the start of a proxy, beside a `bench:` block that cannot be used."""

import asyncio
from pathlib import Path

import pytest
import yaml

from bench_proxy.errors import ConfigError
from bench_proxy.host import mount
from bench_proxy.keys import new_key


def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master_key: str) -> None:
    # LiteLLM's proxy warns of its own code, which is a failure while tests are collected.
    from bench_proxy.wiring import Extension

    file = tmp_path / "litellm_config.yaml"
    models = [{"model_name": "gpt", "litellm_params": {"model": "openai/gpt"}}]
    file.write_text(yaml.safe_dump({"model_list": models, "bench": {"collections": {"core": {"members": ["gpt"]}}}}))
    monkeypatch.setattr(mount, "config_file", lambda: file)
    monkeypatch.delenv("BENCH_CONFIG", raising=False)
    monkeypatch.setenv("LITELLM_MASTER_KEY", master_key)
    Extension(mount.Gateway())


def test_a_master_key_that_would_be_taken_for_a_bench_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_key()
    with pytest.raises(ConfigError, match="choose another that begins with sk-") as refused:
        start(tmp_path, monkeypatch, key)
    assert key not in str(refused.value)


@pytest.mark.parametrize("key", ["sk-one", "anything", "", "sk-4bpk_2"])
def test_any_other_master_key_is_litellms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    start(tmp_path, monkeypatch, key)


async def test_while_it_begins_a_probe_is_told_so_and_not_that_it_failed() -> None:
    go_on = asyncio.Event()

    async def begin() -> None:
        await go_on.wait()

    async def end() -> None: ...

    keeper = mount.Keeper(begin, end)
    keeper.start()
    await asyncio.sleep(0)
    assert keeper.beginning
    go_on.set()
    await keeper.ready()
    assert not keeper.beginning

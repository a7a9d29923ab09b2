"""What stops the start of a proxy, beside a `bench:` block that cannot be used."""

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from bench_proxy.errors import ConfigError
from bench_proxy.host import mount
from bench_proxy.keys import new_key

if TYPE_CHECKING:
    from bench_proxy.wiring import Extension


def extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master_key: str = "sk-one") -> "Extension":
    # LiteLLM's proxy warns of its own code, which is a failure while tests are collected.
    from bench_proxy.wiring import Extension

    file = tmp_path / "litellm_config.yaml"
    models = [{"model_name": "gpt", "litellm_params": {"model": "openai/gpt"}}]
    bench = {"collections": {"core": {"members": ["gpt"]}}, "ledger": {"url": f"sqlite:///{tmp_path}/bench.db"}}
    file.write_text(yaml.safe_dump({"model_list": models, "bench": bench}))
    monkeypatch.setattr(mount, "config_file", lambda: file)
    monkeypatch.delenv("BENCH_CONFIG", raising=False)
    monkeypatch.setenv("LITELLM_MASTER_KEY", master_key)
    return Extension(mount.Gateway())


def test_a_master_key_that_would_be_taken_for_a_bench_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_key()
    with pytest.raises(ConfigError, match="choose another that begins with sk-") as refused:
        extension(tmp_path, monkeypatch, key)
    assert key not in str(refused.value)


@pytest.mark.parametrize("key", ["sk-one", "anything", "", "sk-4bpk_2"])
def test_any_other_master_key_is_litellms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    extension(tmp_path, monkeypatch, key)


async def test_while_it_begins_a_probe_is_told_so_and_not_that_it_failed() -> None:
    go_on = asyncio.Event()

    async def begin() -> None:
        await go_on.wait()

    async def end(_: float | None) -> None: ...

    keeper = mount.Keeper(begin, end)
    keeper.start()
    await asyncio.sleep(0)
    assert keeper.beginning
    go_on.set()
    await keeper.ready()
    assert not keeper.beginning


@pytest.mark.parametrize("times", [1, 2])
async def test_a_stop_that_comes_while_it_begins_ends_it_however_often_it_is_cancelled(times: int) -> None:
    done: list[str] = []

    async def begin() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            done.append("broken off")

    async def end(_: float | None) -> None:
        done.append("ended")

    keeper = mount.Keeper(begin, end)
    keeper.start()
    await asyncio.sleep(0)
    (keeping,) = [task for task in asyncio.all_tasks() if task.get_name() == "bench-proxy"]
    await asyncio.sleep(0)
    for _ in range(times):
        keeping.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([keeping])
    assert done == ["broken off", "ended"]


async def test_a_start_that_fails_behind_the_ledger_takes_the_same_one_again_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    it = extension(tmp_path, monkeypatch)

    async def broken(_: object) -> None:
        raise RuntimeError("the facts cannot be read")

    monkeypatch.setattr(it._known.facts, "exchange", broken)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await it._begin()
    assert [t.name for t in threading.enumerate() if t not in before].count("bench-ledger") == 1
    await it._end()
    assert "bench-ledger" not in [t.name for t in threading.enumerate() if t not in before]


async def test_of_what_ends_nothing_is_left_out_because_another_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = extension(tmp_path, monkeypatch)
    await it._begin()
    assert it._ledger is not None
    assert it._reporting is not None

    async def broken() -> None:
        raise RuntimeError("a callback is broken")

    monkeypatch.setattr(it._reporting, "close", broken)
    with pytest.raises(RuntimeError, match="a callback is broken"):
        await it._end()
    assert not it._ledger._writer._thread.is_alive()

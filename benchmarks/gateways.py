"""The gateways that are compared: LiteLLM as its production page says, without and with bench-proxy in it, and a bare
fan-out.

Those of LiteLLM are started by the same command, with the same environment and the same models; those with bench-proxy
name one callback and have a `bench:` block.
"""

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks import load, process
from benchmarks.load import Ask

STARTS_WITHIN = 120.0
ROOT = Path(__file__).parent.parent
LITELLM = Path(sys.executable).with_name("litellm")

SETTINGS = {
    # https://docs.litellm.ai/docs/proxy/prod
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    # No price list from the network.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1",
}
PATHS = {
    # The cheapest of LiteLLM's ways to a server that speaks OpenAI's format.
    "hosted_vllm": "/v1",
    # LiteLLM adds the rest of it.
    "anthropic": "",
}
"""Where a provider's API is at the model server."""


class Gateway:
    """One process in a folder of its own; use it as a context, then wait for `start`."""

    def __init__(self, name: str, folder: Path, command: Callable[[Path, int], list[str]]) -> None:
        """`command` is told the folder and the port."""
        self.name = name
        self.key = f"sk-{secrets.token_hex(24)}"
        self._log = folder / "proxy.log"
        self._folder = folder
        self._port = free_port()
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def start(self, first: Ask) -> float:
        """Seconds until it has answered for the first time."""
        began = time.monotonic()
        self._process = self._launch()
        while time.monotonic() < began + STARTS_WITHIN and self._process.poll() is None:
            if _listens(self._port):
                outcome = await load.run(self.url, self.key, [first], turns=1, at_once=1)
                if outcome.total:
                    return time.monotonic() - began
            await asyncio.sleep(0.02)
        raise RuntimeError(f"{self.name} did not start:\n{self._tail()}")

    def _launch(self) -> subprocess.Popen[bytes]:
        self._folder.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        with self._log.open("wb") as out:
            return subprocess.Popen(
                self._command(self._folder, self._port),
                cwd=self._folder,
                env={**kept, "PYTHONPATH": str(ROOT), **SETTINGS, "LITELLM_MASTER_KEY": self.key},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def cpu_seconds(self) -> float:
        return process.cpu_seconds(self.pid)

    def rss_mb(self) -> float:
        return process.rss_mb(self.pid)


def litellm(
    upstream: int, models: Mapping[str, str], bench: Mapping[str, Any] | None, callback: str = "bench_proxy.gateway"
) -> Callable[[Path, int], list[str]]:
    """LiteLLM's proxy. `models` are their providers by name; `bench` is the block of one with bench-proxy in it, None
    for LiteLLM alone, and `callback` what mounts it.
    """

    def command(folder: Path, port: int) -> list[str]:
        config = folder / "litellm_config.yaml"
        written = json.dumps(configuration(upstream, models, bench, callback))  # JSON is YAML
        config.write_text(written, encoding="utf-8")
        return [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]

    return command


def reference(upstream: int, collections: Mapping[str, Sequence[str]]) -> Callable[[Path, int], list[str]]:
    def command(_: Path, port: int) -> list[str]:
        given = ["--upstream", f"http://127.0.0.1:{upstream}", "--collections", json.dumps(collections)]
        return [sys.executable, "-m", "benchmarks.reference", "--port", str(port), *given]

    return command


def configuration(
    upstream: int, models: Mapping[str, str], bench: Mapping[str, Any] | None, callback: str
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_list": [
            {
                "model_name": name,
                "litellm_params": {
                    "model": f"{provider}/{name}",
                    "api_base": f"http://127.0.0.1:{upstream}{PATHS[provider]}",
                    "api_key": "none",
                },
                # A price here spares LiteLLM a search of its price list on every call.
                "model_info": {"mode": "chat", "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6},
            }
            for name, provider in models.items()
        ],
        "litellm_settings": {"set_verbose": False, "request_timeout": 600},
    }
    if bench is not None:
        config["litellm_settings"]["callbacks"] = [callback]
        config["bench"] = bench
    return config


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

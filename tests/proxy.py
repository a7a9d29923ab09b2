"""A real LiteLLM proxy in a process of its own, with or without the extension."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

MASTER_KEY = "sk-test-4f1b8c0e6a2d47c39b75e8d1f0a3c6b9"
EXTENSION = "bench_proxy.gateway"
LITELLM = Path(sys.executable).parent / "litellm"
ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 180
TAIL = 4000  # characters of the log in an error
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")

Json = dict[str, Any]
Model = str | Mapping[str, Any]


class ProxyFailed(RuntimeError):
    """The proxy did not start, or did not stop when told to; the message ends with the tail of its log."""


def reserve_port() -> socket.socket:
    """A free port, kept free for the proxy: it is bound here, but not listened on.

    Linux lets a server bind it too, since both set SO_REUSEADDR, and gives it to nobody who asks for any port.
    Elsewhere the reservation has to be dropped before the proxy starts.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def deployment(alias: str, model: Model, api_base: str) -> Json:
    """An entry of LiteLLM's `model_list`, from the upstream's name for a model or from parts of the entry itself."""
    entry: Mapping[str, Any] = {"litellm_params": {"model": f"openai/{model}"}} if isinstance(model, str) else model
    params = {"model": f"openai/{alias}", "api_base": api_base, "api_key": "sk-upstream"}
    return {"model_name": alias, **entry, "litellm_params": {**params, **entry.get("litellm_params", {})}}


class Proxy:
    """`with Proxy(upstream.api_base, {"gpt": "ok-a"}, bench={…}) as proxy: proxy.client().post(…)`.

    `config` is what every start writes to `config_path`; change it to have another one after `restart`, or call
    `write_config` for a proxy that reloads.
    """

    def __init__(
        self,
        api_base: str,
        models: Mapping[str, Model | Sequence[Model]],
        *,
        bench: Mapping[str, Any] | None = None,
        callbacks: Sequence[str] | None = None,
        bare: bool = False,
        workers: int = 1,
        key: str | None = MASTER_KEY,
        litellm_settings: Mapping[str, Any] | None = None,
        general_settings: Mapping[str, Any] | None = None,
        router_settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Describe the proxy; `start` or `with` starts it.

        models     alias -> the upstream's name for it, or parts of a `model_list` entry, or several of either, which
                   make one group of deployments
        callbacks  the extension unless said
        bare       without the extension: ready when LiteLLM says so
        key        LiteLLM's master key, which clients send too; None starts it without one
        files      name -> text, written beside the config file
        cwd        where the config file, the log and the ledger go; unless said, a directory that `close` removes
        """
        self._own_directory = cwd is None
        self.directory = cwd or Path(tempfile.mkdtemp(prefix="bench-proxy-"))
        self.config_path = self.directory / "litellm_config.yaml"
        self.log_path = self.directory / "proxy.log"
        self.key, self.bare, self.workers = key, bare, workers
        self._reserved = reserve_port()
        self.port: int = self._reserved.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None  # while it is there
        self.exit_code = 0  # of the last one
        self._env = dict(env or {})
        if callbacks is None:
            callbacks = [] if bare else [EXTENSION]
        deployments = [
            deployment(alias, model, api_base)
            for alias, group in models.items()
            for model in ([group] if isinstance(group, str | Mapping) else group)
        ]
        self.config: Json = {
            "model_list": deployments,
            "litellm_settings": {"callbacks": list(callbacks), **(litellm_settings or {})},
            "general_settings": dict(general_settings or {}),
            "router_settings": dict(router_settings or {}),
        }
        if bench is not None:
            self.config["bench"] = dict(bench)
        for name, text in (files or {}).items():
            file = self.directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(**self._client_options(options))

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(**self._client_options(options))

    def log(self) -> str:
        """What the process has written, over all its starts."""
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""

    def write_config(self) -> None:
        """Replace the config file with what `config` holds, in one step."""
        text = yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True)
        fresh = self.config_path.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.config_path)

    def start(self) -> Self:
        """Write the config, start, and wait until ready; the port is the same each time. Raises ProxyFailed."""
        self.kill()
        self.write_config()
        command = [str(LITELLM), "--config", str(self.config_path), "--host", "127.0.0.1", "--port", str(self.port)]
        if self.workers > 1:
            # Workers that do not answer while they load LiteLLM on a busy machine must not be replaced for that.
            command += ["--num_workers", str(self.workers), "--timeout_worker_healthcheck", str(START_SECONDS)]
        if sys.platform != "linux":
            self._reserved.close()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(self.process)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout: float = 30) -> int:
        """Send SIGTERM, wait, return the exit code (0 if it never ran). Raises ProxyFailed after `timeout` seconds."""
        if self.process is None:
            return self.exit_code
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self._failed(f"still running {timeout} s after SIGTERM") from None
        finally:
            self.kill()
        return self.exit_code

    def kill(self) -> None:
        """Send SIGKILL to the process and its workers, and wait until it is gone."""
        if self.process is None:
            return
        # The group may outlive its leader: a worker that nobody told to stop.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.exit_code = self.process.wait()
        self.process = None

    def restart(self) -> int:
        """Stop and start again on the same port, over the same files; returns the exit code of the stop."""
        code = self.stop()
        self.start()
        return code

    def close(self) -> None:
        """Stop, give up the port, and remove the directory if it is our own."""
        try:
            self.stop()
        finally:
            self._reserved.close()
            if self._own_directory:
                shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _client_options(self, options: Mapping[str, Any]) -> Json:
        ours: Json = {
            "base_url": self.url,
            "timeout": 60,
            "trust_env": False,
            "limits": httpx.Limits(max_connections=None),
        }
        return {**ours, **options, "headers": {**self.headers, **options.get("headers", {})}}

    def _environment(self) -> dict[str, str]:
        """Nothing of the developer's own keys, proxies and databases."""
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env |= {
            "HOME": str(self.directory),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "NO_PROXY": "*",
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
        }
        if self.key is None:
            env["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
        else:
            env["LITELLM_MASTER_KEY"] = self.key
        return env | self._env

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        path = "/health/liveliness" if self.bare else "/bench/health/live"
        deadline = time.monotonic() + START_SECONDS
        with httpx.Client(base_url=self.url, timeout=10, trust_env=False) as probe:
            while time.monotonic() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(0.1)
                    raise self._failed(f"exited with {code} before it was ready")
                with suppress(httpx.TransportError):
                    status = probe.get(path).status_code
                    if status == 200:
                        return
                    # LiteLLM listens only after its start is complete: a route that is missing now stays missing.
                    if status != 503:
                        raise self._failed(f"answers {status} to GET {path}")
        raise self._failed(f"not ready after {START_SECONDS} s")

    def _failed(self, what: str) -> ProxyFailed:
        return ProxyFailed(f"the proxy on port {self.port}: {what}\n{self.log()[-TAIL:]}")

"""`bench-proxy demo`: the whole round on offline models, from the first question to the first verdict."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import httpx

import bench_proxy
from bench_proxy.cli.ask import stream
from bench_proxy.cli.client import client, refused
from bench_proxy.cli.serve import check_free

STARTS_WITHIN = 120.0
QUESTION = "Our nightly report takes forty minutes and users wait for it. How should I build a job queue?"


@click.command()
@click.option("--keep", is_flag=True, help="Leave the proxy running and say what to try next.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Default: 4000 with --keep, else any free one.")
def demo(keep: bool, port: int | None) -> None:
    """Start a proxy with models that answer without a network, ask a panel, judge an answer, show the record."""
    # A closed terminal ends what was started too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    port = port or (4000 if keep else _free_port())
    check_free("127.0.0.1", port)  # else whoever listens there would be asked, and judged
    url = f"http://127.0.0.1:{port}"
    with _served(port) as process, client(url, "") as http:
        click.secho("Asking bench/core: three members, two explorers\n", bold=True)
        data = stream(http, {"model": "bench/core", "messages": [{"role": "user", "content": QUESTION}]})
        best = next(seat for seat in data["seats"] if seat["status"] == "ok")
        click.secho(f"\nSaying that {best['alias']} was useful\n", bold=True)
        _post(http, "/bench/verdict", {"call": best["call"], "useful": True, "note": "boring, and right"})
        click.echo(f"{best['call']}: useful\n")
        click.secho("Asking once more: whoever was not seated for the longest time comes first\n", bold=True)
        again = _post(
            http, "/v1/chat/completions", {"model": "bench/core", "messages": [{"role": "user", "content": QUESTION}]}
        )
        for when, panel in (("first", data), ("second", again["bench"])):
            explorers = [f"{s['alias']} ({s['status']})" for s in panel["seats"] if s["seat"] == "explorer"]
            click.echo(f"{when} panel: {', '.join(explorers)}")
        click.secho("\nThe record\n", bold=True)
        _show_record(http)
        if keep:
            _say_what_to_try(url)
            process.wait()


@contextmanager
def _served(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A proxy of its own in a folder of its own; stopped and removed at the end, also after Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="bench-proxy-demo-") as folder:
        _copy_configuration(Path(folder))
        log = Path(folder) / "proxy.log"
        command = [sys.executable, "-m", "bench_proxy", "serve", "--port", str(port)]
        environment = {k: v for k, v in os.environ.items() if k not in {"LITELLM_MASTER_KEY", "BENCH_CONFIG"}}
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603  our own command
                command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True
            )
        try:
            click.echo(f"Starting a proxy on http://127.0.0.1:{port} (LiteLLM takes a few seconds) …", err=True)
            _wait_until_ready(process, port, log)
            yield process
        except KeyboardInterrupt:
            click.echo("\nstopping", err=True)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _copy_configuration(folder: Path) -> None:
    """The files are in the package; in a checkout they stand at its root."""
    packaged = Path(bench_proxy.__file__).parent / "demo"
    source = packaged if packaged.is_dir() else Path(bench_proxy.__file__).parent.parent
    (folder / "config").mkdir()
    for name in ("litellm_config.yaml", "config/bench.yaml"):
        shutil.copy(source / name, folder / name)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < ends:
        if process.poll() is not None:
            raise click.ClickException(f"the proxy ended with {process.returncode}:\n{_tail(log)}")
        try:
            if httpx.get(f"http://127.0.0.1:{port}/bench/health/ready", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise click.ClickException(f"the proxy did not answer within {STARTS_WITHIN:g} seconds:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def _post(http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = http.post(path, json=body)
    if response.status_code != 200:
        raise refused(response)
    found: dict[str, Any] = response.json()
    return found


def _show_record(http: httpx.Client) -> None:
    response = http.get("/bench/record")
    if response.status_code != 200:
        raise refused(response)
    click.echo(f"{'model':<18}{'shape':<10}{'seated':>7}{'answered':>10}{'failed':>8}{'useful':>8}{'owed':>6}")
    for line in response.json()["models"]:
        counts = f"{line['seated']:>7}{line['answered']:>10}{line['failed']:>8}{line['useful']:>8}{line['owed']:>6}"
        click.echo(f"{line['alias']:<18}{line['shape']:<10}{counts}")


def _say_what_to_try(url: str) -> None:
    # As it was called: a checkout's is on no PATH.
    called = sys.argv[0]
    command = "python -m bench_proxy" if called.endswith("__main__.py") else shlex.quote(called)
    click.secho(f"\nThe proxy goes on running at {url}. Try, in another terminal:\n", bold=True)
    click.echo(
        f"""  {command} ask core "How do I name things?" --url {url}
  {command} verdict <call id> --useful --url {url}
  curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model": "bench/pair", "messages": [{{"role": "user", "content": "Hello"}}]}}'
  curl {url}/v1/models
  curl {url}/bench/record

Ctrl-C stops it."""
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""`bench-proxy serve`: LiteLLM's own proxy with bench-proxy in it, safe to start without a key on this machine."""

import os
import signal
import socket
import sys
from ipaddress import ip_address
from pathlib import Path

import click

from bench_proxy.cli.check_config import SETTINGS, configured
from bench_proxy.config import LOOPBACK_ONLY, environment, load, master_key_set
from bench_proxy.errors import ConfigError
from bench_proxy.host import server

NO_KEY = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"


@click.command()
@configured
@click.option("--port", type=click.IntRange(1, 65_535), default=4000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Any other address needs a master key.")
def serve(file: Path, port: int, host: str) -> None:
    """Run LiteLLM's proxy with the bench block of its YAML file in force.

    On 127.0.0.1 no key is asked unless one is set. For workers, TLS and the like run `litellm` itself.
    """
    try:
        config, _ = load(file, override=environment().bench_config)
        keyed = master_key_set(file)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if not keyed and not _is_loopback(host):
        raise click.ClickException(
            f"{host} can be reached by others, and no master key is set. Set LITELLM_MASTER_KEY (or"
            " general_settings.master_key) to a long random key, or serve on 127.0.0.1."
        )
    check_free(host, port)
    os.environ.update({name: value for name, value in SETTINGS.items() if name not in os.environ})
    os.environ["CONFIG_FILE_PATH"] = str(file)
    # The extension is mounted whether or not the file names it as a callback.
    hooks = [h for h in os.environ.get("LITELLM_WORKER_STARTUP_HOOKS", "").split(",") if h]
    os.environ["LITELLM_WORKER_STARTUP_HOOKS"] = ",".join([*hooks, "bench_proxy.wiring:gateway"])
    if not keyed:
        os.environ[NO_KEY] = os.environ[LOOPBACK_ONLY] = "true"
    # uvicorn raises the signal that ended it once more when all is done: a stop that was asked for is a good end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    needed = "no key needed" + (" but for bench" if config.access.require_key else "")
    click.echo(f"bench-proxy on http://{host}:{port}" + ("" if keyed else f", {needed}"), err=True)
    server.serve(file, host, port)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_free(host: str, port: int) -> None:
    """LiteLLM takes a random port when 4000 is taken; a client that was told 4000 would not find it."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise click.ClickException(
                f"{host}:{port} cannot be used: {error.strerror}; choose another --port"
            ) from None

"""How the commands reach a running proxy."""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

import click
import httpx

from bench_proxy.config import environment
from bench_proxy.keys import PREFIX

HOW_TO_ASK = "set BENCH_KEY or LITELLM_MASTER_KEY, or give a key by --key"

F = TypeVar("F", bound=Callable[..., Any])

# A model may be silent for long; the stream's keep-alives come every ten seconds.
TIMEOUT = httpx.Timeout(10, read=600)


def reaching(command: F) -> F:
    """The options that say where the proxy is and who asks."""
    key = click.option("--key", default=lambda: environment().key, help="Default: $BENCH_KEY or $LITELLM_MASTER_KEY.")
    return _addressed(key(command))


def reaching_as_admin(command: F) -> F:
    """The same for what only an admin may: a bench key is none's."""
    said = "Default: $BENCH_KEY unless that is a bench key, else $LITELLM_MASTER_KEY."
    return _addressed(click.option("--key", default=_admins_key, help=said)(command))


def _addressed(command: F) -> F:
    url = click.option("--url", default=lambda: environment().url, help="The proxy. Default: $BENCH_URL or port 4000.")
    return url(command)


def _admins_key() -> str:
    known = environment()
    return known.master_key if known.master_key and known.key.startswith(PREFIX) else known.key


def client(url: str, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if not url.lower().startswith(("http://", "https://")):
        raise click.ClickException(f"{url} is not an address: it begins with http:// or https://")
    return httpx.Client(base_url=bare_url(url), headers=headers, timeout=TIMEOUT)


def bare_url(url: str) -> str:
    """The proxy's address; those who give it with the /v1 of OpenAI's clients mean the same."""
    return url.rstrip("/").removesuffix("/v1")


def unreachable(url: str, error: httpx.HTTPError) -> click.ClickException:
    return click.ClickException(f"no answer from {url} ({type(error).__name__}); is it running? bench-proxy serve")


def refused(response: httpx.Response) -> click.ClickException:
    """The proxy's own words, whatever shape they came in."""
    try:
        message = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        if "json" not in response.headers.get("content-type", ""):
            return click.ClickException(
                f"{response.status_code}: {response.url} did not answer as bench-proxy does; is it the right address?"
            )
        message = response.text[:500]
    hint = f"; {HOW_TO_ASK}" if response.status_code == HTTPStatus.UNAUTHORIZED else ""
    return click.ClickException(f"{response.status_code}: {message.rstrip('.') if hint else message}{hint}")


def show(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))

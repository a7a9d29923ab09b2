"""`bench-proxy key`: make, list and revoke bench keys."""

import math
import time
from collections.abc import Mapping
from typing import Any

import click
import httpx

from bench_proxy.cli.client import client, reaching_as_admin, refused, show, unreachable
from bench_proxy.keys import PREFIX

PATH = "/bench/keys"
DAY_SECONDS = 86_400


@click.group()
def key() -> None:
    """Bench keys: for callers that LiteLLM does not know. Asks with the master key, or another admin's."""


@key.command()
@click.argument("name")
@click.option("--collection", "collections", multiple=True, help="What it may call; all unless said. Repeatable.")
@click.option("--requests-a-minute", type=click.IntRange(min=1))
@click.option("--tokens-a-day", type=click.IntRange(min=1), help="Of prompts and answers; days are those of UTC.")
@click.option("--cost-a-day", type=click.FloatRange(min=0, min_open=True), help="In US dollars.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="After which it expires; never unless said.")
@click.option("--json", "as_json", is_flag=True, help="Print all that is known of it, the key included.")
@reaching_as_admin
def create(
    name: str,
    collections: tuple[str, ...],
    requests_a_minute: int | None,
    tokens_a_day: int | None,
    cost_a_day: float | None,
    days: float | None,
    as_json: bool,
    url: str,
    key: str,
) -> None:
    """Make a key for NAME and print it: it is not shown again."""
    for option, number in (("--cost-a-day", cost_a_day), ("--days", days)):
        if number is not None and not math.isfinite(number):
            raise click.ClickException(f"{option}: {number} is no number to count with")
    given = {
        "name": name,
        "collections": list(collections) or None,
        "requests_a_minute": requests_a_minute,
        "tokens_a_day": tokens_a_day,
        "cost_a_day": cost_a_day,
        "expires": None if days is None else time.time() + days * DAY_SECONDS,
    }
    made = _asked(url, key, "POST", PATH, json=given)
    if as_json:
        show(made)
        return
    click.echo(made["key"])
    click.echo(f"{made['id']}: keep the key, which is not shown again; by this id it is revoked", err=True)


@key.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print all that is known of them.")
@reaching_as_admin
def listed(as_json: bool, url: str, key: str) -> None:
    """Print each key's id, name, what it may do and what it has used today (UTC); never the key."""
    keys: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = _asked(url, key, "GET", PATH, params={"limit": 200, **({"cursor": cursor} if cursor else {})})
        keys += page["keys"]
        if (cursor := page["next"]) is None:
            break
    if as_json:
        show(keys)
        return
    for each in keys:
        click.echo(_line(each))


@key.command()
@click.argument("id")
@reaching_as_admin
def revoke(id: str, url: str, key: str) -> None:
    """Let the key with this ID work no more."""
    if id.startswith(PREFIX):
        raise click.ClickException("a key is revoked by its id, not by itself: bench-proxy key list shows the ids")
    # A path of its own, whatever was typed.
    if not id.isalnum() and not id.replace("-", "").isalnum():
        raise click.ClickException(f"{id} is no id: bench-proxy key list shows them")
    revoked = _asked(url, key, "DELETE", f"{PATH}/{id}")
    click.echo(f"{revoked['id']} ({revoked['name']}): revoked")


def _asked(url: str, key: str, method: str, path: str, **more: Any) -> Any:
    with client(url, key) as http:
        try:
            response = http.request(method, path, **more)
        except httpx.HTTPError as error:
            raise unreachable(url, error) from error
    if not response.is_success:
        raise refused(response)
    return response.json()


def _line(key: Mapping[str, Any]) -> str:
    today = key["today"]
    words = ["all collections" if key["collections"] is None else ", ".join(key["collections"]) or "no collection"]
    if (limit := key["requests_a_minute"]) is not None:
        words.append(f"{limit:,} request{'' if limit == 1 else 's'} a minute")
    if (limit := key["tokens_a_day"]) is not None or today["tokens"]:
        words.append(f"{today['tokens']:,}{'' if limit is None else f' of {limit:,}'} tokens today")
    if (limit := key["cost_a_day"]) is not None or today["cost"]:
        words.append(f"{today['cost']:g}{'' if limit is None else f' of {limit:g}'} dollars today")
    if key["expires"] is not None:
        words.append(f"expires {_date(key['expires'])}")
    words.append(f"last used {_date(key['last_used'])}" if key["last_used"] else "never used")
    if key["revoked"] is not None:
        words.append(f"revoked {_date(key['revoked'])}")
    return f"{key['id']}  …{key['last_four']}  {key['name']}: {'; '.join(words)}"


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))

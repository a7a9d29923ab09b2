"""`bench-proxy verdict`: say whether an answer was useful."""

import click
import httpx

from bench_proxy.cli.client import client, reaching, refused, unreachable


@click.command()
@click.argument("call")
@click.option("--useful/--not-useful", "useful", default=None, help="One of the two is required.")
@click.option("--note", default="", help="Why, for whoever reads the record.")
@reaching
def verdict(call: str, useful: bool | None, note: str, url: str, key: str) -> None:
    """Record that the answer with the call id CALL was useful, or was not."""
    if useful is None:
        raise click.UsageError("say --useful or --not-useful")
    with client(url, key) as http:
        try:
            response = http.post("/bench/verdict", json={"call": call, "useful": useful, "note": note})
        except httpx.HTTPError as error:
            raise unreachable(url, error) from error
    if response.status_code != 200:
        raise refused(response)
    word = "useful" if useful else "not useful"
    click.echo(f"{call}: {word}" + ("" if response.json()["recorded"] else " (was on the record already)"))

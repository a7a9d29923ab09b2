"""`bench-proxy ask`: a panel, printed seat by seat as the answers come."""

import json
import secrets
import sys
from collections.abc import Iterator
from typing import Any

import click
import httpx

from bench_proxy.cli.client import client, reaching, refused, show, unreachable


@click.command()
@click.argument("collection")
@click.argument("question")
@click.option("--json", "as_json", is_flag=True, help="Print the `bench` data instead of text, when the panel is over.")
@click.option("--with", "guests", multiple=True, metavar="MODEL", help="Give a seat to this model too. Repeatable.")
@click.option("--shape", help="The kind of task: general, review, code, …")
@click.option("--explorers", type=click.IntRange(min=0), help="Fewer explorers than the collection has.")
@reaching
def ask(
    collection: str,
    question: str,
    as_json: bool,
    guests: tuple[str, ...],
    shape: str | None,
    explorers: int | None,
    url: str,
    key: str,
) -> None:
    """Ask every model of COLLECTION the QUESTION and print each answer with its name, time and call id; in route mode
    the one that answers.

    With - as the QUESTION it is read from standard input.
    """
    question = sys.stdin.read() if question == "-" else question
    if not question.strip():
        raise click.ClickException("there is no question")
    options: dict[str, Any] = {"with": list(guests) or None, "shape": shape, "explorers": explorers}
    if collection.endswith(":route"):  # asked twice it is two conversations, each with a verdict of its own
        options["conversation"] = f"ask {secrets.token_hex(8)}"
    body = {
        "model": collection if collection.lower().startswith("bench/") else f"bench/{collection}",
        "messages": [{"role": "user", "content": question}],
        "bench": {name: value for name, value in options.items() if value is not None},
    }
    with client(url, key) as http:
        try:
            data = _whole(http, body) if as_json else stream(http, body)
        except httpx.HTTPError as error:
            raise unreachable(url, error) from error
    if as_json:
        show(data)


def stream(http: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """Print the panel as it comes; returns its `bench` data. Raises ClickException when it is refused or fails."""
    data: dict[str, Any] = {}
    texts: dict[int, str] = {}
    with http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        if response.status_code != 200:
            response.read()
            raise refused(response)
        for event in _events(response):
            if "error" in event:
                raise click.ClickException(event["error"]["message"])
            for choice in event.get("choices", ()):
                text = choice["delta"].get("content") or ""
                texts[choice["index"]] = texts.get(choice["index"], "") + text
                if len(texts) == 1:
                    click.echo(text, nl=False)
            data = event.get("bench", data)
    if data.get("reply") == "route":
        click.echo(f"\n\n{data['alias']}, {data['seconds']:.1f} s, `{data['call']}`")
    # In mode `choices` every seat begins before any speaks, and then all speak at once: shown one after the other.
    for index, seat in enumerate(data.get("seats", ()) if len(texts) > 1 else ()):
        click.echo(
            f"## {seat['alias']}\n\n`{seat['call']}`, {seat['status']}, {seat['seconds']:.1f} s\n\n{texts[index]}\n"
        )
    return data


def _whole(http: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    response = http.post("/v1/chat/completions", json=body)
    if response.status_code != 200:
        raise refused(response)
    reply = response.json()
    data: dict[str, Any] = reply["bench"]
    if data["reply"] == "route":  # a panel's seats have their answers there
        data["answer"] = reply["choices"][0]["message"]["content"]
    return data


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])

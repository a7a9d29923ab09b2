"""`bench-proxy check-config`: everything that is wrong with a configuration, without starting anything."""

import os
from pathlib import Path

import click

from bench_proxy.config import (
    Config,
    environment,
    listed_models,
    load,
    names_callback,
    without_collections,
)
from bench_proxy.errors import ConfigError

SETTINGS = {
    # The price list that LiteLLM brings, instead of one that it fetches at each start.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
}
"""Settings of LiteLLM's that our commands start it with, where the environment does not say otherwise."""


def _found(_context: click.Context, _option: click.Parameter, file: Path) -> Path:
    try:
        file.stat()
    except OSError as error:
        message = f"{file.absolute()} cannot be read: {error.strerror}; --config names another file"
        raise click.ClickException(message) from None
    return file


configured = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    default=Path("litellm_config.yaml"),
    callback=_found,
    help="LiteLLM's YAML file. Default: litellm_config.yaml in this folder.",
)
"""The option that says which file LiteLLM is started with."""


@click.command("check-config")
@configured
@click.option("--lanes", is_flag=True, help="Also say how each model will be called, and why. Takes some seconds.")
def check_config(file: Path, lanes: bool) -> None:
    """List each fault of the bench block with its place in the file; exit 0 when there is none."""
    try:
        config, source = load(file, override=environment().bench_config)
        if not config.collections:
            raise ConfigError(str(source.block_file), [without_collections(source)])
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if file.is_file() and not names_callback(file):
        click.echo(
            f"note: litellm_settings.callbacks of {file} does not name bench_proxy.gateway:"
            " `bench-proxy serve` will load the block, `litellm` itself will not",
            err=True,
        )
    click.echo(f"{source.block_file}: {_counted(len(config.collections), 'collection')}, no fault")
    for name, collection in config.collections.items():
        # A turn of route mode has none.
        beside = "" if collection.reply == "route" else f" + {_counted(config.explorers_of(name), 'explorer')}"
        click.echo(f"  bench/{name}: {', '.join(collection.members)}{beside}, {collection.reply}")
    if lanes:
        _show_lanes(file, config)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _show_lanes(file: Path, config: Config) -> None:
    os.environ.update({name: value for name, value in SETTINGS.items() if name not in os.environ})
    from bench_proxy.host.lanes import lanes_of
    from bench_proxy.host.provider import PROVIDING

    PROVIDING.register()  # a collection may stand in model_list
    forced = {name: facts.lane for name, facts in config.models.items()}
    for alias, lane in lanes_of(listed_models(file), forced).items():
        because = f" ({lane['lane_because']})" if "lane_because" in lane else ""
        click.echo(f"  {alias}: {lane['lane']} lane{because}")

"""`bench-proxy check-config`: everything that is wrong with a configuration, without starting anything."""

from pathlib import Path

import click

from bench_proxy.config import environment, load
from bench_proxy.errors import ConfigError

DEFAULT_FILE = Path("litellm_config.yaml")


@click.command("check-config")
@click.option("--config", "file", type=click.Path(path_type=Path), default=DEFAULT_FILE, help="LiteLLM's YAML file.")
def check_config(file: Path) -> None:
    """List each fault of the bench block with its place in the file; exit 0 when there is none."""
    try:
        config, source = load(file, override=environment().bench_config)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{source.block_file}: {len(config.collections)} collections, no fault")
    for name, collection in config.collections.items():
        explorers = config.explorers_of(name)
        click.echo(f"  bench/{name}: {', '.join(collection.members)} + {explorers} explorers, {collection.reply}")

"""The `bench-proxy` command."""

import click

from bench_proxy import __version__
from bench_proxy.cli.agents import agents
from bench_proxy.cli.ask import ask
from bench_proxy.cli.check_config import check_config
from bench_proxy.cli.demo import demo
from bench_proxy.cli.key import key
from bench_proxy.cli.serve import serve
from bench_proxy.cli.verdict import verdict


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Ask a collection of models side by side, and say which answers were useful."""


for command in (serve, demo, ask, verdict, key, agents, check_config):
    main.add_command(command)

"""`bench-proxy agents`: what makes a coding agent ask a collection, as lines to paste."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import click

from bench_proxy.cli.client import bare_url
from bench_proxy.config import COLLECTION_NAME, MODEL_PREFIX, REPLY_MODES, closest, environment

MODEL = "bench/core:route"
CONTEXT = 128_000
OUTPUT = 16_384
"""Tokens. An agent that does not know the model assumes a context window, which may be far too large: it is told one,
and how long an answer may be.
"""

ADDRESS = re.compile(r"https?://[^\s/@?#]+(?:/[^\s@?#]*)?", re.IGNORECASE)
FORM = f"the form is bench/<collection>:route, as {MODEL}"


@dataclass(frozen=True, slots=True)
class Target:
    """What an agent is told: the proxy's address, without /v1, and the model. `key` is empty where none was given:
    then the agent takes it from the environment.
    """

    url: str
    model: str
    key: str = ""

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Agent:
    """`parts` are texts to paste, one for each place. The first line of a file is a comment that says which one; what
    comes without is for a shell, and has no comments, which zsh takes for commands.
    """

    title: str
    speaks: str
    parts: Callable[[Target], tuple[str, ...]]


def _shell(target: Target, *lines: str) -> str:
    # A key is always sent: agents do not start without one, and a proxy that asks for none takes any text.
    key = shlex.quote(target.key) if target.key else '"${BENCH_KEY:-${LITELLM_MASTER_KEY:-none}}"'
    return "\n".join((f"export BENCH_KEY={key}", *lines))


def _export(**values: str) -> tuple[str, ...]:
    return tuple(f"export {name}={shlex.quote(value)}" for name, value in values.items())


def _claude(target: Target) -> tuple[str, ...]:
    # Of the two ways to send a key, this one asks no question at the first start; with both set, both are sent.
    # https://code.claude.com/docs/en/env-vars
    models = ("", "DEFAULT_FABLE_", "DEFAULT_OPUS_", "DEFAULT_SONNET_", "DEFAULT_HAIKU_")
    lines = (
        *_export(ANTHROPIC_BASE_URL=target.url),
        'export ANTHROPIC_AUTH_TOKEN="$BENCH_KEY"',
        "unset ANTHROPIC_API_KEY",
        *_export(**{f"ANTHROPIC_{kind}MODEL": target.model for kind in models}),
        *_export(CLAUDE_CODE_AUTO_COMPACT_WINDOW=str(CONTEXT)),
        "claude",
    )
    return (_shell(target, *lines),)


def _codex(target: Target) -> tuple[str, ...]:
    # https://developers.openai.com/codex/config-reference
    file = (
        "# ~/.codex/config.toml; the first three lines stand above every [table]",
        f"model = {_quoted(target.model)}",
        f"model_context_window = {CONTEXT}",
        'model_provider = "bench"',
        "",
        "[model_providers.bench]",
        'name = "bench-proxy"',
        f"base_url = {_quoted(target.openai_url)}",
        'wire_api = "responses"',
        'env_key = "BENCH_KEY"',
    )
    return "\n".join(file), _shell(target, "codex")


def _opencode(target: Target) -> tuple[str, ...]:
    # https://opencode.ai/docs/providers
    model = {"name": target.model, "tool_call": True, "limit": {"context": CONTEXT, "output": OUTPUT}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "bench-proxy",
        "options": {"baseURL": target.openai_url, "apiKey": "{env:BENCH_KEY}"},
        "models": {target.model: model},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"bench-proxy/{target.model}",
        "small_model": f"bench-proxy/{target.model}",
        "provider": {"bench-proxy": provider},
    }
    place = "// opencode.json in the project, or ~/.config/opencode/opencode.json"
    return f"{place}\n{_json(config)}", _shell(target, "opencode")


def _gemini(target: Target) -> tuple[str, ...]:
    # With an address of its own and no settled way to log in, it takes one that it then refuses.
    # https://github.com/google-gemini/gemini-cli/blob/main/docs/reference/configuration.md
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    lines = (
        *_export(GOOGLE_GEMINI_BASE_URL=target.url),
        'export GEMINI_API_KEY="$BENCH_KEY"',
        f"gemini -m {shlex.quote(target.model)}",
    )
    return f"// ~/.gemini/settings.json\n{_json(settings)}", _shell(target, *lines)


def _cline(target: Target) -> tuple[str, ...]:
    # https://docs.cline.bot/provider-config/openai-compatible
    settings = (
        "# Cline's settings in an editor",
        "API Provider: OpenAI Compatible",
        f"Base URL: {target.openai_url}",
        f"API Key: {target.key or 'what BENCH_KEY holds; any text where the proxy asks for none'}",
        f"Model ID: {target.model}",
        f"Context Window Size: {CONTEXT}",
        f"Max Output Tokens: {OUTPUT}",
    )
    place, model = shlex.quote(target.openai_url), shlex.quote(target.model)
    auth = f'cline auth -p openai -k "$BENCH_KEY" -b {place} -m {model}'
    return "\n".join(settings), _shell(target, auth, "cline")


def _continue(target: Target) -> tuple[str, ...]:
    # https://docs.continue.dev/reference
    file = (
        "# ~/.continue/config.yaml; editors read BENCH_KEY from ~/.continue/.env, cn also from the shell",
        "name: bench-proxy",
        "version: 1.0.0",
        "schema: v1",
        "models:",
        f"  - name: {_quoted(target.model)}",
        "    provider: openai",
        f"    model: {_quoted(target.model)}",
        f"    apiBase: {_quoted(target.openai_url)}",
        "    apiKey: ${{ secrets.BENCH_KEY }}",
        "    roles: [chat, edit, apply]",
        "    capabilities: [tool_use, image_input]",
        "    defaultCompletionOptions:",
        f"      contextLength: {CONTEXT}",
        f"      maxTokens: {OUTPUT}",
    )
    return "\n".join(file), _shell(target, "cn")


def _aider(target: Target) -> tuple[str, ...]:
    # https://aider.chat/docs/llms/openai-compat.html
    lines = (
        *_export(OPENAI_API_BASE=target.openai_url),
        'export OPENAI_API_KEY="$BENCH_KEY"',
        f"aider --model {shlex.quote(f'openai/{target.model}')}",
    )
    return (_shell(target, *lines),)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _quoted(text: str) -> str:
    """A string of JSON, which is one of TOML and of YAML too."""
    return json.dumps(text, ensure_ascii=False)


AGENTS: Mapping[str, Agent] = {
    "claude": Agent("Claude Code", "Anthropic Messages", _claude),
    "codex": Agent("Codex", "OpenAI Responses", _codex),
    "opencode": Agent("opencode", "OpenAI chat completions", _opencode),
    "gemini": Agent("Gemini CLI", "Gemini", _gemini),
    "cline": Agent("Cline", "OpenAI chat completions", _cline),
    "continue": Agent("Continue", "OpenAI chat completions", _continue),
    "aider": Agent("aider", "OpenAI chat completions", _aider),
}


@click.command()
@click.argument("agent", required=False)
@click.option("--url", default=lambda: environment().url, help="The proxy. Default: $BENCH_URL or port 4000.")
@click.option(
    "--key", default="", help="Printed as it is. Without it the agent takes $BENCH_KEY, which is not printed."
)
@click.option("--model", default=MODEL, show_default=True, help="The collection that the agent asks.")
def agents(agent: str | None, url: str, key: str, model: str) -> None:
    """Print the lines that make AGENT ask a collection; without AGENT, which agents there are.

    Nothing is written, and the proxy is not asked.
    """
    if agent is None:
        for name, one in AGENTS.items():
            click.echo(f"{name:<10}{one.title:<13}{one.speaks}")
        return
    if agent not in AGENTS:
        known = ", ".join(AGENTS)
        raise click.ClickException(f'unknown agent "{agent}"{closest(agent, AGENTS) or "."} The agents are: {known}.')
    target = Target(_address(url), _route(model), _sendable(key))
    printed = "\n\n".join(AGENTS[agent].parts(target))
    click.echo(printed)
    env = environment()
    if not key and env.master_key and env.key == env.master_key:
        click.echo(
            "note: the agent will send the master key, which may do everything: make it a key of its own"
            " (bench-proxy key create) and set BENCH_KEY to that",
            err=True,
        )
    if str(CONTEXT) in printed:
        click.echo(
            f"note: {CONTEXT} is a guess, since the proxy is not asked: put the smallest context window of your members"
            " there, which GET /v1/models has",
            err=True,
        )


def _address(url: str) -> str:
    if "@" in url or "?" in url:  # may hold a secret, and is not shown
        raise click.ClickException("the address holds more than a host and a path; give the key in BENCH_KEY")
    bare = url.rstrip("/")
    if not ADDRESS.fullmatch(bare) or not _has_port(bare):
        raise click.ClickException(f"{url} is not an address of a proxy: that is like http://127.0.0.1:4000")
    return bare_url(bare)


def _has_port(url: str) -> bool:
    """Whether the port, if one is named, is one."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def _route(model: str) -> str:
    """The model's name, if an agent can work with it."""
    name, _, mode = model[len(MODEL_PREFIX) :].partition(":")
    if not model.lower().startswith(MODEL_PREFIX) or not COLLECTION_NAME.fullmatch(name):
        raise click.ClickException(f'"{model}" names no collection: {FORM}')
    if mode in {"", "latest"}:
        click.echo(
            f"note: {MODEL_PREFIX}{name} answers in the collection's own mode, which has to be route for an agent;"
            f" {MODEL_PREFIX}{name}:route does not depend on it",
            err=True,
        )
    elif mode not in REPLY_MODES:
        raise click.ClickException(
            f'unknown reply mode ":{mode}"{closest(mode, REPLY_MODES) or "."} For agents, {FORM}'
        )
    elif mode != "route":
        raise click.ClickException(f'"{model}" asks a panel, and a panel runs no agent. For agents, {FORM}')
    return MODEL_PREFIX + model[len(MODEL_PREFIX) :]


def _sendable(key: str) -> str:
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise click.ClickException("the key cannot be sent in a header: only ASCII without spaces can")
    return key

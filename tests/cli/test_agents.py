"""What `bench-proxy agents` prints, read as the agents' shells and configuration files would be."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bench_proxy.cli import main
from bench_proxy.cli.agents import AGENTS

SECRET = "sk-secret-1f2e3d"
DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"


def run(*arguments: str, **env: str) -> Result:
    """In an environment that says nothing of the proxy but what `env` does."""
    silent = dict.fromkeys(("BENCH_URL", "BENCH_KEY", "LITELLM_MASTER_KEY"))
    return CliRunner(env={**silent, **env}).invoke(main, ["agents", *arguments])


def printed(*arguments: str, **env: str) -> str:
    result = run(*arguments, **env)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def refused(*arguments: str, **env: str) -> str:
    result = run(*arguments, **env)
    assert result.exit_code == 1
    assert not result.stdout
    return result.stderr


def parts(text: str) -> list[str]:
    """A file, if there is one, and what is for a shell."""
    file, _, shell = text.rpartition("export BENCH_KEY=")
    return [part for part in (file.strip(), f"export BENCH_KEY={shell}".strip()) if part]


def file_of(agent: str, *arguments: str) -> str:
    file, _ = parts(printed(agent, *arguments))
    return file


def without_comment(text: str) -> str:
    first, _, rest = text.partition("\n")
    assert first.startswith("// ")
    return rest


def exported(text: str, **env: str) -> dict[str, str]:
    """The environment in which the agent is started, by a shell that has been given the lines before its start."""
    lines = parts(text)[-1].split("\n")
    script = "\n".join([*(line for line in lines if line.startswith(("export ", "unset "))), "/usr/bin/env -0"])
    done = subprocess.run(["bash", "-ec", script], env=env, capture_output=True, text=True, check=True)
    pairs = (pair.partition("=") for pair in done.stdout.split("\0") if pair)
    return {name: value for name, _, value in pairs}


# What is refused.


def test_an_unknown_agent_is_told_the_nearest_and_all_of_them() -> None:
    message = refused("claud")
    assert 'unknown agent "claud"; did you mean "claude"?' in message
    assert "claude, codex, opencode, gemini, cline, continue, aider" in message


@pytest.mark.parametrize("model", ["", "gpt-4o", "core:route", "bench", "bench/", "bench/:route", "bench/Core:route"])
def test_a_model_that_names_no_collection_is_refused_with_the_form(model: str) -> None:
    message = refused("codex", "--model", model)
    assert f'"{model}" names no collection' in message
    assert "bench/<collection>:route" in message


def test_an_unknown_mode_is_refused_with_the_nearest() -> None:
    assert 'unknown reply mode ":rout"; did you mean "route"?' in refused("codex", "--model", "bench/core:rout")


@pytest.mark.parametrize("mode", ["all", "merged", "choices"])
def test_a_panel_is_no_model_for_an_agent(mode: str) -> None:
    assert "asks a panel" in refused("claude", "--model", f"bench/core:{mode}")


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:4000", "ftp://host", "http://", "http:///v1", "http://host:port", "http://ho st", "http://h#x"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    assert "is not an address" in refused("claude", "--url", url)


@pytest.mark.parametrize("url", [f"http://user:{SECRET}@host:4000", f"http://host:4000/?key={SECRET}"])
def test_an_address_that_holds_a_secret_is_refused_and_not_shown(url: str) -> None:
    message = refused("claude", BENCH_URL=url)
    assert "BENCH_KEY" in message
    assert SECRET not in message


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "clé"])
def test_a_key_that_no_header_can_carry_is_refused(key: str) -> None:
    assert "cannot be sent in a header" in refused("claude", "--key", key)


# What is printed.


def test_without_an_agent_all_are_listed() -> None:
    lines = printed().splitlines()
    assert [line.split()[0] for line in lines] == list(AGENTS)
    assert all(AGENTS[line.split()[0]].speaks in line for line in lines)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("variable", ["BENCH_KEY", "LITELLM_MASTER_KEY"])
def test_a_key_of_the_environment_is_never_printed_and_reaches_the_agent(agent: str, variable: str) -> None:
    result = run(agent, **{variable: SECRET})
    assert SECRET not in result.output
    assert exported(result.stdout, **{variable: SECRET})["BENCH_KEY"] == SECRET


@pytest.mark.parametrize("agent", AGENTS)
def test_without_a_key_some_text_is_sent(agent: str) -> None:
    assert exported(printed(agent))["BENCH_KEY"] == "none"


@pytest.mark.parametrize("agent", AGENTS)
def test_a_key_that_is_given_is_printed_and_quoted(agent: str) -> None:
    key = "it's-$HOME-`x`"
    assert exported(printed(agent, "--key", key), BENCH_KEY="another")["BENCH_KEY"] == key


@pytest.mark.parametrize("agent", AGENTS)
def test_lines_for_a_shell_are_commands_alone(agent: str) -> None:
    # zsh has no comments where lines are typed.
    shell = parts(printed(agent))[-1]
    assert "#" not in shell
    assert all(line.strip() for line in shell.split("\n"))


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("url", ["https://bench.example/gate/", "https://bench.example/gate/v1"])
def test_each_agent_gets_the_address_and_the_model(agent: str, url: str) -> None:
    text = printed(agent, "--model", "BENCH/my-team:route", BENCH_URL=url)
    found = re.findall(r"https://bench\.example[^\s\"]*", text)
    assert found == [f"https://bench.example/gate{'' if agent in {'claude', 'gemini'} else '/v1'}"] * len(found)
    assert found
    assert "bench/my-team:route" in text
    assert "core" not in text


def test_a_model_without_a_mode_is_printed_with_a_note_beside_it() -> None:
    result = run("aider", "--model", "bench/core")
    assert result.exit_code == 0
    assert "has to be route" in result.stderr
    assert "bench/core:route" in result.stderr
    assert result.stdout.endswith("aider --model openai/bench/core\n")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_window_that_is_a_guess_is_said_to_be_one(agent: str) -> None:
    result = run(agent)
    assert ("smallest context window" in result.stderr) == ("128000" in result.stdout)


@pytest.mark.parametrize(
    ("env", "warned"),
    [
        ({}, False),
        ({"BENCH_KEY": "bpk_mine"}, False),
        ({"BENCH_KEY": "bpk_mine", "LITELLM_MASTER_KEY": SECRET}, False),
        ({"LITELLM_MASTER_KEY": SECRET}, True),
        ({"BENCH_KEY": SECRET, "LITELLM_MASTER_KEY": SECRET}, True),
    ],
)
def test_an_agent_that_would_send_the_master_key_is_warned_of(env: dict[str, str], warned: bool) -> None:
    assert ("bench-proxy key create" in run("claude", **env).stderr) == warned
    assert "bench-proxy key create" not in run("claude", "--key", "bpk_another", **env).stderr


def test_claude_code_asks_the_collection_under_each_of_its_names_with_one_key() -> None:
    environment = exported(printed("claude"), BENCH_KEY=SECRET, ANTHROPIC_API_KEY="sk-ant-mine")
    models = {name: value for name, value in environment.items() if name.endswith("_MODEL")}
    assert set(models) >= {"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL"}
    assert set(models.values()) == {"bench/core:route"}
    assert environment["ANTHROPIC_AUTH_TOKEN"] == SECRET
    assert "ANTHROPIC_API_KEY" not in environment


@pytest.mark.parametrize("agent", ["gemini", "aider"])
def test_agents_that_read_their_own_variable_find_the_key_in_it(agent: str) -> None:
    environment = exported(printed(agent), BENCH_KEY=SECRET)
    assert environment[{"gemini": "GEMINI_API_KEY", "aider": "OPENAI_API_KEY"}[agent]] == SECRET


def test_codex_gets_a_provider_that_speaks_responses() -> None:
    config = tomllib.loads(file_of("codex"))
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == "http://127.0.0.1:4000/v1"
    assert (provider["wire_api"], provider["env_key"]) == ("responses", "BENCH_KEY")
    assert config["model"] == "bench/core:route"


def test_opencode_gets_a_provider_whose_model_has_limits() -> None:
    config: dict[str, Any] = json.loads(without_comment(file_of("opencode")))
    provider, _, model = config["model"].partition("/")
    assert config["small_model"] == config["model"]
    told = config["provider"][provider]
    assert told["options"] == {"baseURL": "http://127.0.0.1:4000/v1", "apiKey": "{env:BENCH_KEY}"}
    assert told["models"][model]["limit"] == {"context": 128_000, "output": 16_384}


def test_gemini_cli_is_told_to_log_in_by_key() -> None:
    settings = json.loads(without_comment(file_of("gemini")))
    assert settings == {"security": {"auth": {"selectedType": "gemini-api-key"}}}


def test_continue_gets_a_model_that_may_use_tools() -> None:
    (model,) = yaml.safe_load(file_of("continue"))["models"]
    assert model["model"] == "bench/core:route"
    assert model["apiBase"] == "http://127.0.0.1:4000/v1"
    assert model["apiKey"] == "${{ secrets.BENCH_KEY }}"
    assert "tool_use" in model["capabilities"]


def test_cline_s_settings_have_the_key_that_was_given() -> None:
    assert f"API Key: {SECRET}\n" in file_of("cline", "--key", SECRET)
    assert "any text" in file_of("cline")


# The documentation.


@pytest.mark.parametrize("agent", AGENTS)
def test_the_documentation_shows_what_is_printed(agent: str) -> None:
    _, _, after = DOCUMENT.read_text().partition(f"\n### {AGENTS[agent].title}\n")
    section = re.split(r"^#{2,3} ", after, maxsplit=1, flags=re.MULTILINE)[0]
    shown = re.findall(r"^```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert "\n".join(shown) == printed(agent)

"""Every command and snippet that the documentation shows does what it says."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bench_proxy import config
from tests.proxy import Proxy
from tests.upstream import Upstream

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


def blocks(document: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(document.read_text()) if kind == language]


def block(language: str, holding: str) -> str:
    found = [text for text in blocks(ROOT / "README.md", language) if holding in text]
    assert len(found) == 1, f"README.md should have one {language} block with {holding!r}"
    return found[0]


@pytest.fixture(scope="module")
def readme_proxy(upstream: Upstream) -> Iterator[Proxy]:
    """The README's own YAML; only the models' servers are the scripted one."""
    written = yaml.safe_load(block("yaml", "callbacks: [bench_proxy.gateway]"))
    models = {entry["model_name"]: f"ok-{entry['model_name']}" for entry in written["model_list"]}
    with Proxy(
        upstream.api_base, models, bench=written["bench"], callbacks=written["litellm_settings"]["callbacks"]
    ) as running:
        yield running


def run(code: str, proxy: Proxy, *command: str) -> str:
    """Run a snippet as a user would, against the proxy in place of port 4000."""
    environment = {
        **os.environ,
        "LITELLM_MASTER_KEY": proxy.key or "",
        "BENCH_URL": proxy.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_PROXY": "*",
    }
    snippet = code.replace("http://127.0.0.1:4000", proxy.url)
    done = subprocess.run([*command, snippet], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.proxy
def test_the_readme_s_yaml_curl_and_openai_snippets_reach_every_member(readme_proxy: Proxy) -> None:
    reply = json.loads(run(block("bash", "/v1/chat/completions"), readme_proxy, "bash", "-ec"))
    assert {seat["alias"] for seat in reply["bench"]["seats"]} == {"gpt", "claude", "local-qwen"}
    printed = run(block("python", "from openai"), readme_proxy, sys.executable, "-c")
    assert "I am ok-gpt." in printed
    assert ".member2 claude ok" in printed


@pytest.mark.proxy
def test_the_readme_s_anthropic_snippet_reaches_every_member(readme_proxy: Proxy) -> None:
    printed = run(block("python", "from anthropic"), readme_proxy, sys.executable, "-c")
    for member in ("gpt", "claude", "local-qwen"):
        assert f"I am ok-{member}." in printed


@pytest.mark.proxy
def test_the_readme_s_commands_ask_and_judge(readme_proxy: Proxy) -> None:
    printed = run(block("bash", "bench-proxy ask"), readme_proxy, "bash", "-ec")
    call = re.search(r"`(p[\w-]+\.member1)`", printed)
    assert call is not None, printed
    snippet, named = re.subn(r"^CALL=\S+", f"CALL={call.group(1)}", block("bash", "/bench/verdict"), flags=re.MULTILINE)
    assert named == 1
    printed = run(snippet, readme_proxy, "bash", "-ec")
    assert '"recorded":true' in printed
    assert f"{call.group(1)}: useful" in printed
    judged = [line for line in json.loads(printed[printed.index('{"collection"') :])["models"] if line["useful"]]
    assert [line["alias"] for line in judged] == ["gpt"]


def test_every_make_target_that_is_shown_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for target in re.findall(r"`?make ([a-z-]+)", document.read_text()):
            if f"make {target}`" in document.read_text() or f"make {target}\n" in document.read_text():
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document.name}: make {target}"


def test_ci_runs_the_readme_s_own_commands() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    for command in ("make demo", "make check"):
        assert command in ci
        assert command in (ROOT / "README.md").read_text()


def test_every_key_of_the_configuration_s_documentation_is_valid_and_none_is_missing() -> None:
    (text,) = blocks(ROOT / "docs" / "configuration.md", "yaml")
    shown = yaml.safe_load(text)["bench"]
    config.parse(shown, "docs/configuration.md", models=["gpt", "claude", "local-qwen"])
    for section, model in (
        (shown, config.Config),
        (shown["collections"]["reviewers"], config.CollectionSettings),
        (shown["models"]["local-qwen"], config.ModelFacts),
        *(
            (shown[name], type(getattr(config.Config(), name)))
            for name in ("limits", "timing", "route", "ledger", "access")
        ),
    ):
        assert set(section) == set(model.model_fields), model.__name__


def test_the_configuration_s_documentation_states_the_defaults() -> None:
    (text,) = blocks(ROOT / "docs" / "configuration.md", "yaml")
    shown = yaml.safe_load(text)["bench"]
    for name in ("limits", "timing", "route", "ledger", "access"):
        defaults = getattr(config.Config(), name).model_dump(mode="json")
        assert shown[name] == defaults, name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_json_snippets_are_json_and_links_lead_somewhere(document: Path) -> None:
    for text in blocks(document, "json"):
        json.loads(text)
    for target in LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"

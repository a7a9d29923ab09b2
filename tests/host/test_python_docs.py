"""What docs/python.md shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.proxy import ROOT, Proxy
from tests.upstream import Upstream

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
SNIPPETS: list[tuple[str, str]] = re.findall(r"^```(python|yaml)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PYTHON = [text for kind, text in SNIPPETS if kind == "python"]
[CONFIG] = [text for kind, text in SNIPPETS if kind == "yaml"]


def run(program: str, folder: Path, upstream: Upstream) -> str:
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={
            "PATH": "",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": upstream.api_base,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "NO_PROXY": "*",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", PYTHON, ids=["asynchronous", "synchronous"])
def test_a_program_runs(program: str, tmp_path: Path, upstream: Upstream) -> None:
    said = run(program, tmp_path, upstream)
    assert "I am gpt-4o." in said
    if "acompletion" in program:
        assert said.count("I am o3.") == 2
    assert (tmp_path / "bench.db").exists()


def test_a_program_that_closes_nothing_ends_all_the_same(tmp_path: Path, upstream: Upstream) -> None:
    [program] = [p for p in PYTHON if "litellm.completion" in p]
    assert "I am gpt-4o." in run(program.replace("asyncio.run(bench.close())\n", ""), tmp_path, upstream)


def test_the_configuration_starts_a_proxy(upstream: Upstream, tmp_path: Path) -> None:
    proxy = Proxy(
        upstream.api_base, {}, cwd=tmp_path, env={"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": upstream.api_base}
    )
    proxy.config = yaml.safe_load(CONFIG)
    asked: dict[str, Any] = {"model": "second-opinion", "messages": [{"role": "user", "content": "Tabs?"}]}
    with proxy, proxy.client() as http:
        answer = http.post("/v1/chat/completions", json=asked).json()
    assert [seat["answer"] for seat in answer["bench"]["seats"]] == ["I am gpt-4o.", "I am o3."]

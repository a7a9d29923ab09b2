"""What Ollama's clients ask beside their questions: the models, what they can do, the version."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import orjson
import pytest
from starlette.types import Message, Receive, Scope

from bench_proxy.bench import Bench, Caller
from bench_proxy.catalog import Catalog, HostFacts
from bench_proxy.config import Config
from bench_proxy.errors import Denied
from bench_proxy.http.listing import Listing
from bench_proxy.http.ollama import OllamaRoutes
from tests.doubles import Models, Undecided

Json = dict[str, Any]

CONFIG = Config.model_validate(
    {
        "collections": {
            "core": {"members": ["gpt", "claude"], "description": "For all.", "tags": ["code"]},
            "secret": {"members": ["gpt"]},
            "written": {"members": ["gpt"], "reply": "merged"},
            "agents": {"members": ["gpt", "local"], "reply": "route"},
            "guessed": {"members": ["local"], "reply": "route"},
            "unknown": {"members": ["local"]},
        }
    }
)
HOSTED = [
    HostFacts("gpt", underlying="gpt", context_window=128_000, vision=True, tools=True),
    HostFacts("claude", underlying="claude", context_window=200_000, vision=True),
    HostFacts("local", underlying="local"),
]
DETAILS = {
    "parent_model": "",
    "format": "",
    "family": "bench",
    "families": ["bench"],
    "parameter_size": "",
    "quantization_level": "",
}


class Asked:
    """Answers one request after another; its caller may call all collections but `secret`."""

    def __init__(self, *, denied: bool = False) -> None:
        catalog = Catalog(HOSTED, {})
        bench = Bench(Models(), None, lambda: CONFIG, lambda: catalog, Undecided())  # type: ignore[arg-type]
        self._denied = denied
        self.routes = OllamaRoutes(
            lambda: bench, Listing(lambda: bench, self._authenticate).entries, self._authenticate
        )

    async def _authenticate(self, _scope: Scope, _receive: Receive, body: Mapping[str, Any] | None) -> Caller:
        assert body is None
        if self._denied:
            raise Denied("no such key", status=401, type="auth_error", code="401")

        async def allowed(models: Collection[str]) -> list[str]:
            return [model for model in models if model != "bench/secret"]

        return Caller("owner", admin=False, allowed=allowed)

    async def __call__(
        self, path: str, body: bytes | Json = b"", kind: str = "application/json"
    ) -> tuple[int, Json, dict[str, str]]:
        """The status, the body and the headers of the reply."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.request", "body": body if isinstance(body, bytes) else orjson.dumps(body)}

        scope = {"type": "http", "path": path, "headers": [(b"content-type", kind.encode())]}
        await self.routes(path, scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], orjson.loads(sent[1]["body"]), headers


async def shown(name: str) -> Json:
    status, reply, _ = await Asked()("/api/show", {"model": name})
    assert status == 200, reply
    return reply


@pytest.mark.parametrize(
    ("method", "path", "ours"),
    [
        ("GET", "/api/tags", True),
        ("HEAD", "/api/tags", True),
        ("POST", "/api/tags", False),
        ("GET", "/api/ps", True),
        ("GET", "/api/version", True),
        ("HEAD", "/api/version", True),
        ("GET", "/api", True),
        ("HEAD", "/api/", True),
        ("POST", "/api/show", True),
        ("GET", "/api/show", False),
        ("POST", "/api/pull", False),
        ("GET", "/api/hello", False),
        ("GET", "/api/tags/x", False),
        ("GET", "/", False),
    ],
)
def test_which_requests_are_ours(method: str, path: str, ours: bool) -> None:
    assert Asked().routes.answers(method, path) is ours


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/version"])
async def test_the_version_is_recent_enough_for_clients_and_no_secret(path: str) -> None:
    status, reply, headers = await Asked(denied=True)(path)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert tuple(int(part) for part in reply["version"].split(".")) >= (0, 14, 0)


async def test_each_collection_is_listed_once_a_mode_with_what_ollamas_list_has() -> None:
    _, reply, _ = await Asked()("/api/tags")
    named = [model["name"] for model in reply["models"]]
    assert named[:3] == ["bench/core", "bench/core:merged", "bench/core:choices"]
    assert len(named) == len(set(named))
    assert not any("secret" in name for name in named)
    first = reply["models"][0]
    assert first["bench"]["description"] == "For all."
    assert {key: first[key] for key in ("name", "model", "size", "digest", "details")} == {
        "name": "bench/core",
        "model": "bench/core",
        "size": 0,
        "digest": hashlib.sha256(b"bench/core").hexdigest(),
        "details": DETAILS,
    }
    assert first["modified_at"].endswith("Z")


async def test_no_model_is_in_this_machines_memory() -> None:
    assert (await Asked()("/api/ps"))[:2] == (200, {"models": []})


async def test_what_a_collection_can_do_is_what_all_its_members_can() -> None:
    reply = await shown("bench/core")
    assert reply["capabilities"] == ["completion", "vision"]
    assert reply["model_info"] == {
        "general.architecture": "bench",
        "general.basename": "bench/core",
        "bench.context_length": 128_000,
    }
    assert reply["details"] == DETAILS
    assert reply["bench"]["members"] == ["gpt", "claude"]
    assert {"modelfile", "parameters", "template", "modified_at"} <= set(reply)


async def test_tools_are_promised_only_where_they_are_taken() -> None:
    assert (await shown("bench/written"))["capabilities"] == ["completion", "vision"]
    assert (await shown("bench/agents"))["capabilities"] == ["completion", "vision", "tools"]


async def test_where_one_member_is_asked_it_is_enough_that_one_is_known_to_be_able() -> None:
    assert (await shown("bench/agents"))["bench"]["members"] == ["gpt", "local"]
    assert (await shown("bench/guessed"))["capabilities"] == ["completion"]


async def test_what_is_not_known_is_not_told() -> None:
    reply = await shown("bench/unknown")
    assert reply["capabilities"] == ["completion"]
    assert "bench.context_length" not in reply["model_info"]


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("bench/core:latest", "bench/core"),
        ("BENCH/core", "bench/core"),
        ("bench/core:all", "bench/core"),
        ("bench/core:merged", "bench/core:merged"),
        ("bench/written:merged", "bench/written"),
        ("bench/written:latest", "bench/written"),
        ("bench/written:all", "bench/written:all"),
    ],
)
async def test_a_model_is_shown_under_each_of_its_names(name: str, listed: str) -> None:
    assert (await shown(name))["model_info"]["general.basename"] == listed
    _, reply, _ = await Asked()("/api/show", {"name": name})
    assert reply["model_info"]["general.basename"] == listed


@pytest.mark.parametrize(
    "name", ["bench/nobody", "bench/secret", "bench/core:nothing", "bench/core:", "gpt", "llama3:8b"]
)
async def test_a_model_that_is_not_there_is_404_and_says_which_are(name: str) -> None:
    status, reply, headers = await Asked()("/api/show", {"model": name})
    assert (status, headers["content-type"]) == (404, "application/json")
    assert set(reply) == {"error"}
    assert f'"{name}"' in reply["error"]
    assert "bench/core:merged" in reply["error"]
    assert "bench/secret:" not in reply["error"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"bench/core"', b"{}", {"model": None}, {"model": 5}, {"model": ""}, {"name": ["x"]}]
)
async def test_a_body_without_a_name_is_refused(body: bytes | Json) -> None:
    status, reply, _ = await Asked()("/api/show", body)
    assert status == 400
    assert set(reply) == {"error"}


async def test_a_body_that_is_not_said_to_be_json_is_refused() -> None:
    status, reply, _ = await Asked()("/api/show", {"model": "bench/core"}, "text/plain")
    assert status == 415
    assert "application/json" in reply["error"]


@pytest.mark.parametrize("path", ["/api/tags", "/api/ps", "/api/show"])
async def test_models_are_told_to_those_with_a_key(path: str) -> None:
    status, reply, headers = await Asked(denied=True)(path, {"model": "bench/core"})
    assert (status, reply) == (401, {"error": "no such key"})
    assert headers["www-authenticate"] == "Bearer"

"""One list of models in the shapes of three vendors, told apart by what their clients send."""

import warnings

import anthropic
import httpx
import openai
import pytest

from tests.asking import Json
from tests.proxy import MASTER_KEY, Proxy
from tests.upstream import Upstream

ANTHROPIC = {"anthropic-version": "2023-06-01", "x-api-key": MASTER_KEY}
GOOGLE = {"x-goog-api-key": MASTER_KEY}


@pytest.fixture
def anyone(proxy: Proxy) -> httpx.Client:
    """Sends no key unless told."""
    return httpx.Client(base_url=proxy.url, trust_env=False)


def read(anyone: httpx.Client, path: str, headers: dict[str, str]) -> Json:
    with anyone:
        response = anyone.get(path, headers=headers)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def test_openais_list_has_litellms_models_and_then_each_collection_in_each_mode(http: httpx.Client) -> None:
    ids = [entry["id"] for entry in http.get("/v1/models").json()["data"]]
    assert ids.index("ok-a") < ids.index("bench/pair")
    for mode in ("", ":merged", ":choices"):
        assert f"bench/pair{mode}" in ids


def test_a_model_of_litellms_that_is_called_like_a_collection_stands_there_once(upstream: Upstream) -> None:
    bench = {"collections": {"pair": {"members": ["ok-a"], "explorers": 0}}}
    models = {"ok-a": "ok-a", "bench/pair": "ok-a", "bench/ghost": "ok-a"}
    with Proxy(upstream.api_base, models, bench=bench) as proxy, proxy.client() as client:
        ids = [entry["id"] for entry in client.get("/v1/models").json()["data"]]
        assert [id for id in ids if ":" not in id] == ["ok-a", "bench/pair"]


def test_anthropics_list_is_anthropics(anyone: httpx.Client) -> None:
    listed = read(anyone, "/v1/models", ANTHROPIC)
    assert {entry["type"] for entry in listed["data"]} == {"model"}
    assert listed["last_id"] == listed["data"][-1]["id"]
    assert {"ok-a", "bench/pair", "bench/pair:merged"} <= {entry["id"] for entry in listed["data"]}


def test_one_model_in_anthropics_shape(anyone: httpx.Client) -> None:
    found = read(anyone, "/v1/models/bench%2Fpair", ANTHROPIC)
    assert (found["type"], found["id"], found["display_name"]) == ("model", "bench/pair", "bench/pair")


@pytest.mark.parametrize("name", ["bench/pair:all", "bench/pair:latest", "bench/merged:merged"])
def test_a_name_that_can_be_asked_can_be_looked_up(http: httpx.Client, name: str) -> None:
    found = http.get(f"/v1/models/{name}")
    assert found.status_code == 200
    assert found.json()["id"] == name.partition(":")[0]


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1beta/models"])
def test_googles_list_is_googles_on_every_path(anyone: httpx.Client, path: str) -> None:
    listed = read(anyone, path, GOOGLE)
    assert set(listed) == {"models"}
    by_name = {entry["name"]: entry for entry in listed["models"]}
    assert by_name["models/bench/pair"]["description"] == "Two models."
    assert "generateContent" in by_name["models/ok-a"]["supportedGenerationMethods"]


def test_googles_path_needs_no_header_of_googles(anyone: httpx.Client) -> None:
    listed = read(anyone, "/v1beta/models", {"Authorization": f"Bearer {MASTER_KEY}"})
    assert "models/bench/pair" in {entry["name"] for entry in listed["models"]}


@pytest.mark.parametrize("base", ["/v1beta/models", "/v1/models"])
@pytest.mark.parametrize("name", ["bench/pair:merged", "bench%2Fpair%3Amerged", "ok-a"])
def test_one_model_in_googles_shape(anyone: httpx.Client, base: str, name: str) -> None:
    found = read(anyone, f"{base}/{name}", GOOGLE)
    plain = name.replace("%2F", "/").replace("%3A", ":")
    assert (found["name"], found["displayName"]) == (f"models/{plain}", plain)


@pytest.mark.parametrize("name", ["bench/nobody", "nobody"])
def test_a_model_that_is_not_there_says_what_is(anyone: httpx.Client, name: str) -> None:
    with anyone:
        response = anyone.get(f"/v1beta/models/{name}", headers=GOOGLE)
    assert response.status_code == 404
    assert "bench/pair" in response.json()["error"]["message"]


@pytest.mark.parametrize("headers", [{"x-goog-api-key": "sk-wrong"}, {}])
def test_googles_list_is_for_those_who_have_a_key(anyone: httpx.Client, headers: dict[str, str]) -> None:
    with anyone:
        response = anyone.get("/v1beta/models", headers=headers)
    assert response.status_code == 401
    assert "bench/pair" not in response.text


def test_googles_list_takes_the_key_of_the_address(anyone: httpx.Client) -> None:
    assert "models/bench/pair" in {e["name"] for e in read(anyone, f"/v1beta/models?key={MASTER_KEY}", {})["models"]}


def test_anthropics_list_is_refused_in_anthropics_shape(anyone: httpx.Client) -> None:
    with anyone:
        response = anyone.get("/v1/models", headers={**ANTHROPIC, "x-api-key": "sk-wrong"})
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"


def test_the_vendors_own_libraries_read_their_lists(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # google-genai warns of its own dependencies
        from google import genai
    with (
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=MASTER_KEY) as chat,
        anthropic.Anthropic(base_url=proxy.url, api_key=MASTER_KEY) as messages,
    ):
        assert "bench/pair" in [model.id for model in chat.models.list()]
        assert chat.models.retrieve("bench/pair:choices").id == "bench/pair:choices"
        assert "bench/pair" in [model.id for model in messages.models.list()]
        assert messages.models.retrieve("bench/pair").display_name == "bench/pair"
    client = genai.Client(api_key=MASTER_KEY, http_options={"base_url": proxy.url})
    assert "models/bench/pair" in [model.name for model in client.models.list()]
    assert client.models.get(model="bench/pair").name == "models/bench/pair"
    client.close()

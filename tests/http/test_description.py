"""What `/bench/openapi.json` says of the routes is what they do."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from bench_proxy.bench import Caller
from bench_proxy.errors import Denied
from bench_proxy.http import routes
from bench_proxy.http.routes import Refused
from bench_proxy.keys import KeyStore


def _unasked() -> Any:
    raise AssertionError("nobody is let in")


async def _nobody(scope: Any, receive: Any, body: Any) -> Caller:
    raise Denied("no", status=401, type="auth_error")


APP = routes.build(_unasked, _nobody, keys=lambda: KeyStore.__new__(KeyStore))
OPERATIONS = [
    (method.upper(), path, said)
    for path, methods in APP.openapi()["paths"].items()
    for method, said in methods.items()
    if not path.startswith("/bench/health/")
]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(APP), base_url="http://bench") as client:
        yield client


@pytest.mark.parametrize(("method", "path", "said"), OPERATIONS, ids=lambda of: of if isinstance(of, str) else "")
async def test_every_error_of_a_route_is_described_as_it_is(
    http: httpx.AsyncClient, method: str, path: str, said: dict[str, Any]
) -> None:
    assert set(said["responses"]) == {"201" if (method, path) == ("POST", "/bench/keys") else "200", "default"}
    schema = said["responses"]["default"]["content"]["application/json"]["schema"]
    assert schema["$ref"].rpartition("/")[2] == "Refused"
    refused = await http.request(method, path)
    assert refused.status_code in {401, 415}
    Refused.model_validate(refused.json(), extra="forbid")


def test_nothing_is_described_that_never_comes() -> None:
    assert not {"HTTPValidationError", "ValidationError"} & set(APP.openapi()["components"]["schemas"])


def test_the_metrics_are_described_as_text() -> None:
    described = APP.openapi()["paths"]["/bench/metrics"]["get"]["responses"]["200"]
    assert set(described["content"]) == {"text/plain"}


@pytest.mark.parametrize(("path", "methods"), [("/bench/keys", "GET, POST"), ("/bench/panels/x", "GET")])
@pytest.mark.parametrize("root", ["", "/prefix"])
async def test_another_method_is_told_which_ones_there_are(path: str, methods: str, root: str) -> None:
    transport = httpx.ASGITransport(APP, root_path=root)
    async with httpx.AsyncClient(transport=transport, base_url="http://bench") as client:
        refused = await client.patch(f"{root}{path}")
    assert (refused.status_code, refused.headers["allow"]) == (405, methods)

"""What a bench request costs is spent of its key's budget, by LiteLLM's own counters: each seat once, on both lanes.

LiteLLM keeps keys with budgets in a database alone, so the operator's own authentication stands in for that one part:
it asks what LiteLLM asks for such a key. Counting what is spent is LiteLLM's.
"""

import itertools
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.asking import CHAT, eventually, question, refusal
from tests.proxy import EXTENSION, Proxy
from tests.upstream import Upstream

SPENDING = '''
"""Keys with a budget of their own: sk-<millionths of a dollar>-<name>."""
from litellm.proxy import proxy_server
from litellm.proxy._types import UserAPIKeyAuth, hash_token
from litellm.proxy.auth.auth_checks import virtual_key_max_budget_check
from litellm.proxy.hooks.proxy_track_cost_callback import _ProxyDBLogger

counting = _ProxyDBLogger()


async def check(request, api_key: str) -> UserAPIKeyAuth:
    budget = int(api_key.split("-")[1]) / 1e6
    key = UserAPIKeyAuth(api_key=api_key, token=hash_token(api_key), max_budget=budget, spend=0.0)
    await virtual_key_max_budget_check(key, proxy_server.proxy_logging_obj)
    return key
'''
LANES = {"in800-out120-a": "lean", "in800-out120-b": "router"}
SEAT = 800 * 1e-6 + 120 * 2e-6
PRICES = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
NUMBER = itertools.count()


@pytest.fixture(scope="module")
def spending_proxy(upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(
        upstream.api_base,
        {name: {"litellm_params": {"model": f"openai/{name}", **PRICES}} for name in LANES},
        bench={
            "collections": {
                "both": {"members": list(LANES), "explorers": 0, "shape": "general"},
                **{lane: {"members": [name], "explorers": 0, "shape": "general"} for name, lane in LANES.items()},
            },
            "models": {name: {"family": name, "lane": lane} for name, lane in LANES.items()},
        },
        callbacks=[EXTENSION, "spending.counting"],
        files={"spending.py": SPENDING},
        general_settings={"custom_auth": "spending.check"},
    ) as served:
        yield served


def caller(proxy: Proxy, dollars: float) -> httpx.Client:
    headers = {"Authorization": f"Bearer sk-{round(dollars * 1e6)}-{next(NUMBER)}"}
    return httpx.Client(base_url=proxy.url, headers=headers, timeout=60, trust_env=False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("model", "calls"),
    [
        ("bench/both", 2),
        ("bench/both:choices", 2),
        ("bench/both:merged", 3),
        ("bench/lean:route", 1),
        ("bench/router:route", 1),
    ],
)
def test_a_request_spends_what_its_calls_cost_and_the_next_one_is_refused(
    spending_proxy: Proxy, models: Upstream, model: str, calls: int, stream: bool
) -> None:
    with caller(spending_proxy, calls * SEAT - 1e-6) as client:
        assert client.post(CHAT, json=question(model, stream=stream)).status_code == 200
        assert eventually(lambda: client.get("/v1/models").status_code != 200)
        models.clear()
        own = client.post(CHAT, json=question("in800-out120-a"))
        error = refusal(client.post(CHAT, json=question(model, stream=stream)), own.status_code)
    assert error == own.json()["error"]
    spent = re.search(r"Current cost: ([\d.]+)", error["message"])
    assert spent is not None
    assert float(spent[1]) == pytest.approx(calls * SEAT)
    assert models.calls() == []


def test_a_budget_that_is_not_spent_lets_requests_in(spending_proxy: Proxy, models: Upstream) -> None:
    with caller(spending_proxy, 1.0) as client:
        assert [client.post(CHAT, json=question("bench/both")).status_code for _ in range(3)] == [200] * 3

"""What Prometheus reads: the same of every worker, with labels that no caller chooses."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench_proxy.http.metrics import metrics
from bench_proxy.records import Sums
from tests.asking import panel, refusal
from tests.doubles import Models, Remembered, Table
from tests.proxy import MASTER_KEY, Proxy
from tests.served import ALICE
from tests.upstream import Upstream

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(caller: httpx.Client) -> Samples:
    response = caller.get("/bench/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(response.text)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0)


def test_seats_and_verdicts_are_counted_by_collection_and_model(http: httpx.Client, models: Upstream) -> None:
    before = scraped(http)
    data = panel(http, "bench/partial")["bench"]
    http.post("/bench/verdict", json={"call": data["seats"][0]["call"], "useful": True})
    after = scraped(http)
    for alias, outcome in (("ok-a", "answered"), ("fail500-a", "failed")):
        labels = {"collection": "partial", "alias": alias, "outcome": outcome}
        assert of(after, "bench_seats_total", **labels) == of(before, "bench_seats_total", **labels) + 1
    judged = {"collection": "partial", "alias": "ok-a", "verdict": "useful"}
    assert of(after, "bench_verdicts", **judged) == of(before, "bench_verdicts", **judged) + 1


def test_the_lane_of_each_model_is_told(http: httpx.Client) -> None:
    assert of(scraped(http), "bench_lane", alias="ok-a", lane="lean") == 1


def test_every_worker_says_the_same(workers: Proxy, models: Upstream) -> None:
    with workers.client() as caller:
        panel(caller, "bench/pair")
    said = []
    for _ in range(8):  # each connection may be another worker's
        with workers.client() as caller:
            said.append({k: v for k, v in scraped(caller).items() if k[0] == "bench_seats_total"})
    assert said[0]
    assert all(samples == said[0] for samples in said)


def test_metrics_are_for_those_who_may_see_all(workers: Proxy) -> None:
    with httpx.Client(base_url=workers.url, trust_env=False) as anyone:
        refusal(anyone.get("/bench/metrics", headers={"Authorization": f"Bearer {ALICE}"}), 403)
        refusal(anyone.get("/bench/metrics"), 401)
        assert anyone.get("/bench/metrics", headers={"Authorization": f"Bearer {MASTER_KEY}"}).status_code == 200


async def test_a_name_of_a_callers_own_is_no_label() -> None:
    """A wildcard of LiteLLM's serves a guest of any name."""

    class Kept(Remembered):
        async def totals(self) -> list[tuple[str, Sums]]:
            return [("core", Sums(name, "", answered=n)) for n, name in enumerate(("gpt", "whatever", "else"), 1)]

    table = Table(Models(), members=["gpt"], ledger=Kept())
    written = (await metrics(table.bench, lambda _: {})).decode()
    assert 'alias="gpt",collection="core",outcome="answered"} 1.0' in written
    assert 'alias="other",collection="core",outcome="answered"} 5.0' in written
    assert "whatever" not in written

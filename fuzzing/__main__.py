"""`python -m fuzzing`: the test suite's hostile requests, many more of them, and a summary of what came back."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from fuzzing.judging import faults_of_log
from fuzzing.running import Run
from fuzzing.shooting import BENCH, MODELS, UPSTREAM_KEY, aim
from tests.proxy import Proxy
from tests.upstream import Upstream

MOST_SHOWN = 20


def run(requests: int, clients: int, first_seed: int, log: Path | None) -> bool:
    """Shoot, print the summary; whether nothing was wrong."""
    began = time.monotonic()
    with Upstream() as upstream:
        models = {name: name for name in MODELS}
        settings_of_router = {"disable_cooldowns": True}
        with Proxy(upstream.api_base, models, bench=BENCH, router_settings=settings_of_router) as proxy:
            with proxy.client() as client:
                target = aim(client)
                secrets = [*target.keys, UPSTREAM_KEY, urlsplit(upstream.api_base).netloc]
                shot = Run(proxy.url, target, secrets)
                shot.go(requests, clients, first_seed, lambda: _say(f"{shot.sent} requests, {len(shot.faults)} faults"))
                client.get("/bench/panels").raise_for_status()
            written = proxy.log()
    if log is not None:
        log.write_text(written, encoding="utf-8")
    _summary(shot, faults_of_log(written, secrets), time.monotonic() - began, first_seed)
    return not shot.faults and not faults_of_log(written, secrets)


def _summary(shot: Run, of_log: Sequence[str], seconds: float, first_seed: int) -> None:
    print(f"{shot.sent} requests in {seconds:.0f} s, from seed {first_seed} on")
    for status, count in sorted(shot.statuses.items()):
        print(f"  {status:<14} {count:>8}")
    print(f"{len(shot.faults) + len(of_log)} faults")
    for fault, by in list(shot.faults.items())[:MOST_SHOWN]:
        print(f"\n- {fault}\n  {by!r}")
    for fault in of_log[:MOST_SHOWN]:
        print(f"\n- {fault}")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description="Hostile requests to a real proxy.")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=8, help="requests at once")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of an earlier run, to have its requests again"
    )
    parser.add_argument("--log", type=Path, help="where to keep what the proxy wrote")
    given_ = parser.parse_args()
    if not run(given_.requests, given_.clients, given_.seed, given_.log):
        sys.exit("something was wrong")


if __name__ == "__main__":
    main()

"""One run: requests drawn, sent and judged, and what came of them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzzing.judging import Reply, faults
from fuzzing.shooting import RESET, volley
from fuzzing.shots import Shot, Target, shots

AT_A_TIME = 1000
"""Requests that are drawn from one seed. In longer runs Hypothesis draws ever more alike."""


class Run:
    """The same requests for the same seed and target. What is found is told as it was sent, not made smaller."""

    def __init__(self, url: str, target: Target, secrets: Sequence[str]) -> None:
        self._url = url
        self._target = target
        self._secrets = secrets
        self.statuses: Counter[str] = Counter()
        self.sent = 0
        self.faults: dict[str, Shot] = {}
        """What was wrong, once each, with the first request that showed it."""

    def go(self, requests: int, clients: int, first_seed: int, told: Callable[[], None] = lambda: None) -> None:
        """Send about so many requests, `clients` of them at once; `told` is called now and then."""
        for number in range(first_seed, first_seed + -(-requests // AT_A_TIME)):
            self._draw(min(AT_A_TIME, max(requests - self.sent, clients)), clients, number)
            told()

    def _draw(self, requests: int, clients: int, number: int) -> None:
        drawn: list[Shot] = []

        @seed(number)
        @settings(
            max_examples=requests,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(shots(self._target))
        def draw(shot: Shot) -> None:
            drawn.append(shot)

        draw()
        # Not while they are drawn: in one example, Hypothesis makes several that are alike.
        with asyncio.Runner() as runner:
            for start in range(0, len(drawn), clients):
                several = drawn[start : start + clients]
                for shot, reply in zip(several, runner.run(volley(self._url, several)), strict=True):
                    self._judge(shot, reply)

    def _judge(self, shot: Shot, reply: Reply | str) -> None:
        self.sent += 1
        place = "/".join(shot.target.partition("?")[0].split("/")[:4])[:30]
        if isinstance(reply, str):
            self.statuses["none"] += 1
            if reply == RESET and shot.shape is None:
                return
            self.faults.setdefault(f"{shot.method} {place}: {reply}", shot)
            return
        whose = "either's" if shot.shape is None else "ours"
        self.statuses[f"{reply.status} {whose}"] += 1
        for fault in faults(shot, reply, self._secrets):
            self.faults.setdefault(f"{shot.method} {place}: {fault}: {reply.body[:300]!r}", shot)

"""Which kind of task a request is, by a decision model, through LiteLLM's decisions API."""

from collections.abc import Callable, Mapping

from litellm import Router

from bench_proxy.bench import Decision


class Decisions:
    """Implements `bench.Decider`."""

    def __init__(self, router: Callable[[], Router | None]) -> None:
        self._router = router

    async def decide(self, model: str, question: str, options: Mapping[str, str]) -> Decision | None:
        return None

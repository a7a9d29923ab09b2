"""The most that a request may use, before it has: what is set aside for it in a budget (pure)."""

from collections.abc import Sequence

from bench_proxy.catalog import Catalog, Model
from bench_proxy.config import Config
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.keys import Use
from bench_proxy.size import size

ANSWER_TOKENS = 4096
"""What an answer has at most, where neither the request nor anybody else says it: the default of many servers."""

MOST_TOKENS = 10**12
"""More than any answer has: what a caller writes there may be more than a ledger can hold."""

LIMITS = ("max_completion_tokens", "max_tokens")


def most_used(brief: Brief, request: ChatRequest, config: Config, catalog: Catalog) -> Use:
    """Of one turn, or of all the seats of a panel and its merger. A model without a known price costs nothing here, as
    it does when it has answered.
    """
    prompt = size(request.messages, request.settings).tokens
    members = [catalog.get(alias) for alias in config.collections[brief.collection].members]
    if brief.reply == "route":
        return _dearest(members, prompt, request)
    seated = sum((_most(model, prompt, request) for model in members), Use())
    explorers = config.explorers_of(brief.collection) if brief.explorers is None else brief.explorers
    for _ in range(explorers):
        seated += _dearest(list(catalog) or members, prompt, request)
    if brief.reply == "merged":
        seated += _dearest(members, prompt + seated.tokens, request)
    return seated


def _dearest(models: Sequence[Model], prompt: int, request: ChatRequest) -> Use:
    """Of one of these, whichever it is."""
    each = [_most(model, prompt, request) for model in models]
    return Use(max((use.tokens for use in each), default=0), max((use.cost for use in each), default=0.0))


def _most(model: Model, prompt: int, request: ChatRequest) -> Use:
    answer = _asked_for(request) or model.max_output or ANSWER_TOKENS
    cost = prompt * (model.input_cost_per_token or 0) + answer * (model.output_cost_per_token or 0)
    return Use(prompt + answer, cost)


def _asked_for(request: ChatRequest) -> int | None:
    """The larger of the two: which of them a model's server goes by is its own business."""
    asked = [n for name in LIMITS if isinstance(n := request.settings.get(name), int) and n > 0]
    return min(max(asked), MOST_TOKENS) if asked else None

"""What a request may use at most, which is set aside for it in a budget, and what its calls have used (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench_proxy.catalog import Catalog, Model
from bench_proxy.config import Config
from bench_proxy.errors import KINDS
from bench_proxy.formats.base import Usage
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.keys import Use
from bench_proxy.size import size, text_tokens

ANSWER_TOKENS = 4096
"""What an answer has at most, where neither the request nor anybody else says it: the default of many servers."""

MOST_TOKENS = 10**12
"""More than any answer has: what a caller writes there may be more than a ledger can hold."""

LIMITS = ("max_completion_tokens", "max_tokens")

OTHER_LIMITS = ("max_length", "max_new_tokens", "max_output_tokens", "n_predict", "num_predict")
"""What some servers go by and others do not know: an answer may be longer for them, but not surely shorter."""

REFUSALS = KINDS - {"bad_response", "cancelled", "timeout"}
"""The kinds of `UpstreamError` with which a model has not begun, where it has said nothing; a fault of ours is not the
caller's to pay for. The others come after it was asked: it has read the prompt, whatever became of the answer.
"""


@dataclass(frozen=True, slots=True)
class Used:
    """What one call has used, or several together: tokens, cached ones among the prompt's, and US dollars as far as
    prices are known.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0

    def __add__(self, more: "Used") -> "Used":
        return Used(
            self.prompt_tokens + more.prompt_tokens,
            self.completion_tokens + more.completion_tokens,
            self.cached_tokens + more.cached_tokens,
            self.cost + more.cost,
        )

    @property
    def in_budget(self) -> Use:
        return Use(self.prompt_tokens + self.completion_tokens, self.cost)

    @property
    def usage(self) -> Usage:
        return Usage(self.prompt_tokens, self.completion_tokens, self.cached_tokens)


def used(
    model: Model,
    prompt: int,
    said: str,
    *,
    thought: int = 0,
    argued: int = 0,
    failed: str = "",
    prompt_tokens: int | None = None,
    completion_tokens: int | None = None,
    cached_tokens: int | None = None,
    cost: float | None = None,
) -> Used:
    """What the model's server reported of a call, and an estimate of what it did not: by `prompt`, the size in a
    budget of what was asked, by what was `said`, how many characters were `thought` and how many its calls of tools
    `argued`, and by the model's prices. `failed` is the kind of error that it ended in; one that was refused before it
    began has used nothing.
    """
    reported = prompt_tokens or completion_tokens
    if failed in REFUSALS and not (reported or said or thought or argued):
        return Used()
    read = prompt_tokens or prompt
    answer = completion_tokens or written(said, thought, argued)
    # A cost of 0 beside no tokens was worked out of what was not reported.
    known = cost if cost or reported else None
    return Used(read, answer, cached_tokens or 0, _cost(model, read, answer) if known is None else known)


def written(said: str, thought: int, argued: int = 0) -> int:
    """Tokens of an answer: of its text, and of so many characters of thoughts and of its calls' arguments."""
    return round(text_tokens(said)) + (thought + argued) // 4


def most_used(brief: Brief, request: ChatRequest, config: Config, catalog: Catalog) -> Use:
    """Of one turn, or of all the seats of a panel and its merger. A model without a known price costs nothing here, as
    it does when it has answered.
    """
    prompt = size(request.messages, request.settings).in_budget
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
    answer = _largest(request, LIMITS) or model.max_output or ANSWER_TOKENS
    answer = max(answer, _largest(request, OTHER_LIMITS))
    return Use(prompt + answer, _cost(model, prompt, answer))


def _cost(model: Model, prompt: int, answer: int) -> float:
    """US dollars. A model without a known price costs nothing."""
    return prompt * (model.input_cost_per_token or 0) + answer * (model.output_cost_per_token or 0)


def _largest(request: ChatRequest, limits: Sequence[str]) -> int:
    """Tokens, 0 where none is set: which of them a model's server goes by is its own business."""
    asked = [n for name in limits if isinstance(n := request.settings.get(name), int) and n > 0]
    return min(max(asked, default=0), MOST_TOKENS)

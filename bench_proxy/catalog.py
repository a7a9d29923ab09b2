"""What is known of each model, and whether a model can take a request."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bench_proxy.config import ModelFacts, Role


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What LiteLLM knows of one model name, over all its deployments.

    `underlying` is the provider's own name for the first deployment's model. A window is the smallest of the
    deployments', a capability what all of them have; None is unknown.
    """

    alias: str
    underlying: str
    chats: bool = True
    tools: bool | None = None
    vision: bool | None = None
    context_window: int | None = None
    max_output: int | None = None
    input_cost_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """One model of LiteLLM's with all that seating needs to know of it."""

    alias: str
    family: str
    role: Role
    chats: bool
    explore: bool
    retired: bool
    tools: bool | None
    vision: bool | None
    context_window: int | None
    max_output: int | None
    input_cost_per_token: float | None


class Catalog:
    """The models that LiteLLM serves now, with the operator's facts laid over LiteLLM's."""

    def __init__(self, hosted: Iterable[HostFacts], facts: Mapping[str, ModelFacts]) -> None:
        self._facts = facts
        self._models = {h.alias: _model(h, facts.get(h.alias, ModelFacts())) for h in hosted}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def __contains__(self, alias: str) -> bool:
        return alias in self._models

    def get(self, alias: str) -> Model:
        """A name that LiteLLM serves only by a wildcard has no entry of its own: it is known by its name alone."""
        known = self._models.get(alias)
        return known or _model(HostFacts(alias, underlying=alias), self._facts.get(alias, ModelFacts()))

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(self._models)


_DATE = r"(?:20\d{2}-?\d{2}-?\d{2}|\d{2}-20\d{2}|\d{4}|\d{2}-\d{2})"
_TAIL = re.compile(
    rf"[-_.](?:{_DATE}|latest|preview|exp|instruct|chat|it|"
    r"(?:nv|mx)?fp4|fp8|fp16|bf16|int[48]|awq|gptq|gguf|mlx|bnb|i?q\d(?:_[a-z0-9]+)*|\d+bit|"
    r"\d+(?:\.\d+)?[bm]|\d+x\d+b|a\d+b)$"
)


def family(underlying: str) -> str:
    """What makes two names the same model: the name after the last `/`, cut at `:` or `@`, without its tails.

    Dates, `-latest`, quantisations and sizes in parameters are tails; `-mini` and its like are other models.
    """
    name = re.split(r"[:@]", underlying.rsplit("/", 1)[-1].lower(), maxsplit=1)[0]
    while True:
        shorter = _TAIL.sub("", name)
        if shorter in {name, ""}:
            return name
        name = shorter


def _model(host: HostFacts, facts: ModelFacts) -> Model:
    return Model(
        alias=host.alias,
        family=facts.family.lower() or family(host.underlying),
        role=facts.role,
        chats=host.chats,
        explore=facts.explore,
        retired=facts.retired,
        tools=host.tools if facts.tools is None else facts.tools,
        vision=host.vision if facts.vision is None else facts.vision,
        context_window=facts.context_window or host.context_window,
        max_output=facts.max_output or host.max_output,
        input_cost_per_token=host.input_cost_per_token,
    )


def together(models: Iterable[Model]) -> dict[str, object]:
    """What a collection can do as one: its smallest window, who has none known, what all can, what it costs."""
    listed = list(models)
    windows = [m.context_window for m in listed if m.context_window is not None]
    costs = [m.input_cost_per_token for m in listed]
    able = {
        "vision": bool(listed) and all(m.vision or m.role == "vision" for m in listed),
        "tools": bool(listed) and all(m.tools for m in listed),
    }
    return {
        "context_window": min(windows, default=None),
        "context_unknown": [m.alias for m in listed if m.context_window is None],
        "capabilities": [name for name, can in able.items() if can],
        "cost_per_1k_in": None if None in costs else round(1000 * sum(c for c in costs if c is not None), 9),
    }


def sees(model: Model) -> bool:
    """Unknown vision cannot see: a model that cannot see answers anyway, about a picture it never got."""
    return model.vision is True or model.role == "vision"

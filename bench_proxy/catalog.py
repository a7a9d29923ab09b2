"""What is known of each model and who says it, and whether a model can take a request."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from bench_proxy.config import ModelFacts, Role
from bench_proxy.facts import NOTHING, Learned, Subject

T = TypeVar("T")
Source = Literal["config", "LiteLLM", "learned", "model map", "unknown"]
Said = tuple[T | None, Source]
"""A fact, and who says it."""

UNKNOWN: Said[object] = (None, "unknown")


@dataclass(frozen=True, slots=True)
class Mapped:
    """What LiteLLM's model map says of a model; None where it says nothing."""

    tools: bool | None = None
    vision: bool | None = None
    context_window: int | None = None
    max_output: int | None = None
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What LiteLLM was told of one deployment of a model name, and what its map says beside it (`mapped`).

    `underlying` is the provider's own name for the model, `served` any text that changes with where and what that is.
    None is unknown.
    """

    alias: str
    underlying: str
    chats: bool = True
    tools: bool | None = None
    vision: bool | None = None
    context_window: int | None = None
    max_output: int | None = None
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    mapped: Mapped = Mapped()
    served: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """One model of LiteLLM's with all that seating needs to know of it.

    Over several deployments a window is the smallest of theirs, a capability what all have, a price the highest.
    `sources` has who says it for each fact; `served` changes when the deployments do.
    """

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
    output_cost_per_token: float | None = None
    served: str = ""
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)

    @property
    def priced(self) -> bool:
        """Whether what it costs is known; free is known too."""
        return self.input_cost_per_token is not None or self.output_cost_per_token is not None


class Catalog:
    """The models that LiteLLM serves now, with the operator's facts laid over LiteLLM's and the learned ones.

    `hosted` has one entry a deployment. `find` looks for the deployments of a name that is not among them.
    """

    def __init__(
        self,
        hosted: Iterable[HostFacts],
        facts: Mapping[str, ModelFacts],
        learned: Mapping[Subject, Learned] | None = None,
        find: Callable[[str], Sequence[HostFacts]] = lambda _alias: (),
    ) -> None:
        self._facts = facts
        self._learned = learned or {}
        self._find = find
        groups: dict[str, list[HostFacts]] = {}
        for deployment in hosted:
            groups.setdefault(deployment.alias, []).append(deployment)
        self._models = {alias: self._model(group) for alias, group in groups.items()}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def __contains__(self, alias: str) -> bool:
        return alias in self._models

    def get(self, alias: str) -> Model:
        """Also a name that LiteLLM serves only by a wildcard, which has no entry of its own here."""
        known = self._models.get(alias)
        return known or self._model(self._find(alias) or [HostFacts(alias, underlying=alias)])

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(self._models)

    def _model(self, group: Sequence[HostFacts]) -> Model:
        alias, served = group[0].alias, _digest(group)
        return _model(group, served, self._facts.get(alias, ModelFacts()), self._learned.get((alias, served), NOTHING))


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


def _model(group: Sequence[HostFacts], served: str, facts: ModelFacts, learned: Learned) -> Model:
    said: dict[str, Said[object]] = {
        "context_window": _smallest("context_window", facts.context_window, group, learned.context_window),
        "max_output": _smallest("max_output", facts.max_output, group),
        "tools": _all_can("tools", facts.tools, group, learned.tools),
        "vision": _all_can("vision", facts.vision, group, learned.vision),
        "input_cost_per_token": _highest("input_cost_per_token", group),
        "output_cost_per_token": _highest("output_cost_per_token", group),
    }
    stated = facts.model_fields_set
    return Model(
        alias=group[0].alias,
        family=facts.family.lower() or family(group[0].underlying),
        role=facts.role,
        chats=all(h.chats for h in group),
        explore=facts.explore,
        retired=facts.retired,
        served=served,
        sources={
            "role": "config" if "role" in stated else "unknown",
            "family": "config" if facts.family else "LiteLLM",
            **{name: source for name, (_, source) in said.items()},
        },
        **{name: value for name, (value, _) in said.items()},  # type: ignore[arg-type]
    )


def _by_deployment(name: str, group: Sequence[HostFacts], learned: T | None = None) -> list[Said[T]]:
    """What is known of each deployment: as LiteLLM was told, else as it was learned, else as LiteLLM's map has it."""
    ranked: list[list[Said[T]]] = [
        [(getattr(h, name), "LiteLLM"), (learned, "learned"), (getattr(h.mapped, name), "model map")] for h in group
    ]
    return [next((said for said in facts if said[0] is not None), (None, "unknown")) for facts in ranked]


def _smallest(name: str, stated: int | None, group: Sequence[HostFacts], learned: int | None = None) -> Said[object]:
    if stated is not None:
        return stated, "config"
    known = [(value, source) for value, source in _by_deployment(name, group, learned) if value is not None]
    return min(known, default=UNKNOWN, key=lambda said: said[0])


def _highest(name: str, group: Sequence[HostFacts]) -> Said[object]:
    prices: list[Said[float]] = _by_deployment(name, group)
    known = [(value, source) for value, source in prices if value is not None]
    return max(known, default=UNKNOWN, key=lambda said: said[0])


def _all_can(name: str, stated: bool | None, group: Sequence[HostFacts], learned: bool | None) -> Said[object]:
    """No as soon as one deployment cannot, unknown as long as one is."""
    if stated is not None:
        return stated, "config"
    by_deployment: list[Said[bool]] = _by_deployment(name, group, learned)
    for weakest in (False, None):
        if lacking := [said for said in by_deployment if said[0] is weakest]:
            return lacking[0]
    return by_deployment[-1]


def _digest(group: Sequence[HostFacts]) -> str:
    """Of where a model is served, not of how often; it says nothing of the place itself."""
    places = sorted({f"{h.underlying}\n{h.served}" for h in group})
    return hashlib.sha256("\n\n".join(places).encode()).hexdigest()[:32]


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


def fits(model: Model, tokens: int) -> bool:
    """An unknown window takes anything: its server will say so itself, and the window is known from then on."""
    return model.context_window is None or tokens <= model.context_window

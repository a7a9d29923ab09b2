"""Which members can take a turn, and in which order they are asked (pure: values in, values out)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench_proxy.catalog import Model, fits, sees
from bench_proxy.errors import BenchError, ContextOverflow, InvalidRequest
from bench_proxy.records import Record, Sums, wilson
from bench_proxy.route.keeping import NotAsked

ENOUGH = 5
"""Verdicts on a shape from which the record on it counts alone; below that, that on all shapes."""

OLD_MS = 90 * 24 * 3600 * 1000
"""Milliseconds after its last verdict from which a record counts half."""

TOO_SMALL = "its context window is too small"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a turn asks of its model. `tokens` is the size of the prompt."""

    tools: bool
    images: bool
    tokens: int


def takers(models: Iterable[Model], needs: Needs, *, try_unknown: bool) -> tuple[list[Model], list[NotAsked]]:
    """The models that can take the turn, in the order given, and the others with why they cannot.

    `try_unknown` lets those in of which nobody knows whether they call tools.
    """
    able: list[Model] = []
    others: list[NotAsked] = []
    for model in models:
        if why := _unable(model, needs, try_unknown=try_unknown):
            others.append(NotAsked(model.alias, why))
        else:
            able.append(model)
    return able, others


def _unable(model: Model, needs: Needs, *, try_unknown: bool) -> str:
    if model.retired:
        return "retired"
    if not model.chats:
        return "not a chat model"
    if needs.tools and model.tools is False:
        return "cannot call tools"
    if needs.tools and model.tools is None and not try_unknown:
        return f"not known to call tools; if it can, set bench.models.{model.alias}.tools: true"
    if needs.images and not sees(model):
        return "cannot see images"
    if not fits(model, needs.tokens):
        return f"{TOO_SMALL}: {model.context_window:,} tokens"
    return ""


def nobody(collection: str, models: Sequence[Model], skipped: Sequence[NotAsked], needs: Needs) -> BenchError:
    """Why no member of the collection can take the turn. Where it is only the size, agents are to compact and go on."""
    others = [one for one in skipped if not one.why.startswith(TOO_SMALL)]
    if skipped and not others:
        windows = [model.context_window for model in models if model.context_window is not None]
        return ContextOverflow(needs.tokens, max(windows, default=None))
    named = "; ".join(f"{one.alias}: {one.why}" for one in skipped)
    return InvalidRequest(f"no member of bench/{collection} can take this request: {named}", code="no_member_fits")


def ranked(
    models: Iterable[Model],
    records: Iterable[Record],
    *,
    shape: str,
    cooling: Collection[str],
    paid_for: Collection[str],
    now_ms: int,
) -> list[Model]:
    """The order in which they are asked, best first; where nothing tells them apart, that of the configuration."""
    standings = _standings(records, shape)
    # Sorting is stable.
    return sorted(
        models,
        key=lambda m: (
            m.alias in cooling,
            m.tools is not True,
            *_standing(standings.get(m.alias, Sums(m.alias, shape)), now_ms),
            m.alias not in paid_for,
        ),
    )


def stalest(models: Iterable[Model], last_seated_ms: Mapping[str, int], cooling: Collection[str]) -> str:
    """The model whose record is oldest, among those that do not cool; the first of several. Empty when all cool.

    `last_seated_ms` holds milliseconds since the epoch; a model that it lacks was never asked.
    """
    awake = [m.alias for m in models if m.alias not in cooling]
    return min(awake, key=lambda alias: last_seated_ms.get(alias, 0), default="")


def _standings(records: Iterable[Record], shape: str) -> dict[str, Sums]:
    """What counts of each model's record: that on this shape, or on all of them where it has too few verdicts there."""
    of: dict[str, list[Sums]] = {}
    for line in records:
        of.setdefault(line.sums.alias, []).append(line.sums)
    return {alias: _one(alias, lines, shape) for alias, lines in of.items()}


def _one(alias: str, lines: Sequence[Sums], shape: str) -> Sums:
    own = next((line for line in lines if line.shape == shape), None)
    if own is not None and own.judged >= ENOUGH:
        return own
    return Sums(
        alias,
        shape,
        useful=sum(max(0, line.useful) for line in lines),
        not_useful=sum(max(0, line.not_useful) for line in lines),
        claims_held=sum(line.claims_held for line in lines),
        claims_failed=sum(line.claims_failed for line in lines),
        last_judged_ms=max(line.last_judged_ms for line in lines),
    )


def _standing(sums: Sums, now_ms: int) -> tuple[float, int]:
    """Smaller is better: the lower bound of what can be expected of it, then the claims of its answers that held."""
    weight = 0.5 if now_ms - sums.last_judged_ms > OLD_MS else 1.0
    low = wilson(weight * sums.useful, weight * sums.judged).low
    return -low, sums.claims_failed - sums.claims_held

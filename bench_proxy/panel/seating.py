"""Who sits on a panel (pure: values in, values out)."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench_proxy.catalog import Catalog, Model, sees
from bench_proxy.config import MODEL_PREFIX, Config
from bench_proxy.errors import InvalidRequest, NobodyCanSit
from bench_proxy.formats.request import Brief
from bench_proxy.ids import call_id
from bench_proxy.panel.seats import Seat, SeatKind, Skipped


@dataclass(frozen=True, slots=True)
class Plan:
    """A panel before its explorers are known: `open_seats` of them are to be chosen among `candidates`."""

    panel: str
    shape: str
    shape_by: str
    seats: tuple[Seat, ...]
    skipped: tuple[Skipped, ...]
    open_seats: int
    candidates: tuple[Model, ...]


def plan(panel: str, brief: Brief, config: Config, catalog: Catalog, *, images: bool, allowed: Collection[str]) -> Plan:
    """Seat the members and the guests, and say which models may explore.

    `allowed` are the guests that the caller's key may call. Raises InvalidRequest for a guest that does not exist
    or may not be called, and when no seat can see the request's images; NobodyCanSit when nobody is left.
    """
    collection = config.collections[brief.collection]
    shape, shape_by = shape_of(brief, config, images=images)
    table = _Table(panel, catalog, images=images)
    for alias in dict.fromkeys(collection.members):
        table.seat("member", alias)
    members = len(table.seats)
    free = config.limits.max_calls - members
    wanted = min(config.explorers_of(brief.collection), free)
    if brief.explorers is not None:
        wanted = min(wanted, brief.explorers)
    _check_guests(brief.guests, catalog, allowed)
    # Guests were asked for by name: the room is what they are held to, not how many explorers were wanted.
    room = min(config.limits.max_explorers, free)
    for alias in brief.guests:
        if len(table.seats) - members >= room:
            table.skip("guest", alias, f"no seat left: this panel has room for {room}")
        else:
            table.seat("guest", alias)
    guests = len(table.seats) - members
    open_seats = max(0, wanted - guests)
    candidates = tuple(
        m for m in catalog if m.role in config.all_shapes[shape] and may_explore(m, table.families, images=images)
    )
    if not table.seats and not (open_seats and candidates):
        raise _nobody(brief.collection, table.skipped, images=images)
    return Plan(
        panel, shape, shape_by, tuple(table.seats), tuple(table.skipped), open_seats if candidates else 0, candidates
    )


def shape_of(brief: Brief, config: Config, *, images: bool) -> tuple[str, str]:
    """The kind of task and who said so."""
    if brief.shape:
        return brief.shape, "request"
    if own := config.collections[brief.collection].shape:
        return own, "collection"
    return ("vision" if images else "general"), "default"


def may_explore(model: Model, families: Collection[str], *, images: bool) -> bool:
    return (
        model.chats
        and model.explore
        and not model.retired
        and model.family not in families
        and (not images or sees(model))
    )


def stalest(
    candidates: Iterable[Model], last_seated_ms: Mapping[str, int], count: int, rng: random.Random
) -> list[Model]:
    """The `count` candidates that were seated longest ago, one a family; ties at random.

    `last_seated_ms` holds milliseconds since the epoch; a model that it lacks was never seated and goes first.
    """
    order = list(candidates)
    rng.shuffle(order)
    order.sort(key=lambda m: last_seated_ms.get(m.alias, 0))
    chosen: dict[str, Model] = {}
    for model in order:
        if len(chosen) == count:
            break
        chosen.setdefault(model.family, model)
    return list(chosen.values())


def explorer_seats(panel: str, chosen: Sequence[Model]) -> tuple[Seat, ...]:
    return tuple(Seat(call_id(panel, "explorer", n), "explorer", m.alias) for n, m in enumerate(chosen, 1))


class _Table:
    """The seats taken so far, and the families that may not sit again."""

    def __init__(self, panel: str, catalog: Catalog, *, images: bool) -> None:
        self.seats: list[Seat] = []
        self.skipped: list[Skipped] = []
        self.families: dict[str, str] = {}
        self._panel = panel
        self._catalog = catalog
        self._images = images
        self._numbers: dict[str, int] = {}

    def seat(self, kind: SeatKind, alias: str) -> None:
        model = self._catalog.get(alias)
        if why := self._sits_out(model):
            self.skip(kind, alias, why)
            return
        self.families[model.family] = alias
        number = self._numbers[kind] = self._numbers.get(kind, 0) + 1
        self.seats.append(Seat(call_id(self._panel, kind, number), kind, alias))

    def skip(self, kind: SeatKind, alias: str, why: str) -> None:
        self.skipped.append(Skipped(kind, alias, why))

    def _sits_out(self, model: Model) -> str:
        if model.retired:
            return "retired"
        if not model.chats:
            return "not a chat model"
        if model.family in self.families:
            return f"same family as {self.families[model.family]}"
        if self._images and not sees(model):
            return "cannot see images"
        if model.role == "vision" and not self._images:
            return "only for images, and there is none in the request"
        return ""


def _check_guests(guests: Iterable[str], catalog: Catalog, allowed: Collection[str]) -> None:
    for alias in guests:
        if alias not in allowed or alias.startswith(MODEL_PREFIX):
            raise InvalidRequest(
                f'"{alias}" in "with" is not a model that this key can call. '
                f"Models: {', '.join(sorted(catalog.aliases & set(allowed))) or 'see GET /v1/models'}.",
                param="bench.with",
            )


def _nobody(collection: str, skipped: Sequence[Skipped], *, images: bool) -> Exception:
    named = "; ".join(f"{s.alias}: {s.why}" for s in skipped) or "no model is left"
    if images and any(s.why == "cannot see images" for s in skipped):
        return InvalidRequest(
            f"no seat of bench/{collection} can see the images: {named}. Send text, or set `vision: true` under "
            "bench.models for a model that can.",
            code="images_not_supported",
        )
    return NobodyCanSit(f"nobody can sit on a panel of bench/{collection}: {named}", code="nobody_can_sit")

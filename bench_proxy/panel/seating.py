"""Who sits on a panel (pure: values in, values out)."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench_proxy.catalog import Catalog, Model, fits, sees
from bench_proxy.config import MODEL_PREFIX, Config, closest
from bench_proxy.errors import InvalidRequest, NobodyCanSit, PromptTooLarge
from bench_proxy.formats.brief import LONGEST_ECHO
from bench_proxy.formats.request import Brief
from bench_proxy.ids import call_id
from bench_proxy.panel.seats import Seat, SeatKind, Skipped


class Numbering:
    """Hands out the seats of one panel with their call ids; a blind panel's say nothing of who sits where."""

    def __init__(self, panel: str, rng: random.Random | None = None, *, blind: bool = False, most: int = 0) -> None:
        self.panel = panel
        self._given: dict[str, int] = {}
        self._order = list(range(1, most + 1)) if blind else []
        self._most = most
        self._blind = blind
        (rng or random).shuffle(self._order)

    def seat(self, kind: SeatKind, alias: str) -> Seat:
        if self._blind and kind != "merger":
            self._most += not self._order
            number = self._order.pop() if self._order else self._most
            return Seat(call_id(self.panel, "blind", number), kind, alias, mask=letters(number))
        number = self._given[kind] = self._given.get(kind, 0) + 1
        return Seat(call_id(self.panel, kind, number), kind, alias)


def letters(number: int) -> str:
    """1 → A, 26 → Z, 27 → AA."""
    name = ""
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


@dataclass(frozen=True, slots=True)
class Plan:
    """A panel before its explorers are known: `open_seats` of them are to be chosen among `candidates`.

    `shape` is empty while it is still to be decided; what may explore on it is then narrowed by `for_shape`.
    """

    shape: str
    shape_by: str
    seats: tuple[Seat, ...]
    skipped: tuple[Skipped, ...]
    open_seats: int
    candidates: tuple[Model, ...]


def plan(
    numbering: Numbering,
    brief: Brief,
    config: Config,
    catalog: Catalog,
    *,
    images: bool,
    allowed: Collection[str],
    tokens: int = 0,
    cooling: Collection[str] = (),
) -> Plan:
    """Seat the members and the guests, and say which models may explore.

    `allowed` are the guests that the caller's key may call, `tokens` is the size of the prompt, `cooling` who does
    not explore now. Raises InvalidRequest for a guest that does not exist or may not be called, and when no seat can
    see the request's images; PromptTooLarge for a member; NobodyCanSit when nobody is left.
    """
    collection = config.collections[brief.collection]
    shape, shape_by = shape_of(brief, config, images=images)
    table = _Table(numbering, catalog, images=images, tokens=tokens)
    for alias in dict.fromkeys(collection.members):
        table.seat("member", alias)
    if table.too_small:
        raise _too_large(brief.collection, table.too_small, tokens)
    members = len(table.seats)
    free = config.limits.max_calls - members
    wanted = min(config.explorers_of(brief.collection), free)
    if brief.explorers is not None:
        wanted = min(wanted, brief.explorers)
    _check_guests(brief.guests, catalog, allowed)
    # Guests were asked for by name: the room is what they are held to, not how many explorers were wanted.
    room = min(config.limits.max_explorers, free)
    sitting = {seat.alias for seat in table.seats}
    for alias in brief.guests:
        if alias in sitting:  # as a member: it is on the panel, as was asked for
            continue
        if len(table.seats) - members >= room:
            table.skip("guest", alias, f"no seat left: this panel has room for {room}")
        else:
            table.seat("guest", alias)
    guests = len(table.seats) - members
    open_seats = max(0, wanted - guests)
    # A decision model says what kind of task it is; the task is not for it.
    left_out = {config.decision_model, *cooling}
    candidates = tuple(
        m
        for m in catalog
        if m.alias not in left_out and may_explore(m, table.families, images=images) and fits(m, tokens)
    )
    if shape:
        candidates = for_shape(candidates, config.all_shapes[shape])
    if not table.seats and not (open_seats and candidates):
        raise _nobody(brief.collection, table.skipped, images=images)
    return Plan(shape, shape_by, tuple(table.seats), tuple(table.skipped), open_seats if candidates else 0, candidates)


def shape_of(brief: Brief, config: Config, *, images: bool) -> tuple[str, str]:
    """The kind of task and who said so; empty when a decision model is to say."""
    if brief.shape:
        return brief.shape, "request"
    if own := config.collections[brief.collection].shape:
        return own, "collection"
    if images:
        return "vision", "default"
    return ("", "") if config.decision_model else ("general", "default")


def for_shape(candidates: Iterable[Model], roles: Collection[str]) -> tuple[Model, ...]:
    """Those whose role the shape admits."""
    return tuple(m for m in candidates if m.role in roles)


def may_explore(model: Model, families: Collection[str], *, images: bool) -> bool:
    return (
        model.chats
        and model.explore
        and not model.retired
        and model.family not in families
        and (sees(model) if images else model.role != "vision")
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


class _Table:
    """The seats taken so far, and the families that may not sit again."""

    def __init__(self, numbering: Numbering, catalog: Catalog, *, images: bool, tokens: int) -> None:
        self.seats: list[Seat] = []
        self.skipped: list[Skipped] = []
        self.too_small: list[Model] = []
        self.families: dict[str, str] = {}
        self._numbering = numbering
        self._catalog = catalog
        self._images = images
        self._tokens = tokens

    def seat(self, kind: SeatKind, alias: str) -> None:
        model = self._catalog.get(alias)
        if why := self._sits_out(model):
            self.skip(kind, alias, why)
            return
        if not fits(model, self._tokens):
            self.too_small.append(model)
            self.skip(kind, alias, f"its context window of {model.context_window:,} tokens is too small")
            return
        self.families[model.family] = alias
        self.seats.append(self._numbering.seat(kind, alias))

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
        if alias.lower().startswith(MODEL_PREFIX):
            raise InvalidRequest(f'"{alias[:LONGEST_ECHO]}" in "with" is a collection: name models', param="bench.with")
        if alias not in allowed:
            raise InvalidRequest(
                f'"{alias[:LONGEST_ECHO]}" in "with" is not a model that this key can call'
                f"{closest(alias[:LONGEST_ECHO], allowed) or '.'} "
                f"Models: {', '.join(sorted(catalog.aliases & set(allowed))) or 'see GET /v1/models'}.",
                param="bench.with",
            )


def _too_large(collection: str, members: Iterable[Model], tokens: int) -> PromptTooLarge:
    named = ", ".join(f"{m.alias} ({m.context_window:,} tokens)" for m in members)
    return PromptTooLarge(
        f"the prompt has about {tokens:,} tokens, more than the context window of members of bench/{collection}: "
        f"{named}. Send less, or ask a collection of models that take more.",
        param="messages",
        code="context_length_exceeded",
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

"""What is asked in one turn, and by whom."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench_proxy.catalog import Model
from bench_proxy.formats.relays import Native
from bench_proxy.formats.request import Brief
from bench_proxy.route.fitting import Prepared
from bench_proxy.route.keeping import NotAsked, Pin
from bench_proxy.route.stickiness import Sticky
from bench_proxy.size import Size


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked in a turn, by whom, and how its conversation is known: by its sticky key, and by the key of its own
    id. `size` is that of the prompt, `able` are the members that can take it, `native` is what the caller sent,
    for members that speak its format. `keep_text` is as in a `TurnReport`.
    """

    brief: Brief
    prepared: Prepared
    owner: str
    sticky: Sticky
    by_id: str
    pin: Pin
    shape: str
    size: Size
    able: Sequence[Model] = ()
    skipped: Sequence[NotAsked] = ()
    native: Native | None = None
    keep_text: bool = True

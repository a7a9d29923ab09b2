"""What a column can hold of what others said."""

import math
import time

MOST_INTEGER = 2**31 - 1
"""Of a column of 32 bits: PostgreSQL refuses more, and with it the whole row."""


def storable(text: str) -> str:
    """PostgreSQL's text holds no NUL, and no database half a character."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def counted(value: int | None) -> int | None:
    """A count, which a model's server may have made up; None where there is none."""
    return None if value is None else min(max(value, 0), MOST_INTEGER)


def added(kept: object, more: float | None) -> float | None:
    """The sum of what a row holds, which may be anything, and what has come; None as long as nothing is known."""
    before = kept if isinstance(kept, int | float) and math.isfinite(kept) else None
    return before if more is None else more if before is None else before + more


def now_ms() -> int:
    return time.time_ns() // 1_000_000

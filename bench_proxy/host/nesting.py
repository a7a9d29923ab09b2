"""Whether a seat's call is running: what it asks for cannot be another panel."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SEATED: ContextVar[bool] = ContextVar("bench_seated", default=False)


@contextmanager
def seated() -> Iterator[None]:
    """Mark what is called inside as a seat's; LiteLLM carries the mark into the threads and tasks that it starts."""
    token = _SEATED.set(True)
    try:
        yield
    finally:
        _SEATED.reset(token)


def is_seated() -> bool:
    return _SEATED.get()

"""No address that a caller sent is fetched: for some providers LiteLLM would download an image to send it inline."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import litellm
from litellm.litellm_core_utils.prompt_templates import image_handling

_ours: ContextVar[bool] = ContextVar("bench_proxy_call", default=False)

REFUSED = "this model's server takes no image by address, and the proxy downloads none: send it as base64 data:image/…"


@contextmanager
def nothing_fetched() -> Iterator[None]:
    """Within it LiteLLM's downloads of images fail; those of requests that are not ours are as ever."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


def guard() -> None:
    """Put the check into LiteLLM, once a process: in front of the two functions that all its downloads go through."""
    for name in ("safe_get", "async_safe_get"):
        fetch = getattr(image_handling, name)
        if not hasattr(fetch, "__wrapped__"):
            setattr(image_handling, name, _guarded(fetch))


def _guarded(fetch: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        """Also in front of the asynchronous one: it raises before there is anything to await."""
        if _ours.get():
            raise litellm.ImageFetchError(REFUSED)
        return fetch(*args, **kwargs)

    guarded.__wrapped__ = fetch  # type: ignore[attr-defined]
    return guarded

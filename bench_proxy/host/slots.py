"""How many calls a deployment takes at once, counted by LiteLLM's router for both lanes together."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from litellm import Router
from litellm.exceptions import RateLimitError

from bench_proxy.host.errors import translate

LIMITS = frozenset({"max_parallel_requests", "rpm", "tpm"})
"""Settings of a deployment that the router makes such a limit of; the first that is set."""


@contextmanager
def slot(router: Router, deployment: Mapping[str, Any]) -> Iterator[None]:
    """Hold one of the deployment's places, where it has a limit.

    Raises UpstreamError (`rate_limit`) when all are taken: the router lets nobody wait for one.
    """
    # For the many deployments without a limit, looking for one would cost more than all else here.
    if router.default_max_parallel_requests is None and LIMITS.isdisjoint(deployment["litellm_params"]):
        yield
        return
    limit = router._get_client(deployment=deployment, kwargs={}, client_type="max_parallel_requests")
    if limit is None:
        yield
        return
    try:
        limit.acquire()
    except RateLimitError as full:
        raise translate(full) from full
    try:
        yield
    finally:
        limit.release()

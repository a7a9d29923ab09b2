"""What all tests share: one fake model server, one real proxy, and no network but this machine's own."""

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import httpx
import pytest
from hypothesis import settings

from tests.proxy import ROOT, Proxy
from tests.served import (
    BENCH,
    KEYLESS_BENCH,
    KEYLESS_MODELS,
    MODELS,
    PROBE,
    WHO,
    WORKERS_BENCH,
    WORKERS_MODELS,
    forced,
)
from tests.upstream import Upstream

# Examples are not timed: a busy machine is no fault.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

PROXIES = {"proxy", "bare", "keyless", "workers"}
"""Fixtures that are a real proxy, beside those whose name ends with `_proxy`."""


class NetworkClosed(RuntimeError):
    """A test reached for another machine."""


def require_loopback(family: int, address: Any) -> None:
    """Refuse any address but loopback and Unix sockets."""
    if family == getattr(socket, "AF_UNIX", None):
        return
    host = address[0]
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise NetworkClosed(f"tests may connect to this machine only, not to {address}")


@pytest.fixture(scope="session", autouse=True)
def closed_network() -> Iterator[None]:
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded_connect(self: socket.socket, address: Any) -> None:
        require_loopback(self.family, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        require_loopback(self.family, address)
        return connect_ex(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        yield


@pytest.fixture(scope="session")
def upstream(closed_network: None) -> Iterator[Upstream]:
    """The model server behind `proxy`; it remembers calls until `clear`."""
    with Upstream() as server:
        yield server


@pytest.fixture(scope="session")
def on_lane(upstream: Upstream) -> Iterator[Callable[[str], Proxy]]:
    """The shared proxies of `tests/served.py`, one a lane. Tests leave them running, and their settings alone.

    LiteLLM's own cooling is off: one test's failing model would be refused to the next test, unasked.
    """
    with ExitStack() as running:

        @cache
        def started(lane: str) -> Proxy:
            served = Proxy(
                upstream.api_base, MODELS, bench=forced(BENCH, lane), router_settings={"disable_cooldowns": True}
            )
            return running.enter_context(served)

        yield started


@pytest.fixture
def proxy(on_lane: Callable[[str], Proxy]) -> Proxy:
    return on_lane("auto")


@pytest.fixture
def models(upstream: Upstream) -> Iterator[Upstream]:
    """The model server with nothing remembered of the tests before; in the end no gate is left waiting."""
    upstream.clear()
    yield upstream
    for call in upstream.calls():
        if call.end is None:
            upstream.release(call.model)


@pytest.fixture
def http(proxy: Proxy) -> Iterator[httpx.Client]:
    """A caller of the shared proxy, with its key."""
    with proxy.client() as client:
        yield client


@pytest.fixture(scope="session")
def bare(upstream: Upstream) -> Iterator[Proxy]:
    """LiteLLM as it is, with the same models as `proxy`."""
    with Proxy(upstream.api_base, MODELS, bare=True, router_settings={"disable_cooldowns": True}) as running:
        yield running


@pytest.fixture(scope="session")
def keyless(upstream: Upstream) -> Iterator[Proxy]:
    """No master key, the extension named three times in two ways, and a look inside at /probe."""
    with Proxy(
        upstream.api_base,
        KEYLESS_MODELS,
        bench=KEYLESS_BENCH,
        key=None,
        callbacks=["hooks.bench.gateway", "bench_proxy.gateway", "hooks.bench.gateway", "probe.handle"],
        files={"hooks/bench.py": (ROOT / "hooks/bench.py").read_text(), "probe.py": PROBE},
    ) as running:
        yield running


@pytest.fixture(scope="session")
def workers(upstream: Upstream) -> Iterator[Proxy]:
    """Two processes over one ledger, and callers with different rights."""
    with Proxy(
        upstream.api_base,
        WORKERS_MODELS,
        bench=WORKERS_BENCH,
        workers=2,
        # LiteLLM holds keys of a custom authentication to their lists of models only when told so twice.
        general_settings={"custom_auth": "who.check", "custom_auth_run_common_checks": True},
        litellm_settings={"enable_post_custom_auth_checks": True},
        files={"who.py": WHO},
    ) as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(name in PROXIES or name.endswith("_proxy") for name in getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.proxy)
        if item.get_closest_marker("proxy"):
            # The test that comes first also waits for the start, of which two cores can do one at a time.
            item.add_marker(pytest.mark.timeout(300))

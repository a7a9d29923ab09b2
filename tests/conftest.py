"""What all tests share: one fake model server, one real proxy, and no network but this machine's own."""

import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy import Proxy
from tests.served import BENCH, MODELS
from tests.upstream import Upstream


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
def proxy(upstream: Upstream) -> Iterator[Proxy]:
    """The shared proxy of `tests/served.py`. Tests leave it running, and its settings alone.

    LiteLLM's own cooling is off: one test's failing model would be refused to the next test, unasked.
    """
    with Proxy(upstream.api_base, MODELS, bench=BENCH, router_settings={"disable_cooldowns": True}) as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "proxy" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.proxy)

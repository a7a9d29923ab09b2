"""The guard that keeps tests on this machine."""

import socket

import pytest

from tests.conftest import NetworkClosed, require_loopback


@pytest.mark.parametrize("host", ["192.0.2.1", "10.0.0.1", "0.0.0.1", "example.com"])
def test_another_machine_is_refused(host: str) -> None:
    with socket.socket() as sock, pytest.raises(NetworkClosed, match="this machine only"):
        sock.connect((host, 80))
    with socket.socket() as sock, pytest.raises(NetworkClosed, match="this machine only"):
        sock.connect_ex((host, 80))


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("127.0.0.1", 80)),
        (socket.AF_INET, ("127.8.9.1", 80)),
        (socket.AF_INET, ("localhost", 80)),
        (socket.AF_INET6, ("::1", 80, 0, 0)),
        (socket.AF_UNIX, "/run/some.sock"),
    ],
)
def test_this_machine_is_allowed(family: int, address: object) -> None:
    require_loopback(family, address)


def test_a_local_connection_is_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()

"""A server that is stopped by a signal ends, whatever its clients do."""

import signal
import socket
import subprocess
import sys

import pytest

SERVER = """
import uvicorn
from bench_proxy.host import mount

keepers = []


async def begin():
    pass


async def end(patience):
    print("ended", patience is None or patience > 0, flush=True)


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        keepers.append(mount.Keeper(begin, end))
        keepers[0].start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"30000000")]})
    await send({"type": "http.response.body", "body": b"x" * 30_000_000})


uvicorn.run(app, port=0, timeout_graceful_shutdown=1, log_config=None, log_level="info")
"""


def serve() -> "subprocess.Popen[str]":
    logged = "import logging; logging.basicConfig(level=logging.INFO)\n"
    command = [sys.executable, "-c", logged + SERVER]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def port_of(server: "subprocess.Popen[str]") -> int:
    assert server.stderr is not None
    for line in server.stderr:
        if "running on" in line:
            return int(line.split("http://127.0.0.1:")[1].split()[0])
    raise AssertionError("it did not start")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_ends_with_0_behind_what_ends_with_it(number: signal.Signals) -> None:
    with serve() as server:
        try:
            port_of(server)
            server.send_signal(number)
            out, _ = server.communicate(timeout=60)
        finally:
            server.kill()
    assert (server.returncode, out) == (0, "ended True\n")


def test_a_connection_whose_client_does_not_read_is_cut_when_the_patience_is_over() -> None:
    with serve() as server, socket.socket() as deaf:
        try:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", port_of(server)))
            deaf.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            deaf.recv(1)  # it has been answered, as far as there was room
            server.send_signal(signal.SIGTERM)
            out, _ = server.communicate(timeout=30)
        finally:
            server.kill()
    assert out == "ended False\n"

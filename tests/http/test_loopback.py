"""A proxy that asks for no key answers programs on this machine, and pages of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from bench_proxy.config import Access
from bench_proxy.errors import Denied
from bench_proxy.http.loopback import refuse_foreign, refuse_pages

ANY = Access(
    allowed_hosts=("bench.internal", "tunnel.example:8443", "*.lan.example", "*.dev.example:8080", "[2001:db8::1]"),
    allowed_origins=("https://app.example", "chrome-extension://abcdef"),
)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:4000"},
        {"host": "localhost"},
        {"host": "LOCALHOST:4000"},
        {"host": "[::1]:4000"},
        {"host": "127.8.9.1"},
        {"host": "127.0.0.1:4000", "origin": "http://127.0.0.1:4000"},
        {"host": "localhost:4000", "origin": "http://LocalHost:4000"},
    ],
)
def test_this_machine_is_let_in(headers: dict[str, str]) -> None:
    refuse_foreign(Headers(headers), Access())


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": ""},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example:4000"},
        {"host": "10.0.0.1"},
        {"host": "0.0.0.0:4000"},
        {"host": "evil.example@127.0.0.1"},
        {"host": "localhost#.evil.example"},
        {"host": "localhost/.evil.example"},
        {"host": "127.0.0.1:port"},
        {"host": "127.0.0.1:4000", "origin": "https://evil.example"},
        {"host": "127.0.0.1:4000", "origin": "http://127.0.0.1:3000"},
        {"host": "127.0.0.1:4000", "origin": "null"},
        {"host": "127.0.0.1:4000", "origin": ""},
        {"host": "127.0.0.1:4000", "origin": "http://["},
    ],
)
def test_others_and_their_pages_are_not(headers: dict[str, str]) -> None:
    with pytest.raises(Denied) as refused:
        refuse_foreign(Headers(headers), Access())
    assert refused.value.status == 403


@pytest.mark.parametrize(
    "host",
    [
        "bench.internal",
        "bench.internal:4000",
        "BENCH.internal",
        "tunnel.example:8443",
        "a.lan.example",
        "a.b.lan.example:4000",
        "a.dev.example:8080",
        "[2001:db8::1]",
        "[2001:db8::1]:4000",
    ],
)
def test_names_that_are_allowed_are_let_in_with_pages_of_their_own(host: str) -> None:
    refuse_foreign(Headers({"host": host}), ANY)
    refuse_foreign(Headers({"host": host, "origin": f"https://{host.lower()}"}), ANY)
    with pytest.raises(Denied, match="may not use"):
        refuse_foreign(Headers({"host": host, "origin": "https://bench.example"}), ANY)


@pytest.mark.parametrize(
    "host",
    [
        "internal",
        "a.bench.internal",
        "bench.internal.evil.example",
        "bench.internal:",
        "bench.internal:port",
        "tunnel.example",
        "tunnel.example:443",
        "lan.example",
        ".lan.example",
        "evil-lan.example",
        "a.lan.example.evil.example",
        "evil.example:a.lan.example",
        "evil.example/.lan.example",
        "a@bench.internal",
        "a.dev.example",
        "a.dev.example:80",
        "[2001:db8::2]",
        "2001:db8::1",
    ],
)
def test_names_that_are_nearly_allowed_are_not(host: str) -> None:
    with pytest.raises(Denied) as refused:
        refuse_foreign(Headers({"host": host}), ANY)
    assert refused.value.status == 403
    assert "access.allowed_hosts" in refused.value.message


@pytest.mark.parametrize("origin", ANY.allowed_origins)
def test_pages_of_allowed_origins_get_bench_and_nothing_else(origin: str) -> None:
    headers = Headers({"host": "127.0.0.1:4000", "origin": origin})
    refuse_foreign(headers, ANY)
    with pytest.raises(Denied, match="bench models alone"):
        refuse_pages(headers)


@pytest.mark.parametrize("origin", ["http://app.example", "https://app.example:8443", "https://a.app.example", "null"])
def test_pages_of_nearly_allowed_origins_do_not(origin: str) -> None:
    with pytest.raises(Denied, match=r"access\.allowed_origins"):
        refuse_foreign(Headers({"host": "127.0.0.1:4000", "origin": origin}), ANY)


def test_programs_and_pages_of_the_server_itself_get_everything() -> None:
    refuse_pages(Headers({"host": "127.0.0.1:4000"}))
    refuse_pages(Headers({"host": "127.0.0.1:4000", "origin": "http://127.0.0.1:4000"}))


@given(st.text(), st.text())
def test_any_headers_are_let_in_or_denied(host: str, origin: str) -> None:
    try:
        refuse_foreign(Headers(raw=[(b"host", host.encode()), (b"origin", origin.encode())]), ANY)
    except Denied:
        return

"""A proxy that asks for no key answers programs on this machine, and pages of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from bench_proxy.errors import Denied
from bench_proxy.http.loopback import refuse_foreign


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
    refuse_foreign(Headers(headers))


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
        {"host": "127.0.0.1:4000", "origin": "https://evil.example"},
        {"host": "127.0.0.1:4000", "origin": "http://127.0.0.1:3000"},
        {"host": "127.0.0.1:4000", "origin": "null"},
        {"host": "127.0.0.1:4000", "origin": ""},
        {"host": "127.0.0.1:4000", "origin": "http://["},
    ],
)
def test_others_and_their_pages_are_not(headers: dict[str, str]) -> None:
    with pytest.raises(Denied) as refused:
        refuse_foreign(Headers(headers))
    assert refused.value.status == 403


@given(st.text(), st.text())
def test_any_headers_are_let_in_or_denied(host: str, origin: str) -> None:
    try:
        refuse_foreign(Headers(raw=[(b"host", host.encode()), (b"origin", origin.encode())]))
    except Denied:
        return

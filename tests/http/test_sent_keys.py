"""A bench key is found where clients send keys, judged by its digest, and nowhere afterwards."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.http.sent_keys import HEADERS, SENT, Sent, carries, is_taken, take_out
from bench_proxy.keys import digest_of, new_key

KEY, OTHER = new_key(), new_key()
GOOGLES = "/v1beta/models/bench/core:generateContent"
CHAT = "/v1/chat/completions"


def request(*headers: tuple[str, str], query: str = "", path: str = CHAT) -> dict[str, Any]:
    sent = [(name.encode(), value.encode()) for name, value in headers]
    address = {"path": path, "raw_path": path.encode(), "query_string": query.encode()}
    return {"type": "http", "headers": [(b"host", b"here"), *sent], **address}


def taken_out(scope: dict[str, Any], path: str = CHAT) -> Sent | None:
    take_out(scope, path)
    assert not carries(scope)
    assert KEY not in str(scope)
    assert OTHER not in str(scope)
    return scope.get(SENT)


@pytest.mark.parametrize(
    "scope",
    [
        request(),
        request(("authorization", "Bearer sk-one"), query="key=sk-two"),
        request(("authorization", "Bearer sk-4bpk_2"), ("x-other", "_bpk_ -bpk_"), query="key=sk-4bpk_2"),
        request(query="note=bpk_one&bpk_", path="/v1/models/bpk_one"),
        {"type": "http", "headers": [], "path": "/", "query_string": b"key=\xff%ff&&=&key"},
    ],
    ids=["nothing", "another's", "another's that holds the letters", "another word", "garbage"],
)
def test_a_request_without_a_bench_key_is_left_as_it_is(scope: dict[str, Any]) -> None:
    before = dict(scope)
    assert not carries(scope)
    take_out(scope, GOOGLES)
    assert scope == before


def test_what_has_not_the_form_of_a_key_is_one_that_nobody_has() -> None:
    for wrong in ("bpk_", KEY[:-1], f"{KEY}x", "bpk_\xe4"):
        assert taken_out(request(("authorization", f"Bearer {wrong}"))) == Sent("")


@pytest.mark.parametrize(
    ("key", "taken"), [(KEY, True), (KEY[:-1], True), (f"sk-{KEY}", True), ("sk-4bpk_2", False), ("", False)]
)
def test_which_keys_litellm_never_sees(key: str, taken: bool) -> None:
    assert is_taken(key) is taken
    assert carries(request(("authorization", f"Bearer {key}"))) is taken


@pytest.mark.parametrize(
    "header",
    [
        ("authorization", f"Bearer {KEY}"),
        ("authorization", f"bearer   {KEY} "),
        ("x-litellm-api-key", f"Bearer {KEY}"),
        ("x-api-key", KEY),
        ("x-goog-api-key", KEY),
        ("api-key", KEY),
    ],
    ids=lambda header: f"{header[0]} {header[1].partition('bpk_')[0]}".strip(),
)
def test_a_key_is_found_in_any_vendors_header(header: tuple[str, str]) -> None:
    assert taken_out(request(header)) == Sent(digest_of(KEY))


def test_litellm_still_sees_that_there_was_a_key() -> None:
    scope = request(("authorization", f"Bearer {KEY}"), ("x-api-key", "sk-mine"))
    take_out(scope, CHAT)
    assert dict(scope["headers"])[b"authorization"] == b"Bearer a-bench-key"
    assert dict(scope["headers"])[b"x-api-key"] == b"sk-mine"


@pytest.mark.parametrize(
    ("headers", "judged"),
    [
        ([("x-api-key", KEY), ("authorization", f"Bearer {OTHER}")], OTHER),
        ([("x-goog-api-key", KEY), ("x-api-key", OTHER)], OTHER),
        ([("x-api-key", KEY), ("x-api-key", OTHER)], KEY),
        ([("authorization", ""), ("x-api-key", KEY)], KEY),
        ([("authorization", "Bearer "), ("x-api-key", KEY)], KEY),
        ([("authorization", "Basic eDp5"), ("x-api-key", KEY)], KEY),
        ([("authorization", f"Basic {KEY}")], None),
        ([("authorization", "Bearer sk-one"), ("x-api-key", KEY)], None),
        ([("ocp-apim-subscription-key", KEY)], None),
        ([("x-a-header-of-the-operators", f"Bearer {KEY}")], None),
    ],
    ids=lambda given: "+".join(name for name, _ in given) if isinstance(given, list) else "",
)
def test_the_first_of_the_known_places_is_judged(headers: list[tuple[str, str]], judged: str | None) -> None:
    assert taken_out(request(*headers)) == (None if judged is None else Sent(digest_of(judged)))


@pytest.mark.parametrize(
    "query",
    [f"key={KEY}", f"alt=sse&key={KEY}&x", f"key=%62pk%5F{KEY[4:]}", f"k%65y={KEY}"],
    ids=["alone", "among others", "in percents", "its name in percents"],
)
def test_on_googles_paths_a_key_stands_in_the_address(query: str) -> None:
    scope = request(query=query)
    assert taken_out(scope, GOOGLES) == Sent(digest_of(KEY))
    assert KEY[4:].encode() not in scope["query_string"]
    assert taken_out(request(query=query), CHAT) is None


@pytest.mark.parametrize(
    ("query", "left"),
    [(f"api_key={KEY}", b"api_key=a-bench-key"), (f"a=1&%62{KEY[1:]}=x", b"a=1&a-bench-key"), (KEY, b"a-bench-key")],
    ids=["another field", "a name", "alone"],
)
def test_a_key_anywhere_in_the_address_is_taken_out_and_not_judged(query: str, left: bytes) -> None:
    scope = request(query=query)
    assert taken_out(scope, GOOGLES) is None
    assert scope["query_string"] == left


def test_a_key_in_the_path_is_taken_out_and_not_judged() -> None:
    """As who means the id of a key may write it; servers log paths."""
    scope = request(path=f"/bench/keys/{KEY}")
    assert taken_out(scope, scope["path"]) is None
    assert (scope["path"], scope["raw_path"]) == ("/bench/keys/a-bench-key", b"/bench/keys/a-bench-key")


def test_the_rest_of_the_address_stays() -> None:
    scope = request(query=f"a=1&key={KEY}&b=%20&key=sk-one")
    take_out(scope, GOOGLES)
    assert scope["query_string"] == b"a=1&key=a-bench-key&b=%20&key=sk-one"


def test_a_header_is_judged_before_the_address() -> None:
    assert taken_out(request(("x-api-key", OTHER), query=f"key={KEY}"), GOOGLES) == Sent(digest_of(OTHER))
    assert taken_out(request(("x-api-key", "sk-one"), query=f"key={KEY}"), GOOGLES) is None


@given(st.lists(st.tuples(st.sampled_from([*HEADERS, b"x-other"]), st.binary(max_size=20))), st.binary(max_size=40))
def test_nothing_that_is_sent_leaves_a_key_or_fails(headers: list[tuple[bytes, bytes]], query: bytes) -> None:
    sent = [(name, value.replace(b"!", KEY.encode())) for name, value in headers]
    scope = {**request(), "headers": sent, "query_string": query.replace(b"!", b"&key=" + KEY.encode())}
    taken_out(scope, GOOGLES)

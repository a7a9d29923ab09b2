"""The ids that clients give their sessions, and what is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.formats.sessions import HEADERS, session_of
from tests.anything import JSON
from tests.claude_code import FIRST_REQUEST

Json = dict[str, Any]

USER_ID = json.dumps({"device_id": "0" * 64, "session_id": "abc-1"})


@pytest.mark.parametrize(
    "absurd",
    [
        "",
        "  ",
        "undefined",
        "NULL",
        "None",
        "[object Object]",
        "-",
        "x" * 257,
        "a\x00b",
        "a\nb",
        5,
        None,
        True,
        ["a"],
        {},
    ],
)
def test_what_is_no_id_is_ignored(absurd: Any) -> None:
    for name in HEADERS:
        assert session_of({}, {name: absurd}) is None
    for body in (
        {"prompt_cache_key": absurd},
        {"litellm_session_id": absurd},
        {"metadata": {"session_id": absurd}},
        {"metadata": {"user_id": json.dumps({"session_id": absurd})}},
    ):
        assert session_of(body, {}) is None


@pytest.mark.parametrize("user_id", ["me", "user_1_session_2", "{", '{"session_id"', "[1]", "{}", "{" * 3000, 5, None])
def test_a_user_is_no_session(user_id: Any) -> None:
    assert session_of({"metadata": {"user_id": user_id}}, {}) is None


def test_an_object_in_text_is_read_only_while_it_is_short() -> None:
    long = json.dumps({"session_id": "abc", "padding": "x" * 2000})
    assert session_of({"metadata": {"user_id": long}}, {}) is None


@pytest.mark.parametrize("metadata", ["me", 5, [], None, {}, {"session_id": None}])
def test_metadata_of_any_form_may_say_nothing(metadata: Any) -> None:
    assert session_of({"metadata": metadata}, {}) is None


@given(JSON, st.sampled_from(["metadata", "litellm_session_id", "prompt_cache_key"]))
def test_any_json_is_read(value: object, name: str) -> None:
    session = session_of({name: value}, {})
    assert session is None or 0 < len(session) <= 256


@pytest.mark.parametrize("name", HEADERS)
def test_the_headers_of_clients_are_read(name: str) -> None:
    assert session_of({}, {name: " 0198-abc ", "user-agent": "x"}) == "0198-abc"


@pytest.mark.parametrize(
    "body",
    [
        {"prompt_cache_key": "abc-1"},
        {"litellm_session_id": "abc-1"},
        {"metadata": {"session_id": "abc-1", "user_id": "me"}},
        {"metadata": {"user_id": USER_ID}},
        {"metadata": {"user_id": f" {USER_ID}"}},
    ],
)
def test_the_fields_of_clients_are_read(body: Json) -> None:
    assert session_of(body, {}) == "abc-1"


def test_claude_codes_own_request_says_its_session() -> None:
    assert session_of(FIRST_REQUEST, {}) == "1-2-3"


def test_a_header_wins_over_the_body_and_what_is_absurd_over_nothing() -> None:
    body = {"prompt_cache_key": "of body"}
    assert session_of(body, {"x-session-id": "of header"}) == "of header"
    assert session_of(body, {"x-session-id": "undefined"}) == "of body"


def test_a_thread_is_told_from_its_session() -> None:
    assert session_of({}, {"session-id": "session", "thread-id": "thread"}) == "thread"


def test_a_key_that_conversations_may_share_is_the_last_that_counts() -> None:
    assert session_of({"prompt_cache_key": "shared", "metadata": {"user_id": USER_ID}}, {}) == "abc-1"


def test_the_longest_id_is_taken_whole() -> None:
    assert session_of({}, {"session-id": "x" * 256}) == "x" * 256

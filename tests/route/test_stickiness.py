"""Which requests are turns of one conversation."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bench_proxy.formats.anthropic.format import MessagesFormat
from bench_proxy.formats.request import Brief, ChatRequest
from bench_proxy.ids import conversation_id
from bench_proxy.route.stickiness import LOOKED_AT, Sticky, share_of, steady, sticky, system_text
from tests.anything import TEXT
from tests.claude_code import FIRST_REQUEST

Json = dict[str, Any]

SYSTEM = {"role": "system", "content": "You write code."}
USER = {"role": "user", "content": "Fix the tests."}
ANSWER = {"role": "assistant", "content": "Done."}


def stuck(
    *messages: Json, collection: str = "core", owner: str = "key-1", tools: Sequence[Json] = (), **said: Any
) -> Sticky:
    brief = Brief(model=f"bench/{collection}:route", collection=collection, reply="route", **said)
    return sticky(collection, owner, brief, ChatRequest(messages, {"tools": tools}))


def key(*messages: Json, **said: Any) -> str:
    return stuck(*messages, **said).key


def of_system(text: str) -> str:
    return key({"role": "system", "content": text}, USER)


# What is told apart

NAMED = st.sampled_from([{}, {"session": "s"}, {"conversation": "c"}])
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "developer"]), "content": TEXT}
)


@given(st.lists(MESSAGE, max_size=5), NAMED)
def test_the_turns_of_a_conversation_have_one_key(more: list[Json], said: Json) -> None:
    assert key(SYSTEM, USER, *more, **said) == key(SYSTEM, USER, **said)


@given(TEXT, NAMED)
def test_a_conversation_is_found_by_the_id_that_it_was_told(system: str, said: Json) -> None:
    messages, id = ({"role": "system", "content": system}, USER), conversation_id()
    assert stuck(*messages, **said).key_by_id(id) == key(*messages, conversation=id)


@given(TEXT, TEXT)
def test_two_system_texts_are_two_conversations(one: str, other: str) -> None:
    assume(steady(one) != steady(other))
    assert of_system(one) != of_system(other)
    for said in ({"session": "s"}, {"conversation": "c"}):
        keys = {key({"role": "system", "content": text}, USER, **said) for text in (one, other)}
        assert len(keys) == 2


@given(TEXT, TEXT)
def test_two_first_messages_are_two_conversations(one: str, other: str) -> None:
    assume(one != other)
    assert key(SYSTEM, {"role": "user", "content": one}) != key(SYSTEM, {"role": "user", "content": other})


@given(st.text(min_size=1), st.text(min_size=1), NAMED)
def test_two_keys_never_share_a_conversation(one: str, other: str, said: Json) -> None:
    assume(one != other)
    assert key(SYSTEM, USER, owner=one, **said) != key(SYSTEM, USER, owner=other, **said)


def test_neither_do_two_collections() -> None:
    assert key(SYSTEM, USER) != key(SYSTEM, USER, collection="other")


def test_what_runs_together_is_told_apart() -> None:
    assert key(USER, collection="ab", owner="c") != key(USER, collection="a", owner="bc")
    assert key({"role": "system", "content": "a"}, {"role": "user", "content": "b"}) != key(
        {"role": "system", "content": ""}, {"role": "user", "content": "ba"}
    )


def test_the_same_word_is_not_the_same_as_session_conversation_and_message() -> None:
    word = {"role": "user", "content": "x"}
    assert len({key(word), key(word, session="x"), key(word, conversation="x")}) == 3


def test_nothing_can_be_read_in_a_key() -> None:
    found = key(SYSTEM, USER, owner="secret")
    assert len(found) == 64
    assert set(found) <= set("0123456789abcdef")


# What a conversation goes by


def test_an_explicit_conversation_comes_before_the_clients_session_and_that_before_the_first_words() -> None:
    other = {"role": "user", "content": "Something else."}
    assert stuck(USER).by == "fingerprint"
    assert stuck(USER, session="s").by == "client session"
    assert key(USER, session="s") == key(other, session="s") != key(USER, session="t")
    both = {"session": "s", "conversation": "c"}
    assert stuck(USER, **both).by == "bench.conversation"
    assert key(USER, **both) == key(other, session="t", conversation="c") != key(USER, session="s", conversation="d")


def test_a_conversation_is_the_same_whether_a_header_or_the_body_says_it() -> None:
    by_header = stuck(USER, conversation="c", conversation_by="header")
    assert by_header.by == "header"
    assert by_header.key == key(USER, conversation="c")


def test_other_tools_are_no_other_conversation() -> None:
    assert key(USER, tools=[{"type": "function", "function": {"name": "read"}}]) == key(USER)


@pytest.mark.parametrize(
    "messages", [(), (SYSTEM,), (ANSWER,), ({"role": "user"},), ({"role": "user", "content": None},)]
)
def test_a_conversation_without_words_has_a_key(messages: Sequence[Json]) -> None:
    assert stuck(*messages).by == "fingerprint"
    assert key(*messages) == key(*messages)


def test_half_a_character_harms_nothing() -> None:
    assert key({"role": "user", "content": "\ud83d"}) != key({"role": "user", "content": "\ud83e"})


# The system text


def test_system_and_developer_messages_at_the_head_are_the_system_text() -> None:
    developer = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    assert (
        system_text([SYSTEM, developer, USER, {"role": "system", "content": "Later."}]) == "You write code.\nBe brief."
    )


def test_the_same_text_in_parts_is_the_same_conversation() -> None:
    marked = {"type": "text", "text": "You write code.", "cache_control": {"type": "ephemeral"}}
    assert key({"role": "system", "content": [marked]}, USER) == key(SYSTEM, USER)
    asked = {"role": "user", "content": [{"type": "text", "text": "Fix the tests."}]}
    assert key(SYSTEM, asked) == key(SYSTEM, USER)


def test_a_system_message_in_the_middle_may_come_and_go() -> None:
    later = {"role": "system", "content": "Tools are found by search."}
    assert key(SYSTEM, USER, later, ANSWER) == key(SYSTEM, USER, ANSWER) == key(SYSTEM, USER, ANSWER, later)


CHANGES = [
    ("x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;", "x-anthropic-billing-header: cc_version=2.2; cch=ff;"),
    ("Today's date: 2026-03-01", "Today's date: 2026-03-02"),
    ("  Today's date: Sun Mar 01 2026", "  Today's date: Tue Mar 31 2026"),
    ("Today\u2019s date is Sunday, March 1, 2026 (as here).", "Today\u2019s date is Monday, March 22, 2026 (as here)."),
    ("Today is Sunday.", "Today is Monday."),
    ("Current date and time: 1/3/2026, 9:05 PM", "Current date and time: 12/3/2026, 10:06 AM"),
    ("<current_date>2026-03-01</current_date>", "<current_date>2026-03-02</current_date>"),
    ("currentDate: Sunday", "currentDate: Monday"),
    ("The current local time is 12:00.", "The current local time is 13:37."),
    ("The current time in Berlin (CET) is noon.", "The current time in Berlin (CET) is one."),
    ("- Time: noon", "- Time: night"),
    ("**Date:** Sunday", "**Date:** Monday"),
    ("Local time: 12:00", "Local time: 13:00"),
    ("Started 2026-03-01T12:00:05.123Z by the shell", "Started 2026-03-02T01:00:00Z by the shell"),
    ("Started 20260301T120005Z", "Started 20260302T120005Z"),
    ("It is now noon in Rome", "It is now one in Rome"),
    ("As of 1 March 2026", "As of 22 March 2026"),
    ("As of 1. March 2026", "As of 2. March 2026"),
    ("01.03.2026", "02.03.2026"),
    ("Today's date: 2026-03-01\r", "Today's date: 2026-03-02\r"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize(
    "form", ["{}", "{}\nYou write code.", "You write code.\n{}\n\nBe brief.", "You write code.\n{}"]
)
def test_a_line_that_changes_on_every_request_does_not_matter(before: str, after: str, form: str) -> None:
    assert of_system(form.format(before)) == of_system(form.format(after))


def test_a_line_that_says_more_than_the_date_still_tells_conversations_apart() -> None:
    def of(agent: str, day: int) -> str:
        return of_system(f"You are {agent}. Today is 2026-03-0{day}. You write code.")

    assert of("Ann", 1) == of("Ann", 2)
    assert of("Ann", 1) != of("Ben", 1)


STAYS = [
    ("Call the tool gpt-4o-2024-08-06.", "Call the tool gpt-4o-2024-11-20."),
    ("Use version 2026.3.1-beta.", "Use version 2026.3.2-beta."),
    ("Answer within 20 seconds.", "Answer within 30 seconds."),
    ("Take your time.", "Take no time."),
    ("Update the tests.", "Update the docs."),
    ("You know this now: a", "You know this now: b"),
    ("Meetings are at 10:30 today.", "Meetings are at 11:30 today."),
]


@pytest.mark.parametrize(("one", "other"), STAYS)
def test_a_line_that_only_looks_like_a_date_counts(one: str, other: str) -> None:
    assert of_system(one) != of_system(other)


@given(TEXT)
def test_of_a_text_without_digits_and_dates_nothing_goes(text: str) -> None:
    plain = "".join(c for c in text if c not in "0123456789")
    assume("x-" not in plain.lower())
    assert steady(plain) == plain


def test_behind_a_very_long_system_text_nothing_is_looked_for() -> None:
    rest = "\nToday is Sunday."
    assert steady("x" * LOOKED_AT + rest) == "x" * LOOKED_AT + rest
    assert steady("x" * (LOOKED_AT - len(rest)) + rest) == "x" * (LOOKED_AT - len(rest))


# A real client


def of_claude_code(**more: Any) -> str:
    request, _ = MessagesFormat().read({**FIRST_REQUEST, **more})
    return key(*request.messages, session="1-2-3")


def test_a_session_of_claude_code_keeps_its_key_while_its_billing_line_changes() -> None:
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332; cch=ffff;"}
    asked = FIRST_REQUEST["messages"]
    later = [*asked, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Go on."}]
    assert of_claude_code(system=[billing, *FIRST_REQUEST["system"][1:]], messages=later) == of_claude_code()


def test_a_title_is_a_conversation_of_its_own_under_the_same_session() -> None:
    title = [FIRST_REQUEST["system"][0], {"type": "text", "text": "Write a title."}]
    assert of_claude_code(system=title) != of_claude_code()


# Shares


def test_a_share_is_drawn_evenly_and_can_be_drawn_again() -> None:
    drawn = [share_of(f"r20260301-120005-{n:016}") for n in range(4000)]
    assert drawn == [share_of(f"r20260301-120005-{n:016}") for n in range(4000)]
    assert all(0 <= share < 1 for share in drawn)
    for quarter in range(4):
        assert 850 < sum(int(share * 4) == quarter for share in drawn) < 1150


def test_the_share_of_a_conversation_stays_what_it_was() -> None:
    assert share_of("r20260301-120005-abcdefghijklmnop") == 0.7582103349685145
    assert share_of(conversation_id()) != share_of(conversation_id())

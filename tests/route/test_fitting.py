"""A request is made such that any member can answer it, and nothing of it is changed in place."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.catalog import Model
from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.request import ChatRequest, ToolName
from bench_proxy.route.fitting import Prepared, fit, prepare

Json = dict[str, Any]

USER: Json = {"role": "user", "content": "Hello."}
READ: Json = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
WRITE: Json = {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {}}}}
SEARCH: Json = {"type": "web_search"}
PIXEL: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=="}}


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def call(id: str = "1", name: str = "read", arguments: Any = "{}") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Json, content: Any = None) -> Json:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id: str = "1", content: Any = "done") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def prepared(*messages: Json, **settings: Any) -> Prepared:
    request = ChatRequest(list(messages) or [USER], settings)
    before = copy.deepcopy((request.messages, request.settings, request.tools))
    made = prepare(request)
    assert (request.messages, request.settings, request.tools) == before
    again = prepare(made.request)
    assert again.request is made.request
    return made


def messages_of(*messages: Json) -> list[Json]:
    return [dict(message) for message in prepared(*messages).request.messages]


def refused(*messages: Json, **settings: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        prepare(ChatRequest(list(messages) or [USER], settings))
    assert error.value.status == 400
    return error.value


# What is refused.


@pytest.mark.parametrize(
    ("settings", "word", "param"),
    [
        ({"n": 2}, "n is 2", "n"),
        ({"modalities": ["text", "audio"]}, "audio", "modalities"),
        ({"audio": {"voice": "alloy"}}, "audio", "modalities"),
        ({"tools": [SEARCH]}, "web_search", "tools"),
        ({"tools": [{"type": "mcp_server", "name": "x"}, SEARCH], "tool_choice": "auto"}, "mcp_server", "tools"),
        ({"tools": [READ, SEARCH], "tool_choice": SEARCH}, "web_search", "tool_choice"),
        (
            {
                "tools": [READ, {"type": "web_search_20250305", "name": "search"}],
                "tool_choice": {"type": "function", "function": {"name": "search"}},
            },
            "search",
            "tool_choice",
        ),
        (
            {
                "tools": [READ, SEARCH],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [SEARCH]}},
            },
            "web_search",
            "tool_choice",
        ),
        (
            {
                "tools": [READ],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [WRITE]}},
            },
            "read",
            "tool_choice",
        ),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name", "tools.0.function.name"),
        ({"tools": [READ, {"type": "custom"}]}, "tools.1.custom.name", "tools.1.custom.name"),
    ],
)
def test_settings_that_no_member_can_honour_are_refused(settings: Json, word: str, param: str) -> None:
    error = refused(**settings)
    assert word in error.message
    assert error.param == param


@pytest.mark.parametrize("kind", ["image_file", "document", "server_tool_use", None])
def test_a_users_part_of_another_kind_is_refused_by_name(kind: str | None) -> None:
    assert f'"{kind}"' in refused({"role": "user", "content": [text("Look."), {"type": kind}]}).message


@pytest.mark.parametrize("url", ["file:///etc/passwd", "data:text/html;base64,AAAA", None, 5])
@pytest.mark.parametrize("in_result", [False, True])
def test_an_image_that_no_model_can_be_sent_is_refused(url: object, in_result: bool) -> None:
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    message = result(content=parts) if in_result else {"role": "user", "content": parts}
    assert "http(s)" in refused(USER, calling(call()), message).message


@pytest.mark.parametrize(
    "calls", [["read"], [{}], [{"type": "custom", "custom": {}}], [{"function": "read"}], {"a": 1}]
)
def test_a_call_that_is_none_is_refused_by_its_place(calls: Any) -> None:
    assert "messages.1.tool_calls" in refused(USER, {"role": "assistant", "tool_calls": calls}).message


def test_a_conversation_of_nothing_is_refused() -> None:
    assert "messages" in refused({"role": "assistant", "content": " "}).message


# Tools.


def test_hosted_tools_are_left_out_by_name() -> None:
    made = prepared(tools=[READ, SEARCH, {"type": "mcp_server", "name": "x"}, SEARCH])
    assert made.request.settings["tools"] == [READ]
    assert made.left_out == ("web_search", "mcp_server")
    assert made.names == {"read"}


def test_hosted_tools_that_may_not_be_called_are_no_reason_to_refuse() -> None:
    made = prepared(tools=[SEARCH], tool_choice="none", parallel_tool_calls=True)
    assert made.request.settings == {}
    assert made.left_out == ("web_search",)


@pytest.mark.parametrize("options", [{}, {"search_context_size": "low"}])
def test_a_search_by_options_is_left_out(options: Json) -> None:
    made = prepared(web_search_options=options, temperature=0)
    assert made.request.settings == {"temperature": 0}
    assert made.left_out == ("web_search_options",)


@pytest.mark.parametrize("tools", [{}, {"tools": []}])
def test_what_steers_tools_goes_where_there_are_none(tools: Json) -> None:
    made = prepared(tool_choice="auto", parallel_tool_calls=False, **({"temperature": 1} | tools))
    assert made.request.settings == {"temperature": 1}


PATCH = {"name": "patch", "description": "Edits."}
GRAMMAR = {"syntax": "lark", "definition": "start: 'x'"}


@pytest.mark.parametrize(
    "custom",
    [
        {"type": "custom", "custom": {**PATCH, "format": {"type": "grammar", "grammar": GRAMMAR}}},
        {"type": "custom", **PATCH, "format": {"type": "grammar", **GRAMMAR}},
    ],
)  # fmt: skip
def test_a_custom_tool_becomes_a_function_of_one_text(custom: Json) -> None:
    made = prepared(tools=[READ, custom], tool_choice={"type": "custom", "custom": {"name": "patch"}})
    _, function = made.request.settings["tools"]
    assert function["type"] == "function"
    assert function["function"]["parameters"]["required"] == ["input"]
    assert function["function"]["parameters"]["properties"]["input"]["type"] == "string"
    for said in ("Edits.", "lark", "start: 'x'"):
        assert said in function["function"]["description"]
    assert made.request.settings["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    assert made.tools == made.request.tools == {"patch": ToolName("patch", custom=True)}
    assert made.names == {"read", "patch"}


def test_a_custom_tool_keeps_its_namespace_and_others_their_names() -> None:
    names = {"ns__patch": ToolName("patch", "ns"), "ns__read": ToolName("read", "ns")}
    custom = {"type": "custom", "custom": {"name": "ns__patch"}}
    assert prepare(ChatRequest([USER], {"tools": [custom]}, names)).tools == {
        "ns__patch": ToolName("patch", "ns", custom=True),
        "ns__read": ToolName("read", "ns"),
    }


@pytest.mark.parametrize("type", [{"type": "function"}, {}])
@pytest.mark.parametrize("flat", [False, True])
def test_a_function_has_the_form_of_chat_whatever_it_was_sent_in(type: Json, flat: bool) -> None:
    sent = READ["function"] if flat else {"function": READ["function"]}
    assert prepared(tools=[{**type, **sent}]).request.settings["tools"] == [READ]


@pytest.mark.parametrize(("mode", "choice"), [("auto", "auto"), ("required", "required")])
def test_allowed_tools_are_the_tools(mode: str, choice: str) -> None:
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "write"}}, SEARCH]}
    choices = ({"type": "allowed_tools", "allowed_tools": allowed}, {"type": "allowed_tools", **allowed})
    for sent in choices:
        made = prepared(tools=[READ, WRITE, SEARCH], tool_choice=sent)
        assert made.request.settings == {"tools": [WRITE], "tool_choice": choice}


@pytest.mark.parametrize(
    ("sent", "choice"),
    [
        ({}, {}),
        ({"function_call": "auto"}, {"tool_choice": "auto"}),
        ({"function_call": {"name": "read"}}, {"tool_choice": {"type": "function", "function": {"name": "read"}}}),
    ],
)
def test_functions_of_old_are_tools(sent: Json, choice: Json) -> None:
    made = prepared(functions=[READ["function"]], **sent)
    assert made.request.settings == {"tools": [READ], **choice}


# Messages.


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_in_the_middle_are_said_by_the_user(role: str) -> None:
    first, later = {"role": role, "content": "Be brief."}, {"role": role, "content": [text("Be briefer.")]}
    assert messages_of(first, USER, later) == [first, USER, {"role": "user", "content": [text("Be briefer.")]}]


@pytest.mark.parametrize("content", ["", " \n", [], [text("")], [text(" "), {"type": "thinking", "thinking": "Hm."}]])
def test_blank_text_beside_calls_is_none(content: Any) -> None:
    told = messages_of(USER, calling(call(), content=content), result())
    assert told[1] == calling(call())


@pytest.mark.parametrize("content", ["", None, [], [{"type": "server_tool_use"}], [{"type": "image_url"}]])
def test_an_assistant_that_says_and_calls_nothing_is_dropped(content: Any) -> None:
    assert messages_of(USER, {"role": "assistant", "content": content, "tool_calls": []}, USER) == [USER, USER]


def test_parts_of_an_assistant_that_are_no_text_are_dropped() -> None:
    content = [{"type": "reasoning"}, text("Yes."), {"type": "web_search_tool_result"}, text("No.")]
    told = messages_of(USER, {"role": "assistant", "content": content})
    assert told[1]["content"] == [text("Yes."), text("No.")]


@pytest.mark.parametrize(
    "said", [{"content": None, "refusal": "No."}, {"content": [{"type": "refusal", "refusal": "No."}]}]
)
def test_a_refusal_is_what_the_assistant_said(said: Json) -> None:
    assert messages_of(USER, {"role": "assistant", **said})[1]["content"] == "No."


def test_an_empty_list_of_calls_is_no_list() -> None:
    told = messages_of(USER, {"role": "assistant", "content": "Yes.", "tool_calls": []})
    assert told[1] == {"role": "assistant", "content": "Yes."}


def test_a_custom_call_of_the_past_is_one_of_a_function() -> None:
    custom = {"id": "1", "type": "custom", "custom": {"name": "patch", "input": 'a "é"'}}
    (made,) = messages_of(USER, calling(custom), result())[1]["tool_calls"]
    assert made == call("1", "patch", '{"input": "a \\"é\\""}')


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ('{"a": 1,,', {"malformed_arguments": '{"a": 1,,'}),
        ("[1]", {"malformed_arguments": "[1]"}),
        ([1], {"malformed_arguments": [1]}),
        ("", {}),
        (None, {}),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_arguments_of_the_past_are_an_object(sent: Any, told: Json) -> None:
    (made,) = messages_of(USER, calling(call(arguments=sent)), result())[1]["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == told


def test_a_function_call_of_old_is_a_tool_call_with_its_result() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}}
    told = messages_of(USER, old, {"role": "function", "name": "read", "content": "text"})
    assert told == [USER, calling(call("call_1_0")), result("call_1_0", "text")]


def test_calls_and_results_without_ids_belong_together_by_name_and_order() -> None:
    calls = (call("", "read"), call("", "write"), call("", "read"))
    results = ({"role": "tool", "name": "write", "content": "w"}, result("", "r1"), result("", "r2"))
    told = messages_of(USER, calling(*calls), *results)
    assert [(m["tool_call_id"], m["content"]) for m in told[2:]] == [
        ("call_1_1", "w"), ("call_1_0", "r1"), ("call_1_2", "r2"),
    ]  # fmt: skip


# Calls and results.


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    told = messages_of(USER, calling(call("1"), call("2")), result("2"), USER)
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "tool", "user"]
    assert told[2] == result("2")
    assert told[3]["tool_call_id"] == "1"
    assert "no result" in told[3]["content"]


def test_a_result_without_a_call_is_told_by_the_user() -> None:
    told = messages_of(USER, result("lost", "text"), result("lost", [text("a"), PIXEL]))
    assert [m["role"] for m in told] == ["user", "user", "user"]
    assert "lost" in told[1]["content"][0]["text"]
    assert told[1]["content"][1] == text("text")
    assert told[2]["content"][1:] == [text("a"), PIXEL]


def test_of_two_results_the_first_is_kept() -> None:
    assert messages_of(USER, calling(call()), result(content="a"), result(content="b")) == [
        USER, calling(call()), result(content="a"),
    ]  # fmt: skip


def test_what_stood_between_calls_and_results_follows_them() -> None:
    hint = {"role": "system", "content": "Hint."}
    told = messages_of(USER, calling(call("1"), call("2")), result("1"), hint, result("2"), USER)
    assert told == [
        USER, calling(call("1"), call("2")), result("1"), result("2"), {"role": "user", "content": "Hint."}, USER,
    ]  # fmt: skip


def test_an_id_that_comes_again_in_a_later_turn_is_another_call() -> None:
    conversation = (USER, calling(call()), result(content="a"), calling(call()), result(content="b"))
    assert messages_of(*conversation) == list(conversation)


def test_calls_of_two_messages_in_a_row_each_get_their_result() -> None:
    told = messages_of(USER, calling(call("1")), calling(call("2")), result("1"), result("2"))
    assert told == [USER, calling(call("1")), result("1"), calling(call("2")), result("2")]


# Images in results.


def test_images_of_results_follow_the_last_one_in_one_message() -> None:
    calls = calling(call("1"), call("2", "shot"), call("3"))
    told = messages_of(USER, calls, result("1", [text("a"), PIXEL]), result("2", [PIXEL, PIXEL]), result("3"), USER)
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "tool", "tool", "user", "user"]
    assert told[2]["content"] == "a"
    assert isinstance(told[3]["content"], str)
    assert told[3]["content"]
    first, one, second, two, three = told[5]["content"]
    assert "read" in first["text"]
    assert "1" in first["text"]
    assert "shot" in second["text"]
    assert one == two == three == PIXEL


def test_parts_of_a_result_that_no_model_reads_are_named() -> None:
    told = messages_of(USER, calling(call()), result(content=[text("a"), {"type": "document", "source": {}}]))
    assert told[2]["content"][0] == text("a")
    assert "document" in told[2]["content"][1]["text"]


def test_a_part_of_a_result_without_its_text_is_an_empty_one() -> None:
    told = messages_of(USER, calling(call()), result(content=[{"type": "text"}, PIXEL]))
    assert told[2]["content"] == ""


def test_a_result_of_nothing_is_an_empty_text() -> None:
    assert messages_of(USER, calling(call()), result(content=None))[2] == result(content="")


# What is fit already.

FIT: list[list[Json]] = [
    [USER],
    [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}, USER],
    [USER, {"role": "assistant", "content": "Yes.", "tool_calls": None, "refusal": None}, USER],
    [USER, calling(call(arguments='{"a": 1}'), content="I read."), result(content=[text("a"), text("b")])],
    [{"role": "user", "content": [text("Look."), PIXEL, {"type": "file", "file": {"file_id": "1"}}]}],
    [{"role": "user", "content": [{"type": "input_audio"}, {"type": "video_url"}]}],
    [],
]


@pytest.mark.parametrize("messages", FIT)
@pytest.mark.parametrize(
    "settings",
    [{}, {"n": 1}, {"tools": [READ], "tool_choice": "required", "parallel_tool_calls": False},
     {"tools": [READ, WRITE], "tool_choice": {"type": "function", "function": {"name": "read"}}}],
)  # fmt: skip
def test_what_is_fit_stays_the_same_object(messages: list[Json], settings: Json) -> None:
    request = ChatRequest(messages, settings, {"read": ToolName("Read")})
    made = prepare(request)
    assert made.request is request
    assert made.tools is request.tools
    assert made.left_out == ()


MESSAGES = st.one_of(
    st.just(USER),
    st.builds(lambda c: {"role": "system", "content": c}, st.sampled_from(["", "x"])),
    st.builds(lambda c: {"role": "assistant", "content": c}, st.sampled_from(["", None, "x", [], [text("x")]])),
    st.builds(
        lambda ids, c: calling(*(call(id) for id in ids), content=c),
        st.lists(st.sampled_from("abc"), unique=True, max_size=3),
        st.sampled_from(["", None, "x"]),
    ),
    st.builds(result, st.sampled_from("abcd"), st.sampled_from(["x", None, [text("x"), PIXEL]])),
)


@given(st.lists(MESSAGES, max_size=12))
def test_each_call_has_one_result_right_behind_it(messages: list[Json]) -> None:
    told = messages_of(USER, *messages)
    waiting: list[str] = []
    for message in told:
        if message["role"] == "tool":
            assert isinstance(message["content"], str)
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == []
        if message["role"] == "assistant":
            waiting = [one["id"] for one in message.get("tool_calls") or ()]
            assert waiting or message["content"]
    assert waiting == []


# What one member takes.


def model(max_output: int | None) -> Model:
    return Model("m", "m", "general", True, True, False, True, True, 100_000, max_output, None)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_budget_above_the_models_is_cut_to_it(name: str) -> None:
    request = ChatRequest([USER], {name: 64_000, "temperature": 1})
    assert fit(request, model(8192)).settings == {name: 8192, "temperature": 1}
    assert request.settings[name] == 64_000
    assert fit(request, model(8192)).messages is request.messages


@pytest.mark.parametrize("settings", [{}, {"max_tokens": 8192}, {"max_tokens": 1, "max_completion_tokens": None}])
def test_a_budget_that_fits_changes_nothing(settings: Json) -> None:
    request = ChatRequest([USER], settings)
    assert fit(request, model(8192)) is request


def test_a_budget_is_not_cut_where_the_models_is_not_known() -> None:
    request = ChatRequest([USER], {"max_tokens": 10**9})
    assert fit(request, model(None)) is request

"""What a request says to bench-proxy itself, and what it is told when that cannot be."""

from typing import Any

import pytest

from bench_proxy.config import REPLY_MODES, Config
from bench_proxy.errors import BenchError, InvalidRequest, UnknownModel
from bench_proxy.formats.brief import READ, Options, collection_of, is_bench_model, is_complete, read_brief
from bench_proxy.formats.request import Brief

Json = dict[str, Any]

CONFIG = Config.model_validate(
    {
        "collections": {
            "core": {"members": ["gpt"], "description": "Three characters.", "tags": ["code", "review"]},
            "agents": {"members": ["gpt"], "reply": "route"},
            "hidden": {"members": ["gpt"], "description": "For the few."},
        },
        "shapes": {"legal": ["general"]},
    }
)


def brief(
    model: str = "bench/core", headers: Json | None = None, names: tuple[str, ...] = ("core", "agents"), **body: Any
) -> Brief:
    return read_brief({"model": model, **body}, headers or {}, CONFIG, names, stream=False, include_usage=False)


def refused(model: str = "bench/core", headers: Json | None = None, **body: Any) -> BenchError:
    with pytest.raises(InvalidRequest) as error:
        brief(model, headers, **body)
    return error.value


# Names


@pytest.mark.parametrize("model", ["bench", "bench/", "BENCH/", "bench:", "bench:route"])
def test_a_name_without_a_collection_is_refused_with_what_can_be_called(model: str) -> None:
    error = refused(model)
    assert (error.status, error.param) == (400, "model")
    for told in (f'"{model}"', "bench/core: Three characters. [code, review]", "bench/agents"):
        assert told in error.message


@pytest.mark.parametrize("model", ["bench/corr", "bench/Core", "bench/corr:route", "bench/core/x", "bench/ core"])
def test_an_unknown_collection_is_not_found_with_what_can_be_called(model: str) -> None:
    error = refused(model)
    assert isinstance(error, UnknownModel)
    assert (error.status, error.param, error.code) == (404, "model", "model_not_found")
    assert "bench/core: Three characters. [code, review]" in error.message


def test_the_nearest_collection_is_named() -> None:
    assert 'did you mean "core"?' in refused("bench/corr").message


def test_a_collection_that_this_key_may_not_call_is_as_unknown_as_any_other() -> None:
    hidden, unknown = refused("bench/hidden"), refused("bench/nobody")
    assert isinstance(hidden, UnknownModel)
    assert hidden.message.replace("hidden", "nobody") == unknown.message
    assert "few" not in hidden.message


def test_of_very_many_collections_an_error_names_the_first_and_says_where_the_others_are() -> None:
    many = [f"core-{n}" for n in range(1, 1001)]
    config = Config.model_validate({"collections": {name: {"members": ["gpt"]} for name in many}})
    with pytest.raises(UnknownModel) as error:
        read_brief({"model": "bench/core-"}, {}, config, many, stream=False, include_usage=False)
    named = error.value.message.partition("may call: ")[2].split("; ")
    assert named == [*(f"bench/{name}" for name in many[:100]), "and 900 more, which GET /bench/collections lists"]


def test_a_key_that_may_call_no_collection_is_told_so() -> None:
    with pytest.raises(UnknownModel, match="may call no collection"):
        brief(names=())


@pytest.mark.parametrize("suffix", ["merge", "ALL", " all", "all:route", "latest:all"])
def test_an_unknown_mode_is_refused_with_the_modes_and_what_can_be_called(suffix: str) -> None:
    error = refused(f"bench/core:{suffix}")
    assert (error.status, error.param) == (400, "model")
    for told in (f'":{suffix}"', ":all, :merged, :choices, :route.", "bench/core"):
        assert told in error.message


def test_the_nearest_mode_is_named() -> None:
    assert 'did you mean "merged"?' in refused("bench/core:merge").message


@pytest.mark.parametrize("mode", REPLY_MODES)
def test_a_suffix_is_the_reply_mode(mode: str) -> None:
    assert brief(f"bench/core:{mode}").reply == mode


@pytest.mark.parametrize("suffix", ["", ":", ":latest"])
def test_without_a_mode_in_the_name_the_collections_own_is_meant(suffix: str) -> None:
    assert brief(f"bench/core{suffix}").reply == "all"
    assert brief(f"bench/agents{suffix}").reply == "route"


def test_the_mode_of_the_body_wins_over_the_suffix_and_that_over_the_collections() -> None:
    assert brief("bench/agents:merged", bench={"reply": "choices"}).reply == "choices"
    assert brief("bench/agents:merged").reply == "merged"


@pytest.mark.parametrize("model", ["bench/core", "BENCH/core", "Bench/core:all"])
def test_the_prefix_has_no_case_and_the_name_is_kept_as_asked(model: str) -> None:
    asked = brief(model)
    assert (asked.collection, asked.model) == ("core", model)


@pytest.mark.parametrize("model", ["bench/core", "Bench/core:", "bench/core:latest", "bench/agents:merged"])
def test_a_name_is_complete_when_its_collection_and_mode_exist(model: str) -> None:
    assert is_complete(model, CONFIG)


@pytest.mark.parametrize(
    "model", ["bench", "bench/", "bench:core", "bench/corr", "bench/Core", "bench/core:ALL", "bench/core/x"]
)
def test_a_name_whose_collection_or_mode_does_not_exist_is_not_complete(model: str) -> None:
    assert not is_complete(model, CONFIG)


@pytest.mark.parametrize("model", ["bench", "bench/", "bench/core", "BENCH/Core:route", "bench:", "Bench:latest"])
def test_a_bench_name_is_ours(model: str) -> None:
    assert is_bench_model(model)


@pytest.mark.parametrize(
    "model", ["benchmark", "bench-1", "bench_x", "my/bench/core", " bench/core", "", None, 5, ["bench/x"]]
)
def test_any_other_name_is_litellms(model: object) -> None:
    assert not is_bench_model(model)


@pytest.mark.parametrize("model", ["bench/core", "bench/core:route", "Bench/core:latest"])
def test_the_collection_is_what_stands_between_prefix_and_mode(model: str) -> None:
    assert collection_of(model) == "core"


# Options


def test_an_unknown_option_is_refused_by_its_name_with_the_nearest() -> None:
    error = refused(bench={"quorun": 2})
    assert error.status == 400
    assert error.param == "bench.quorun"
    assert 'bench.quorun: unknown key; did you mean "quorum"?' in error.message


def test_an_unknown_option_is_refused_also_when_it_is_null() -> None:
    assert refused(bench={"quorun": None}).param == "bench.quorun"


def test_of_many_unknown_options_the_first_is_named() -> None:
    assert refused(bench={str(n): n for n in range(1000)}).param == "bench.0"


@pytest.mark.parametrize("options", ["review", 5, [], True, ["review"]])
def test_options_that_are_no_object_are_refused(options: object) -> None:
    assert refused(bench=options).param == "bench"


WRONG: list[tuple[Json, str]] = [
    ({"reply": "merge"}, "bench.reply"),
    ({"reply": 1}, "bench.reply"),
    ({"with": "gpt"}, "bench.with"),
    ({"with": [1]}, "bench.with.0"),
    ({"with": ["gpt", ""]}, "bench.with.1"),
    ({"with": ["x" * 257]}, "bench.with.0"),
    ({"with": ["x"] * 65}, "bench.with"),
    ({"shape": 7}, "bench.shape"),
    ({"explorers": -1}, "bench.explorers"),
    ({"explorers": 1.5}, "bench.explorers"),
    ({"explorers": "1"}, "bench.explorers"),
    ({"explorers": True}, "bench.explorers"),
    ({"quorum": "2"}, "bench.quorum"),
    ({"quorum": -1}, "bench.quorum"),
    ({"deadline": 0}, "bench.deadline"),
    ({"deadline": -1}, "bench.deadline"),
    ({"deadline": "30"}, "bench.deadline"),
    ({"deadline": True}, "bench.deadline"),
    ({"deadline": float("nan")}, "bench.deadline"),
    ({"deadline": float("inf")}, "bench.deadline"),
    ({"stream": True}, "bench.stream"),
    ({"stream": "seat"}, "bench.stream"),
    ({"blind": "yes"}, "bench.blind"),
    ({"partial": "maybe"}, "bench.partial"),
    ({"conversation": ""}, "bench.conversation"),
    ({"conversation": "x" * 513}, "bench.conversation"),
    ({"conversation": 5}, "bench.conversation"),
]


@pytest.mark.parametrize(("options", "path"), WRONG)
def test_an_option_of_the_wrong_type_or_value_is_refused_by_its_path(options: Json, path: str) -> None:
    error = refused(bench=options)
    assert (error.status, error.param) == (400, path)
    assert error.message.startswith(f"{path}: ")


def test_what_is_wrong_with_an_option_is_said_in_words() -> None:
    assert refused(bench={"explorers": "1"}).message == "bench.explorers: input should be a valid integer"


@pytest.mark.parametrize(
    "options",
    [
        {"explorers": 0, "quorum": 1, "deadline": 0.001, "conversation": "x"},
        {"deadline": 86_400, "conversation": "x" * 512, "with": [f"{n}" * 256 for n in range(10)]},
        {"with": [str(n) for n in range(64)]},
    ],
)
def test_an_option_may_be_as_small_and_as_large_as_its_limits(options: Json) -> None:
    asked = brief(bench=options)
    assert asked.guests == tuple(options.get("with", ()))
    assert asked.deadline == options.get("deadline")


def test_an_unknown_shape_is_refused_with_the_shapes_that_there_are() -> None:
    error = refused(bench={"shape": "reviews"})
    assert error.param == "bench.shape"
    for told in ('"reviews"', 'did you mean "review"?', "general", "legal"):
        assert told in error.message


def test_all_options_are_read() -> None:
    options = {
        "reply": "all",
        "with": ["a", "b"],
        "shape": "legal",
        "explorers": 0,
        "quorum": 2,
        "deadline": 30,
        "stream": "live",
        "blind": True,
        "partial": "refuse",
        "conversation": "mine",
    }
    asked = read_brief({"model": "bench/core", "bench": options}, {}, CONFIG, ["core"], stream=True, include_usage=True)
    assert asked == Brief(
        model="bench/core",
        collection="core",
        reply="all",
        stream=True,
        include_usage=True,
        guests=("a", "b"),
        shape="legal",
        explorers=0,
        quorum=2,
        deadline=30,
        stream_mode="live",
        blind=True,
        partial="refuse",
        conversation="mine",
    )


@pytest.mark.parametrize(
    "body", [{}, {"bench": {}}, {"bench": None}, {"bench": {"reply": None, "quorum": None}}, {"with": None}]
)
def test_what_is_not_said_is_left_to_the_collection(body: Json) -> None:
    assert brief(**body) == Brief(model="bench/core", collection="core", reply="all")


def test_guests_may_stand_at_the_top_level_and_count_once_each() -> None:
    assert brief(**{"with": ["b", "a", "b"]}).guests == ("b", "a")


def test_guests_of_the_wrong_type_at_the_top_level_are_refused() -> None:
    assert refused(**{"with": "gpt"}).param == "bench.with"


def test_guests_among_the_options_win_over_the_top_level() -> None:
    assert brief(bench={"with": ["a"]}, **{"with": ["b"]}).guests == ("a",)


# Headers


HEADERS = {
    "x-bench-reply": "merged",
    "x-bench-with": "a, b,,a ",
    "x-bench-shape": "legal",
    "x-bench-deadline": "2.5",
    "x-bench-conversation": "mine",
}


def test_the_options_of_headers_are_read() -> None:
    asked = brief(headers=HEADERS)
    assert (asked.reply, asked.guests, asked.shape) == ("merged", ("a", "b"), "legal")
    assert (asked.deadline, asked.conversation) == (2.5, "mine")


def test_every_option_has_a_header() -> None:
    asked = brief(
        headers={
            "X-Bench-Blind": "true",
            "x-bench-explorers": "1",
            "x-bench-quorum": "2",
            "x-bench-stream": "live",
            "x-bench-partial": "refuse",
            "x-benchmark": "nothing of ours",
        }
    )
    assert (asked.blind, asked.explorers, asked.quorum) == (True, 1, 2)
    assert (asked.stream_mode, asked.partial) == ("live", "refuse")
    assert {field.alias or name for name, field in Options.model_fields.items()} == set(READ)


def test_a_reply_s_own_headers_ask_for_nothing() -> None:
    panel = {"x-bench-panel": "p1", "x-bench-collection": "bench/core", "x-bench-seats": "[]"}
    turn = {"x-bench-call": "r1.1", "x-bench-model": "gpt"}
    assert brief(headers=panel | turn) == brief()


def test_a_header_that_is_no_option_is_refused_like_an_unknown_key() -> None:
    error = refused(headers={"x-bench-blnd": "true"})
    assert error.status == 400
    assert 'did you mean "blind"' in error.message


def test_the_body_wins_over_the_headers() -> None:
    options = {"reply": "choices", "with": ["c"], "shape": "code", "deadline": 9, "conversation": "other"}
    asked = brief(headers=HEADERS, bench=options)
    assert (asked.reply, asked.guests, asked.shape) == ("choices", ("c",), "code")
    assert (asked.deadline, asked.conversation) == (9, "other")


def test_who_says_the_conversation_is_remembered() -> None:
    header = {"x-bench-conversation": "of header"}
    assert brief(headers=header).conversation_by == "header"
    assert brief(headers=header, bench={"conversation": None}).conversation_by == "header"
    assert brief(headers=header, bench={"conversation": "of body"}).conversation_by == "bench.conversation"
    assert brief(bench={"conversation": "of body"}).conversation_by == "bench.conversation"


def test_the_session_that_a_client_names_by_itself_is_read() -> None:
    assert brief(headers={"x-session-id": "abc-1"}).session == "abc-1"
    assert brief(prompt_cache_key="abc-2").session == "abc-2"
    assert brief().session is None


def test_empty_headers_say_nothing() -> None:
    empty = {**dict.fromkeys(HEADERS, ""), "x-bench-with": " , "}
    assert brief(headers=empty) == Brief(model="bench/core", collection="core", reply="all")


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("x-bench-reply", "merge", "bench.reply"),
        ("x-bench-shape", "reviews", "bench.shape"),
        ("x-bench-deadline", "soon", "bench.deadline"),
        ("x-bench-deadline", "0", "bench.deadline"),
        ("x-bench-deadline", "nan", "bench.deadline"),
        ("x-bench-conversation", "x" * 513, "bench.conversation"),
        ("x-bench-quorum", "0", "bench.quorum"),
        ("x-bench-quorum", "two", "bench.quorum"),
        ("x-bench-explorers", "-1", "bench.explorers"),
        ("x-bench-blind", "perhaps", "bench.blind"),
        ("x-bench-stream", "fast", "bench.stream"),
        ("x-bench-partial", "maybe", "bench.partial"),
    ],
)
def test_a_header_that_cannot_be_honoured_is_refused_as_the_option_is(name: str, value: str, path: str) -> None:
    assert refused(headers={name: value}).param == path

"""What is not a request that can be honoured: a clear error in OpenAI's shape, and nothing reaches a model."""

import json
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.asking import Raw, ask, connect, panel, question, refusal, request_bytes, send, statuses
from tests.proxy import MASTER_KEY, Proxy
from tests.upstream import Upstream

MB = 1024 * 1024
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
ASKED = json.dumps(question("bench/pair")).encode()
JSON = {"Content-Type": "application/json"}
PNG = "data:image/png;base64,iVBORw0KGgo="


def refused(reply: Raw, status: int = 400) -> str:
    """The message of a refusal in OpenAI's shape."""
    assert reply.status == status, reply.body[:500]
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    return error["message"]


def echoed(caller: httpx.Client, **more: Any) -> dict[str, Any]:
    """The body that reached the model."""
    body: dict[str, Any] = json.loads(panel(caller, "bench/echoes", **more)["bench"]["seats"][0]["answer"])
    return body


# Bodies that are no request at all.


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "bench/pair", oops',
        b'{"model": "bench/pair", "messages": [], }',
        b'{"model": "bench/pair", "temperature": NaN}',
        b"{'model': 'x', \"model\": \"bench/pair\"}",
        ASKED[:-2],
        ASKED[: len(ASKED) // 2],
        ASKED + b"}",
        ASKED + ASKED,
        b'{"model": "bench/pair", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
        b'{"model": "bench/pair", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "bench/pair", "messages": [{"role": "user", "content": "raw\nline"}]}',
    ],
    ids=[
        "garbage", "trailing comma", "NaN", "Python's quotes", "cut at the end", "cut in the middle",
        "a brace too many", "two documents", "bytes that are no UTF-8", "half a surrogate pair", "a raw line break",
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(proxy: Proxy, models: Upstream, body: bytes) -> None:
    assert "not JSON" in refused(send(proxy.url, request_bytes(body)))
    assert models.calls() == []


@pytest.mark.parametrize("body", [b'["bench/pair"]', b"5", b"null", b'"bench/pair"', b"true", b""])
def test_a_body_that_names_no_model_is_litellms_as_before(proxy: Proxy, bare: Proxy, body: bytes) -> None:
    ours, theirs = (send(p.url, request_bytes(body)) for p in (proxy, bare))
    assert (ours.status, ours.body) == (theirs.status, theirs.body)


@pytest.mark.parametrize("levels", [101, 1_000, 100_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
@pytest.mark.parametrize("first", [True, False], ids=["model first", "model last"])
def test_deep_nesting_is_refused(proxy: Proxy, models: Upstream, levels: int, opening: bytes, first: bool) -> None:
    closing_bracket = b"]" if opening == b"[" else b"}"
    deep = b'"deep": ' + opening * levels + b"1" + closing_bracket * levels
    parts = [ASKED[1:-1], deep] if first else [deep, ASKED[1:-1]]
    refused(send(proxy.url, request_bytes(b"{" + b", ".join(parts) + b"}")))
    assert models.calls() == []


def test_a_hundred_levels_are_allowed(http: httpx.Client, models: Upstream) -> None:
    deep: Any = 1
    for _ in range(99):
        deep = [deep]
    assert echoed(http, vendor_extra=deep)["vendor_extra"] == deep


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", None])
def test_another_content_type_is_refused_with_415(proxy: Proxy, models: Upstream, content_type: str | None) -> None:
    message = refused(send(proxy.url, request_bytes(ASKED, content_type=content_type)), 415)
    assert "application/json" in message
    assert models.calls() == []


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "application/x+json"])
def test_ways_to_say_json_are_taken(proxy: Proxy, models: Upstream, content_type: str) -> None:
    assert send(proxy.url, request_bytes(ASKED, content_type=content_type)).status == 200


# Bodies that are too large, which are read no further than the limit.


@pytest.mark.parametrize("chunk", [0, 64 * 1024], ids=["with its length", "chunked"])
# A connection that is to be closed is closed with what is still unread, which TCP turns into a reset: 21 MB are read.
@pytest.mark.parametrize(("size", "headers"), [(21 * MB, ()), (60 * MB, ()), (21 * MB, ("Connection: close",))])
def test_a_body_over_the_limit_is_413_also_for_a_client_that_sends_all_before_it_reads(
    proxy: Proxy, models: Upstream, chunk: int, size: int, headers: tuple[str, ...]
) -> None:
    body = json.dumps(question("bench/pair", pad="x" * size)).encode()
    message = refused(send(proxy.url, request_bytes(body, *headers, chunk=chunk)), 413)
    assert "20 MB" in message
    assert models.calls() == []


def test_a_body_over_the_limit_that_names_its_model_last_is_refused(proxy: Proxy, models: Upstream) -> None:
    body = json.dumps({"pad": "x" * 25 * MB, **question("bench/pair")}).encode()
    reply = send(proxy.url, request_bytes(body))
    # What is for bench is not known where reading stops, so that it may be LiteLLM that does not know the model.
    assert reply.status in {400, 413}
    assert "error" in reply.json()
    assert models.calls() == []


def test_the_connection_goes_on_after_a_body_over_the_limit(proxy: Proxy, models: Upstream) -> None:
    body = json.dumps(question("bench/pair", pad="x" * 21 * MB)).encode()
    with proxy.client() as caller:
        refusal(caller.post("/v1/chat/completions", content=body, headers=JSON), 413)
        assert panel(caller, "bench/pair")["model"] == "bench/pair"


def test_a_body_below_the_limit_is_taken(http: httpx.Client, models: Upstream) -> None:
    text = "x" * 5 * MB
    panel(http, "bench/solo", messages=[{"role": "user", "content": text}])
    (call,) = models.calls()
    assert call.body["messages"][0]["content"] == text


# Requests that end before they are whole.


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_half_a_request_and_a_hang_up_leave_the_server_up(proxy: Proxy, models: Upstream, part: float) -> None:
    request = request_bytes(ASKED)
    with closing(connect(proxy.url)) as connection:
        connection.sendall(request[: int(len(request) * part)])
    with proxy.client() as caller:
        panel(caller, "bench/pair")
    assert [call.model for call in models.calls()].count("ok-a") == 1


def test_a_request_in_many_packets_is_one_request(proxy: Proxy, models: Upstream) -> None:
    request = request_bytes(ASKED)
    with closing(connect(proxy.url)) as connection:
        for start in range(0, len(request), 7):
            connection.sendall(request[start : start + 7])
        assert connection.recv(12) == b"HTTP/1.1 200"


# Fields of the wrong type.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", None),
        ("messages", []),
        ("messages", "Who are you?"),
        ("messages", [None]),
        ("messages", ["Who are you?"]),
        ("messages", [{"content": "no role"}]),
        ("messages", [{"role": 5, "content": "x"}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [{"role": "user", "content": {"type": "text"}}]),
        ("messages", [{"role": "user", "content": ["x"]}]),
        ("messages", [{"role": "user", "content": [{"text": "no type"}]}]),
        ("stream", "yes"),
        ("stream", 1),
        ("stream_options", "usage"),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", []),
        ("presence_penalty", "0"),
        ("frequency_penalty", {}),
        ("max_tokens", "9"),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_completion_tokens", -1),
        ("n", "1"),
        ("n", 0),
        ("seed", "x"),
        ("stop", 5),
        ("stop", [5]),
        ("logit_bias", [1]),
        ("logprobs", "yes"),
        ("top_logprobs", "2"),
        ("response_format", "json"),
        ("reasoning_effort", 3),
        ("tools", {}),
        ("tools", ["read"]),
        ("functions", "read"),
        ("modalities", "text"),
        ("audio", "wav"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(http: httpx.Client, models: Upstream, field: str, value: Any) -> None:
    error = refusal(ask(http, "bench/pair", **{field: value}), 400)
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").split(".")[0] == field
    assert field in error["message"]
    assert models.calls() == []


def test_messages_are_required(http: httpx.Client) -> None:
    error = refusal(http.post("/v1/chat/completions", json={"model": "bench/pair"}), 400)
    assert error["param"] == "messages"
    assert "required" in error["message"]


# What a panel does not do.


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [TOOL]},
        {"functions": [TOOL["function"]]},
        {"messages": [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "1", "content": "x"}]},
        {"messages": [{"role": "function", "name": "read", "content": "x"}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}]},
        {"messages": [{"role": "assistant", "content": None, "function_call": {"name": "read"}}]},
    ],
    ids=["tools", "functions", "tool result", "function result", "tool call", "function call"],
)
def test_tools_are_refused_and_route_is_named(http: httpx.Client, models: Upstream, more: dict[str, Any]) -> None:
    assert ":route" in refusal(ask(http, "bench/pair", **more), 400)["message"]
    assert models.calls() == []


@pytest.mark.parametrize("more", [{"tools": []}, {"functions": []}, {"tools": [], "tool_choice": "auto"}])
def test_an_empty_list_of_tools_is_no_tools(http: httpx.Client, models: Upstream, more: dict[str, Any]) -> None:
    assert not {"tools", "functions", "tool_choice"} & set(echoed(http, **more))


def test_several_choices_are_refused(http: httpx.Client, models: Upstream) -> None:
    error = refusal(ask(http, "bench/pair", n=2), 400)
    assert error["param"] == "n"
    assert models.calls() == []
    panel(http, "bench/pair", n=1)


@pytest.mark.parametrize(
    "more",
    [{"modalities": ["text", "audio"]}, {"audio": {"voice": "alloy", "format": "wav"}}],
    ids=["modality", "audio"],
)
def test_spoken_answers_are_refused(http: httpx.Client, models: Upstream, more: dict[str, Any]) -> None:
    assert "audio" in refusal(ask(http, "bench/pair", **more), 400)["message"]
    assert models.calls() == []


@pytest.mark.parametrize("kind", ["input_audio", "file", "video_url", "image_file", "input_image"])
def test_parts_that_are_neither_text_nor_image_are_refused_by_name(
    http: httpx.Client, models: Upstream, kind: str
) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": kind, kind: {"file_id": "f"}}]}]
    assert kind in refusal(ask(http, "bench/pair", messages=messages), 400)["message"]
    assert models.calls() == []


@pytest.mark.parametrize(
    "url",
    ["file-abc123", "ftp://example.com/a.png", "file:///etc/passwd", "data:text/plain;base64,aGk=", "javascript:1", "",
     "data:image/png,raw", 5, None],
)  # fmt: skip
def test_an_image_that_is_neither_http_nor_inline_is_refused(http: httpx.Client, models: Upstream, url: Any) -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    assert "image" in refusal(ask(http, "bench/pair", messages=messages), 400)["message"]
    assert models.calls() == []


def test_an_image_that_no_seat_can_see_is_refused(http: httpx.Client, models: Upstream) -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]}]
    message = refusal(ask(http, "bench/pair", messages=messages), 400)["message"]
    assert "ok-a" in message
    assert "ok-b" in message
    assert models.calls() == []


# Names.


def test_an_unknown_collection_is_404_with_what_there_is(http: httpx.Client, models: Upstream) -> None:
    error = refusal(ask(http, "bench/pear"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert 'did you mean "pair"?' in error["message"]
    assert "bench/pair: Two models. [small]" in error["message"]
    assert "bench/solo: One model." in error["message"]
    assert models.calls() == []


@pytest.mark.parametrize("name", ["nothing-like-it", "Pair", "pair/x", "../pair", "", "x" * 100_000, "päir", "pair\0"])
def test_a_name_that_is_no_collection_is_refused(http: httpx.Client, models: Upstream, name: str) -> None:
    error = refusal(ask(http, f"bench/{name}"), 404 if name else 400)
    assert "bench/pair" in error["message"]
    assert models.calls() == []


@pytest.mark.parametrize("model", ["bench", "bench/", "bench:pair", "BENCH", "bench/pair:odd", "bench/pair:All"])
def test_a_name_without_a_collection_or_with_an_unknown_mode_is_400(http: httpx.Client, model: str) -> None:
    assert "bench/pair: Two models. [small]" in refusal(ask(http, model), 400)["message"]


def test_the_mode_of_the_body_wins_over_the_suffix_and_that_over_the_collection(http: httpx.Client) -> None:
    assert panel(http, "bench/merged:all")["bench"]["reply"] == "all"
    assert panel(http, "bench/pair:route", bench={"reply": "all"})["bench"]["reply"] == "all"


@pytest.mark.parametrize("model", ["bench/pair:latest", "bench/pair:all", "BENCH/pair", "Bench/pair:latest"])
def test_latest_is_no_mode_and_the_prefix_has_no_case(http: httpx.Client, model: str) -> None:
    reply = panel(http, model)
    assert reply["model"] == model
    assert reply["bench"]["collection"] == "bench/pair"


@pytest.mark.parametrize(
    ("body", "ours"),
    [
        (b'{"model": "ok-a", "model": "bench/pair", "messages": [{"role": "user", "content": "x"}]}', True),
        (b'{"model": "bench/pair", "model": "ok-a", "messages": [{"role": "user", "content": "x"}]}', False),
    ],
)
def test_of_a_key_that_is_there_twice_the_last_counts(proxy: Proxy, models: Upstream, body: bytes, ours: bool) -> None:
    reply = send(proxy.url, request_bytes(body))
    assert reply.status == 200
    assert ("bench" in reply.json()) is ours


def test_an_escaped_slash_is_a_slash(proxy: Proxy, models: Upstream) -> None:
    reply = send(proxy.url, request_bytes(ASKED.replace(b"bench/pair", rb"bench\/pair")))
    assert reply.json()["bench"]["collection"] == "bench/pair"


# The `bench` object, `with`, and their headers.


@pytest.mark.parametrize(
    ("bench", "param"),
    [
        ("all", "bench"),
        ([], "bench"),
        ({"replies": "all"}, "bench.replies"),
        ({"reply": "everything"}, "bench.reply"),
        ({"reply": 5}, "bench.reply"),
        ({"with": "ok-c"}, "bench.with"),
        ({"with": [5]}, "bench.with.0"),
        ({"with": [""]}, "bench.with.0"),
        ({"with": ["nobody"]}, "bench.with"),
        ({"with": ["bench/pair"]}, "bench.with"),
        ({"shape": "nothing"}, "bench.shape"),
        ({"shape": 5}, "bench.shape"),
        ({"explorers": -1}, "bench.explorers"),
        ({"explorers": "0"}, "bench.explorers"),
        ({"quorum": 0}, "bench.quorum"),
        ({"quorum": True}, "bench.quorum"),
        ({"deadline": 0}, "bench.deadline"),
        ({"deadline": -1}, "bench.deadline"),
        ({"deadline": "30"}, "bench.deadline"),
        ({"deadline": True}, "bench.deadline"),
        ({"deadline": 1e9}, "bench.deadline"),
        ({"stream": "words"}, "bench.stream"),
        ({"blind": "yes"}, "bench.blind"),
        ({"partial": "maybe"}, "bench.partial"),
        ({"conversation": ""}, "bench.conversation"),
        ({"conversation": 5}, "bench.conversation"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_named(
    http: httpx.Client, models: Upstream, bench: Any, param: str
) -> None:
    error = refusal(ask(http, "bench/pair", bench=bench), 400)
    assert error["param"] == param
    assert param in error["message"] or param.removeprefix("bench.") in error["message"]
    assert models.calls() == []


def test_an_unknown_option_gets_the_nearest_name_and_all_names(http: httpx.Client) -> None:
    message = refusal(ask(http, "bench/pair", bench={"dedline": 3}), 400)["message"]
    assert 'did you mean "deadline"?' in message
    for name in ("reply", "with", "shape", "explorers", "quorum", "deadline", "stream", "blind", "partial"):
        assert name in message


@pytest.mark.parametrize("value", ["ok-c", [5], {"ok-c": 1}, ["nobody"], [None]])
def test_with_at_the_top_level_is_checked_too(http: httpx.Client, models: Upstream, value: Any) -> None:
    error = refusal(ask(http, "bench/pair", **{"with": value}), 400)
    assert error["param"].startswith("bench.with")
    assert models.calls() == []


@pytest.mark.parametrize(
    ("header", "param"),
    [
        ("X-Bench-Reply: \xff\xfe", "bench.reply"),
        ("X-Bench-Reply: live", "bench.reply"),
        ("X-Bench-Shape: \xe9\x80", "bench.shape"),
        ("X-Bench-With: \xff, ok-c", "bench.with"),
        ("X-Bench-With: ok-c, bench/pair", "bench.with"),
        ("X-Bench-Deadline: soon", "bench.deadline"),
        ("X-Bench-Deadline: nan", "bench.deadline"),
        ("X-Bench-Deadline: 1e400", "bench.deadline"),
        ("X-Bench-Conversation: " + "x" * 600, "bench.conversation"),
    ],
)
def test_a_header_that_cannot_be_honoured_is_named(proxy: Proxy, models: Upstream, header: str, param: str) -> None:
    reply = send(proxy.url, request_bytes(ASKED, header))
    refused(reply)
    assert reply.json()["error"]["param"] == param
    assert models.calls() == []


def test_headers_say_what_the_body_does_not(proxy: Proxy, models: Upstream) -> None:
    headers = ("X-Bench-Shape: prose", "X-Bench-With: ok-c , ok-d,", "x-bench-reply: all", "X-Bench-Deadline: 9.5")
    data = send(proxy.url, request_bytes(ASKED, *headers)).json()["bench"]
    assert (data["shape"], data["shape_by"]) == ("prose", "request")
    assert [seat["alias"] for seat in data["seats"]] == ["ok-a", "ok-b", "ok-c", "ok-d"]


def test_the_body_wins_over_the_headers(proxy: Proxy, models: Upstream) -> None:
    body = json.dumps(question("bench/pair", bench={"shape": "review", "with": ["ok-c"], "reply": "all"})).encode()
    headers = ("X-Bench-Shape: prose", "X-Bench-With: nobody", "X-Bench-Reply: nothing")
    data = send(proxy.url, request_bytes(body, *headers)).json()["bench"]
    assert data["shape"] == "review"
    assert [seat["alias"] for seat in data["seats"]] == ["ok-a", "ok-b", "ok-c"]


# What reaches a model.


def test_nothing_that_is_meant_for_bench_reaches_a_model(proxy: Proxy, models: Upstream) -> None:
    body = question("bench/echoes", bench={"shape": "prose", "explorers": 0}, **{"with": ["echo-b"]}, stream=False)
    headers = ("X-Bench-Shape: prose", "X-Bench-Conversation: one", "X-Secret: mine", "Cookie: mine")
    assert send(proxy.url, request_bytes(json.dumps(body).encode(), *headers)).status == 200
    calls = models.calls()
    assert sorted(call.model for call in calls) == ["echo-a", "echo-b"]
    for call in calls:
        assert set(call.body) == {"model", "messages"}
        seen = json.dumps(call.headers)
        assert "bench" not in seen.replace(proxy.url, "")
        assert "mine" not in seen
        assert MASTER_KEY not in seen


def test_unknown_fields_are_the_models_business(http: httpx.Client, models: Upstream) -> None:
    extra = {
        "vendor_extra": {"deep": [1, None, "ü"]},
        "top_k": 40,
        "min_p": 0.1,
        "chat_template_kwargs": {"think": True},
    }
    body = echoed(http, **extra)
    assert {name: body.get(name) for name in extra} == extra


def test_control_characters_and_separators_reach_a_model_as_sent(http: httpx.Client, models: Upstream) -> None:
    text = "nul\0 bell\x07 \u2028\u2029\u0085 \ufeff \U0001f469\u200d\U0001f467 e\u0301 \ufffd"
    assert echoed(http, messages=[{"role": "user", "content": text}])["messages"][0]["content"] == text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mock_response", "not the model's"),
        ("mock_delay", 0.1),
        ("mock_timeout", True),
        ("mock_tool_calls", [{"id": "x"}]),
        ("mock_testing_fallbacks", True),
        ("fallbacks", ["ok-c"]),
        ("context_window_fallbacks", [{"echo-a": ["ok-c"]}]),
        ("content_policy_fallbacks", [{"echo-a": ["ok-c"]}]),
        ("disable_fallbacks", False),
        ("num_retries", 5),
        ("max_retries", 5),
        ("retry_policy", {"InternalServerErrorRetries": 3}),
        ("model_group_retry_policy", {"echo-a": {"InternalServerErrorRetries": 3}}),
        ("timeout", 0.000_001),
        ("request_timeout", 0.000_001),
        ("stream_timeout", 0.000_001),
        ("api_key", "sk-mine"),
        ("organization", "mine"),
        ("extra_headers", {"X-Mine": "mine"}),
        ("headers", {"X-Mine": "mine"}),
        ("extra_body", {"model": "ok-c", "messages": [{"role": "user", "content": "mine"}], "mine": True}),
        ("custom_llm_provider", "anthropic"),
        ("metadata", {"mine": "mine"}),
        ("litellm_metadata", {"mine": "mine"}),
        ("caching", True),
        ("cache", {"no-store": True}),
        ("drop_params", False),
        ("additional_drop_params", ["messages"]),
        ("additional_drop_params", 5),
        ("allowed_openai_params", 5),
        ("guardrails", ["mine"]),
        ("specific_deployment", True),
        ("tags", ["mine"]),
        ("priority", 1),
        ("models", ["mine"]),
        ("route", "mine"),
        ("silent_model", "ok-c"),
        ("prompt_id", "mine"),
        ("litellm_call_id", "mine"),
        ("proxy_server_request", {"url": "mine"}),
        ("_target_order", 1),
        ("store", True),
    ],
)
def test_a_field_that_steers_litellm_neither_steers_nor_reaches_a_model(
    http: httpx.Client, models: Upstream, field: str, value: Any
) -> None:
    data = panel(http, "bench/echoes", **{field: value})["bench"]
    assert statuses(data) == {"echo-a": "ok", "echo-b": "ok"}
    calls = models.calls()
    assert sorted(call.model for call in calls) == ["echo-a", "echo-b"]
    for call in calls:
        assert call.body == question(call.model)
        assert "mine" not in json.dumps(call.headers)


@pytest.mark.parametrize("field", ["api_base", "base_url", "user_config", "model_list", "vertex_credentials"])
def test_a_field_that_litellm_refuses_is_named_and_is_no_fault_of_the_key(
    http: httpx.Client, models: Upstream, field: str
) -> None:
    error = refusal(ask(http, "bench/echoes", **{field: models.url}), 400)
    assert field in error["message"]
    assert error["type"] == "invalid_request_error"
    assert models.calls() == []


@pytest.mark.parametrize("field", ["retry_policy", "model_group_retry_policy"])
def test_a_callers_retry_policy_makes_no_second_attempt(http: httpx.Client, models: Upstream, field: str) -> None:
    policy: dict[str, Any] = {"InternalServerErrorRetries": 3}
    ask(http, "bench/broken", **{field: policy if field == "retry_policy" else {"fail500-a": policy}})
    assert sorted(call.model for call in models.calls()) == ["fail500-a", "html-a"]


@pytest.mark.parametrize(
    "more",
    [
        {"bench": {"k" * 100_000: 1}},
        {"bench": {"shape": "k" * 100_000}},
        {"messages": [{"role": "user", "content": [{"type": "k" * 100_000}]}]},
        {"model": "bench/pair:" + "k" * 100_000},
        {"model": "bench:" + "k" * 100_000},
        {"model": "bench/" + "k" * 100_000},
    ],
    ids=["option", "shape", "part", "mode", "no collection", "collection"],
)
def test_an_error_does_not_repeat_all_of_what_was_sent(http: httpx.Client, more: dict[str, Any]) -> None:
    response = http.post("/v1/chat/completions", json=question("bench/pair") | more)
    refusal(response, 404 if more.get("model", "").startswith("bench/k") else 400)
    assert len(response.content) < 10_000


def test_a_body_of_very_many_fields_is_refused(http: httpx.Client, models: Upstream) -> None:
    assert "fields" in refusal(ask(http, "bench/pair", **{f"k{n}": n for n in range(1001)}), 400)["message"]
    assert "fields" in refusal(http.post("/bench/verdict", json={f"k{n}": n for n in range(101)}), 400)["message"]
    assert models.calls() == []


def test_a_field_of_a_verdict_that_is_unknown_is_not_repeated_whole(http: httpx.Client) -> None:
    response = http.post("/bench/verdict", json={"call": "x", "useful": True, "k" * 100_000: 1})
    refusal(response, 400)
    assert len(response.content) < 1_000

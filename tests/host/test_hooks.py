"""LiteLLM's rules count a bench request once: its guardrails, callbacks and limits, in every format and mode."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench_proxy.bench import Caller
from bench_proxy.errors import BenchError, Denied, InvalidRequest
from bench_proxy.formats.base import Spoken, Usage
from bench_proxy.formats.request import ChatRequest
from tests.asking import CHAT, Json, connect, eventually, question, refusal, request_bytes
from tests.proxy import EXTENSION, Proxy
from tests.upstream import Upstream

GUARDS = '''
"""Guardrails that look for a word, and a callback that writes down what it is called for."""
import asyncio
import json
import os

from fastapi import HTTPException
from litellm.exceptions import ModifyResponseException
from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices


def asked(data):
    return json.dumps(data["messages"])


class Before(CustomGuardrail):
    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        if "forbidden" in asked(data):
            raise HTTPException(status_code=403, detail={"error": "that word is forbidden"})
        if "speak" in asked(data):
            raise ModifyResponseException("I answer instead.", data["model"], data)
        if "say no" in asked(data):
            return "a plain no"
        if "elsewhere" in asked(data):
            data["model"] = "ok-c"
        if "break off before" in asked(data):
            raise asyncio.CancelledError
        if "wordless" in asked(data):
            raise ValueError
        for word, left in (("nothing left", None), ("empty left", []), ("rubbish left", ["x"])):
            if word in asked(data):
                return {**data, "messages": left}
        for message in data["messages"]:
            if isinstance(message["content"], str):
                message["content"] = message["content"].replace("secret", "*****")
            else:
                for part in message["content"]:
                    part["text"] = part["text"].replace("secret", "*****")
        return data


class Beside(CustomGuardrail):
    async def async_moderation_hook(self, data, user_api_key_dict, call_type):
        if "break off besides" in asked(data):
            raise asyncio.CancelledError
        if "beside" in asked(data) and "besides" not in asked(data):
            await asyncio.sleep(0.3)
            raise HTTPException(status_code=400, detail="refused beside the call")


class After(CustomGuardrail):
    async def async_post_call_success_hook(self, data, user_api_key_dict, response):
        note("after", data["model"])
        if "break off after" in asked(data):
            raise asyncio.CancelledError
        if "in parts" in asked(data):
            response.choices[0].message.content = [{"type": "text", "text": "x"}]
            return response
        for choice in response.choices:
            text = choice.message.content or ""
            if "unsafe" in text:
                raise HTTPException(status_code=400, detail="the answer is unsafe")
            choice.message.content = text.replace("I am", "We are")
        return response


class Iterator(CustomGuardrail):
    async def async_post_call_streaming_iterator_hook(self, user_api_key_dict, response, request_data):
        note("iterator", request_data["model"])
        async for chunk in response:
            for choice in chunk.choices:
                if "unsafe" in (choice.delta.content or ""):
                    raise HTTPException(status_code=400, detail="the stream is unsafe")
                if choice.delta.content:
                    choice.delta.content = choice.delta.content.replace("I am", "We are")
            if "rubbish pieces" in asked(request_data):
                chunk = "x"
            yield chunk


class Pieces(CustomGuardrail):
    async def async_post_call_streaming_hook(self, user_api_key_dict, response):
        note("pieces", response)
        if "in a chunk" in response:
            choice = StreamingChoices(index=0, delta=Delta(content="A chunk of mine."))
            return ModelResponseStream(choices=[choice])
        return response.replace("I am", "They are")


class Masking(CustomGuardrail):
    async def async_post_call_success_hook(self, data, user_api_key_dict, response):
        for choice in response.choices:
            choice.message.reasoning_content = "(masked)"


class MaskingStreams(CustomGuardrail):
    async def async_post_call_streaming_iterator_hook(self, user_api_key_dict, response, request_data):
        try:
            async for chunk in response:
                for choice in chunk.choices:
                    if getattr(choice.delta, "reasoning_content", None):
                        choice.delta.reasoning_content = "(masked)"
                yield chunk
        finally:
            note("closed", request_data["model"])


class Native(CustomGuardrail):
    use_native_lifecycle_hooks = True

    async def apply_guardrail(self, inputs, request_data, input_type, logging_obj=None):
        raise HTTPException(status_code=400, detail="not by this way")

    async def async_post_call_streaming_iterator_hook(self, user_api_key_dict, response, request_data):
        raise HTTPException(status_code=400, detail="the stream was read")
        yield


class Both(After):
    async def async_post_call_streaming_iterator_hook(self, user_api_key_dict, response, request_data):
        note("twice", request_data["model"])
        async for chunk in response:
            yield chunk


def note(kind, model):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps([kind, model]) + "\\n")


class Counter(CustomLogger):
    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        note("before", data["model"])

    async def async_post_call_failure_hook(
        self, request_data, original_exception, user_api_key_dict, traceback_str=None
    ):
        note("failed", request_data["model"])


counter = Counter()
'''
KEYS = '''
"""Keys whose limits stand in their names: sk-<limit>-<number>-<name>."""
from litellm.proxy._types import UserAPIKeyAuth


async def check(request, api_key: str) -> UserAPIKeyAuth:
    if not api_key.startswith("sk-"):
        raise Exception("who is that?")
    _, limit, number, _ = api_key.split("-")
    return UserAPIKeyAuth(api_key=api_key, **({limit: int(number)} if limit != "free" else {}))
'''
MEMBERS = (
    "think-a",
    "ok-a",
    "ok-b",
    "ok-c",
    "gate-a",
    "fail500-a",
    "echo-a",
    "in800-out120-a",
    "in800-out120-b",
    "tools-a",
)
COLLECTIONS: dict[str, Json] = {
    "pair": {"members": ["ok-a", "ok-b"]},
    "one": {"members": ["ok-a"]},
    "think": {"members": ["think-a"]},
    "echo": {"members": ["echo-a"]},
    "gate": {"members": ["gate-a"]},
    "gate-cancelled": {"members": ["gate-a"], "on_disconnect": "cancel"},
    "broken": {"members": ["fail500-a"]},
    "costly": {"members": ["in800-out120-a", "in800-out120-b"]},
    "costly-router": {"members": ["in800-out120-b"]},
    "tools": {"members": ["tools-a"]},
    "late": {"members": ["ok-a", "gate-a"], "quorum": 1},
}
FORMATS: dict[str, tuple[str, Json]] = {
    "chat": (CHAT, {"messages": [{"role": "user", "content": "secret"}]}),
    "responses": ("/v1/responses", {"input": "secret"}),
    "completions": ("/v1/completions", {"prompt": "secret"}),
    "messages": ("/v1/messages", {"max_tokens": 50, "messages": [{"role": "user", "content": "secret"}]}),
    "gemini": (
        "/v1beta/models/{model}:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "secret"}]}]},
    ),
    "ollama": ("/api/chat", {"stream": False, "messages": [{"role": "user", "content": "secret"}]}),
}
NUMBER = itertools.count()


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notes") / "notes"


@pytest.fixture(scope="module")
def ruled_proxy(upstream: Upstream, notes: Path) -> Iterator[Proxy]:
    served = Proxy(
        upstream.api_base,
        {name: name for name in MEMBERS},
        bench={
            "collections": {name: {"explorers": 0, "shape": "general", **c} for name, c in COLLECTIONS.items()},
            # Those on the router lane are told to LiteLLM's callbacks by LiteLLM itself, the others by us.
            "models": {
                name: {"family": name, "tools": True, "lane": "router" if name.endswith("-b") else "lean"}
                for name in MEMBERS
            },
            "timing": {"seat_timeout": 15},
        },
        callbacks=[EXTENSION, "guards.counter"],
        files={"guards.py": GUARDS, "keys.py": KEYS},
        general_settings={"custom_auth": "keys.check"},
        router_settings={"disable_cooldowns": True},
        env={"NOTES": str(notes)},
    )
    served.config["guardrails"] = [
        {
            "guardrail_name": name.lower(),
            "litellm_params": {"guardrail": f"guards.{name}", "mode": mode, "default_on": on},
        }
        for name, mode, on in (
            ("Before", "pre_call", True),
            ("Beside", "during_call", True),
            ("After", "post_call", False),
            ("Iterator", "post_call", False),
            ("Pieces", "post_call", False),
            ("Both", "post_call", False),
            ("Masking", "post_call", False),
            ("MaskingStreams", "post_call", False),
            ("Native", "post_call", False),
        )
    ]
    with served:
        yield served


@contextmanager
def key(proxy: Proxy, limit: str = "free", number: int = 0) -> Iterator[httpx.Client]:
    """A caller whose key nobody else has."""
    headers = {"Authorization": f"Bearer sk-{limit}-{number}-{next(NUMBER)}"}
    with httpx.Client(base_url=proxy.url, headers=headers, timeout=60, trust_env=False) as caller:
        yield caller


@pytest.fixture
def http(ruled_proxy: Proxy, models: Upstream, notes: Path) -> Iterator[httpx.Client]:
    notes.write_text("")
    with key(ruled_proxy) as caller:
        yield caller


def ask(caller: httpx.Client, model: str, text: str = "Who are you?", **more: Any) -> httpx.Response:
    return caller.post(CHAT, json=question(model, text, **more))


def send(caller: httpx.Client, format: str, model: str, *, stream: bool) -> httpx.Response:
    path, body = FORMATS[format]
    if format == "gemini":
        path = path.replace("{model}", model)
        return caller.post(path.replace("generate", "streamGenerate") + "?alt=sse" if stream else path, json=body)
    return caller.post(path, json={**body, "model": model, "stream": stream})


def noted(notes: Path) -> list[list[str]]:
    return [json.loads(line) for line in notes.read_text().splitlines()]


MODES = ("bench/echo", "bench/echo:route")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("model", MODES)
def test_hooks_before_the_call_run_once_and_may_rewrite_what_the_models_get(
    http: httpx.Client, models: Upstream, notes: Path, model: str, format: str, stream: bool
) -> None:
    response = send(http, format, model, stream=stream)
    assert response.status_code == 200, response.text
    (call,) = models.calls()
    assert "*****" in json.dumps(call.body["messages"])
    assert "secret" not in json.dumps(call.body)
    assert noted(notes) == [["before", "bench/echo"]]


def test_a_panel_is_one_request_to_the_hooks(http: httpx.Client, models: Upstream, notes: Path) -> None:
    assert ask(http, "bench/pair").status_code == 200
    assert len(models.calls()) == 2
    assert noted(notes) == [["before", "bench/pair"]]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", ["bench/pair", "bench/pair:route"])
def test_a_guardrail_that_blocks_refuses_before_any_model_is_asked(
    http: httpx.Client, models: Upstream, notes: Path, model: str, stream: bool
) -> None:
    error = refusal(ask(http, model, "the forbidden word", stream=stream), 403)
    assert error["message"] == "that word is forbidden"
    assert models.calls() == []
    assert [kind for kind, _ in noted(notes)] == ["before", "failed"]


def test_a_block_has_the_shape_of_the_callers_format(http: httpx.Client, models: Upstream) -> None:
    body = {"model": "bench/pair", "max_tokens": 9, "messages": [{"role": "user", "content": "forbidden"}]}
    response = http.post("/v1/messages", json=body)
    assert response.status_code == 403
    assert response.json()["error"] == {"type": "permission_error", "message": "that word is forbidden"}


def test_a_hook_that_returns_a_text_refuses_with_it_as_litellm_does(http: httpx.Client, models: Upstream) -> None:
    assert refusal(ask(http, "bench/pair", "say no"), 400)["message"] == "a plain no"
    assert models.calls() == []


def test_a_guardrail_that_wants_another_model_is_not_overheard(http: httpx.Client, models: Upstream) -> None:
    assert '"ok-c"' in refusal(ask(http, "bench/pair", "elsewhere"), 400)["message"]
    assert models.calls() == []


@pytest.mark.parametrize("word", ["nothing left", "empty left", "rubbish left"])
@pytest.mark.parametrize("model", MODES)
def test_a_hook_that_leaves_nothing_to_ask_is_said_to_be_at_fault(
    http: httpx.Client, models: Upstream, model: str, word: str
) -> None:
    assert "a hook of this proxy left no messages" in refusal(ask(http, model, word), 500)["message"]
    assert models.calls() == []


@pytest.mark.parametrize("model", ["bench/pair", "bench/one:route"])
@pytest.mark.parametrize("when", ["before", "besides", "after"])
def test_a_hook_that_is_broken_off_fails_and_stops_nothing_else(
    http: httpx.Client, models: Upstream, model: str, when: str
) -> None:
    error = refusal(ask(http, model, f"break off {when}", guardrails=["after"]), 500)
    assert error["message"] == "a hook of this proxy was broken off; its operator has to look"
    streamed = ask(http, model, f"break off {when}", guardrails=["after"], stream=True)
    assert "a hook of this proxy was broken off" in streamed.text
    assert ask(http, model).status_code == 200


def test_a_hook_that_refuses_without_a_word_is_given_some(http: httpx.Client, models: Upstream) -> None:
    message = refusal(ask(http, "bench/pair", "wordless"), 500)["message"]
    assert message == "a rule of this proxy refuses this request and does not say why (ValueError)"


@pytest.mark.parametrize("model", ["bench/one", "bench/one:route"])
def test_a_guardrail_that_leaves_no_text_for_an_answer_is_said_to_be_at_fault(
    http: httpx.Client, models: Upstream, model: str
) -> None:
    error = refusal(ask(http, model, "in parts", guardrails=["after"]), 500)
    assert "a hook of this proxy left something else in the place of an answer" in error["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", MODES)
@pytest.mark.parametrize("format", FORMATS)
def test_a_guardrail_may_answer_in_the_models_place(
    http: httpx.Client, models: Upstream, format: str, model: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, body = FORMATS[format]
    monkeypatch.setitem(FORMATS, format, (path, json.loads(json.dumps(body).replace("secret", "speak"))))
    response = send(http, format, model, stream=stream)
    assert response.status_code == 200, response.text
    assert "I answer instead." in response.text
    assert models.calls() == []


@pytest.mark.parametrize("model", ["bench/gate", "bench/one:route"])
def test_a_guardrail_beside_the_call_refuses_a_whole_answer(http: httpx.Client, models: Upstream, model: str) -> None:
    assert refusal(ask(http, model, "beside"), 400)["message"] == "refused beside the call"
    if model == "bench/gate":
        # The seat that still waited is stopped.
        models.wait_for(lambda calls: calls and calls[0].hung_up)


@pytest.mark.parametrize("model", ["bench/pair", "bench/one:route"])
def test_nothing_of_a_stream_leaves_before_the_guardrail_beside_the_call_is_done(
    http: httpx.Client, models: Upstream, model: str
) -> None:
    response = ask(http, model, "beside", stream=True)
    assert "refused beside the call" in response.text
    assert "I am" not in response.text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", ["bench/pair", "bench/pair:choices", "bench/pair:route"])
def test_a_guardrail_on_the_answer_may_rewrite_it(
    http: httpx.Client, models: Upstream, notes: Path, model: str, stream: bool
) -> None:
    response = ask(http, model, guardrails=["after"], stream=stream)
    assert response.status_code == 200, response.text
    assert "We are ok-" in response.text
    assert "I am" not in response.text
    assert [kind for kind, _ in noted(notes)] == ["before", "after"]
    if stream:
        assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("model", ["bench/one", "bench/one:route"])
def test_a_guardrail_on_the_answer_may_block_it(http: httpx.Client, models: Upstream, notes: Path, model: str) -> None:
    models.say("ok-a", "This is unsafe.")
    assert refusal(ask(http, model, guardrails=["after"]), 400)["message"] == "the answer is unsafe"
    assert [kind for kind, _ in noted(notes)] == ["before", "after", "failed"]
    streamed = ask(http, model, guardrails=["after"], stream=True)
    assert "the answer is unsafe" in streamed.text
    assert "This is" not in streamed.text


def recorded(caller: httpx.Client, kind: str) -> Json:
    """The newest of this key's panels or conversations, as the record has it."""
    newest = caller.get(f"/bench/{kind}").json()[kind][0]
    found: Json = caller.get(f"/bench/{kind}/{newest[kind.removesuffix('s')]}").json()
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("said", ["I am a secret.", "This is unsafe."], ids=["masked", "refused"])
@pytest.mark.parametrize("model", ["bench/pair", "bench/pair:merged", "bench/one:route"])
def test_of_answers_that_a_guardrail_reads_the_record_keeps_no_text(
    http: httpx.Client, models: Upstream, model: str, said: str, stream: bool
) -> None:
    kind, calls = ("conversations", "calls") if model.endswith("route") else ("panels", "seats")
    for member in ("ok-a", "ok-b"):
        models.say(member, said)
    assert said not in ask(http, model, guardrails=["after"], stream=stream).text
    kept = recorded(http, kind)
    assert said not in json.dumps(kept)
    assert all(call["completion_tokens"] and "answer" not in call for call in kept[calls])
    judged = {"call": kept[calls][0]["call"], "useful": True}
    assert http.post("/bench/verdict", json=judged).status_code == 200
    assert ask(http, model, "Another question.", stream=stream).status_code == 200
    assert recorded(http, kind)[calls][0]["answer"] == said


def test_of_a_late_seat_whose_panel_a_guardrail_reads_the_record_keeps_no_text(
    http: httpx.Client, models: Upstream
) -> None:
    assert ask(http, "bench/late", guardrails=["after"]).status_code == 200
    models.release("gate-a")
    assert eventually(lambda: [s["status"] for s in recorded(http, "panels")["seats"]] == ["ok", "ok"])
    assert all("answer" not in seat for seat in recorded(http, "panels")["seats"])


@pytest.mark.parametrize("model", ["bench/one", "bench/pair:choices", "bench/one:route"])
def test_a_guardrail_that_reads_streams_alone_may_rewrite_one(
    http: httpx.Client, models: Upstream, notes: Path, model: str
) -> None:
    answers = 2 if model == "bench/pair:choices" else 1
    response = ask(http, model, guardrails=["iterator"], stream=True)
    assert "We are ok-" in response.text
    assert "I am" not in response.text
    assert [kind for kind, _ in noted(notes)] == ["before", *["iterator"] * answers]
    assert "I am" in ask(http, model, guardrails=["iterator"]).text


@pytest.mark.parametrize("model", ["bench/one", "bench/one:route"])
def test_a_guardrail_that_reads_streams_alone_may_block_one(http: httpx.Client, models: Upstream, model: str) -> None:
    models.say("ok-a", "This is unsafe.")
    blocked = ask(http, model, guardrails=["iterator"], stream=True)
    assert "the stream is unsafe" in blocked.text
    assert "This is" not in blocked.text


def test_a_guardrail_that_reads_pieces_sees_all_that_was_said(
    http: httpx.Client, models: Upstream, notes: Path
) -> None:
    response = ask(http, "bench/one:route", guardrails=["pieces"], stream=True)
    assert "They are ok-a." in response.text
    assert ["pieces", "I am ok-a."] in noted(notes)


def test_a_guardrail_that_reads_whole_answers_and_streams_reads_one_once(
    http: httpx.Client, models: Upstream, notes: Path
) -> None:
    assert "We are" in ask(http, "bench/one:route", guardrails=["both"], stream=True).text
    assert [kind for kind, _ in noted(notes)] == ["before", "after"]


def test_a_guardrail_that_reads_pieces_may_leave_one_of_litellms(http: httpx.Client, models: Upstream) -> None:
    models.say("ok-a", "Say it in a chunk.")
    assert "A chunk of mine." in ask(http, "bench/one:route", guardrails=["pieces"], stream=True).text


@pytest.mark.parametrize(("guardrail", "stream"), [("masking", False), ("masking", True), ("maskingstreams", True)])
def test_what_a_model_thinks_aloud_is_shown_to_guardrails_too(
    http: httpx.Client, models: Upstream, guardrail: str, stream: bool
) -> None:
    assert "Let me think." in ask(http, "bench/think:route", stream=stream).text
    masked = ask(http, "bench/think:route", guardrails=[guardrail], stream=stream).text
    assert "(masked)" in masked
    assert "Let me think." not in masked


def test_a_guardrail_that_litellm_calls_by_its_own_hooks_alone_reads_the_stream(
    http: httpx.Client, models: Upstream
) -> None:
    assert "the stream was read" in ask(http, "bench/one:route", guardrails=["native"], stream=True).text


def test_pieces_that_are_none_are_no_answer(http: httpx.Client, models: Upstream) -> None:
    response = ask(http, "bench/one:route", "rubbish pieces", guardrails=["iterator"], stream=True)
    assert "a hook of this proxy left something else in the place of an answer" in response.text


@pytest.mark.parametrize("guardrail", ["after", "iterator"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tool_calls_pass_a_guardrail_on_the_answer(
    http: httpx.Client, models: Upstream, stream: bool, guardrail: str
) -> None:
    tool = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}
    response = ask(http, "bench/tools:route", guardrails=[guardrail], tools=[tool], stream=stream)
    assert response.status_code == 200, response.text
    assert '"lookup"' in response.text
    assert '"tool_calls"' in response.text


def test_the_callbacks_are_told_once_of_a_panel_that_failed(http: httpx.Client, models: Upstream, notes: Path) -> None:
    assert ask(http, "bench/broken").status_code == 502
    assert noted(notes) == [["before", "bench/broken"], ["failed", "bench/broken"]]


@pytest.mark.parametrize("model", ["bench/pair", "bench/pair:route"])
def test_requests_a_minute_count_requests_and_not_seats(ruled_proxy: Proxy, models: Upstream, model: str) -> None:
    with key(ruled_proxy, "rpm_limit", 2) as caller:
        assert ask(caller, model).status_code == 200
        assert ask(caller, model, stream=True).status_code == 200
        asked = len(models.calls())
        response = ask(caller, model)
        assert "Rate limit exceeded for api_key" in refusal(response, 429)["message"]
        assert int(response.headers["retry-after"]) > 0
        assert len(models.calls()) == asked


@pytest.mark.parametrize("model", ["bench/costly", "bench/costly:route", "bench/costly-router:route"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tokens_a_minute_count_once_what_all_seats_used(
    ruled_proxy: Proxy, models: Upstream, model: str, stream: bool
) -> None:
    used = 920 if model.endswith("route") else 1840
    # Two requests fit, and no third: neither when their tokens count twice, nor when they do not count.
    with key(ruled_proxy, "tpm_limit", used + used // 2) as caller:
        for _ in range(2):
            response = ask(caller, model, max_tokens=5, stream=stream)
            assert response.status_code == 200, response.text
        assert "tokens" in refusal(ask(caller, model, max_tokens=5), 429)["message"]


LONG = "word " * 400
"""A prompt of 400 to 560 tokens, whoever estimates it."""


@pytest.mark.parametrize("model", ["bench/gate-cancelled", "bench/gate:route"])
def test_tokens_a_minute_count_what_callers_who_hang_up_have_used(
    ruled_proxy: Proxy, models: Upstream, model: str
) -> None:
    with key(ruled_proxy, "tpm_limit", 2000) as caller:
        bearer = caller.headers["authorization"].removeprefix("Bearer ")
        body = json.dumps(question(model, LONG, max_tokens=800, stream=True)).encode()
        with closing(connect(ruled_proxy.url)) as leaving:
            leaving.sendall(request_bytes(body, key=bearer))
            models.wait_for(lambda calls: calls)
        # The most that it may use is given back, the prompt is not.
        assert eventually(lambda: ask(caller, "bench/one", max_tokens=900).status_code == 200)
        assert "tokens" in refusal(ask(caller, "bench/one", max_tokens=1700), 429)["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tokens_a_minute_count_what_a_panel_used_that_is_refused_beside(
    ruled_proxy: Proxy, models: Upstream, stream: bool
) -> None:
    with key(ruled_proxy, "tpm_limit", 700) as caller:
        refused = ask(caller, "bench/gate", f"beside {LONG}", max_tokens=5, stream=stream)
        assert "refused beside the call" in refused.text
        assert "tokens" in refusal(ask(caller, "bench/one", LONG, max_tokens=5), 429)["message"]


def test_tokens_a_minute_count_what_late_seats_were_asked(ruled_proxy: Proxy, models: Upstream) -> None:
    with key(ruled_proxy, "tpm_limit", 900) as caller:
        assert ask(caller, "bench/late", LONG, max_tokens=5).status_code == 200
        assert "tokens" in refusal(ask(caller, "bench/one", LONG, max_tokens=5), 429)["message"]
    models.release("gate-a")


def free(caller: httpx.Client) -> bool:
    return ask(caller, "bench/one").status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", ["bench/gate", "bench/gate:route"])
def test_a_slot_is_held_while_a_request_runs_and_free_the_moment_it_is_answered(
    ruled_proxy: Proxy, models: Upstream, model: str, stream: bool
) -> None:
    with key(ruled_proxy, "max_parallel_requests", 1) as caller, ThreadPoolExecutor() as threads:
        first = threads.submit(ask, caller, model, stream=stream)
        models.wait_for(lambda calls: calls)
        assert "max_parallel" in refusal(ask(caller, "bench/one"), 429)["message"]
        models.release("gate-a")
        assert first.result().status_code == 200
        assert free(caller)


def test_a_slot_is_not_held_for_seats_that_are_late(ruled_proxy: Proxy, models: Upstream) -> None:
    with key(ruled_proxy, "max_parallel_requests", 1) as caller:
        assert ask(caller, "bench/late").status_code == 200
        assert free(caller)
    models.release("gate-a")


@pytest.mark.parametrize("model", ["bench/broken", "bench/broken:route", "bench/nothing", "bench/one:all"])
def test_a_slot_is_free_after_a_request_that_failed_or_was_refused(
    ruled_proxy: Proxy, models: Upstream, model: str
) -> None:
    tool = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}
    more: Mapping[str, Any] = {"tools": [tool]} if model == "bench/one:all" else {}
    with key(ruled_proxy, "max_parallel_requests", 1) as caller:
        assert ask(caller, model, **more).status_code >= 400
        assert ask(caller, "bench/one", "forbidden").status_code == 403
        assert ask(caller, "bench/one", "beside").status_code == 400
        assert free(caller)


@pytest.mark.parametrize("model", ["bench/gate", "bench/gate-cancelled", "bench/gate:route"])
def test_a_slot_is_free_after_its_caller_has_hung_up_and_the_panel_is_over(
    ruled_proxy: Proxy, models: Upstream, model: str
) -> None:
    with key(ruled_proxy, "max_parallel_requests", 1) as caller:
        bearer = caller.headers["authorization"].removeprefix("Bearer ")
        body = json.dumps(question(model, stream=True)).encode()
        with closing(connect(ruled_proxy.url)) as leaving:
            leaving.sendall(request_bytes(body, key=bearer))
            models.wait_for(lambda calls: calls)
        if model == "bench/gate":
            # It goes on, and holds its place.
            assert ask(caller, "bench/one").status_code == 429
            models.release("gate-a")
        assert eventually(lambda: free(caller))


def test_litellms_own_hooks_alone_have_nothing_to_do_for_a_key_without_limits() -> None:
    import litellm
    from litellm.proxy import proxy_server
    from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth

    from bench_proxy.host.hooks import acts, is_limited

    proxy_server.proxy_logging_obj._add_proxy_hooks(None)
    assert litellm.callbacks
    assert [callback for callback in litellm.callbacks if acts(callback)] == []
    assert not is_limited(UserAPIKeyAuth(api_key="sk-x", user_role=LitellmUserRoles.PROXY_ADMIN))
    assert not is_limited(UserAPIKeyAuth(api_key="sk-x", user_id="u", team_id="t", models=["bench/*"]))


@pytest.mark.parametrize(
    "limit",
    [
        {"rpm_limit": 1},
        {"tpm_limit": 1},
        {"max_parallel_requests": 1},
        {"user_rpm_limit": 1},
        {"team_tpm_limit": 1},
        {"team_member_rpm_limit": 1},
        {"end_user_tpm_limit": 1},
        {"organization_rpm_limit": 1},
        {"metadata": {"model_rpm_limit": {"bench/pair": 1}}},
        {"team_metadata": {"guardrails": ["before"]}},
    ],
    ids=lambda limit: next(iter(limit)),
)
def test_limits_of_whoever_a_key_belongs_to_are_seen(limit: dict[str, Any]) -> None:
    from litellm.proxy._types import UserAPIKeyAuth

    from bench_proxy.host.hooks import is_limited

    assert is_limited(UserAPIKeyAuth(api_key="sk-x", **limit))


SCOPE = {"type": "http", "method": "POST", "headers": [], "query_string": b"", "server": ("test", 80)}


async def refused_by(hook: Callable[..., Any]) -> Denied:
    """What a guardrail before the call says to a caller whom LiteLLM does not know."""
    import litellm
    from litellm.integrations.custom_guardrail import CustomGuardrail

    from bench_proxy.host.hooks import Hooks

    class Closed(CustomGuardrail):  # type: ignore[misc]  # untyped there
        async_pre_call_hook = hook

    async def allowed(models: Any) -> list[str]:
        return list(models)

    litellm.callbacks.append(Closed(guardrail_name="closed", event_hook="pre_call", default_on=True))
    caller = Caller("somebody", admin=False, allowed=allowed)
    request = ChatRequest([{"role": "user", "content": "Hello."}], {})
    with pytest.raises(Denied) as refused:
        async with Hooks().applied(caller, "bench/pair", request, SCOPE, {}, stream=False):
            pytest.fail("it was let in")
    return refused.value


async def test_guardrails_hold_for_a_caller_whom_litellm_does_not_know() -> None:
    from fastapi import HTTPException

    async def closed(*_: Any, **__: Any) -> None:
        raise HTTPException(status_code=403, detail="closed")

    assert (await refused_by(closed)).message == "closed"


async def test_a_guardrail_that_never_decides_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench_proxy.host import hooks

    monkeypatch.setattr(hooks, "DECIDED_WITHIN", 0.05)
    broken_off = []

    async def hangs(*_: Any, **__: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            broken_off.append(True)

    refused = await refused_by(hangs)
    assert (refused.status, broken_off) == (504, [True])
    assert "has not decided within 0.05 s" in refused.message


async def test_a_guardrail_whose_own_time_is_over_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*_: Any, **__: Any) -> None:
        raise TimeoutError("the scanner is asleep")

    assert (await refused_by(late)).message == "the scanner is asleep"


async def test_a_hook_whose_pieces_are_none_is_closed_at_once() -> None:
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.proxy._types import UserAPIKeyAuth

    from bench_proxy.host.reviewing import read_in_pieces

    closed = []

    class Odd(CustomLogger):  # type: ignore[misc]  # untyped there
        async def async_post_call_streaming_iterator_hook(self, *_: Any, **__: Any) -> AsyncIterator[str]:
            try:
                while True:
                    yield "x"
            finally:
                closed.append(True)

    with pytest.raises(BenchError, match="something else"):
        await read_in_pieces(Odd(), "bench/pair", Spoken("Yes."), UserAPIKeyAuth(), {})
    assert closed == [True]


@pytest.mark.parametrize("text", ["", "spam"])
async def test_a_hook_that_yields_for_ever_keeps_nobody_from_their_turn(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.proxy._types import UserAPIKeyAuth
    from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

    from bench_proxy.host import reviewing

    monkeypatch.setattr(reviewing, "MOST_LEFT", 1000)
    chunk = ModelResponseStream(choices=[StreamingChoices(index=0, delta=Delta(content=text))])

    class Endless(CustomLogger):  # type: ignore[misc]  # untyped there
        async def async_post_call_streaming_iterator_hook(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            while True:
                yield chunk

    reading = reviewing.read_in_pieces(Endless(), "bench/pair", Spoken("Yes."), UserAPIKeyAuth(), {})
    with pytest.raises(BenchError if text else TimeoutError):
        async with asyncio.timeout(0.2):
            await reading


async def test_a_tracer_of_litellms_holds_no_stream_back() -> None:
    from litellm.integrations.otel.langfuse_logger import LangfuseContentOpenTelemetryV2

    from bench_proxy.host.reviewing import observes, reads_pieces_alone

    tracer = LangfuseContentOpenTelemetryV2.__new__(LangfuseContentOpenTelemetryV2)
    assert observes(tracer)
    assert not reads_pieces_alone(tracer)


class Stubborn:
    """A hook that never decides, and does not let itself be stopped."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, *_: Any, **__: Any) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await self.released.wait()


@asynccontextmanager
async def stubborn(hook: str, monkeypatch: pytest.MonkeyPatch, **guardrail: Any) -> AsyncIterator[Any]:
    """A request that was let in beside a callback whose `hook` never decides."""
    import litellm
    from litellm.integrations.custom_guardrail import CustomGuardrail

    from bench_proxy.host import hooks

    monkeypatch.setattr(hooks, "DECIDED_WITHIN", 0.05)
    monkeypatch.setattr(hooks, "STOPPED_WITHIN", 0.05)
    never = Stubborn()
    named = {"guardrail_name": "never", "default_on": True, **guardrail}
    litellm.callbacks.append(type("Never", (CustomGuardrail,), {hook: never})(**named))

    async def allowed(models: Any) -> list[str]:
        return list(models)

    caller = Caller("somebody", admin=False, allowed=allowed)
    request = ChatRequest([{"role": "user", "content": "Hello."}], {})
    try:
        async with hooks.Hooks().applied(caller, "bench/pair", request, SCOPE, {}, stream=False) as admitted:
            yield admitted
    finally:
        never.released.set()


async def test_a_guardrail_before_the_call_that_cannot_be_stopped_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Denied, match="has not decided"):
        async with stubborn("async_pre_call_hook", monkeypatch, event_hook="pre_call"):
            pytest.fail("it was let in")


async def test_a_guardrail_beside_the_call_that_never_decides_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Denied, match="has not decided"):
        async with stubborn("async_moderation_hook", monkeypatch, event_hook="during_call") as admitted:
            await admitted.clear()


async def test_a_guardrail_on_the_answer_that_never_decides_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Denied, match="has not decided"):
        async with stubborn("async_post_call_success_hook", monkeypatch, event_hook="post_call") as admitted:
            await admitted.review([Spoken("Yes.")], Usage(1, 1))


async def test_a_callback_that_never_hears_the_end_of_a_failure_keeps_no_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InvalidRequest, match="of the caller's"):
        async with stubborn("async_post_call_failure_hook", monkeypatch, event_hook="pre_call"):
            raise InvalidRequest("a fault of the caller's")

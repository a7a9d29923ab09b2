"""What belongs to its maker does not travel: what of a conversation each provider is sent, on both lanes."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litellm import Router

from bench_proxy.formats.request import ChatRequest
from bench_proxy.host.ownership import fitted, taker_of
from bench_proxy.host.request import request_for, target_of
from bench_proxy.host.tool_ids import ANTHROPICS, MISTRALS, OPENAIS, mapped, rule_of, unsigned
from bench_proxy.upstream import Call
from tests.host.odd import Odd, told

SIGNED = "call_1__thought__" + "c2lnbmF0dXJl" * 200
IDS = ["call_1", "toolu_01AbC", "functions.read:0", "a" * 70, "abcDEF123", "read/1", SIGNED, "\u00e9", ""]


def params(model: str, **more: Any) -> dict[str, Any]:
    return {"litellm_params": {"model": model, "api_key": "k", **more}}


def conversation(*ids: str, **more: Any) -> list[dict[str, Any]]:
    """One that has called a tool with each id, and got its results; `more` are fields of each answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read."}]
    for id in ids:
        call = {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call], **more},
            {"role": "tool", "tool_call_id": id, "content": "42"},
        ]
    return messages


def ids_of(messages: list[dict[str, Any]]) -> list[str]:
    """The ids of calls, once for each; those of the results have to be the same."""
    called = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    assert called == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return called


@pytest.mark.parametrize(
    ("provider", "model", "rule"),
    [
        ("anthropic", "claude-sonnet-4-5", ANTHROPICS),
        ("bedrock", "us.amazon.nova-pro-v1:0", ANTHROPICS),
        ("vertex_ai", "claude-opus-4-5@20251101", ANTHROPICS),
        ("openrouter", "anthropic/claude-sonnet-4.5", ANTHROPICS),
        ("mistral", "open-large", MISTRALS),
        ("hosted_vllm", "mistralai/Devstral-Small", MISTRALS),
        ("openai", "gpt-5", OPENAIS),
        ("azure", "mine", OPENAIS),
        ("gemini", "gemini-3-pro", None),
        ("hosted_vllm", "qwen3", None),
    ],
)
def test_each_vendor_has_its_rule(provider: str, model: str, rule: object) -> None:
    assert rule_of(provider, model) is rule


@given(st.text(max_size=100), st.sets(st.sampled_from([ANTHROPICS, MISTRALS, OPENAIS])))
def test_a_mapped_id_is_one_that_all_take_and_always_the_same(id: str, rules: set[Any]) -> None:
    new = mapped(id, rules)
    assert all(rule.fullmatch(new) for rule in rules)
    assert new == mapped(id, rules) == mapped(new, rules)
    assert new == id or any(not rule.fullmatch(id) for rule in rules)


@pytest.mark.parametrize("rule", [ANTHROPICS, MISTRALS, OPENAIS])
def test_different_ids_stay_different(rule: Any) -> None:
    sent = [f"functions.read:{n}" + "x" * 60 for n in range(20_000)]
    assert len({mapped(id, [rule]) for id in sent}) == len(sent)


def test_a_signature_is_taken_off_unless_nothing_else_is_there() -> None:
    assert unsigned(SIGNED) == "call_1"
    assert unsigned("__thought__x") == "__thought__x"


@pytest.mark.parametrize(
    ("model", "rules"),
    [
        ("anthropic/claude-sonnet-4-5", [ANTHROPICS]),
        ("mistral/mistral-large-latest", [MISTRALS]),
        ("azure/m", [OPENAIS]),
    ],
)
def test_calls_and_results_keep_belonging_together(model: str, rules: list[Any]) -> None:
    messages, _ = fitted(conversation(*IDS), {}, taker_of([params(model)]))
    ids = ids_of(messages)
    assert all(rule.fullmatch(id) for rule in rules for id in ids)
    # The signed one and the first one are of one call each in their conversations.
    assert len(set(ids)) == len(IDS) - 1


def test_an_id_that_all_take_is_left_alone() -> None:
    assert ids_of(fitted(conversation("call_1", "a.b:0"), {}, taker_of([params("hosted_vllm/qwen")]))[0]) == [
        "call_1",
        "a.b:0",
    ]


def test_only_google_gets_its_signature_back() -> None:
    for model, kept in (("gemini/gemini-3-pro", SIGNED), ("openai/gpt-5", "call_1"), ("vertex_ai/claude-x", "call_1")):
        assert ids_of(fitted(conversation(SIGNED), {}, taker_of([params(model)]))[0]) == [kept]


def test_a_model_of_several_providers_gets_what_each_of_them_takes() -> None:
    taker = taker_of([params("mistral/mistral-large-latest"), params("gemini/gemini-3-pro")])
    (id,) = ids_of(fitted(conversation(SIGNED), {}, taker)[0])
    assert MISTRALS.fullmatch(id)


OWNED: dict[str, Any] = {
    "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}],
    "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
    "provider_specific_fields": {"thought_signature": "c2ln"},
    "encrypted_content": "x",
    "reasoning_content": "Hm.",
}


@pytest.mark.parametrize(
    ("model", "base", "kept"),
    [
        ("anthropic/claude-sonnet-4-5", None, {"thinking_blocks", "reasoning_content"}),
        ("bedrock/anthropic.claude-sonnet-4-5", None, {"thinking_blocks", "reasoning_content"}),
        ("openrouter/vendor/model", None, {"reasoning_details", "reasoning_content"}),
        ("gemini/gemini-3-pro", None, {"provider_specific_fields", "reasoning_content"}),
        ("deepseek/deepseek-chat", None, {"reasoning_content"}),
        ("openai/mine", "http://127.0.0.1:8000/v1", {"reasoning_content"}),
        ("openai/gpt-5", "https://api.openai.com/v1", set()),
        ("groq/llama", None, set()),
    ],
)
def test_signed_reasoning_goes_to_its_maker_alone(model: str, base: str | None, kept: set[str]) -> None:
    messages, _ = fitted(conversation("call_1", **OWNED), {}, taker_of([params(model, api_base=base)]))
    assert {*messages[1]} & {*OWNED} == kept


def test_signatures_at_calls_go_with_them() -> None:
    messages = conversation("call_1")
    call = messages[1]["tool_calls"][0]
    call["extra_content"] = {"google": {"thought_signature": "c2ln"}}
    call["function"]["provider_specific_fields"] = {"thought_signature": "c2ln"}
    for model, there in (("gemini/gemini-3-pro", True), ("openai/gpt-5", False)):
        (made,) = fitted(messages, {}, taker_of([params(model)]))[0][1]["tool_calls"]
        assert ("extra_content" in made, "provider_specific_fields" in made["function"]) == (there, there)


def test_thoughts_among_the_parts_of_an_answer_go_to_claude_alone() -> None:
    parts = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, {"type": "text", "text": "Yes."}]
    messages = [{"role": "assistant", "content": parts}, {"role": "assistant", "content": parts[:1]}]
    assert fitted(messages, {}, taker_of([params("anthropic/claude-sonnet-4-5")]))[0] == messages
    others = fitted(messages, {}, taker_of([params("openai/gpt-5")]))[0]
    assert [message["content"] for message in others] == [parts[1:], ""]


THINKING = {"reasoning_effort": "low", "max_tokens": 4096}


@pytest.mark.parametrize(
    ("model", "messages", "thinks"),
    [
        ("anthropic/claude-sonnet-4-5", conversation("call_1"), False),
        ("anthropic/claude-sonnet-4-5", conversation("call_1", thinking_blocks=OWNED["thinking_blocks"]), True),
        ("anthropic/claude-sonnet-4-5", [{"role": "user", "content": "Hi"}], True),
        ("anthropic/claude-opus-4-6", conversation("call_1"), True),
        ("openai/gpt-5", conversation("call_1"), True),
    ],
)
def test_claude_does_not_think_after_calls_that_have_no_thoughts_of_its_own(
    model: str, messages: list[dict[str, Any]], thinks: bool
) -> None:
    _, settings = fitted(messages, dict(THINKING), taker_of([params(model)]))
    assert settings == (THINKING if thinks else {"max_tokens": 4096})


def test_claude_gets_none_of_its_thoughts_while_it_may_not_think() -> None:
    mixed = conversation("call_1", thinking_blocks=OWNED["thinking_blocks"]) + conversation("call_2")
    messages, _ = fitted(mixed, dict(THINKING), taker_of([params("anthropic/claude-sonnet-4-5")]))
    assert not any("thinking_blocks" in message for message in messages)


@pytest.mark.parametrize("provider", ["anthropic", "azure", "deepseek", "groq", "hosted_vllm", "mistral", "openai"])
def test_the_caller_s_messages_are_never_changed(provider: str) -> None:
    marked = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    picture = {"type": "image_url", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    sent: list[dict[str, Any]] = [
        {"role": "system", "content": [dict(marked)]},
        {"role": "user", "content": [dict(marked), picture]},
        *conversation(*IDS[:7], **OWNED),
        {"role": "user", "content": "Go on."},
    ]
    before = copy.deepcopy(sent)
    more = {"api_version": "2024-10-21", "api_base": "https://x.example"} if provider == "azure" else {}
    deployment = params(f"{provider}/retold", **more)
    router = Router(model_list=[{"model_name": "m", **deployment}])
    target = target_of(router.get_model_list()[0])
    request_for(target, Call("m", ChatRequest(sent, {}), 20), stream=False)
    assert sent == before


def test_large_conversations_are_shared_only_as_they_came() -> None:
    sent = [
        *conversation("call_1", thinking_blocks=OWNED["thinking_blocks"]),
        {"role": "user", "content": "x" * 60_000},
    ]
    request = ChatRequest(sent, {})
    bodies = []
    for provider in ("anthropic", "hosted_vllm", "deepseek"):
        deployment = {
            "model_name": "m",
            **params(f"{provider}/claude" if provider == "anthropic" else f"{provider}/retold"),
        }
        target = target_of(Router(model_list=[deployment]).get_model_list()[0])
        bodies.append(json.loads(request_for(target, Call("m", request, 20), stream=False).body)["messages"])
    assert bodies[0][1]["content"][0] == OWNED["thinking_blocks"][0]
    assert not any("thinking_blocks" in message for body in bodies[1:] for message in body)


@pytest.mark.parametrize("lane", ["router", "auto"])
@pytest.mark.parametrize(
    ("model", "rule"), [("anthropic/claude-sonnet-4-5", ANTHROPICS), ("mistral/mistral-large-latest", MISTRALS)]
)
async def test_both_lanes_send_what_the_vendor_takes(model: str, rule: Any, lane: str) -> None:
    odd = Odd(b"{}", status=400)
    with pytest.raises(Exception, match="bad_request"):
        await told(
            odd, stream=False, forced=lane, model=model, request=ChatRequest(conversation("functions.read:0"), {})
        )
    (body,) = map(json.loads, odd.seen)
    if rule is MISTRALS:
        (id,) = ids_of(body["messages"])
    else:
        blocks = [b for message in body["messages"] for b in message["content"] if isinstance(b, dict)]
        (id,) = {str(b.get("id") or b.get("tool_use_id")) for b in blocks if b["type"] in {"tool_use", "tool_result"}}
    assert id == mapped("functions.read:0", [rule])

"""Which call of a tool a result belongs to."""

from bench_proxy.formats.calls import Calls


def made(calls: Calls, *tools: str) -> list[str]:
    return [call["id"] for call in calls.made((None, tool, "{}") for tool in tools)]


def test_a_result_belongs_to_the_call_it_names_else_to_the_first_of_its_tool_else_to_the_first() -> None:
    calls = Calls()
    assert made(calls, "read", "list", "read", "stat") == ["call_1", "call_2", "call_3", "call_4"]
    assert calls.answered("call_3", None) == "call_3"
    assert calls.answered("unknown", "read") == "call_1"
    assert calls.answered(None, "nobody's") == "call_2"
    assert calls.answered("unknown", "nobody's") == "unknown"
    assert calls.answered(None, None) == "call_4"
    assert calls.answered(None, "read") == "call_5"


def test_a_call_that_was_never_answered_takes_no_result_of_a_later_message() -> None:
    calls = Calls()
    made(calls, "read")
    assert made(calls, "read") == ["call_2"]
    assert made(calls) == []
    assert calls.answered(None, "read") == "call_2"

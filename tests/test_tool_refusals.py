"""What model servers say to tools that they will not take."""

import pytest

from bench_proxy.tool_refusals import READ, is_tool_refusal

# Who says it, and what.
REFUSALS = [
    ("ollama", "registry.ollama.ai/library/m:latest does not support tools"),
    ("openrouter", 'No endpoints found that support tool use. Try disabling "read_file".'),
    (
        "openai, no model for it",
        "tools is not supported in this model. For a list of supported models, refer to the guide on function calling.",
    ),
    ("openai, a reasoning model", "Unsupported parameter: 'tools' is not supported with this model."),
    (
        "openai, a schema",
        "Invalid schema for function 'write': In context=('properties',), 'required' is required to be supplied and to "
        "be an array including every key in properties.",
    ),
    (
        "openai, too many",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 140 "
        "instead.",
    ),
    (
        "openai, a name",
        "Invalid 'tools[3].function.name': string does not match pattern. Expected a string that matches the pattern "
        "'^[a-zA-Z0-9_-]+$'.",
    ),
    (
        "openai, a long name",
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, but got a string "
        "with length 70 instead.",
    ),
    ("azure", "{'error': {'message': 'no', 'code': 'invalid_function_parameters', 'param': 'tools[0].function'}}"),
    (
        "gemini, a keyword",
        'Invalid JSON payload received. Unknown name "additionalProperties" at '
        "'tools[0].function_declarations[0].parameters': Cannot find field.",
    ),
    (
        "gemini, a property",
        "* GenerateContentRequest.tools[0].function_declarations[1].parameters.required[0]: property is not defined",
    ),
    ("gemini, no model for it", "Function calling is not enabled for models/gemma-3-27b-it"),
    (
        "gemini, a name",
        "GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name. Must start with a "
        "letter or an underscore.",
    ),
    (
        "vertex",
        "Unable to submit request because `read` functionDeclaration `parameters.path` schema didn't specify the "
        "schema type field.",
    ),
    (
        "anthropic, a schema",
        '{"type":"error","error":{"type":"invalid_request_error","message":"tools.0.custom.input_schema: JSON schema '
        'is invalid. It must match JSON Schema draft 2020-12"}}',
    ),
    ("anthropic, a name", "tools.12.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"),
    ("anthropic, two of a name", "tools: Tool names must be unique."),
    ("bedrock", "This model doesn't support tool use."),
    ("bedrock, streamed", "This model doesn't support tool use in streaming mode."),
    (
        "bedrock, a name",
        "1 validation error detected: Value at 'toolConfig.tools.0.member.toolSpec.name' failed to satisfy constraint",
    ),
    (
        "xai",
        "Invalid request content: The model does not support tool use or function calling but tools or tool_choice "
        "have been specified on the request.",
    ),
    ("xai, too many", "Maximum tools limit reached: 200 tools provided, but the limit is 128"),
    ("deepseek", "deepseek-reasoner does not support Function Calling"),
    ("groq, no model for it", "`tool calling` is not supported with this model"),
    (
        "groq, a call",
        "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
    ),
    ("groq, an argument", "Tool call validation failed: parameters for tool read did not match schema"),
    ("mistral", "Function calling is not enabled for this model"),
    ("moonshot", "tools.function.parameters is not a valid moonshot flavored json schema"),
    ("novita", "model features function calling not support"),
    ("vllm", '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    (
        "vllm, an old one",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'tools'), 'msg': 'Extra inputs are not permitted'}]",
    ),
    ("llama.cpp", "tools param requires --jinja flag"),
]

OTHERS = [
    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
    "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40.",
    "messages.2.content.0.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    "Invalid value for 'tool_choice': the function 'x' is not in 'tools'.",
    "tool_choice: Input should be a valid dictionary",
    "This model's maximum context length is 8192 tokens. However, you requested 8213 tokens (6683 in the messages, 730 "
    "in the functions, and 800 in the completion).",
    "This model does not support image input.",
    "The model `tools-a` does not exist or you do not have access to it.",
    "No endpoints found for vendor/model.",
    "No endpoints found that support image input",
    "",
]


@pytest.mark.parametrize("message", [said for _, said in REFUSALS], ids=[who for who, _ in REFUSALS])
def test_a_refusal_of_tools_is_told_by_its_words(message: str) -> None:
    assert is_tool_refusal(message)
    assert is_tool_refusal(f"litellm.BadRequestError: SomeException - {message.upper()}\nReceived Model Group=it")


@pytest.mark.parametrize("message", OTHERS)
def test_other_errors_are_no_refusal_of_tools(message: str) -> None:
    assert not is_tool_refusal(message)


def test_only_the_beginning_of_a_message_is_read() -> None:
    assert not is_tool_refusal("x" * READ + "m does not support tools")


@pytest.mark.parametrize("piece", ["tools[", "functiondeclaration ", "does not support ", "'tools[1]a.", "invalid '"])
def test_a_message_that_says_nothing_at_length_is_read_to_its_end(piece: str) -> None:
    assert not is_tool_refusal(piece * READ)

"""What Claude Code asks first in a session, as it was seen (2.1.332), with fewer tools and shorter texts."""

import json
from typing import Any

FIRST_REQUEST: dict[str, Any] = {
    "model": "bench/core",
    "max_tokens": 32_000,
    "metadata": {"user_id": json.dumps({"device_id": "0" * 64, "account_uuid": "", "session_id": "1-2-3"})},
    "stream": True,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332; cch=1a2b3;"},
        {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be concise.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>\nToday is Sunday.\n</system-reminder>"},
                {"type": "text", "text": "Hello."},
            ],
        },
        {
            "role": "system",
            "content": [{"type": "text", "text": "Tools are found by search.", "cache_control": {"type": "ephemeral"}}],
        },
    ],
    "thinking": {"type": "adaptive", "display": "omitted"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "tools": [
        {
            "name": "Read",
            "description": "Reads a file.",
            "input_schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {
                    "file_path": {"type": "string", "pattern": "^/"},
                    "limit": {"type": "integer", "exclusiveMinimum": 0, "default": 2000},
                },
                "required": ["file_path"],
                "additionalProperties": False,
            },
        },
        {"name": "ToolSearch", "description": "Finds tools.", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "Placeholder",
            "description": "Stands for tools that are found later.",
            "input_schema": {"type": "object", "properties": {}},
            "defer_loading": True,
        },
    ],
}

"""What every reply must be, whatever was sent."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuzzing.shots import Shot

OF_MEMBERS = frozenset({502, 503, 504, 529})
"""The only errors of a server that are honest: members failed, were late, or nobody had room."""

NEVER_TOLD = (b"Traceback (most recent", b'File "/', b"site-packages", b"internal error in bench-proxy")
UNREADABLE = b"Invalid HTTP request received."
"""What the HTTP server says by itself to what is no HTTP: https://github.com/encode/uvicorn"""


@dataclass(frozen=True)
class Reply:
    """Names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def faults(shot: Shot, reply: Reply, secrets: Sequence[str]) -> list[str]:
    """What is wrong with a reply; nothing, most of the time."""
    found = [f"tells {told!r}" for told in NEVER_TOLD if told in reply.body and told not in shot.body]
    everything = reply.body + "\n".join(reply.headers.values()).encode("latin-1", "replace")
    found += [f"tells a secret, {secret[:6]}…" for secret in secrets if secret.encode() in everything]
    if reply.body == UNREADABLE or shot.shape is None:
        return found
    if reply.status >= 500 and reply.status not in OF_MEMBERS:
        found.append(f"status {reply.status}")
    if reply.status >= 400 and not (reply.status == 405 and not reply.body) and not _shaped(shot.shape, reply):
        found.append(f"a {reply.status} that is no error of {shot.shape}")
    return found


def _shaped(shape: str, reply: Reply) -> bool:
    try:
        body: Any = json.loads(reply.body)
    except ValueError:
        return False
    error = body.get("error") if isinstance(body, dict) else None
    if shape == "ollama":
        return isinstance(error, str) and error != ""
    if not isinstance(error, dict) or not isinstance(error.get("message"), str) or not error["message"]:
        return False
    if shape == "anthropic":
        return body.get("type") == "error" and isinstance(error.get("type"), str)
    if shape == "gemini":
        return error.get("code") == reply.status and isinstance(error.get("status"), str)
    return set(error) == {"message", "type", "param", "code"}


OURS_OR_THEIRS = re.compile(r'File "[^"]*/(bench_proxy|litellm)/[^"]*"')


def faults_of_log(log: str, secrets: Sequence[str]) -> list[str]:
    """Of what the proxy has written meanwhile. A traceback is ours where our code comes last, or said that it failed:
    every request to LiteLLM's own routes goes through the gate, and what fails behind that is LiteLLM's.
    """
    found = ["the log tells a secret" for secret in secrets if secret in log]
    found += [f"the log: {line[:300]}" for line in log.splitlines() if "inside bench-proxy" in line]
    for block in log.split("Traceback (most recent call last)")[1:]:
        frames = OURS_OR_THEIRS.findall(block)
        if frames and frames[-1] == "bench_proxy":
            found.append(f"a traceback in the log: {block[-3000:]}")
    return found

"""Names of functions that all vendors' models take. Google and Ollama allow more: dots, colons, any script.

https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools
https://ai.google.dev/api/caching#FunctionDeclaration
"""

import hashlib
import re
from collections.abc import Iterable

from bench_proxy.formats.request import ToolName

_TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_KEPT = 55
"""Characters of a name before what tells it from similar ones, so that both fit into 64."""


def known(name: str) -> str:
    """The name by which models know this function: always the same one, since a history repeats it."""
    if not name or _TAKEN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_OTHER.sub('_', name)[:_KEPT]}_{digest}"


def renamed(names: Iterable[str]) -> dict[str, ToolName]:
    """Those that models know by another name, by that one."""
    return {told: ToolName(name) for name in names if (told := known(name)) != name}

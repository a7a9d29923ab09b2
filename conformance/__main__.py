"""Try every case on our readers and on LiteLLM's translators, and write the table into `docs/formats.md`."""

import copy
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conformance.cases import CASES, COMPLETIONS, GEMINI, MESSAGES, OLLAMA, RESPONSES, Case, Json

DOCUMENT = Path(__file__).parent.parent / "docs" / "formats.md"
BEGIN, END = "<!-- make conformance writes from here -->", "<!-- to here -->"
MODEL = "bench/core"
NAMES = {
    MESSAGES: "Anthropic Messages",
    RESPONSES: "OpenAI Responses",
    GEMINI: "Gemini",
    OLLAMA: "Ollama",
    COMPLETIONS: "OpenAI completions",
}
SHOWN = {True: "yes", False: "**no**", None: "has none"}

Chat = tuple[Sequence[Json], Json]


def ours(case: Case) -> Chat:
    from bench_proxy.formats.places import place

    asked = place(case.path)
    if asked is None:
        raise LookupError(case.path)
    request, _ = asked.format.read({"model": MODEL, **case.body})
    return request.messages, request.settings


def _anthropic(body: dict[str, Any]) -> dict[str, Any]:
    from litellm.llms.anthropic.pass_through.adapters.transformation import LiteLLMAnthropicMessagesAdapter

    chat, _ = LiteLLMAnthropicMessagesAdapter().translate_anthropic_to_openai({"model": MODEL, **body})  # type: ignore[typeddict-item]
    return dict(chat)


def _responses(body: dict[str, Any]) -> dict[str, Any]:
    from litellm.responses.litellm_completion_transformation.transformation import LiteLLMCompletionResponsesConfig

    given = body.pop("input")
    translate = LiteLLMCompletionResponsesConfig.transform_responses_api_request_to_chat_completion_request
    return translate(model=MODEL, input=given, responses_api_request=body)  # type: ignore[arg-type]


def _gemini(body: dict[str, Any]) -> dict[str, Any]:
    from litellm.google_genai.adapters.transformation import GoogleGenAIAdapter

    contents, config = body.pop("contents"), body.pop("generationConfig", {})
    return GoogleGenAIAdapter().translate_generate_content_to_completion(MODEL, contents, config, **body)


LITELLMS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    MESSAGES: _anthropic,
    RESPONSES: _responses,
    GEMINI: _gemini,
}


def litellms(case: Case) -> Chat | None:
    """None where LiteLLM has no translator: it sends completions on as they are, and has no Ollama routes."""
    translate = LITELLMS.get(case.path)
    if translate is None:
        return None
    chat = translate(copy.deepcopy(dict(case.body)))
    return chat.pop("messages"), {name: value for name, value in chat.items() if value is not None}


def holds(case: Case, translate: Callable[[Case], Chat | None]) -> bool | None:
    try:
        chat = translate(case)
        return None if chat is None else bool(case.check(*chat))
    except (ImportError, TypeError):
        raise  # it is not called as it wants to be, which says nothing of what it does
    except Exception:  # noqa: BLE001  a translator that fails is a translator that fails
        return False


def table() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield f"| format | what | bench-proxy | LiteLLM {version('litellm')} |"
    yield "|---|---|---|---|"
    for case in CASES:
        outcomes = (SHOWN[holds(case, ours)], SHOWN[holds(case, litellms)])
        yield f"| {NAMES[case.path]} | {case.what} | {' | '.join(outcomes)} |"


def main() -> int:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it is fetched
    import litellm

    litellm.suppress_debug_info = True  # it prints advice when a provider is not known
    before = DOCUMENT.read_text(encoding="utf-8")
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCUMENT.write_text(f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}", encoding="utf-8")
    print(f"{DOCUMENT}: {len(CASES)} rows, {'unchanged' if DOCUMENT.read_text('utf-8') == before else 'written'}")
    wrong = [case.what for case in CASES if not holds(case, ours)]
    for what in wrong:
        print(f"bench-proxy is wrong about: {what}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""The provider `bench`: a collection stands wherever LiteLLM takes a model, in a router as in a bare `acompletion`.

What LiteLLM 1.108.7 does with a custom provider, and this module relies on (`tests/host/test_provider.py`):

- an asynchronous call is made in its caller's event loop, a synchronous one in its caller's thread;
- a chunk of LiteLLM's own class passes as it is, but for finish reasons: the first choice's is written by LiteLLM, in
  a last chunk of its own, and a chunk whose first choice has one is dropped;
- a chunk with nothing but usage is taken for the books and not passed on;
- an exception of LiteLLM's own classes passes as it is, so that fallbacks see it.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any, NoReturn

import litellm
from litellm import CustomLLM, Router
from litellm.types.utils import Choices, Delta, Message, ModelResponseStream, StreamingChoices, Usage
from litellm.utils import custom_llm_setup

from bench_proxy.errors import InvalidRequest, UnknownModel
from bench_proxy.formats.brief import collection_of
from bench_proxy.host.errors import in_litellms_words
from bench_proxy.host.installation import Asked, Installation
from bench_proxy.host.nesting import is_seated
from bench_proxy.host.sitting import Said
from bench_proxy.panel import voices

PROVIDER = "bench"

MARK = "bench_installation"
"""In the metadata of a router's calls: which installation answers them."""

NO_PANEL_IN_A_PANEL = "a panel cannot sit on a panel: this model is a collection of bench-proxy"


class Provider(CustomLLM):
    """What LiteLLM calls for every model `bench/…` of the process; it passes all arguments by name."""

    def __init__(self) -> None:
        super().__init__()
        self._installed: dict[str, Installation] = {}

    def enter(self, installation: Installation, router: Router | None = None) -> None:
        """Answer what is asked by this installation; with a router, only its calls and what no router sent."""
        self._installed[installation.id] = installation
        if router is not None:
            _mark(router, installation.id)
        self.register()

    def leave(self, installation: Installation, router: Router | None = None) -> None:
        self._installed.pop(installation.id, None)
        if router is not None:
            _mark(router, None)

    def register(self) -> None:
        """Make LiteLLM know the provider; again where its own configuration has replaced the table of providers."""
        if not any(item["custom_handler"] is self for item in litellm.custom_provider_map):
            litellm.custom_provider_map = [
                *litellm.custom_provider_map,
                {"provider": PROVIDER, "custom_handler": self},
            ]
        custom_llm_setup()

    async def acompletion(self, **call: Any) -> Any:
        with in_litellms_words(call["model"]):
            installation, asked = self._find(call)
            said, panel = await _whole(installation, asked)
            return _response(call["model_response"], asked.body["model"], said, panel)

    def completion(self, **call: Any) -> Any:
        with in_litellms_words(call["model"]):
            installation, asked = self._find(call)
            said, panel = installation.wait(_whole(installation, asked))
            return _response(call["model_response"], asked.body["model"], said, panel)

    def astreaming(self, **call: Any) -> AsyncIterator[ModelResponseStream]:
        with in_litellms_words(call["model"]):
            return _chunks(*self._find(call))

    def streaming(self, **call: Any) -> Iterator[ModelResponseStream]:
        with in_litellms_words(call["model"]):
            installation, asked = self._find(call)
            return installation.iterate(_chunks(installation, asked))

    def embedding(self, *_: Any, **__: Any) -> NoReturn:
        raise litellm.BadRequestError("a collection of bench-proxy answers chat completions only", "", PROVIDER)

    aembedding = image_generation = aimage_generation = image_edit = aimage_edit = embedding

    def _find(self, call: Mapping[str, Any]) -> tuple[Installation, Asked]:
        """Whose call this is. Raises BenchError; also for a seat's call, before it can seat a panel of its own."""
        if is_seated():
            raise InvalidRequest(NO_PANEL_IN_A_PANEL)
        asked = _asked(call)
        mark = asked.metadata.get(MARK)
        if mark is not None:
            if (installation := self._installed.get(str(mark))) is None:
                raise UnknownModel("the installation of bench-proxy that this call is for was closed", param="model")
            return installation, asked
        return self._by_name(collection_of(asked.body["model"])), asked

    def _by_name(self, collection: str) -> Installation:
        """For a call that no router of an installation sent: the one that has the collection."""
        having = [i for i in self._installed.values() if collection in i.config.collections]
        if len(having) > 1:
            raise InvalidRequest(
                f'{len(having)} installations of bench-proxy have a collection "{collection}":'
                " ask through the router of one of them",
                param="model",
            )
        # One that is alone answers for every name: it can say which collections there are.
        found = having or list(self._installed.values())
        if len(found) != 1:
            raise UnknownModel(f'no installation of bench-proxy has a collection "{collection}"', param="model")
        return found[0]


PROVIDING = Provider()
"""LiteLLM has one table of providers for the process, and so there is one of these."""


def _mark(router: Router, mark: str | None) -> None:
    """The router adds its default metadata to each of its calls, and so tells whose they are."""
    defaults = router.default_litellm_params
    others = {name: value for name, value in (defaults.get("metadata") or {}).items() if name != MARK}
    metadata = others if mark is None else {**others, MARK: mark}
    # A new dictionary: two routers may have been made with the same one.
    router.default_litellm_params = {**defaults, "metadata": metadata}


def _asked(call: Mapping[str, Any]) -> Asked:
    params = call["litellm_params"] or {}
    settings = _settings(call)
    extra = settings.pop("extra_body", None) or {}
    headers = (params.get("proxy_server_request") or {}).get("headers") or {}
    return Asked(
        body={**settings, **extra, "model": f"{PROVIDER}/{call['model']}", "messages": call["messages"]},
        timeout=call["timeout"] if isinstance(call["timeout"], int | float) else None,
        metadata={**(params.get("litellm_metadata") or {}), **(params.get("metadata") or {})},
        headers={n.lower(): v for n, v in headers.items() if n.lower().startswith("x-bench-")},
    )


def _settings(call: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's settings as they were sent.

    LiteLLM has renamed some, and dropped others, for a provider that it takes for an OpenAI-like server. Its books
    have them as they were, but for a `response_format` that was given as a class.
    """
    fitted, sent = call["optional_params"], dict(call["logging_obj"].optional_params)
    if "response_format" in fitted:
        sent["response_format"] = fitted["response_format"]
    sent.pop("max_retries", None)
    return sent


async def _whole(installation: Installation, asked: Asked) -> tuple[Said, str]:
    sitting = await installation.sit(asked)
    return await sitting.whole(), sitting.panel.id


def _response(response: Any, model: str, said: Said, panel: str) -> Any:
    """LiteLLM's own response object, filled in; `bench` is a field more, which it passes on."""
    response.id = f"chatcmpl-{panel}"
    response.created = int(time.time())
    response.model = model
    response.choices = [
        Choices(index=index, finish_reason=a.finish_reason, message=Message(role="assistant", content=a.text))
        for index, a in enumerate(said.alternatives)
    ]
    response.usage = _usage(said)
    response.bench = dict(said.data)
    return response


async def _chunks(installation: Installation, asked: Asked) -> AsyncGenerator[ModelResponseStream, None]:
    model = asked.body["model"]
    with in_litellms_words(model):
        sitting = await installation.sit(asked)
        writing = _Writing(sitting.panel.id, model)
        async with aclosing(sitting.pieces()) as pieces:
            async for piece in pieces:
                for chunk in writing.end(piece) if isinstance(piece, Said) else writing.text(piece):
                    yield chunk


class _Writing:
    """One streamed reply in LiteLLM's chunks."""

    def __init__(self, panel: str, model: str) -> None:
        self._head = {"id": f"chatcmpl-{panel}", "created": int(time.time()), "model": model}
        self._begun = 0

    def text(self, delta: voices.Delta) -> Iterator[ModelResponseStream]:
        # OpenAI's own SDK puts together only choices that begin in the order of their indices.
        while self._begun <= delta.index:
            yield self._chunk([StreamingChoices(index=self._begun, delta=Delta(role="assistant", content=""))])
            self._begun += 1
        if delta.text:
            yield self._chunk([StreamingChoices(index=delta.index, delta=Delta(content=delta.text))])

    def end(self, said: Said) -> Iterator[ModelResponseStream]:
        """The other choices' reasons go with `bench`, behind the first choice, which has none yet."""
        first, *others = [a.finish_reason for a in said.alternatives]
        ends = [StreamingChoices(index=i, delta=Delta(), finish_reason=r) for i, r in enumerate(others, 1)]
        # LiteLLM's proxy leaves out what it does not know of a plain chunk, which one with this field is not.
        last = self._chunk([StreamingChoices(index=0, delta=Delta(content="")), *ends], provider_specific_fields={})
        last.bench = dict(said.data)
        yield last
        yield self._chunk([], usage=_usage(said))
        yield self._chunk([StreamingChoices(index=0, delta=Delta(), finish_reason=first)])

    def _chunk(self, choices: list[StreamingChoices], **more: Any) -> ModelResponseStream:
        return ModelResponseStream(choices=choices, **self._head, **more)


def _usage(said: Said) -> Usage:
    total = said.usage.prompt_tokens + said.usage.completion_tokens
    return Usage(
        prompt_tokens=said.usage.prompt_tokens, completion_tokens=said.usage.completion_tokens, total_tokens=total
    )

"""What was learned of models from what they said and did, shared by all processes through the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bench_proxy.overflow import LARGEST_WINDOW, SMALLEST_WINDOW

Subject = tuple[str, str]
"""An alias and what it was served by (`catalog.served`): what was learned of one deployment is not true of another."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A context window in tokens, from an error that stated it; tools and vision, from an answer that used them.

    A capability is only ever learned, a window only ever lowered.
    """

    context_window: int | None = None
    tools: bool | None = None
    vision: bool | None = None

    def __or__(self, other: "Learned") -> "Learned":
        """What is known when both are."""
        windows = [w for w in (self.context_window, other.context_window) if w is not None]
        return Learned(min(windows, default=None), self.tools or other.tools, self.vision or other.vision)


NOTHING = Learned()


def learned(context_window: object = None, tools: object = None, vision: object = None) -> Learned:
    """From values of any kind, such as a ledger may hold; what cannot be a fact is none."""
    return Learned(_window(context_window), _yes(tools), _yes(vision))


def saw(prompt_tokens: int | None, text_tokens: float, images: int) -> bool:
    """Whether an answer's own count of its prompt shows that its model was given the images.

    That it answered shows nothing: a model that cannot see answers anyway, about a picture it never got. But no text
    counts twice what it was estimated at, so that what was counted above that can only be the images.
    """
    return images > 0 and prompt_tokens is not None and prompt_tokens >= 2 * text_tokens + LEAST_IMAGE_TOKENS * images


LEAST_IMAGE_TOKENS = 200
"""What an image counts at least (Gemini 258, OpenAI 255), and more than what a server adds to a prompt unasked."""


class FactStore(Protocol):
    """Keeps facts for all processes. Both methods raise LedgerUnavailable."""

    async def learn(self, facts: Mapping[Subject, Learned]) -> None: ...

    async def learned(self) -> Mapping[Subject, Learned]: ...


class Facts:
    """What this process knows to have been learned. Learning and asking cost nothing; `exchange` does the rest."""

    def __init__(self) -> None:
        self._known: dict[Subject, Learned] = {}
        self._untold: dict[Subject, Learned] = {}
        self.version = 0
        """Changes with what is known."""

    @property
    def known(self) -> Mapping[Subject, Learned]:
        return self._known

    def learn(self, alias: str, served: str, news: Learned) -> None:
        """Known here at once, and everywhere after the next `exchange`."""
        subject = (alias, served)
        if self._take(subject, news):
            self._untold[subject] = self._untold.get(subject, NOTHING) | news

    async def exchange(self, store: FactStore) -> None:
        """Tell the store what was learned here, and take what was learned elsewhere. Raises LedgerUnavailable."""
        if untold := self._untold:
            self._untold = {}
            try:
                await store.learn(untold)
            except BaseException:
                for subject, news in untold.items():
                    self._untold[subject] = self._untold.get(subject, NOTHING) | news
                raise
        for subject, news in (await store.learned()).items():
            self._take(subject, news)

    def _take(self, subject: Subject, news: Learned) -> bool:
        before = self._known.get(subject, NOTHING)
        after = before | news
        if after == before:
            return False
        self._known[subject] = after
        self.version += 1
        return True


def _window(value: Any) -> int | None:
    # Neither NaN nor an infinity is between the two.
    possible = isinstance(value, int | float) and SMALLEST_WINDOW <= value <= LARGEST_WINDOW
    return int(value) if possible else None


def _yes(value: object) -> bool | None:
    return True if value is True or value == 1 else None

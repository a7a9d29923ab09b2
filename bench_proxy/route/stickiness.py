"""What makes two requests turns of one conversation, as far as they say so themselves."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from bench_proxy.formats.request import Brief, ChatRequest, Json, as_text
from bench_proxy.route.keeping import StickyBy

LOOKED_AT = 100_000
"""Characters of a system text in which lines are looked for that change on every request."""


@dataclass(frozen=True, slots=True)
class Sticky:
    """`key` is the same for all turns of a conversation: 64 hexadecimal digits, in which nothing can be read. `by`
    is what told it from others.
    """

    key: str
    by: StickyBy
    within: tuple[str, str, str] = field(repr=False)
    """Collection, owner and system text, which tell all conversations apart, whatever names them."""

    def key_by_id(self, conversation: str) -> str:
        """The key under which the same conversation is found once a client sends its id."""
        return _key(self.within, "conversation", conversation)


def sticky(collection: str, owner: str, brief: Brief, request: ChatRequest) -> Sticky:
    """The conversation of this caller that the request goes on with.

    The system text always counts, so that a request for a title, or an agent that works for another one, is a
    conversation of its own under the same session.
    """
    within = (collection, owner, steady(system_text(request.messages)))
    kind, name, by = _named(brief, request)
    return Sticky(_key(within, kind, name), by, within)


def _key(within: tuple[str, str, str], kind: str, name: str) -> str:
    collection, owner, system = within
    return _digest(collection, owner, kind, name, system)


def share_of(conversation: str) -> float:
    """A number in [0, 1) that the conversation's id decides, evenly spread: what is drawn by it can be drawn again."""
    return (int(_digest("share", conversation)[:16], 16) >> 11) / 2**53


def _named(brief: Brief, request: ChatRequest) -> tuple[str, str, StickyBy]:
    if brief.conversation is not None:
        return "conversation", brief.conversation, brief.conversation_by
    if brief.session is not None:
        return "session", brief.session, "client session"
    return "text", _first_words(request.messages), "fingerprint"


def _first_words(messages: Sequence[Json]) -> str:
    return next((as_text(message.get("content")) for message in messages if message.get("role") == "user"), "")


def system_text(messages: Sequence[Json]) -> str:
    """What stands before everything else. A system message further on may be new in this very turn."""
    head = takewhile(lambda message: message.get("role") in {"system", "developer"}, messages)
    return "\n".join(as_text(message.get("content")) for message in head)


# The current date or time, in lower case. A search for all of it at once takes as long as all else that a turn costs:
# a line is looked at closely only if it holds one of a few words.

_YEAR = r"20\d\d"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY = r"\d\d?(?:st|nd|rd|th)?"
YEAR = re.compile(_YEAR)
DATE = re.compile(
    "|".join(
        (
            # 2026-03-01, 2026/3/1, 01.03.2026, with a time or without; no part of a model's name or a version.
            rf"(?<![\w.-]){_YEAR}([-/.])\d\d?\1\d\d?(?:t\d\d|(?![\w-]))",
            rf"(?<![\w.-])\d\d?(?P<mark>[/.])\d\d?(?P=mark){_YEAR}(?![\w-])",
            rf"\b{_YEAR}\d{{4}}t\d{{4}}",
            # March 1, 2026; 1 March 2026
            rf"\b{_MONTH} {_DAY},? {_YEAR}\b",
            rf"\b{_DAY}\.? {_MONTH},? {_YEAR}\b",
        )
    )
)
SAID = re.compile(
    # Today's date, <current_date>, currentDate, the current local time
    r"\b(?:current|today.?s)(?:[ _-][a-z]+){0,2}?[ _-]?(?:date|datetime|day|time|timestamp)\b"
    r"|\btoday is\b|\bit is now\b|\b(?:date|time) (?:now )?is\b"
)
LABEL = re.compile(r"[\s#*<-]*(?:local[ _]?)?(?:date|datetime|now|time|timestamp)[\s*>]*[:=>]")

BILLING = re.compile(r"\s*x-anthropic-[\w-]+:")
"""Claude Code's line with its version and a hash of the request: `x-anthropic-billing-header: …; cch=…;`"""

AFTER_SENTENCE = re.compile(r"(?<=[.!?])(\s+)")


def steady(text: str) -> str:
    """The text without what its client writes anew into every request: billing lines, the current date and time.

    Of a line that says more than the date, only the sentence goes that says it.
    """
    looked_at, rest = text[:LOOKED_AT], text[LOOKED_AT:]
    return "\n".join(_steady_lines(looked_at)) + rest


def _steady_lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        low = line.lower()
        if "x-anthropic-" in low and BILLING.match(low):
            continue
        if not _tells_date(low):
            yield line
        elif left := _left(line):
            yield left


def _left(line: str) -> str:
    """A line that tells the date without the sentences that do; nothing if only all of it together does."""
    parts = AFTER_SENTENCE.split(line)
    left = [part for part in parts if not _tells_date(part.lower())]
    return "".join(left).strip() if len(left) < len(parts) else ""


def _tells_date(low: str) -> bool:
    if "20" in low and YEAR.search(low) and DATE.search(low):
        return True
    if not ("date" in low or "time" in low or "day" in low or "now" in low):
        return False
    said = "current" in low or "today" in low or " is" in low
    return LABEL.match(low) is not None or (said and SAID.search(low) is not None)


def _digest(*parts: str) -> str:
    """Each part with its length before it: no two lists of parts run together to the same bytes."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()

"""Whether an answer is a provider's notice that a quota is used up, sent as if the model had said it (pure)."""

import re

from bench_proxy.formats.request import ChatRequest, as_text

LONGEST = 300
"""Characters; a longer text that speaks of quotas is an answer about quotas."""

_LIMIT = (
    r"(?:rate[ -]?limit|usage limit|requests? limit|quota|credits?|(?:daily|weekly|monthly|\d+-hour)(?: \w+)? limit)"
)
_NOTICE = re.compile(
    # A notice is a headline or speaks to its reader; what begins otherwise is a sentence about something.
    r"(?:sorry|oops|error|warning|notice|http|status|code|429|[\W_])*"
    r"(?:"
    r"you(?:['’]ve| have| are)? (?:\w+ )?(?:exceeded|reached|hit|exhausted|used up|out of)\b"
    rf".{{0,60}}\b(?:{_LIMIT}|limit)|"
    rf"(?!(?:the|an?|this|that|if|when|once|because|since) )(?:[\w-]+ ){{0,3}}?{_LIMIT}\b"
    r".{0,60}\b(?:exceeded|reached|exhausted|hit|used up|too low)\b|"
    r"(?:insufficient|out of|no more|not enough) (?:\w+ ){0,3}(?:quota|credits?|balance)\b|"
    r"too many requests\b|"
    r"resource (?:has been )?exhausted\b"
    r")",
    re.IGNORECASE | re.DOTALL,
)
_ASKED_FOR = re.compile(r"quota|limit|credit|429|too many|billing|balance|exhaust|translat", re.IGNORECASE)


def is_quota_notice(text: str, request: ChatRequest) -> bool:
    """Who speaks of quotas may well be answered with a sentence about quotas."""
    if len(text) > LONGEST or _NOTICE.match(text) is None:
        return False
    return not any(_ASKED_FOR.search(as_text(message.get("content"))) for message in request.messages)

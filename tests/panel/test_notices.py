"""A provider's notice that a quota is used up is no answer; an answer about quotas is one."""

import pytest

from bench_proxy.formats.request import ChatRequest
from bench_proxy.panel.notices import LONGEST, is_quota_notice
from tests.doubles import Models, Table

NOTICES = [
    "You exceeded your current quota, please check your plan and billing details.",
    "You've hit your usage limit. Upgrade to Pro or try again at 3 pm.",
    "You’ve reached your daily message limit.",
    "You have run out of credits.",
    "You are out of free credits for today.",
    "Rate limit exceeded. Please try again in 20s.",
    "Rate limit reached for model-x in organisation org-1 on requests per min.",
    "Quota exceeded for quota metric 'Generate Content API requests per minute'.",
    "Error 429: Too Many Requests",
    "429 Too Many Requests",
    "[Error] Too many requests, please slow down.",
    "Insufficient credits. Add more to continue.",
    "Your credit balance is too low to access the API.",
    "Sorry, your free quota has been exhausted.",
    "**Daily limit reached** – resets at midnight.",
    "5-hour limit reached ∙ resets 3am",
    "Resource has been exhausted (e.g. check quota).",
]
ANSWERS = [
    "The recursion limit was reached: the function calls itself without an end.",
    "It means that the server was sent too many requests.",
    "Your loop never sleeps, so that the server answers with an error.",
    "The rate limit was exceeded, so the client should wait and try again.",
    "When a quota is exceeded, requests are refused until it is reset.",
    "Use a token bucket; once the quota is used up, callers wait.",
    "A credit is hit with a fee.",
    "I am a model.",
    "",
]


def asked(content: object = "Why did my job stop?", *before: str) -> ChatRequest:
    return ChatRequest([*({"role": "user", "content": b} for b in before), {"role": "user", "content": content}], {})


@pytest.mark.parametrize("text", NOTICES)
def test_a_notice_is_no_answer(text: str) -> None:
    assert is_quota_notice(text, asked())
    assert is_quota_notice(f"\n{text}\n", asked())


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_about_limits_is_an_answer(text: str) -> None:
    assert not is_quota_notice(text, asked())


@pytest.mark.parametrize("text", NOTICES)
@pytest.mark.parametrize(
    "question",
    [
        "What does the server say when my quota is used up?",
        "Which error is 429?",
        "Translate: Das Kontingent ist erschöpft.",
        "Write a message for users who have hit their limit.",
        [{"type": "text", "text": "What does this billing page say?"}],
    ],
)
def test_who_asks_about_quotas_is_answered(text: str, question: object) -> None:
    assert not is_quota_notice(text, asked(question))
    assert not is_quota_notice(text, asked("And in short?", str(question)))


@pytest.mark.parametrize("text", NOTICES)
def test_a_long_text_is_an_answer(text: str) -> None:
    assert not is_quota_notice(text + " And so on." * LONGEST, asked())


@pytest.mark.parametrize("stream", [True, False])
async def test_a_seat_that_gave_a_notice_failed_and_its_text_is_kept(stream: bool) -> None:
    models = Models(gpt=["Rate limit ", "exceeded."], claude=["It ran out of memory."])
    table = Table(models, members=["gpt", "claude"])
    _, report = await table.ask("Why did my job stop?", stream=stream, stream_mode="live")
    gpt, claude = report.answers
    assert (gpt.status, gpt.text) == ("error", "Rate limit exceeded.")
    assert gpt.error is not None
    assert (gpt.error.status, gpt.error.type) == (429, "rate_limit")
    assert claude.status == "ok"
    assert report.partial

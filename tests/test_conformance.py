"""What real clients send reaches models as it was meant, and the document says what was found of both translators."""

import pytest

from conformance.__main__ import DOCUMENT, NAMES, holds, ours, table
from conformance.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{NAMES[case.path]}: {case.what}")
def test_a_request_means_the_same_in_chat(case: Case) -> None:
    assert holds(case, ours) is True


def test_the_document_says_what_is_found_now() -> None:
    """When LiteLLM has changed, `make conformance` writes the table anew."""
    assert table() in DOCUMENT.read_text(encoding="utf-8")

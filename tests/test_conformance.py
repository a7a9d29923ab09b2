"""What real clients send reaches models as it was meant, and the document says what was found of both translators."""

import pytest

from conformance.__main__ import DOCUMENT, NAMES, SHOWN, holds, ours
from conformance.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{NAMES[case.path]}: {case.what}")
def test_a_request_means_the_same_in_chat(case: Case) -> None:
    assert holds(case, ours) is True


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{NAMES[case.path]}: {case.what}")
def test_the_document_has_each_case(case: Case) -> None:
    line = f"| {NAMES[case.path]} | {case.what} | {SHOWN[True]} |"
    assert line in DOCUMENT.read_text(encoding="utf-8")

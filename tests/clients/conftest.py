"""What the tests of conversations through vendors' SDKs share."""

import itertools

import pytest

NUMBER = itertools.count()


@pytest.fixture
def conversation() -> str:
    """An explicit sticky key that no other test uses."""
    return f"sdk {next(NUMBER)}"

"""LiteLLM in the test's own process: without a look at the network, and with its own warnings left to it."""

import copy
import gc
import os
import warnings
from collections.abc import Iterator

import pytest

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS="True", LITELLM_LOG="ERROR")

THEIRS = (
    # LiteLLM's types, as pydantic sees them; which of its calls says so first depends on the order of the tests.
    "ignore:.*using the `ReadOnly` qualifier:UserWarning",
    "ignore::pydantic.warnings.PydanticDeprecationWarning",
    # Its worker for callbacks lives in the event loop that used it first, and is left there when that one ends.
    "ignore:Exception ignored in. <coroutine object LoggingWorker:pytest.PytestUnraisableExceptionWarning",
    # The connections that it keeps for later calls, left to the garbage collector in the same way.
    "ignore::ResourceWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "host":
            for warning in THEIRS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    """LiteLLM prints where to get help each time that a call fails."""
    import litellm

    litellm.suppress_debug_info = True


@pytest.fixture(autouse=True)
def no_callbacks_left(quiet: None) -> Iterator[None]:
    """Each router that is made leaves some in LiteLLM's lists, which take no more than a hundred."""
    import litellm

    yield
    litellm.logging_callback_manager._reset_all_callbacks()


@pytest.fixture(scope="module", autouse=True)
def no_models_left(quiet: None) -> Iterator[None]:
    """A router writes the facts of its deployments into LiteLLM's list of models, under the names of known ones too."""
    import litellm
    from litellm.utils import _invalidate_model_cost_lowercase_map

    before = copy.deepcopy(litellm.model_cost)
    yield
    litellm.model_cost.clear()
    litellm.model_cost.update(before)
    _invalidate_model_cost_lowercase_map()


@pytest.fixture(scope="module", autouse=True)
def no_connections_left(quiet: None) -> Iterator[None]:
    """What LiteLLM keeps open between calls is not found by the tests of other modules."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()

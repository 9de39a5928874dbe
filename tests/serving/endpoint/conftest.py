"""A model that answers when a test lets it."""

import pytest


@pytest.fixture
def slow():
    """The model `stub`, which the end of the test lets answer."""
    from tests.support.running_grpc import StubModel

    model = StubModel()
    yield model
    model.release.set()


@pytest.fixture
def prompt(slow):
    """The same model, which answers at once."""
    slow.release.set()
    return slow

"""The server that is checked, and a client of each protocol."""

import os

import httpx2
import numpy as np
import pytest

from tests.conformance.messages import encoded
from tests.conformance.target import (
    named_target,
    target_in_process,
    target_of_own_process,
)
from tests.support.running_grpc import channel_to


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    named = named_target()
    if named is not None:
        yield named
        return
    # `make test-conformance` sets the variable, to nothing where it names no server.
    is_apart = "CONFORMANCE_TARGET" in os.environ
    own = target_of_own_process if is_apart else target_in_process
    with own(tmp_path_factory.mktemp("conformance")) as target:
        yield target


@pytest.fixture(scope="session")
def rest(target):
    with httpx2.Client(base_url=target.rest, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def stubs(target):
    with channel_to(target.grpc) as opened:
        yield opened


@pytest.fixture(scope="session")
def pixels(target):
    """Three images of the model's size, uint8 `[3, size, size, 3]`."""
    shape = (3, target.size, target.size, 3)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.fixture(scope="session")
def images(pixels):
    """The same, as PNG."""
    return [encoded(image) for image in pixels]


@pytest.fixture
def label(target):
    if target.label is None:
        pytest.skip("no LABEL of the model was given")
    return target.label

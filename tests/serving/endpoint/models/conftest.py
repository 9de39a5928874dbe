"""Base paths with one version, and models that are looked for on disk when asked."""

import shutil
import threading

import pytest

from serving.endpoint.models.config import single_model
from serving.endpoint.models.watched import WatchedModels
from tests.support.watched import (
    WAIT_SECONDS,
    FakeModel,
    add,
    started,
    write_fake_model,
)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The folder of a version that `FakeModel` loads."""
    return write_fake_model(tmp_path_factory.mktemp("example") / "1")


@pytest.fixture
def base(tmp_path, example):
    """A base path with version 1 of the fake model."""
    shutil.copytree(example, tmp_path / "m" / "1")
    return tmp_path / "m"


@pytest.fixture
def real_base(tmp_path, example_model):
    """A base path with version 1 of a real model."""
    shutil.copytree(example_model, tmp_path / "real" / "1")
    return tmp_path / "real"


@pytest.fixture
def managed():
    """Make models that are only looked for on disk when told, and close them."""
    made = []

    def make(*configs, **options):
        watched = WatchedModels(
            configs, **{"poll_seconds": 0, "load": FakeModel, **options}
        )
        made.append(watched)
        return watched

    yield make
    for watched in made:
        watched.close()


@pytest.fixture
def warming_up(managed, base, example):
    """Models of which version 2 warms up until the event beside them is set."""
    reached, go_on = threading.Event(), threading.Event()

    def warm_up(servable, folder):
        if servable.version == 2:
            reached.set()
            assert go_on.wait(WAIT_SECONDS)

    watched = started(
        managed(single_model("m", base), warm_up=warm_up, poll_seconds=0.01)
    )
    add(example, base, 2)
    assert reached.wait(WAIT_SECONDS)
    return watched, go_on

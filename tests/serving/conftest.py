"""Models that the tests of a session share, exported once."""

import pytest


@pytest.fixture(scope="session")
def example_model(tmp_path_factory):
    """The folder of a version of the small example model. Not to be changed."""
    from tests.support.example_model import write_example_model

    folder = tmp_path_factory.mktemp("models") / "example" / "3"
    write_example_model(folder)
    return folder


@pytest.fixture(scope="session")
def example_servables(example_model):
    """The example model, loaded as versions 2 and 3."""
    from serving.endpoint.models.servable import Servable

    return [Servable("example", version, example_model) for version in (2, 3)]

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


@pytest.fixture(scope="session")
def colors(tmp_path_factory):
    """The search of `tests.support.search_fixtures`, built once. Not to be changed."""
    from tests.support.search_fixtures import build_search

    return build_search(tmp_path_factory.mktemp("colors"))


@pytest.fixture(scope="session")
def colors_url(colors):
    """The address of its model on the real endpoint."""
    from tests.support.search_fixtures import serve_model

    with serve_model(colors / "models" / "colors") as url:
        yield url


@pytest.fixture(scope="session")
def reddish(colors, tmp_path_factory):
    """The folder of another model, which sees mostly red. Not to be changed."""
    from tests.support.search_fixtures import write_color_model

    models = tmp_path_factory.mktemp("reddish") / "reddish"
    write_color_model(models / "1", tint=(1, 0.3, 0.3))
    return models


@pytest.fixture(scope="session")
def reddish_url(reddish):
    """The address of that model on the real endpoint."""
    from tests.support.search_fixtures import serve_model

    with serve_model(reddish) as url:
        yield url


@pytest.fixture(scope="session")
def calibrated(colors, tmp_path_factory):
    """The index of `colors` with a threshold of 0.9. Not to be changed."""
    from tests.support.search_fixtures import calibration_at, copy_index

    folder = tmp_path_factory.mktemp("calibrated") / "index"
    return copy_index(colors / "index", folder, calibration=calibration_at(0.9))


@pytest.fixture(scope="session")
def towers(tmp_path_factory):
    """The search of `tests.support.two_towers`, built once. Not to be changed."""
    from tests.support.two_towers import build_text_search

    return build_text_search(tmp_path_factory.mktemp("towers"))

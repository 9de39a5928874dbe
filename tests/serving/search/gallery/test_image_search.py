import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from serving.client import Credentials, EndpointClient, EndpointError
from serving.search.gallery.gallery import Gallery, load_gallery
from serving.search.gallery.image_search import ImageSearch
from serving.search.gallery.model_check import MismatchError, client_of_index
from serving.search.gallery.opening import open_search
from serving.search.gallery.query import Address, File, Member, Query, Upload
from serving.search.gallery.uploads import Crop
from serving.web.access import TokenAccess
from tests.support.search_fixtures import (
    DIMENSION,
    encoded,
    serve_model,
    write_color_model,
)
from tests.support.token_files import write_tokens
from tfdml.index import LocalIndex

PROJECT = Path(__file__).parents[4]


def test_a_model_of_another_version_is_refused(colors, tmp_path):
    write_color_model(tmp_path / "colors" / "2")
    with (
        serve_model(tmp_path / "colors") as url,
        pytest.raises(MismatchError, match=r"built with version 1.*serves version 2"),
    ):
        open_search(colors / "index", url)


def test_a_model_with_other_weights_is_refused(colors, tmp_path):
    write_color_model(tmp_path / "colors" / "1", tint=(-1, 1, 3))
    with (
        serve_model(tmp_path / "colors") as url,
        pytest.raises(MismatchError, match="serves version 1 with the fingerprint"),
    ):
        open_search(colors / "index", url)


def test_an_endpoint_that_asks_for_a_token_is_searched_with_it(colors, tmp_path):
    file = write_tokens(tmp_path / "tokens", "0123456789abcdef")
    models = colors / "models" / "colors"
    with serve_model(models, access=TokenAccess(file)) as url:
        with pytest.raises(EndpointError, match="401"):
            open_search(colors / "index", url)
        credentials = Credentials(file.read_text())
        with open_search(colors / "index", url, credentials=credentials) as search:
            image = next((colors / "images").rglob("*.png"))
            assert search.nearest(Query(Upload(image.read_bytes()), 1))


class RecordingClient:
    """Keeps what it was given; each embedding is the same."""

    url = "none"

    def __init__(self):
        self.images = []

    def metadata(self):
        return SimpleNamespace(view=None)

    def embed(self, images):
        self.images += images
        return np.ones((len(images), DIMENSION), np.float32)

    def close(self):
        pass


@pytest.mark.parametrize("source", [Upload, File, Member])
def test_a_query_is_decoded_once_and_its_region_sent_as_pixels(colors, source):
    client = RecordingClient()
    content = encoded((250, 5, 0), size=(40, 20))
    chosen = Member("red/clear.png") if source is Member else source(content)
    width, height = (24, 20) if source is Member else (40, 20)
    with ImageSearch(*load_gallery(colors / "index"), client) as search:
        query = Query(chosen, 2, crop=Crop(0.5, 0, 0.5, 0.5))
        found = search.nearest(query)
    (pixels,) = client.images
    assert pixels.shape == (height // 2, width // 2, 3)
    expected = (255, 0, 0) if source is Member else (250, 5, 0)
    assert (pixels == expected).all()
    assert len(found) == 2


def test_an_address_must_be_fetched_before_the_search(colors):
    with (
        ImageSearch(*load_gallery(colors / "index"), RecordingClient()) as search,
        pytest.raises(ValueError, match=r"`query` must be fetched first.*a\.test"),
    ):
        search.nearest(Query(Address("http://a.test"), 1))


def test_a_model_of_another_dimension_is_refused(colors_url, tmp_path):
    index = LocalIndex.build(np.eye(3, dtype=np.float32), ids=["a", "b", "c"])
    gallery = Gallery(tmp_path, "colors", 1)
    with (
        ImageSearch(index, gallery, EndpointClient(colors_url)) as search,
        pytest.raises(MismatchError, match=f"dimension 3.* returns {DIMENSION}"),
    ):
        client_of_index(search.client, search)


def test_a_gallery_whose_images_are_gone_is_refused(colors, colors_url, tmp_path):
    with pytest.raises(FileNotFoundError, match="--images"):
        open_search(colors / "index", colors_url, images=tmp_path)


def test_nothing_of_the_search_loads_tensorflow_before_it_is_needed():
    program = (
        "import sys, serving.search.app.app, serving.search.gallery.indexing; "
        "sys.exit(bool({'tensorflow', 'keras', 'scann'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, check=False)
    assert done.returncode == 0

"""That an index is searched by its own model alone, from the start to the end."""

import numpy as np
import pytest

from serving.client import EndpointError, Failure
from serving.search.gallery.changing import add_images
from serving.search.gallery.editing import GalleryEditor
from serving.search.gallery.indexing import index_images
from serving.search.gallery.model_check import MismatchError
from serving.search.gallery.opening import open_search
from serving.search.gallery.query import File, Query
from tests.support.search_fixtures import (
    encoded,
    write_color_model,
    write_gallery_images,
    write_image,
)
from tests.support.swapping import swapping

# So near to the first model that images find themselves by a cosine of 0.99.
NEAR = (1, 0.95, 0.95)
QUERY = Query(File(encoded((180, 90, 40))), 3)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Models of one name, and an index of each that has one."""
    folder = tmp_path_factory.mktemp("places")
    write_gallery_images(folder / "images")
    for name, version, tint, is_described in (
        ("own", 1, (1, 1, 1), True),
        ("near", 1, NEAR, True),
        ("newer", 2, NEAR, True),
        ("plain", 1, (1, 1, 1), False),
        ("other", 1, (-1, 1, 3), False),
    ):
        model = folder / name / "colors" / str(version)
        write_color_model(model, tint=tint, is_described=is_described)
    for name in ("own", "plain"):
        index_images(
            folder / "images", folder / f"index-{name}", folder / name / "colors"
        )
    return folder


def base(places, name):
    return places / name / "colors"


@pytest.fixture(params=["REST", "gRPC"])
def protocol(request):
    return request.param


@pytest.mark.parametrize("tells", [True, False])
def test_model_that_is_nearly_the_same_is_refused(places, protocol, tells):
    with swapping(base(places, "near"), tells=tells) as endpoint:
        url = endpoint.urls[protocol]
        with pytest.raises(MismatchError, match="with the fingerprint"):
            open_search(places / "index-own", url)
        with pytest.raises(MismatchError, match="with the fingerprint"):
            add_images(
                places / "index-own",
                places / "images",
                endpoint=url,
                skip_existing=True,
            )


@pytest.mark.parametrize("tells", [True, False])
def test_weights_that_are_swapped_while_a_search_is_open_are_noticed(
    places, protocol, tells
):
    with (
        swapping(base(places, "own"), tells=tells) as endpoint,
        open_search(places / "index-own", endpoint.urls[protocol]) as search,
    ):
        before = search.nearest(QUERY)
        endpoint.swap(base(places, "near"))
        with pytest.raises(EndpointError) as refused:
            search.nearest(QUERY)
        assert refused.value.failure is Failure.OTHER_MODEL
        endpoint.swap(base(places, "own"))
        assert search.nearest(QUERY) == before


@pytest.mark.parametrize("served", ["other", "near"])
def test_swapped_weights_without_a_fingerprint_are_noticed_by_an_image(places, served):
    with (
        swapping(base(places, "plain"), tells=False) as endpoint,
        open_search(places / "index-plain", endpoint.urls["REST"]) as search,
    ):
        before = search.nearest(QUERY)
        assert len(before) == 3
        endpoint.swap(base(places, served))
        with pytest.raises(EndpointError) as refused:
            search.nearest(QUERY)
        assert refused.value.failure is Failure.OTHER_MODEL


@pytest.mark.parametrize("name", ["own", "plain"])
def test_images_are_not_added_once_the_model_was_swapped(
    places, tmp_path, name, monkeypatch
):
    images = write_gallery_images(tmp_path / "images")
    index_images(images, tmp_path / "index", base(places, name))
    for number in range(30):
        write_image(tmp_path / "more" / f"{number}.png", (number, 2, 3))
    with swapping(base(places, name), tells=False) as endpoint:
        added = []

        def add(editor, additions):
            real(editor, additions)
            added.extend(additions)
            endpoint.swap(base(places, "near"))

        real = GalleryEditor.add
        monkeypatch.setattr(GalleryEditor, "add", add)
        with pytest.raises(EndpointError) as refused:
            add_images(
                tmp_path / "index",
                tmp_path / "more",
                endpoint=endpoint.urls["REST"],
                batch_size=2,
            )
        assert refused.value.failure is Failure.OTHER_MODEL
    assert 2 <= len(added) < 30  # some batches were under way


def test_page_at_the_latest_version_takes_the_one_that_fits(places, protocol):
    with swapping(base(places, "own")) as endpoint:
        endpoint.add(base(places, "newer"))
        with open_search(places / "index-own", endpoint.urls[protocol]) as search:
            assert search.client.url.endswith("/versions/1")
            assert search.nearest(QUERY)
        newer = f"{endpoint.urls[protocol]}/versions/2"
        with pytest.raises(MismatchError, match=r"name it at the end.*/versions/1\."):
            open_search(places / "index-own", newer)
        endpoint.remove(1)
        with pytest.raises(MismatchError, match="Else serve it, or build the index"):
            open_search(places / "index-own", endpoint.urls[protocol])


def test_same_weights_under_another_number_fit(places, tmp_path):
    (tmp_path / "colors").mkdir()
    (tmp_path / "colors" / "7").symlink_to(base(places, "own") / "1")
    with (
        swapping(base(places, "own")) as endpoint,
        open_search(places / "index-own", endpoint.urls["REST"]) as search,
    ):
        expected = search.client.embed([encoded((9, 8, 7))])
    with (
        swapping(tmp_path / "colors") as endpoint,
        open_search(places / "index-own", endpoint.urls["REST"]) as search,
    ):
        found = search.client.embed([encoded((9, 8, 7))])
    np.testing.assert_allclose(found, expected, atol=1e-6)

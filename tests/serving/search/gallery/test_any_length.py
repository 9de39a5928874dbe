"""A model with embeddings of any length: its index compares by Euclidean distance."""

import contextlib

import keras
import numpy as np
import pytest

from serving.client import EndpointClient
from serving.export.combined import combine
from serving.export.exporting import export_run
from serving.search.gallery.changing import add_images
from serving.search.gallery.embedding import check_row
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.image_search import ImageSearch
from serving.search.gallery.indexing import embed_shard, index_images, merge_shards
from serving.search.gallery.query import File, Query
from serving.search.gallery.shards import Part
from tests.support.search_fixtures import serve_model
from tests.support.small_images import write_shapes
from tfdml.images import View, read_image
from tfdml.models import build_embedder

pytestmark = pytest.mark.slow

SIZE = 16


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Images, a model that keeps lengths, and its index."""
    root = tmp_path_factory.mktemp("any-length")
    write_shapes(root / "images", classes=4, images_per_class=3)
    write_shapes(root / "more", classes=5, images_per_class=1)
    keras.utils.set_random_seed(5)
    embedder = build_embedder(SIZE, 4, widths=(8,), unit_length=False)
    (root / "run").mkdir()
    embedder.save(root / "run" / "embedder.keras")
    export_run(root / "run", root / "models" / "shapes" / "1", warm_up_count=0)
    index_images(root / "images", root / "index", root / "models" / "shapes")
    return root, embedder


def embedded(embedder, files):
    pixels = [View(SIZE).central(read_image(file)) for file in files]
    return embedder.predict(np.stack(pixels).astype("float32"), verbose=0)


def test_nearest_image_is_at_the_smallest_distance(built):
    root, embedder = built
    index, gallery = load_gallery(root / "index")
    files = sorted((root / "images").rglob("*.png"))
    rows = embedded(embedder, files)
    assert index.metric == "squared_euclidean"
    assert (np.abs(np.linalg.norm(rows, axis=1) - 1) > 1e-3).all()
    query = root / "more" / "class-4" / "0.png"
    distances = np.square(rows - embedded(embedder, [query])).sum(axis=1)
    expected = [
        files[i].relative_to(root / "images").as_posix() for i in np.argsort(distances)
    ]
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve_model(root / "models" / "shapes"))
        client = stack.enter_context(EndpointClient(url))
        search = ImageSearch(index, gallery, client)
        hits = search.nearest(Query(File(query), k=12))
    assert [hit.item.id for hit in hits] == expected
    found = [-hit.similarity for hit in hits]
    np.testing.assert_allclose(found, np.sort(distances), rtol=1e-3, atol=1e-4)
    assert {hit.is_match for hit in hits} == {None}


def test_shards_and_added_images_keep_the_metric(built, tmp_path):
    root, embedder = built
    model = root / "models" / "shapes"
    shards = [tmp_path / "1", tmp_path / "2"]
    for number, shard in enumerate(shards, start=1):
        embed_shard(root / "images", shard, model, Part(number, 2))
    merge_shards(tmp_path / "index", shards)
    report = add_images(tmp_path / "index", root / "more" / "class-4", model=model)
    assert report.added == 1
    index, _ = load_gallery(tmp_path / "index")
    with index:
        assert index.metric == "squared_euclidean"
        query = embedded(embedder, [root / "more" / "class-4" / "0.png"])
        found = index.search(query, 1)
        assert found.ids.tolist() == [["0.png"]]
        assert abs(float(found.scores[0, 0])) < 1e-3


def test_model_that_searches_is_refused(built, tmp_path):
    pytest.importorskip("scann")
    root, _ = built
    with pytest.raises((ValueError, RuntimeError)) as raised:
        combine(root / "models" / "shapes", root / "index", tmp_path / "search" / "1")
    if isinstance(raised.value, ValueError):  # else its operators are not here
        assert "must compare by cosine" in str(raised.value)
    assert not (tmp_path / "search" / "1").exists()


def test_embedding_that_is_not_finite_is_refused():
    check_row(np.array([3.0, 4.0]), "a.png", "squared_euclidean")
    with pytest.raises(ValueError, match="must return finite embeddings"):
        check_row(np.array([np.inf, 4.0]), "a.png", "squared_euclidean")
    with pytest.raises(ValueError, match="embeddings of length 1"):
        check_row(np.array([3.0, 4.0]), "a.png")

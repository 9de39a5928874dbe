"""The map of a gallery: places, clusters, its file and its thread."""

import json
import logging
import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from serving.search.gallery import map_layout
from serving.search.gallery.map import GalleryMap, MapError
from serving.search.gallery.map_layout import MapLayout, lay_out
from tfdml.index import ExactIndex, load_index
from tfdml.plots import embedding_map


def clustered(sizes=(12, 7, 4), dimension=16):
    """Draw well separated clusters, and an index of them by the name of the cluster."""
    rng = np.random.default_rng(0)
    centers = np.repeat(rng.normal(size=(len(sizes), dimension)), sizes, axis=0)
    rows = centers + 0.02 * rng.normal(size=centers.shape)
    ids = [f"{c}/{i}" for c, size in enumerate(sizes) for i in range(size)]
    return ExactIndex.build(rows, ids)


def finished(gallery_map, seconds=60):
    """Ask for the map until the one of the gallery as it is is there."""
    end = time.monotonic() + seconds
    while (layout := gallery_map.get()) is None or not layout.is_current:
        assert time.monotonic() < end
        for thread in threading.enumerate():
            if thread.name == "gallery map":
                thread.join(seconds)
    return layout


def test_clusters_are_found_by_the_metric_of_the_index():
    lengths = [1.0, 1.1, 1.2, 1.3, 1.4, 50.0, 50.1, 50.2]  # in one direction
    rows = np.outer(lengths, [0.6, 0.8]).astype("float32")
    index = ExactIndex.build(rows, list("abcdefgh"), metric="squared_euclidean")
    by_id = {point.id: point.cluster for point in lay_out(index).points}
    assert [by_id[id_] for id_ in "abcdefgh"] == [0] * 5 + [1] * 3


@pytest.fixture
def layouts(monkeypatch):
    """Count how often t-SNE runs; it may be made to wait or to fail."""

    class Layouts:
        count = 0
        go = threading.Event()
        error = None

        def __call__(self, embeddings, seed):
            self.count += 1
            assert self.go.wait(60)
            if self.error is not None:
                raise self.error
            return np.asarray(embeddings, "float32")[:, :2]

    counted = Layouts()
    counted.go.set()
    monkeypatch.setattr(map_layout, "embedding_map", counted)
    return counted


# The layout


def test_places_are_those_of_t_sne_scaled_alike_into_the_unit_square():
    index = clustered()
    layout = lay_out(index, seed=3)
    ids = [point.id for point in layout.points]
    assert sorted(ids) == sorted(index.ids)
    raw = embedding_map(index.get(ids).embeddings, 3).astype("float64")
    found = np.array([(point.x, point.y) for point in layout.points])
    low, high = found.min(axis=0), found.max(axis=0)
    longer = int(np.argmax(np.ptp(raw, axis=0)))
    assert (low[longer], high[longer]) == (0, 1)
    assert low[1 - longer] + high[1 - longer] == pytest.approx(1)  # in the middle
    scale = np.ptp(raw, axis=0).max()
    np.testing.assert_allclose(
        found - found[0], (raw - raw[0]) / scale, atol=1e-6, rtol=0
    )


def test_clusters_of_the_embeddings_are_numbered_from_the_largest():
    sizes = (14, 4, 9, 5)  # 32 items, so that 4 clusters are looked for
    layout = lay_out(clustered(sizes))
    number_of = {}
    for point in layout.points:
        number_of.setdefault(point.id.split("/")[0], set()).add(point.cluster)
    assert number_of == {"0": {0}, "2": {1}, "3": {2}, "1": {3}}


@pytest.mark.parametrize(
    ("items", "most"), [(1, 1), (2, 1), (3, 1), (5, 2), (32, 4), (100, 7), (1500, 24)]
)
def test_number_of_clusters_follows_from_the_number_of_items(items, most, layouts):
    rows = np.random.default_rng(0).normal(size=(items, 4))
    clusters = {point.cluster for point in lay_out(ExactIndex.build(rows)).points}
    assert most == min(24, max(1, round(math.sqrt(items / 2))))
    assert clusters == set(range(most))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["random", "equal", "one differs", "one dimension"])
def test_few_and_equal_embeddings_have_a_map(count, kind):
    rows = np.random.default_rng(0).normal(size=(count, 6))
    if kind in ("equal", "one differs"):
        rows[:] = rows[0].copy()
    if kind == "one differs":
        rows[-1] *= -1
    if kind == "one dimension":
        rows = np.abs(rows[:, :1])
    layout = lay_out(ExactIndex.build(rows))
    assert len(layout.points) == layout.of == count
    for point in layout.points:
        assert 0 <= point.x <= 1
        assert 0 <= point.y <= 1
    if kind in ("equal", "one dimension"):
        assert {(point.x, point.y) for point in layout.points} == {(0.5, 0.5)}
        assert {point.cluster for point in layout.points} == {0}


def test_zero_vectors_of_a_dot_product_index_have_a_place():
    rows = np.concatenate([np.zeros((2, 3)), np.eye(3)])
    index = ExactIndex.build(rows, metric="dot_product")
    assert len(lay_out(index).points) == 5


def test_empty_gallery_has_an_empty_map():
    layout = lay_out(ExactIndex.build(np.empty((0, 4))))
    assert layout.points == ()
    assert layout.of == 0


def test_large_gallery_is_sampled_by_the_seed(layouts):
    rows = np.random.default_rng(0).normal(size=(300, 4))
    index = ExactIndex.build(rows)

    def ids(seed, limit=40):
        layout = lay_out(index, limit=limit, seed=seed)
        assert layout.of == 300
        return [point.id for point in layout.points]

    assert ids(0) == ids(0)
    assert len(set(ids(0))) == 40
    assert set(ids(0)) != set(ids(1))
    # Whoever shows the first ones only shows a sample of all.
    assert abs(np.mean(ids(2, limit=300)[:100]) - 149.5) < 30


def test_states_differ_by_seed_also_where_the_sample_is_the_same():
    index = ExactIndex.build([[1.0, 2.0]])
    states = {lay_out(index, seed=seed).state for seed in (0, 1, 1)}
    assert len(states) == 2


def test_limit_and_seed_are_checked():
    index = clustered()
    for arguments in ({"limit": 0}, {"seed": -1}, {"limit": 2.5}):
        with pytest.raises(ValueError, match=f"`{next(iter(arguments))}` must be"):
            lay_out(index, **arguments)
        with pytest.raises(ValueError, match=f"`{next(iter(arguments))}` must be"):
            GalleryMap(index, **arguments)


@pytest.mark.parametrize("ids", [["cat/ü.png", "b", "c"], [7, -8, 2**60]])
def test_layout_survives_json(ids, layouts):
    layout = lay_out(ExactIndex.build(np.eye(3), ids))
    values = json.loads(json.dumps(layout.to_json()))
    assert values["method"] == "t-SNE"
    assert MapLayout.from_json(values) == layout


# In the background


def test_map_is_computed_once_while_others_wait_without_blocking(layouts):
    layouts.go.clear()
    with GalleryMap(clustered()) as gallery_map:
        assert [gallery_map.get() for _ in range(5)] == [None] * 5
        layouts.go.set()
        layout = finished(gallery_map)
        assert gallery_map.get() is layout
    assert layout.of == 23
    assert layouts.count == 1


def test_many_threads_that_ask_at_once_start_one_computation(layouts):
    layouts.go.clear()
    with GalleryMap(clustered()) as gallery_map:
        threads = [threading.Thread(target=gallery_map.get) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        layouts.go.set()
        finished(gallery_map)
    assert layouts.count == 1


def add(index):
    index.add(np.ones((1, 16)), ["new"])


def remove(index):
    index.remove(["0/0"])


def update(index):  # all of them, so that their order stays
    index.update(index.ids, index.get(index.ids).embeddings[::-1])


@pytest.mark.parametrize("change", [add, remove, update])
def test_changed_gallery_gets_a_new_map(change, layouts):
    index = clustered()
    with GalleryMap(index, rest_seconds=0) as gallery_map:
        before = finished(gallery_map)
        layouts.go.clear()
        change(index)
        for _ in range(2):  # when it begins, and while it is computed
            assert gallery_map.get() == replace(before, is_current=False)
        layouts.go.set()
        after = finished(gallery_map)
    assert after.state != before.state
    assert {point.id for point in after.points} == set(index.ids)
    assert layouts.count == 2


def test_gallery_that_changes_all_the_time_keeps_its_map_for_a_while(layouts):
    index = clustered()
    with GalleryMap(index, rest_seconds=1e6) as gallery_map:
        before = finished(gallery_map)
        for change in (add, remove):
            change(index)
            assert gallery_map.get() == replace(before, is_current=False)
    assert layouts.count == 1


def test_gallery_that_changes_while_its_map_is_computed_gets_the_new_one(layouts):
    index = clustered()
    layouts.go.clear()
    with GalleryMap(index, rest_seconds=0) as gallery_map:
        gallery_map.get()
        add(index)
        layouts.go.set()
        layout = finished(gallery_map)
    assert "new" in {point.id for point in layout.points}


def test_new_searcher_of_the_same_items_keeps_the_map(layouts):
    index = clustered()
    add(index)
    with GalleryMap(index) as gallery_map:
        layout = finished(gallery_map)
        index.compact()
        assert gallery_map.get() is layout


def test_close_waits_for_the_thread(layouts):
    layouts.go.clear()
    gallery_map = GalleryMap(clustered())
    gallery_map.get()
    threading.Timer(0.2, layouts.go.set).start()
    gallery_map.close()
    assert not [t for t in threading.enumerate() if t.name == "gallery map"]
    with pytest.raises(MapError, match="closed"):
        gallery_map.get()
    gallery_map.close()


def test_error_is_reported_until_the_gallery_changes(layouts, caplog):
    index = clustered()
    layouts.error = ImportError("A map of embeddings needs scikit-learn.")
    with GalleryMap(index) as gallery_map:
        for _ in range(2):
            with pytest.raises(MapError, match="needs scikit-learn") as raised:
                finished(gallery_map)
            assert raised.value.__cause__ is layouts.error
        assert layouts.count == 1
        assert "could not be computed" in caplog.text
        layouts.error = None
        add(index)
        assert len(finished(gallery_map).points) == 24


# Its file


def test_map_is_kept_beside_the_index_and_read_again(tmp_path, layouts):
    index = clustered()
    index.save(tmp_path)
    with GalleryMap(index, tmp_path) as gallery_map:
        layout = finished(gallery_map)
    with load_index(tmp_path) as loaded, GalleryMap(loaded, tmp_path) as gallery_map:
        assert gallery_map.get() == layout
        loaded.save(tmp_path)
        assert gallery_map.get() == layout
    assert layouts.count == 1
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert {name for name in names if "map" in name} == {"map.json"}


def test_file_of_another_state_or_seed_is_replaced(tmp_path, layouts):
    index = clustered()
    index.save(tmp_path)
    for count, (seed, limit) in enumerate([(0, 2000), (1, 2000), (1, 9), (1, 9)], 1):
        with GalleryMap(index, tmp_path, seed=seed, limit=limit) as gallery_map:
            layout = finished(gallery_map)
        assert layouts.count == min(count, 3)
        kept = json.loads((tmp_path / "map.json").read_text(encoding="utf-8"))
        assert MapLayout.from_json(kept) == layout
    index.remove(["0/0"])
    with GalleryMap(index, tmp_path, seed=1, limit=9) as gallery_map:
        finished(gallery_map)
    assert layouts.count == 4
    index.close()


def damaged(values):
    point = values["points"][0]
    return [
        "",
        "[]",
        "{",
        json.dumps(values | {"format": 2}),
        json.dumps(values | {"method": "UMAP"}),
        json.dumps(values | {"points": [1]}),
        json.dumps(values | {"points": [point | {"x": 1.5}]}),
        json.dumps(values | {"points": [point | {"y": float("nan")}]}),
        json.dumps(values | {"points": [point | {"z": 0}]}),
        json.dumps({key: values[key] for key in values if key != "state"}),
    ]


@pytest.mark.parametrize("number", range(10))
def test_damaged_file_is_computed_again(number, tmp_path, layouts, caplog):
    index = clustered()
    with GalleryMap(index, tmp_path) as gallery_map:
        layout = finished(gallery_map)
    file = tmp_path / "map.json"
    file.write_text(damaged(layout.to_json())[number], encoding="utf-8")
    with GalleryMap(index, tmp_path) as gallery_map:
        assert finished(gallery_map) == layout
    assert layouts.count == 2
    assert "is computed again" in caplog.text
    assert MapLayout.from_json(json.loads(file.read_text(encoding="utf-8"))) == layout


def test_map_that_cannot_be_kept_is_still_given(tmp_path, layouts, caplog):
    caplog.set_level(logging.WARNING)
    with GalleryMap(clustered(), tmp_path / "missing") as gallery_map:
        assert finished(gallery_map).of == 23
    assert "cannot be kept" in caplog.text
    assert list(tmp_path.iterdir()) == []

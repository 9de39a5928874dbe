"""Indexes against exact neighbours, and their folders through moves and kills."""

import doctest
import json
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from tfdml import index as index_module
from tfdml import index_files, neighbors, scann_search
from tfdml.index import (
    ExactIndex,
    IndexFileError,
    ScannIndex,
    SearchResult,
    load_index,
)
from tfdml.neighbors import nearest_neighbors
from tfdml.scann_search import choose_settings

BOTH = pytest.mark.parametrize("index_class", [ExactIndex, ScannIndex])
METRICS = pytest.mark.parametrize("metric", ["cosine", "dot_product"])
METHODS = pytest.mark.parametrize("method", ["exact", "hashing", "tree"])


def clustered(rows, dimension, clusters, queries=0):
    """Draw a gallery from Gaussian clusters, and queries from the same ones."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(clusters, dimension))
    noise = 0.5 * rng.normal(size=(rows + queries, dimension))
    points = centers[rng.integers(clusters, size=rows + queries)] + noise
    points = points.astype(np.float32)
    return (points[:rows], points[rows:]) if queries else points


@pytest.fixture
def use_method(monkeypatch):
    """Return a function that makes ScaNN use a method for galleries of any size."""

    def use(method):
        hashing_from, tree_above = {
            "exact": (10**9, 10**9),
            "hashing": (0, 10**9),
            "tree": (0, 0),
        }[method]
        monkeypatch.setattr(scann_search, "_HASHING_FROM", hashing_from)
        monkeypatch.setattr(scann_search, "_TREE_ABOVE", tree_above)

    return use


def recall(found, true):
    hits = [len(set(a) & set(b)) for a, b in zip(found, true, strict=True)]
    return sum(hits) / true.size


def run_python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(index_module.__file__).parents[1])},
    )


def snapshot(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def rewrite_manifest(folder, **changes):
    """Change a manifest as its writer could have, with a SHA-256 that fits."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | changes
    manifest.pop("sha256")
    manifest["sha256"] = index_files._digest(manifest)
    path.write_text(json.dumps(manifest))


# Search


@METRICS
def test_exact_index_answers_like_nearest_neighbors_to_the_last_bit(metric):
    gallery, queries = clustered(300, 9, 20, queries=40)
    result = ExactIndex.build(gallery, metric=metric).search(queries, k=7)
    rows, scores = nearest_neighbors(queries, gallery, 7, metric=metric)
    np.testing.assert_array_equal(result.ids, rows)
    np.testing.assert_array_equal(result.scores, scores)


@METRICS
@METHODS
def test_scann_index_that_scores_all_rows_equals_exact_search(
    metric, method, use_method
):
    # With 10 k at least the size of the gallery, every row is scored exactly.
    use_method(method)
    gallery, queries = clustered(300, 9, 20, queries=40)
    index = ScannIndex.build(gallery, metric=metric)
    assert index.settings.method == method
    result = index.search(queries, k=30)
    rows, scores = nearest_neighbors(queries, gallery, 30, metric=metric)
    np.testing.assert_array_equal(result.ids, rows)
    np.testing.assert_allclose(result.scores, scores, rtol=1e-5, atol=1e-5)
    assert result.scores.dtype == np.float32


@METRICS
@METHODS
def test_asking_for_all_rows_returns_each_once(metric, method, use_method):
    use_method(method)
    gallery = clustered(400, 6, 15)
    ids, scores = ScannIndex.build(gallery, metric=metric).search(gallery[:5], k=400)
    np.testing.assert_array_equal(np.sort(ids), np.tile(np.arange(400), (5, 1)))
    assert (np.diff(scores) <= 0).all()


@METHODS
def test_blocks_of_queries_do_not_change_the_answer(method, use_method, monkeypatch):
    use_method(method)
    gallery = clustered(400, 6, 15)
    index = ScannIndex.build(gallery)
    whole = index.search(gallery[:50], k=4)
    monkeypatch.setattr(scann_search, "_BLOCK_CANDIDATES", 700)
    blocks = index.search(gallery[:50], k=4)
    np.testing.assert_array_equal(blocks.ids, whole.ids)
    np.testing.assert_array_equal(blocks.scores, whole.scores)


@pytest.mark.parametrize("metric", ["cosine", "dot_product"])
def test_hashing_keeps_recall(metric):
    gallery, queries = clustered(25_000, 32, 500, queries=200)
    index = ScannIndex.build(gallery, metric=metric)
    assert index.settings.method == "hashing"
    true, _ = nearest_neighbors(queries, gallery, 10, metric=metric)
    assert recall(index.search(queries, k=10).ids, true) > 0.98


@pytest.mark.parametrize("metric", ["cosine", "dot_product"])
def test_tree_keeps_recall(metric, use_method):
    use_method("tree")
    gallery, queries = clustered(25_000, 32, 500, queries=200)
    index = ScannIndex.build(gallery, metric=metric)
    true, _ = nearest_neighbors(queries, gallery, 10, metric=metric)
    assert recall(index.search(queries, k=10).ids, true) > 0.95


@pytest.mark.slow
def test_gallery_above_100000_rows_gets_a_tree_that_keeps_recall():
    gallery, queries = clustered(100_001, 32, 1000, queries=100)
    index = ScannIndex.build(gallery)
    assert index.settings.method == "tree"
    true, _ = nearest_neighbors(queries, gallery, 10)
    assert recall(index.search(queries, k=10).ids, true) > 0.95


@pytest.mark.parametrize("scale", [1e-25, 1e-5, 1e15])
@METHODS
def test_embeddings_of_any_length_are_found(scale, method, use_method):
    # ScaNN alone has a recall of 0.03 (hashing) and 0.15 (tree) at length 1e-5.
    use_method(method)
    gallery, queries = clustered(3000, 16, 60, queries=50)
    gallery = (gallery * scale).astype(np.float32)
    ids, scores = ScannIndex.build(gallery, metric="dot_product").search(queries)
    true, _ = nearest_neighbors(queries, gallery, 10, metric="dot_product")
    assert recall(ids, true) > {"exact": 0.999, "hashing": 0.95, "tree": 0.7}[method]
    exact = np.einsum("qd,qkd->qk", queries, gallery[ids], dtype=np.float64)
    np.testing.assert_allclose(scores, exact, rtol=1e-4)


def test_lengths_of_queries_do_not_matter_beyond_their_scores():
    gallery = clustered(300, 8, 20)
    index = ScannIndex.build(gallery, metric="dot_product")
    queries = gallery[:4] * np.float32([[1e-30], [1], [1e20], [0]])
    result = index.search(queries, k=5)
    np.testing.assert_array_equal(result.ids[:3], index.search(gallery[:3], k=5).ids)
    assert (result.scores[3] == 0).all()


@BOTH
def test_dot_product_above_float32_is_refused(index_class):
    index = index_class.build([[1e30, 0]], metric="dot_product")
    with pytest.raises(ValueError, match="too large for float32"):
        index.search([[1e30, 0]], k=1)


def test_settings_follow_from_the_size():
    sizes = [1, 19_999, 20_000, 100_000, 100_001, 1_000_000]
    chosen = [choose_settings(size, unit=True) for size in sizes]
    assert [settings.method for settings in chosen] == [
        "exact", "exact", "hashing", "hashing", "tree", "tree",
    ]  # fmt: skip
    assert [settings.leaves for settings in chosen] == [0, 0, 0, 0, 316, 1000]
    assert [settings.leaves_to_search for settings in chosen[4:]] == [32, 100]
    for settings in chosen[2:]:
        assert settings.dimensions_per_block == 2
        assert settings.anisotropic_threshold == 0.2
    assert chosen[4].spherical
    assert not choose_settings(100_001, unit=False).spherical
    assert chosen[2].reason == "20000 rows are from 20000 to 100000."


@BOTH
def test_no_queries_give_no_answers(index_class):
    index = index_class.build(np.eye(4), ids=list("abcd"))
    result = index.search(np.empty((0, 4)), k=3)
    assert isinstance(result, SearchResult)
    assert result.ids.shape == result.scores.shape == (0, 3)


@BOTH
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8, ">f4"])
def test_other_dtypes_are_read_as_float32(index_class, dtype):
    gallery = np.array([[1, 0], [0, 1], [3, 4]], dtype)
    ids, scores = index_class.build(gallery).search(gallery[:1], k=3)
    assert ids.tolist() == [[0, 2, 1]]
    np.testing.assert_allclose(scores, [[1, 0.6, 0]], atol=1e-6)


@BOTH
@METRICS
def test_gallery_is_neither_modified_nor_shared(index_class, metric):
    gallery = clustered(50, 4, 5)
    before = gallery.copy()
    index = index_class.build(gallery, metric=metric)
    first = index.search(before[:6], k=5)
    np.testing.assert_array_equal(gallery, before)
    gallery[:] = gallery[::-1].copy()
    again = index.search(before[:6], k=5)
    np.testing.assert_array_equal(again.ids, first.ids)
    np.testing.assert_array_equal(again.scores, first.scores)


# Ids


@BOTH
@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (["cat/1.png", "Straße/ü.jpg", ""], "U"),
        (np.array(["a", "bb", "ccc"]), "U"),
        (np.array(["a", "bb", "ccc"], dtype=object), "U"),
        ([7, -3, 2**62], "i"),
        (np.array([3, 1, 2], dtype=np.uint8), "i"),
        (range(5, 8), "i"),
    ],
)
def test_ids_come_back_after_a_save(index_class, ids, kind, tmp_path):
    index_class.build(np.eye(3), ids=ids).save(tmp_path / "index")
    index = index_class.load(tmp_path / "index")
    assert index.ids.tolist() == list(ids)
    assert index.ids.dtype.kind == kind
    found = index.search(np.eye(3), k=1).ids
    assert found[:, 0].tolist() == list(ids)
    assert found.dtype == index.ids.dtype


@BOTH
def test_ids_are_rows_by_default(index_class):
    index = index_class.build(np.eye(3))
    assert index.ids.tolist() == [0, 1, 2]
    assert index.ids.dtype == np.int64


def test_ids_are_copied_and_read_only():
    ids = np.array([4, 5])
    index = ExactIndex.build(np.eye(2), ids=ids)
    ids[:] = 0
    assert index.ids.tolist() == [4, 5]
    with pytest.raises(ValueError, match="read-only"):
        index.ids[0] = 1


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a"], r"`ids` must hold one id for each of the 2 rows.*1 ids"),
        (["a", 1], r"all strings or all integers.*int, str"),
        ([1.0, 2.0], r"all strings or all integers.*float"),
        ([True, False], r"all strings or all integers.*bool"),
        ([b"a", b"b"], r"all strings or all integers.*bytes"),
        (np.array([[1], [2]]), r"all strings or all integers.*list"),
        ([1, 2**63], r"`ids` must fit int64"),
        (["a", "a\0"], r"`ids` must not contain the character NUL"),
        (["a", "a"], r"`ids` must not repeat.*'a' 2 times"),
        ([3, 3], r"`ids` must not repeat.*3 2 times"),
    ],
)
def test_bad_ids_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        ExactIndex.build(np.eye(2), ids=ids)


# Arguments


@BOTH
def test_properties_say_what_was_built(index_class):
    index = index_class.build(np.eye(3), metric="dot_product", model_fingerprint="m1")
    assert (len(index), index.dimension) == (3, 3)
    assert (index.metric, index.model_fingerprint) == ("dot_product", "m1")


@BOTH
def test_bad_arguments_of_build_are_refused(index_class):
    with pytest.raises(ValueError, match=r"`metric` must be one of.*'squared_l2'"):
        index_class.build(np.eye(2), metric="squared_l2")
    with pytest.raises(ValueError, match="`embeddings` must have at least one row"):
        index_class.build(np.empty((0, 2)))
    with pytest.raises(ValueError, match=r"`embeddings`.*shape=\(2,\)"):
        index_class.build(np.ones(2))
    with pytest.raises(ValueError, match="`model_fingerprint` must be a string"):
        index_class.build(np.eye(2), model_fingerprint=7)


@BOTH
@pytest.mark.parametrize("k", [0, -1, 4, 10**9])
def test_k_out_of_range_is_refused(index_class, k):
    with pytest.raises(ValueError, match=rf"`k` must be from 1 to 3.*k={k}"):
        index_class.build(np.eye(3)).search(np.eye(3), k=k)


@BOTH
def test_k_must_be_an_integer(index_class):
    with pytest.raises(TypeError, match="`k` must be an integer"):
        index_class.build(np.eye(3)).search(np.eye(3), k=2.0)


@BOTH
def test_single_query_is_refused_with_the_remedy(index_class):
    with pytest.raises(ValueError, match=r"`queries`.*vector\[None, :\]"):
        index_class.build(np.eye(3)).search(np.ones(3), k=1)


# Files


@METRICS
@METHODS
def test_loaded_scann_index_answers_as_before(metric, method, use_method, tmp_path):
    use_method(method)
    gallery = clustered(2000, 8, 40)
    built = ScannIndex.build(gallery, metric=metric, model_fingerprint="m1")
    built.save(tmp_path / "index")
    use_method("exact")  # the saved settings count, not those of today
    loaded = load_index(tmp_path / "index", model_fingerprint="m1")
    assert type(loaded) is ScannIndex
    assert loaded.settings == built.settings
    assert (len(loaded), loaded.dimension, loaded.metric) == (2000, 8, metric)
    for k in (1, 10, 500):
        before, after = built.search(gallery[:30], k), loaded.search(gallery[:30], k)
        np.testing.assert_array_equal(after.ids, before.ids)
        np.testing.assert_array_equal(after.scores, before.scores)


@METRICS
def test_loaded_exact_index_answers_as_before(metric, tmp_path):
    gallery = clustered(200, 8, 40)
    built = ExactIndex.build(gallery, metric=metric, model_fingerprint="m1")
    built.save(tmp_path / "index")
    loaded = load_index(str(tmp_path / "index"))
    assert type(loaded) is ExactIndex
    assert loaded.model_fingerprint == "m1"
    before, after = built.search(gallery[:30], 10), loaded.search(gallery[:30], 10)
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_array_equal(after.scores, before.scores)


@METHODS
def test_copy_outlives_its_original(method, use_method, tmp_path):
    use_method(method)
    gallery = clustered(500, 8, 20)
    index = ScannIndex.build(gallery)
    index.save(tmp_path / "original")
    true = index.search(gallery[:20], k=5)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    for path in (tmp_path / "original").rglob("*.npy"):
        path.write_bytes(b"changed")
    copied = load_index(tmp_path / "copy")
    shutil.rmtree(tmp_path / "original")
    (tmp_path / "copy").rename(tmp_path / "moved")
    moved = load_index(tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved")  # a loaded index needs its files no more
    for loaded in (copied, moved):
        np.testing.assert_array_equal(loaded.search(gallery[:20], k=5).ids, true.ids)


def test_saved_index_names_no_machine_path(tmp_path, use_method):
    use_method("tree")
    ScannIndex.build(clustered(500, 8, 20)).save(tmp_path / "index")
    for content in snapshot(tmp_path / "index").values():
        assert str(tmp_path).encode() not in content


def test_saved_index_has_no_pickle(tmp_path):
    ScannIndex.build(np.eye(3), ids=list("abc")).save(tmp_path / "index")
    names = {path.name for path in snapshot(tmp_path / "index")}
    assert names == {
        "manifest.json", "ids.npy", "dataset.npy", "scann_assets.pbtxt",
        "scann_config.pb",
    }  # fmt: skip


@BOTH
def test_index_is_replaced_by_a_later_save(index_class, tmp_path):
    index_class.build(np.eye(3)).save(tmp_path)
    later = ExactIndex.build(np.eye(4), ids=list("abcd"))
    later.save(tmp_path)
    assert load_index(tmp_path).ids.tolist() == list("abcd")
    assert len(list(tmp_path.iterdir())) == 2  # nothing of the first is left
    load_index(tmp_path).save(tmp_path)
    assert load_index(tmp_path).ids.tolist() == list("abcd")


def test_folder_of_something_else_is_refused_and_unharmed(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "data-0123456789abcdef").mkdir()
    with pytest.raises(IndexFileError, match="must be empty or hold an index"):
        ExactIndex.build(np.eye(2)).save(tmp_path)
    assert (tmp_path / "data-0123456789abcdef").is_dir()
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    with pytest.raises(IndexFileError, match="must be empty or hold an index"):
        ExactIndex.build(np.eye(2)).save(tmp_path)
    with pytest.raises(IndexFileError, match="must be a folder"):
        ExactIndex.build(np.eye(2)).save(tmp_path / "thesis.txt")


def test_files_beside_an_index_stay(tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    (tmp_path / "classes.json").write_text("{}")
    ExactIndex.build(np.eye(3)).save(tmp_path)
    assert (tmp_path / "classes.json").read_text() == "{}"
    assert len(load_index(tmp_path)) == 3


def test_failed_save_leaves_the_old_index(tmp_path, monkeypatch):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    before = snapshot(tmp_path)

    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(index_module.np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        ExactIndex.build(np.eye(3)).save(tmp_path)
    assert snapshot(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == 2


def test_threads_that_save_to_one_folder_take_turns(tmp_path):
    indexes = [ExactIndex.build(np.eye(n)) for n in range(1, 9)]
    threads = [threading.Thread(target=i.save, args=(tmp_path,)) for i in indexes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(load_index(tmp_path)) <= 8
    assert len(list(tmp_path.iterdir())) == 2


def test_folder_that_another_saves_to_first_is_not_taken_for_foreign(
    tmp_path, monkeypatch
):
    list_folder = Path.iterdir

    def saved_meanwhile(path):
        monkeypatch.setattr(Path, "iterdir", list_folder)
        ExactIndex.build(np.eye(2)).save(tmp_path)
        return list_folder(path)

    monkeypatch.setattr(Path, "iterdir", saved_meanwhile)
    index_files.check_destination(tmp_path)
    assert len(load_index(tmp_path)) == 2


def test_load_during_a_save_gets_the_new_index(tmp_path, monkeypatch):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    check_file = index_files._check_file

    def replaced_meanwhile(path, measure):
        monkeypatch.setattr(index_files, "_check_file", check_file)
        ExactIndex.build(np.eye(3)).save(tmp_path)
        check_file(path, measure)

    monkeypatch.setattr(index_files, "_check_file", replaced_meanwhile)
    assert len(load_index(tmp_path)) == 3


def test_missing_index_is_named(tmp_path):
    with pytest.raises(IndexFileError, match=r"holds no index.*manifest\.json"):
        load_index(tmp_path / "nowhere")


@BOTH
def test_index_of_another_model_is_refused(index_class, tmp_path):
    index_class.build(np.eye(2), model_fingerprint="m1").save(tmp_path)
    assert index_class.load(tmp_path, model_fingerprint="m1").model_fingerprint == "m1"
    for load in (load_index, index_class.load):
        with pytest.raises(IndexFileError, match=r"`model_fingerprint`.*'m1'.*'m2'"):
            load(tmp_path, model_fingerprint="m2")


def test_index_of_another_class_is_refused(tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    with pytest.raises(IndexFileError, match=r"must hold a ScannIndex.*`load_index`"):
        ScannIndex.load(tmp_path)
    rewrite_manifest(tmp_path, **{"class": "OtherIndex"})
    with pytest.raises(IndexFileError, match=r"must hold one of.*a OtherIndex"):
        load_index(tmp_path)


def test_unknown_format_version_is_refused(tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    rewrite_manifest(tmp_path, format_version=2)
    with pytest.raises(IndexFileError, match=r"format version 2.*reads version 1"):
        load_index(tmp_path)


def test_edited_manifest_is_refused(tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"cosine"', '"dot_product"'))
    with pytest.raises(IndexFileError, match="does not match its own SHA-256"):
        load_index(tmp_path)


def test_manifest_cannot_lead_outside_its_folder(tmp_path):
    ExactIndex.build(np.eye(2)).save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    for changes in (
        {"data": "../elsewhere"},
        {"files": {"../ids.npy": {}}},
        {"files": manifest["files"] | {"scann_docids.pkl": {}}},
    ):
        rewrite_manifest(tmp_path, **changes)
        with pytest.raises(IndexFileError, match="names files that an index does not"):
            load_index(tmp_path)
        rewrite_manifest(tmp_path, **manifest)


KILLED_SAVES = """
    import os, shutil, sys
    from pathlib import Path
    import numpy as np
    from tfdml.index import ExactIndex, load_index

    folder = Path(sys.argv[1])
    old, new = ExactIndex.build(np.eye(2)), ExactIndex.build(np.eye(3))
    left, armed = 0, False

    def die(event, args):
        # Python reports each step on files before it is done.
        global left
        if armed and event.split(".")[0] in ("open", "os", "shutil", "fcntl"):
            left -= 1
            if left < 0:
                os._exit(9)

    sys.addaudithook(die)
    steps, lengths = 0, []
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if sys.argv[2] == "replace":
            old.save(folder)
        if (child := os.fork()) == 0:
            left, armed = steps, True
            new.save(folder)
            os._exit(0)
        killed = os.waitpid(child, 0)[1] != 0
        try:
            lengths.append(len(load_index(folder)))
        except ValueError:
            lengths.append(0)
        old.save(folder)  # the leavings are in nobody's way
        assert len(load_index(folder)) == 2
        assert len(list(folder.iterdir())) == 2
        if not killed:
            break
        steps += 1
    print(*lengths)
"""


@pytest.mark.parametrize(("mode", "before"), [("replace", 2), ("create", 0)])
def test_save_that_is_killed_at_any_step_leaves_the_old_index(mode, before, tmp_path):
    result = run_python(KILLED_SAVES, str(tmp_path / "index"), mode)
    assert result.returncode == 0, result.stderr
    lengths = [int(number) for number in result.stdout.split()]
    switch = lengths.index(3)
    assert lengths == [before] * switch + [3] * (len(lengths) - switch)
    assert switch >= 10  # steps before the rename were indeed killed
    assert len(lengths) > switch + 1


# Imports


def test_exact_index_imports_neither_scann_nor_tensorflow():
    result = run_python("""
        import sys
        import numpy as np
        from tfdml.index import ExactIndex
        ExactIndex.build(np.eye(2)).search(np.eye(2), k=1)
        assert not {"scann", "tensorflow", "keras"} & set(sys.modules)
    """)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("scann", "reason"),
    [
        ("raise ModuleNotFoundError('no scann')", "ModuleNotFoundError: no scann"),
        # What TensorFlow's NotFoundError is to this code: not an ImportError.
        ("raise RuntimeError('undefined symbol')", "RuntimeError: undefined symbol"),
    ],
)
def test_missing_or_broken_scann_is_explained(scann, reason, tmp_path):
    (tmp_path / "scann.py").write_text(scann)
    result = run_python(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from tfdml.index import ScannIndex
        try:
            ScannIndex.build(np.eye(2))
        except ImportError as error:
            print(error)
        """
    )
    assert result.returncode == 0, result.stderr
    assert reason in result.stdout
    assert "pip install 'tfdml[search]'" in result.stdout


@pytest.mark.parametrize("module", [index_module, neighbors])
def test_examples_in_docstrings_are_right(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0

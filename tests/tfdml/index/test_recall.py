"""A recall is promised, measured on other queries than chose it, stored and kept."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from tests.support.index_examples import recall as recall_of
from tests.support.installed import skip_without
from tests.support.refuses import refusals, refuses
from tests.support.saved_indexes import run_python
from tfdml._core.embeddings import row_norms
from tfdml.index import LocalIndex, MeasuredRecall, load_index
from tfdml.index._recall import RecallTarget, recall_interval
from tfdml.index.engines import _settings as of_engines
from tfdml.index.engines import _tuning as tuning
from tfdml.index.engines._choice import CODED
from tfdml.index.engines._prepared import PreparedRows
from tfdml.index.engines._scann import ScannSearcher
from tfdml.neighbors import nearest_neighbors

skip_without("scann")
pytest.importorskip("faiss")

ENGINES = pytest.mark.parametrize("engine", ["scann", "faiss"])


def drawn(rows, dimension, clusters, queries=200, spread=0.5):
    """Draw unit embeddings around centers: a gallery, and queries like it."""
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(clusters, dimension))
    which = rng.integers(clusters, size=rows + queries)
    points = centers[which] + spread * rng.normal(size=(rows + queries, dimension))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    points = points.astype(np.float32)
    return points[:rows], points[rows:]


def recall(index, queries, gallery, metric="cosine"):
    """Compare with exact search, by the definition."""
    true, _ = nearest_neighbors(queries, gallery, 10, metric=metric)
    return recall_of(index.search(queries, 10).ids, true)


@pytest.fixture
def measure_all_sizes(monkeypatch):
    """Have small galleries measured like large ones."""
    limits = of_engines.EngineLimits(measured_from=400)
    monkeypatch.setattr(LocalIndex, "engine_limits", limits)


# What is promised


@pytest.mark.slow
@ENGINES
@pytest.mark.parametrize("metric", ["cosine", "dot_product"])
def test_clusters_get_a_tree_that_finds_what_was_promised(metric, engine):
    gallery, queries = drawn(20_000, 32, 400)
    index = LocalIndex.build(gallery, metric=metric, target_recall=0.99, engine=engine)
    assert (index.settings.method, index.settings.engine) == ("tree", engine)
    assert 2 * index.settings.leaves_to_search <= index.settings.leaves
    assert index.recall.queries == 1_000
    assert 0.99 <= index.recall.value <= 1
    assert index.recall.low < index.recall.value <= index.recall.high
    # Queries of its own: 200 of them tell a recall to about 0.003.
    assert recall(index, queries, gallery, metric) > 0.985


@pytest.mark.full
def test_without_clusters_the_promise_is_kept_without_a_tree():
    gallery, queries = drawn(20_000, 256, 20_000, spread=1.0)
    by_size = ScannSearcher.of_rows(
        PreparedRows(gallery, unit=True),
        of_engines.tree_settings(20_000, "", unit=True),
    )
    true, _ = nearest_neighbors(queries, gallery, 10)
    # What the usual rules would have given.
    assert recall_of(by_size.nearest(queries, 10)[0], true) < 0.8
    index = LocalIndex.build(gallery, target_recall=0.99)
    settings = index.settings
    is_full = 2 * settings.leaves_to_search > settings.leaves
    assert settings.method in ("hashing", "exact") or is_full
    assert index.recall.value >= 0.99
    assert recall(index, queries, gallery) > 0.985


def searcher_for(target, engine, *, exact=2.0, others=0.5, **measures):
    """Search 2,000 clustered rows, where searches cost what a test says."""

    def costs(searchers, queries, rounds):
        methods = [searcher.settings.method for searcher in searchers]
        return [exact if method == "exact" else others for method in methods]

    return tuning.searcher_for_target(
        drawn(2_000, 8, 40)[0],
        unit=True,
        target=RecallTarget(target, None, 0),
        engine=CODED[engine][0],
        costs=costs,
        **measures,
    )


@ENGINES
def test_target_that_no_setting_reaches_gives_exact_search_and_says_so(
    measure_all_sizes, engine
):
    gallery, _ = drawn(2_000, 64, 2_000, spread=1.0)
    index = LocalIndex.build(gallery, target_recall=1 - 1e-9, engine=engine)
    assert not index.settings.is_stand_in
    assert index.settings.method == "exact"
    reason = index.settings.reason
    assert "No setting reached recall@10 1 in less time" in reason
    assert "by tree" in reason
    assert "by hashing" in reason
    assert index.recall == MeasuredRecall(1.0, 10, 0, 1.0, 1.0, 1 - 1e-9, False)


@ENGINES
def test_reason_names_setting_recall_and_gain(engine):
    index = searcher_for(0.9, engine)
    settings = index.settings
    assert settings.method == "tree"
    part = f"{settings.leaves_to_search} of {settings.leaves} leaves"
    assert part in settings.reason
    assert f"{settings.reorder} items exactly" in settings.reason
    assert f"{index.recall.value:.4f}" in settings.reason
    assert "0.25 of the time" in settings.reason


def with_cores(monkeypatch, count):
    """Let this process think that it may use so many cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(count))


@ENGINES
def test_setting_that_takes_longer_than_exact_search_is_not_taken(engine):
    settings = searcher_for(0.9, engine, exact=1.0, others=1.5).settings
    assert (settings.method, settings.engine) == ("exact", "exact")


def test_setting_that_other_queries_find_short_is_not_taken(monkeypatch):
    asked = []

    def recalls_of(searcher, sample):
        recalls = tuning.recalls_of(searcher, sample)
        settings = searcher.settings
        # One thread searches while choosing, as many as there are when measuring.
        if searcher.threads != 1 and settings.method == "tree":
            asked.append((settings.leaves_to_search, settings.reorder))
            return recalls * 0.5 if len(asked) == 1 else recalls
        return recalls

    with_cores(monkeypatch, 2)
    index = searcher_for(0.9, "scann", recalls=recalls_of)
    assert index.recall.value >= 0.9
    assert len(asked) == 2
    assert (index.settings.leaves_to_search, index.settings.reorder) == asked[1]


def test_small_gallery_is_compared_as_a_whole_and_without_a_target_nothing_measured():
    gallery, _ = drawn(300, 8, 10)
    index = LocalIndex.build(gallery, target_recall=0.9)
    assert index.settings.method == "exact"
    assert index.recall == MeasuredRecall(1.0, 10, 0, 1.0, 1.0, 0.9, False)
    assert "comparing with all" in str(index)
    index = LocalIndex.build(gallery, target_recall=None)
    assert index.recall is None
    assert index.settings.method == "exact"
    assert "not measured" in str(index)


def test_tree_with_few_rows_a_leaf_is_trained_as_well():
    """With ScaNN's own numbers, which drop leaves of under 50 rows, it is 0.81."""
    gallery, queries = drawn(20_000, 32, 2_000)
    settings = of_engines.tree_settings(20_000, "", unit=True)
    searcher = ScannSearcher.of_rows(
        PreparedRows(gallery, unit=True), replace(settings, leaves_to_search=12)
    )
    true, _ = nearest_neighbors(queries, gallery, 10)
    assert recall_of(searcher.nearest(queries, 10)[0], true) > 0.9


@pytest.mark.parametrize("rows", [100_001, 1_000_000, 20_000_000])
def test_large_trees_are_trained_with_a_hundred_rows_for_each_leaf(rows):
    leaves = of_engines.tree_settings(rows, "", unit=True).leaves
    sample = of_engines.tree_training(leaves)["training_sample_size"]
    assert min(rows, sample) >= min(rows, 100 * leaves)


# How it is measured


def sample_of(gallery, rows, k=10):
    """Make a sample by exact search: items as queries, themselves left out."""
    true, scores = nearest_neighbors(gallery[rows], gallery, k, exclude=rows)
    return tuning.Sample(gallery[rows], rows, true, scores[:, -1])


def poor_searcher(gallery, leaves_to_search=1, engine="scann"):
    settings = of_engines.IndexSettings(
        "tree",
        "",
        dimensions_per_block=2,
        anisotropic_threshold=0.2,
        leaves=40,
        leaves_to_search=leaves_to_search,
        spherical=True,
        reorder=20,
        engine=engine,
    )
    return CODED[engine][0].of_rows(PreparedRows(gallery, unit=True), settings)


class CodedScann:
    """Scores exactly those rows of a gallery that are the best by noisy scores."""

    def __init__(self, gallery):
        self.gallery = gallery
        self.noise = np.random.default_rng(0).normal(size=len(gallery)) / 5

    def size(self):
        return len(self.gallery)

    def search(self, query, **asked):
        found, scores = self.search_batched(query[None], **asked)
        return found[0], scores[0]

    def search_batched(self, queries, final_num_neighbors, pre_reorder_num_neighbors):
        scores = queries @ self.gallery.T
        best = np.argsort(-scores - self.noise)[:, :pre_reorder_num_neighbors]
        left_out = np.ones(scores.shape, bool)
        np.put_along_axis(left_out, best, False, axis=1)
        scores[left_out] = -np.inf
        rows = np.argsort(-scores)[:, :final_num_neighbors]
        return rows.astype(np.uint32), np.take_along_axis(scores, rows, axis=1)


@pytest.mark.parametrize("reorder", [10, 40, 45])
def test_recall_is_that_of_searches_for_ten_of_queries_that_are_no_rows(reorder):
    gallery, _ = drawn(300, 16, 300)
    settings = replace(of_engines.hashing_settings(""), reorder=reorder)
    rows, expected = np.arange(0, 300, 7), []
    true, _ = nearest_neighbors(gallery[rows], gallery, 10, exclude=rows)
    scann = CodedScann(gallery)
    searcher = ScannSearcher(scann, settings, unit=True, scale=1.0, threads=1)
    for row, wanted in zip(rows, true, strict=True):
        without = CodedScann(np.delete(gallery, row, axis=0))
        without.noise = np.delete(scann.noise, row)
        served = ScannSearcher(without, settings, unit=True, scale=1.0, threads=1)
        found, _ = served.nearest(gallery[[row]], 10)
        found[found >= row] += 1
        expected.append(len(set(found[0]) & set(wanted)) / 10)
    recalls = tuning.recalls_of(searcher, sample_of(gallery, rows))
    np.testing.assert_allclose(recalls, expected)
    assert 0.2 < np.mean(expected) < 0.95


def test_as_many_leaves_are_searched_to_measure_as_for_ten():
    gallery, _ = drawn(2_000, 16, 200)
    searcher = poor_searcher(gallery)
    searcher = searcher.using(replace(searcher.settings, reorder=100), threads=1)
    asked = searcher._asked_for(10, own=1)[1]
    assert asked == searcher._asked(10)[1] | {
        "final_num_neighbors": 11,
        "pre_reorder_num_neighbors": 101,
    }
    rows = np.arange(5)
    found, scores = searcher.nearest_others(gallery[rows], rows, 10)
    assert found.shape == scores.shape == (5, 10)
    assert not (found == rows[:, None]).any()


def test_copies_of_a_neighbor_count_as_found():
    distinct, _ = drawn(60, 16, 60, spread=1.0)
    gallery = np.repeat(distinct, 40, axis=0)  # the 10 nearest are 10 of 39 copies
    searcher = poor_searcher(gallery, leaves_to_search=40)
    recalls = tuning.recalls_of(searcher, sample_of(gallery, np.arange(0, 2_400, 40)))
    assert recalls.min() == 1


@pytest.mark.parametrize("found", [90, 99, 100])
def test_interval_is_wilsons_where_queries_are_right_or_wrong(found):
    recalls = np.repeat([1.0, 0.0], [found, 100 - found])
    for end in recall_interval(recalls):  # that many standard deviations away
        off = 1.959963985 * np.sqrt(end * (1 - end) / 100)
        assert abs(found / 100 - end) == pytest.approx(off, abs=1e-8)


def test_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        recalls = rng.binomial(10, rng.beta(19, 1, 200)) / 10  # the mean is 0.95
        low, high = recall_interval(recalls)
        inside += low <= 0.95 <= high
    assert 0.91 <= inside / 400 <= 0.985


def test_queries_that_choose_and_that_measure_differ_and_follow_from_the_seed():
    gallery, _ = drawn(3_000, 8, 40)

    def rows(seed):
        target = RecallTarget(0.9, None, seed)
        made = tuning._Tuning(gallery, True, target, ScannSearcher, None, None, ())
        return made._choosing.own, made._measuring.own

    choosing, measuring = rows(0)
    assert len(choosing) == len(measuring) == 1_000
    assert not set(choosing) & set(measuring)
    np.testing.assert_array_equal(rows(0)[0], choosing)
    assert (rows(1)[0] != choosing).any()


# Queries of the caller


def test_own_queries_are_measured_with(measure_all_sizes):
    gallery, queries = drawn(1_000, 8, 40, queries=300)
    index = LocalIndex.build(gallery, target_recall=0.9, queries=queries)
    assert index.recall.own_queries
    assert index.recall.queries in (150, 0)  # none where exact search was faster


@pytest.mark.parametrize("emptied", [False, True])
def test_target_and_own_queries_stay_with_an_index_without_items(emptied, tmp_path):
    queries = drawn(1, 4, 5, queries=200)[1]
    rows = np.eye(4)[: 2 * emptied]
    index = LocalIndex.build(rows, queries=queries, target_recall=0.8)
    if emptied:
        index.remove([0, 1])
        index.compact()
    assert index.recall is None
    index.save(tmp_path)
    index.close()
    with load_index(tmp_path) as loaded:
        np.testing.assert_array_equal(
            np.sort(loaded._target.queries, 0), np.sort(queries, 0)
        )
        loaded.add(np.eye(4), range(4))
        loaded.compact()
        assert loaded.recall.own_queries
        assert loaded.recall.target == 0.8


def test_seed_from_a_config_may_be_a_whole_float():
    gallery, queries = np.eye(3), np.random.default_rng(0).normal(size=(200, 3))
    one, other = (
        LocalIndex.build(gallery, queries=queries, seed=seed) for seed in (2, 2.0)
    )
    np.testing.assert_array_equal(one._target.queries, other._target.queries)
    assert type(other._target.seed) is int


def test_more_queries_than_are_measured_with_are_not_kept():
    gallery, _ = drawn(50, 4, 5)
    index = LocalIndex.build(gallery, queries=np.ones((5_000, 4)))
    assert len(index._target.queries) == 2_000


@refusals(
    ("target_recall", 1, "must be above 0 and below 1"),
    ("target_recall", 0.0, "must be above 0"),
    ("target_recall", float("nan"), "must be above 0"),
    ("target_recall", "0.9", "must be above 0"),
    ("target_recall", True, "must be above 0"),
    ("seed", -1, "must be"),
    ("seed", 0.5, "must be"),
    ("queries", np.ones((199, 3)), "must have at least 200 rows"),
    ("queries", np.ones((200, 4)), "must have the dimension of the gallery, 3"),
    ("queries", np.full((200, 3), np.nan), "must be finite"),
    ("queries", np.zeros((200, 3)), "must not have a row of zeros"),
)
def test_bad_targets_and_queries_are_refused(argument, value, rule):
    for rows in (0, 5):
        valid = {"embeddings": np.ones((rows, 3))}
        refuses(
            LocalIndex.build, argument=argument, value=value, rule=rule, valid=valid
        )


def test_queries_without_a_target_are_refused():
    with pytest.raises(ValueError, match="`queries` must come with a `target_recall`"):
        LocalIndex.build(np.eye(3), queries=np.ones((200, 3)), target_recall=None)


# What is stored


@ENGINES
def test_recall_is_stored_and_measured_again_where_it_is_built_again(
    measure_all_sizes, engine, tmp_path
):
    gallery, queries = drawn(2_000, 16, 100)
    index = LocalIndex.build(gallery[:1_000], target_recall=0.95, engine=engine)
    assert index.recall.value >= 0.95
    index.save(tmp_path / "index")
    index.close()
    manifest = json.loads((tmp_path / "index" / "manifest.json").read_text())
    assert manifest["recall"]["value"] == index.recall.value
    assert manifest["target"] == {"value": 0.95, "seed": 0}
    assert index.stats().details["recall"] == manifest["recall"]
    with load_index(tmp_path / "index") as loaded:
        assert loaded.recall == index.recall
        assert loaded.settings == index.settings
        assert str(index.recall) in str(loaded)
        loaded.add(gallery[1_000:], np.arange(1_000, 2_000))
        loaded.compact()
        assert loaded.recall.target == 0.95
        assert loaded.recall.value >= 0.95
        assert loaded.settings.reason != index.settings.reason
        assert "2000" in loaded.settings.reason
        assert recall(loaded, queries, gallery) > 0.9


# More neighbors, more threads


def test_rows_scored_exactly_grow_with_k():
    settings = of_engines.hashing_settings("")
    counts = [settings.candidates(k, 100_000) for k in (1, 10, 11, 100)]
    assert counts == [settings.reorder * x // 10 for x in (10, 10, 11, 100)]
    assert settings.candidates(50, 120) == 120
    assert of_engines.exact_settings("").candidates(7, 100) == 7


class RecordingScann:
    """What `ScannSearcher` asks of ScaNN."""

    def __init__(self):
        self.threads = []
        self.batches = []

    def size(self):
        return 1_000

    def set_num_threads(self, threads):
        self.threads.append(threads)

    def search(self, query, final_num_neighbors):
        found = self.search_batched(query[None], final_num_neighbors)
        return found[0][0], found[1][0]

    def search_batched(self, queries, final_num_neighbors):
        self.batches.append(None)
        shape = len(queries), final_num_neighbors
        return np.zeros(shape, np.uint32), np.zeros(shape, np.float32)

    def search_batched_parallel(self, queries, final_num_neighbors, batch_size):
        found = self.search_batched(queries, final_num_neighbors)
        self.batches[-1] = batch_size
        return found


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_scann_never_gets_0_threads_or_batches_of_0(cores, monkeypatch):
    with_cores(monkeypatch, cores)
    scann = RecordingScann()
    settings = of_engines.exact_settings("")
    searcher = ScannSearcher(scann, settings, unit=True, scale=1.0)
    for count in (1, 2, 15, 16, 17, 100, 1_000):
        searcher.nearest(np.ones((count, 4), np.float32), 5)
    assert scann.threads == [cores - 1] * (cores > 1)
    sizes = [size for size in scann.batches if size is not None]
    assert all(size >= 1 for size in sizes)
    assert bool(sizes) == (cores > 1)
    assert scann.batches[0] is None  # a query alone wakes no thread


@ENGINES
def test_several_threads_answer_like_one(engine, monkeypatch):
    with_cores(monkeypatch, 3)
    gallery, queries = drawn(2_000, 16, 100)
    searcher = poor_searcher(gallery, engine=engine)
    rows, scores = searcher.nearest(queries, 10)
    alone = searcher.using(searcher.settings, threads=1)
    one_thread, its_scores = alone.nearest(queries, 10)
    np.testing.assert_array_equal(one_thread, rows)
    np.testing.assert_array_equal(its_scores, scores)


@ENGINES
@pytest.mark.parametrize("leaves_to_search", [1, 3])
@pytest.mark.parametrize("k", [1, 10, 400])  # more than are in a leaf
def test_query_alone_is_answered_as_in_a_batch(k, leaves_to_search, engine):
    gallery, queries = drawn(2_000, 16, 100, queries=50)
    searcher = poor_searcher(gallery, leaves_to_search, engine)
    rows, scores = searcher.nearest(queries, k)
    for query, row, score in zip(queries, rows, scores, strict=True):
        alone, its_scores = searcher.nearest(query[None], k)
        assert (alone.dtype, its_scores.dtype) == (np.int64, np.float32)
        np.testing.assert_array_equal(alone, row[None])
        np.testing.assert_allclose(its_scores, score[None], rtol=1e-6, atol=1e-6)


def test_query_alone_for_which_the_leaves_hold_too_few_gets_all():
    gallery, queries = drawn(2_000, 16, 100, queries=5)
    searcher = poor_searcher(gallery)
    least = replace(searcher.settings, reorder=1)
    searcher = searcher.using(least)
    searcher._kept = (
        700,
        100,
        {  # as if ScaNN's leaves were of very unequal size
            "final_num_neighbors": 700,
            "pre_reorder_num_neighbors": 700,
            "leaves_to_search": 1,
        },
    )
    for query in queries:
        rows, scores = searcher.nearest(query[None], 700)
        assert len(set(rows[0].tolist())) == 700
        assert np.isfinite(scores).all()


def test_lengths_at_hand_change_no_answer():
    gallery, queries = drawn(2_000, 16, 100, queries=50)
    searcher, longer = poor_searcher(gallery), 3 * queries
    expected = searcher.nearest(longer, 10)
    found = searcher.nearest(longer, 10, row_norms(longer))
    for ours, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, right)


@pytest.mark.slow
@ENGINES
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_process_searches_too(engine):
    code = """
        import os
        import signal
        import numpy as np
        from tests.support.saved_indexes import use_method
        from tfdml.index import LocalIndex
        os.sched_getaffinity = lambda pid: range(4)
        use_method("hashing", engine=ENGINE)
        rows = np.random.default_rng(0).normal(size=(500, 8))
        index = LocalIndex.build(rows)
        before = index.search(rows, 3).ids
        child = os.fork()
        if not child:
            signal.alarm(60)
            os._exit(int((index.search(rows, 3).ids != before).any()))
        assert os.waitpid(child, 0)[1] == 0
    """
    run = run_python(code.replace("ENGINE", repr(engine)))
    assert run.returncode == 0, run.stderr

"""Exact search on a GPU against the same search without one.

Whatever device the backend has here is used as if it were a GPU.
"""

import contextlib

import keras
import numpy as np
import pytest

from tests.tfdml.neighbors import test_exact, test_ranks
from tests.tfdml.neighbors.test_exact import METRICS
from tests.tfdml.neighbors.test_ranks import TIES
from tfdml._core.exact_search import (
    _gpu_nearest,
    _gpu_ranks,
    _nearest,
    _pairs,
    _ranks,
    _scores,
)
from tfdml._core.exact_search._gpu import GpuOriginals, GpuRows, Sums
from tfdml._core.exact_search._pairs import Pairs
from tfdml.metrics import MetricLimits, RetrievalTask, retrieval_metrics
from tfdml.neighbors import ExactSearcher, SearchLimits, positive_ranks

pytestmark = pytest.mark.backend

ALWAYS, NEVER = 0, 2**62  # multiplications that are worth a GPU


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """Take the device for a GPU, and tell how many queries it answered."""
    answered = []
    nearest, ranks = _gpu_nearest.find_nearest_on_gpu, _gpu_ranks.find_ranks_on_gpu

    def counted_nearest(gallery, queries, *others):
        left = nearest(gallery, queries, *others)
        answered.append(len(queries) - len(left))
        return left

    def counted_ranks(*arguments):
        is_done = ranks(*arguments)
        answered.append(int(is_done.sum()))
        return is_done

    monkeypatch.setattr("tfdml._core.exact_search._scores.has_gpu", lambda: True)
    monkeypatch.setattr(_nearest, "find_nearest_on_gpu", counted_nearest)
    monkeypatch.setattr(_ranks, "find_ranks_on_gpu", counted_ranks)
    return answered


def drawn(kind, seed, rows=600, dimension=7):
    generator = np.random.default_rng(seed)
    gallery = generator.normal(size=(rows, dimension)).astype(np.float32)
    if kind == "true ties":
        gallery = generator.integers(-1, 2, size=(rows, 3)).astype(np.float32)
        gallery[~gallery.any(axis=1)] = 1
    elif kind == "duplicates":
        gallery[300:340] = gallery[3]
        gallery[500:520] = gallery[20:40]
    elif kind == "small gaps":
        gallery[100:300] = gallery[:10].repeat(20, axis=0)
        gallery[100:300] += 2e-7 * generator.normal(size=(200, dimension))
    elif kind == "collapsed":
        gallery = 1 + gallery / 10_000
    elif kind == "unlike sizes":
        gallery[17] *= 1e12
        gallery[5] *= 1e-15
    elif kind == "overflow":
        gallery[7:90] *= 1e18
    elif kind == "tiny":
        gallery *= 1e-25
    return gallery.astype(np.float32), generator


KINDS = ["random", "true ties", "duplicates", "small gaps", "collapsed"]
KINDS += ["unlike sizes", "overflow", "tiny"]
DECIDED = {"random", "duplicates", "small gaps"}  # by the GPU, most of them


def excluded(generator, queries, rows):
    """Leave out the query itself, another row and, for some, one of these again."""
    exclude = np.stack([np.arange(queries)] * 3, axis=1)
    exclude[:, 1] = generator.integers(-1, rows, size=queries)
    exclude[::2, 2] = -1
    return exclude


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", METRICS)
def test_neighbors_are_those_of_the_cpu(kind, metric, gpu):
    gallery, generator = drawn(kind, len(kind))
    exclude = excluded(generator, 30, len(gallery))
    found = []
    for worth in (ALWAYS, NEVER):
        limits = SearchLimits(
            gpu_multiplications=worth, least_queries=4, most_gpu_queries=8
        )
        searcher = ExactSearcher(gallery, metric, limits=limits)
        found.append(searcher.nearest(gallery[:30], 6, exclude))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
    if kind in DECIDED:
        assert gpu[0] > 20
    assert gpu[1] == 0


@pytest.mark.parametrize("are_gallery", [True, False])
def test_length_of_a_query_is_computed_few_times(are_gallery, monkeypatch, gpu):
    measured, norms = [], _scores.row_norms

    def counted(rows):
        measured.append(len(rows))
        return norms(rows)

    for module in (_pairs, _scores):
        monkeypatch.setattr(module, "row_norms", counted)
    gallery, _ = drawn("random", 1)
    limits = SearchLimits(gpu_multiplications=ALWAYS, most_gpu_queries=64)
    queries = gallery if are_gallery else gallery.copy()
    ExactSearcher(gallery, "cosine", limits=limits).nearest(queries, 6)
    assert gpu == [len(gallery)]
    assert sum(measured) <= 5 * len(gallery)


@pytest.mark.parametrize("kind", ["random", "true ties"])
@pytest.mark.parametrize("metric", METRICS)
def test_order_in_which_the_gpu_adds_changes_nothing(kind, metric, monkeypatch, gpu):
    gallery, generator = drawn(kind, 2)
    expected = ExactSearcher(
        gallery, metric, limits=SearchLimits(gpu_multiplications=NEVER)
    ).nearest(gallery, 6)
    fetch, scored, scores = Sums.fetch, [], Pairs.scores

    def fetched(self):
        numbers, columns, sums = fetch(self)
        assert sums.dtype == np.float64
        off = generator.integers(-2, 3, size=sums.shape) * np.finfo(np.float64).eps
        return numbers, columns, sums + off * np.abs(sums)

    def counted(self):
        scored.append(len(self.rows))
        return scores(self)

    monkeypatch.setattr(Sums, "fetch", fetched)
    monkeypatch.setattr(Pairs, "scores", counted)
    limits = SearchLimits(gpu_multiplications=ALWAYS, most_gpu_queries=128)
    found = ExactSearcher(gallery, metric, limits=limits).nearest(gallery, 6)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    if kind == "random":
        assert gpu[1] == len(gallery)
        assert sum(scored) < 3 * len(gallery)  # the distances 0 among them


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", METRICS)
def test_ranks_are_those_of_the_cpu(kind, metric, gpu):
    gallery, generator = drawn(kind, len(kind))
    exclude = excluded(generator, 30, len(gallery))
    positives = [
        np.setdiff1d(generator.permutation(600)[: generator.integers(0, 40)], rows)
        for rows in exclude
    ]
    positives[::2] = [rows[:3] for rows in positives[::2]]
    if kind == "small gaps":
        positives[1] = np.setdiff1d(np.arange(100, 300, 7), exclude[1])
    for ties in TIES:
        found = [
            positive_ranks(
                gallery[:30],
                gallery,
                positives,
                metric=metric,
                exclude=exclude,
                ties=ties,
                limits=SearchLimits(
                    gpu_multiplications=worth, least_queries=4, most_gpu_queries=8
                ),
            )
            for worth in (ALWAYS, NEVER)
        ]
        for received, expected in zip(*found, strict=True):
            np.testing.assert_array_equal(received, expected)
    if kind in DECIDED:
        assert gpu[0] > 5  # all but those with very many near ties


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("spare", [0, 5, 60, 400])
def test_neighbors_equal_the_loop(metric, spare):
    rng = np.random.default_rng(9)
    gallery = rng.normal(size=(300, 6))
    gallery[200:240] = gallery[3]  # more ties than some of the spares
    exclude = np.stack([np.arange(12), rng.integers(-1, 200, size=12)], axis=1)
    limits = {"gpu_multiplications": ALWAYS, "gpu_spare": spare}
    test_exact.assert_equals_naive(gallery[:12], gallery, 4, metric, exclude, **limits)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("metric", METRICS)
def test_ranks_equal_the_sort_of_all_pairs(metric, ties):
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(90, 5))
    rows[80:] = rows[:10]
    positives, exclude = test_ranks.draw(rng, 9, 90, 30)
    test_ranks.assert_equals_naive(
        rows[:9], rows, positives, metric, exclude, ties, gpu_multiplications=ALWAYS
    )


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_are_those_of_the_cpu(metric, gpu):
    gallery, generator = drawn("duplicates", 3)
    gallery[11] = 0
    labels = generator.integers(0, 60, size=600)
    roles = {
        "is_query": generator.random(600) < 0.8,
        "is_gallery": generator.random(600) < 0.8,
        "groups": generator.integers(0, 200, size=600),
    }
    values = []
    for worth in (ALWAYS, NEVER):
        limits = MetricLimits(
            ranks=2000, search=SearchLimits(gpu_multiplications=worth)
        )
        task = RetrievalTask(gallery, labels, **roles, limits=limits)
        values.append(retrieval_metrics(task, metric=metric))
    assert values[0] == values[1]
    assert gpu[0] > 100


def test_gallery_below_the_padding_and_k_of_all_rows():
    rng = np.random.default_rng(4)
    for rows in (1, 255, 256, 257):
        gallery = rng.normal(size=(rows, 3))
        test_exact.assert_equals_naive(
            gallery[:3], gallery, rows, "cosine", gpu_multiplications=ALWAYS
        )


def test_too_little_memory_is_made_up_for_by_the_cpu(monkeypatch, gpu):
    class OutOfMemoryError(RuntimeError):
        pass

    best, calls = GpuRows.best, []

    def failing(self, *arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise OutOfMemoryError("8 GiB")
        return best(self, *arguments)

    monkeypatch.setattr(GpuRows, "best", failing)
    rng = np.random.default_rng(5)
    gallery = rng.normal(size=(70, 5))
    with pytest.warns(UserWarning, match="too little memory"):
        test_exact.assert_equals_naive(
            gallery[:40],
            gallery,
            3,
            "cosine",
            gpu_multiplications=ALWAYS,
            gpu_spare=5,
            least_queries=4,
            most_gpu_queries=8,
        )
    assert 0 < gpu[0] < 40


@pytest.mark.parametrize("kind", [GpuRows, GpuOriginals])
def test_gallery_above_the_memory_is_searched_all_the_same(kind, monkeypatch, gpu):
    class OutOfMemoryError(RuntimeError):
        pass

    def failing(self, *arguments, **named):
        raise OutOfMemoryError("80 GiB")

    monkeypatch.setattr(kind, "__init__", failing)
    gallery = np.random.default_rng(7).normal(size=(70, 5))
    limits = {"gpu_multiplications": ALWAYS, "gpu_spare": 5}
    warned = pytest.warns(UserWarning, match="too little memory")
    with warned if kind is GpuRows else contextlib.nullcontext():
        test_exact.assert_equals_naive(gallery[:9], gallery, 3, "cosine", **limits)
    assert gpu == [0 if kind is GpuRows else 9]


@pytest.mark.parametrize("metric", METRICS)
def test_products_of_too_few_digits_are_found_out(metric, monkeypatch, gpu):
    matmul = keras.ops.matmul

    def short(left, right):
        """Multiply as TF32 does: 10 bits of the left factors."""
        rounded = keras.ops.cast(keras.ops.cast(left, "bfloat16"), "float32")
        return matmul(rounded, right)

    monkeypatch.setattr(keras.ops, "matmul", short)
    _gpu_cache_clear()
    rng = np.random.default_rng(6)
    gallery = rng.normal(size=(80, 9))
    limits = {"gpu_multiplications": ALWAYS}
    with pytest.warns(UserWarning, match="fewer digits"):
        test_exact.assert_equals_naive(gallery[:9], gallery, 3, metric, **limits)
    positives, exclude = test_ranks.draw(rng, 9, 80, 5)
    with pytest.warns(UserWarning, match="fewer digits"):
        test_ranks.assert_equals_naive(
            gallery[:9], gallery, positives, metric, exclude, "index", **limits
        )
    assert gpu == [0, int(sum(len(rows) == 0 for rows in positives))]
    _gpu_cache_clear()


def _gpu_cache_clear():
    """Let JAX compile anew."""
    from tfdml._core.exact_search import _gpu

    _gpu._compiled.cache_clear()


def allows_short_products():
    """Whether the backend may compute float32 products in NVIDIA's TF32."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.config.experimental.tensor_float_32_execution_enabled()
    if backend == "jax":
        import jax

        return jax.config.jax_default_matmul_precision != "highest"
    import torch

    return torch.backends.cuda.matmul.allow_tf32


def test_full_precision_is_asked_for_and_given_back(monkeypatch):
    seen, matmul = [], keras.ops.matmul

    def watched(*matrices):
        seen.append(allows_short_products())
        return matmul(*matrices)

    monkeypatch.setattr(keras.ops, "matmul", watched)
    _gpu_cache_clear()
    before = allows_short_products()
    rows = GpuRows(np.eye(4, dtype=np.float32), None)
    numbers, places = rows.best(np.eye(4, dtype=np.float32)[2:], 2, 4).fetch()
    assert seen == [False]
    assert allows_short_products() == before
    assert numbers[:2, 0].tolist() == [1.0, 1.0]
    assert places[:2, 0].tolist() == [2, 3]
    assert places.dtype == np.int64

"""How far the queries of a period are from what is usual."""

import itertools
import math

import numpy as np
import pytest

from serving.search.gallery.drift import Sample, draw_drift, measure_drift
from tfdml.index import LocalIndex

CENTERS = np.random.default_rng(0).normal(size=(12, 16))
NONE = np.zeros((0, 16), np.float32)


def drawn(seed, count, spread=0.3, shift=0.0):
    """Return embeddings around the centers of 12 classes, or moved away from them."""
    generator = np.random.default_rng(seed)
    away = np.random.default_rng(1).normal(size=16)
    rows = CENTERS[generator.integers(12, size=count)] + shift * away
    rows = rows + spread * generator.normal(size=(count, 16))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def index():
    embeddings = drawn(2, 400)
    return LocalIndex.build(embeddings, [f"image-{i}" for i in range(400)])


def largest_gap(first, second):
    """Return D by its definition."""
    return max(
        abs(
            sum(score <= s for score in first) / len(first)
            - sum(score <= s for score in second) / len(second)
        )
        for s in [*first, *second]
    )


class TestSample:
    @pytest.mark.parametrize("seed", range(5))
    def test_statistic_is_the_largest_gap_of_the_distributions(self, seed):
        generator = np.random.default_rng(seed)
        # Rounded, for ties.
        first = np.sort(generator.normal(0.0, 1, 30).round(1))
        second = np.sort(generator.normal(0.5, 1, 40).round(1))
        found = Sample(first, None).distance(Sample(second, None))
        assert found.statistic == pytest.approx(largest_gap(first, second))

    def test_p_value_is_the_share_of_all_divisions_that_are_as_far_apart(self):
        first, second = [0.1, 0.2, 0.35, 0.5], [0.3, 0.6, 0.7, 0.8, 0.9]
        both = sorted([*first, *second])
        least = largest_gap(first, second)
        gaps = [
            largest_gap(part, [s for s in both if s not in part])
            for part in itertools.combinations(both, len(first))
        ]
        expected = np.mean([gap >= least - 1e-12 for gap in gaps])
        found = Sample(np.array(first), None).distance(Sample(np.array(second), None))
        assert found.p_value == pytest.approx(expected)

    def test_share_without_match_has_wilsons_interval(self):
        sample = Sample(np.array([0.2, 0.4, 0.6, 0.8, 0.9]), 0.6)
        p, n, z = 2 / 5, 5, 1.959963984540054
        middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        assert sample.without_match == pytest.approx((p, middle - half, middle + half))

    def test_there_is_no_share_without_a_threshold(self):
        assert Sample(np.array([0.2]), None).without_match is None


class TestDrift:
    def test_scores_are_those_of_the_nearest_image(self, index):
        queries = drawn(3, 20)
        found = measure_drift(index, queries, NONE).queries
        gallery = index.get(index.ids).embeddings
        expected = sorted(max(float(q @ row) for row in gallery) for q in queries)
        np.testing.assert_allclose(found.scores, expected, rtol=1e-5)

    def test_image_of_the_gallery_is_not_its_own_nearest(self, index):
        found = measure_drift(index, drawn(3, 1), NONE).gallery
        gallery = index.get(index.ids).embeddings.astype(np.float64)
        scores = gallery @ gallery.T
        np.fill_diagonal(scores, -np.inf)
        np.testing.assert_allclose(found.scores, np.sort(scores.max(1)), rtol=1e-5)

    def test_equal_images_are_each_others_nearest(self):
        rows = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0)
        index = LocalIndex.build(rows, list("abcdef"))
        found = measure_drift(index, rows[:1], np.zeros((0, 3), np.float32))
        np.testing.assert_allclose(found.gallery.scores, 1, rtol=1e-6)

    def test_queries_like_the_gallery_do_not_drift(self, index):
        drift = measure_drift(index, drawn(4, 300), drawn(5, 300))
        assert drift.distances["gallery"].p_value > 0.01
        assert drift.distances["earlier queries"].p_value > 0.01

    def test_distance_and_share_without_match_grow_as_queries_move_away(self, index):
        found = [
            measure_drift(
                index, drawn(4, 300, shift=shift), drawn(5, 300), threshold=0.9
            )
            for shift in (0, 0.3, 0.6, 2)
        ]
        for name in ("gallery", "earlier queries"):
            distances = [drift.distances[name] for drift in found]
            statistics = [each.statistic for each in distances]
            assert statistics == sorted(statistics)
            assert distances[-1].statistic > 0.9
            assert distances[-1].p_value < 1e-6
        shares = [drift.queries.without_match.share for drift in found]
        assert shares == sorted(shares)
        assert shares[0] < 0.2
        assert shares[-1] > 0.9
        same = {drift.earlier.without_match.share for drift in found}
        assert len(same) == 1

    def test_without_earlier_queries_there_is_the_gallery_alone(self, index):
        assert list(measure_drift(index, drawn(4, 3), NONE).distances) == ["gallery"]

    def test_gallery_of_one_image_is_refused(self):
        index = LocalIndex.build(np.eye(2, dtype=np.float32)[:1], ["a"])
        with pytest.raises(ValueError, match=r"at least 2 images\. Received: 1"):
            measure_drift(index, np.eye(2, dtype=np.float32), NONE)

    def test_period_without_queries_is_refused(self, index):
        with pytest.raises(ValueError, match="at least one query"):
            measure_drift(index, NONE, NONE)


def test_figure_shows_each_distribution_and_the_threshold(index):
    drift = measure_drift(index, drawn(4, 7), drawn(5, 5), threshold=0.8)
    figure = draw_drift(drift)
    gallery, earlier, queries, threshold = figure.axes[0].lines
    for line, sample in (
        (gallery, drift.gallery),
        (earlier, drift.earlier),
        (queries, drift.queries),
    ):
        x, y = line.get_data()
        for score in sample.scores:
            share = 100 * np.mean(sample.scores <= score)
            assert max(y[x == score]) == pytest.approx(share)
    assert set(threshold.get_xdata()) == {0.8}
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [
        "400 gallery",
        "5 earlier queries",
        "7 queries",
        "threshold 0.8",
    ]

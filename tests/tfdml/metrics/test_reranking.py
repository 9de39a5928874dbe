"""Metrics after re-ranking against loops over every query."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import (
    GalleryAugmentation,
    KReciprocal,
    QueryExpansion,
    query_metrics,
    reranked_query_metrics,
)
from tfdml.neighbors import KReciprocalDistances

GENERATOR = np.random.default_rng(0)
LABELS = np.repeat(np.arange(12), 5)
CENTERS = GENERATOR.normal(size=(12, 6))
ROWS = (CENTERS[LABELS] + 0.8 * GENERATOR.normal(size=(60, 6))).astype("float32")
GROUPS = np.arange(60) // 2
ROLES = {
    "all": {},
    "groups": {"groups": GROUPS},
    "roles": {"is_query": np.arange(60) % 3 == 0, "is_gallery": np.arange(60) % 3 > 0},
    "both": {"is_query": np.arange(60) % 2 == 0, "is_gallery": np.arange(60) % 5 > 0},
}
UNIT = ROWS.astype("float64")
UNIT /= np.linalg.norm(UNIT, axis=1, keepdims=True)


def moved(row, others, k, alpha):
    cosines = sorted((-float(UNIT[row] @ UNIT[other]), other) for other in others)
    total = UNIT[row].copy()
    for opposite, other in cosines[:k]:
        if opposite < 0:
            total += (-opposite) ** alpha * UNIT[other]
    return total / np.linalg.norm(total)


def score(rerank, query, item, allowed, gallery):
    if isinstance(rerank, QueryExpansion):
        return moved(query, allowed, rerank.k, rerank.alpha) @ UNIT[item]
    if isinstance(rerank, GalleryAugmentation):
        others = [other for other in gallery if other not in (item, query)]
        return UNIT[query] @ moved(item, others, rerank.k, rerank.alpha)
    options = {"k1": rerank.k1, "k2": rerank.k2, "weight": rerank.weight}
    return -KReciprocalDistances(ROWS, **options).of([query])[0, item]


def naive(rerank, ks, roles):
    is_query = roles.get("is_query", np.ones(60, bool))
    is_gallery = roles.get("is_gallery", np.ones(60, bool))
    groups = roles.get("groups", np.arange(60))
    gallery = np.flatnonzero(is_gallery).tolist()
    values = {f"precision_at_{k}": [] for k in ks} | {"mean_average_precision": []}
    for query in np.flatnonzero(is_query).tolist():
        allowed = [other for other in gallery if groups[other] != groups[query]]
        scored = [(-score(rerank, query, i, allowed, gallery), i) for i in allowed]
        hits = [LABELS[item] == LABELS[query] for _, item in sorted(scored)]
        if not any(hits):
            continue
        ranks = np.flatnonzero(hits) + 1
        for k in ks:
            values[f"precision_at_{k}"].append((ranks <= k).sum() / k)
        share = np.arange(1, len(ranks) + 1) / ranks
        values["mean_average_precision"].append(share.mean())
    return values


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize(
    "rerank",
    [
        QueryExpansion(4, 1.5),
        QueryExpansion(1, 0),
        GalleryAugmentation(4, 2.0),
        GalleryAugmentation(1, 0),
        KReciprocal(6, 3, 0.3),
    ],
    ids=str,
)
def test_metrics_are_those_of_a_loop_over_queries(rerank, roles):
    found = reranked_query_metrics(ROWS, LABELS, [1, 3], rerank=rerank, **ROLES[roles])
    for name, expected in naive(rerank, [1, 3], ROLES[roles]).items():
        np.testing.assert_allclose(found.values[name], expected, atol=1e-9)


def test_blocks_and_many_positives_do_not_change_the_metrics(monkeypatch):
    options = {"rerank": GalleryAugmentation(3), **ROLES["groups"]}
    whole = reranked_query_metrics(ROWS, LABELS, [1], **options)
    monkeypatch.setattr("tfdml.metrics._reranking._SCORES", 130)
    monkeypatch.setattr("tfdml.metrics._reranking._FEW", 1)
    parts = reranked_query_metrics(ROWS, LABELS, [1], **options)
    for name, values in whole.values.items():
        np.testing.assert_array_equal(parts.values[name], values)


@pytest.mark.parametrize("ties", ["index", "pessimistic", "optimistic"])
def test_ties_are_broken_as_without_re_ranking(ties, monkeypatch):
    rows = np.ones((20, 3), "float32")
    labels = np.arange(20) % 4
    expected = query_metrics(rows, labels, [1, 5], ties=ties)
    for few in (64, 1):
        monkeypatch.setattr("tfdml.metrics._reranking._FEW", few)
        for rerank in (QueryExpansion(2), GalleryAugmentation(2)):
            found = reranked_query_metrics(
                rows, labels, [1, 5], rerank=rerank, ties=ties
            )
            for name, values in expected.values.items():
                np.testing.assert_allclose(found.values[name], values)


def test_rows_of_zeros_are_compared():
    rows = ROWS.copy()
    rows[3:5] = 0
    for rerank in (QueryExpansion(3), GalleryAugmentation(3), KReciprocal(5, 2)):
        found = reranked_query_metrics(rows, LABELS, [1], rerank=rerank)
        assert np.isfinite(found.values["mean_average_precision"]).all()


@pytest.mark.parametrize(
    ("rerank", "message"),
    [
        (QueryExpansion(60), "`k` of the re-ranking must be from 1 to 59"),
        (GalleryAugmentation(59), "`k` of the re-ranking must be from 1 to 58"),
        (KReciprocal(60), "`k1` must be from 1 to 59"),
    ],
)
def test_neighbors_beyond_the_gallery_are_refused(rerank, message):
    with pytest.raises(ValueError, match=message):
        reranked_query_metrics(ROWS, LABELS, [1], rerank=rerank)


@refusals(
    ("k", 0, "must be a whole number of at least 1"),
    ("alpha", -1, "must be at least 0"),
)
@pytest.mark.parametrize("kind", [QueryExpansion, GalleryAugmentation])
def test_bad_options_are_refused(argument, value, rule, kind):
    refuses(kind, argument=argument, value=value, rule=rule)


@refusals(
    ("k1", 2.5, "must be a whole number of at least 1"),
    ("k2", 0, "must be a whole number of at least 1"),
    ("weight", 2, "must be from 0 to 1"),
)
def test_bad_options_of_k_reciprocal_are_refused(argument, value, rule):
    refuses(KReciprocal, argument=argument, value=value, rule=rule)

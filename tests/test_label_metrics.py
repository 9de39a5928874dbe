"""Metrics of continuous labels against naive loops."""

import math

import numpy as np
import pytest

from tfdml.label_metrics import label_distance_metrics, label_query_metrics


def naive(embeddings, labels, k, groups=None):
    """Both metrics by their definition, one query after the other."""
    distances, ndcgs = [], []
    for q in range(len(labels)):
        others = [
            i
            for i in range(len(labels))
            if (i != q if groups is None else groups[i] != groups[q])
        ]
        cosine = {
            i: embeddings[q]
            @ embeddings[i]
            / np.linalg.norm(embeddings[q])
            / np.linalg.norm(embeddings[i])
            for i in others
        }
        apart = {i: math.dist(labels[q], labels[i]) for i in others}
        found = [apart[i] for i in sorted(others, key=lambda i: -cosine[i])[:k]]
        ideal = sorted(apart.values())[:k]
        distances.append(sum(found) / k)
        gain, most = (
            sum(2 ** -math.log2(1 + d) / math.log2(i + 2) for i, d in enumerate(ranked))
            for ranked in (found, ideal)
        )
        ndcgs.append(gain / most)
    return sum(distances) / len(distances), sum(ndcgs) / len(ndcgs)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("block", [2**22, 40])
def test_metrics_equal_the_definition(grouped, block, monkeypatch):
    monkeypatch.setattr("tfdml.label_metrics._BLOCK_ELEMENTS", block)
    generator = np.random.default_rng(3)
    embeddings = generator.normal(size=(30, 4))
    labels = generator.normal(size=(30, 3))
    groups = generator.integers(0, 4, 30) if grouped else None
    received = label_distance_metrics(embeddings, labels, (1, 7), groups=groups)
    for k in (1, 7):
        distance, ndcg = naive(embeddings, labels, k, groups)
        assert received[f"label_distance_at_{k}"] == pytest.approx(distance, rel=1e-9)
        assert received[f"ndcg_at_{k}"] == pytest.approx(ndcg, rel=1e-9)


def test_single_queries_are_kept_with_their_groups():
    generator = np.random.default_rng(3)
    embeddings, labels = generator.normal(size=(30, 4)), generator.normal(size=(30, 3))
    groups = np.array(list("abc"))[generator.integers(0, 3, 30)]
    results = label_query_metrics(embeddings, labels, (4,), groups=groups)
    assert results.queries.tolist() == list(range(30))
    assert results.classes.tolist() == groups.tolist()
    received = label_distance_metrics(embeddings, labels, (4,), groups=groups)
    assert results.means() == received
    others = np.flatnonzero(groups != groups[5])
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    nearest = others[np.argsort(-(unit[others] @ unit[5]))[:4]]
    apart = [math.dist(labels[5], labels[i]) for i in nearest]
    assert results.values["label_distance_at_4"][5] == pytest.approx(sum(apart) / 4)


def test_ranking_by_the_labels_themselves_has_an_ndcg_of_1():
    angles = np.linspace(0, 1, 12)
    embeddings = np.stack([np.cos(angles), np.sin(angles)], 1)
    received = label_distance_metrics(embeddings, angles, (1, 5))
    assert received["ndcg_at_5"] == pytest.approx(1, abs=1e-12)


def test_function_takes_the_place_of_the_euclidean_distance():
    labels = np.array([0, 1, 0, 1])
    embeddings = np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]])
    differs = label_distance_metrics(
        embeddings,
        labels,
        (1,),
        label_distance=lambda a, b: a[:, np.newaxis] != b,
    )
    assert differs["label_distance_at_1"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ks": (3,)}, r"`ks` must be from 1 to 2.*\[3\]"),
        ({"ks": (0,)}, "`ks` must be from 1 to 2"),
        ({"labels": np.zeros((4, 1))}, r"and `labels` \[N"),
        ({"embeddings": np.full((3, 2), np.nan)}, "`embeddings` must be finite"),
        ({"groups": np.zeros(2)}, r"`groups` must have the shape \[3\]"),
        ({"groups": np.array([0, 0, 1])}, "`ks` must be from 1 to 1"),
        ({"label_distance": lambda a, b: np.full((3, 3), -1)}, "must not return neg"),
    ],
)
def test_wrong_arguments_are_named(changes, message):
    arguments = {"embeddings": np.eye(3), "labels": np.zeros((3, 1)), "ks": (2,)}
    with pytest.raises(ValueError, match=message):
        label_distance_metrics(**(arguments | changes))

"""The kinds of indexes that keep one contract, and how a test builds each of them.

In this process: the exact index, the local one as for small galleries, and Milvus.
`tests/tfdml/index/test_out_of_process.py` runs the same tests with codes and trees of
each engine in a process of its own, which the engine may end.
"""

import importlib.util
import itertools
import os

import numpy as np
import pytest

from tests.support.saved_indexes import use_method
from tfdml.index import ExactIndex, LocalIndex, MilvusIndex, SearchResult

METHODS = {  # and the engine of each
    "brute": ("exact", "exact"),
    "hashing": ("hashing", "scann"),
    "tree": ("tree", "scann"),
    "faiss-hashing": ("hashing", "faiss"),
    "faiss-tree": ("tree", "faiss"),
    "faiss-codes": ("codes", "faiss"),
}
KINDS = os.environ.get("INDEX_KINDS", "exact local milvus").split()
ROWS = 48  # for which ScaNN trains codes, and scores all rows exactly in the end
ATTRIBUTES = {
    "class": ["cat", "dog", "cat", None, "", "Straße"] + [None] * 42,
    "year": [1999, 2004, None, 2004, -(2**63) + 1, 2**63 - 1] + [None] * 42,
    "price": [0.5, None, 10.0, 1e-3, 10.0, -2.5] + [None] * 42,
    "sold": [True, False, None, True, False, False] + [None] * 42,
}
IDS = {
    "string": [
        "Straße/ü.png", "b", 'c "quoted"', "d\\e", "it's", "", " ", "a\ufffd", "👟" * 9,
        *(f"item {row}" for row in range(ROWS - 9)),
    ],
    "integer": [7, -3, 0, 2**62, 12, -(2**63) + 1, 2**63 - 1, *range(20, ROWS + 13)],
}  # fmt: skip
ID_KINDS = pytest.mark.parametrize("id_kind", list(IDS))
NASTY = [
    'a"b', "a'b", "a\\", '\\" or true or "', '"] or id != "', "{name}", "%", "a\nb",
    "a\r\tb", "\x01\x7f", "", " ", "Straße", "鞋", "👟", "\u2028", "null", "True",
]  # fmt: skip
_CLASSES = {"exact": ExactIndex, "milvus": MilvusIndex}
_names = (f"gallery_{number}" for number in itertools.count())


class Builder:
    """Builds indexes of one kind, and closes them at the end."""

    def __init__(self, kind, milvus_path):
        self.kind = kind
        self.index_class = _CLASSES.get(kind, LocalIndex)
        self.is_local = kind != "milvus"
        self._path = milvus_path
        self._open = []
        if kind in METHODS:
            method, engine = METHODS[kind]
            use_method(method, engine=engine)

    def __call__(self, embeddings, ids=None, attributes=None, **options):
        if not self.is_local:
            options = {
                "uri": self._path,
                "collection": next(_names),
                "index_type": "FLAT",  # the exact one
                "timeout": 30,
            } | options
        index = self.index_class.build(embeddings, ids, attributes, **options)
        self._open.append(index)
        return index

    def close(self):
        for index in self._open:
            index.close()


def skip_unless_installed(kind):
    needed = ["pymilvus", "milvus_lite"] if kind == "milvus" else []
    if kind in METHODS:
        needed = [name for name in METHODS[kind][1:] if name != "exact"]
    for module in needed:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed.")


def drawn(rows=ROWS, dimension=5, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dimension)).astype("float32")


def score(a, b, metric="cosine"):
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    lengths = np.sqrt((a * a).sum() * (b * b).sum()) if metric == "cosine" else 1
    return (a * b).sum() / lengths


def ranked(query, items, metric="cosine"):
    """List ids and scores of all items, best first, one by one."""
    scores = {name: score(query, row, metric) for name, row in items.items()}
    return sorted(scores.items(), key=lambda item: -item[1])


def check(result, queries, items, k, metric="cosine"):
    """Compare an answer with comparing all items."""
    assert isinstance(result, SearchResult)
    assert result.scores.dtype == np.float32
    width = min(k, len(items))
    assert result.ids.shape == result.scores.shape == (len(queries), width)
    for query, ids, scores in zip(queries, *result, strict=True):
        expected = ranked(query, items, metric)[:width]
        assert ids.tolist() == [name for name, _ in expected]
        np.testing.assert_allclose(
            scores, [value for _, value in expected], rtol=1e-5, atol=1e-5
        )


def content(index, ids):
    """Return all that is known of some items, in a form that can be compared."""
    items = index.get(ids)
    return items.ids.tolist(), items.embeddings.tolist(), items.attributes, len(index)

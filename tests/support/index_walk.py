"""Random changes of an index, with a dictionary beside it that is changed alike."""

import numpy as np
import pytest

from tests.support.index_examples import assert_finds
from tfdml.index import ExactIndex, Not
from tfdml.index.local import MemoryIndex

DIMENSION = 5
CLASSES = ["x", "y", "z", None]


class Model:
    """What an index must hold: rows by id, in the order of the gallery."""

    def __init__(self):
        self.rows = {}
        self.has_classes = False

    def add(self, ids, embeddings, classes):
        self.has_classes |= any(classes)
        for value, embedding, kind in zip(ids, embeddings, classes, strict=True):
            self.rows[value] = (embedding, kind)

    def update(self, ids, embeddings=None, classes=None):
        self.has_classes |= any(classes or [])
        for place, value in enumerate(ids):
            embedding, kind = self.rows.pop(value)
            embedding = embedding if embeddings is None else embeddings[place]
            kind = kind if classes is None else classes[place]
            self.rows[value] = (embedding, kind)  # the last one from now on

    def remove(self, ids):
        for value in ids:
            del self.rows[value]

    def allowed(self, where, excluded):
        """List the ids that may be found, in order."""
        holds = {
            None: lambda kind: True,
            "x": lambda kind: kind == "x",
            "x or z": lambda kind: kind in ("x", "z"),
            "not y": lambda kind: kind != "y",
        }[where]
        return [
            value
            for value, (_, kind) in self.rows.items()
            if holds(kind) and value not in excluded
        ]


WHERE = {
    None: None,
    "x": {"class": "x"},
    "x or z": {"class": ["x", "z"]},
    "not y": {"class": Not("y")},
}


class Walk:
    """A random sequence of changes and searches of one index, which `build` makes."""

    def __init__(self, build, metric, id_kind, seed, rows=0):
        self.rng = np.random.default_rng(seed)
        self.metric, self.model, self.names = metric, Model(), 0
        self.id_kind = id_kind
        embeddings, ids, classes = self.new(rows)
        ids = ids if rows or id_kind == "integer" else np.empty(0, str)
        self.index = build(embeddings, ids, {"class": classes}, metric=metric)
        self.exactly = isinstance(self.index, ExactIndex)
        self.is_local = isinstance(self.index, MemoryIndex)
        self.model.add(ids, embeddings, classes)

    def embeddings(self, count):
        # Of few different whole numbers: many rows are equal, and many scores tie.
        rows = self.rng.integers(-2, 3, (count, DIMENSION)).astype(np.float32)
        rows[:, 0] += 0.5  # none is all zeros
        return rows

    def classes(self, count):
        return [CLASSES[n] for n in self.rng.integers(len(CLASSES), size=count)]

    def new(self, count):
        ids = []
        for _ in range(count):
            self.names += int(self.rng.integers(1, 4))
            name = self.names * (-1) ** self.names
            ids.append(name if self.id_kind == "integer" else f"{'é' * 3}{name}")
        return self.embeddings(count), ids, self.classes(count)

    def some(self, most):
        ids = list(self.model.rows)
        count = min(len(ids), int(self.rng.integers(most + 1)))
        return [ids[n] for n in self.rng.permutation(len(ids))[:count]]

    def step(self):
        action = self.rng.choice(
            ["add", "update", "attributes", "remove", "again", "compact", "bad"],
            p=[0.3, 0.15, 0.1, 0.2, 0.1, 0.05, 0.1],
        )
        getattr(self, action)()
        self.check()

    def add(self):
        embeddings, ids, classes = self.new(int(self.rng.integers(6)))
        self.index.add(embeddings, ids, {"class": classes})
        self.model.add(ids, embeddings, classes)

    def update(self):
        ids = self.some(3)
        embeddings = self.embeddings(len(ids))
        self.index.update(ids, embeddings)
        self.model.update(ids, embeddings)

    def attributes(self):
        ids = self.some(3)
        classes = self.classes(len(ids))
        self.index.update(ids, attributes={"class": classes})
        self.model.update(ids, classes=classes)

    def remove(self):
        ids = self.some(4)
        self.index.remove(ids)
        self.model.remove(ids)
        for value in ids:
            assert value not in self.index
            with pytest.raises(KeyError, match="must be in the index"):
                self.index.get([value])

    def again(self):
        """Remove items and add others by their ids."""
        ids = self.some(3)
        embeddings, classes = self.embeddings(len(ids)), self.classes(len(ids))
        self.index.remove(ids)
        self.index.add(embeddings, ids, {"class": classes})
        self.model.remove(ids)
        self.model.add(ids, embeddings, classes)

    def compact(self):
        if not self.is_local:
            return
        self.index.compact()
        stats = self.index.stats()
        assert (stats.details["added"], stats.details["removed"]) == (0, 0)

    def bad(self):
        """Try changes of which a part would be right; nothing must change."""
        (embeddings, (new, *_), classes), known = self.new(2), self.some(1)
        if not known:
            return
        with pytest.raises(ValueError, match="must not be in the index already"):
            self.index.add(embeddings, [new, *known], {"class": classes})
        with pytest.raises(ValueError, match="must be finite"):
            self.index.update(known, np.full((1, DIMENSION), np.nan))
        with pytest.raises(KeyError, match="must be in the index"):
            self.index.remove([*known, new])
        with pytest.raises(ValueError, match="must hold strings, integers"):
            self.index.update(known, embeddings[:1], {"class": [b"x"]})

    def check(self):
        index, rows = self.index, self.model.rows
        ids = list(rows)
        assert len(index) == index.count() == len(rows)
        assert all(value in index for value in ids[-3:])
        kind = {"string": "U", "integer": "i"}[self.id_kind]
        assert not ids or index.ids.dtype.kind == kind
        assert index.ids.tolist() == (ids if self.is_local else sorted(ids))
        items = index.get(ids)
        assert items.ids.tolist() == ids
        for (embedding, kind), found, attributes in zip(
            rows.values(), items.embeddings, items.attributes, strict=True
        ):
            np.testing.assert_array_equal(found, embedding)
            assert attributes == ({} if kind is None else {"class": kind})
        self.search()

    def search(self):
        queries = self.embeddings(int(self.rng.integers(1, 4)))
        k = int(self.rng.choice([1, 3, 10, 1000]))
        where = [None, *WHERE][self.rng.integers(len(WHERE) + 1)]
        if not self.model.has_classes:  # of attributes that it has not, it refuses
            where = None
        shared = self.some(3)
        own = [self.some(4) for _ in queries]
        if self.rng.random() < 0.3:  # all of the nearest
            near = self.index.search(queries, 5).ids.tolist()
            own = [row[: self.rng.integers(6)] for row in near]
        index, condition = self.index, WHERE[where]
        assert index.count(condition) == len(self.model.allowed(where, []))
        result = index.search(queries, k, where=condition)
        self.assert_right(result, queries, k, [self.model.allowed(where, [])] * 3)
        result = index.search(queries, k, where=condition, exclude=shared * 2)
        self.assert_right(result, queries, k, [self.model.allowed(where, shared)] * 3)
        result = index.search(queries, k, where=condition, exclude=own)
        each = [self.model.allowed(where, excluded) for excluded in own]
        self.assert_right(result, queries, k, each)

    def assert_right(self, result, queries, k, allowed):
        width = min(k, *(len(ids) for ids in allowed[: len(queries)]))
        assert result.ids.shape == (len(queries), width)
        for place, ids in enumerate(allowed[: len(queries)]):
            part = slice(place, place + 1)
            one = type(result)(result.ids[part], result.scores[part])
            rows = np.array([self.model.rows[value][0] for value in ids])
            rows = rows.reshape(-1, DIMENSION)
            assert_finds(
                one, queries[part], rows, ids, width, self.metric, exactly=self.exactly
            )

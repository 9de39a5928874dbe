"""Searches while the index changes: each answer is right for one moment of its call."""

import contextlib
from functools import partial

import numpy as np
import pytest

from tests.support.index_examples import BOTH, assert_finds
from tests.support.threads import before_next, meanwhile, together
from tfdml.index import ExactIndex, Not, SearchResult
from tfdml.index.local import Limits, MemoryIndex
from tfdml.index.local import _index as local

DIMENSION = 4
CONDITIONS = {
    "all": (None, lambda kind: True),
    "x": ({"class": "x"}, lambda kind: kind == "x"),
    "not x": ({"class": Not("x")}, lambda kind: kind != "x"),
}


def paired(ids, embeddings, classes):
    return dict(zip(ids, zip(embeddings, classes, strict=True), strict=True))


class Recorded:
    """An index, and what it held after each change.

    `states` gets a state before its change begins, `made` counts changes that are done:
    between two readings of these, the index was in one of the states between them.
    """

    def __init__(self, index_class, rows, seed):
        self.rng = np.random.default_rng(seed)
        embeddings, classes = self.embeddings(rows), self.classes(rows)
        ids = [f"id-{row}" for row in range(rows)]
        self.index = index_class.build(embeddings, ids, {"class": classes})
        self.names = rows
        self.states = [paired(ids, embeddings, classes)]
        self.made = 0

    def embeddings(self, count):
        return self.rng.normal(size=(count, DIMENSION)).astype(np.float32)

    def classes(self, count):
        return [["x", "y", "z"][n] for n in self.rng.integers(3, size=count)]

    def change(self):
        state = dict(self.states[-1])
        action = self.rng.choice(["add", "update", "remove", "swap"])
        count = int(self.rng.integers(1, 4))
        known = self.rng.permutation(list(state))[:count].tolist()
        embeddings, classes = self.embeddings(count), self.classes(count)
        if action == "add" or len(state) < 10:
            ids = [f"id-{self.names + place}" for place in range(count)]
            self.names += count
            state.update(paired(ids, embeddings, classes))
            self.states.append(state)
            self.index.add(embeddings, ids, {"class": classes})
        elif action == "remove":
            for value in known:
                del state[value]
            self.states.append(state)
            self.index.remove(known)
        else:
            for value in known:
                del state[value]
            state.update(paired(known, embeddings, classes))
            self.states.append(state)
            self.index.update(known, embeddings, {"class": classes})
        self.made = len(self.states) - 1

    def is_right(self, moments, holds, check):
        """Whether a check holds of a state between two moments."""
        for state in self.states[moments[0] : moments[1] + 1]:
            items = {i: row[0] for i, row in state.items() if holds(row[1])}
            try:
                check(items, state)
            except (AssertionError, KeyError):
                continue
            return True
        return False


class Reader:
    """Calls everything that reads, and keeps the answers."""

    def __init__(self, recorded, seed):
        self.recorded, self.answers = recorded, []
        self.rng = np.random.default_rng(seed)

    def read(self):
        recorded, index = self.recorded, self.recorded.index
        first = recorded.made
        name = str(self.rng.choice([*CONDITIONS, "get"]))
        known = self.rng.permutation(list(recorded.states[first]))[:3].tolist()
        queries = self.rng.normal(size=(2, DIMENSION)).astype(np.float32)
        if name == "get":
            question, answer = known[:1], None
            with contextlib.suppress(KeyError):  # it may be removed meanwhile
                answer = index.get(question)
        else:
            question = known if self.rng.random() < 0.5 else [known, []]
            where = CONDITIONS[name][0]
            answer = index.search(queries, 5, where=where, exclude=question)
            index.stats()
            index.count(where)
        moments = first, len(recorded.states) - 1
        self.answers.append((name, queries, question, answer, moments))

    def check(self, exactly, most):
        """Check so many answers, drawn from all that there were."""
        chosen = self.rng.permutation(len(self.answers))[:most]
        for name, queries, question, answer, moments in map(
            self.answers.__getitem__, chosen
        ):
            if name == "get":
                self.check_get(question, answer, moments)
                continue
            holds = CONDITIONS[name][1]

            def check(items, state, queries=queries, question=question, answer=answer):
                shared = not question or isinstance(question[0], str)
                each = [question] * 2 if shared else question
                allowed = [[i for i in items if i not in own] for own in each]
                width = min(5, *map(len, allowed))
                for place, ids in enumerate(allowed):
                    part = slice(place, place + 1)
                    one = SearchResult(answer.ids[part], answer.scores[part])
                    rows = np.array([items[i] for i in ids]).reshape(-1, DIMENSION)
                    assert_finds(
                        one, queries[part], rows, ids, width, "cosine", exactly=exactly
                    )

            assert self.recorded.is_right(moments, holds, check), (name, moments)

    def check_get(self, question, answer, moments):
        def check(items, state):
            if answer is None:
                assert question[0] not in state
                return
            embedding, kind = state[question[0]]
            np.testing.assert_array_equal(answer.embeddings[0], embedding)
            assert answer.attributes == [{"class": kind}]

        assert self.recorded.is_right(moments, lambda kind: True, check), moments


def check_readers(index_class, rows, seed, changes, answers):
    """Read with 4 threads while this one changes, until there are so many of both."""
    recorded = Recorded(index_class, rows, seed)
    readers = [Reader(recorded, seed) for seed in range(4)]
    with recorded.index, meanwhile(*(reader.read for reader in readers)) as threads:
        number = 0
        while number < changes or (
            any(len(one.answers) < answers for one in readers)
            and not any(thread.done() for thread in threads)
        ):
            recorded.change()
            number += 1
            if number % 50 == 25:
                recorded.index.compact()
    for reader in readers:
        reader.check(index_class is ExactIndex, 4 * answers)


@pytest.fixture
def eager(monkeypatch):
    """Have an index built again, and searched, as if it were a large one."""
    monkeypatch.setattr(MemoryIndex, "limits", Limits(tail_least=5, few_rows=3))


@BOTH
def test_readers_are_right_while_one_writes(index_class, eager):
    check_readers(index_class, rows=40, seed=0, changes=60, answers=10)


@pytest.mark.full
@BOTH
@pytest.mark.parametrize("rows", [40, 3000])
def test_readers_are_right_while_one_writes_for_long(index_class, rows, eager):
    check_readers(index_class, rows, seed=1, changes=300, answers=100)


@BOTH
@pytest.mark.parametrize("name", list(CONDITIONS))
@pytest.mark.parametrize("exclude", [None, ["id-1", "id-2"], [["id-1"], ["id-3"]]])
def test_search_sees_what_was_there_when_it_began(
    index_class, name, exclude, eager, monkeypatch
):
    recorded = Recorded(index_class, rows=20, seed=2)
    for _ in range(5):
        recorded.change()
    question = recorded.embeddings(2), 5
    options = {"where": CONDITIONS[name][0], "exclude": exclude}
    expected = recorded.index.search(*question, **options)

    def change():
        for number in range(20):
            recorded.change()
            if number % 7 == 0:
                recorded.index.compact()

    before_next(monkeypatch, local, "nearest", change)
    with recorded.index as index:
        result = index.search(*question, **options)
    assert result.ids.tolist() == expected.ids.tolist()
    # ScaNN may round a score in another way once it was built again.
    np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-6)


@BOTH
def test_writers_take_turns(index_class, eager):
    def write(first):
        for number in range(first, first + 40):
            index.add(np.full((1, 3), number + 1.0), [number], {"own": [first]})
            index.update([number], attributes={"twice": [2 * number]})
            if number % 3 == 0:
                index.remove([number])

    with index_class.build(np.eye(3)) as index:
        together(*(partial(write, first) for first in (100, 200, 300)))
    left = [n for f in (100, 200, 300) for n in range(f, f + 40) if n % 3]
    assert sorted(index.ids.tolist()) == [0, 1, 2, *left]
    items = index.get(left)
    assert items.embeddings[:, 0].tolist() == [number + 1.0 for number in left]
    assert items.attributes == [
        {"own": number // 100 * 100, "twice": 2 * number} for number in left
    ]

"""Near-duplicates against all pairs compared one by one."""

import itertools
import threading

import numpy as np
import pytest

from tfdml.index import ExactIndex, Not, ScannIndex, SearchResult, near_duplicates

BOTH = pytest.mark.parametrize("index_class", [ExactIndex, ScannIndex])


def families(sizes, dimension=8, noise=0.05, seed=0):
    """Draw families of nearly equal embeddings, in mixed order."""
    rng = np.random.default_rng(seed)
    centers = np.repeat(rng.normal(size=(len(sizes), dimension)), sizes, axis=0)
    points = centers + noise * rng.normal(size=centers.shape)
    return rng.permutation(points).astype(np.float32)


def score(a, b, metric="cosine"):
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.sqrt((a * a).sum() * (b * b).sum()) if metric == "cosine" else 1
    return float((a * b).sum() / lengths)


def all_pairs(rows, ids, threshold, metric="cosine"):
    """Compare every item with every other."""
    return {
        (ids[i], ids[j]): score(rows[i], rows[j], metric)
        for i, j in itertools.combinations(range(len(rows)), 2)
        if score(rows[i], rows[j], metric) >= threshold
    }


def connected(pairs):
    """Join pairs into groups, the slow way."""
    groups = [set(pair) for pair in pairs]
    for one, other in itertools.combinations(list(range(len(groups))), 2):
        if groups[one] & groups[other]:
            groups[other] |= groups[one]
            groups[one] = set()
    again = [group for group in groups if group]
    return again if len(again) == len(groups) else connected(again)


def found_pairs(found):
    first, second, scores = found.pairs
    return dict(
        zip(zip(first.tolist(), second.tolist(), strict=True), scores, strict=True)
    )


@BOTH
@pytest.mark.parametrize(
    ("metric", "threshold"), [("cosine", 0.95), ("cosine", 0.3), ("dot_product", 4.0)]
)
@pytest.mark.parametrize("kind", ["string", "integer"])
def test_pairs_and_groups_are_those_of_comparing_all(
    index_class, metric, threshold, kind
):
    rows = families([1, 2, 3, 9, 5, 1, 4] * 2)
    ids = list(range(100, 100 + len(rows)))
    if kind == "string":
        ids = [f"{number}.png" for number in ids]
    index = index_class.build(rows, ids, metric=metric)
    found = near_duplicates(
        index, threshold=threshold, neighbors=len(rows), batch_size=7
    )
    expected = all_pairs(rows, ids, threshold, metric)
    received = found_pairs(found)
    assert received.keys() == expected.keys()
    assert len(expected) > 20
    for pair, value in received.items():
        assert value == pytest.approx(expected[pair], rel=1e-5)
    assert (np.diff(found.pairs.scores) <= 0).all()
    groups = connected(list(expected))
    assert {frozenset(g) for g in found.groups} == {frozenset(g) for g in groups}
    sizes = [len(group) for group in found.groups]
    assert sizes == sorted(sizes, reverse=True)
    assert found.compared == len(rows)
    assert found.complete
    assert found.threshold == threshold


@pytest.mark.parametrize(("metric", "threshold"), [("cosine", 0.6), ("dot_product", 4)])
def test_group_begins_with_its_medoid_and_goes_on_by_similarity(metric, threshold):
    rows = families([12, 7, 2], noise=0.3)
    index = ExactIndex.build(rows, metric=metric)
    found = near_duplicates(index, threshold=threshold, neighbors=30)
    assert len(found.groups) > 1
    for group, least in zip(found.groups, found.least_scores, strict=True):
        sums = {
            a: sum(score(rows[a], rows[b], metric) for b in group if b != a)
            for a in group
        }
        assert sums[group[0]] == pytest.approx(max(sums.values()))
        scores = [score(rows[group[0]], rows[a], metric) for a in group[1:]]
        assert scores == sorted(scores, reverse=True)
        assert least == pytest.approx(scores[-1])


def test_chain_is_one_group_whose_least_score_is_below_the_threshold():
    angles = np.radians([0, 15, 30, 45, 60])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    found = near_duplicates(ExactIndex.build(rows, ids=list("abcde")))
    # cos(15 degrees) is 0.966, cos(30 degrees) is 0.866.
    assert sorted(found_pairs(found)) == [
        ("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"),
    ]  # fmt: skip
    (group,) = found.groups
    assert group[0] == "c"
    assert set(group[1:3]) == {"b", "d"}
    assert found.least_scores == [pytest.approx(np.sqrt(3) / 2)]


@BOTH
def test_equal_items_keep_the_order_of_the_gallery(index_class):
    index = index_class.build(np.ones((6, 4)), ids=list("fedcba"))
    found = near_duplicates(index, threshold=0.9999)
    assert found.groups == [tuple("fedcba")]
    assert list(found_pairs(found)) == list(itertools.combinations("fedcba", 2))


def test_equally_large_groups_keep_the_order_of_the_gallery():
    rows = np.eye(3)[[0, 1, 2, 1, 0, 2]]
    assert near_duplicates(ExactIndex.build(rows)).groups == [(0, 4), (1, 3), (2, 5)]


def test_threshold_is_reached_by_an_equal_score():
    rows = [[1.0, 0.0], [3.0, 4.0]]
    index = ExactIndex.build(rows)
    assert near_duplicates(index, threshold=0.6).groups == [(0, 1)]
    assert near_duplicates(index, threshold=0.6001).groups == []
    same = ExactIndex.build([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    assert near_duplicates(same, threshold=1).groups == [(0, 1)]


@BOTH
@pytest.mark.parametrize("rows", [0, 1])
def test_gallery_of_fewer_than_two_items_has_no_pairs(index_class, rows):
    index = index_class.build(np.ones((rows, 3)))
    found = near_duplicates(index)
    assert found.groups == found.least_scores == []
    assert [len(part) for part in found.pairs] == [0, 0, 0]
    assert found.compared == rows
    assert found.complete


def test_items_with_more_neighbors_than_are_looked_at_make_it_incomplete():
    # Two heaps of five; the pairs between them are the less similar ones.
    near = np.array([1.0, 0.25])
    rows = np.concatenate([np.tile([1.0, 0.0], (5, 1)), np.tile(near, (5, 1))])
    index = ExactIndex.build(rows)
    found = near_duplicates(index, neighbors=4)
    assert not found.complete
    assert [len(group) for group in found.groups] == [5, 5]
    found = near_duplicates(index, neighbors=5)
    assert not found.complete
    assert [len(group) for group in found.groups] == [10]
    found = near_duplicates(index, neighbors=9)  # all the others
    assert found.complete
    assert len(found.pairs.scores) == 45


def test_item_crowded_out_by_its_equals_has_no_more_pairs_than_others():
    found = near_duplicates(ExactIndex.build(np.ones((10, 3))), neighbors=1)
    assert not found.complete
    assert sorted(found_pairs(found)) == [(0, other) for other in range(1, 10)]
    assert found.groups == [tuple(range(10))]


def test_higher_score_of_both_sides_counts():
    # As rounding may have it in an approximate index.
    class Rounding(ExactIndex):
        calls = 0

        def search(self, *arguments, **options):
            self.calls += 1
            ids, scores = super().search(*arguments, **options)
            return SearchResult(ids, scores - (0.01 if self.calls in (1, 4) else 0))

    index = Rounding.build(np.eye(2)[[0, 0, 1, 1]])
    found = near_duplicates(index, threshold=0.98, batch_size=1)
    assert found_pairs(found) == {(0, 1): 1, (2, 3): 1}


def test_one_item_with_many_neighbors_is_found_from_the_others():
    rows = np.concatenate([np.ones((1, 6)), np.ones((6, 6)) + 1.5 * np.eye(6)])
    assert score(rows[0], rows[1]) > 0.9 > score(rows[1], rows[2])
    found = near_duplicates(ExactIndex.build(rows), threshold=0.9, neighbors=2)
    assert found.complete
    assert sorted(found_pairs(found)) == [(0, other) for other in range(1, 7)]


@BOTH
def test_filter_compares_only_what_it_lets_pass(index_class):
    rows = families([6, 6, 6])
    classes = ["cat", "dog", None] * 6
    index = index_class.build(rows, attributes={"class": classes})
    for where, kept in (
        ({"class": "cat"}, {"cat"}),
        ({"class": Not("cat")}, {"dog", None}),
        ({"class": ["cat", "dog"]}, {"cat", "dog"}),
        ({"class": "bird"}, set()),
    ):
        found = near_duplicates(index, where=where, batch_size=5)
        chosen = [row for row, name in enumerate(classes) if name in kept]
        expected = all_pairs(rows[chosen], chosen, 0.95)
        assert found_pairs(found).keys() == expected.keys()
        assert found.compared == len(chosen)


@BOTH
def test_added_items_are_compared_and_removed_ones_are_not(index_class):
    index = index_class.build(np.eye(4), ids=list("abcd"))
    index.add(np.eye(4)[:2], ["a again, with a long id", "b again"])
    index.remove(["b"])
    found = near_duplicates(index)
    assert found.groups == [("a", "a again, with a long id")]
    assert found.compared == 5


@pytest.fixture
def milvus(tmp_path):
    """Return a function that builds an exact index in Milvus, and counts requests."""
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    from tfdml.index import MilvusIndex

    made = []

    def build(*arguments, **options):
        options |= {"uri": str(tmp_path / "milvus.db"), "collection": f"c{len(made)}"}
        made.append(MilvusIndex.build(*arguments, **{"index_type": "FLAT"} | options))
        return made[-1]

    yield build
    for index in made:
        index.close()


@pytest.mark.parametrize(
    ("metric", "threshold"), [("cosine", 0.97), ("dot_product", 4.0)]
)
def test_index_in_milvus_has_the_same_pairs(milvus, metric, threshold):
    rows = families([1, 2, 3, 9, 5, 1, 4])
    ids = [f'{place:02} "quoted"' for place in range(len(rows))]
    classes = {"class": ["cat", None, "dog", "dog", "cat"] * 5}
    exact = ExactIndex.build(rows, ids, classes, metric=metric)
    index = milvus(rows, ids, classes, metric=metric)
    for where in (None, {"class": "dog"}, {"class": Not("dog")}):
        expected = near_duplicates(exact, threshold=threshold, where=where)
        found = near_duplicates(index, threshold=threshold, where=where)
        assert found_pairs(found).keys() == found_pairs(expected).keys()
        assert expected.groups
        assert {frozenset(group) for group in found.groups} == {
            frozenset(group) for group in expected.groups
        }
        assert found.compared == expected.compared
        assert found.complete


def test_index_in_milvus_that_finds_little_for_an_item_misses_no_pair(milvus):
    rows = families([3, 3, 40], noise=0.02)
    index = milvus(
        rows,
        index_type="IVF_FLAT",
        index_parameters={"nlist": 3},
        search_parameters={"nprobe": 1},
    )
    found = near_duplicates(index, neighbors=45)
    assert found_pairs(found).keys() == all_pairs(rows, list(range(46)), 0.95).keys()
    assert found.complete


def test_index_in_milvus_gets_many_items_in_one_request(milvus, monkeypatch):
    index = milvus(np.repeat(np.eye(40), 2, axis=0))
    calls, query = [], index._store.client.query

    def count(*arguments, **options):
        calls.append(arguments)
        return query(*arguments, **options)

    monkeypatch.setattr(index._store.client, "query", count)
    assert len(near_duplicates(index).groups) == 40
    assert len(calls) <= 6  # of ids, an empty page, items, those in pairs, groups


class Changing(ExactIndex):
    """An index that loses or gains items at a chosen call."""

    before_get = before_search = staticmethod(lambda index: None)

    def get(self, ids):
        self.before_get(self)
        return super().get(ids)

    def search(self, *arguments, **options):
        self.before_search(self)
        return super().search(*arguments, **options)


def remove_once(*ids):
    def change(index):
        gone = [item for item in ids if item in index]
        if gone:
            index.remove(gone)

    return change


@pytest.mark.parametrize("moment", ["before_get", "before_search"])
def test_items_removed_meanwhile_are_left_out(moment):
    rows = np.eye(3)[[0, 0, 0, 1, 1, 2]]
    index = Changing.build(rows, ids=list("abcdef"))
    setattr(index, moment, remove_once("b", "d"))
    found = near_duplicates(index)
    assert found.groups == [("a", "c")]
    assert list(found_pairs(found)) == [("a", "c")]


def test_many_items_removed_meanwhile_are_left_out_in_one_run():
    rows = families([4] * 25, noise=0.01)
    index = Changing.build(rows)
    gone = np.random.default_rng(1).permutation(100)[:40].tolist()
    calls = itertools.count()
    index.before_get = lambda index: (
        remove_once(*gone)(index) if next(calls) == 9 else None
    )
    found = near_duplicates(index, batch_size=16)
    stay = [row for row in range(100) if row not in gone]
    assert found_pairs(found).keys() == all_pairs(rows[stay], stay, 0.95).keys()
    groups = connected(list(found_pairs(found)))
    assert {frozenset(g) for g in found.groups} == {frozenset(g) for g in groups}


class Counting(Changing):
    """Counts how often items and ids are asked for."""

    asked = 0

    @property
    def ids(self):
        self.asked += 1
        return super().ids

    def get(self, ids):
        self.asked += 1
        return super().get(ids)


def test_many_items_removed_at_once_take_few_requests():
    rows = families([4] * 100, noise=0.01)
    index = Counting.build(rows)
    gone = np.random.default_rng(1).permutation(400)[:300].tolist()
    index.before_search = remove_once(*gone)
    found = near_duplicates(index, batch_size=50)
    # All ids, 8 batches, 3 of groups; all ids and a batch once more, and the groups,
    # as items of the first batch have gone.
    assert index.asked <= 1 + 8 + 3 + 2 + 3
    stay = [row for row in range(400) if row not in gone]
    assert found_pairs(found).keys() == all_pairs(rows[stay], stay, 0.95).keys()


def test_gallery_of_which_an_item_goes_at_each_request_comes_to_an_end():
    rows = families([4] * 25, noise=0.01)
    index = Counting.build(rows)
    order = iter(np.random.default_rng(1).permutation(100).tolist())

    def remove_one(index):
        if len(index) > 3:
            index.remove([next(order)])

    index.before_get = remove_one
    found = near_duplicates(index, batch_size=16)
    members = [member for group in found.groups for member in group]
    assert set(members) == set(found.pairs.first) | set(found.pairs.second)
    assert len(members) == len(set(members))
    assert index.asked <= 400


def test_group_that_falls_apart_as_its_middle_goes_is_two():
    angles = np.radians([0, 10, 20, 30, 40, 0.5])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    index = Changing.build(rows, ids=list("abcdef"))
    calls = itertools.count()
    index.before_get = lambda index: (
        remove_once("c")(index) if next(calls) == 1 else None
    )
    found = near_duplicates(index, threshold=0.98)
    assert found.groups == [("f", "a", "b"), ("d", "e")]
    assert not {"c"} & set(found.pairs.first) | {"c"} & set(found.pairs.second)


class Short(ExactIndex):
    """An index that finds few for one query, and so for all of its batch."""

    def search(self, queries, k=10, **options):
        ids, scores = super().search(queries, k, **options)
        return SearchResult(ids[:, :3], scores[:, :3])


@pytest.mark.parametrize(("others", "complete"), [(2, False), (1, True)])
def test_items_of_which_the_search_gave_few_are_complete_only_if_it_was_enough(
    others, complete
):
    rows = np.repeat(np.eye(6), 1 + others, axis=0)
    found = near_duplicates(Short.build(rows), neighbors=10)
    assert found.complete == complete
    assert len(found.groups) == 6


def test_item_of_which_the_search_gives_few_cuts_no_others():
    class Poor(ExactIndex):
        def search(self, queries, k=10, **options):
            ids, scores = super().search(queries, k, **options)
            has_poor = (np.asarray(queries) == rows[7]).all(axis=1).any()
            return SearchResult(
                *(of[:, : 2 if has_poor else k] for of in (ids, scores))
            )

    rows = families([9] * 4, noise=0.02)
    found = near_duplicates(Poor.build(rows), neighbors=12)
    # Those that the one item misses are found from the others.
    assert found_pairs(found).keys() == all_pairs(rows, list(range(36)), 0.95).keys()
    assert found.complete


def test_small_gallery_of_equal_items_is_complete_where_all_were_seen():
    index = ExactIndex.build(np.ones((5, 3)))
    assert near_duplicates(index, neighbors=20).complete
    assert near_duplicates(index, neighbors=4).complete
    assert not near_duplicates(index, neighbors=3).complete
    assert not near_duplicates(Short.build(np.ones((5, 3)))).complete


def test_item_removed_while_groups_are_put_in_order_is_left_out():
    index = Changing.build(np.eye(3)[[0, 0, 0, 1, 1, 2]], ids=list("abcdef"))
    calls = itertools.count()
    index.before_get = lambda index: (
        remove_once("b", "d")(index) if next(calls) == 1 else None
    )
    assert near_duplicates(index).groups == [("a", "c")]


def test_items_added_meanwhile_are_not_looked_for():
    index = Changing.build(np.eye(3)[[0, 0, 1]], ids=list("abc"))

    def add(index):
        if "new" not in index:
            index.add(np.eye(3)[:1], ["new"])

    index.before_search = add
    found = near_duplicates(index)
    assert found.groups == [("a", "b")]
    assert found.compared == 3


def test_changes_from_another_thread_leave_a_result_of_items_that_stay():
    rows = families([4] * 30, noise=0.01)
    index = ExactIndex.build(rows)
    done = threading.Event()

    def change():
        for item in range(0, 120, 3):
            index.remove([item])
            index.add(rows[item : item + 1], [1000 + item])
        done.set()

    thread = threading.Thread(target=change)
    thread.start()
    staying = set(range(120)) - set(range(0, 120, 3))
    expected = {
        pair for pair in all_pairs(rows, list(range(120)), 0.95) if set(pair) <= staying
    }
    while not done.is_set():
        found = found_pairs(near_duplicates(index))
        assert expected <= found.keys()
    thread.join()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 95}, "`threshold` must be from -1 to 1"),
        ({"threshold": float("nan")}, "`threshold` must be finite"),
        ({"neighbors": 0}, "`neighbors` must be a whole number of at least 1"),
        ({"where": {"color": "red"}}, "`where` must name attributes of the index"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    index = ExactIndex.build(np.eye(2), attributes={"class": ["a", "b"]})
    with pytest.raises(ValueError, match=message):
        near_duplicates(index, **arguments)


def test_dot_products_may_have_any_threshold():
    index = ExactIndex.build([[30.0, 0], [2, 0], [-1, 0]], metric="dot_product")
    assert near_duplicates(index, threshold=60).groups == [(0, 1)]
    assert near_duplicates(index, threshold=-2).groups == [(1, 0, 2)]

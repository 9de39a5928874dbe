"""Near-duplicates of any index, against all pairs compared one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.index_kinds import score
from tests.support.refuses import refusals, refuses
from tfdml.index import ExactIndex, LocalIndex, SearchResult, near_duplicates

some = settings(derandomize=True, deadline=None, max_examples=40)


def families(sizes, dimension=8, noise=0.05, seed=0):
    """Draw families of nearly equal embeddings, in mixed order."""
    rng = np.random.default_rng(seed)
    centers = np.repeat(rng.normal(size=(len(sizes), dimension)), sizes, axis=0)
    points = centers + noise * rng.normal(size=centers.shape)
    return rng.permutation(points).astype(np.float32)


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


def check(found, rows, ids, threshold, metric="cosine"):
    """Check the pairs and groups of items that were all there, by their definition."""
    expected = all_pairs(rows, ids, threshold, metric)
    received = found_pairs(found)
    assert received.keys() == expected.keys()
    for pair, value in received.items():
        assert value == pytest.approx(expected[pair], rel=1e-5, abs=1e-5)
    assert (np.diff(found.pairs.scores) <= 0).all()
    groups = connected(list(expected))
    assert {frozenset(g) for g in found.groups} == {frozenset(g) for g in groups}
    # The largest first, equally large ones in the order of the gallery.
    order = [(-len(group), min(map(ids.index, group))) for group in found.groups]
    assert order == sorted(order)
    for group, least in zip(found.groups, found.least_scores, strict=True):
        check_medoid(group, least, dict(zip(ids, rows, strict=True)), metric)


def check_medoid(group, least, rows, metric):
    """Check that a group begins with its medoid, and goes on by similarity to it."""
    sums = {
        a: sum(score(rows[a], rows[b], metric) for b in group if b != a) for a in group
    }
    assert sums[group[0]] == pytest.approx(max(sums.values()), rel=1e-5)
    scores = [score(rows[group[0]], rows[a], metric) for a in group[1:]]
    assert (np.diff(scores) <= 1e-5).all()
    assert least == pytest.approx(scores[-1], rel=1e-5, abs=1e-5)


@st.composite
def galleries(draw):
    """Draw families of nearly equal embeddings, their ids, and classes."""
    sizes = draw(st.lists(st.integers(1, 6), max_size=6))
    rows = families(sizes, dimension=4, noise=draw(st.sampled_from([0.0, 0.05, 0.3])))
    rows = rows.reshape(-1, 4)
    ids = list(range(100, 100 + len(rows)))
    if draw(st.booleans()):
        ids = [f'{number} "quoted"' for number in ids]
    classes = draw(st.lists(st.sampled_from("xyz"), min_size=len(ids), max_size=99))
    return rows, ids, classes[: len(ids)]


# No score of a drawn gallery is so near to one of these that rounding decides.
THRESHOLDS = [("cosine", 0.951), ("cosine", 0.301), ("dot_product", 1.501)]


@pytest.mark.parametrize("kind", ["exact", "local"])
@given(
    gallery=galleries(),
    threshold=st.sampled_from(THRESHOLDS),
    size=st.integers(1, 9),
    among=st.sampled_from([None, "x", "yz"]),
)
@some
def test_pairs_and_groups_are_those_of_comparing_all(
    kind, gallery, threshold, size, among
):
    rows, ids, classes = gallery
    metric, threshold = threshold
    build = {"exact": ExactIndex, "local": LocalIndex}[kind].build
    half = len(ids) // 2  # the others are added
    index = build(rows[:half], ids[:half], {"class": classes[:half]}, metric=metric)
    if half:
        index.add(rows[half:], ids[half:], {"class": classes[half:]})
    else:
        index = build(rows, ids, {"class": classes}, metric=metric)
    chosen = [n for n in range(len(ids)) if among is None or classes[n] in among]
    where = among and {"class": list(among)}
    if not len(index.stats().attributes):
        where, chosen = None, list(range(len(ids)))
    found = near_duplicates(
        index, threshold=threshold, neighbors=40, where=where, batch_size=size
    )
    assert found.compared == len(chosen)
    assert found.complete
    assert found.threshold == threshold
    own = [ids[n] for n in chosen]
    check(found, rows[chosen], own, threshold, metric)


class Changing(ExactIndex):
    """An index that changes before chosen calls, and counts the calls."""

    calls = 0
    changes = {}  # noqa: RUF012  (ids to be removed or added by the number of the call)

    def change(self):
        number, self.calls = self.calls, self.calls + 1
        for item in self.changes.get(number, ()):
            if item in super().ids:
                self.remove([item])
            else:
                self.add(np.ones((1, 4)), [item])

    @property
    def ids(self):
        self.change()
        return super().ids

    def get(self, ids):
        self.change()
        return super().get(ids)

    def search(self, *arguments, **options):
        self.change()
        return super().search(*arguments, **options)


@given(
    gallery=galleries(),
    size=st.integers(2, 9),
    changes=st.dictionaries(
        st.integers(0, 25), st.sets(st.integers(0, 40), max_size=8), max_size=8
    ),
)
@settings(some, max_examples=150)
def test_what_comes_and_goes_meanwhile_disturbs_no_other(gallery, size, changes):
    rows, _, _ = gallery
    ids = list(range(len(rows)))
    index = Changing.build(rows.reshape(-1, 4), ids)
    index.changes = changes
    found = near_duplicates(index, neighbors=60, batch_size=size)
    touched = set().union(*changes.values()) if changes else set()
    # All pairs of the items that nobody has touched.
    staying = [n for n in ids if n not in touched]
    expected = all_pairs(rows[staying], staying, 0.95).keys()
    received = found_pairs(found)
    assert {pair for pair in received if not {*pair} & touched} == expected
    # What has come is not looked for, and what was found belongs together.
    members = [member for group in found.groups for member in group]
    assert len(members) == len(set(members))
    assert set(members) == {end for pair in received for end in pair}
    assert {frozenset(g) for g in found.groups} == {
        frozenset(g) for g in connected(list(received))
    }
    # Each batch twice, each group twice, and so often again as items have gone.
    assert index.calls <= 10 * (len(ids) + 1) + 30


def test_many_items_removed_at_once_take_few_requests():
    rows = families([4] * 100, dimension=4, noise=0.01)
    index = Changing.build(rows)
    gone = np.random.default_rng(1).permutation(400)[:300].tolist()
    index.changes = {2: gone}  # after all ids and the first batch
    near_duplicates(index, batch_size=50)
    # All ids, 8 batches twice, 3 of groups; all ids and a batch once more, and the
    # groups, as items of the first batch have gone.
    assert index.calls <= 1 + 16 + 3 + 2 + 3


def test_removed_item_is_in_no_group_and_a_group_that_it_held_together_is_two():
    angles = np.radians([0, 10, 20, 30, 40, 0.5])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    index = Changing.build(rows, ids=list("abcdef"))
    index.changes = {3: ["c"]}  # after ids, the items and the search for them
    found = near_duplicates(index, threshold=0.98)
    assert found.groups == [("f", "a", "b"), ("d", "e")]
    assert "c" not in {*found.pairs.first, *found.pairs.second}


@pytest.mark.parametrize(("metric", "threshold"), THRESHOLDS)
def test_index_in_milvus_has_the_same_pairs(milvus, metric, threshold):
    rows = families([1, 2, 3, 9, 5, 1, 4], dimension=4)
    ids = [f'{place:02} "quoted"' for place in range(len(rows))]
    index = milvus(rows, ids, metric=metric)
    found = near_duplicates(index, threshold=threshold, neighbors=30, batch_size=7)
    check(found, rows, ids, threshold, metric)
    assert found.complete


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


def test_threshold_is_reached_by_an_equal_score():
    rows = [[1.0, 0.0], [3.0, 4.0]]
    index = ExactIndex.build(rows)
    assert near_duplicates(index, threshold=0.6).groups == [(0, 1)]
    assert near_duplicates(index, threshold=0.6001).groups == []
    same = ExactIndex.build([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    assert near_duplicates(same, threshold=1).groups == [(0, 1)]


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


class Altered(ExactIndex):
    """An index whose answers a test alters."""

    def search(self, queries, k=10, **options):
        found = super().search(queries, k, **options)
        return SearchResult(*self.alter(np.asarray(queries), *found))


def altered(rows, alter):
    index = Altered.build(rows)
    index.alter = alter
    return index


def short(queries, ids, scores):
    return ids[:, :3], scores[:, :3]


def test_higher_score_of_both_sides_counts():
    # As rounding may have it in an approximate index.
    lower = iter([0.01, 0, 0, 0.01])
    index = altered(
        np.eye(2)[[0, 0, 1, 1]],
        lambda queries, ids, scores: (ids, scores - next(lower)),
    )
    found = near_duplicates(index, threshold=0.98, batch_size=1)
    assert found_pairs(found) == {(0, 1): 1, (2, 3): 1}


def test_one_item_with_many_neighbors_is_found_from_the_others():
    rows = np.concatenate([np.ones((1, 6)), np.ones((6, 6)) + 1.5 * np.eye(6)])
    assert score(rows[0], rows[1]) > 0.9 > score(rows[1], rows[2])
    found = near_duplicates(ExactIndex.build(rows), threshold=0.9, neighbors=2)
    assert found.complete
    assert sorted(found_pairs(found)) == [(0, other) for other in range(1, 7)]


@pytest.mark.parametrize(("others", "complete"), [(2, False), (1, True)])
def test_items_of_which_the_search_gave_few_are_complete_only_if_it_was_enough(
    others, complete
):
    index = altered(np.repeat(np.eye(6), 1 + others, axis=0), short)
    found = near_duplicates(index, neighbors=10)
    assert found.complete == complete
    assert len(found.groups) == 6


def test_item_of_which_the_search_gives_few_cuts_no_others():
    def poor(queries, ids, scores):
        width = 2 if (queries == rows[7]).all(axis=1).any() else None
        return ids[:, :width], scores[:, :width]

    rows = families([9] * 4, noise=0.02)
    found = near_duplicates(altered(rows, poor), neighbors=12)
    # Those that the one item misses are found from the others.
    assert found_pairs(found).keys() == all_pairs(rows, list(range(36)), 0.95).keys()
    assert found.complete


def test_small_gallery_of_equal_items_is_complete_where_all_were_seen():
    index = ExactIndex.build(np.ones((5, 3)))
    assert near_duplicates(index, neighbors=20).complete
    assert near_duplicates(index, neighbors=4).complete
    assert not near_duplicates(index, neighbors=3).complete
    assert not near_duplicates(altered(np.ones((5, 3)), short)).complete


@refusals(
    ("threshold", 95, "must be from -1 to 1"),
    ("threshold", float("nan"), "must be finite"),
    ("neighbors", 0, "must be a whole number of at least 1"),
    ("batch_size", 0, "must be a whole number of at least 1"),
    ("where", {"color": "red"}, "must name attributes of the index"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    index = ExactIndex.build(np.eye(2), attributes={"class": ["a", "b"]})
    valid = {"index": index}
    refuses(near_duplicates, argument=argument, value=value, rule=rule, valid=valid)


def test_dot_products_may_have_any_threshold():
    index = ExactIndex.build([[30.0, 0], [2, 0], [-1, 0]], metric="dot_product")
    assert near_duplicates(index, threshold=60).groups == [(0, 1)]
    assert near_duplicates(index, threshold=-2).groups == [(1, 0, 2)]

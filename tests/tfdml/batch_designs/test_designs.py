"""Batch designs: which images share a batch, by the definition of each."""

import subprocess
import sys

import numpy as np
import pytest

from tests.support.enumerated_draws import outcomes
from tfdml.batch_designs import (
    CappedClassBatches,
    ClassHierarchy,
    GroupBatches,
    HierarchyBatches,
    NeighborBatches,
    NPairBatches,
    PairBatches,
    ShuffledBatches,
    class_means,
    encode_labels,
)

LABELS = np.array([0, 1, 2, 3, 4] * 6 + [5, 6, 6])  # class 5 has one image, 6 two
NAMES = np.array(["wren", "jay", "owl", "tit", "rook", "kite", "crow"])[LABELS]
POSES = np.random.default_rng(0).normal(size=(33, 4))
EMBEDDINGS = np.random.default_rng(1).normal(size=(7, 5))

DESIGNS = {
    "group": lambda seed: GroupBatches(LABELS, 2, 3, seed=seed),
    "pair": lambda seed: PairBatches(LABELS, 4, seed=seed),
    "capped": lambda seed: CappedClassBatches(LABELS, 8, 3, seed=seed),
    "n-pair": lambda seed: NPairBatches(LABELS, 2, seed=seed),
    "mined": lambda seed: NPairBatches(
        LABELS, 3, class_embeddings=EMBEDDINGS, candidate_classes=5, seed=seed
    ),
    "hierarchy": lambda seed: HierarchyBatches(
        LABELS, 2, 3, 2, hierarchy=ClassHierarchy(EMBEDDINGS[LABELS], LABELS), seed=seed
    ),
    "neighbor": lambda seed: NeighborBatches(
        POSES, 9, neighbors=2, anchors=2, seed=seed
    ),
    "shuffled": lambda seed: ShuffledBatches(33, 8, seed=seed),
}
every_design = pytest.mark.parametrize("make", DESIGNS.values(), ids=DESIGNS)


@every_design
def test_pass_is_an_array_of_positions(make):
    design = make(3)
    batches = design.batches(2)
    assert batches.dtype == np.int64
    assert batches.shape == (len(design), design.batch_size)
    assert batches.min() >= 0
    assert batches.max() < design.images == 33


@every_design
def test_pass_depends_on_seed_and_number_alone(make):
    first, second = make(4), make(4)
    first.batches(0)
    np.testing.assert_array_equal(first.batches(7), second.batches(7))
    assert not np.array_equal(first.batches(7), first.batches(8))
    assert not np.array_equal(first.batches(7), make(5).batches(7))


@every_design
def test_pass_is_a_whole_number(make):
    for wrong in (-1, 0.5, None):
        with pytest.raises(ValueError, match=f"`pass_number` must .*={wrong}"):
            make(0).batches(wrong)
    with pytest.raises(ValueError, match=r"`seed` must .* seed=-1"):
        make(-1)


def test_other_processes_draw_the_same():
    code = (
        "from tests.tfdml.batch_designs.test_designs import DESIGNS\n"
        "print(*(m(4).batches(7).tobytes().hex() for m in DESIGNS.values()))"
    )
    options = {"capture_output": True, "text": True, "check": True}
    other = subprocess.run([sys.executable, "-c", code], **options)
    here = [make(4).batches(7).tobytes().hex() for make in DESIGNS.values()]
    assert other.stdout.split() == here


@pytest.mark.parametrize(
    "make",
    [
        lambda labels: GroupBatches(labels, 2, 3),
        lambda labels: PairBatches(labels, 4),
        lambda labels: CappedClassBatches(labels, 8, 3),
        lambda labels: NPairBatches(labels, 3, class_embeddings=EMBEDDINGS),
    ],
)
def test_labels_may_be_integers_of_any_size_or_strings(make):
    numbers, _ = encode_labels(NAMES)
    expected = make(numbers).batches(1)
    alike = (NAMES.tolist(), NAMES.astype(object), NAMES[:, None], numbers * 1.0)
    for labels in (NAMES, *alike, 2**40 * numbers - 7):
        np.testing.assert_array_equal(make(labels).batches(1), expected)
    missing = np.where(LABELS[0] == LABELS, np.nan, LABELS)
    for wrong in (LABELS + 0.5, missing, np.eye(3), 3, np.array([1, "a"], object)):
        with pytest.raises(ValueError, match=r"`labels` must (hold|have|not have) "):
            make(wrong)
    with pytest.raises(ValueError, match=r"must .*Received"):
        make([])


def test_encoded_labels_give_the_names_again():
    numbers, names = encode_labels(NAMES)
    assert numbers.dtype == np.int64
    assert names.tolist() == sorted(set(NAMES))
    np.testing.assert_array_equal(names[numbers], NAMES)


# Groups


def test_batch_holds_m_images_of_n_classes():
    design = GroupBatches(LABELS, 3, 2, seed=1)
    batches = design.batches(0)
    assert batches.shape == (len(design), design.batch_size) == (3, 6)
    for batch in batches:
        classes, counts = np.unique(LABELS[batch], return_counts=True)
        assert len(classes) == 2
        assert counts.tolist() == [3, 3]


def test_class_comes_once_in_a_pass_and_every_class_in_some():
    design = GroupBatches(LABELS, 2, 2, seed=1)
    seen = set()
    for number in range(20):
        classes = LABELS[design.batches(number)[:, ::2]].ravel()
        assert len(set(classes)) == len(classes)
        seen |= set(classes.tolist())
    assert seen == set(range(7))


def test_images_of_a_class_differ_where_there_are_enough():
    for batch in GroupBatches(LABELS, 6, 1, seed=0).batches(3):
        if LABELS[batch[0]] < 5:
            assert len(set(batch.tolist())) == 6


def test_small_class_gives_all_its_images_repeated_as_little_as_can_be():
    design = GroupBatches([0, 0, 0, 1], 5, 2, seed=0)
    for number in range(5):
        images, counts = np.unique(design.batches(number), return_counts=True)
        assert images.tolist() == [0, 1, 2, 3]
        assert sorted(counts[:3].tolist()) == [1, 2, 2]
        assert counts[3] == 5


def test_small_classes_are_left_out_where_asked():
    design = GroupBatches(LABELS, 3, 5, small_classes="leave_out")
    batch = design.batches(0)[0]
    assert sorted(set(LABELS[batch].tolist())) == [0, 1, 2, 3, 4]
    assert len(set(batch.tolist())) == 15
    positive, negative = design.importance_weights()
    assert not positive[5:].any()
    assert not negative[5:].any()


def test_each_image_of_a_class_is_drawn_as_often():
    found = [
        tuple(batch[0]) for batch, _ in outcomes(GroupBatches([0] * 4, 2, 1).draw_pass)
    ]
    counts = np.unique(found, axis=0, return_counts=True)[1]
    assert counts.tolist() == [2] * 12  # 24 orders, 12 ordered pairs


# Pairs


def test_pair_is_two_images_of_one_class_or_of_two():
    design = PairBatches(LABELS, 50, positive_probability=0.5, seed=2)
    batches = np.concatenate([design.batches(i) for i in range(20)])
    first, second = LABELS[batches[:, ::2]], LABELS[batches[:, 1::2]]
    assert (batches[:, ::2] != batches[:, 1::2]).all()
    assert set(np.concatenate([first, second]).ravel().tolist()) == {0, 1, 2, 3, 4, 6}
    # 1,000 pairs: 5 standard errors.
    assert abs((first == second).mean() - 0.5) < 5 * 0.5 / np.sqrt(1000)


@pytest.mark.parametrize("p", [0, 1])
def test_all_pairs_are_of_one_kind_at_the_ends(p):
    batches = PairBatches(LABELS, 5, positive_probability=p).batches(0)
    same = LABELS[batches[:, ::2]] == LABELS[batches[:, 1::2]]
    assert (same == p).all()


def test_pass_of_pairs_holds_as_many_places_as_used_images():
    assert len(PairBatches(LABELS, 4)) == 32 // 8
    assert len(PairBatches(LABELS, 100)) == 1


# Capped classes


@pytest.mark.parametrize(("batch_size", "cap"), [(8, 3), (18, 3), (33, 11), (5, 1)])
def test_batch_is_full_and_no_class_exceeds_the_cap(batch_size, cap):
    design = CappedClassBatches(LABELS, batch_size, cap, seed=1)
    sizes = np.bincount(LABELS)
    for number in range(10):
        for batch in design.batches(number):
            assert len(set(batch.tolist())) == batch_size
            classes, starts, counts = np.unique(
                LABELS[batch], return_index=True, return_counts=True
            )
            assert counts.max() <= cap
            # Together, and all but the last give what they can.
            order = np.argsort(starts)
            assert (np.diff(LABELS[batch]) != 0).sum() == len(classes) - 1
            given = np.minimum(sizes[classes], cap)[order]
            np.testing.assert_array_equal(counts[order][:-1], given[:-1])


def test_classes_have_as_many_turns_in_a_pass():
    labels = np.repeat(np.arange(10), 20)
    for number in range(10):
        batches = CappedClassBatches(labels, 12, 5).batches(number)
        turns = np.bincount(np.concatenate([np.unique(labels[b]) for b in batches]))
        assert len(turns) == 10
        assert turns.max() - turns.min() <= 1


def test_published_size_is_the_default():
    design = CappedClassBatches(np.repeat(np.arange(100), 59))
    batches = design.batches(0)
    assert batches.shape == (92, 64)
    counts = [np.unique(batch // 59, return_counts=True)[1] for batch in batches]
    assert all(sorted(c.tolist()) == [9, 11, 11, 11, 11, 11] for c in counts)


# N-pairs


def test_batch_holds_two_images_of_each_class():
    for make in (DESIGNS["n-pair"], DESIGNS["mined"]):
        design = make(0)
        assert len(design) == 6 // design.classes_per_batch
        for batch in design.batches(0):
            classes = LABELS[batch].reshape(-1, 2)
            assert (classes[:, 0] == classes[:, 1]).all()
            assert len(set(classes[:, 0].tolist())) == design.classes_per_batch
            assert len(set(batch.tolist())) == design.batch_size
            assert 5 not in classes


def test_without_embeddings_no_class_comes_twice_in_a_pass():
    design = DESIGNS["n-pair"](0)
    for number in range(5):
        classes = LABELS[design.batches(number)[:, ::2]].ravel().tolist()
        assert len(set(classes)) == len(classes) == 6


def test_classes_violate_the_triplet_constraint_the_most():
    design = NPairBatches(LABELS, 4, class_embeddings=EMBEDDINGS, seed=3)
    for number in range(10):
        for batch in design.batches(number):
            chosen = LABELS[batch[::2]].tolist()
            for place in range(1, 4):
                violation = {
                    c: max(
                        EMBEDDINGS[i] @ EMBEDDINGS[c] - EMBEDDINGS[i] @ EMBEDDINGS[i]
                        for i in chosen[:place]
                    )
                    for c in {0, 1, 2, 3, 4, 6} - set(chosen[:place])
                }
                assert chosen[place] == max(violation, key=violation.get)


def test_no_class_is_first_twice_in_a_pass_and_each_in_some():
    design = NPairBatches(LABELS, 2, class_embeddings=EMBEDDINGS, seed=3)
    seen = set()
    for number in range(20):
        firsts = LABELS[design.batches(number)[:, 0]].tolist()
        assert len(set(firsts)) == len(firsts) == 3
        seen |= set(firsts)
    assert seen == {0, 1, 2, 3, 4, 6}


def test_equal_classes_are_chosen_among_at_random():
    design = NPairBatches(LABELS, 2, class_embeddings=np.ones((7, 2)), seed=0)
    pairs = {
        tuple(LABELS[batch[::2]].tolist())
        for number in range(200)
        for batch in design.batches(number)
    }
    assert len(pairs) == 6 * 5


def test_saved_embeddings_take_a_run_up(tmp_path):
    design = NPairBatches(LABELS, 3, candidate_classes=4, seed=1)
    design.class_embeddings = class_means(POSES, LABELS)
    np.save(tmp_path / "classes.npy", design.class_embeddings)
    again = NPairBatches(LABELS, 3, candidate_classes=4, seed=1)
    random = again.batches(5)
    again.class_embeddings = np.load(tmp_path / "classes.npy")
    np.testing.assert_array_equal(again.batches(5), design.batches(5))
    assert not np.array_equal(again.batches(5), random)


def test_embeddings_are_copied():
    given = EMBEDDINGS.copy()
    design = NPairBatches(LABELS, 3, class_embeddings=given)
    before = design.batches(0)
    given[:] = 0
    np.testing.assert_array_equal(design.batches(0), before)
    with pytest.raises(ValueError, match="read-only"):
        design.class_embeddings[0] = 0


def test_class_means_are_those_of_their_images():
    means = class_means(POSES.astype("float32"), NAMES)
    for mean, name in zip(means, sorted(set(NAMES)), strict=True):
        np.testing.assert_allclose(mean, POSES[name == NAMES].mean(0), rtol=1e-5)
    with pytest.raises(ValueError, match=r"each of 33 labels.*\(4, 2\)"):
        class_means(np.zeros((4, 2)), LABELS)


# Shuffled


def test_pass_holds_each_image_at_most_once_and_all_come():
    design = ShuffledBatches(33, 8)
    seen = set()
    for number in range(10):
        images = design.batches(number).ravel().tolist()
        assert len(images) == len(set(images)) == 32
        seen |= set(images)
    assert len(seen) == 33


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GroupBatches(LABELS, 0, 2), r"`images_per_class` .* 1.*=0"),
        (lambda: GroupBatches(LABELS, 2, 0), r"`classes_per_batch` .* 1.*=0"),
        (lambda: GroupBatches(LABELS, 2, 8), r"the number of classes, 7\..*=8"),
        (
            lambda: GroupBatches(LABELS, 3, 6, small_classes="leave_out"),
            r"the number of classes of 3 images or more, 5\..*=6",
        ),
        (
            lambda: GroupBatches(LABELS, 3, 6, small_classes="drop"),
            r"`small_classes` must be one of repeat, leave_out.*'drop'",
        ),
        (lambda: PairBatches(LABELS, 0), r"`pairs_per_batch` .*=0"),
        (
            lambda: PairBatches(LABELS, 2, positive_probability=1.1),
            r"`positive_probability` must be from 0 to 1.*=1\.1",
        ),
        (
            lambda: PairBatches([0, 0, 1], 2),
            r"at least 2 classes of 2 images or more\. Received: 1",
        ),
        (
            lambda: PairBatches([0, 1], 2, positive_probability=1),
            r"at least 1 class of 2 images or more\. Received: 0",
        ),
        (lambda: CappedClassBatches(LABELS, 0), r"`batch_size` .*=0"),
        (lambda: CappedClassBatches(LABELS, 8, 0), r"`images_per_class` .*=0"),
        (
            lambda: CappedClassBatches(LABELS, 19, 3),
            r"`batch_size` must be at most 18, .*7 classes .*images_per_class=3.*=19",
        ),
        (lambda: NPairBatches(LABELS, 7), r"2 images or more, 6\..*per_batch=7"),
        (lambda: NPairBatches(LABELS, 0), r"`classes_per_batch` .*=0"),
        (
            lambda: NPairBatches(LABELS, 3, candidate_classes=2),
            r"`candidate_classes` must be a whole number of at least 3.*=2",
        ),
        (
            lambda: NPairBatches(LABELS, 3, candidate_classes=7),
            r"`candidate_classes` must be at most .*, 6\..*=7",
        ),
        (
            lambda: NPairBatches(LABELS, 3, class_embeddings=EMBEDDINGS[:6]),
            r"`class_embeddings` .* 7 classes.*\(6, 5\)",
        ),
        (
            lambda: NPairBatches(LABELS, 3, class_embeddings=EMBEDDINGS * np.nan),
            r"`class_embeddings` .*35 numbers not finite",
        ),
        (lambda: ShuffledBatches(0, 1), r"`images` .*=0"),
        (lambda: ShuffledBatches(4, 5), r"`batch_size` .* images, 4\..*=5"),
        (lambda: ShuffledBatches(4, 0), r"`batch_size` .*=0"),
    ],
)
def test_impossible_designs_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

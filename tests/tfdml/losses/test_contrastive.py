"""Contrastive losses, plain and weighted, against golden numbers and naive loops."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, value_and_gradient
from tests.support.golden_cases import sampler_cases
from tests.support.refuses import refusals, refuses
from tfdml.batch_designs import balanced_eta, group_importance, random_pair_importance
from tfdml.losses import (
    BalancedContrastiveLoss,
    ContrastiveLoss,
    CosineContrastiveLoss,
    WeightedContrastiveLoss,
)

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def test_loss_of_pairs_of_equal_images_has_a_finite_gradient():
    loss = BalancedContrastiveLoss([3, 3], positive_probability=0.5, reduction=None)
    labels, rows = np.array([0, 0, 0, 1]), np.ones((4, 2), "float32")
    values = ops.convert_to_numpy(loss(labels, rows))
    # W = L (L - 1) N_c N_d / ((1 - p) N (N - 1)) and eta = 256 (3 - 1) / 3.
    expected = 2 * (2 * 9 / (0.5 * 30)) * (256 * 2 / 3)
    np.testing.assert_allclose(values, [0, 0, expected, 0], rtol=1e-6)
    _, gradient = value_and_gradient(lambda x: ops.sum(loss(labels, x)), rows)
    assert not gradient.any()


def test_odd_batch_of_pairs_is_refused():
    loss = WeightedContrastiveLoss([3, 3], positive_probability=0.5)
    with pytest.raises(ValueError, match=r"even number of rows\. Received: 3"):
        loss(np.array([0, 0, 1]), np.eye(3))


def test_class_of_one_image_has_no_part_in_random_pairs():
    loss = BalancedContrastiveLoss([3, 1, 2], positive_probability=0.3, power=0)
    assert float(loss(np.array([0, 1, 1, 2]), np.eye(4))) == 0


@pytest.mark.parametrize("case", sampler_cases("importance_weight"))
def test_importance_weights_equal_the_golden_numbers(case):
    counts, design = case["inputs"]["counts"], case["inputs"]["design"]
    if design[0] == "group":
        positive, negative = group_importance(counts, *design[1:])
    else:
        positive, negative = random_pair_importance(counts, design[1])
    weights = np.where(
        np.eye(len(counts), dtype=bool), np.diag(positive), np.outer(negative, negative)
    )
    np.testing.assert_allclose(weights, case["expected"]["W"], rtol=1e-12)
    anchor, item = balanced_eta(counts, balance=8)
    expected = np.array(case["expected"]["eta_lambda8"], dtype=float)
    other = ~np.eye(len(counts), dtype=bool)
    np.testing.assert_allclose(
        np.outer(anchor, item)[other], expected[other], rtol=1e-12
    )


def test_classes_too_small_for_the_design_are_left_out():
    whole = group_importance([5, 7, 4], 3, 2)
    extended = group_importance([5, 2, 7, 0, 4], 3, 2)
    for left, right in zip(whole, extended, strict=True):
        np.testing.assert_array_equal(left, right[[0, 2, 4]])
        assert right[1] == right[3] == 0
    anchor, item = balanced_eta([5, 2, 7, 1], 8.0, 3)
    assert anchor[0] * item[2] == pytest.approx(8 / 1 * 4 / 7)
    assert anchor[1] == item[1] == anchor[3] == item[3] == 0


def test_anchor_of_a_class_of_one_image_has_no_eta():
    anchor, item = balanced_eta([1, 3], 8.0)
    assert anchor[0] * item[1] == 0
    assert anchor[1] * item[0] == pytest.approx(8 * 2 / 1)


def test_pairs_that_no_batch_holds_have_no_weight():
    assert not group_importance([3, 4], 1, 2)[0].any()
    assert not group_importance([3, 4], 2, 1)[1].any()
    assert not random_pair_importance([3, 4], 0.0)[0].any()
    assert not random_pair_importance([3, 4], 1.0)[1].any()
    assert not random_pair_importance([1, 1], 0.5)[0].any()


def random_batch(seed):
    """Labels with singletons, embeddings with duplicates within and across classes."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, 9)
    embeddings = generator.normal(size=(9, 3))
    embeddings[4], embeddings[7] = embeddings[1], 2 * embeddings[1]
    return labels, embeddings


@pytest.mark.parametrize("seed", range(8))
def test_contrastive_losses_equal_naive_loops(seed):
    labels, embeddings = random_batch(seed)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    near, far, cosine = [], [], []
    for i in range(9):
        for j in range(9):
            if i == j:
                continue
            distance = np.sqrt(((unit[i] - unit[j]) ** 2).sum())
            similarity = unit[i] @ unit[j]
            if labels[i] == labels[j]:
                near.append(distance**2)
                cosine.append(1 - similarity)
            else:
                far.append(max(0, 1.2 - distance) ** 2)
                cosine.append(max(0, similarity - 0.3))
    mean = float(ContrastiveLoss(1.2, dtype="float64")(labels, embeddings))
    assert mean == pytest.approx(np.mean(near + far), abs=1e-7)
    separate = ContrastiveLoss(1.2, separate_means=True, dtype="float64")
    assert float(separate(labels, embeddings)) == pytest.approx(
        np.mean(near) + np.mean(far), abs=1e-7
    )
    summed = float(CosineContrastiveLoss(0.3, dtype="float64")(labels, embeddings))
    assert summed == pytest.approx(sum(cosine) / 9, abs=1e-12)


@pytest.mark.parametrize(
    ("seed", "power"), [(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5), (0, -0.7), (1, 1.5)]
)
def test_balanced_contrastive_loss_equals_a_naive_loop(seed, power):
    labels, embeddings = random_batch(seed)
    counts, m, n = [6, 3, 2, 9], 3, 2
    images, classes = 6 + 3 + 9, 3  # class 2 is too small to be drawn
    total = 0.0
    for i in range(9):
        for j in range(9):
            a, b = counts[labels[i]], counts[labels[j]]
            if i == j or min(a, b) < m:
                continue
            distance = np.sqrt(((embeddings[i] - embeddings[j]) ** 2).sum())
            chance = 1 / (images * (images - 1))
            if labels[i] == labels[j]:
                drawn = (m - 1) / (m * n - 1) / (classes * a * (a - 1))
                total += (chance / drawn) ** power * distance**2
            else:
                drawn = m * (n - 1) / (m * n - 1) / (classes * (classes - 1) * a * b)
                eta = 5 / (classes - 1) * (a - 1) / b
                total += (chance / drawn) ** power * eta * max(0, 2 - distance) ** 2
    loss = BalancedContrastiveLoss(
        counts,
        images_per_class=m,
        classes_per_batch=n,
        balance=5,
        margin=2,
        power=power,
        normalize=False,
        dtype="float64",
    )
    assert float(loss(labels, embeddings)) == pytest.approx(total / 72, abs=1e-6)


def test_anchor_of_the_larger_class_has_the_larger_eta():
    # A batch holds each pair in both orders, so its sum does not tell i from j.
    embeddings = np.array([[1, 0], [1, 0], [0.0, 1]])
    loss = BalancedContrastiveLoss(
        {7: 30, 9: 10}, balance=2, margin=2, reduction=None, dtype="float64"
    )
    values = ops.convert_to_numpy(loss(np.array([7, 9, 9]), embeddings))
    near, far = 2 - np.sqrt(2), 2
    seven, nine = 2 * 29 / 10, 2 * 9 / 30
    expected = [
        seven * (far**2 + near**2) / 2,
        (nine * far**2 + 2) / 2,
        (nine * near**2 + 2) / 2,
    ]
    np.testing.assert_allclose(values, expected, rtol=1e-7)


def test_without_weights_it_is_the_contrastive_loss():
    labels, embeddings = random_batch(1)
    for options in ({}, {"images_per_class": 2, "classes_per_batch": 3, "power": 0}):
        loss = WeightedContrastiveLoss([5, 6, 7, 8], dtype="float64", **options)
        assert float(loss(labels, embeddings)) == pytest.approx(
            float(ContrastiveLoss(dtype="float64")(labels, embeddings))
        )


@pytest.mark.parametrize("offset", [0, 2**24, 2**31 - 40, 2**40])
@pytest.mark.parametrize("classes", [4, 5, 9])
def test_counts_are_found_by_labels_of_any_size(offset, classes):
    labels, embeddings = random_batch(2)
    names = {i: offset + 3 * i for i in range(classes)}
    counts = {names[i]: 4 + 5 * i for i in reversed(range(classes))}
    named = BalancedContrastiveLoss(
        counts, images_per_class=2, classes_per_batch=3, dtype="float64"
    )
    plain = BalancedContrastiveLoss(
        [4 + 5 * i for i in range(classes)],
        images_per_class=2,
        classes_per_batch=3,
        dtype="float64",
    )
    large = np.array([names[i] for i in labels])
    assert float(named(large, embeddings)) == float(plain(labels, embeddings))


@pytest.mark.parametrize("label", [-1, 1, 5])
def test_label_without_a_count_is_refused_or_gives_nan(label):
    loss = WeightedContrastiveLoss({0: 4, 2: 9, 3: 4})
    labels, embeddings = np.array([0, 0, 2, label]), np.eye(4, dtype="float32")
    with pytest.raises(ValueError, match=rf"contain every label.*Received: {label} in"):
        loss(labels, embeddings)

    def compiled(x):  # labels are unknown while this is traced
        return loss(ops.cast(x[:, 0], "int32"), x[:, 1:])

    if BACKEND == "torch":  # which compiles nothing
        return
    rows = np.concatenate([labels[:, None], embeddings], axis=1).astype("float32")
    value, _ = value_and_gradient(compiled, rows, compiled=True)
    assert np.isnan(value)


@pytest.mark.parametrize("counts", [{7: 20, 2**40: 5}, [20, 5, 30]])
@pytest.mark.parametrize(
    "design",
    [
        {"images_per_class": 2, "classes_per_batch": 2},
        {"positive_probability": 0.25},
    ],
    ids=["groups", "pairs"],
)
def test_counts_and_design_survive_storage_as_json(counts, design):
    loss = BalancedContrastiveLoss(counts, **design, balance=3, power=0.5)
    stored = json.dumps(keras.saving.serialize_keras_object(loss))
    again = keras.saving.deserialize_keras_object(json.loads(stored))
    assert again.get_config() == loss.get_config()
    assert again.get_config()["class_counts"] == counts
    assert design.items() <= again.get_config().items()


@refusals(
    ("positive_probability", 1.5, "must be from 0 to 1"),
    ("classes_per_batch", 2, "describe one design: give both or neither"),
)
def test_half_a_design_and_no_probability_are_refused(argument, value, rule):
    refuses(
        WeightedContrastiveLoss,
        argument=argument,
        value=value,
        rule=rule,
        valid={"class_counts": [3, 4]},
    )


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (group_importance, ([3, 4], 0, 2), r"`images_per_class` must be at least 1"),
        (group_importance, ([3, 4], 2, 0), r"`classes_per_batch` must be at least 1"),
        (group_importance, ([3, 4], 1, 1), r"must be at least 2\. Received: 1"),
        (group_importance, ([3, -4], 2, 2), r"`class_counts` must be at least 0.*-4"),
        (group_importance, ([3.0], 2, 2), r"`class_counts` must be whole.*float64"),
        (random_pair_importance, ([3, 4], 1.5), r"from 0 to 1.*=1\.5"),
        (balanced_eta, ([3, 4], -1.0), r"`balance` must be at least 0.*=-1\.0"),
    ],
)
def test_wrong_arguments_of_weights_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_pairs_that_are_never_drawn_weigh_nothing_with_a_power_below_0(probability):
    loss = WeightedContrastiveLoss(
        [5, 6, 7, 8],
        positive_probability=probability,
        margin=2.0,
        power=-0.5,
        dtype="float64",
    )
    # A positive pair of class 0 and a negative one of the classes 1 and 2.
    drawn, cost = 1 / (4 * 5 * 4), 2.0
    if not probability:
        drawn, cost = 1 / (4 * 3 * 6 * 7), (2 - np.sqrt(2)) ** 2
    expected = (1 / (26 * 25) / drawn) ** -0.5 * cost / 2
    received = float(loss(np.array([0, 0, 1, 2]), np.eye(4)))
    assert received == pytest.approx(expected)


@pytest.mark.parametrize("cls", [WeightedContrastiveLoss, BalancedContrastiveLoss])
def test_power_whose_weights_do_not_fit_float32_is_refused(cls):
    design = {"images_per_class": 2, "classes_per_batch": 3}
    cls([4, 9, 30], power=10, **design)
    refuses(
        lambda power: cls([4, 9, 30], power=power, **design),
        argument="power",
        value=1e3,
        rule="must leave all weights of pairs at most 1e+12",
        received="power=1000, with which the largest weight is",
    )

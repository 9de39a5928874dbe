"""Distillation: distances, angles and similarities of a teacher, by naive loops."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, JIT, value_and_gradient
from tests.support.refuses import refusals, refuses
from tfdml.losses import (
    DistillationLoss,
    MultiSimilarityLoss,
    RelationalDistillationLoss,
    SimilarityDistillationLoss,
)

pytestmark = [pytest.mark.backend, pytest.mark.slow]

LOSSES = {
    "distances": RelationalDistillationLoss(1.0, angle_weight=0.0),
    "angles": RelationalDistillationLoss(0.0, angle_weight=1.0),
    "both of any length": RelationalDistillationLoss(normalize=False),
    "similarities": SimilarityDistillationLoss(0.5),
}
every = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def data(rows=6):
    random = np.random.default_rng(3)
    return 0.2 + random.normal(size=(rows, 5)), 3 * random.normal(size=(rows, 3))


def rebuilt(loss, **changes):
    return type(loss).from_config({**loss.get_config(), **changes})


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def huber(x):
    return x**2 / 2 if abs(x) < 1 else abs(x) - 0.5


def naive_distances(teacher, student):
    """Compare distances relative to their means, pair by pair."""
    relative = []
    for x in (teacher, student):
        found = {
            (i, j): np.linalg.norm(x[i] - x[j])
            for i, j in itertools.permutations(range(len(x)), 2)
        }
        mean = np.mean(list(found.values()))
        relative.append({pair: value / mean for pair, value in found.items()})
    return [
        sum(
            huber(relative[1][i, j] - relative[0][i, j])
            for j in range(len(student))
            if i != j
        )
        / len(student)
        for i in range(len(student))
    ]


def naive_angles(teacher, student):
    """Compare the cosines of all angles, triplet by triplet."""

    def cosine(x, i, j, k):
        a, b = x[i] - x[j], x[k] - x[j]
        size = np.linalg.norm(a) * np.linalg.norm(b)
        return a @ b / size if size else 0.0

    rows = range(len(student))
    return [
        np.mean(
            [
                huber(cosine(student, i, j, k) - cosine(teacher, i, j, k))
                for i in rows
                for k in rows
            ]
        )
        for j in rows
    ]


def naive_similarities(teacher, student, temperature):
    """Add p log p / q over the items of each anchor."""
    shares = []
    for x in (unit(teacher), unit(student)):
        logits = np.exp(x @ x.T / temperature)
        shares.append(logits / logits.sum(axis=1, keepdims=True))
    p, q = shares
    return temperature**2 * (p * np.log(p / q)).sum(axis=1)


def expected_values(loss, teacher, student):
    if isinstance(loss, SimilarityDistillationLoss):
        return naive_similarities(teacher, student, loss.temperature)
    if loss.normalize:
        teacher, student = unit(teacher), unit(student)
    values = loss.distance_weight * np.array(naive_distances(teacher, student))
    return values + loss.angle_weight * np.array(naive_angles(teacher, student))


@every
def test_values_are_those_of_the_loops(loss):
    teacher, student = data()
    exact = rebuilt(loss, dtype="float64", reduction=None)
    values = ops.convert_to_numpy(exact(teacher, student))
    # Keras 3.15 on JAX has some operations in float32 alone.
    expected = expected_values(loss, teacher, student)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    half = rebuilt(loss, dtype="float16", reduction=None)
    values = ops.convert_to_numpy(half(teacher, student)).astype("float64")
    np.testing.assert_allclose(values, expected, rtol=0.05, atol=0.01)


@pytest.mark.parametrize("compiled", JIT)
@every
def test_gradient_is_that_of_differences(loss, compiled):
    teacher, student = data(5)
    weights = np.array([0.5, 1.0, 2.0, 0.0, 1.0])
    exact = rebuilt(loss, dtype="float64")
    _, gradient = value_and_gradient(
        lambda x: exact(teacher, x, sample_weight=weights), student, compiled=compiled
    )
    step = 1e-5
    for place in np.ndindex(student.shape):
        ends = []
        for sign in (1, -1):
            moved = student.copy()
            moved[place] += sign * step
            ends.append(weights @ expected_values(loss, teacher, moved) / 5)
        slope = (ends[0] - ends[1]) / (2 * step)
        assert gradient[place] == pytest.approx(slope, rel=1e-4, abs=1e-7)


@every
def test_student_that_is_like_its_teacher_costs_nothing(loss):
    teacher = data()[0].astype("float32")
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    value, gradient = value_and_gradient(
        lambda x: loss(teacher, x), (teacher @ turned).astype("float32")
    )
    assert value == pytest.approx(0, abs=1e-6)
    assert np.abs(gradient).max() < 1e-3


HARD = {
    "equal rows": lambda x: np.ones_like(x),
    "zero rows": lambda x: np.zeros_like(x),
    "one zero row": lambda x: np.where(np.arange(len(x))[:, None] == 2, 0, x),
    "duplicates": lambda x: x[[0, 0, 1, 1, 2, 3]],
    "huge rows": lambda x: 1e9 * x,
    "tiny rows": lambda x: 1e-9 * x,
    "two rows": lambda x: x[:2],
    "opposite rows": lambda x: np.where(np.arange(len(x)) % 2, 1, -1)[:, None] * x[:1],
}


@every
@pytest.mark.parametrize("case", HARD)
def test_hard_batches_give_finite_values_and_gradients(loss, case):
    teacher, student = data()
    hard = HARD[case](student).astype("float32")
    teacher = teacher[: len(hard)].astype("float32")
    for one, other in ((teacher, hard), (HARD[case](teacher), student[: len(hard)])):
        value, gradient = value_and_gradient(
            lambda x, one=one: loss(one, x), other.astype("float32")
        )
        assert np.isfinite(value)
        assert value >= -1e-6
        assert np.isfinite(gradient).all()


@every
def test_nan_of_the_teacher_or_the_student_shows(loss):
    for place in range(2):
        both = [x.copy() for x in data()]
        both[place][1, 1] = np.nan
        assert np.isnan(float(loss(*both)))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_student_learns_from_class_ids_and_from_its_teacher(policy, tmp_path):
    keras.utils.set_random_seed(2)
    keras.config.set_dtype_policy(policy)
    try:
        inputs = keras.Input((5,))
        embeddings = keras.layers.Dense(3)(inputs)
        model = keras.Model(inputs, {"classes": embeddings, "teacher": embeddings})
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(
        keras.optimizers.Adam(0.05),
        loss={
            "classes": MultiSimilarityLoss(),
            "teacher": RelationalDistillationLoss(),
        },
        loss_weights={"classes": 0.1, "teacher": 1.0},
        jit_compile=BACKEND != "torch",
    )
    teacher, _ = data(16)
    x = teacher.astype("float32") + 0.5
    targets = {"classes": np.repeat(np.arange(4), 4), "teacher": teacher}
    history = model.fit(x, targets, batch_size=16, epochs=20, verbose=0).history
    assert history["teacher_loss"][-1] < 0.9 * history["teacher_loss"][0]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    again = loaded.loss["teacher"]
    assert again.get_config() == model.loss["teacher"].get_config()


def test_class_ids_are_no_teacher():
    student = data()[1]
    for labels in (np.arange(6), np.arange(6)[:, None], np.ones((6, 5), int)):
        with pytest.raises(ValueError, match="must be the teacher's embeddings, floa"):
            SimilarityDistillationLoss()(labels, student)
    with pytest.raises(ValueError, match="must be the teacher's embeddings, which ar"):
        SimilarityDistillationLoss()(np.full((6, 5), "a"), student)
    with pytest.raises(ValueError, match=r"equally many rows. Received: 4 and 6 rows"):
        SimilarityDistillationLoss()(data()[0][:4], student)
    with pytest.raises(ValueError, match=r"must have the shape \[batch, dimension\]"):
        SimilarityDistillationLoss()(data()[0], student[0])


@pytest.mark.skipif(BACKEND == "torch", reason="it may be the last batch of `fit`")
def test_batch_of_one_row_is_refused():
    with pytest.raises(ValueError, match="at least 2 rows"):
        SimilarityDistillationLoss()(data()[0][:1], data()[1][:1])


@refusals(
    ("distance_weight", -1.0, "must be at least 0 and at most 1e+06"),
    ("angle_weight", float("nan"), "must be at least 0 and at most 1e+06"),
    ("normalize", 1, "must be True or False"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    refuses(RelationalDistillationLoss, argument=argument, value=value, rule=rule)


def test_a_weight_must_be_above_zero():
    with pytest.raises(ValueError, match=r"`angle_weight` must be above 0 with dista"):
        RelationalDistillationLoss(0.0, angle_weight=0.0)
    refuses(
        SimilarityDistillationLoss,
        argument="temperature",
        value=0.0,
        rule="must be from 0.0001 to 10000",
    )


def test_own_loss_gets_teacher_and_student():
    class FirstComponent(DistillationLoss):
        def call(self, teacher, student):
            return ops.abs(teacher[:, 0] - student[:, 0])

    teacher, student = data()
    expected = np.abs(teacher[:, 0] - student[:, 0]).mean()
    assert float(FirstComponent()(teacher, student)) == pytest.approx(
        expected, rel=1e-5
    )

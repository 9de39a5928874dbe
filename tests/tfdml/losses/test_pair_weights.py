"""General Pair Weighting: the weights of a loss, and a loss from weights."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, SEGMENT_ERROR, tensors, value_and_gradient
from tests.support.golden_cases import cases, sampler_cases
from tfdml.losses import (
    BinomialDevianceLoss,
    CosineLiftedStructureLoss,
    HistogramLoss,
    MetricLoss,
    MultiSimilarityLoss,
    NCALoss,
    NTXentLoss,
    PairLoss,
    PairWeightedLoss,
    TopKPrecisionLoss,
    binlifted_weights,
    pair_weights,
    weighted_pairs,
)
from tfdml.ops import euclidean_distances

pytestmark = [pytest.mark.backend, pytest.mark.slow]

numpy = ops.convert_to_numpy


class DistanceSum(PairLoss):
    """2 D of positives: shows that weights are those of the loss's own scores."""

    def scores(self, anchors, gallery):
        return euclidean_distances(anchors, gallery)

    def pair_loss(self, scores, positives, negatives):
        return ops.sum(ops.where(positives, 2 * scores, 0), axis=1)


class Constant(PairLoss):
    def pair_loss(self, scores, positives, negatives):
        return ops.zeros(ops.shape(scores)[0], dtype=scores.dtype)


def batch_of(case):
    return np.array(case["inputs"]["y"]), np.array(case["inputs"]["X"])


def nca(scale):
    return NCALoss(scale, dtype="float64")


def golden_cases(loss, extra, **params):
    """The cases that hold weights and whose parameters are these."""
    return [
        p
        for p in cases(loss)
        if extra in p.values[0].get("extra", {})
        and all(p.values[0]["params"][name] == value for name, value in params.items())
    ]


def random_batch(seed=0):
    generator = np.random.default_rng(seed)
    labels = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3])
    return labels, generator.normal(size=(10, 4))


def cosines(x):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit @ unit.T


def masks_of(labels):
    same = labels[:, None] == labels[None]
    return same & ~np.eye(len(labels), dtype=bool), ~same


@pytest.mark.parametrize(
    "case", golden_cases("nca", "weights_on_S", similarity="dot", normalize=True)
)
def test_weights_of_nca_equal_the_closed_form(case):
    weights = pair_weights(nca(case["params"]["scale"]), *batch_of(case))
    np.testing.assert_allclose(numpy(weights), case["extra"]["weights_on_S"], atol=1e-9)


@pytest.mark.parametrize("mined", ["weights_mined", "weights_all"])
@pytest.mark.parametrize("case", golden_cases("multi_similarity", "weights_all"))
def test_weights_of_multi_similarity_equal_the_closed_form(case, mined):
    params = case["params"]
    if mined == "weights_mined" and "duplicate" in case["id"]:
        # The batch holds exact ties, which rounding decides.
        pytest.skip("mining at exact ties")
    loss = MultiSimilarityLoss(
        params["alpha"],
        negative_scale=params["beta"],
        threshold=params["lam"],
        epsilon=params["eps"],
        mining=mined == "weights_mined",
        dtype="float64",
    )
    weights = pair_weights(loss, *batch_of(case))
    np.testing.assert_allclose(numpy(weights), case["extra"][mined], atol=1e-9)


@pytest.mark.parametrize(
    "case", golden_cases("histogram_loss", "weights_per_unordered_pair")
)
def test_weights_of_the_histogram_loss_equal_the_closed_form(case):
    if "ties" in case["id"]:
        pytest.skip("similarities on a node, where the derivative jumps")
    loss = HistogramLoss(2 / (case["params"]["R"] - 1), dtype="float64")
    # The sum over the anchors is B times the loss of the batch.
    weights = numpy(pair_weights(loss, *batch_of(case))) / len(case["inputs"]["y"])
    # An unordered pair stands twice in the matrix.
    np.testing.assert_allclose(
        weights + weights.T,
        case["extra"]["weights_per_unordered_pair"],
        atol=1e3 * SEGMENT_ERROR,
    )


def test_weights_of_binomial_deviance_equal_the_closed_form():
    labels, x = random_batch()
    positives, negatives = masks_of(labels)
    s = cosines(x)

    def sigmoid(t):
        return 1 / (1 + np.exp(-t))

    right = 2 * sigmoid(2 * (0.5 - s)) / np.maximum(positives.sum(1, keepdims=True), 1)
    wrong = 50 * sigmoid(50 * (s - 0.5)) / negatives.sum(1, keepdims=True)
    expected = right * positives + wrong * negatives
    weights = pair_weights(BinomialDevianceLoss(dtype="float64"), labels, x)
    np.testing.assert_allclose(numpy(weights), expected, atol=1e-12)


def test_weights_of_n_pair_on_cosines_equal_the_closed_form():
    labels, x = random_batch()
    positives, negatives = masks_of(labels)
    e = np.exp(cosines(x))
    expected = np.zeros_like(e)
    for a in range(len(labels)):
        for p in np.flatnonzero(positives[a]):
            share = e[a] * negatives[a] / (e[a, p] + (e[a] * negatives[a]).sum())
            expected[a] += share
            expected[a, p] += share.sum()
    # The mean over the positive pairs, times B in the sum over the anchors.
    expected *= len(labels) / positives.sum()
    weights = pair_weights(NTXentLoss(temperature=1.0, dtype="float64"), labels, x)
    np.testing.assert_allclose(numpy(weights), expected, atol=1e-12)


def test_weights_of_lifted_structure_equal_the_closed_form():
    labels, x = random_batch()
    positives, negatives = masks_of(labels)
    s = cosines(x)
    right, wrong = np.exp(-s) * positives, np.exp(s) * negatives
    active = np.log(right.sum(1) + 1e-300) + 0.5 + np.log(wrong.sum(1)) > 0
    expected = right / np.maximum(right.sum(1, keepdims=True), 1e-300)
    expected = (expected + wrong / wrong.sum(1, keepdims=True)) * active[:, None]
    assert active.any()
    # The mean is over the anchors that have positives.
    expected *= len(labels) / positives.any(1).sum()
    weights = pair_weights(CosineLiftedStructureLoss(dtype="float64"), labels, x)
    np.testing.assert_allclose(numpy(weights), expected, atol=1e-12)


def test_weights_of_a_loss_on_distances_belong_to_distances():
    labels, x = random_batch()
    weights = pair_weights(DistanceSum(), labels, x)
    np.testing.assert_array_equal(numpy(weights), 2.0 * masks_of(labels)[0])


def test_loss_that_uses_no_pair_has_no_weights():
    assert not numpy(pair_weights(Constant(), *random_batch())).any()


@pytest.mark.skipif(BACKEND == "torch", reason="nothing is compiled")
def test_weights_are_computed_inside_a_compiled_function():
    labels, x = random_batch()
    loss = nca(4.0)
    expected = numpy(pair_weights(loss, labels, x))
    value, _ = value_and_gradient(
        lambda x: ops.sum(pair_weights(loss, labels, x)), x, compiled=True
    )
    assert value == pytest.approx(expected.sum())


def test_large_class_ids_stay_apart():
    labels, x = random_batch()
    large = labels + 2**24
    loss = TopKPrecisionLoss(2, dtype="float32")
    np.testing.assert_array_equal(
        numpy(pair_weights(loss, large, x)), numpy(pair_weights(loss, labels, x))
    )


def test_loss_that_is_no_function_of_scores_is_refused():
    class Other(MetricLoss):
        def call(self, labels, embeddings):
            return embeddings[:, 0]

    labels, x = random_batch()
    with pytest.raises(TypeError, match=r"PairLoss.*Received: Other"):
        pair_weights(Other(), labels, x)


def test_listed_pairs_are_all_pairs_with_their_weights():
    labels, x = random_batch()
    loss = nca(4.0)
    weights = numpy(pair_weights(loss, labels, x))
    listed = weighted_pairs(loss, labels, x)
    for kind, mask in zip(("positive", "negative"), masks_of(labels), strict=True):
        scores, received = listed[kind]
        assert np.all(np.diff(scores) >= 0)
        # Each pair stands there twice, in either order: compare as sorted pairs.
        expected = np.stack([cosines(x)[mask], weights[mask]]).round(9)
        received = np.stack([scores, received]).round(9)
        assert sorted(received.T.tolist()) == sorted(expected.T.tolist())


def test_plot_shows_every_pair(tmp_path):
    pytest.importorskip("matplotlib")
    from tfdml.plots import plot_pair_weights

    labels, x = random_batch()
    losses = [nca(1.0), NTXentLoss(), TopKPrecisionLoss(2), MultiSimilarityLoss()]
    figure = plot_pair_weights(losses, labels, x)
    assert [axes.get_title() for axes in figure.axes[:4]] == [x.name for x in losses]
    right, wrong = (dots.get_offsets() for dots in figure.axes[1].collections)
    listed = weighted_pairs(losses[1], labels, x)
    np.testing.assert_allclose(right.T, listed["positive"])
    # Negatives hang down, so that neither kind hides the other.
    np.testing.assert_allclose(wrong.T * [[1], [-1]], listed["negative"])
    figure.savefig(tmp_path / "weights.png")
    assert (tmp_path / "weights.png").stat().st_size > 10_000


def test_plot_says_which_weights_are_derivatives_by_another_score():
    pytest.importorskip("matplotlib")
    from tfdml.plots import plot_pair_weights

    figure = plot_pair_weights([NTXentLoss(), DistanceSum()], *random_batch())
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["weight |dL/dS|", "weight |dL/dscore|"]


def test_plot_of_no_loss_is_refused():
    from tfdml.plots import plot_pair_weights

    with pytest.raises(ValueError, match="at least one loss"):
        plot_pair_weights([], *random_batch())


@pytest.mark.parametrize("kind", ["positive", "negative"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("index", range(7))
def test_binlifted_weights_equal_the_golden_numbers(kind, dtype, index):
    case = sampler_cases(f"binlifted_{kind}_weights")[index].values[0]
    params = {"threshold" if k == "lam" else k: v for k, v in case["params"].items()}
    scores = np.array(case["inputs"]["S"], dtype=dtype)
    positives, negatives = masks_of(np.array(case["inputs"]["y"]))
    inputs = tensors(scores, positives, negatives)
    weights = numpy(binlifted_weights(*inputs, **params))
    assert weights.dtype == dtype
    mask = positives if kind == "positive" else negatives
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(weights * mask, case["expected"], atol=tolerance, rtol=0)
    assert not weights[~positives & ~negatives].any()


def test_binlifted_weights_stay_finite_at_any_scale():
    scores = np.array([[1.0, -1.0, 1.0, 0.9], [1.0, 1.0, 1.0, 1.0]], dtype="float32")
    positives = np.array([[True, True, False, False], [False] * 4])
    negatives = np.array([[False, False, True, True], [False] * 4])
    inputs = tensors(scores, positives, negatives)
    weights = numpy(binlifted_weights(*inputs, alpha=1e4, beta=1e4))
    np.testing.assert_allclose(weights, [[0, 1, 1, 0.5], [0, 0, 0, 0]], atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_loss_from_weights_has_just_these_weights(compiled):
    labels, x = random_batch()
    positives, negatives = masks_of(labels)
    loss = PairWeightedLoss(
        binlifted_weights, arguments={"beta": 10.0}, dtype="float64"
    )
    inputs = tensors(cosines(x), positives, negatives)
    expected = numpy(binlifted_weights(*inputs, beta=10.0))
    _, gradient = value_and_gradient(
        lambda s: ops.sum(loss.pair_loss(s, positives, negatives)),
        cosines(x),
        compiled=compiled,
    )
    np.testing.assert_allclose(gradient, expected * (1.0 * negatives - positives))
    np.testing.assert_allclose(numpy(pair_weights(loss, labels, x)), expected)


def test_loss_from_weights_has_the_gradient_of_the_loss_with_these_weights():
    labels, x = random_batch()
    original = nca(4.0)

    def weights_of_nca(scores, positives, negatives):
        p, n = (ops.cast(mask, scores.dtype) for mask in (positives, negatives))
        e = ops.exp(4 * scores)
        right = ops.sum(e * p, axis=1, keepdims=True)
        total = ops.sum(e * (p + n), axis=1, keepdims=True)
        found = ops.cast(right > 0, scores.dtype)
        share = p / (right + 1 - found) - (p + n) / total
        return found * 4 * e * ops.abs(share)

    copy = PairWeightedLoss(weights_of_nca, dtype="float64")
    _, expected = value_and_gradient(lambda x: original(labels, x), x)
    _, received = value_and_gradient(lambda x: copy(labels, x), x)
    np.testing.assert_allclose(received, expected, atol=1e-12)


def test_loss_from_weights_is_the_signed_sum_of_similarities():
    labels = np.array([0, 0, 1])
    x = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    loss = PairWeightedLoss(
        lambda s, p, n: ops.where(p, 2.0, 3.0), reduction=None, dtype="float64"
    )
    expected = [-2 * 0.6, 3 * 0.8 - 2 * 0.6, 3 * 0.8]
    np.testing.assert_allclose(numpy(loss(labels, x)), expected)


def test_weights_may_be_named_as_they_are_registered():
    loss = PairWeightedLoss("tfdml>binlifted_weights", arguments={"beta": 10.0})
    assert loss.weight_function is binlifted_weights
    assert PairWeightedLoss.from_config(loss.get_config()).arguments == {"beta": 10.0}
    with pytest.raises(ValueError, match=r"one registered by .* Received: 'binlifted'"):
        PairWeightedLoss("binlifted")


def test_weights_that_are_no_function_are_refused():
    with pytest.raises(TypeError, match="`weight_function` must be a function"):
        PairWeightedLoss(np.ones((3, 3)))

"""The top-k precision loss against golden numbers, its theorems and a naive form."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from tests.support.autodiff import BACKEND, slow_on_jax, value_and_gradient
from tests.support.golden_cases import cases, check, sampler_cases
from tests.support.golden_forms import top_k
from tests.support.golden_variants import variants
from tfdml.losses import TopKPrecisionLoss, precision_loss

pytestmark = pytest.mark.backend


def shapes_are_many(test):
    """Mark a test whose cases have shapes of their own, which JAX compiles long for."""
    for mark in slow_on_jax:
        test = mark(test)
    return test


def top_sum(scores, k):
    """F_k of the authors' code: the k largest, and a soft hinge above 0.5 on them."""
    top = ops.top_k(scores, min(k, scores.shape[0]))[0]
    soft = ops.log(1 + ops.sum(ops.exp(40 * (top - 0.5))))
    return ops.sum(top) + 2 / 40 * soft


@pytest.mark.slow
@variants("topk_official_code_loss")
def test_what_the_published_code_optimises_is_as_docs_losses_md_says(
    case, dtype, compiled
):
    """It is another function than Eq. 5; the docs give its terms."""
    params, labels = case["params"], np.array(case["inputs"]["y"])
    k = params["k"]

    def function(embeddings):
        scores = ops.matmul(embeddings, ops.transpose(embeddings))
        total = 0.0
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            for query in members:
                positives = ops.take(scores[query], members[members != query])
                negatives = ops.take(scores[query], np.flatnonzero(labels != label))
                negatives = negatives + params["gamma"]
                best = top_sum(positives, k)
                if len(members) - 1 < k:
                    best = ops.sum(positives)
                    best = best + top_sum(negatives, k - len(members) + 1)
                everything = ops.concatenate([positives, negatives])
                total = total + (top_sum(everything, k) - best) / len(members)
        centered = embeddings - ops.sum(embeddings, axis=0) / len(labels)
        covariance = ops.matmul(ops.transpose(centered), centered) / len(labels)
        spread = covariance - ops.eye(covariance.shape[0], dtype=dtype)
        return total + params["corr_weight"] * ops.sqrt(ops.sum(ops.square(spread)))

    check(case, lambda **x: function(x["X"]), dtype, compiled=compiled)
    ours = top_k({**case, "params": {**params, **OURS}}, dtype)
    value = float(ours(ops.convert_to_tensor(np.array(case["inputs"]["X"], dtype))))
    assert abs(value - case["expected"]["loss"]) > 0.01


OURS = {"normalize": False, "reduction": "sum"}


@shapes_are_many
@pytest.mark.parametrize("case", cases("topk_precision_loss"))
def test_misplaced_pairs_equal_the_golden_numbers(case):
    embeddings = np.array(case["inputs"]["X"])
    if case["params"]["normalize"]:
        embeddings = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    labels = np.array(case["inputs"]["y"])
    same = labels[:, None] == labels[None, :]
    scores = embeddings @ embeddings.T
    if case.get("has_duplicate_rows"):
        scores = np.round(scores, 12)  # exact ties, as the golden has them
    params = case["params"]
    loss = TopKPrecisionLoss(params["k"], margin=params["gamma"], dtype="float64")
    counts = loss.misplaced_pairs(
        scores, same & ~np.eye(len(labels), dtype=bool), ~same
    )
    np.testing.assert_array_equal(
        ops.convert_to_numpy(counts), case["extra"]["num_misplaced"]
    )


@shapes_are_many
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", sampler_cases("topk_single_query"))
def test_single_query_equals_the_golden_numbers(case, dtype):
    scores = np.array([case["inputs"]["s"]], dtype=dtype)
    positives = np.array([case["inputs"]["rel"]], dtype=bool)
    k, margin = case["params"]["k"], case["params"]["gamma"]
    loss = TopKPrecisionLoss(k, margin=margin, dtype=dtype)
    value = ops.convert_to_numpy(loss.pair_loss(scores, positives, ~positives))[0]
    wrong = ops.convert_to_numpy(precision_loss(scores, positives, ~positives, k))[0]
    expected = case["expected"]
    tolerance = 1e-9 if dtype == "float64" else 2e-6
    assert value == pytest.approx(expected["loss"], abs=tolerance)
    assert wrong == expected["precision_loss_exact"]


def naive_loss(scores, relevant, k, margin):
    """Eq. 5 by its definition: rank, take the two sets, add up."""
    shifted = scores + margin * (1 - relevant)
    order = sorted(range(len(scores)), key=lambda i: (-shifted[i], -relevant[i], i))
    top, rest = order[:k], order[k:]
    positives_inside = sum(relevant[i] for i in top)
    misplaced = min(relevant.sum(), k) - positives_inside
    wrong = [i for i in reversed(top) if not relevant[i]][:misplaced]
    right = [i for i in rest if relevant[i]][:misplaced]
    return sum(shifted[i] for i in wrong) - sum(shifted[i] for i in right)


def naive_precision_loss(scores, relevant, k):
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], -relevant[i], i))
    return sum(1 - relevant[i] for i in order[:k])


@st.composite
def queries(draw):
    """One query: scores, which are often tied, and relevances."""
    count = draw(st.integers(1, 12))
    grid = st.integers(-8, 8).map(lambda i: i / 8)
    # TensorFlow takes numbers below 2.3e-308 for 0, which then tie.
    between = st.floats(-1, 1, allow_subnormal=False)
    scores = draw(st.lists(grid | between, min_size=count, max_size=count))
    relevant = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    k = draw(st.integers(1, 14))
    margin = draw(st.sampled_from([0.0, 0.05, 0.125, 0.25, 1.0]))
    return np.array(scores), np.array(relevant), k, margin


def computed(scores, relevant, k, margin):
    positives = relevant[np.newaxis].astype(bool)
    loss = TopKPrecisionLoss(k, margin=margin, dtype="float64")
    value = loss.pair_loss(scores[np.newaxis], positives, ~positives)
    wrong = precision_loss(scores[np.newaxis], positives, ~positives, k)
    return float(ops.convert_to_numpy(value)[0]), int(ops.convert_to_numpy(wrong)[0])


@shapes_are_many
@settings(max_examples=150, deadline=None)
@given(queries())
def test_loss_equals_its_definition_by_sets(query):
    scores, relevant, k, _ = query
    value, wrong = computed(*query)
    if k <= len(scores):
        assert value == pytest.approx(naive_loss(*query), abs=1e-12)
    else:  # everything is retrieved
        assert value == 0
    assert wrong == naive_precision_loss(scores, relevant, k)


@shapes_are_many
@settings(max_examples=150, deadline=None)
@given(queries())
def test_theorems_1_and_3_loss_is_an_upper_bound(query):
    scores, relevant, k, margin = query
    if k > len(scores):
        return
    value, wrong = computed(*query)
    positives = relevant.sum()
    if positives < k:  # Theorem 1
        assert value >= margin * (wrong - (k - positives)) - 1e-12
    else:  # Theorem 3
        assert value >= margin * wrong - 1e-12


@shapes_are_many
@settings(max_examples=150, deadline=None)
@given(queries(), st.sampled_from([0.125, 0.25]))
def test_theorems_2_and_4_loss_is_zero_where_the_margin_is_kept(query, margin):
    scores, relevant, k, _ = query
    if k > len(scores):
        return
    positives = np.sort(scores[relevant == 1])[::-1]
    negatives = np.sort(scores[relevant == 0])[::-1]
    needed = min(len(positives), k)
    outside = k - needed  # the first negative that must stand behind
    if needed == 0 or outside >= len(negatives):
        return
    # Move the positives up until the margin is kept exactly.
    shift = negatives[outside] + margin - positives[needed - 1]
    scores = scores + np.where(relevant == 1, max(shift, 0) + 1e-9, 0)
    value, wrong = computed(scores, relevant, k, margin)
    assert value == pytest.approx(0, abs=1e-12)
    assert wrong == k - needed


def test_each_order_of_the_candidates_gives_the_same_loss():
    scores = np.array([0.5, 0.5, 0.25, 0.75])
    relevant = np.array([1, 0, 1, 0])
    values = {
        computed(scores[list(order)], relevant[list(order)], 2, 0.125)[0]
        for order in itertools.permutations(range(4))
    }
    assert values == {(0.75 + 0.125 - 0.25) + (0.5 + 0.125 - 0.5)}


def test_gradient_moves_misplaced_pairs_alone():
    scores = np.array([[0.9, 0.5, 0.4, -0.5]])
    positives = np.array([[False, True, False, True]])
    loss = TopKPrecisionLoss(1, margin=0.0, dtype="float64")
    _, gradient = value_and_gradient(
        lambda s: ops.sum(loss.pair_loss(s, positives, ~positives)), scores
    )
    np.testing.assert_array_equal(gradient, [[1, -1, 0, 0]])


def naive_rank_weighted(scores, relevant, k, margin):
    """The loss of RSTopK: rank, take the two sets, weigh by the distance from k."""
    shifted = scores + margin * (1 - relevant)
    order = sorted(range(len(scores)), key=lambda i: (-shifted[i], -relevant[i], i))
    rank = {i: place for place, i in enumerate(order, 1)}
    misplaced = min(relevant.sum(), k) - sum(relevant[i] for i in order[:k])
    wrong = [i for i in reversed(order[:k]) if not relevant[i]][:misplaced]
    right = [i for i in order[k:] if relevant[i]][:misplaced]
    total = sum((1 - 1 / (k + 2 - rank[i])) * shifted[i] for i in wrong)
    total -= sum((1 - 1 / (rank[i] - k + 1)) * shifted[i] for i in right)
    return 3 * total / max(misplaced, 1)


@shapes_are_many
@settings(max_examples=40, deadline=None)
@given(queries())
def test_rank_weights_are_those_of_the_authors(query):
    scores, relevant, k, margin = query
    if k > len(scores):
        return
    # Equal scores of one kind have ranks in some order.
    scores = np.round(scores, 3) + 1e-5 * np.arange(len(scores)) / len(scores)
    positives = relevant[np.newaxis].astype(bool)
    loss = TopKPrecisionLoss(k, margin=margin, rank_weights=True, dtype="float64")
    value = ops.convert_to_numpy(
        loss.pair_loss(ops.convert_to_tensor(scores[np.newaxis]), positives, ~positives)
    )
    expected = naive_rank_weighted(scores, relevant, k, margin)
    assert value[0] == pytest.approx(expected, abs=1e-12)


def test_rank_weights_are_the_gradient():
    scores = np.array([[0.9, 0.8, 0.5, 0.4, 0.3, -0.5]])
    positives = np.array([[False, False, True, False, False, True]])
    loss = TopKPrecisionLoss(2, margin=0.0, rank_weights=True, dtype="float64")
    _, gradient = value_and_gradient(
        lambda s: ops.sum(loss.pair_loss(s, positives, ~positives)),
        scores,
        compiled=BACKEND == "jax",
    )
    # Ranks 1, 2 | 3 and 6 of k = 2: distances 2, 1 | 1 and 4. 3 / |N| is 1.5.
    expected = np.array([[2 / 3, 1 / 2, -1 / 2, 0, 0, -4 / 5]])
    np.testing.assert_allclose(gradient, 1.5 * expected, atol=1e-12)

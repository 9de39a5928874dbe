"""How golden cases are computed, each form a function of a case and a type."""

import numpy as np
from keras import ops

from tests.support.golden_cases import rows_of_pairs
from tfdml import losses
from tfdml.layers import (
    CenterRegularizer,
    as_embeddings_with_boundaries,
    as_similarities,
)
from tfdml.ops import cosine_similarities, label_masks, squared_distances, unit_rows

NORMALIZERS = {"all": "all", "nonempty": "with_negatives"}


def labels_of(case):
    return np.array(case["inputs"]["y"])


def same_class(labels):
    return np.equal.outer(labels, labels)


def mean(values):
    """Mean in the type of the values: on JAX `ops.mean` uses float32 (Keras 3.15)."""
    return ops.sum(values) / values.shape[0]


def made(kind, arguments, params, dtype):
    """Return a loss whose arguments are parameters of a case, or functions of them."""
    values = {
        name: source(params) if callable(source) else params[source]
        for name, source in arguments.items()
    }
    return kind(**values, dtype=dtype)


def distance(params):
    return params["metric"].replace("sqe", "squared_e")


def of_batch(kind, count=None, **arguments):
    """Golden loss of embeddings `X`; a golden sum is `count` times the mean."""

    def golden(case, dtype):
        loss, labels = made(kind, arguments, case["params"], dtype), labels_of(case)
        factor = count(labels) if case["params"].get("reduction") == "sum" else 1
        return lambda X: factor * loss(labels, X)

    return golden


def of_pairs(kind, **arguments):
    """Golden loss of anchors `F` and the positive `Fp` of each."""

    def golden(case, dtype):
        loss = made(kind, arguments, case["params"], dtype)
        return lambda F, Fp: loss(*rows_of_pairs(F, Fp))

    return golden


def of_triplets(kind, **arguments):
    arguments |= {"margin": "margin", "distance": distance, "normalize": "normalize"}
    return of_batch(kind, triplets_in, **arguments)


def pairs_in(labels):
    return len(labels) * (len(labels) - 1)


def triplets_in(labels):
    same = same_class(labels)
    return float(((same.sum(1) - 1) * (~same).sum(1)).sum())


def complete_anchors_in(labels):
    """How many anchors have positives and negatives; 1 if none has."""
    sizes = same_class(labels).sum(1)
    return max(((sizes > 1) & (sizes < len(labels))).sum(), 1)


def in_turn(kind):
    """Return a maker of an angular loss that computes its sums in turn."""

    def make(**arguments):
        loss = kind(**arguments)
        loss.rows_per_partner = 0
        return loss

    return make


def positive_pairs_in(labels):
    return same_class(labels).sum() - len(labels)


def average(params):
    return "active" if params["reduction"] == "mean_active" else "valid"


def cosine_contrastive(case, dtype):
    params, labels = case["params"], labels_of(case)
    loss = losses.CosineContrastiveLoss(params["lam"], dtype=dtype)
    unit = np.array(case["inputs"]["X"])
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    # Published code adds S for each active negative, which has the same gradient.
    active = (unit @ unit.T > params["lam"]) & ~same_class(labels)
    offset = params["lam"] * active.sum() / len(labels)
    offset = offset if params["variant"] == "code" else 0.0
    return lambda X: loss(labels, X) + offset


def weighted(params, dtype):
    design, *numbers = params["design"] or ["none"]
    names = {
        "none": [],
        "group": ["images_per_class", "classes_per_batch"],
        "random": ["positive_probability"],
    }[design]
    options = {k: params[k] for k in ("margin", "normalize", "power")}
    options |= dict(zip(names, numbers, strict=True)) | {"dtype": dtype}
    if params["lam"] is None:
        return losses.WeightedContrastiveLoss(params["counts"], **options)
    options["balance"] = params["lam"]
    return losses.BalancedContrastiveLoss(params["counts"], **options)


def weighted_contrastive(case, dtype):
    labels, loss = labels_of(case), weighted(case["params"], dtype)
    factor = pairs_in(labels) if case["params"]["reduction"] == "sum" else 1
    return lambda X: factor * loss(labels, X)


def weighted_contrastive_of_pairs(case, dtype):
    rows = np.array(case["inputs"]["pairs"]).ravel()
    labels, loss = labels_of(case)[rows], weighted(case["params"], dtype)
    return lambda X: loss(labels, ops.take(X, rows, axis=0))


def distance_weighted(case, dtype):
    limits = {n: case["extra"][n] for n in ("cutoff", "nonzero_loss_cutoff")}
    loss = losses.DistanceWeightedTripletLoss(
        case["params"]["margin"],
        distance=distance(case["params"]),
        **limits,
        dtype=dtype,
    )
    labels = labels_of(case)
    return lambda X: loss(labels, X)


def margin(case, dtype):
    params, labels = case["params"], labels_of(case)
    options = {"alpha": params["alpha"], "average": average(params), "dtype": dtype}
    if np.isscalar(params["beta"]):
        assert params["nu"] == 0
        loss = losses.MarginLoss(beta=params["beta"], **options)
        return lambda X: loss(labels, X)
    loss = losses.LearnedMarginLoss(len(params["beta"]), nu=params["nu"], **options)
    boundaries = np.tile(np.array(params["beta"], dtype), (len(labels), 1))
    return lambda X: loss(
        labels,
        as_embeddings_with_boundaries(ops.concatenate([X, boundaries], axis=1)),
    )


def margin_of_drawn_triplets(case, dtype):
    """Take the authors' form: each drawn triplet is an anchor with one of each kind."""
    params, labels = case["params"], labels_of(case)
    triplets = np.array(case["inputs"]["triplets"], int).reshape(-1, 3)
    if len(triplets) == 0:
        return lambda X: ops.sum(0 * X)
    anchors, rows = triplets[:, 0], np.arange(len(triplets))
    beta = np.broadcast_to(params["beta"], 10)[labels[anchors]].astype(dtype)
    positives = np.zeros((len(triplets), len(labels)), bool)
    negatives = positives.copy()
    positives[rows, triplets[:, 1]] = negatives[rows, triplets[:, 2]] = True
    loss = losses.MarginLoss(params["alpha"], dtype=dtype)

    def function(X):
        x = unit_rows(X)
        gaps = ops.expand_dims(ops.take(x, anchors, axis=0), 1) - x
        distances = ops.sqrt(ops.sum(ops.square(gaps), axis=2) + params["eps"])
        scores = distances - ops.convert_to_tensor(beta[:, None])
        far = ops.where(positives, ops.relu(scores + params["alpha"]), 0)
        near = ops.where(negatives, ops.relu(params["alpha"] - scores), 0)
        terms = ops.sum(ops.cast(far + near > 0, dtype))
        value = mean(loss.pair_loss(scores, positives, negatives))
        return value + params["nu"] * beta.sum() / terms

    return function


def nca(case, dtype):
    params, labels = case["params"], labels_of(case)
    euclidean = params["similarity"] == "neg_sqeuclidean"
    assert euclidean != params["normalize"]
    loss = losses.NCALoss(params["scale"], euclidean=euclidean, dtype=dtype)
    scale = len(labels)
    if params["reduction"] == "mean":  # the golden mean counts anchors with positives
        scale = len(labels) / (same_class(labels).sum(1) > 1).sum()
    return lambda X: scale * loss(labels, X)


def n_pair(case, dtype):
    params, labels = case["params"], labels_of(case)
    loss = losses.NPairLoss(normalize=params["normalize"], dtype=dtype)
    scale = positive_pairs_in(labels) if params["reduction"] == "sum" else 1

    def function(X):
        if params["metric"] == "dot":
            return scale * loss(labels, X)
        rows = unit_rows(X) if params["normalize"] else X
        scores = -squared_distances(rows, rows)
        return scale * mean(loss.pair_loss(scores, *label_masks(labels)))

    return function


def n_pair_of_a_tuple(case, dtype):
    def function(fa, fp, fns):
        gallery = ops.concatenate([ops.expand_dims(fp, 0), fns], axis=0)
        scores = -squared_distances(ops.expand_dims(fa, 0), gallery)
        positives = np.arange(gallery.shape[0])[np.newaxis] == 0
        values = losses.NPairLoss(dtype=dtype).pair_loss(scores, positives, ~positives)
        return mean(values)

    return function


multi_class_n_pair = of_pairs(
    losses.MultiClassNPairLoss, symmetric="symmetric", l2_weight="l2_reg"
)


def n_pair_of_a_gallery(case, dtype):
    if case["params"]["symmetric"] or case["params"]["l2_reg"]:
        return multi_class_n_pair(case, dtype)
    itself = np.eye(len(case["inputs"]["F"]), dtype=bool)
    loss = losses.NPairLoss(dtype=dtype)
    return lambda F, Fp: mean(loss.pair_loss(loss.scores(F, Fp), itself, ~itself))


def proxy_anchor(case, dtype):
    arguments = {
        "scale": "alpha",
        "margin": "delta",
        "normalizer": lambda p: NORMALIZERS[p["neg_normalizer"]],
    }
    loss = made(losses.ProxyAnchorLoss, arguments, case["params"], dtype)
    labels = labels_of(case)
    return lambda X, proxies: loss(
        labels, as_similarities(cosine_similarities(X, proxies))
    )


def proxy_nca(case, dtype):
    params, labels = case["params"], labels_of(case)
    loss = losses.ProxyNCALoss(
        (params["scale_x"] * params["scale_p"]) ** 0.5,
        include_positive=params["include_positive"],
        smoothing=params["smoothing"],
        dtype=dtype,
        reduction="sum" if params["reduction"] == "sum" else "sum_over_batch_size",
    )

    def function(X, proxies):
        if params["normalize"]:
            return loss(labels, as_similarities(cosine_similarities(X, proxies)))
        return loss(labels, as_similarities(-squared_distances(X, proxies) / 2))

    return function


def soft_triple(case, dtype):
    params, labels = case["params"], labels_of(case)
    loss = losses.SoftTripleLoss(
        params["la"], temperature=params["gamma"], margin=params["margin"], dtype=dtype
    )
    penalty = CenterRegularizer(params["tau"])

    def function(X, centers):
        similarities = ops.einsum("bd,ckd->bck", unit_rows(X), unit_rows(centers))
        return loss(labels, as_similarities(similarities)) + penalty(centers)

    return function


def log_ratio(case, dtype):
    params = case["params"]
    epsilon = params.get("eps", 0.0) if params["zero"] == "eps" else 0.0
    targets = np.array(case["inputs"]["Dy"]) + epsilon
    loss = losses.LogRatioLoss(
        "precomputed", epsilon=epsilon, reduction=None, dtype=dtype
    )
    rows = np.arange(len(targets))
    counts = ((targets != 0) & (rows[:, None] != rows)).sum(axis=1)
    has_pair, pairs = counts >= 2, counts * (counts - 1) / 2
    chosen = np.isin(rows, params.get("anchors") or rows)
    # The mean of the values is over the anchors with a pair.
    weights = {
        "mean": has_pair / max(has_pair[chosen].sum(), 1),
        "sum": pairs,
        "mean_triplets": pairs / max(pairs[chosen].sum(), 1),
    }[params["reduction"]]
    weights = weights * chosen * has_pair.sum() / len(rows)

    def function(X):
        values = loss(targets, X)
        return ops.sum(values * ops.convert_to_tensor(weights, dtype=values.dtype))

    return function


def top_k(case, dtype):
    """Compute the top-k precision loss; the case names how its queries are reduced."""
    params, masks = case["params"], label_masks(ops.convert_to_tensor(labels_of(case)))
    loss = losses.TopKPrecisionLoss(
        params["k"], margin=params["gamma"], reduction=None, dtype=dtype
    )

    def function(X):
        if params["normalize"]:
            values = loss(labels_of(case), X)
        else:
            values = loss.pair_loss(ops.matmul(X, ops.transpose(X)), *masks)
        counted = {
            "sum": ops.ones_like(values) / len(labels_of(case)),
            "mean": ops.ones_like(values),
            "mean_pos": ops.cast(ops.any(masks[0], axis=1), values.dtype),
            "mean_active": ops.cast(values > 0, values.dtype),
        }[params["reduction"]]
        return ops.sum(values) / ops.maximum(ops.sum(counted), 1e-30)

    return function

"""Record what TensorFlow Similarity 0.17.1 computes, into golden_tfsim.* beside it.

It runs in an environment of its own, of Python 3.11 (newer tensorflow-metadata needs a
protobuf that TensorFlow 2.15 refuses):

    pip install tensorflow-cpu==2.15.1 tensorflow-similarity==0.17.1 \
        tensorflow-metadata==1.15.0
    python tests/goldens/make_golden_tfsim.py

Each case holds a loss, its arguments, a batch, the value and the gradient. Rows of a
batch with `"unit": true` reach the loss through `l2_normalize`, as behind
`MetricEmbedding`, and the gradient is that by the rows before it; other rows reach the
loss as they are. All are float64, except where the loss takes float32 alone.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_similarity import layers, losses, models, retrieval_metrics

FOLDER = Path(__file__).parent
STRATEGIES = list(itertools.product(["hard", "easy"], ["hard", "semi-hard", "easy"]))


def batches():
    """Return the batches by name; `unit` says whether the loss sees unit rows."""
    labels = {
        "balanced": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
        "two_a_class": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4],
        "with_singletons": [0, 0, 0, 1, 1, 2, 3, 3, 4, 5],
        "unnormalised": [0, 0, 0, 1, 1, 1, 2, 2, 2],
    }
    generator = np.random.default_rng(17)
    rows = {
        name: generator.normal(size=(max(y) + 1, 4))[y]
        + generator.normal(size=(len(y), 4))
        for name, y in labels.items()
    }
    return {
        name: {
            "unit": name != "unnormalised",
            "labels": labels[name],
            "embeddings": x.round(4).tolist(),
        }
        for name, x in rows.items()
    }


def arguments():
    """Yield (loss, arguments) for each loss."""
    for positive, negative in STRATEGIES:
        mining = {
            "positive_mining_strategy": positive,
            "negative_mining_strategy": negative,
        }
        for margin in (None, 0.2):
            yield "TripletLoss", {"distance": "cosine", "margin": margin, **mining}
        if positive == "hard":
            for margin in (None, 0.2):
                yield "PNLoss", {"distance": "cosine", "margin": margin, **mining}
            for distance in ("squared_euclidean", "euclidean"):
                yield "TripletLoss", {"distance": distance, "margin": 1.0, **mining}
    yield "MultiSimilarityLoss", {}
    changed = {"alpha": 1, "beta": 20, "epsilon": 0.2, "lmda": 0.3, "center": 0.9}
    yield "MultiSimilarityLoss", changed
    yield "CircleLoss", {}
    yield "CircleLoss", {"gamma": 8.0, "margin": 0.25}
    yield "SoftNearestNeighborLoss", {}
    for distance, temperature in (("squared_euclidean", 0.5), ("cosine", 0.5)):
        yield (
            "SoftNearestNeighborLoss",
            {"distance": distance, "temperature": temperature},
        )


def dtype_of(loss, options):
    """Return the type the loss is fed: two of its parts take float32 alone."""
    narrow = loss == "SoftNearestNeighborLoss" or options.get("distance") == "euclidean"
    return "float32" if narrow else "float64"


def case(loss, options, name, batch):
    """Return one case: a loss of a batch, its value and its gradient."""
    function = getattr(losses, loss)(**options)
    dtype = dtype_of(loss, options)
    x = tf.constant(batch["embeddings"], dtype=dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        rows = tf.math.l2_normalize(x, axis=1) if batch["unit"] else x
        value = function(tf.constant(batch["labels"]), rows)
    return {
        "loss": loss,
        "arguments": options,
        "batch": name,
        "dtype": dtype,
        "value": rounded(value),
        "gradient": rounded(tape.gradient(value, x)),
    }


def rounded(values):
    """Return numbers of nine digits, nested as they are."""
    if np.ndim(values):
        return [rounded(v) for v in np.asarray(values)]
    return float(f"{float(values):.9g}")


def two_views(batch):
    """Record the losses of two views, the even and the odd rows of a batch."""
    x = tf.math.l2_normalize(tf.constant(batch["embeddings"], dtype="float32"), axis=1)
    first, second = x[0::2], x[1::2]
    return {
        "batch": "two_a_class",
        "SimCLRLoss(temperature=0.5)": rounded(losses.SimCLRLoss(0.5)(first, second)),
        "MultiNegativesRankLoss()": rounded(
            losses.MultiNegativesRankLoss()(first, second)
        ),
    }


def memory(batch):
    """Record three steps of the cross-batch memory on slices of a batch."""
    x = tf.math.l2_normalize(tf.constant(batch["embeddings"], dtype="float32"), axis=1)
    labels = tf.constant(batch["labels"])
    loss = losses.XBM(losses.MultiSimilarityLoss(), memory_size=8)
    steps = [[0, 3, 4, 6], [1, 5, 7, 9], [2, 8, 10, 11]]
    values = [
        loss(tf.gather(labels, rows), tf.gather(x, rows)).numpy() for rows in steps
    ]
    return {
        "batch": "balanced",
        "loss": "XBM(MultiSimilarityLoss(), memory_size=8)",
        "steps": steps,
        "values": rounded(values),
    }


def embedding():
    """Record the outputs of a model, whose weights go into golden_tfsim.weights.h5."""
    tf.keras.utils.set_random_seed(4)
    inputs = tf.keras.Input((3,))
    hidden = tf.keras.layers.Dense(4, "tanh", bias_initializer="normal")(inputs)
    outputs = layers.MetricEmbedding(2, bias_initializer="normal")(hidden)
    model = models.SimilarityModel(inputs, outputs)
    model.save_weights(FOLDER / "golden_tfsim.weights.h5")
    x = np.random.default_rng(4).normal(size=(5, 3)).round(4)
    return {"inputs": x.tolist(), "outputs": rounded(model(tf.constant(x)))}


def pooling():
    """Record generalized mean pooling of a random feature map, with a gradient."""
    x = np.random.default_rng(5).normal(size=(2, 3, 3, 2)).round(4)
    inputs = tf.constant(x, dtype="float32")
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        pooled = layers.GeneralizedMeanPooling2D(p=3.0)(inputs)
        squares = tf.reduce_sum(tf.square(pooled))
    return {
        "p": 3.0,
        "inputs": x.tolist(),
        "outputs": rounded(pooled),
        "gradient_of_squares": rounded(tape.gradient(squares, inputs)),
    }


def retrieval(batch):
    """Record the retrieval metrics at k, the query itself dropped from its ranking."""
    x = np.array(batch["embeddings"])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    labels = np.array(batch["labels"])
    similarities = x @ x.T
    np.fill_diagonal(similarities, 2)  # the query itself is the closest lookup
    order = np.argsort(-similarities, axis=1, kind="stable")
    matches = {
        "query_labels": tf.constant(labels),
        "match_mask": tf.constant(labels[order] == labels[:, None]),
    }
    size = {int(label): int(np.sum(labels == label)) for label in labels}
    values = {}
    for k in (1, 2, 3):
        recall = retrieval_metrics.RecallAtK(k=k, drop_closest_lookup=True)
        precision = retrieval_metrics.PrecisionAtK(k=k, drop_closest_lookup=True)
        values[f"RecallAtK(k={k})"] = rounded(recall.compute(**matches))
        values[f"PrecisionAtK(k={k})"] = rounded(precision.compute(**matches))
    map_at_r = retrieval_metrics.MapAtK(
        r=size, clip_at_r=True, k=len(labels), drop_closest_lookup=True
    )
    values["MapAtK(r=sizes, clip_at_r=True)"] = rounded(map_at_r.compute(**matches))
    return {"batch": "balanced", "values": values}


def main():
    """Write the file."""
    inputs = batches()
    cases = [
        case(loss, options, name, batch)
        for loss, options in arguments()
        for name, batch in inputs.items()
    ]
    # Where far rows meet a small temperature, its probability falls below its 1e-9.
    saturated = {"distance": "squared_euclidean", "temperature": 0.05}
    far = inputs["unnormalised"]
    cases.append(case("SoftNearestNeighborLoss", saturated, "unnormalised", far))
    recorded = {
        "versions": {"tensorflow": tf.__version__, "tensorflow_similarity": "0.17.1"},
        "batches": inputs,
        "cases": cases,
        "two_views": two_views(inputs["two_a_class"]),
        "memory": memory(inputs["balanced"]),
        "embedding": embedding(),
        "pooling": pooling(),
        "retrieval": retrieval(inputs["balanced"]),
    }
    lines = ",\n".join(
        f"{json.dumps(key)}: {one_line_each(value)}" for key, value in recorded.items()
    )
    (FOLDER / "golden_tfsim.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def one_line_each(value):
    """Return JSON with a line for each entry of a list of cases."""
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(entry) for entry in value) + "\n]"
    return json.dumps(value)


if __name__ == "__main__":
    main()

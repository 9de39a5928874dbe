"""The model, data and losses that are trained on one device and on several."""

import keras
import numpy as np
from keras import ops

from tfdml.losses import MetricLoss, PairLoss, TopKPrecisionLoss
from tfdml.ops import cosine_similarities, label_masks

BATCH = 12


class MeanOfActive(PairLoss):
    """Mean of the similarities of the active negatives of the whole batch."""

    def pair_loss(self, scores, positives, negatives):
        active = ops.logical_and(negatives, scores > -0.2)
        count = ops.maximum(ops.sum(ops.cast(active, scores.dtype)), 1)
        total = ops.sum(ops.where(active, scores, 0), axis=1)
        return total * ops.cast(ops.shape(scores)[0], scores.dtype) / count


class SpreadOfBatch(MetricLoss):
    """A loss that needs the square matrix: each value depends on all pairs."""

    def call(self, labels, embeddings):
        scores = cosine_similarities(embeddings, embeddings)
        same = ops.cast(label_masks(labels)[0], scores.dtype)
        spread = ops.square(ops.sum(same * scores)) + ops.sum(scores * scores)
        return ops.square(ops.sum(scores, axis=1)) + spread / BATCH


LOSSES = {
    "top_k": TopKPrecisionLoss(k=3, margin=0.3),
    "top_k_summed": TopKPrecisionLoss(k=3, margin=0.3, reduction="sum"),
    "mean_of_active": MeanOfActive(),
    "spread_of_batch": SpreadOfBatch(),
}


def data():
    """Two batches of twelve: rows, labels and weights."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2 * BATCH, 6)).astype("float32")
    # No share of six holds a class twice: a replica alone has no positive.
    labels = np.tile(np.arange(6), 4) + 2**24
    return x, labels.astype("int32"), generator.uniform(0.5, 2, 2 * BATCH)


def embedder(model_class=keras.Model, names=()):
    """A small embedder, or a model with one for each name, all from the same seed."""
    keras.utils.set_random_seed(5)
    inputs = keras.Input((6,))
    outputs = {}
    for name in names or ["embedding"]:
        hidden = keras.layers.Dense(8, activation="tanh")(inputs)
        outputs[name] = keras.layers.Dense(4, name=name)(hidden)
    return model_class(inputs, outputs if names else outputs["embedding"])


def weights_of(model):
    return np.concatenate([np.ravel(w) for w in model.get_weights()]).tolist()


def weights_by_name(model):
    """The weights of each embedder of a model of several."""
    branches = {n: keras.Model(model.input, x) for n, x in model.output.items()}
    return {name: weights_of(branch) for name, branch in branches.items()}

"""Write models that hold every loss, layer and metric, and what they give.

See README.md beside this.
"""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from tests.all_losses import CLASSES, DIMENSION, ENTRIES, batch
from tfdml.cross_batch_memory import CrossBatchMemory
from tfdml.distribution import AcrossReplicas, MultiWorkerModel
from tfdml.label_distances import (
    caption_distance,
    segmentation_distance,
    squared_label_distance,
)
from tfdml.layers_margin import ClassBoundaries
from tfdml.proxies import CenterRegularizer, Proxies

from tfdml import batch_metrics, losses, tfa
from tfdml.layers import ColorTransform, GeMPooling, L2Normalization

FOLDER = Path("keras")
EXACTLY = {"batch_size": 16, "verbose": 0}


def main() -> None:
    """Write everything."""
    FOLDER.mkdir()
    keras.utils.set_random_seed(1)
    batches = made_batches()
    expected: dict[str, Any] = {}
    arrays = write_losses(batches, expected)
    arrays |= write_layers(batches, expected)
    arrays |= write_memory_and_workers(batches, expected)
    np.savez_compressed(FOLDER / "batches.npz", **batches)
    np.savez_compressed(FOLDER / "expected.npz", **arrays)
    text = json.dumps(expected, indent=1) + "\n"
    (FOLDER / "expected.json").write_text(text, encoding="utf-8")


def made_batches() -> dict[str, np.ndarray]:
    """Return what goes into the models, and labels of every kind."""
    labels, inputs = batch()
    rng = np.random.default_rng(2)
    return {
        "inputs": inputs,
        "images": rng.integers(0, 256, (16, 4, 4, 3)).astype("float32"),
        "labels": labels,
        "alike": rng.integers(0, 2, 16).astype("float32"),
        "poses": rng.normal(size=(16, 2)).astype("float32"),
        "segmentations": np.eye(3, dtype="float32")[rng.integers(0, 3, (16, 5))],
        "captions": rng.normal(size=(16, 2, 3)).astype("float32"),
        "distances": np.abs(rng.normal(size=(16, 16))).astype("float32"),
    }


def every_loss() -> dict[str, tuple[keras.losses.Loss, str, str]]:
    """Return losses by name, what of the model they take, and their labels."""
    made = {}
    for name, entry in ENTRIES.items():
        on_proxies = isinstance(entry.loss, losses.ProxyLoss)
        made[name] = entry.loss, "proxies" if on_proxies else "embedding", "labels"
    given = losses.PairWeightedLoss("tfdml>binlifted_weights", {"beta": 40.0})
    gathered = AcrossReplicas(losses.TopKPrecisionLoss(k=2, reduction="sum"))
    made |= {
        "SoftTripleLoss": (losses.SoftTripleLoss(), "centers", "labels"),
        "LearnedMarginLoss": (
            losses.LearnedMarginLoss(CLASSES, nu=0.1),
            "boundaries",
            "labels",
        ),
        "tfa.NpairsLoss": (tfa.NpairsLoss(), "similarities", "labels"),
        "tfa.ContrastiveLoss": (tfa.ContrastiveLoss(0.8), "distance", "alike"),
        "PairWeightedLoss-arguments": (given, "embedding", "labels"),
        "AcrossReplicas": (gathered, "embedding", "labels"),
    }
    for kind, function, labels in (
        ("squared", squared_label_distance, "poses"),
        ("segmentation", segmentation_distance, "segmentations"),
        ("caption", caption_distance, "captions"),
        ("precomputed", "precomputed", "distances"),
    ):
        log_ratio = losses.LogRatioLoss(label_distance=function)
        triplet = losses.ContinuousTripletLoss(0.2, 0.6, function)
        made[f"LogRatioLoss-{kind}"] = log_ratio, "embedding", labels
        made[f"ContinuousTripletLoss-{kind}"] = triplet, "embedding", labels
    return made


def write_losses(
    batches: dict[str, np.ndarray], expected: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Write one model that every loss trains."""
    made = every_loss()
    entered = keras.Input((DIMENSION,))
    x = keras.layers.Dense(4, name="embedding")(entered)
    heads = {
        "embedding": x,
        "proxies": Proxies(CLASSES, 1, 10.0, name="proxies")(x),
        "centers": Proxies(
            CLASSES, 3, regularizer=CenterRegularizer(0.3), name="centers"
        )(x),
        "boundaries": ClassBoundaries(CLASSES, 1.1, name="boundaries")(x),
        "similarities": ops.matmul(x, ops.transpose(x)),
        "distance": keras.layers.Dense(1, "softplus", name="distance")(x),
    }
    outputs = {name: heads[head] for name, (_, head, _) in made.items()}
    model = keras.Model(entered, outputs)
    model.compile("adam", {name: loss for name, (loss, *_) in made.items()})
    model.optimizer.build(model.trainable_variables)
    model.save(FOLDER / "losses.keras")
    predicted = model(batches["inputs"])
    expected["losses"] = {
        name: {
            "class": keras.saving.get_registered_name(type(loss)),
            "head": head,
            "labels": labels,
            "value": float(loss(batches[labels], predicted[name])),
        }
        for name, (loss, head, labels) in made.items()
    }
    expected["center_penalty"] = float(sum(model.losses))
    return {head: np.asarray(predicted[name]) for name, (_, head, _) in made.items()}


def write_layers(
    batches: dict[str, np.ndarray], expected: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Write a model of the other layers, compiled with every metric."""
    entered = keras.Input((4, 4, 3))
    matrix = [[0.01, 0, 0], [0, 0.02, 0], [0, 0.01, 0.01]]
    x = ColorTransform(matrix, [0, -1, 1])(entered)
    pools = [GeMPooling(2.0)(x), GeMPooling(4.0, "shift", trainable=False)(x)]
    x = keras.layers.Dense(4)(keras.layers.Concatenate()(pools))
    model = keras.Model(entered, L2Normalization()(x))
    metrics = [
        batch_metrics.PrecisionAtK(2),
        batch_metrics.RecallAtK(2),
        batch_metrics.RPrecision(),
        batch_metrics.MeanAveragePrecisionAtR(),
        batch_metrics.MeanAveragePrecision(),
        batch_metrics.MisplacedPairs(2, 0.2),
    ]
    model.compile("sgd", losses.TopKPrecisionLoss(k=2), metrics=metrics)
    images, labels = batches["images"], batches["labels"]
    model.fit(images, labels, **EXACTLY)
    model.save(FOLDER / "layers.keras")
    expected["metrics"] = model.evaluate(images, labels, return_dict=True, **EXACTLY)
    return {"layers": model.predict(images, **EXACTLY)}


def write_memory_and_workers(
    batches: dict[str, np.ndarray], expected: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Write the two models with a class of their own, in the middle of training."""
    arrays = {}
    inputs, labels = batches["inputs"], batches["labels"]
    for name in ("memory", "workers"):
        entered = keras.Input((DIMENSION,))
        embedded = keras.layers.Dense(4)(entered)
        if name == "memory":
            model = CrossBatchMemory(keras.Model(entered, embedded), 24, warmup_steps=1)
            loss = losses.ContrastiveLoss(0.7)
        else:
            model = MultiWorkerModel(entered, embedded)
            loss = AcrossReplicas(losses.MultiSimilarityLoss())
        model.compile("adam", loss)
        model.fit(inputs, labels, epochs=2, shuffle=False, **EXACTLY)
        model.save(FOLDER / f"{name}.keras")
        arrays[name] = model.predict(inputs, **EXACTLY)
        # What the state that is saved, memory and optimizer, makes of the next step.
        history = model.fit(inputs, labels, shuffle=False, **EXACTLY)
        expected[name] = {"next_loss": history.history["loss"][0]}
        arrays[f"{name}_next"] = model.predict(inputs, **EXACTLY)
    return arrays


if __name__ == "__main__":
    main()

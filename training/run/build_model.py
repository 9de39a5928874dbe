"""Build the model of a run: random changes, embedder, last layer, optimizer."""

from typing import Any

import keras
import numpy as np

from tfdml.layers import (
    CenterRegularizer,
    ClassBoundaries,
    CompatibleProxies,
    HighOrderMoments,
    ImageChanges,
    Proxies,
    ReferenceEmbeddings,
    ScaleAndBias,
)
from tfdml.losses import (
    BoundarySampledLoss,
    MatryoshkaLoss,
    MetricLoss,
    TopKPrecisionLoss,
)
from tfdml.metrics import MisplacedPairs
from tfdml.models import LargeBatch, build_attention_ensemble, build_embedder

from ..recipe.recipe import Recipe, RecipeError
from .blocks import blocks_of
from .build_batches import build_distillation
from .build_optimizer import VariableGroup, build_optimizer


def build_embedder_of(recipe: Recipe) -> keras.Model:
    """Build the embedder that a recipe describes.

    Raises:
        RecipeError: It cannot be built so.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(recipe.fit.precision)
    about = recipe.embedder
    heads = recipe.loss.arguments.get("heads", 0)
    try:
        if heads:
            return build_attention_ensemble(
                about.image_size,
                about.embedding_dimension,
                heads=heads,
                weights=about.weights or None,
                dropout=about.dropout,
            )
        return build_embedder(
            about.image_size,
            about.embedding_dimension,
            backbone=about.backbone,
            weights=about.weights or None,
            pooling=about.pooling,
            widths=about.widths,
            blocks=about.blocks,
            stem_stride=about.stem_stride,
            dropout=about.dropout,
            unit_length=about.unit_length,
            learners=recipe.loss.arguments.get("learners", ()),
            diversity=about.diversity,
            adversary=about.adversary,
            weight_penalty=about.weight_penalty,
            tuning=about.tuning,
            lora_rank=about.lora_rank,
            lora_layers=about.lora_layers,
        )
    except ValueError as error:
        raise RecipeError(f"[embedder]: {error}") from error
    finally:
        keras.config.set_dtype_policy(before)


def build_model(
    embedder: keras.Model,
    recipe: Recipe,
    num_classes: int,
    loss: MetricLoss,
    old_proxies: np.ndarray | None = None,
) -> keras.Model:
    """Compile the model that trains an embedder.

    Args:
        embedder: The embedder, which the model shares.
        recipe: Random changes, proxies or boundaries, and optimizer.
        num_classes: Number of training classes.
        loss: The loss.
        old_proxies: With `[compatible]` and a loss on proxies, the class means of the
            old model, `[C, dimension]`.

    Returns:
        The embedder itself, or one with random changes of the images before it, or
        the similarities with proxies, boundaries of the classes, moments of the feature
        map or the embeddings of an old model behind it. With `chunk` in `[batches]` it
        embeds chunk by chunk.
    """
    last = _last_layer(recipe, num_classes)
    model = _trained(embedder, recipe, last)
    if old_proxies is not None:
        model.get_layer("proxies").set_old_proxies(old_proxies)
    if recipe.fit.freeze_batch_norm:
        for layer in _backbone(embedder):
            for inner in layer._flatten_layers():
                if isinstance(inner, keras.layers.BatchNormalization):
                    inner.trainable = False
    optimizer = build_optimizer(recipe.fit, _parts(last, embedder, recipe))
    if recipe.fit.precision == "mixed_float16":
        # Keras does so for a model of that policy, which the embedder alone is.
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer=optimizer,
        **_losses(recipe, loss),
        # JAX without it would run each operation by itself.
        jit_compile=recipe.fit.jit_compile or keras.backend.backend() == "jax",
    )
    return model


def _losses(recipe: Recipe, loss: MetricLoss) -> dict[str, Any]:
    """Return what `compile` gets: the loss, or that of classes and of a teacher."""
    about = recipe.teacher
    if not about.run:
        return {"loss": loss, "metrics": _metrics(loss)}
    return {
        "loss": {"classes": loss, "teacher": build_distillation(about)},
        "loss_weights": {"classes": 1.0, "teacher": about.weight},
    }


def _trained(
    embedder: keras.Model, recipe: Recipe, last: keras.Layer | None
) -> keras.Model:
    """Begin the model with random changes, and end it in what the loss learns."""
    changes, chunk = recipe.augmentation, recipe.batches.chunk
    if not changes and last is None and not recipe.teacher.run:
        return LargeBatch(embedder, chunk) if chunk else embedder
    if isinstance(last, HighOrderMoments):
        both = [embedder.output, _feature_map(embedder)]
        embedder = keras.Model(embedder.inputs, both)
    inputs, outputs = embedder.inputs, embedder.output
    if changes:
        inputs = [
            _pixels(embedder),
            keras.Input((len(changes.COLUMNS),), name="numbers"),
        ]
        outputs = embedder(ImageChanges(changes, name="changes")(inputs))
    if chunk:
        if isinstance(last, HighOrderMoments):
            # The feature maps of a whole batch would be kept for it.
            outputs, last = last(outputs), None
        part = LargeBatch(keras.Model(inputs, outputs), chunk)
        if not changes:
            inputs = [_pixels(embedder)]  # bytes become floats chunk by chunk
        outputs = part(inputs)
    student = outputs
    if isinstance(last, ReferenceEmbeddings):
        others = keras.Input((recipe.embedder.embedding_dimension,), name="others")
        inputs, outputs = [*inputs, others], [outputs, others]
    if last is not None:
        outputs = last(outputs)
    if recipe.teacher.run:
        outputs = {"classes": outputs, "teacher": student}
    return keras.Model(inputs, outputs)


def _pixels(embedder: keras.Model) -> keras.KerasTensor:
    return keras.Input(embedder.input_shape[1:], dtype="uint8", name="pixels")


def _feature_map(embedder: keras.Model) -> keras.KerasTensor:
    """Return what the pooling reduces."""
    pooled = embedder.get_layer("pooling").input
    # The sum of two pools has these before it.
    return pooled[0]._keras_history.operation.input if type(pooled) is list else pooled


def _last_layer(recipe: Recipe, num_classes: int) -> keras.Layer | None:
    """Return the layer with the weights that the loss needs, if it needs any."""
    if recipe.moments.order > 1:
        order, width = recipe.moments.order, recipe.moments.width
        return HighOrderMoments(order, width=width, name="moments")
    if recipe.loss.on_boundaries:
        return ClassBoundaries(
            num_classes, recipe.boundaries.initial, name="boundaries"
        )
    if recipe.loss.on_scale:
        return ScaleAndBias(name="scale_and_bias")
    is_compatible = bool(recipe.compatible.run)
    if not recipe.loss.on_proxies:
        return ReferenceEmbeddings(name="reference") if is_compatible else None
    about = recipe.proxies
    penalty = about.center_penalty
    return (CompatibleProxies if is_compatible else Proxies)(
        num_classes,
        about.centers_per_class,
        regularizer=CenterRegularizer(penalty) if penalty else None,
        dimensions=recipe.loss.dimensions or None,
        name="proxies",
    )


def _parts(
    last: keras.Layer | None, embedder: keras.Model, recipe: Recipe
) -> list[VariableGroup]:
    """Name the variables that learn at rates of their own, or later than others."""
    fit = recipe.fit
    names = [layer.name for layer in embedder.layers]
    # The dense layer, or a divided embedding.
    head = embedder.layers[names.index("pooling") + 1 :]
    # The exponent of "gem" belongs neither to the backbone nor to the head.
    between = embedder.get_layer("pooling").trainable_variables
    parts = [
        *_backbone_parts(embedder, recipe),
        VariableGroup(between, 1.0, fit.head_only_steps),
        VariableGroup(
            [v for layer in head for v in layer.trainable_variables], fit.embedding_rate
        ),
    ]
    if last is not None:
        rate = 1.0
        if recipe.loss.on_proxies:
            rate = recipe.proxies.learning_rate_multiplier
        elif recipe.loss.on_boundaries:
            rate = recipe.boundaries.learning_rate_multiplier
        elif recipe.moments.order > 1:
            rate = fit.embedding_rate
        parts.append(VariableGroup(last.trainable_variables, rate))
    return parts


def _backbone_parts(embedder: keras.Model, recipe: Recipe) -> list[VariableGroup]:
    fit = recipe.fit
    blocks = [_backbone(embedder)]
    if fit.layer_decay < 1:
        # The last one learns slower than the embedding layer by one factor.
        blocks = [[], *reversed(blocks_of(_feature_map(embedder)))]
    return [
        VariableGroup(
            [v for layer in block for v in layer.variables if v.trainable],
            fit.backbone_rate * fit.layer_decay**depth,
            fit.head_only_steps,
        )
        for depth, block in enumerate(blocks)
    ]


def _backbone(embedder: keras.Model) -> list[keras.Layer]:
    """Return all layers before the pooling."""
    names = [layer.name for layer in embedder.layers]
    return embedder.layers[: names.index("pooling")]


def _metrics(loss: MetricLoss) -> list[keras.metrics.Metric]:
    loss = loss.loss if isinstance(loss, MatryoshkaLoss) else loss
    if isinstance(loss, TopKPrecisionLoss | BoundarySampledLoss):
        return [MisplacedPairs(loss.k, loss.margin)]
    return []

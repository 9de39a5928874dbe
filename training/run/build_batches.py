"""Build the batch design and the loss of a recipe for its training images."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfdml.batch_designs import (
    BatchDesign,
    CappedClassBatches,
    GroupBatches,
    HierarchyBatches,
    NeighborBatches,
    NPairBatches,
    PairBatches,
    ShuffledBatches,
    encode_labels,
)
from tfdml.losses import (
    CompatibleLoss,
    ContinuousLoss,
    HORDELoss,
    LearnedMarginLoss,
    MetricLoss,
    RelationalDistillationLoss,
    SimilarityDistillationLoss,
    WeightedContrastiveLoss,
)
from tfdml.messages import shown
from tfdml.ops import caption_distance, segmentation_distance

from ..data.data_set import DataSet
from ..recipe.losses import built_loss, losses_in_recipes
from ..recipe.other_models import Teacher
from ..recipe.recipe import Recipe, RecipeError
from ..recipe.tables import DESIGNS, LABEL_DISTANCES, check_chunk

_DESIGNS: dict[str, Callable[..., BatchDesign]] = {
    "groups": GroupBatches,
    "pairs": PairBatches,
    "capped": CappedClassBatches,
    "n_pairs": NPairBatches,
    "neighbors": NeighborBatches,
    "hierarchy": HierarchyBatches,
    "shuffled": ShuffledBatches,
}
_LABEL_DISTANCES: dict[str, Callable[[Any, Any], Any] | None] = dict(
    zip(LABEL_DISTANCES, (None, segmentation_distance, caption_distance), strict=True)
)


def label_distance_of(recipe: Recipe) -> Callable[[Any, Any], Any] | None:
    """Return the distance between labels that `[loss]` names; None: Euclidean."""
    return _LABEL_DISTANCES[recipe.loss.label_distance]


def build_design(recipe: Recipe, train: DataSet) -> BatchDesign:
    """Build the design of `[batches]` over the training images.

    Raises:
        RecipeError: The images do not allow it; the message names the argument.
    """
    about = recipe.batches
    continuous = about.design == "neighbors"
    if train.is_continuous != continuous:
        kind = "continuous labels" if train.is_continuous else "classes"
        rule = '"neighbors"' if train.is_continuous else 'another than "neighbors"'
        raise RecipeError(
            f"[batches]: `design` must be {rule} for images with {kind}. "
            f"Received: {shown(about.design)}."
        )
    arguments = {key: getattr(about, key) for key in DESIGNS[about.design]}
    if "classes_per_batch" in arguments:
        arguments["classes_per_batch"] = _classes(about.classes_per_batch, train)
    images: Any = train.labels
    match about.design:
        case "pairs":
            arguments["pairs_per_batch"] = arguments.pop("batch_size") // 2
        case "neighbors":
            arguments["distance"] = label_distance_of(recipe)
        case "n_pairs":
            # The classes are embedded when the run begins: see `hard_classes`.
            del arguments["hard_classes"]
            arguments["candidate_classes"] = about.candidate_classes or None
        case "hierarchy":
            # The tree is made when the run begins: see `hierarchy`.
            del arguments["levels"]
        case "shuffled":
            images = len(train)
    try:
        design = _DESIGNS[about.design](images, **arguments, seed=recipe.fit.seed)
        # With fewer classes than asked for it is smaller than the recipe says.
        check_chunk(about.chunk, design.batch_size)
        return design
    except ValueError as error:
        raise RecipeError(f"[batches]: {error}") from error


def build_loss(recipe: Recipe, train: DataSet, design: BatchDesign) -> MetricLoss:
    """Build the loss of `[loss]`.

    The weighted contrastive losses get the number of images of each training class, and
    with `importance_weights` in `[batches]` what they must know of the design; losses
    with learned boundaries the number of classes. With `order` in `[moments]` the loss
    is on the moments, too; with `[compatible]` on pairs with an old model.

    Raises:
        RecipeError: The labels do not suit the loss, or the design has no importance
            weights for these images.
    """
    name = recipe.loss.name
    kind = losses_in_recipes()[name]
    arguments: dict[str, Any] = dict(recipe.loss.arguments)
    if issubclass(kind, ContinuousLoss) != train.is_continuous:
        has = "continuous labels" if train.is_continuous else "classes"
        raise RecipeError(
            "[loss]: `name` must be LogRatioLoss or ContinuousTripletLoss for images "
            "with continuous labels, and another for classes. "
            f"Received: {name}, and images with {has}."
        )
    if train.is_continuous:
        arguments["label_distance"] = label_distance_of(recipe) or "squared_euclidean"
    if issubclass(kind, WeightedContrastiveLoss):
        arguments["class_counts"] = np.bincount(train.labels)
        arguments |= _of_design(recipe, design)
    if issubclass(kind, LearnedMarginLoss):
        arguments["num_classes"] = len(train.class_names)
    order = recipe.moments.order
    try:
        loss = built_loss(name, arguments)
        if recipe.compatible.run:
            return CompatibleLoss(loss, weight=recipe.compatible.weight)
        return HORDELoss(loss, order=order) if order > 1 else loss
    except (TypeError, ValueError) as error:
        raise RecipeError(f"[loss]: {error}") from error


def loss_targets(recipe: Recipe, train: DataSet) -> np.ndarray:
    """Return what the loss of `[loss]` takes for each training image.

    Returns:
        The labels; for `HierarchicalAPLoss` the category and the class of each image,
        integers `[N, 2]`.

    Raises:
        RecipeError: That loss has images of one category, or without categories.
    """
    if recipe.loss.name != "HierarchicalAPLoss":
        return train.labels
    if train.categories is None or not train.has_categories:
        raise RecipeError(
            "[loss]: `name` must be another than HierarchicalAPLoss for training "
            "images without a `category`, or of one alone; SupAPLoss is the same on "
            "one level. Received: HierarchicalAPLoss."
        )
    categories, _ = encode_labels(train.categories)
    return np.stack([categories, train.labels], axis=1)


def build_distillation(about: Teacher) -> MetricLoss:
    """Build the loss on a teacher's embeddings."""
    if about.loss == "SimilarityDistillationLoss":
        return SimilarityDistillationLoss(about.temperature)
    return RelationalDistillationLoss(angle_weight=about.angle_weight)


def _of_design(recipe: Recipe, design: BatchDesign) -> dict[str, Any]:
    """Return what a weighted loss must know of the design."""
    weighted = recipe.batches.importance_weights
    if isinstance(design, PairBatches):
        if not weighted:
            raise RecipeError(
                '[batches]: `importance_weights` must be true for the design "pairs", '
                "where a weighted loss compares only the drawn pairs. Received: false. "
                "(`power` = 0 in [loss] switches the weights themselves off.)"
            )
        return {"positive_probability": design.positive_probability}
    if not weighted:
        return {}
    if not isinstance(design, GroupBatches):
        raise RecipeError(
            "[batches]: `importance_weights` must be false except with the designs "
            f'"groups" and "pairs". Received: true with {shown(recipe.batches.design)}.'
        )
    try:
        design.importance_weights()
    except ValueError as error:
        raise RecipeError(f"[batches]: {error}") from error
    return {
        "images_per_class": design.images_per_class,
        "classes_per_batch": design.classes_per_batch,
    }


def _classes(wanted: int, train: DataSet) -> int:
    """Return how many classes a batch can hold."""
    classes = min(wanted, len(train.class_names))
    if classes < wanted:
        print(f"A batch holds all {classes} training classes, not {wanted}.")
    return classes

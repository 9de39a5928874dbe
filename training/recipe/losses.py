"""Read the loss of a recipe by its name, and build it.

The losses, and with them Keras, are imported by the functions alone.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from tfdml.messages import shown

from .checks import RecipeError, check_known
from .tables import Loss

_NOT_IN_RECIPES = (
    # Base classes, and wrappers: for several devices, by the tables [moments] and
    # [compatible], and by `dimensions`.
    "MetricLoss",
    "PairLoss",
    "ProxyLoss",
    "ContinuousLoss",
    "AcrossReplicas",
    "HORDELoss",
    "MatryoshkaLoss",
    "CompatibleLoss",
    # They need the embeddings of a teacher.
    "DistillationLoss",
    "RelationalDistillationLoss",
    "SimilarityDistillationLoss",
)
# The training images and `[batches]` say these.
_OF_DATA = (
    "class_counts",
    "images_per_class",
    "classes_per_batch",
    "positive_probability",
)
_OF_CLASSES = ("num_classes",)  # and this for learned boundaries
_OF_PREFIXES = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=of)
    for name, of in (
        ("dimensions", tuple[int, ...]),
        ("dimension_weights", tuple[float, ...]),
    )
]
"""Keys beside the arguments of a loss: what `MatryoshkaLoss` around it gets."""


def losses_in_recipes() -> dict[str, Any]:
    """Return the class of each loss that a recipe may name, by its name."""
    import tfdml.losses

    return {
        name: loss
        for name, loss in vars(tfdml.losses).items()
        if inspect.isclass(loss)
        and issubclass(loss, tfdml.losses.MetricLoss)
        and name not in _NOT_IN_RECIPES
    }


def loss_parameters(loss_class: Any) -> list[inspect.Parameter]:
    """Return the arguments of a loss that are keys of `[loss]`, beside its class.

    `name` in a recipe is the class, not the name of Keras.
    """
    from tfdml.losses import (
        ABELoss,
        BIERLoss,
        LearnedMarginLoss,
        LearnedPairwiseSigmoidLoss,
        WeightedContrastiveLoss,
    )

    given: tuple[str, ...] = ("name",)
    if issubclass(loss_class, WeightedContrastiveLoss):
        given += _OF_DATA
    if issubclass(loss_class, LearnedMarginLoss):
        given += _OF_CLASSES
    own = [
        parameter
        for key, parameter in inspect.signature(loss_class).parameters.items()
        if key not in given
    ]
    divided = ABELoss, BIERLoss, LearnedMarginLoss, LearnedPairwiseSigmoidLoss
    is_nested = not issubclass(loss_class, divided)
    return own + (_OF_PREFIXES if is_nested else [])


def built_loss(name: str, arguments: Mapping[str, Any]) -> Any:
    """Build a loss from its name and its arguments in a recipe.

    Args:
        name: Its class.
        arguments: Its arguments. A table among them is another loss with its `name`.
            `dimensions`, and perhaps `dimension_weights`, put it on prefixes.

    Raises:
        TypeError: An argument is of another kind, or missing.
        ValueError: An argument is out of range.
    """
    from tfdml.losses import MatryoshkaLoss

    values = dict(arguments)
    dimensions = values.pop("dimensions", None)
    weights = values.pop("dimension_weights", None)
    if weights is not None and dimensions is None:
        raise ValueError(
            "`dimension_weights` must be left out without `dimensions`. "
            f"Received: {shown(weights)}."
        )
    inner = values.get("loss")
    if isinstance(inner, Mapping):
        others = {key: value for key, value in inner.items() if key != "name"}
        values["loss"] = built_loss(inner["name"], others)
    loss = losses_in_recipes()[name](**values)
    if dimensions is None:
        return loss
    try:
        return MatryoshkaLoss(loss, dimensions=dimensions, weights=weights)
    except ValueError as error:
        # Other arguments of a loss may be weights, too.
        text = str(error).replace("`weights`", "`dimension_weights`")
        raise ValueError(text.replace(" weights=", " ")) from None


def checked_loss(where: str, name: Any, arguments: dict[str, Any]) -> Loss:
    """Check the loss that a recipe names, and its arguments, by building it.

    Args:
        where: Begins each message.
        name: The name in the recipe.
        arguments: The other keys of the table.

    Raises:
        RecipeError: There is no such loss, or it does not take its arguments.
    """
    from tfdml.losses import (
        BoundarySampledLoss,
        ContinuousLoss,
        LearnedMarginLoss,
        LearnedPairwiseSigmoidLoss,
        ProxyLoss,
        ThresholdConsistentMarginLoss,
        WeightedContrastiveLoss,
    )

    known = losses_in_recipes()
    check_known(name, known, where, "loss")
    loss_class = known[name]
    from_data: dict[str, Any] = {}
    of_labels: dict[str, Any] = {}
    is_continuous = issubclass(loss_class, ContinuousLoss)
    if is_continuous and "label_distance" in arguments:
        of_labels["label_distance"] = arguments.pop("label_distance")
    is_weighted = issubclass(loss_class, WeightedContrastiveLoss)
    on_boundaries = issubclass(loss_class, LearnedMarginLoss)
    if is_weighted:
        from_data["class_counts"] = [2, 2]
    if on_boundaries:
        from_data["num_classes"] = 2
    parameters = [parameter.name for parameter in loss_parameters(loss_class)]
    for key in arguments:
        check_known(key, parameters, where, "key")
    if issubclass(loss_class, BoundarySampledLoss):
        _check_inner(where, arguments.get("loss"))
    if issubclass(loss_class, ThresholdConsistentMarginLoss) and "loss" in arguments:
        _check_named(where, arguments["loss"], "the loss that the margin is added to")
    try:
        built_loss(name, arguments | from_data)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{where}{error}") from None
    on_proxies = issubclass(loss_class, ProxyLoss)
    try:
        return Loss(
            name,
            arguments,
            on_proxies,
            is_weighted,
            on_boundaries=on_boundaries,
            on_scale=issubclass(loss_class, LearnedPairwiseSigmoidLoss),
            **of_labels,
        )
    except RecipeError as error:
        raise RecipeError(f"{where}{error}") from None


def check_compatible(where: str, loss: Loss) -> None:
    """Refuse a loss that cannot compare new embeddings with those of an old model.

    Args:
        where: Begins the message.
        loss: What `checked_loss` returned.

    Raises:
        RecipeError: The loss is neither defined by pairs alone nor on proxies, or on
            several dimensions.
    """
    from tfdml.losses import CompatibleLoss

    if "dimensions" in loss.arguments:
        raise RecipeError(
            f"{where}`run` must be left out with `dimensions` in [loss]: an old "
            "gallery has one dimension. Received: "
            f"{shown(loss.arguments['dimensions'])}."
        )
    try:
        CompatibleLoss(_tried(loss))
    except TypeError:
        raise RecipeError(
            f"{where}`run` must be left out with a loss that is neither defined by the "
            "scores of pairs alone nor on proxies. Received: "
            f"{loss.name}. MultiSimilarityLoss and ProxyAnchorLoss go with it."
        ) from None


def check_compares_lengths(where: str, loss: Loss) -> None:
    """Refuse a loss of directions for embeddings of any length.

    Args:
        where: Begins the message.
        loss: What `checked_loss` returned.

    Raises:
        RecipeError: The loss compares directions alone.
    """
    from tfdml.losses import LogRatioLoss

    trained = _tried(loss)
    if trained.compares_lengths or isinstance(trained, LogRatioLoss):
        return
    has_switch = hasattr(trained, "normalize")
    remedy = "Add normalize = false to [loss]" if has_switch else "Leave it out"
    raise RecipeError(
        f"{where}`unit_length` must be true with a loss that compares directions: the "
        f"lengths of its embeddings mean nothing. Received: {loss.name}. {remedy}."
    )


def _tried(loss: Loss) -> Any:
    """Build a loss as for any data, without prefixes, to see what it is."""
    from_data: dict[str, Any] = {}
    if loss.is_weighted:
        from_data["class_counts"] = [2, 2]
    if loss.on_boundaries:
        from_data["num_classes"] = 2
    of_prefixes = {parameter.name for parameter in _OF_PREFIXES}
    own = {key: x for key, x in loss.arguments.items() if key not in of_prefixes}
    return built_loss(loss.name, own | from_data)


def _check_named(where: str, loss: Any, what: str) -> None:
    """Check a loss among the arguments of another."""
    if not isinstance(loss, dict) or "name" not in loss:
        raise RecipeError(
            f"{where}`loss` must be a table with the `name` of {what}, and its "
            'arguments, such as {name = "TripletLoss", margin = 0.2}. '
            f"Received: {shown(loss)}."
        )
    others = {key: value for key, value in loss.items() if key != "name"}
    checked_loss(f"{where}`loss`: ", loss["name"], others)


def _check_inner(where: str, loss: Any) -> None:
    """Check the loss that gets the sampled pairs of `BoundarySampledLoss`."""
    from tfdml.losses import PairLoss

    _check_named(where, loss, "the loss that gets the sampled pairs")
    if not issubclass(losses_in_recipes()[loss["name"]], PairLoss):
        raise RecipeError(
            f"{where}`loss` must be a loss on the scores of pairs, a PairLoss. "
            f"Received: {loss['name']}."
        )

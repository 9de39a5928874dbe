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
    # Base classes, and wrappers: for several devices, and by the table [moments].
    "MetricLoss",
    "PairLoss",
    "ProxyLoss",
    "ContinuousLoss",
    "AcrossReplicas",
    "HORDELoss",
)
# The training images and `[batches]` say these.
_OF_DATA = (
    "class_counts",
    "images_per_class",
    "classes_per_batch",
    "positive_probability",
)
_OF_CLASSES = ("num_classes",)  # and this for learned boundaries


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
    from tfdml.losses import LearnedMarginLoss, WeightedContrastiveLoss

    given: tuple[str, ...] = ("name",)
    if issubclass(loss_class, WeightedContrastiveLoss):
        given += _OF_DATA
    if issubclass(loss_class, LearnedMarginLoss):
        given += _OF_CLASSES
    return [
        parameter
        for key, parameter in inspect.signature(loss_class).parameters.items()
        if key not in given
    ]


def built_loss(name: str, arguments: Mapping[str, Any]) -> Any:
    """Build a loss from its name and its arguments in a recipe.

    Args:
        name: Its class.
        arguments: Its arguments. A table among them is another loss with its `name`.

    Raises:
        TypeError: An argument is of another kind, or missing.
        ValueError: An argument is out of range.
    """
    values = dict(arguments)
    inner = values.get("loss")
    if isinstance(inner, Mapping):
        others = {key: value for key, value in inner.items() if key != "name"}
        values["loss"] = built_loss(inner["name"], others)
    return losses_in_recipes()[name](**values)


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
        ProxyLoss,
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
            **of_labels,
        )
    except RecipeError as error:
        raise RecipeError(f"{where}{error}") from None


def check_compares_lengths(where: str, loss: Loss) -> None:
    """Refuse a loss of directions for embeddings of any length.

    Args:
        where: Begins the message.
        loss: What `checked_loss` returned.

    Raises:
        RecipeError: The loss compares directions alone.
    """
    from tfdml.losses import LogRatioLoss

    from_data: dict[str, Any] = {}
    if loss.is_weighted:
        from_data["class_counts"] = [2, 2]
    if loss.on_boundaries:
        from_data["num_classes"] = 2
    trained = built_loss(loss.name, loss.arguments | from_data)
    if trained.compares_lengths or isinstance(trained, LogRatioLoss):
        return
    has_switch = hasattr(trained, "normalize")
    remedy = "Add normalize = false to [loss]" if has_switch else "Leave it out"
    raise RecipeError(
        f"{where}`unit_length` must be true with a loss that compares directions: the "
        f"lengths of its embeddings mean nothing. Received: {loss.name}. {remedy}."
    )


def _check_inner(where: str, loss: Any) -> None:
    """Check the loss that gets the sampled pairs of `BoundarySampledLoss`."""
    if not isinstance(loss, dict) or "name" not in loss:
        raise RecipeError(
            f"{where}`loss` must be a table with the `name` of the loss that gets the "
            "sampled pairs, and its arguments, such as "
            f'{{name = "TripletLoss", margin = 0.2}}. Received: {shown(loss)}.'
        )
    from tfdml.losses import PairLoss

    others = {key: value for key, value in loss.items() if key != "name"}
    checked_loss(f"{where}`loss`: ", loss["name"], others)
    if not issubclass(losses_in_recipes()[loss["name"]], PairLoss):
        raise RecipeError(
            f"{where}`loss` must be a loss on the scores of pairs, a PairLoss. "
            f"Received: {loss['name']}."
        )

"""Define the base classes of the losses: integer labels, one value per anchor."""

import inspect
import re
from abc import abstractmethod
from typing import Any, Self

import keras
from keras import ops

from tfdml._core.batches import checked_batch, refuse_long, refuse_mask
from tfdml._core.control_flow import without_autograph
from tfdml._core.marks import refuse_marks
from tfdml._core.no_positives import holds_positives, warn_of_no_positives
from tfdml._core.tensors import Tensor
from tfdml._registration import original
from tfdml.ops import cosine_similarities, label_masks


class _Reduction(keras.losses.Loss):
    """Keras' own reduction and sample weighting of values computed elsewhere."""

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return y_pred


class _ConstructorSignature:
    """The signature of a class, with the arguments of its parents for `**kwargs`."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("An instance has the signature of its `__call__`.")
        parameters: dict[str, inspect.Parameter] = {}
        constructors = [
            vars(cls)["__init__"] for cls in owner.__mro__ if "__init__" in vars(cls)
        ]
        for constructor in constructors:
            _, *own = inspect.signature(constructor).parameters.values()
            takes_more = bool(own) and own[-1].kind is own[-1].VAR_KEYWORD
            for parameter in own[:-1] if takes_more else own:
                if constructor is not constructors[0]:
                    parameter = parameter.replace(kind=parameter.KEYWORD_ONLY)
                parameters.setdefault(parameter.name, parameter)
            if not takes_more:
                break
        return inspect.Signature(list(parameters.values()))


class MetricLoss(keras.losses.Loss):
    """A loss over the labels and embeddings of a batch, one value per anchor.

    Keras casts the labels that it hands to a loss to the loss's float type, where
    different classes become one: 256 and 257 in bfloat16, 2^24 and 2^24 + 1 in
    float32. Here labels keep the type they come in. A subclass writes
    `call(labels, embeddings)` and returns one value per anchor, scaled so that the
    mean over the batch is the published value. (Keras scales a scalar wrongly under
    `tf.distribute`.)

    A NaN in an embedding makes the value of its anchor NaN, and so the mean, even where
    the loss compares that item with no other. In a loss that does not normalize, a
    component beyond 1e12 in size is refused; inside a compiled function, where values
    are unknown, and on torch it counts as NaN. A mask on the embeddings, as a
    `keras.layers.Masking` on `[batch, dimension]` gives, is refused: leave masked rows
    out of the batch, as a pair with one of them would still count.

    A subclass needs no `get_config` and no registration. `get_config` reads each
    argument of the constructor from the attribute of the same name, or of that name
    with a leading underscore; `**kwargs` stands for the arguments of the parent class.
    Functions and losses among them are serialized by Keras, which knows the class as
    "Custom>Name", or as "my_package>Name" with
    `class Name(PairLoss, package="my_package")`.

    Attributes:
        needs_positives: Whether it learns from pairs of one class in a batch, so that a
            first batch without any is warned of. True of each `PairLoss`.
        compares_lengths: Whether the lengths of embeddings count, so that very long
            ones are refused. By default True with the argument `normalize=False`.

    Args:
        reduction: As in Keras: `"sum_over_batch_size"` is the mean over anchors.
        name: Name of the loss. Defaults to the name of the class in snake case.
        dtype: Type that the loss is computed in. Defaults to `keras.config.floatx()`,
            also in a mixed-precision model.
    """

    def __init__(
        self,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: str | None = None,
    ) -> None:
        name = name or _snake_case(type(self).__name__)
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self._reduce = _Reduction(reduction=reduction, dtype=self.dtype)

    __signature__ = _ConstructorSignature()

    def __init_subclass__(cls, *, package: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if package is None:
            is_own = cls.__module__.partition(".")[0] == "tfdml"
            package = "tfdml" if is_own else "Custom"
        # A private class is a base of others and is not saved itself.
        if not cls.__name__.startswith("_"):
            keras.saving.register_keras_serializable(package)(cls)

    @without_autograph
    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Compute the reduced loss of one batch.

        Args:
            y_true: Integer labels `[B]` or `[B, 1]`. Labels of a float type must be
                whole numbers; inside a compiled function another one makes the loss of
                its anchor NaN.
            y_pred: Embeddings `[B, dimension]`.
            sample_weight: Optional weight of each anchor, `[B]`.

        Returns:
            Scalar, or `[B]` with `reduction=None`.

        Raises:
            ValueError: The shapes do not fit, a label is not a whole number, the
                embeddings carry a mask or are too long for their type, or `y_pred` is
                the output of a layer for another kind of loss.
        """
        refuse_mask(y_pred)
        labels, embeddings = self.checked(y_true, y_pred)
        self._look_for_positives(labels)
        with keras.name_scope(self.name):
            values = self.call(labels, embeddings)
            # Maxima, sorts and masks of pairs may hide a NaN.
            axes = tuple(range(1, len(embeddings.shape)))
            has_nan = ops.any(ops.isnan(embeddings), axis=axes)
            values = ops.where(has_nan, float("nan"), values)
            return self._reduce(values, values, sample_weight=sample_weight)

    needs_positives: bool = False

    @property
    def compares_lengths(self) -> bool:
        """Whether the lengths of embeddings count. See the class."""
        return getattr(self, "normalize", True) is False

    _has_looked = False

    def _look_for_positives(self, labels: Tensor) -> None:
        """Warn once, until a batch had some; out of compiled code alone."""
        if self._has_looked or not self.needs_positives:
            return
        found = holds_positives(labels)
        self._has_looked = found is not None
        if found is False:
            warn_of_no_positives(f"{type(self).__name__}: this batch holds")

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check a batch and return it as `call` takes it.

        A loss on other labels than class ids, or on other outputs than embeddings,
        overrides this.
        """
        refuse_marks(y_pred)
        labels, embeddings = checked_batch(y_true, y_pred, self.dtype)
        return labels, refuse_long(embeddings) if self.compares_lengths else embeddings

    @abstractmethod
    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute one loss per anchor, `[B]`."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor.

        Raises:
            AttributeError: The class does not override `get_config`, and an argument
                has no attribute of its name.
        """
        config = {}
        for name in inspect.signature(type(self)).parameters:
            for attribute in (name, f"_{name}"):
                if hasattr(self, attribute):
                    config[name] = _serialized(getattr(self, attribute))
                    break
            else:
                if type(self).get_config is MetricLoss.get_config:
                    raise AttributeError(
                        f"{type(self).__name__} must have an attribute `{name}`, from "
                        "which `get_config` reads that argument of the constructor."
                    )
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the loss from the dictionary that `get_config` returns."""
        return cls(**{name: _deserialized(value) for name, value in config.items()})


class PairLoss(MetricLoss):
    """A loss that depends on the scores of all pairs alone.

    Scores are cosine similarities; a subclass that works on something else, such as
    distances, overrides `scores`. It writes one pure method, `pair_loss`. By General
    Pair Weighting (Wang et al., Multi-Similarity Loss with General Pair Weighting for
    Deep Metric Learning, CVPR 2019) this form covers the pair-based losses, and its
    gradient with respect to a score is the weight of that pair.

    Attributes:
        is_pairwise: Whether `pair_loss` is the whole loss, so that it also applies to
            a memory or to a query and a gallery set. False in a subclass that
            overrides `call`, unless it says otherwise.

    Example:
        >>> class MeanDifference(PairLoss):
        ...     def __init__(self, weight=1.0, **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.weight = weight
        ...
        ...     def pair_loss(self, scores, positives, negatives):
        ...         costs = ops.where(positives, -scores, 0)
        ...         costs = ops.where(negatives, scores, costs)
        ...         return self.weight * ops.sum(costs, axis=1)
        >>> MeanDifference(2.0).get_config()["weight"]
        2.0
    """

    is_pairwise: bool = True
    needs_positives: bool = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "call" in vars(cls) and "is_pairwise" not in vars(cls):
            cls.is_pairwise = False

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compare the batch with itself, each item left out of its own gallery."""
        scores = self.scores(embeddings, embeddings)
        return self.pair_loss(scores, *label_masks(labels))

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compare anchors `[A, dim]` with a gallery `[G, dim]`; returns `[A, G]`."""
        return cosine_similarities(anchors, gallery)

    @abstractmethod
    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor from its scores.

        Args:
            scores: Float tensor `[A, G]`, as `scores` gives for A anchors and G items.
            positives: Boolean tensor `[A, G]`: the items an anchor should be near.
            negatives: Boolean tensor `[A, G]`: the items it should be far from. Items
                in neither mask, such as the anchor itself, do not count.

        Returns:
            Float tensor `[A]`.
        """


def _serialized(value: Any) -> Any:
    """Return a function or a loss in the form of Keras, other values as they are."""
    return keras.saving.serialize_keras_object(value) if callable(value) else value


def _deserialized(value: Any) -> Any:
    """Return the value that `_serialized` was given."""
    if isinstance(value, dict) and "class_name" in value:
        return original(keras.saving.deserialize_keras_object(value))
    return value


def _snake_case(name: str) -> str:
    """Write the name of a class as Keras writes it, such as "nt_xent_loss"."""
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()

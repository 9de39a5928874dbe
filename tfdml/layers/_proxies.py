"""Compare embeddings with one or several learned vectors per class."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import above_zero, whole
from tfdml._core.marks import PROXIES, mark
from tfdml._core.prefixes import of_prefixes, refuse_another_end, rising_dimensions
from tfdml._core.tensors import Tensor
from tfdml.ops import unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class Proxies(keras.layers.Layer):
    """Cosine similarity of each embedding with a learned proxy of each class.

        S_ic = x_i . p_c / (||x_i|| ||p_c||)

    It is the last layer of a model that trains with a proxy loss: the loss takes its
    output, and after training `model.layers[0]` is the embedder. `fit` does not train
    variables of a loss itself.

    **Learning-rate multiplier.** Proxies are often trained with a much larger learning
    rate than the network (100 times in Proxy-Anchor's code). Keras has one rate for
    all, so the layer trains v and uses the proxies p = m v. The gradient of v is m
    times that of p. Adam divides by the size of the gradient, so it moves v as far as
    it would move p, and p = m v moves m times as far: training is exactly that of p
    under Adam with learning rate m lr and epsilon / m. The same holds for AdamW, Nadam,
    AMSGrad and RMSprop, but not for plain SGD, where the step of p is m^2 times as
    long: use sqrt(m) there. Two settings apply to all weights regardless of m:
    decoupled weight decay (AdamW shrinks p by lr * decay per step) and clipping by the
    norm of the gradient (that of v is m times as long).

    **Dimensions.** With `dimensions`, for `MatryoshkaLoss`, each prefix of an embedding
    is compared with the same prefix of the proxies, both at unit length.

    Args:
        num_classes: C, number of classes, at least 1. Labels are 0 to C - 1; a proxy
            loss refuses others.
        centers_per_class: K, proxies per class, at least 1.
        learning_rate_multiplier: m, above 0.
        initializer: Initial proxies p: a Keras initializer, its name or its config.
            By default normal with variance 2 / (C K), as in Proxy-Anchor's code
            (PyTorch's Kaiming normal, fan-out). The output depends only on directions,
            but the length of p determines how far a step turns it.
        regularizer: Function of the proxies p that is added to the loss, such as
            `CenterRegularizer`: a Keras regularizer, its name or its config.
        dimensions: The lengths M of the prefixes that are compared, rising, the last
            that of the embeddings. `None`: the whole embedding alone.
        dtype: Type of the computation and of the output. Defaults to float32,
            whatever the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: `[batch, dimension]`. Output shape: `[batch, num_classes]`, or
    `[batch, num_classes, centers_per_class]` with more than one center; with
    `dimensions` there is an axis of length M behind the classes. A zero embedding or
    proxy has similarity 0 and gets a zero gradient.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> layer = Proxies(num_classes=2)
        >>> layer.set_proxies([[3.0, 0.0], [0.0, 1.0]])
        >>> tuple(layer(np.array([[2.0, 0.0]])).shape)
        (1, 2)

    Reference:
        Movshovitz-Attias et al., No Fuss Distance Metric Learning using Proxies, ICCV
        2017. Kim, Kim, Cho and Kwak, Proxy Anchor Loss for Deep Metric Learning, CVPR
        2020. Qian et al., SoftTriple Loss, ICCV 2019 (several centers). Kusupati et
        al., Matryoshka Representation Learning, NeurIPS 2022 (dimensions).
    """

    is_for_a_loss = True  # A model that ends in it ends in no embedding.

    def __init__(
        self,
        num_classes: int,
        centers_per_class: int = 1,
        learning_rate_multiplier: float = 1.0,
        *,
        initializer: Any = None,
        regularizer: Any = None,
        dimensions: Sequence[int] | None = None,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        self.num_classes: int = whole("num_classes", num_classes)
        self.centers_per_class: int = whole("centers_per_class", centers_per_class)
        self.learning_rate_multiplier: float = above_zero(
            "learning_rate_multiplier", learning_rate_multiplier
        )
        if initializer is None:
            # Keras counts the first axes of a weight as its input: its fan-in is C K.
            initializer = keras.initializers.VarianceScaling(
                2.0, "fan_in", "untruncated_normal"
            )
        self.initializer: Any = keras.initializers.get(initializer)
        self.regularizer: Any = keras.regularizers.get(regularizer)
        self.dimensions: tuple[int, ...] | None = (
            None if dimensions is None else rising_dimensions(dimensions)
        )

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the proxies for embeddings of the given dimension."""
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                "The input of Proxies must be embeddings of shape [batch, dimension], "
                f"of known dimension. Received: shape={tuple(input_shape)}."
            )
        if self.dimensions:
            refuse_another_end(self.dimensions, input_shape[-1])
        several = (self.centers_per_class,) if self.centers_per_class > 1 else ()
        self._scaled_proxies = self.add_weight(
            name="scaled_proxies",
            shape=(self.num_classes, *several, input_shape[-1]),
            initializer=self._initial,
            regularizer=self._penalty if self.regularizer else None,
        )

    def _initial(self, shape: Any, dtype: Any = None) -> Tensor:
        return self.initializer(shape, dtype=dtype) / self.learning_rate_multiplier

    def _penalty(self, scaled: Tensor) -> Tensor:
        return self.regularizer(self.learning_rate_multiplier * scaled)

    @property
    def proxies(self) -> Tensor:
        """Return the proxies p, `[C, dimension]` or `[C, K, dimension]`.

        (The weight of the layer, which `get_weights` returns, is p / m.)
        """
        self._check_built()
        return self.learning_rate_multiplier * self._scaled_proxies

    def set_proxies(self, proxies: Any) -> None:
        """Set the proxies p, for example to the mean embedding of each class.

        Args:
            proxies: Float array `[C, dimension]`, or `[C, K, dimension]`.
        """
        values = ops.convert_to_tensor(proxies, dtype=self.variable_dtype)
        if not self.built:
            self.build((None, values.shape[-1]))
        if tuple(values.shape) != tuple(self._scaled_proxies.shape):
            raise ValueError(
                f"`proxies` must be of the shape {tuple(self._scaled_proxies.shape)}. "
                f"Received: shape={tuple(values.shape)}."
            )
        self._scaled_proxies.assign(values / self.learning_rate_multiplier)

    def call(self, inputs: Tensor) -> Tensor:
        """Return the similarities."""
        embeddings = ops.cast(inputs, self.compute_dtype)
        proxies = ops.cast(self.proxies, self.compute_dtype)
        if not self.dimensions:
            return mark(self._similarities(embeddings, proxies), PROXIES)
        parts = [
            self._similarities(embeddings[:, :length], proxies[..., :length])
            for length in self.dimensions
        ]
        return mark(ops.stack(parts, axis=2), of_prefixes(self.dimensions))

    def _similarities(self, embeddings: Tensor, proxies: Tensor) -> Tensor:
        """Compare embeddings with proxies of the same dimension."""
        proxies = unit_rows(proxies)
        flat = ops.reshape(proxies, (-1, proxies.shape[-1]))
        similarities = ops.matmul(unit_rows(embeddings), ops.transpose(flat))
        if self.centers_per_class > 1:
            shape = (-1, self.num_classes, self.centers_per_class)
            similarities = ops.reshape(similarities, shape)
        return similarities

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return the shape of the similarities."""
        several = (self.centers_per_class,) if self.centers_per_class > 1 else ()
        nested = (len(self.dimensions),) if self.dimensions else ()
        return (input_shape[0], self.num_classes, *nested, *several)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "centers_per_class": self.centers_per_class,
            "learning_rate_multiplier": self.learning_rate_multiplier,
            "initializer": keras.initializers.serialize(self.initializer),
            "regularizer": self.regularizer
            and keras.regularizers.serialize(self.regularizer),
            "dimensions": self.dimensions,
        }

    def _check_built(self) -> None:
        if not self.built:
            raise ValueError(
                "The layer must be called on embeddings before its proxies are read. "
                "Received: a layer that is not built."
            )

"""Proxies: one or several learned vectors a class, compared with the embeddings."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero, at_least_zero, whole
from tfdml.ops import Tensor, unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class Proxies(keras.layers.Layer):
    """Cosine similarity of each embedding with a learned proxy of each class.

        S_ic = x_i . p_c / (||x_i|| ||p_c||)

    It ends a model that trains with a proxy loss: the loss reads its output, and after
    training `model.layers[0]` is the embedder. A variable that a loss holds itself
    would never be trained by `fit`.

    **Learning-rate multiplier.** Proxies are often trained with a much larger learning
    rate than the network (100 times in Proxy-Anchor's code). Keras has one rate for
    all, so the layer trains v and uses the proxies p = m v. The gradient of v is m
    times that of p. Adam divides by the size of the gradient, so it moves v as far as
    it would move p, and p = m v moves m times as far: training is exactly that of p
    under Adam with learning rate m lr and epsilon / m. So it is for Adam's relatives
    (AdamW, Nadam, AMSGrad, RMSprop). It is not for plain SGD, where the step of p is
    m^2 times as long: use sqrt(m) there. Two things are shared by all weights and do
    not follow m: decoupled weight decay (AdamW shrinks p by lr * decay a step) and
    clipping by the gradient's norm (the gradient of v is m times as long).

    Args:
        num_classes: C, how many classes, at least 1. Labels are 0 to C - 1; a proxy
            loss refuses others.
        centers_per_class: K, proxies a class, at least 1.
        learning_rate_multiplier: m, above 0.
        initializer: Initial proxies p: a Keras initializer, its name or its config.
            By default normal with variance 2 / (C K), as in Proxy-Anchor's code
            (PyTorch's Kaiming normal, fan-out). Only directions enter the output, but
            the length of p sets how far a step turns it.
        regularizer: Function of the proxies p that is added to the loss, such as
            `CenterRegularizer`: a Keras regularizer, its name or its config.
        dtype: Type of the computation and of the output. Defaults to float32,
            whatever the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: `[batch, dimension]`. Output shape: `[batch, num_classes]`, or
    `[batch, num_classes, centers_per_class]` with more than one center. A zero
    embedding or proxy has similarity 0 and gets a zero gradient.

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
        2020. Qian et al., SoftTriple Loss, ICCV 2019 (several centers).
    """

    def __init__(
        self,
        num_classes: int,
        centers_per_class: int = 1,
        learning_rate_multiplier: float = 1.0,
        *,
        initializer: Any = None,
        regularizer: Any = None,
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

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the proxies for embeddings of the given dimension."""
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                "Proxies need embeddings of the shape [batch, dimension], of a known "
                f"dimension. Received: shape={tuple(input_shape)}."
            )
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
        """The proxies p in their true scale, `[C, dimension]` or `[C, K, dimension]`.

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
        embeddings = unit_rows(ops.cast(inputs, self.compute_dtype))
        proxies = unit_rows(ops.cast(self.proxies, self.compute_dtype))
        flat = ops.reshape(proxies, (-1, proxies.shape[-1]))
        similarities = ops.matmul(embeddings, ops.transpose(flat))
        if self.centers_per_class == 1:
            return similarities
        return ops.reshape(similarities, (-1, self.num_classes, self.centers_per_class))

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return the shape of the similarities."""
        several = (self.centers_per_class,) if self.centers_per_class > 1 else ()
        return (input_shape[0], self.num_classes, *several)

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
        }

    def _check_built(self) -> None:
        if not self.built:
            raise ValueError(
                "The proxies exist once the layer has seen embeddings: call the layer "
                "or the model first."
            )


@keras.saving.register_keras_serializable(package="tfdml")
class CenterRegularizer(keras.regularizers.Regularizer):
    """SoftTriple's penalty on superfluous centers: it pulls those of a class together.

        R = tau sum_c sum_{s < t} sqrt(2 + eps - 2 w_cs . w_ct) / (C K (K - 1))

    with w the centers at unit length and eps = 1e-5. The square root
    makes it a group lasso: centers merge until a class has as many as it needs. With
    one center a class it is 0.

    Args:
        strength: tau, at least 0.

    Raises:
        ValueError: `strength` is out of range.

    Example:
        >>> float(CenterRegularizer(1.0)(np.array([[[1.0, 0.0], [1.0, 0.0]]]))) < 0.01
        True

    Reference:
        Qian, Shang, Sun, Hu, Li and Jin, SoftTriple Loss: Deep Metric Learning Without
        Triplet Sampling, ICCV 2019.
    """

    def __init__(self, strength: float = 0.2) -> None:
        self.strength: float = at_least_zero("strength", strength)

    def __call__(self, proxies: Tensor) -> Tensor:
        """Compute R of centers `[C, K, dimension]`, or `[C, dimension]`: a scalar."""
        classes, centers = proxies.shape[0], proxies.shape[1]
        if len(proxies.shape) == 2 or centers == 1:
            return 0.0 * ops.sum(proxies)
        unit = unit_rows(proxies)
        products = ops.matmul(unit, ops.transpose(unit, (0, 2, 1)))
        # In TF32 or bfloat16 the product of a center with itself can be above 1.
        distances = ops.sqrt(ops.relu(2.0 - 2.0 * products) + 1e-5)
        pairs = ops.triu(ops.ones_like(distances), k=1)
        total = ops.sum(pairs * distances)
        return self.strength * total / (classes * centers * (centers - 1))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"strength": self.strength}

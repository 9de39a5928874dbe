"""Train an embedder on batches whose activations do not fit into memory."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops
from keras.src.backend import AutocastScope

from tfdml._core.arguments import whole
from tfdml._core.marks import is_building, mark
from tfdml._core.tensors import Tensor
from tfdml.messages import shown
from tfdml.models._chunk import MUST_DIVIDE, Chunk

_BACKENDS = ("tensorflow", "jax")


def _of_embedder(name: str) -> property:
    return property(lambda model: getattr(model.embedder, name))


@keras.saving.register_keras_serializable(package="tfdml")
class LargeBatch(keras.Model):
    """A model that trains an embedder on large batches with the memory of a chunk.

    What a layer computes in a forward pass is kept for the gradient, and this is what
    limits the batch. Gradient caching keeps the embeddings alone. In a training step
    of B rows in n = B / chunk chunks,

    1. the embedder embeds chunk after chunk, and nothing but the embeddings is kept;
    2. the loss is computed of all B embeddings, once, and its gradient by them;
    3. each chunk is embedded again, and the gradient of its embeddings goes back into
       the weights, where those of all chunks add up.

    The gradient is that of the whole batch, for every loss, metric, optimizer and
    sample weight, at the price of a second forward pass: gradient accumulation, in
    contrast, compares the rows of one chunk alone. `compile`, `fit`, `save` and
    `load_model` work as for every model. `evaluate` and `predict` embed a batch at
    once, and keep nothing either: choose their `batch_size`, and
    `validation_batch_size`, smaller. To use or export the embedder take
    `model.embedder`.

    It is also a layer. Layers behind it, such as `Proxies`, see the whole batch, and
    so does the memory of `CrossBatchMemory(LargeBatch(embedder))`. With
    `AcrossReplicas` each replica divides its own share.

    Chunk j holds the rows j, j + n, j + 2 n, and so on, so that it contains many
    classes where a batch lists class after class.

    - **Dropout and random augmentation** draw anew for each chunk, as for a batch, and
      the second pass repeats the first: it begins with the seed that the chunk began
      with. A step moves each `keras.random.SeedGenerator` as n batches would, once.
    - **Batch normalization** normalizes by the statistics of its chunk, as it would
      with batches of that size, not of B. Its moving averages are updated once per
      chunk, in the first pass alone. With frozen ones, or in an embedder without, the
      gradient is exactly that of the undivided batch.
    - **Losses that layers add** (`add_loss`, `activity_regularizer`) are averaged over
      the chunks: those that are means over rows are as of the whole batch.
      Regularizers of weights count once.

    A layer whose second pass cannot repeat the first is refused by name: recurrent
    layers with `stateful=True`, layers that change trainable weights, such as
    `SpectralNormalization`, or variables that are not their own, such as random numbers
    without a seed generator; on TensorFlow also what keeps state that Keras does not
    know, and synchronized batch normalization under `tf.distribute`.

    Args:
        embedder: A built model; each input and output has the rows on its first axis.
        chunk: Number of rows that are embedded at a time, at least 1. It must divide
            the batch, that of one replica under `tf.distribute`.
        **kwargs: As in `keras.Model`. The dtype policy is by default the embedder's.

    Raises:
        TypeError: `embedder` is no model.
        NotImplementedError: Keras runs on another backend than TensorFlow and JAX.
        ValueError: An argument is out of range, the embedder trains in a way of its
            own, or a layer cannot be repeated. In training: `chunk` does not divide
            the batch.

    Example:
        >>> from tfdml.losses import TopKPrecisionLoss
        >>> inputs = keras.Input((3,))
        >>> embedder = keras.Model(inputs, keras.layers.Dense(2)(inputs))
        >>> model = LargeBatch(embedder, chunk=2)
        >>> model.compile("sgd", loss=TopKPrecisionLoss(k=1))
        >>> x, labels = np.eye(4, 3), np.array([0, 0, 1, 1])
        >>> history = model.fit(x, labels, batch_size=4, verbose=0)

    Reference:
        Gao, Zhang, Han and Callan, Scaling Deep Contrastive Learning Batch Size under
        Memory Limited Setup, arXiv 2021.
    """

    def __init__(self, embedder: keras.Model, chunk: int = 64, **kwargs: Any) -> None:
        _check(embedder)
        kwargs.setdefault("dtype", embedder.dtype_policy)
        # The embedder converts its inputs itself.
        super().__init__(autocast=False, **kwargs)
        self.embedder = embedder
        self.chunk = whole("chunk", chunk)
        self.built = True

    # Whoever looks into a model sees the embedder.
    input = _of_embedder("input")
    output = _of_embedder("output")
    inputs = _of_embedder("inputs")
    outputs = _of_embedder("outputs")
    input_shape = _of_embedder("input_shape")
    output_shape = _of_embedder("output_shape")

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the embeddings."""
        flat = keras.tree.flatten(inputs)
        is_symbolic = is_building() or any(map(keras.backend.is_keras_tensor, flat))
        if not training or is_symbolic:
            return self.embedder(inputs, training=training)
        self._check_batch(flat)
        chunk = Chunk(self.embedder, inputs)
        with AutocastScope(None):  # gradients are of the variables as they are
            weights = [ops.convert_to_tensor(v.value) for v in chunk.weights]
            state = [ops.convert_to_tensor(v.value) for v in chunk.state]
        outputs, new, total = _runner()(chunk, weights, state, flat, self.chunk)
        for place, value in zip(chunk.changed, new, strict=True):
            chunk.state[place].assign(value)
        if chunk.has_losses:
            self.add_loss(total)
        for output, content in zip(outputs, chunk.marks, strict=True):
            if content is not None:
                mark(output, content)
        return keras.tree.pack_sequence_as(chunk.structure, outputs)

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the shapes of the embeddings, as the embedder knows them.

        JAX would trace the layers with a batch of unknown size, which some refuse.
        """
        return self.embedder.compute_output_spec(inputs, training=training)

    def _check_batch(self, inputs: list[Tensor]) -> None:
        sizes = {x.shape[0] for x in inputs} - {None}
        if len(sizes) > 1:
            raise ValueError(
                "All inputs must have the rows of the batch on their first axis. "
                f"Received: shapes {shown([tuple(x.shape) for x in inputs])}."
            )
        for size in sizes:
            if size % self.chunk:
                raise ValueError(
                    f"{MUST_DIVIDE} Received: chunk={self.chunk}, and a batch of "
                    f"{size}."
                )

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "embedder": keras.saving.serialize_keras_object(self.embedder),
            "chunk": self.chunk,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Build the model from the result of `get_config`."""
        embedder = keras.saving.deserialize_keras_object(
            config["embedder"], custom_objects=custom_objects
        )
        return cls(**{**config, "embedder": embedder})


def _runner() -> Callable[..., tuple[list[Tensor], list[Tensor], Tensor]]:
    if keras.backend.backend() == "jax":
        from tfdml.models._chunks_jax import run_chunks
    else:
        from tfdml.models._chunks_tensorflow import run_chunks
    return run_chunks


def _check(embedder: Any) -> None:
    backend = keras.backend.backend()
    if backend not in _BACKENDS:
        raise NotImplementedError(
            f"LargeBatch runs on the backends {', '.join(_BACKENDS)}. "
            f"Received: the backend {backend}."
        )
    if not isinstance(embedder, keras.Model):
        raise TypeError(
            f"`embedder` must be a keras.Model. Received: {shown(embedder)}."
        )
    if not embedder.built:
        raise ValueError(
            "`embedder` must be built: call it on a batch first. "
            f"Received: {shown(embedder)}."
        )
    own = [
        name
        for name in ("train_step", "compute_loss")
        if getattr(type(embedder), name) is not getattr(keras.Model, name)
    ]
    if own:
        raise ValueError(
            f"`embedder` must not train in a way of its own (`{own[0]}`), which would "
            "not be used: wrap the embedder inside it, as in "
            "CrossBatchMemory(LargeBatch(embedder, 64), size=4096). "
            f"Received: {shown(embedder)}."
        )
    for layer in embedder._flatten_layers():
        if reason := _never_repeats(layer):
            raise ValueError(
                f"The layers of `embedder` must not {reason}. Received: the layer "
                f"{shown(layer.name)} of the class {type(layer).__name__}."
            )


def _never_repeats(layer: keras.Layer) -> str | None:
    """Return why the chunks of a batch cannot pass a layer, twice each, if so."""
    if getattr(layer, "stateful", False) is True:
        return "be stateful: a chunk would go on where another one ended"
    if isinstance(layer, keras.layers.TFSMLayer | keras.layers.TorchModuleWrapper):
        return "hold state that Keras does not know, and cannot put back"
    if getattr(layer, "synchronized", False) and _replicas() > 1:
        return "be synchronized across replicas, which chunks cannot wait for"
    return None


def _replicas() -> int:
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return int(tf.distribute.get_strategy().num_replicas_in_sync)

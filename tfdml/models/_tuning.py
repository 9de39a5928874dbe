"""Choose which weights of a backbone train: all, none, or small additions (LoRA)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras

from tfdml.messages import shown

TUNINGS = ("whole", "lora", "frozen")
LORA_LAYERS = ("attention", "all")

# The query and value projections of Keras' MultiHeadAttention and of KerasHub; the last
# two are one layer for the query, the key and the value.
_ATTENTION = ("query", "value", "query_dense", "value_dense", "qkv", "attention_qkv")
_ADAPTED = (
    keras.layers.Dense,
    keras.layers.EinsumDense,
    keras.layers.Conv1D,
    keras.layers.Conv2D,
    keras.layers.Conv3D,
)


def tune(
    embedder: keras.Model, tuning: str, rank: int, which: str, backbone: str
) -> None:
    """Let the backbone of an embedder train as `build_embedder` says.

    Args:
        embedder: A model with a layer "pooling"; what is before it is the backbone.
        tuning: One of `TUNINGS`.
        rank: Rank of the additions of "lora".
        which: One of `LORA_LAYERS`.
        backbone: What messages call the backbone.

    Raises:
        ValueError: There is no layer for "lora".
    """
    names = [layer.name for layer in embedder.layers]
    before = embedder.layers[: names.index("pooling")]
    if tuning == "frozen":
        for layer in before:
            layer.trainable = False
    elif tuning == "lora":
        _adapt(before, rank, which, backbone)
    fix_positions(embedder)


def fix_positions(model: keras.Model) -> None:
    """Keep the position embeddings of DINOv2, and what masks patches, as they are.

    KerasHub 0.32 saves the trained ones resized to those of its preset, or, where their
    sum has grown, not at all: a saved model would not be what was trained. Nothing
    trains the mask token here, of which Keras would warn.
    """
    for layer in model._flatten_layers():
        for name in ("interpolated_position_embeddings", "mask_token"):
            variable = getattr(layer, name, None)
            if isinstance(variable, keras.Variable):
                variable.trainable = False


def _adapt(layers: Sequence[keras.Layer], rank: int, which: str, backbone: str) -> None:
    every = {id(inner): inner for layer in layers for inner in layer._flatten_layers()}
    suitable = [
        layer
        for layer in every.values()
        if isinstance(layer, _ADAPTED) and (which == "all" or layer.name in _ATTENTION)
    ]
    if not suitable:
        rule = (
            "`lora_layers` must be 'all' with a backbone without query and value "
            "projections"
            if which == "attention"
            else "`tuning` must be 'whole' or 'frozen' with a backbone without dense "
            "or convolutional layers"
        )
        raise ValueError(
            f"{rule}. Received: tuning='lora', lora_layers={shown(which)} with the "
            f"backbone {shown(backbone)}."
        )
    for layer in every.values():
        # Not the layers themselves: a frozen one hides what is added inside it.
        for variable in layer.weights:
            variable.trainable = False
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False  # it also keeps its statistics
    for layer in suitable:
        layer.enable_lora(rank)


@contextmanager
def lora_merged(model: keras.Model) -> Iterator[None]:
    """Give a model plain layers with the kernels that LoRA has trained, in a block.

    What is saved within has no trace of LoRA. Without this, Keras saves the kernels so,
    too, but dense and convolutional layers of a functional model keep additions of 0,
    and those of a mixed policy are rounded to half precision.

    Args:
        model: Any model, also one without LoRA.
    """
    adapted = [
        layer
        for layer in model._flatten_layers()
        if getattr(layer, "lora_enabled", False)
    ]
    before = []
    for layer in adapted:
        kernel = next(v for v in layer.weights if v.name == "kernel")
        before.append((kernel, keras.ops.convert_to_numpy(kernel), layer.lora_rank))
        addition = keras.ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b)
        kernel.assign(kernel + (layer.lora_alpha / layer.lora_rank) * addition)
        layer.lora_enabled, layer.lora_rank = False, None
    try:
        yield
    finally:
        for layer, (kernel, value, rank) in zip(adapted, before, strict=True):
            kernel.assign(value)
            layer.lora_enabled, layer.lora_rank = True, rank

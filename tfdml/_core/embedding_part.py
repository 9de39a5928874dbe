"""Find the part of a trained model that ends in the embeddings."""

from typing import Any, Literal

import keras

from tfdml._core.marks import mark_of
from tfdml.messages import shown

ANY_LENGTH = "embedding_of_any_length"
"""Name of the last layer of an embedder whose rows are compared by their distance."""


def search_metric(embedder: keras.Model) -> Literal["cosine", "squared_euclidean"]:
    """Return how the embeddings of a model are compared in a search.

    Args:
        embedder: A model that ends in embeddings, such as from `load_embedder`.

    Returns:
        `"squared_euclidean"` of an embedder that was built with `unit_length=False`;
        else `"cosine"`, also where a loss scaled the rows itself.

    Example:
        >>> search_metric(keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)]))
        'cosine'
    """
    outputs = _outputs(embedder)
    if not outputs:
        return "cosine"
    last = outputs[0]._keras_history.operation
    if isinstance(last, keras.Model):
        return search_metric(last)
    return "squared_euclidean" if last.name == ANY_LENGTH else "cosine"


def embedding_part(model: keras.Model, remedy: str) -> keras.Model:
    """Return the model, without a last layer that only a loss needs.

    `Proxies`, `ClassBoundaries` and `HighOrderMoments` say so by an attribute
    `is_for_a_loss`; their first input are the embeddings. Models that
    Keras cannot look into, such as subclasses, are returned as they are: see
    `check_outputs`.

    Args:
        model: A model of one output.
        remedy: A sentence on what to do about a model that has no such part.

    Raises:
        ValueError: The model has several outputs, or ends in another model that ends in
            such a layer.
    """
    outputs = _outputs(model)
    if outputs is None:
        return model
    if len(outputs) != 1:
        names = [tensor.name for tensor in outputs]
        raise ValueError(
            "The model must have one output, the embeddings. "
            f"Received: {len(outputs)} outputs, {shown(names)}. {remedy}"
        )
    last, node, _ = outputs[0]._keras_history
    if _is_for_a_loss(last):
        embedding, *_ = last._inbound_nodes[node].input_tensors
        return keras.Model(_inputs(model), embedding)
    if _ends_for_a_loss(last):
        raise ValueError(
            "The model must end in the embeddings. Received: a model that ends in "
            f"{shown(last.name)}, whose last layer is for a loss alone. {remedy}"
        )
    return model


def check_outputs(model: keras.Model, inputs: Any, remedy: str) -> None:
    """Refuse a model whose output is no embedding, where its layers do not tell.

    Args:
        model: From `embedding_part`.
        inputs: One batch, of which it embeds the rows.
        remedy: As in `embedding_part`.

    Raises:
        ValueError: It returns several outputs, or similarities with proxies.
    """
    outputs = _outputs(model)
    if outputs is not None:
        last = outputs[0]._keras_history.operation
        if type(last).__module__.partition(".")[0] in ("keras", "tfdml"):
            return
    received = model(keras.tree.map_structure(_first_row, inputs), training=False)
    if not keras.ops.is_tensor(received):
        raise ValueError(
            "The model must have one output, the embeddings. Received: a "
            f"{type(received).__name__} of outputs. {remedy}"
        )
    content = mark_of(received)
    if content is not None:
        raise ValueError(
            f"The model must end in the embeddings. Received: {content}. {remedy}"
        )


def _first_row(values: Any) -> Any:
    return keras.ops.convert_to_tensor(values[:1])


def _is_for_a_loss(layer: Any) -> bool:
    return bool(getattr(layer, "is_for_a_loss", False))


def _ends_for_a_loss(layer: Any) -> bool:
    outputs = _outputs(layer) if isinstance(layer, keras.Model) else None
    if not outputs:
        return _is_for_a_loss(layer)
    return any(_ends_for_a_loss(tensor._keras_history.operation) for tensor in outputs)


def _inputs(model: keras.Model) -> Any:
    """Return the symbolic inputs in the structure in which a model takes them."""
    return model.inputs if isinstance(model, keras.Sequential) else model.input


def _outputs(model: Any) -> list[Any] | None:
    """Return the symbolic outputs of a functional or sequential model, else None."""
    try:
        return list(model.outputs)
    except (AttributeError, TypeError, ValueError):  # a subclass, or not built
        return None

"""Divide a backbone into blocks by depth, for learning rates that fall with it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras

Block = list[keras.Layer]


def blocks_of(features: Any) -> list[Block]:
    """Return the blocks of the layers that compute some features, the first one first.

    A block ends where all that later layers use is one tensor: after a residual
    connection, or after each layer of a plain stack. A layer that is itself a stack of
    alike parts, such as the encoder of a transformer, counts as these parts. What has
    no kernel, such as a normalization, belongs to the block before it.

    Args:
        features: The symbolic tensor or tensors, of a functional model.
    """
    blocks: list[Block] = []
    for block in _divided(keras.tree.flatten(features)):
        weights = [w for layer in block for w in layer.weights]
        if not weights:
            continue
        if blocks and all(len(weight.shape) < 2 for weight in weights):
            blocks[-1] += block
        else:
            blocks.append(block)
    return blocks


def _divided(features: Sequence[Any]) -> Iterator[Block]:
    """Yield the layers of a graph between the points that one tensor passes alone."""
    nodes = _in_order(features)
    last_use: dict[int, int] = {id(tensor): len(nodes) for tensor in features}
    for place, node in enumerate(nodes):
        for tensor in node.input_tensors:
            last_use[id(tensor)] = max(last_use.get(id(tensor), 0), place)
    live: set[int] = set()
    block: Block = []
    for place, node in enumerate(nodes):
        begins = not block
        live |= {id(tensor) for tensor in node.output_tensors}
        live = {tensor for tensor in live if last_use.get(tensor, -1) > place}
        layer = node.operation
        if isinstance(layer, keras.Layer):
            parts = list(_parts(layer)) if begins and len(live) <= 1 else [[layer]]
            *whole, rest = parts
            yield from whole
            block += rest
        if len(live) <= 1:
            yield block
            block = []
    yield block


def _in_order(features: Sequence[Any]) -> list[Any]:
    """Return the nodes of a graph, each after those that it needs."""
    ordered: dict[int, Any] = {}
    waiting = [_node_of(tensor) for tensor in reversed(features)]
    while waiting:
        node = waiting[-1]
        before = [_node_of(tensor) for tensor in node.input_tensors]
        missing = [other for other in before if id(other) not in ordered]
        if missing:
            waiting += reversed(missing)
            continue
        waiting.pop()
        ordered.setdefault(id(node), node)
    return list(ordered.values())


def _node_of(tensor: Any) -> Any:
    operation, place, _ = tensor._keras_history
    return operation._inbound_nodes[place]


def _parts(layer: keras.Layer) -> Iterator[Block]:
    """Yield the blocks of one layer, at least one."""
    outputs = getattr(layer, "outputs", None)
    if isinstance(layer, keras.Model) and outputs:
        yield from _divided(outputs)
        return
    inner = [part for part in _inner(layer) if part.weights]
    kinds = Counter(type(part) for part in inner if any(_inner(part)))
    if max(kinds.values(), default=0) < 2:
        yield [layer]
        return
    for part in inner:
        yield from _parts(part)


def _inner(layer: keras.Layer) -> Iterable[keras.Layer]:
    return layer._flatten_layers(include_self=False, recursive=False)

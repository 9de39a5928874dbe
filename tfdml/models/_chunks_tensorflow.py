"""Run a model chunk by chunk on TensorFlow, and differentiate it so."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.record import should_record_backprop

from tfdml.messages import shown
from tfdml.models._chunk import MUST_DIVIDE, Chunk

# TensorFlow calls these stateful, but a second pass finds nothing changed by them.
_HARMLESS = ("Assert", "Print", "Stateless", "CudnnRNN")


def run_chunks(
    chunk: Chunk,
    weights: Sequence[Any],
    state: Sequence[Any],
    inputs: Sequence[Any],
    size: int,
) -> tuple[list[Any], list[Any], Any]:
    """Run all chunks, one after another, each with the state that the last one left.

    Chunk j of n holds rows j, j + n, j + 2 n, and so on. What layers compute in between
    is not kept: the gradient runs each chunk again, from the state it had before.

    Args:
        chunk: The pass of one chunk.
        weights: Value of each of its weights.
        state: Value of each of its other variables.
        inputs: Inputs of the batch in a flat list, each `[batch, ...]`.
        size: Rows in a chunk, which must divide the batch.

    Returns:
        The outputs of the batch in a flat list, what the state has become (the new
        values of `chunk.changed`), and the mean over chunks of what layers add to the
        loss.
    """
    weights = [tf.convert_to_tensor(x) for x in weights]
    state = [tf.stop_gradient(x) for x in state]  # frozen weights among it
    batch = inputs[0].shape[0]
    count = _count(inputs[0], size) if batch is None else batch // size
    parts = [_divided(x, size, count) for x in inputs]
    *specs, of_total = _results_of_one(chunk, weights, state, parts)
    # A tape that follows the weights alone needs no gradient of the images.
    is_followed = should_record_backprop(parts) or not should_record_backprop(weights)
    moved = [i for i, x in enumerate(parts) if is_followed and x.dtype.is_floating]

    def rows(all_parts: Sequence[Any], index: Any) -> list[Any]:
        return [part[:, index] for part in all_parts]

    def array(spec: Any) -> tf.TensorArray:
        return tf.TensorArray(spec.dtype, count, element_shape=spec.shape)

    @tf.custom_gradient
    def run(*tensors: Any) -> Any:
        learned = [tf.stop_gradient(x) for x in tensors[: len(weights)]]
        given = list(parts)
        for place, x in zip(moved, tensors[len(weights) :], strict=True):
            given[place] = tf.stop_gradient(x)

        def forward(index: Any, new: Any, before: Any, results: Any, total: Any) -> Any:
            before = [a.write(index, x) for a, x in zip(before, new, strict=True)]
            now = chunk.with_changed(state, new)
            outputs, new, added = chunk(learned, now, rows(given, index))
            results = [a.write(index, x) for a, x in zip(results, outputs, strict=True)]
            return index + 1, new, before, results, total + added

        first = [state[place] for place in chunk.changed]
        _, new, before, results, total = tf.while_loop(
            lambda index, *_: index < count,
            forward,
            (
                tf.constant(0),
                first,
                [array(x) for x in first],
                [array(x) for x in specs],
                tf.zeros((), of_total.dtype),
            ),
            parallel_iterations=1,
        )
        states = [a.stack() for a in before]
        whole = [_joined(a.stack(), batch) for a in results]
        total = total / tf.cast(count, total.dtype)

        def gradient(*upstream: Any) -> list[Any]:
            of_outputs, of_total = upstream[: len(whole)], upstream[-1]
            real = [i for i, x in enumerate(whole) if x.dtype.is_floating]
            cut = [_divided(of_outputs[i], size, count) for i in real]

            def backward(index: Any, sums: Any, of_inputs: Any) -> Any:
                # A tape follows tensors of the body, not those around it.
                own = [tf.identity(x) for x in learned]
                mine = rows(given, index)
                sources = [*own, *(mine[i] for i in moved)]
                now = chunk.with_changed(state, [x[index] for x in states])
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(sources)
                    outputs, _, added = chunk(own, now, mine)
                found = tape.gradient(
                    [*(outputs[i] for i in real), added],
                    sources,
                    [*rows(cut, index), of_total / tf.cast(count, added.dtype)],
                    unconnected_gradients="zero",
                )
                found = [tf.convert_to_tensor(x) for x in found]
                sums = [a + b for a, b in zip(sums, found[: len(own)], strict=True)]
                of_inputs = [
                    a.write(index, x)
                    for a, x in zip(of_inputs, found[len(own) :], strict=True)
                ]
                return index + 1, sums, of_inputs

            _, sums, of_inputs = tf.while_loop(
                lambda index, *_: index < count,
                backward,
                (
                    tf.constant(0),
                    [tf.zeros_like(x) for x in learned],
                    [array(given[i][:, 0]) for i in moved],
                ),
                parallel_iterations=1,
            )
            return [*sums, *(_swapped(a.stack()) for a in of_inputs)]

        return [*whole, *new, total], gradient

    *results, total = run(*weights, *(parts[i] for i in moved))
    return results[: len(specs)], results[len(specs) :], total


def _count(x: Any, size: int) -> Any:
    """Return the number of chunks of a batch whose size the graph does not know."""
    batch = tf.shape(x)[0]
    message = f"{MUST_DIVIDE} Received: chunk={size}, and a batch of another size."
    with tf.control_dependencies([tf.debugging.assert_equal(batch % size, 0, message)]):
        return batch // size


def _divided(x: Any, size: int, count: Any) -> Any:
    """Return rows `[batch, ...]` as `[size, count, ...]`: column j is chunk j."""
    shape = tf.concat([[size, count], tf.shape(x)[1:]], 0)
    # XLA leaves assertions out. What it says of a reshape has this name in it.
    divided = tf.reshape(x, shape, name="chunk_must_divide_the_batch")
    divided.set_shape([size, None, *x.shape[1:]])
    return divided


def _swapped(x: Any) -> Any:
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def _joined(x: Any, batch: int | None) -> Any:
    """Return the chunks `[count, size, ...]` as rows `[batch, ...]`."""
    swapped = _swapped(x)
    joined = tf.reshape(swapped, tf.concat([[-1], tf.shape(swapped)[2:]], 0))
    joined.set_shape([batch, *x.shape[2:]])
    return joined


def _results_of_one(
    chunk: Chunk, weights: Sequence[Any], state: Sequence[Any], parts: Sequence[Any]
) -> list[Any]:
    """Trace a pass, and return placeholders of its outputs and of what layers add.

    Raises:
        ValueError: It has state that TensorFlow keeps and Keras does not know.
    """

    @tf.function(autograph=False)
    def one(weights: Any, state: Any, rows: Any) -> Any:
        outputs, _, total = chunk(weights, state, rows)
        return [*outputs, total]

    traced = one.get_concrete_function(
        [tf.TensorSpec(x.shape, x.dtype) for x in weights],
        [tf.TensorSpec(x.shape, x.dtype) for x in state],
        [tf.TensorSpec(x.shape[:1] + x.shape[2:], x.dtype) for x in parts],
    )
    for operation in traced.graph.get_operations():
        is_harmless = operation.type.startswith(_HARMLESS) or "Assert" in operation.name
        if operation.op_def.is_stateful and not is_harmless:
            raise ValueError(
                "The layers of `embedder` must keep their state in variables of Keras, "
                "and draw random numbers by a keras.random.SeedGenerator, so that a "
                "second pass can be given the state of the first. Received: the "
                f"operation {shown(operation.name)} of type {operation.type}."
            )
    return list(traced.structured_outputs)

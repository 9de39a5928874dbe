"""Run a model chunk by chunk on JAX, and differentiate it so."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfdml.models._chunk import Chunk

_MOST_WRITTEN_OUT = 16  # chunks


def run_chunks(
    chunk: Chunk,
    weights: Sequence[Any],
    state: Sequence[Any],
    inputs: Sequence[Any],
    size: int,
) -> tuple[list[Any], list[Any], Any]:
    """Run all chunks. See `_chunks_tensorflow.run_chunks`."""
    count = inputs[0].shape[0] // size
    parts = [jnp.reshape(x, (size, count, *x.shape[1:])) for x in inputs]

    def rows(index: Any) -> list[Any]:
        take = jax.lax.dynamic_index_in_dim
        return [take(part, index, axis=1, keepdims=False) for part in parts]

    # What a pass changes is known only after one, of which nothing is computed here.
    jax.eval_shape(lambda w, s: chunk(w, s, rows(0)), list(weights), list(state))

    def run_one(new: list[Any], index: Any) -> tuple[list[Any], tuple[Any, Any]]:
        now = chunk.with_changed(state, new)
        outputs, new, total = chunk(weights, now, rows(index))
        return [jax.lax.stop_gradient(value) for value in new], (outputs, total)

    # On a CPU XLA runs convolutions in a loop many times slower than out of it, but the
    # time to compile grows with each chunk.
    is_loop = jax.default_backend() != "cpu" or count > _MOST_WRITTEN_OUT
    # Its inputs are kept for the gradient, in place of what it computes from them. In a
    # loop XLA merges no two passes; elsewhere it must be kept from doing so.
    run_one = jax.checkpoint(run_one, prevent_cse=not is_loop)
    first = [state[place] for place in chunk.changed]
    new, (outputs, totals) = jax.lax.scan(
        run_one, first, jnp.arange(count), unroll=1 if is_loop else count
    )
    whole = [
        jnp.reshape(jnp.moveaxis(x, 0, 1), (size * count, *x.shape[2:]))
        for x in outputs
    ]
    return whole, new, jnp.mean(totals)

"""Run a model chunk by chunk on torch, and differentiate it so."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tfdml.models._chunk import Chunk


def run_chunks(
    chunk: Chunk,
    weights: Sequence[Any],
    state: Sequence[Any],
    inputs: Sequence[Any],
    size: int,
) -> tuple[list[Any], list[Any], Any]:
    """Run all chunks. See `_chunks_tensorflow.run_chunks`."""
    count = inputs[0].shape[0] // size
    parts = [x.reshape(size, count, *x.shape[1:]) for x in inputs]
    now, outputs, totals = list(state), [], []
    for index in range(count):
        rows = [part[:, index] for part in parts]
        flat, new, total = checkpoint(chunk, weights, now, rows, use_reentrant=False)
        now = chunk.with_changed(now, [value.detach() for value in new])
        outputs.append(flat)
        totals.append(total)
    whole = [
        torch.stack(each, dim=1).reshape(size * count, *each[0].shape[1:])
        for each in zip(*outputs, strict=True)
    ]
    new = [now[place] for place in chunk.changed]
    return whole, new, torch.stack(totals).mean()

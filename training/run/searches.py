"""Write searches among the held-out images of a run, and its projector."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..data.split import Split
from ..measure.measure import EmbeddingMetric
from ..reports.contact_sheet import contact_sheet
from .tensorboard import write_projector


def write_searches(
    run: Path,
    split: Split,
    embeddings: np.ndarray,
    names: Sequence[str],
    *,
    metric: EmbeddingMetric,
    projector: bool,
) -> None:
    """Write `neighbors.json`, and the files of TensorBoard's projector.

    Args:
        run: The run folder.
        split: The images; those that training never saw where there are any.
        embeddings: Float array `[N, dimension]`.
        names: Path of each image.
        metric: How embeddings are compared.
        projector: Whether `run/tensorboard` gets the embeddings, too.
    """
    sheet = contact_sheet(split, embeddings, names, metric=metric)
    (run / "neighbors.json").write_text(json.dumps(sheet, indent=1) + "\n", "utf-8")
    if not projector:
        return
    data = split.data
    classes = (
        [""] * len(data)
        if data.is_continuous
        else [data.class_names[label] for label in data.labels]
    )
    write_projector(
        run / "tensorboard",
        embeddings,
        list(zip(classes, names, strict=True)),
        lambda i: split.images.central(split.positions[[i]])[0],
    )

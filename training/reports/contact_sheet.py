"""Search with some queries, for the report."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from ..data.split import Split
from ..measure.measure import EmbeddingMetric, nearest_images, task_of

_SIDE = 72


def contact_sheet(
    split: Split,
    embeddings: np.ndarray,
    names: Sequence[str],
    *,
    metric: EmbeddingMetric = "cosine",
    queries: int = 8,
    failures: int = 4,
    neighbors: int = 8,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Search with a few images of a split among all its others.

    Of classes with known sequences, among those of other sequences.

    Args:
        split: The images.
        embeddings: Float array `[N, dimension]`.
        names: Path of each image.
        metric: How embeddings are compared.
        queries: How many queries are drawn from all that have something to find.
        failures: How many more are drawn from those whose first neighbor is wrong;
            with continuous labels none.
        neighbors: Neighbors a query.
        seed: Seed of the draw.

    Returns:
        For each query `name`, `class`, `image` (JPEG in base64), `drawn` ("from all"
        or "from failures") and `neighbors`; each of those with `name`, `class`,
        `image`, `similarity` (the cosine; of embeddings of any length, minus the
        squared Euclidean distance) and `positive`, None with continuous labels. An
        empty list where no query has anything to find.
    """
    if not split.can_be_measured:
        return []
    data = split.data
    asked = np.flatnonzero(data.has_positive())
    # Failures are looked for among a thousand queries, not in all of a large set.
    generator = np.random.default_rng(seed)
    asked = generator.permutation(asked)[:1000]
    task = task_of(split, embeddings)
    found, scores = nearest_images(task, asked, neighbors, metric)
    drawn = dict.fromkeys(range(min(queries, len(asked))), "from all")
    if not data.is_continuous:
        wrong = np.flatnonzero(data.labels[found[:, 0]] != data.labels[asked])
        fresh = [int(i) for i in wrong if int(i) not in drawn]
        drawn |= dict.fromkeys(fresh[:failures], "from failures")

    def about(image: int) -> dict[str, Any]:
        label = "" if data.is_continuous else data.class_names[data.labels[image]]
        pixels = split.images.central(split.positions[[image]])[0]
        return {"name": names[image], "class": label, "image": _jpeg(pixels)}

    def is_positive(query: int, image: int) -> bool | None:
        if data.is_continuous:
            return None
        return bool(data.labels[query] == data.labels[image])

    return [
        about(asked[i])
        | {"drawn": how}
        | {
            "neighbors": [
                about(j)
                | {
                    "similarity": round(float(s), 4),
                    "positive": is_positive(asked[i], j),
                }
                for j, s in zip(found[i], scores[i], strict=True)
            ]
        }
        for i, how in drawn.items()
    ]


def _jpeg(pixels: np.ndarray) -> str:
    image = Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return base64.b64encode(file.getvalue()).decode("ascii")

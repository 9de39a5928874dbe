"""Describe a model that is being exported."""

from datetime import UTC, datetime
from typing import Any

from tfdml.export._in_graph import GRAPH_FORMATS
from tfdml.images import View
from tfdml.model_version import FORMAT
from tfdml.model_version import read_description as read_description


def new_description(
    view: View,
    dimension: int,
    signatures: dict[str, str],
    metric: str = "cosine",
    cut_from: int | None = None,
) -> dict[str, Any]:
    """Describe a model that is being exported.

    docs/export.md lists the members. Those that only its folder shows, such as the
    fingerprint, are None.

    Args:
        view: What it sees of an image.
        dimension: Length of its embeddings.
        signatures: For each signature that embeds, the type of `embedding`.
        metric: How its embeddings are compared.
        cut_from: How many numbers the embedder returns, if only the first are kept.

    Returns:
        The members, in JSON types.
    """
    import keras
    import tensorflow as tf

    from tfdml import __version__

    return {
        "format": FORMAT,
        "fingerprint": None,
        "preprocessing": {
            "class": "tfdml.images.View",
            "config": {
                "image_size": view.image_size,
                "resize": view.resize,
                "pad": view.pad,
            },
            "color": "RGB",
            "range": [0, 255],
            "background": "white",
            "filter": "antialiased bilinear",
            "exif_orientation": "ignored",
            "formats": list(GRAPH_FORMATS),
        },
        "embedding": {
            "dimension": dimension,
            "metric": metric,
            "signatures": signatures,
            **({} if cut_from in (None, dimension) else {"cut_from": cut_from}),
        },
        "calibration": None,
        "source": None,
        "versions": {
            "tfdml": __version__,
            "keras": keras.__version__,
            "tensorflow": tf.__version__,
        },
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
    }

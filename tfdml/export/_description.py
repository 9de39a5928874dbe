"""Describe an exported model: in `assets/tfdml.json`, and over the wire.

The file is an asset of the SavedModel, and the signature `describe` answers with its
text, so that clients of any server can ask for it. It is not part of the graph: it may
hold the model's fingerprint, and be completed, without changing the model.
"""

import json
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.files import written
from tfdml.images import GRAPH_FORMATS, View

DESCRIBE = "describe"
"""Name of the signature."""

DESCRIPTION_FILE = "assets/tfdml.json"
"""Where the file lies in the folder of a version."""

_FORMAT = 1


def new_description(
    view: View, dimension: int, signatures: dict[str, str]
) -> dict[str, Any]:
    """Describe a model that is being exported.

    docs/export.md lists the members. Those that only its folder shows, such as the
    fingerprint, are None.

    Args:
        view: What it sees of an image.
        dimension: Length of its embeddings.
        signatures: For each signature that embeds, the type of `embedding`.

    Returns:
        The members, in JSON types.
    """
    import keras
    import tensorflow as tf

    from tfdml import __version__

    return {
        "format": _FORMAT,
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
            "metric": "cosine",
            "signatures": signatures,
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


def parse_description(text: str | bytes) -> dict[str, Any]:
    """Read the text of a description, which may come from a file or a server.

    Args:
        text: JSON, in UTF-8 if bytes.

    Returns:
        The members.

    Raises:
        ValueError: It is not a description, or of a newer format.
    """
    try:
        members = json.loads(text)
    except ValueError as error:  # bad JSON, or bytes that are not text
        raise ValueError(f"A model's description must be JSON: {error}.") from error
    if not isinstance(members, dict) or members.get("format") != _FORMAT:
        found = members.get("format") if isinstance(members, dict) else members
        raise ValueError(
            f"A model's description must have the format {_FORMAT}. Received: "
            f"{str(found)[:100]!r}. Read it with the tfdml that exported the model."
        )
    return members


def read_description(folder: str | PathLike[str]) -> dict[str, Any] | None:
    """Read the description of an exported model.

    Args:
        folder: Folder of one version.

    Returns:
        The members; None where the model came without.

    Raises:
        ValueError: The file is damaged; the message names it.
    """
    file = Path(folder) / DESCRIPTION_FILE
    if not file.is_file():
        return None
    try:
        return parse_description(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error


def update_description(folder: str | PathLike[str], **members: Any) -> None:
    """Replace members of a model's description, all of them or none.

    Args:
        folder: Folder of one version, which has a description.
        **members: New values in JSON types.

    Raises:
        FileNotFoundError: The model came without a description.
        ValueError: It is damaged.
    """
    file = Path(folder) / DESCRIPTION_FILE
    description = read_description(folder)
    if description is None:
        raise FileNotFoundError(f"There is no description of a model at {file}.")
    with written(file) as new:
        new.write_text(description_text({**description, **members}), encoding="utf-8")


def description_text(members: dict[str, Any]) -> str:
    """Return the text of a description as its file holds it."""
    return json.dumps(members, indent=2, ensure_ascii=False) + "\n"

"""Make the folder of an exported version, and read and change what describes it.

The description is an asset of the SavedModel, and the signature `describe` answers with
its text, so that clients of any server can ask for it. It is not part of the graph: it
may hold the model's fingerprint, and be completed, without changing the model.
"""

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.files import short_names, whole_folder, written
from tfdml.messages import cut, shortened, shown

DESCRIBE = "describe"
"""Name of the signature."""

TEXT_SIGNATURE = "text"
"""Name of the signature that embeds texts beside the images."""

TEXT_INPUT = "texts"
"""Name of its input, DT_STRING `[batch]`, in UTF-8."""

DESCRIPTION_FILE = "assets/tfdml.json"
"""Where the file lies in the folder of a version."""

IMAGES_AT_ONCE = 2
"""How many images an exported model decodes at one time.

Each takes 16 bytes per pixel and more. TensorFlow's default is ten at a time.
"""

FORMAT = 1
"""Version of the members of a description."""


def write_whole(folder: str | PathLike[str], write: Callable[[Path], None]) -> None:
    """Make the folder of a version appear with all that is in it, or not at all.

    Servers watch for new folders: one that is found must be complete.

    Args:
        folder: Must not exist.
        write: Writes into the folder that it is given, which does not exist yet.

    Raises:
        FileExistsError: `folder` exists.
    """
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(
            f"{cut(folder)} exists already; a version is never overwritten. Export to "
            "the next number."
        )
    with whole_folder(folder) as unfinished:
        write(unfinished)


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
        raise ValueError(
            f"A model's description must be JSON: {shortened(error)}."
        ) from error
    if not isinstance(members, dict) or members.get("format") != FORMAT:
        found = members.get("format") if isinstance(members, dict) else members
        raise ValueError(
            f"A model's description must have the format {FORMAT}. Received: "
            f"{shown(found)}. Read it with the tfdml that exported the "
            "model."
        )
    return members


@short_names()
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
        raise ValueError(f"{cut(file)} is damaged: {error}") from error


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
        raise FileNotFoundError(f"There is no description of a model at {cut(file)}.")
    with written(file) as new:
        new.write_text(description_text({**description, **members}), encoding="utf-8")


def description_text(members: dict[str, Any]) -> str:
    """Return the text of a description as its file holds it."""
    return json.dumps(members, indent=2, ensure_ascii=False) + "\n"


def describing(asset: Any) -> Any:
    """Make the function behind the signature `describe`.

    The text is read at each call, not built into the graph: the fingerprint that it
    holds is that of the graph.

    Args:
        asset: The `tf.saved_model.Asset` of the description. The module that is saved
            must hold it.

    Returns:
        A `tf.function`.
    """
    import tensorflow as tf

    def describe(request: tf.Tensor) -> dict[str, tf.Tensor]:
        text = tf.io.read_file(asset.asset_path)
        # One row for each of the request's: servers split batches along the rows.
        return {"description": tf.fill(tf.shape(request), text)}

    rows = tf.TensorSpec([None], tf.string, name="request")
    return tf.function(describe, input_signature=[rows], autograph=False)

"""What a run folder tells about the embedder in it, beside its weights."""

import json
from pathlib import Path

from tfdml.images import View


def view_of_run(folder: Path, image_size: int | None) -> View | None:
    """Read what the embedder of a run saw of its training pictures.

    Args:
        folder: The run folder; `recipe.json` in it tells, in its table `pictures`.
        image_size: Size of the embedder's input.

    Returns:
        The view. None where nothing tells: runs without that table squashed.

    Raises:
        ValueError: `recipe.json` is damaged, or there can be no such view.
    """
    file = folder / "recipe.json"
    if not file.is_file() or image_size is None:
        return None
    try:
        pictures = json.loads(file.read_text("utf-8")).get("pictures")
        if pictures is None:
            return None
        return View(image_size, pictures["resize"], pictures["pad"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{file} does not tell what the embedder sees of a picture "
            f"({type(error).__name__}: {error})."
        ) from error

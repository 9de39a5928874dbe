"""Read the view of a run: what its embedder saw of an image."""

import json
from pathlib import Path

from tfdml.images import View
from tfdml.messages import shortened


def view_of_run(folder: Path, image_size: int | None) -> View | None:
    """Read what the embedder of a run saw of its training images.

    Args:
        folder: The run folder. The table `images` of its `recipe.json` says it; older
            runs call the table `pictures`.
        image_size: Size of the embedder's input.

    Returns:
        The view. None where nothing says it: runs without that table squashed.

    Raises:
        ValueError: `recipe.json` is damaged, or there can be no such view.
    """
    file = folder / "recipe.json"
    if not file.is_file() or image_size is None:
        return None
    try:
        recipe = json.loads(file.read_text("utf-8"))
        shown = recipe.get("images", recipe.get("pictures"))
        if shown is None:
            return None
        return View(image_size, shown["resize"], shown["pad"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{file} does not say what the embedder sees of an image "
            f"({type(error).__name__}: {shortened(error)})."
        ) from error

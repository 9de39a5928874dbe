"""Write files for TensorBoard: the curves of a run, and embeddings to project."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from PIL import Image

from ..recipe.recipe import RecipeError
from .callbacks import tagged
from .progress import Progress

_LARGEST_SPRITE = 8192  # pixels a side: what the projector can load
_TILE = 64


class EventFiles(keras.callbacks.Callback):
    """Write what each epoch logged to an event file, which TensorBoard shows as curves.

    Each value belongs to the last step of its epoch. Training values have the tags
    "train/...", validation values "validation/...". When a run goes on, the file is
    rewritten from its history: no epoch is missing and none is there twice. The
    package tensorboardX writes it; neither TensorBoard nor TensorFlow is needed.

    Args:
        folder: Where the event file goes.
        steps: Number of steps in an epoch.
        progress: Has the history of the run. It must come before this callback.

    Raises:
        RecipeError: `tensorboardX` is not installed.
    """

    def __init__(self, folder: Path, steps: int, progress: Progress) -> None:
        super().__init__()
        try:
            import tensorboardX  # noqa: F401
        except ImportError as error:
            raise RecipeError(
                "[fit]: `tensorboard = true` needs the package tensorboardX: pip "
                "install tensorboardX."
            ) from error
        self._folder = folder
        self._steps = steps
        self._progress = progress
        self._writer: Any = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begin a file with the epochs that are done."""
        from tensorboardX import SummaryWriter

        for old in self._folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(self._folder), flush_secs=1)
        for epoch in range(self._progress.epochs_done):
            history = self._progress.history
            self._write_epoch(epoch, {k: v[epoch] for k, v in history.items()})

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the values of an epoch."""
        self._write_epoch(epoch, logs or {})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Close the file."""
        self._writer.close()

    def _write_epoch(self, epoch: int, values: dict[str, float]) -> None:
        # Where time ends a run, its last epoch may be shorter.
        step = min((epoch + 1) * self._steps, self._progress.steps_done)
        for tag, value in tagged(values).items():
            self._writer.add_scalar(tag, value, step)


def write_projector(
    folder: Path,
    embeddings: np.ndarray,
    rows: Sequence[tuple[str, str]],
    image: Callable[[int], np.ndarray],
    *,
    at_most: int = 10_000,
) -> None:
    """Write embeddings for TensorBoard's projector, with an image for each.

    Args:
        folder: Where the files go, beside the event file of the run.
        embeddings: Float array `[N, dimension]`.
        rows: Class and path of each.
        image: Returns image i, uint8 `[height, width, 3]`.
        at_most: Of more embeddings so many are taken, evenly spread: the projector
            draws them in the browser.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = min(len(embeddings), at_most)
    chosen = np.linspace(0, len(embeddings) - 1, count).astype("int64")
    with (folder / "tensors.tsv").open("w", encoding="utf-8") as file:
        np.savetxt(file, embeddings[chosen], "%.6g", delimiter="\t")
    lines = ["class\tpath", *("\t".join(map(_cell, rows[i])) for i in chosen)]
    (folder / "metadata.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    columns = math.ceil(math.sqrt(count))
    side = min(_TILE, _LARGEST_SPRITE // columns)
    sprite = Image.new("RGB", (columns * side, columns * side), "white")
    for place, i in enumerate(chosen):
        tile = Image.fromarray(image(int(i))).resize((side, side))
        row, column = divmod(place, columns)
        sprite.paste(tile, (column * side, row * side))
    sprite.save(folder / "sprite.png")
    (folder / "projector_config.pbtxt").write_text(
        "embeddings {\n"
        '  tensor_name: "embeddings"\n'
        '  tensor_path: "tensors.tsv"\n'
        '  metadata_path: "metadata.tsv"\n'
        "  sprite {\n"
        '    image_path: "sprite.png"\n'
        f"    single_image_dim: {side}\n"
        f"    single_image_dim: {side}\n"
        "  }\n"
        "}\n",
        "utf-8",
    )


def _cell(text: str) -> str:
    return " ".join(text.split())  # a tab or a line break would end the cell

"""Export a run as a version to be served."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.export import OutputType
from tfdml.files import sha256_of
from tfdml.images import View, list_images
from tfdml.messages import shown
from tfdml.metrics import Calibration
from tfdml.model_version import update_description
from tfdml.run_calibration import read_calibration
from tfdml.run_view import view_of_run

from ..endpoint.models.calibration import save_calibration
from ..endpoint.models.saved_model import is_version, model_fingerprint
from ..endpoint.models.servable import Servable
from ..endpoint.warm_up import warm_up, write_warm_up_requests
from .warm_up_images import (
    encoded_images,
    synthetic_image,
    training_images,
    warm_up_requests,
)

MOST_IMAGES = 64
"""Most images in the warm-up requests of a version."""


NO_RECIPE = (
    "there is no recipe.json beside the embedder to say what it sees of an image; "
    "images are squashed. Export the run folder if it was trained otherwise."
)


NO_THRESHOLD = (
    "the threshold of the run is one of all its dimensions; the model goes without, "
    "and a search with it has no threshold for a match."
)


@dataclass(frozen=True)
class ExportReport:
    """The result of an export; as text, a summary.

    Args:
        source: The `.keras` file.
        destination: Folder of the version.
        calibration: The threshold that went along.
        warm_up: Number of warm-up requests.
        warnings: What a person should know, a sentence or two each.
    """

    source: Path
    destination: Path
    calibration: Calibration | None
    warm_up: int
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        """Return the report in a few lines, without the warnings."""
        lines = [
            f"Exported {self.source} to {self.destination}, with {self.warm_up} "
            "warm-up requests."
        ]
        if self.calibration is not None:
            lines.append(str(self.calibration))
        return "\n".join(lines)


def export_run(
    run: str | PathLike[str],
    destination: str | PathLike[str],
    *,
    output_dtype: OutputType = "float32",
    dimensions: int | None = None,
    text_tower: str | PathLike[str] | None = None,
    warm_up_images: str | PathLike[str] | None = None,
    warm_up_count: int = 8,
) -> ExportReport:
    """Export the embedder of a run, with all that a server and its clients need.

    The version appears when it is complete: SavedModel, description, calibration, and
    warm-up requests that it has answered. The warm-up requests hold images as they
    are: the exported folder must not go where those may not.

    Args:
        run: Run folder, or a `.keras` file.
        destination: MODEL_BASE_PATH/VERSION, which must not exist.
        output_dtype: `"float16"` or `"int8"` adds a signature with such embeddings.
        dimensions: See `tfdml.export.export_embedder`. The calibration of the run is
            one of all dimensions: a model of fewer goes without.
        text_tower: A `.keras` file, see `text` of `tfdml.export.export_embedder`.
        warm_up_images: Folder of images, or one, for the warm-up requests. By
            default those that the run trained on; where they are gone, noise.
        warm_up_count: How many images, 0 (no warm-up requests) to 64. At most 32 of
            them are in one request.

    Returns:
        The report.

    Raises:
        FileExistsError: The version exists.
        UnreadableImageError: An image in `warm_up_images` is broken.
        ValueError: There is no embedder, its calibration is that of another one, or an
            argument or file is not as it should be.
    """
    destination = Path(destination)
    check_destination(destination)
    _check_count(warm_up_images, warm_up_count)
    source = embedder_file(run)
    files = None if warm_up_images is None else _files_of(Path(warm_up_images))

    from tfdml.export import export_embedder
    from tfdml.models import load_embedder, load_text_tower

    calibration = read_calibration(source)
    embedder = load_embedder(source)
    text = None if text_tower is None else load_text_tower(text_tower)
    view = view_of_run(source.parent, embedder.input_shape[1])
    warnings: list[str] = []
    if not (source.parent / "recipe.json").is_file():
        warnings.append(NO_RECIPE)
    if calibration is not None and is_cut(embedder, dimensions):
        calibration = None
        warnings.append(NO_THRESHOLD)
    written = 0
    # As the server will call it; a name with a colon cannot be served.
    name = destination.resolve().parent.name.replace(":", "_") or "model"

    def complete(folder: Path) -> None:
        nonlocal written
        update_description(
            folder, fingerprint=model_fingerprint(folder), source=source_of(source)
        )
        if calibration is not None:
            save_calibration(folder, calibration)
        # Also without warm-up: a version that cannot be loaded does not appear.
        model = Servable(name, int(destination.name), folder)
        if warm_up_count:
            shown = View(embedder.input_shape[1]) if view is None else view
            images = _images_of(files, source.parent, warm_up_count, model, shown)
            if not images:
                warnings.append(
                    "the images that the run trained on are not to be found; the "
                    "warm-up requests hold noise. Name real ones with `--warm-up`."
                )
                images = [synthetic_image(shown)]
            written = warm_up_with(model, folder, images, shown, warm_up_count)

    export_embedder(
        embedder,
        destination,
        view,
        output_dtype=output_dtype,
        dimensions=dimensions,
        text=text,
        complete=complete,
    )
    return ExportReport(source, destination, calibration, written, tuple(warnings))


def is_cut(embedder: Any, dimensions: int | None) -> bool:
    """Return whether `dimensions` keep only the first numbers of an embedding."""
    return dimensions is not None and dimensions != embedder.output_shape[-1]


def embedder_file(run: str | PathLike[str]) -> Path:
    """Return the file of the embedder of a run.

    Args:
        run: Run folder, or the file itself.

    Raises:
        ValueError: There is none.
    """
    source = Path(run)
    if source.is_dir():
        source = source / "embedder.keras"
    if not source.is_file():
        raise ValueError(f"There is no trained embedder at {source}.")
    return source


def check_destination(destination: Path) -> None:
    """Refuse a folder that no server would take for a version.

    Raises:
        ValueError: Its name is not a version number from 1 to 2^63 - 1.
    """
    name = destination.name
    if not (is_version(name) and int(name) >= 1):
        raise ValueError(
            "The destination must end with a version number from 1 to 2^63 - 1, such "
            f"as models/emoji/1. Received: {destination}."
        )


def warm_up_with(
    servable: Servable,
    folder: Path,
    images: list[bytes],
    view: View,
    batch_size: int,
) -> int:
    """Write warm-up requests for a version that is being made, and try them.

    Args:
        servable: The model in `folder`.
        folder: Folder of the version.
        images: Encoded images.
        view: The view of the model.
        batch_size: Rows of the large requests, which have 32 at most.

    Returns:
        The number of requests.

    Raises:
        ValueError: The model does not answer one.
    """
    requests = warm_up_requests(servable, images, view, batch_size)
    write_warm_up_requests(folder, requests)
    return warm_up(servable, folder)


def _check_count(images: str | PathLike[str] | None, count: int) -> None:
    if not 0 <= count <= MOST_IMAGES:
        raise ValueError(
            f"`warm_up_count` must be from 0 to {MOST_IMAGES}. "
            f"Received: warm_up_count={count}."
        )
    if images is not None and not count:
        raise ValueError(
            "`warm_up_count` must be at least 1 with `warm_up_images`. "
            f"Received: warm_up_images={shown(str(images))}, warm_up_count=0."
        )


def _images_of(
    files: list[Path] | None, run: Path, count: int, model: Servable, view: View
) -> list[bytes]:
    if files is not None:
        return encoded_images(files, count, model, view)
    trained = training_images(run)
    return encoded_images(trained, count, model, view, skip_unreadable=True)


def _files_of(images: Path) -> list[Path]:
    if images.is_file():
        return [images]
    return [images / path for path in list_images(images)]


def source_of(file: Path) -> dict[str, Any]:
    """Describe which weights these were, without the path on this machine."""
    run = file.resolve().parent.name
    return {"run": run, "file": file.name, "sha256": sha256_of(file)}

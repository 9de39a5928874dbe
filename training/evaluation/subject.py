"""Open what is evaluated: images, and the model or file that embeds them."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np

from tfdml.images import View
from tfdml.models import load_embedder
from training.data.data_set import SPLITS
from training.data.images import Images
from training.data.source import read_source
from training.data.split import Split
from training.json_files import read_json
from training.measure.embed import embed
from training.recipe.recipe import Data, Recipe
from training.run.build_batches import label_distance_of
from training.run.finished_run import FinishedRun, read_finished_run


@dataclass(frozen=True)
class Subject:
    """Images with what is known of them, and their embeddings on demand.

    Args:
        name: The name of what is evaluated, for titles.
        images: Where the images come from.
        split_name: `"train"`, `"validation"`, `"test"` or `"all"`.
        split: The images.
        names: The path of each.
        embeddings: Embeds them, float32 `[N, dimension]`.
        run: The run that is evaluated, if it is one.
        is_test_of_run: Whether these are the test images of the run.
        classes_trained_on: How many of the classes, by name, the run trained on.
    """

    name: str
    images: str
    split_name: str
    split: Split
    names: list[str]
    embeddings: Callable[[], np.ndarray]
    run: FinishedRun | None = None
    is_test_of_run: bool = False
    classes_trained_on: int = 0


def open_subject(
    model: str | PathLike[str],
    images: str | PathLike[str] | None = None,
    split: str | None = None,
) -> Subject:
    """Open what `python -m training evaluate MODEL [IMAGES]` names.

    Args:
        model: A run folder; an embedder, `.keras`; the folder of an exported
            SavedModel, or of its versions, of which the highest number counts; or
            embeddings, `.npy`, one row per image in the order of the images. A `.keras`
            file does not know its view: images are squashed to its size.
        images: A folder `class/image` or a manifest. Optional for a run, whose images
            are known.
        split: `"train"`, `"validation"`, `"test"` or `"all"`. By default the test
            images of a run or of a manifest that has some, and otherwise all. A run
            splits another folder by its own rule if `split` is named, as when its
            images have moved.

    Returns:
        The subject; its files exist, none is read yet.

    Raises:
        ValueError: There is no such model, or the images cannot be used.
        FileNotFoundError: A file or folder does not exist.
    """
    path = Path(model)
    if not path.exists():
        raise FileNotFoundError(f"There is no {str(path)!r} to evaluate.")
    if (path / "recipe.json").is_file():
        return _of_run(read_finished_run(path), images, split)
    if images is None:
        raise ValueError(
            f"{str(path)!r} is not a run folder, which would know its images: name a "
            "folder or a manifest to evaluate on."
        )
    if path.suffix == ".npy":
        chosen, split_name, names = _read_split(images, split, View(8))
        rows = partial(_read_embeddings, path, len(names))
        return _checked(path.name, str(images), split_name, chosen, names, rows)
    if path.suffix == ".keras":
        embedder = load_embedder(path)
        view = View(embedder.input_shape[1])
        chosen, split_name, names = _read_split(images, split, view)
        return _checked(
            path.name,
            str(images),
            split_name,
            chosen,
            names,
            lambda: embed(embedder, chosen),
        )
    return _exported(path, images, split)


def _of_run(
    run: FinishedRun, images: str | PathLike[str] | None, split: str | None
) -> Subject:
    own = Path(run.recipe.data.images)
    is_own = images is None or Path(images).resolve() == own.resolve()
    name, where = run.folder.resolve().name, str(images or own)
    if is_own and split == "all":
        raise ValueError(
            '`split` must not be "all" for the images of a run, which trained on most '
            'of them. Name "train", "validation" or "test".'
        )
    if is_own or split not in (None, "all"):
        split_name = split or "test"
        chosen, names = run.split(split_name, images)
    else:
        recipe = run.recipe
        chosen, split_name, names = _read_split(where, split, recipe.view, recipe)
    subject = _checked(
        name, where, split_name, chosen, names, lambda: embed(run.embedder(), chosen)
    )
    trained = set(read_json(run.folder / "splits.json")["train"])
    return dataclasses.replace(
        subject,
        run=run,
        is_test_of_run=is_own and split_name == "test",
        classes_trained_on=len(trained.intersection(chosen.data.class_names)),
    )


def _exported(path: Path, images: str | PathLike[str], split: str | None) -> Subject:
    versions = [p for p in path.glob("*/saved_model.pb") if p.parent.name.isdigit()]
    folder = path
    if not (path / "saved_model.pb").is_file():
        if not versions:
            raise ValueError(
                f"{str(path)!r} must be a run folder, a `.keras` or `.npy` file, or an "
                "exported SavedModel (no saved_model.pb)."
            )
        folder = max(versions, key=lambda p: int(p.parent.name)).parent
    # Here, because this alone needs TensorFlow.
    from tfdml.export import SavedEmbedder

    model = SavedEmbedder(folder)
    chosen, split_name, names = _read_split(images, split, model.view)

    def embeddings() -> np.ndarray:
        blocks = np.array_split(chosen.positions, -(-len(chosen.positions) // 64))
        return np.concatenate(
            [model.embed(chosen.images.central(block)) for block in blocks]
        )

    return _checked(
        path.resolve().name, str(images), split_name, chosen, names, embeddings
    )


def _read_split(
    images: str | PathLike[str],
    split: str | None,
    view: View,
    recipe: Recipe | None = None,
) -> tuple[Split, str, list[str]]:
    """Read images that no recipe splits."""
    if not Path(images).exists():
        raise FileNotFoundError(f"There are no images at {str(images)!r}.")
    source = read_source(Data(str(images), test_fraction=0.0, validation_fraction=0.0))
    of = source.data.splits
    if split is None:
        split = "test" if (of == "test").any() else "all"
    known = [name for name in (*SPLITS, "all") if name == "all" or (of == name).any()]
    if split not in known:
        raise ValueError(
            f"{str(images)!r} has no split {split!r}. There are: {', '.join(known)}."
        )
    places = np.arange(len(of)) if split == "all" else np.flatnonzero(of == split)
    data = source.data.select(places)
    distance = None if recipe is None else label_distance_of(recipe)
    chosen = Split(data, Images(data, view), np.arange(len(data)), distance)
    return chosen, split, source.names(data)


def _checked(
    name: str,
    images: str,
    split_name: str,
    split: Split,
    names: list[str],
    embeddings: Callable[[], np.ndarray],
) -> Subject:
    if not split.can_be_measured:
        queries, searched = split.data.is_query().sum(), split.data.is_gallery().sum()
        raise ValueError(
            f"The {split_name} split of {images!r} must hold a query with something "
            f"to find. Received: {queries} queries and {searched} images to search, of "
            f"{len(split.data.class_names)} classes, none of which has both (an image "
            "finds neither itself nor its own sequence)."
        )
    return Subject(name, images, split_name, split, names, embeddings)


def _read_embeddings(path: Path, count: int) -> np.ndarray:
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(
            f"{str(path)!r} must hold an array. Received: {error}"
        ) from error
    if rows.shape[:1] != (count,):
        raise ValueError(
            f"{str(path)!r} must have one row for each of the {count} images. "
            f"Received: shape={rows.shape}."
        )
    return rows

"""Open what is evaluated: images, and the model or file that embeds them."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np

from tfdml.images import View
from tfdml.messages import cut, shortened, shown

from ..data.data_set import SPLITS
from ..data.images import Images, find_readable
from ..data.source import read_source
from ..data.split import Split
from ..json_files import read_json
from ..measure.measure import EmbeddingMetric
from ..recipe.recipe import Data, Recipe
from ..run.build_batches import label_distance_of
from ..run.finished_run import (
    FinishedRun,
    is_finished_run,
    read_finished_run,
)
from ..run.opened_model import OpenedModel, model_of_run, open_model


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
        metric: How they are compared.
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
    metric: EmbeddingMetric = "cosine"
    run: FinishedRun | None = None
    is_test_of_run: bool = False
    classes_trained_on: int = 0


def open_subject(
    model: str | PathLike[str],
    images: str | PathLike[str] | None = None,
    split: str | None = None,
    run: str | PathLike[str] | None = None,
    root: str | PathLike[str] | None = None,
    *,
    metric: EmbeddingMetric | None = None,
    skip_unreadable: bool = False,
) -> Subject:
    """Open what `tfdml evaluate MODEL [IMAGES]` names.

    Args:
        model: A run folder; an embedder, `.keras`; the folder of an exported
            SavedModel, or of its versions, of which the highest number counts; or
            embeddings, `.npy`, one row per image in the order of the images. A `.keras`
            file in a run folder sees images as the run did; elsewhere it does not know
            its view, and images are squashed to its size.
        images: A folder `class/image` or a manifest. Optional where a run is known,
            whose images are known.
        split: `"train"`, `"validation"`, `"test"` or `"all"`. By default the test
            images of a run or of a manifest that has some, and otherwise all. A run
            splits another folder by its own rule if `split` is named, as when its
            images have moved.
        run: The run that `model` comes from, whose images and splits are meant. Known
            for a run folder and for a file in one.
        root: Folder that the paths in a manifest are below, by default that of the
            manifest; to be left out with a run, whose recipe says it.
        metric: How embeddings are compared. By default as the model says, and of `.npy`
            as `run` does: by squared Euclidean distance if it was built with
            `unit_length=False`, else by cosine.
        skip_unreadable: Whether files that cannot be read are left out, and named.

    Returns:
        The subject; its files exist, none is read yet unless broken ones are skipped.

    Raises:
        ValueError: There is no such model, or the images cannot be used.
        FileNotFoundError: A file or folder does not exist.
    """
    opened = _opened(
        Path(model), images, split, run, root, skip_unreadable=skip_unreadable
    )
    return opened if metric is None else dataclasses.replace(opened, metric=metric)


def _opened(
    path: Path,
    images: str | PathLike[str] | None,
    split: str | None,
    run: str | PathLike[str] | None,
    root: str | PathLike[str] | None,
    *,
    skip_unreadable: bool,
) -> Subject:
    if not path.exists():
        raise FileNotFoundError(f"There is no {shown(str(path))} to evaluate.")
    own = path.parent if path.suffix == ".keras" else None
    is_run = (path / "recipe.json").is_file() or (own and is_finished_run(own))
    if root is not None and (is_run or run is not None):
        raise ValueError(
            "`root` must be left out with a run, whose recipe says it. Received: "
            f"{shown(str(root))}."
        )
    if (path / "recipe.json").is_file():
        if run is not None:
            raise ValueError(
                f"`run` must be left out where the model is a run. Received: {run}."
            )
        finished = read_finished_run(path)
        model_ = model_of_run(finished)
        return _of_run(finished, model_, images, split, skip_unreadable, is_model=True)
    opened = open_beside(path)
    if run is not None:
        of = read_finished_run(run)
        if path.suffix == ".npy":  # which says nothing itself
            opened = dataclasses.replace(opened, metric=of.recipe.embedder.metric)
        return _of_run(of, opened, images, split, skip_unreadable)
    if own is not None and is_finished_run(own):
        return _of_run(read_finished_run(own), opened, images, split, skip_unreadable)
    if images is None:
        raise ValueError(
            f"{shown(str(path))} is not a run folder, so its images are not known. "
            "Name a folder or a manifest to evaluate on, or the run with `--run`."
        )
    chosen, split_name, names = _read_split(
        images, split, opened.view, skip_unreadable, root=root
    )
    return _checked(opened, str(images), split_name, chosen, names)


def open_beside(path: Path) -> OpenedModel:
    """Open a model, or embeddings of the images that are evaluated."""
    if path.suffix == ".npy":
        return OpenedModel(path.name, View(8), partial(_read_embeddings, path))
    return open_model(path)


def _of_run(
    run: FinishedRun,
    model: OpenedModel,
    images: str | PathLike[str] | None,
    split: str | None,
    skip_unreadable: bool,
    *,
    is_model: bool = False,
) -> Subject:
    """Open a run, or another model, on images that the run has split or would split."""
    own = Path(run.recipe.data.images)
    is_own = images is None or Path(images).resolve() == own.resolve()
    where = str(images or own)
    if is_own and split == "all":
        raise ValueError(
            '`split` must not be "all" for the images of a run, which trained on most '
            'of them. Name "train", "validation" or "test".'
        )
    if is_own or split not in (None, "all"):
        split_name = split or "test"
        view = None if is_model else model.view
        chosen, names = run.split(
            split_name, images, view, skip_unreadable=skip_unreadable
        )
    else:
        chosen, split_name, names = _read_split(
            where, split, model.view, skip_unreadable, run.recipe
        )
    subject = _checked(model, where, split_name, chosen, names)
    trained = set(read_json(run.folder / "splits.json")["train"])
    return dataclasses.replace(
        subject,
        run=run if is_model else None,
        is_test_of_run=is_model and is_own and split_name == "test",
        classes_trained_on=len(trained.intersection(chosen.data.class_names)),
    )


def _read_split(
    images: str | PathLike[str],
    split: str | None,
    view: View,
    skip_unreadable: bool,
    recipe: Recipe | None = None,
    root: str | PathLike[str] | None = None,
) -> tuple[Split, str, list[str]]:
    """Read images that no recipe splits."""
    if not Path(images).exists():
        raise FileNotFoundError(f"There are no images at {shown(str(images))}.")
    settings = Data(
        str(images),
        test_fraction=0.0,
        validation_fraction=0.0,
        root="" if root is None else str(root),
        skip_unreadable=skip_unreadable,
    )
    source = read_source(settings)
    for note in source.notes:
        print(note)
    of = source.data.splits
    if split is None:
        split = "test" if (of == "test").any() else "all"
    known = [name for name in (*SPLITS, "all") if name == "all" or (of == name).any()]
    if split not in known:
        raise ValueError(
            f"{shown(str(images))} has no split {shown(split)}. There are: "
            f"{cut(', '.join(known))}."
        )
    places = np.arange(len(of)) if split == "all" else np.flatnonzero(of == split)
    data = source.data.select(places)
    distance = None if recipe is None else label_distance_of(recipe)
    viewed, positions = Images(data, view), np.arange(len(data))
    if skip_unreadable:
        positions, _ = find_readable(viewed, skip_unreadable=True)
    selected = data.select(positions)
    chosen = Split(selected, viewed, positions, distance)
    return chosen, split, source.names(selected)


def _checked(
    model: OpenedModel, images: str, split_name: str, split: Split, names: list[str]
) -> Subject:
    if not split.can_be_measured:
        queries, searched = split.data.is_query().sum(), split.data.is_gallery().sum()
        raise ValueError(
            f"The {split_name} split of {shown(images)} must hold a query with "
            f"something to find. Received: {queries} queries and {searched} images to "
            f"search, of {len(split.data.class_names)} classes, none of which has both "
            "(an image finds neither itself nor its own sequence)."
        )
    rows = partial(model.embed, split)
    return Subject(model.name, images, split_name, split, names, rows, model.metric)


def _read_embeddings(path: Path, split: Split) -> np.ndarray:
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(
            f"{shown(str(path))} must hold an array. Received: {shortened(error)}."
        ) from error
    count = len(split.data)
    if rows.shape[:1] != (count,):
        raise ValueError(
            f"{shown(str(path))} must have one row for each of the {count} images. "
            f"Received: shape={rows.shape}."
        )
    return rows

"""Find the images of a recipe, in a folder of classes or by a manifest."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfdml.command_parser import command
from tfdml.images import find_images
from tfdml.messages import cut, shown

from ..recipe.recipe import Data
from .data_set import DataSet
from .folder import hash_order, read_folder, split_classes
from .manifest import read_manifest, states_splits


@dataclass(frozen=True)
class Source:
    """A data set, and where its files are.

    Args:
        data: Images with labels and splits.
        root: The folder that all images are below.
        notes: What was left out of a folder, or is odd in it, a line for each kind.
    """

    data: DataSet
    root: Path
    notes: tuple[str, ...] = ()

    def names(self, data: DataSet) -> list[str]:
        """Return the path of each image below `root`, with `/`."""
        return [path.relative_to(self.root).as_posix() for path in data.images]


def read_source(settings: Data) -> Source:
    """Find the images of a recipe and their labels; none is opened.

    A folder holds `class/image`, and its classes are split as the recipe says. A
    manifest (a file whose name ends in `.csv`) says which split each image is in;
    without a column `split` its classes are split as those of a folder. Where it has no
    validation images, `validation_fraction` of its training classes
    become it, chosen as from a folder; with continuous labels, of its training
    sequences, or of the images where no sequences are known.

    Args:
        settings: The table `[data]` of a recipe.

    Returns:
        The data set and its root.

    Raises:
        ValueError: The folder or the manifest cannot be used; the message says why.
        OSError: It cannot be read.
    """
    path = Path(settings.images)
    if path.suffix.lower() != ".csv":
        if not path.is_dir():
            raise NotADirectoryError(
                "`images` must be a folder of classes or a manifest, a file that ends "
                f"in .csv. Received: {shown(str(path))}, which is neither."
            )
        found = find_images(path, skip_unreadable=settings.skip_unreadable)
        data = read_folder(
            path,
            found=found,
            test_fraction=settings.test_fraction,
            validation_fraction=settings.validation_fraction,
            seed=settings.split_seed,
        )
        notes = [*found.notes(), *([found.nested_note()] if found.nested else [])]
        return Source(data, path, tuple(notes))
    root = Path(settings.root) if settings.root else path.parent
    data = read_manifest(path, root=root)
    if data.is_continuous and data.roles is not None and (data.roles != "").any():
        raise ValueError(
            f"{path}: `role` goes with classes; with continuous labels every image is "
            "query and gallery. Leave the column out."
        )
    source = Source(data, root, _box_notes(data, settings))
    if data.sequences is not None:
        # An image of no sequence is one by itself.
        own = np.where(data.sequences == "", source.names(data), data.sequences)
        data = dataclasses.replace(data, sequences=own)
        source = dataclasses.replace(source, data=data)
    if not states_splits(path):
        splits = _split(source, settings)
        data = dataclasses.replace(data, splits=splits)
        return dataclasses.replace(source, data=data)
    is_training = data.splits == "train"
    has_validation = (data.splits == "validation").any()
    if settings.validation_fraction and is_training.any() and not has_validation:
        groups = _sequences(source) if data.is_continuous else _classes(data)
        chosen = _chosen(np.unique(groups[is_training]).tolist(), data, settings)
        moved = is_training & np.isin(groups, chosen)
        splits = np.where(moved, "validation", data.splits)
        source = dataclasses.replace(
            source, data=dataclasses.replace(data, splits=splits)
        )
    return source


def _box_notes(data: DataSet, settings: Data) -> tuple[str, ...]:
    """Note that images are cut to boxes, or refuse it."""
    count = 0 if data.boxes is None else int((data.boxes[:, 2] > 0).sum())
    if not count:
        return ()
    name = cut(settings.images)
    if settings.whole_images:
        raise ValueError(
            f"[data]: {name} must not have boxes with `whole_images` = true: the paper "
            f"takes whole images. Received: {count:,} boxes. Write the manifest again "
            f"without `--crop`: `{command('training', 'manifest')} RELEASE FOLDER`."
        )
    return (f"{count:,} of {len(data):,} images are cut to the boxes in {name}.",)


def _classes(data: DataSet) -> np.ndarray:
    return np.array(data.class_names)[data.labels]


def _sequences(source: Source) -> np.ndarray:
    """Return what is moved as a whole: the sequence of each image, or its name."""
    if source.data.sequences is not None:
        return source.data.sequences
    return np.array(source.names(source.data))


def _split(source: Source, settings: Data) -> np.ndarray:
    """Split the classes of a manifest that does not, or its sequences."""
    data = source.data
    groups = _sequences(source) if data.is_continuous else _classes(data)
    names = np.unique(groups).tolist()
    if data.is_continuous:
        test = _first_sequences(names, "test_fraction", settings)
        rest = [name for name in names if name not in set(test)]
        validation = _first_sequences(rest, "validation_fraction", settings)
    else:
        parts = split_classes(
            names,
            test_fraction=settings.test_fraction,
            validation_fraction=settings.validation_fraction,
            seed=settings.split_seed,
        )
        test, validation = parts["test"], parts["validation"]
    return np.select(
        [np.isin(groups, test), np.isin(groups, validation)],
        ["test", "validation"],
        "train",
    )


def _chosen(names: list[str], data: DataSet, settings: Data) -> list[str]:
    if data.is_continuous:
        return _first_sequences(names, "validation_fraction", settings)
    return split_classes(
        names,
        test_fraction=0.0,
        validation_fraction=settings.validation_fraction,
        seed=settings.split_seed,
    )["validation"]


def _first_sequences(names: list[str], key: str, settings: Data) -> list[str]:
    """Return a share of the sequences, at least one unless the share is 0."""
    fraction = getattr(settings, key)
    if not fraction:
        return []
    count = max(1, round(fraction * len(names)))
    if count >= len(names):
        raise ValueError(
            f"`{key}` must leave a sequence to train on, of {len(names)}. "
            f"Received: {fraction}."
        )
    return hash_order(names, settings.split_seed)[:count]

"""Find images in folders that are their classes."""

from os import PathLike
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from tfdml._core.arguments import fraction, whole
from tfdml.files import short_names
from tfdml.images._listing import FoundImages, find_images
from tfdml.messages import cut, shown


class LabeledImages(NamedTuple):
    """Image files and their classes.

    Args:
        files: Paths of the files.
        labels: The class of each, its position in `class_names`, int64 `[N]`.
        class_names: Names of the classes, sorted.
    """

    files: tuple[Path, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]

    def hold_out(self, share: float = 0.25, *, seed: int = 0) -> tuple[Self, Self]:
        """Hold out classes, never single images, to test on classes not trained on.

        Args:
            share: Share of the classes to hold out, at least 0 and below 1. At least 2
                are, and at least 2 stay.
            seed: Another seed holds out other classes.

        Returns:
            The images to train on and those held out. Each keeps its label, and all
            `class_names`.

        Raises:
            ValueError: There are fewer than 4 classes, or `share` is out of its range.

        Example:
            >>> files = tuple(Path(f"{name}.png") for name in "aabbccdd")
            >>> images = LabeledImages(files, np.repeat(np.arange(4), 2), tuple("abcd"))
            >>> training, held_out = images.hold_out(0.5)
            >>> len(training.files), len(held_out.files)
            (4, 4)
            >>> sorted({*training.labels.tolist()} & {*held_out.labels.tolist()})
            []
        """
        fraction("share", share)
        whole("seed", seed, 0)
        count = len(self.class_names)
        if count < 4:
            raise ValueError(
                "`hold_out` needs at least 4 classes: 2 to train on and 2 to test on. "
                f"Received: {count}."
            )
        chosen = min(max(2, round(share * count)), count - 2)
        order = np.random.default_rng(seed).permutation(count)
        is_out = np.isin(self.labels, order[:chosen])
        return self._chosen(~is_out), self._chosen(is_out)

    def _chosen(self, chosen: np.ndarray) -> Self:
        files = tuple(self.files[place] for place in np.flatnonzero(chosen))
        return self._replace(files=files, labels=self.labels[chosen])


@short_names()
def labeled_images(
    folder: str | PathLike[str], *, found: FoundImages | None = None
) -> LabeledImages:
    """Find the images `class/image` below a folder.

    Files are found as by `list_images`, in the order of their names; deeper folders
    belong to the first one.

    Args:
        folder: The folder.
        found: The images in it, where they have been listed.

    Returns:
        The images, of at least 2 classes.

    Raises:
        NotADirectoryError: There is no such folder.
        OSError: A folder in it cannot be read.
        ValueError: It holds no image, an image in no class, folders named as splits in
            place of classes, or fewer than 2 classes.
    """
    root = Path(folder)
    found = find_images(root) if found is None else found
    outside = [path for path in found.paths if "/" not in path]
    if outside:
        raise ValueError(
            f"Each image in {cut(root)} must be in the folder of its class, such as "
            f"{cut(root / 'cat')}/1.jpg. Received: {cut(outside[0])} in no such folder."
        )
    if splits := found.split_folders:
        first = cut(root / splits[0], 150)
        raise ValueError(
            f"The folders in {cut(root, 150)} must be classes. Received: "
            f"{', '.join(splits)}, which are the names of splits. Name one of them, "
            f"such as {first}, if the folders in it are the classes: a run splits them "
            "itself. To keep these splits write a manifest with the column `split`."
        )
    names = [path.split("/", 1)[0] for path in found.paths]
    class_names, labels = np.unique(names, return_inverse=True)
    if len(class_names) < 2:
        inside = {path.rsplit("/", 1)[0] for path in found.nested}
        only = str(class_names[0])
        below = cut(root / only, 150)
        hint = f" Name the folder of classes, such as {below}."
        raise ValueError(
            f"{cut(root)} must hold at least 2 classes, each a folder of images: "
            f"there is nothing to tell apart. Received: only {shown(only)}."
            + (hint if len(inside) > 1 else "")
        )
    return LabeledImages(
        tuple(root / path for path in found.paths),
        labels.astype("int64"),
        tuple(class_names.tolist()),
    )

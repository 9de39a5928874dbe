"""Read MPII Human Pose: people with 16 joints, from the release's annotations."""

import os
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tfdml.messages import cut

from ..data_set import DataSet
from ..folder import split_classes
from .mat_files import (
    known_form,
    load_mat,
    numbers,
    structs,
    text,
)

_FILE = "mpii_human_pose_v1_u12_1.mat"
_JOINTS = 16
_PERSON = 200  # pixels: the height of a person whose `scale` is 1
_MARGIN = 1.25  # side of the box over the height of the person
_DOWN = 15  # pixels by which `objpos` is moved down at a `scale` of 1, to the legs


@dataclass(frozen=True)
class _Person:
    """Someone with all joints, in the pixels of the photo, counted from 0."""

    photo: str
    sequence: str
    activity: str
    joints: np.ndarray
    center: np.ndarray
    scale: float


def read_mpii(folder: str | os.PathLike[str], *, test_fraction: float = 0.4) -> DataSet:
    """Read the MPII Human Pose data set; needs SciPy, of the extra `data`.

    An image is a person of a training photo of the release (the labels of its test
    photos are not published) who stands apart from others (`single_person`) and has
    all 16 joints, `scale` and `objpos`. Its box is the square of 1.25 persons' height
    around `objpos`, moved down to the middle of the body as is usual, and cut off at
    the edge of the photo. Where two people of a photo have the same box, neither is
    taken: the image would not say whose pose it shows.

    The label is the pose: x and y of the joints in the order of their ids (0 is the
    right ankle, 9 the top of the head, 15 the left wrist), less the mean of the joints,
    over the height that the release gives the person (200 `scale` pixels). So neither
    place nor size counts, but a crouch is not stretched to a stand. The code of the
    log-ratio paper reads distances that were made before and does not show how; this
    rule is ours.

    The split is ours too: `test_fraction` of the videos test, by the SHA-256 of their
    names, so frames of one video are never on both sides. The video is the sequence
    (the photo itself where none is named), the kind of activity the category.

    Args:
        folder: Holds the annotations, in `mpii_human_pose_v1_u12_2` or directly, and
            `images`.
        test_fraction: Share of the videos that test.

    Returns:
        The people, with continuous labels float64 `[N, 32]`. Their label distance is
        the squared Euclidean one.

    Raises:
        FileNotFoundError: The annotations or a photo are not there.
        ValueError: The annotations are of another form, or a box is outside of its
            photo.
    """
    folder = Path(folder)
    path = folder / "mpii_human_pose_v1_u12_2" / _FILE
    path = path if path.exists() else folder / _FILE
    content = load_mat(path)
    if "RELEASE" not in content:
        raise ValueError(f"{path}: there is no variable RELEASE in it.")
    with known_form(path):
        people = _people(content["RELEASE"][0], path)
    if not people:
        raise ValueError(f"{path}: no person of a training photo has all joints.")
    images = folder / "images"
    sizes = {name: _size(images / name) for name in {p.photo for p in people}}
    boxes = [_box(person, *sizes[person.photo]) for person in people]
    counts = Counter((p.photo, box) for p, box in zip(people, boxes, strict=True))
    chosen = [
        (person, box)
        for person, box in zip(people, boxes, strict=True)
        if counts[person.photo, box] == 1
    ]
    if len(chosen) < len(people):
        warnings.warn(
            f"{len(people) - len(chosen)} people are left out: they share their box "
            "with another person in the photo.",
            stacklevel=2,
        )
    sequences = [person.sequence for person, _ in chosen]
    parts = split_classes(
        sorted(set(sequences)),
        test_fraction=test_fraction,
        validation_fraction=0,
        seed=0,
    )
    return DataSet(
        images=tuple(images / person.photo for person, _ in chosen),
        labels=np.array([_pose(person) for person, _ in chosen]),
        splits=np.where(np.isin(sequences, parts["test"]), "test", "train"),
        categories=np.array([person.activity for person, _ in chosen]),
        sequences=np.array(sequences),
        boxes=np.array([box for _, box in chosen], dtype="int64"),
    )


def _people(release: Any, path: Path) -> list[_Person]:
    photos = structs(release, "annolist")
    training = numbers(release, "img_train")
    apart = np.atleast_1d(getattr(release, "single_person", ()))
    if not len(photos) == len(training) == len(apart):
        raise ValueError(
            f"{path}: annolist, img_train and single_person must be of the same "
            f"length. Received: {len(photos)}, {len(training)} and {len(apart)}."
        )
    activities = structs(release, "act")
    videos = np.atleast_1d(getattr(release, "video_list", ()))
    found = []
    for i, photo in enumerate(photos):
        if not training[i]:
            continue
        name = text(photo.image, "name")
        video = numbers(photo, "vididx")
        sequence = str(videos[int(video[0]) - 1]) if video and len(videos) else name
        activity = text(activities[i], "cat_name") if activities else ""
        rectangles = structs(photo, "annorect")
        for number in np.atleast_1d(apart[i]).reshape(-1):
            if not 1 <= int(number) <= len(rectangles):
                raise ValueError(
                    f"{path}: single_person of {cut(name)} must be 1 to "
                    f"{len(rectangles)}. Received: {number}."
                )
            joints, about = _joints(rectangles[int(number) - 1])
            if joints is not None:
                found.append(_Person(name, sequence, activity, joints, *about))
    return found


def _joints(rectangle: Any) -> tuple[np.ndarray | None, tuple[Any, ...]]:
    """Return the joints in the order of their ids, and the center and scale."""
    points = [
        point
        for annotation in structs(rectangle, "annopoints")
        for point in structs(annotation, "point")
    ]
    places = {int(point.id): (point.x, point.y) for point in points}
    scale = numbers(rectangle, "scale")
    centers = structs(rectangle, "objpos")
    if sorted(places) != list(range(_JOINTS)) or not scale or not centers:
        return None, ()
    joints = np.array([places[i] for i in range(_JOINTS)], dtype="float64")
    center = np.array([centers[0].x, centers[0].y], dtype="float64")
    # MATLAB counts pixels from 1.
    return joints - 1, (center - 1, scale[0])


def _pose(person: _Person) -> np.ndarray:
    centered = person.joints - person.joints.mean(axis=0)
    return (centered / (_PERSON * person.scale)).reshape(-1)


def _size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def _box(person: _Person, width: int, height: int) -> tuple[int, int, int, int]:
    middle = person.center + np.array([0, _DOWN * person.scale])
    half = _MARGIN * _PERSON * person.scale / 2
    left, top = np.maximum(np.floor(middle - half), 0).astype(int).tolist()
    ends = np.minimum(np.ceil(middle + half), [width, height]).astype(int).tolist()
    if ends[0] <= left or ends[1] <= top:
        raise ValueError(
            f"{person.photo}: a person must be inside the photo of {width} x "
            f"{height} pixels. Received: objpos={person.center.tolist()}, "
            f"scale={person.scale}."
        )
    return left, top, ends[0] - left, ends[1] - top

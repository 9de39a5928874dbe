"""Save and merge shards: parts of a gallery that several machines embed.

Shard 2 of 8 holds the embeddings of every 8th image of the list, from the second. Its
folder is written like that of an index: as a whole or not at all, with the SHA-256 of
each file. The merged shards equal what one build would have embedded, in order.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tfdml.command_parser import command
from tfdml.index import IndexFileError
from tfdml.messages import cut, shortened, shown
from tfdml.metrics import Calibration
from tfdml.versioned_folder import check_destination, read_version, write_version

_CLASS = "EmbeddingShard"


@dataclass(frozen=True)
class Part:
    """Part `number` of `count` of a list, counted from 1: every `count`-th item.

    Raises:
        ValueError: `number` is not from 1 to `count`.
    """

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ValueError(
                "A shard must be NUMBER/COUNT, with a number from 1 to the count. "
                f"Received: {self}."
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "2/8"."""
        if not re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", text):
            raise ValueError(
                f"A shard must be NUMBER/COUNT, such as 2/8. Received: {shown(text)}."
            )
        number, count = text.split("/")
        return cls(int(number), int(count))

    def positions(self, length: int) -> range:
        """Return the positions of this part in a list of `length` items."""
        return range(self.number - 1, length, self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class Job:
    """The images and the model: the same for all shards of one index.

    Args:
        root: Folder of the images.
        images: Length of the list of images.
        list_digest: SHA-256 of the list.
        model_name: Name of the model.
        model_version: Its version number.
        model_fingerprint: Its fingerprint, see `serving.endpoint.models.saved_model`.
        calibration: The calibration of the model, or None.
        metric: How its embeddings are compared.
    """

    root: str
    images: int
    list_digest: str
    model_name: str
    model_version: int
    model_fingerprint: str
    calibration: Calibration | None = None
    metric: Literal["cosine", "squared_euclidean"] = "cosine"


@dataclass(frozen=True)
class Shard:
    """The embeddings of one part of the list.

    Args:
        job: The images and the model.
        part: Which part; a whole build is 1/1.
        positions: Position of each embedded image in the whole list, ascending,
            int64 `[N]`.
        paths: Path of each, below the root.
        embeddings: float32 `[N, dimension]`.
        skipped: Why an image was skipped, by its position in the whole list.
    """

    job: Job
    part: Part
    positions: NDArray[np.int64]
    paths: Sequence[str]
    embeddings: NDArray[np.float32]
    skipped: Mapping[int, str]


def check_shard_folder(folder: str | PathLike[str], part: Part) -> None:
    """Check that a shard may be written to a folder.

    Args:
        folder: Empty, missing, or with an earlier version of the same part.
        part: The part to write.

    Raises:
        ValueError: The folder holds something else; the message says what.
    """
    check_destination(folder)
    try:
        held = read_version(folder, lambda manifest, data: manifest)
    except IndexFileError:
        return  # nothing, or a damaged shard
    if held["class"] == _CLASS and held["part"] == asdict(part):
        return
    what = f"a {held['class']}"
    if held["class"] == _CLASS:
        what = f"shard {Part(**held['part'])}"
    raise ValueError(
        f"`folder` must be empty or hold shard {part}. Received: {folder}, which holds "
        f"{what}. Give each shard its own folder."
    )


def save_shard(folder: str | PathLike[str], shard: Shard) -> None:
    """Write a shard; one that the folder holds already is replaced as a whole.

    Args:
        folder: Created if missing; else it must be empty or hold the same part.
        shard: What to write.

    Raises:
        ValueError: The folder holds something else.
        OSError: It cannot be written; the previous shard is unharmed.
    """
    check_shard_folder(folder, shard.part)
    description = {
        "class": _CLASS,
        "job": asdict(shard.job),
        "part": asdict(shard.part),
        "skipped": [list(item) for item in sorted(shard.skipped.items())],
    }

    def write(data: Path) -> None:
        np.save(data / "positions.npy", shard.positions, allow_pickle=False)
        # One text, as an array of text is as wide as its longest row everywhere.
        text = np.frombuffer("\0".join(shard.paths).encode(), np.uint8)
        np.save(data / "paths.npy", text, allow_pickle=False)
        np.save(data / "embeddings.npy", shard.embeddings, allow_pickle=False)

    write_version(folder, description, write)


def read_shards(folders: Sequence[str | PathLike[str]]) -> Shard:
    """Read all shards of a job and merge them.

    The embeddings are read file by file into one matrix: memory holds all embeddings
    once, and the paths.

    Args:
        folders: The folder of each shard, in any order.

    Returns:
        The shard 1/1: what one build would have embedded, in order.

    Raises:
        ValueError: A shard is missing, repeated, broken, or of another job. The message
            names it, and says what to do.
    """
    if not folders:
        raise ValueError("At least one shard must be given. Received: none.")
    shards: dict[int, tuple[Path, Shard]] = {}
    for folder in map(Path, folders):
        shard = _read_shard(folder)
        for other, known in shards.values():
            _check_same_job(folder, shard, other, known)
            break
        if shard.part.number in shards:
            raise ValueError(
                f"Shard {shard.part} is given twice: {shards[shard.part.number][0]} "
                f"and {folder}. Give each shard once."
            )
        shards[shard.part.number] = (folder, shard)
    count = shard.part.count
    missing = [str(Part(n, count)) for n in range(1, count + 1) if n not in shards]
    if missing:
        raise ValueError(
            f"{len(missing)} of the {count} shards are missing: "
            f"{cut(', '.join(missing))}. Create them with "
            f"`{command('serving', 'index build')} ... --shard {missing[0]}`, and "
            "merge them too."
        )
    return _together([shard for _, shard in shards.values()])


def _read_shard(folder: Path) -> Shard:
    def read(manifest: dict[str, Any], data: Path) -> Shard:
        if manifest["class"] != _CLASS:
            raise IndexFileError(f"it holds a {cut(manifest['class'])}")
        return Shard(
            _job(manifest["job"]),
            Part(**manifest["part"]),
            np.load(data / "positions.npy", allow_pickle=False),
            _paths(np.load(data / "paths.npy", allow_pickle=False)),
            # Not read yet: all of them together are what memory must hold once.
            np.load(data / "embeddings.npy", allow_pickle=False, mmap_mode="r"),
            dict(manifest["skipped"]),
        )

    try:
        return read_version(folder, read)
    except (KeyError, TypeError, ValueError) as error:  # IndexFileError is one
        raise ValueError(
            f"{folder} is not a shard that can be merged: {shortened(error, 300)}. "
            f"Create it again with `{command('serving', 'index build')} ... --shard "
            "NUMBER/COUNT`."
        ) from error


def _job(values: dict[str, Any]) -> Job:
    """Read a job; those of earlier versions have no calibration and no metric."""
    job = Job(**values)
    if job.calibration is None:
        return job
    return replace(job, calibration=Calibration.from_json(job.calibration))


def _paths(text: NDArray[np.uint8]) -> list[str]:
    return text.tobytes().decode().split("\0") if len(text) else []


def _check_same_job(folder: Path, shard: Shard, other: Path, known: Shard) -> None:
    if shard.part.count != known.part.count:
        raise ValueError(
            f"{folder} is shard {shard.part} and {other} is shard {known.part}: shards "
            "must have the same count to be merged. Leave out those of another job."
        )
    for field in fields(Job):
        mine, its = getattr(shard.job, field.name), getattr(known.job, field.name)
        if mine != its:
            raise ValueError(
                f"{folder} and {other} do not belong together: `{field.name}` is "
                f"{shown(mine)} and {shown(its)}. Embed all shards of one index with "
                "the same model, from the same list of the same folder of images."
            )


def _together(shards: Sequence[Shard]) -> Shard:
    """Merge the rows of all shards in the order of the list."""
    positions = np.sort(np.concatenate([shard.positions for shard in shards]))
    filled = [shard for shard in shards if len(shard.positions)]
    dimension = filled[0].embeddings.shape[1] if filled else 0
    embeddings = np.empty((len(positions), dimension), dtype=np.float32)
    paths = [""] * len(positions)
    for shard in filled:
        rows = np.searchsorted(positions, shard.positions)
        embeddings[rows] = shard.embeddings
        for row, path in zip(rows.tolist(), shard.paths, strict=True):
            paths[row] = path
    skipped = sorted(item for shard in shards for item in shard.skipped.items())
    return Shard(shards[0].job, Part(), positions, paths, embeddings, dict(skipped))

"""Keep what users say about hits, as a manifest that training reads.

    FOLDER/ratings.jsonl     what was said, a line each, in the order of time
    FOLDER/manifest.csv      the images and their labels, made of it
    a folder in it           the images, named by their content; see `StoredImages`

A hit that is right has the label of its query, one that is wrong has another label. If
what was said contradicts itself, what was said last counts.
"""

import csv
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path

from tfdml.files import make_folder, written

from .stored_images import StoredImages

_COLUMNS = ("path", "label", "gallery_id")
_LONGEST_SUFFIX = 8


@dataclass(frozen=True)
class RatedImage:
    """A query or a hit, as it is remembered.

    Args:
        file: Name of its file.
        id: Its id in the gallery; "" for an image of a user.
        class_name: Its class in the gallery, or "".
    """

    file: str
    id: str = ""
    class_name: str = ""


@dataclass(frozen=True)
class Rating:
    """A user's word on a hit.

    Args:
        query: What was searched with.
        hit: What was found.
        is_right: Whether it shows the same thing.
    """

    query: RatedImage
    hit: RatedImage
    is_right: bool


class Feedback:
    """The ratings in a folder. Any number of threads may use it.

    Args:
        folder: Created with the first rating.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._folder = Path(folder)
        self._images = StoredImages(self._folder)
        self._lock = threading.Lock()

    def keep(self, content: bytes, suffix: str) -> str:
        """Keep an encoded image; return the name of its file.

        Raises:
            OSError: It cannot be written.
        """
        suffix = "".join(filter(str.isalnum, suffix.lower()))[:_LONGEST_SUFFIX]
        return self._images.put(
            content, suffix if suffix.isascii() and suffix else "img"
        )

    def add(self, rating: Rating) -> int:
        """Add a rating; when this returns, it is on the disk and in the manifest.

        Returns:
            The number of ratings.

        Raises:
            OSError: It cannot be written.
        """
        line = asdict(rating) | {"time": datetime.now(UTC).isoformat()}
        with self._lock:
            make_folder(self._folder)
            with (self._folder / "ratings.jsonl").open("ab+") as file:
                if file.tell():  # a line before may have been cut off
                    file.seek(-1, os.SEEK_END)
                    file.write(b"" if file.read(1) == b"\n" else b"\n")
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            ratings = self.ratings()
            with written(self._folder / "manifest.csv") as new:
                text = _manifest(ratings, self._images.folder.name)
                new.write_text(text, encoding="utf-8", newline="")
        return len(ratings)

    def ratings(self) -> list[Rating]:
        """Read all ratings; a line that was cut off counts as none."""
        try:
            lines = (self._folder / "ratings.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                values = json.loads(line)
                query, hit = (RatedImage(**values[name]) for name in ("query", "hit"))
                found.append(Rating(query, hit, bool(values["is_right"])))
            except (ValueError, KeyError, TypeError):
                continue
        return found


def labels_of(ratings: Sequence[Rating]) -> dict[RatedImage, str]:
    """Label images so that right hits share the label of their query alone.

    A label is the commonest class of the images that share it; if the gallery has none
    for them, the name of the first of their files. Of groups that are not the same, but
    have the same class, the later ones get numbers: `cat (2)`.
    """
    images = {image.file: image for r in ratings for image in (r.query, r.hit)}
    group = {file: file for file in images}
    apart: set[frozenset[str]] = set()
    for rating in reversed(ratings):  # what was said last counts
        one, other = group[rating.query.file], group[rating.hit.file]
        pair = frozenset((one, other))
        if rating.is_right and pair not in apart:
            for file, name in group.items():
                group[file] = one if name == other else name
            apart = {frozenset(one if n == other else n for n in p) for p in apart}
        elif not rating.is_right and one != other:
            apart.add(pair)
    members: dict[str, list[str]] = {}
    for file, name in group.items():
        members.setdefault(name, []).append(file)
    label: dict[str, str] = {}
    for name, files in members.items():
        classes = Counter(images[file].class_name for file in files)
        classes.pop("", None)
        base = classes.most_common(1)[0][0] if classes else Path(files[0]).stem[:12]
        taken = {
            label[n] for pair in apart if name in pair for n in pair & label.keys()
        }
        numbered = (f"{base} ({count})" for count in range(2, len(members) + 2))
        label[name] = next(each for each in (base, *numbered) if each not in taken)
    return {images[file]: label[name] for file, name in group.items()}


def _manifest(ratings: Sequence[Rating], folder: str) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_COLUMNS)
    for image, label in labels_of(ratings).items():
        lines.writerow((f"{folder}/{image.file}", label, image.id))
    return text.getvalue()

"""Build the glyph set: Chinese characters drawn by many fonts, one class each.

About 20,000 classes with the fonts of `benchmarks.data_sets.glyph_fonts`, for trying
what grows with the number of classes.
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.data_sets.debian import fetch_debian
from benchmarks.data_sets.glyph_fonts import GLYPH_FONTS, GlyphFont
from benchmarks.data_sets.glyph_pen import GlyphPen
from tfdml.files import whole_folder, written
from tfdml.progress import tracked
from training.data.data_set import DataSet
from training.data.folder import split_classes
from training.data.manifest import write_manifest

_FIRST, _LAST = 0x4E00, 0x9FFF  # the block CJK Unified Ideographs
_STATE = ".glyphs.json"


@dataclass(frozen=True)
class _Class:
    """The images of a class: their names with the digests of their pixels."""

    name: str
    images: tuple[tuple[str, str], ...]


def build_glyphs(
    folder: str | os.PathLike[str],
    *,
    size: int = 64,
    classes: int | None = None,
    fonts: int | None = None,
    min_drawings: int = 5,
    known_fonts: Sequence[GlyphFont] = GLYPH_FONTS,
) -> DataSet:
    """Draw `class/font.png` and write `manifest.csv`, `ATTRIBUTION.md`, `licenses`.

    A class is a code point from U+4E00 to U+9FFF, such as `U+4E00`. Its images are
    gray, black on white, with the ink in the middle. What a font cannot draw shows
    in the image: an empty one, and that of a missing character, are left out, whatever
    the font's table says. Of equal images in a class one is kept. Of equal
    images in two classes none is: they are placeholders, or show either character.
    A class needs `min_drawings` images.

    Half of the classes trains and half tests, by the SHA-256 of their names. Classes
    that are already there are kept, so that a stopped build goes on where it stopped.

    Args:
        folder: Where the images go; fetched packages go to `folder/.packages`, which
            can be deleted afterwards.
        size: Side of the square images in pixels, at least 16.
        classes: Draw this many characters alone, evenly spread over the block, at
            least 4; those with too few drawings still fall out.
        fonts: Use the first fonts alone, at least `min_drawings`. The first 10 draw
            most of the block each.
        min_drawings: Fewest images that make a class, at least 2.
        known_fonts: The fonts.

    Returns:
        The data set as written.

    Raises:
        FetchError: A package cannot be fetched or is not the pinned one.
        ValueError: An argument is out of range, `folder` holds glyphs that were drawn
            with other arguments, or fewer than 4 classes have enough drawings.
    """
    count = len(known_fonts) if fonts is None else fonts
    if size < 16 or min_drawings < 2 or (classes is not None and classes < 4):
        raise ValueError(
            "`size` must be at least 16, `classes` 4 and `min_drawings` 2. Received: "
            f"size={size}, classes={classes}, min_drawings={min_drawings}."
        )
    if not min_drawings <= count <= len(known_fonts):
        raise ValueError(
            f"`fonts` must be {min_drawings} (`min_drawings`) to {len(known_fonts)}. "
            f"Received: {count}."
        )
    folder = Path(folder)
    chosen = known_fonts[:count]
    code_points = np.arange(_FIRST, _LAST + 1)
    if classes is not None and classes < len(code_points):
        places = np.linspace(0, len(code_points) - 1, classes).round().astype(int)
        code_points = code_points[places]
    settings = {
        "size": size,
        "characters": len(code_points),
        "min_drawings": min_drawings,
        "fonts": [font.name for font in chosen],
    }
    shared = _begin(folder, settings)
    files = _fetch(folder, chosen)
    found = _draw_all(folder, code_points.tolist(), files, size, min_drawings)
    shared |= _in_two_classes(found)
    # Kept before anything is deleted: a build that is stopped in the middle of it
    # would not see again which of the images that are left had an equal.
    _save(folder, settings, shared)
    kept = _without(folder, found, shared, min_drawings)
    if len(kept) < 4:
        raise ValueError(
            f"Only {len(kept)} of {len(code_points)} characters have "
            f"{min_drawings} drawings. At least 4 classes are needed: use more "
            "`fonts` or `classes`."
        )
    data = _data_set(folder, kept)
    _write_attribution(folder, files, kept)
    # The last file: with it the set is complete.
    write_manifest(data, folder / "manifest.csv")
    return data


def _begin(folder: Path, settings: dict[str, object]) -> set[str]:
    """Return the digests that two classes shared in an earlier, stopped build."""
    if not (folder / _STATE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        _save(folder, settings, set())
        return set()
    state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    for name, value in settings.items():
        if state["settings"].get(name) != value:
            raise ValueError(
                f"{folder} holds glyphs drawn with other {name}: "
                f"{state['settings'].get(name)} instead of {value}. Build into another "
                "folder, or delete this one."
            )
    return set(state["shared"])


def _save(folder: Path, settings: dict[str, object], shared: set[str]) -> None:
    state = {"settings": settings, "shared": sorted(shared)}
    with written(folder / _STATE) as new:
        new.write_text(json.dumps(state), encoding="utf-8")


def _fetch(folder: Path, fonts: Sequence[GlyphFont]) -> list[tuple[GlyphFont, Path]]:
    packages = list(dict.fromkeys(font.package for font in fonts))
    places = {
        package: fetch_debian(package, folder / ".packages")
        for package in tracked(packages, "fetching", len(packages), "packages")
    }
    return [(font, places[font.package] / font.file) for font in fonts]


def _draw_all(
    folder: Path,
    code_points: list[int],
    files: list[tuple[GlyphFont, Path]],
    size: int,
    min_drawings: int,
) -> list[_Class]:
    with ProcessPoolExecutor(
        mp_context=get_context("spawn"),
        initializer=_start,
        initargs=(folder, files, size, min_drawings),
    ) as pool:
        done = pool.map(_draw_class, code_points, chunksize=16)
        return list(tracked(done, "drawing", len(code_points), "classes"))


_worker: dict[str, Any] = {}


def _start(
    folder: Path, files: list[tuple[GlyphFont, Path]], size: int, min_drawings: int
) -> None:
    """Open the fonts once in each process: that takes longer than to draw a class."""
    _worker["pens"] = {
        font.name: GlyphPen(file, size, font.index) for font, file in files
    }
    _worker["folder"], _worker["min_drawings"] = folder, min_drawings


def _draw_class(code_point: int) -> _Class:
    """Draw a class unless its folder is there: the whole folder appears at once."""
    name = f"U+{code_point:04X}"
    folder = _worker["folder"] / name
    if folder.is_dir():
        paths = {path.stem: path for path in folder.glob("*.png")}
        there = [font for font in _worker["pens"] if font in paths]
        return _Class(name, tuple((font, _read_digest(paths[font])) for font in there))
    drawn: dict[str, tuple[str, np.ndarray]] = {}
    for font, pen in _worker["pens"].items():
        image = pen.draw(chr(code_point))
        if image is not None:
            drawn.setdefault(_digest(image), (font, image))
    if len(drawn) < _worker["min_drawings"]:
        return _Class(name, ())
    with whole_folder(folder) as unfinished:
        unfinished.mkdir()
        for font, image in drawn.values():
            Image.fromarray(image).save(unfinished / f"{font}.png")
    return _Class(name, tuple((font, digest) for digest, (font, _) in drawn.items()))


def _digest(image: np.ndarray) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()[:32]


def _read_digest(path: Path) -> str:
    with Image.open(path) as image:
        return _digest(np.asarray(image))


def _in_two_classes(found: list[_Class]) -> set[str]:
    counts = Counter(digest for one in found for _, digest in one.images)
    return {digest for digest, count in counts.items() if count > 1}


def _without(
    folder: Path, found: list[_Class], shared: set[str], min_drawings: int
) -> list[_Class]:
    """Delete the shared images, and the classes that have too few left."""
    kept = []
    for one in found:
        left = tuple(about for about in one.images if about[1] not in shared)
        if len(left) < min_drawings:
            left = ()
        for about in set(one.images) - set(left):
            (folder / one.name / f"{about[0]}.png").unlink(missing_ok=True)
        if left:
            kept.append(_Class(one.name, left))
        elif one.images and not any((folder / one.name).iterdir()):
            (folder / one.name).rmdir()  # a file manager may have put a file there
    return kept


def _data_set(folder: Path, kept: list[_Class]) -> DataSet:
    names = tuple(one.name for one in kept)
    counts = [len(one.images) for one in kept]
    split_names = split_classes(names, test_fraction=0.5, validation_fraction=0, seed=0)
    tested = set(split_names["test"])
    splits = ["test" if name in tested else "train" for name in names]
    return DataSet(
        images=tuple(
            folder / one.name / f"{font}.png" for one in kept for font, _ in one.images
        ),
        labels=np.repeat(np.arange(len(names)), counts),
        splits=np.repeat(splits, counts),
        class_names=names,
    )


def _write_attribution(
    folder: Path, files: list[tuple[GlyphFont, Path]], kept: list[_Class]
) -> None:
    """Name each font with its license, and put the whole texts beside it."""
    texts = folder / "licenses"
    texts.mkdir(exist_ok=True)
    counts = Counter(font for one in kept for font, _ in one.images)
    lines = [
        "# Where these characters come from",
        "",
        "Drawn in gray with fonts of Debian packages, which are no part of the set. "
        "`licenses` holds the copyright file of each package.",
        "",
        "| font | images | license | package | text |",
        "| --- | --- | --- | --- | --- |",
    ]
    for font, file in files:
        package = font.package
        unpacked = file.parents[len(Path(font.file).parts) - 1]
        source = unpacked / "usr/share/doc" / package.name / "copyright"
        shutil.copyfile(source, texts / f"{package.name}.txt")
        lines.append(
            f"| {font.name} | {counts[font.name]} | {font.license} | {package.name} "
            f"{package.version} | licenses/{package.name}.txt |"
        )
    text = "\n".join(lines) + "\n"
    (folder / "ATTRIBUTION.md").write_text(text, encoding="utf-8")

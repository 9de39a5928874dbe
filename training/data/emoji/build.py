"""Build the emoji data set: one class per emoji, drawn by several design families.

Eight sets of drawings are fetched as npm packages and drawn to PNG files in
`class/set.png`. The class is the code point. Sets that publish a table of code points
are matched by it, the others by CLDR or Unicode name. Left out are skin tones, joined
sequences (the gender and family variants, often drawn alike), country flags (all
vendors draw the same image), symbols that differ in size alone, and emoji with fewer
than `min_drawings` drawings.
"""

import csv
import io
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image

from tfdml.files import written
from tfdml.images import encode_png, read_image, resize_image
from tfdml.progress import Progress, tracked

from .npm import fetch, read_members
from .sets import EMOJI_SETS, EmojiSet

_NAMING_SETS = ("noto", "twemoji", "fluent-emoji-flat")  # these map code -> name
_SIZE_ONLY = {"25aa", "25ab", "25fb", "25fc", "25fd", "25fe", "2b1b", "2b1c"}
_EMOJI_FILE = re.compile(r"assets/([0-9a-f-]+)\.webp")


@dataclass(frozen=True)
class _Drawing:
    """One image to make: its place, its origin, and its SVG text or WebP bytes."""

    path: str
    emoji_class: str
    emoji_set: EmojiSet
    category: str
    data: bytes


def build_emoji(
    folder: str | os.PathLike[str],
    *,
    size: int = 128,
    min_drawings: int = 5,
    sets: tuple[EmojiSet, ...] = EMOJI_SETS,
) -> int:
    """Fetch the drawings and write `class/set.png`, `manifest.csv`, `ATTRIBUTION.md`.

    Images of this size that are already there are kept, so that a stopped build goes
    on where it stopped. The same versions give the same files.

    Args:
        folder: Where the images go; fetched packages go to `folder/.packages`.
        size: Side of the square images in pixels, on white.
        min_drawings: Fewest drawings that make a class, at least 1.
        sets: Which sets to use.

    Returns:
        Number of images.

    Raises:
        FetchError: A package cannot be fetched or is not the pinned one.
        OSError: A file cannot be written, as on a full disk.
    """
    if size < 1 or min_drawings < 1:
        raise ValueError(
            "`size` and `min_drawings` must be at least 1. "
            f"Received: size={size}, min_drawings={min_drawings}."
        )
    folder = Path(folder)
    packages = {}
    with Progress("fetching", len(sets), "sets") as progress:

        def say(text: str) -> None:
            progress.note = text

        for emoji_set in sets:
            tarball = fetch(emoji_set.package, folder / ".packages", say)
            packages[emoji_set.name] = read_members(tarball)
            progress.update()
    drawings = _plan(packages, sets, min_drawings)
    missing = [d for d in drawings if not _is_drawn(folder / d.path, size)]
    jobs = [(folder / d.path, d.data, size) for d in missing]
    with ProcessPoolExecutor() as pool:
        done = pool.map(_draw, jobs, chunksize=16)
        for _ in tracked(done, "drawing", len(jobs)):
            pass
    kept = _drop_identical(folder, drawings, min_drawings)
    _write_attribution(folder / "ATTRIBUTION.md", kept)
    # The last file: with it the set is complete.
    _write_manifest(folder / "manifest.csv", kept)
    return len(kept)


def _plan(
    packages: dict[str, dict[str, bytes]],
    sets: tuple[EmojiSet, ...],
    min_drawings: int,
) -> list[_Drawing]:
    icons = {
        name: json.loads(members["icons.json"])
        for name, members in packages.items()
        if "icons.json" in members
    }
    names = _class_names(packages)
    codes = _codes_by_name(names, icons)
    categories = _categories(packages["noto"])
    found: dict[str, dict[str, bytes]] = {}
    for emoji_set in sets:
        name, members = emoji_set.name, packages[emoji_set.name]
        if name in icons:
            for code, icon in _icons_of(members, icons[name], codes):
                found.setdefault(code, {}).setdefault(name, _svg(icons[name], icon))
        else:
            for file in sorted(members):
                if match := _EMOJI_FILE.fullmatch(file):
                    found.setdefault(_normal_code(match[1]), {})[name] = members[file]
    by_name = {emoji_set.name: emoji_set for emoji_set in sets}
    drawings = []
    for code in sorted(found):
        if not _is_kept(code) or code not in names or len(found[code]) < min_drawings:
            continue
        emoji_class = f"{code}_{names[code]}"
        for set_name, data in found[code].items():
            drawings.append(
                _Drawing(
                    path=f"{emoji_class}/{set_name}.png",
                    emoji_class=emoji_class,
                    emoji_set=by_name[set_name],
                    category=categories.get(names[code], ""),
                    data=data,
                )
            )
    return drawings


def _class_names(packages: dict[str, dict[str, bytes]]) -> dict[str, str]:
    names: dict[str, str] = {}
    for set_name in _NAMING_SETS:
        for code, name in json.loads(packages[set_name]["chars.json"]).items():
            names.setdefault(_normal_code(code), name)
    return names


def _codes_by_name(
    names: dict[str, str], icons: dict[str, dict[str, dict]]
) -> dict[str, str]:
    """Letters and digits of every known name -> code; earlier sources win."""
    codes: dict[str, str] = {}
    for code, name in names.items():
        codes.setdefault(_letters(name), code)
    for set_name in _NAMING_SETS:
        for alias, about in icons[set_name].get("aliases", {}).items():
            if parent := codes.get(_letters(about["parent"])):
                codes.setdefault(_letters(alias), parent)
    for code in names:
        if "-" not in code:
            unicode_name = unicodedata.name(chr(int(code, 16)), "")
            codes.setdefault(_letters(unicode_name), code)
    return codes


def _icons_of(
    members: dict[str, bytes], collection: dict[str, dict], codes: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield (code, icon name); the set's own table first, then its names."""
    table = json.loads(members["chars.json"])
    if table:
        for code, icon in table.items():
            yield _normal_code(code), icon
        return
    for icon in collection["icons"]:
        if code := codes.get(_letters(icon)):
            yield code, icon
    for alias, about in collection.get("aliases", {}).items():
        if code := codes.get(_letters(alias)):
            yield code, about["parent"]


def _categories(noto: dict[str, bytes]) -> dict[str, str]:
    table = json.loads(noto["metadata.json"])["categories"]
    return {name: category for category, icons in table.items() for name in icons}


def _normal_code(code: str) -> str:
    """Without the variation selector, which vendors write or leave out."""
    return "-".join(part for part in code.lower().split("-") if part != "fe0f")


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _is_kept(code: str) -> bool:
    points = [int(part, 16) for part in code.split("-")]
    joined = 0x200D in points
    skin_tone = any(0x1F3FB <= point <= 0x1F3FF for point in points)
    flag = any(0x1F1E6 <= p <= 0x1F1FF or 0xE0000 <= p <= 0xE007F for p in points)
    return not (joined or skin_tone or flag or code in _SIZE_ONLY)


def _svg(collection: dict[str, dict], icon: str) -> bytes:
    while icon not in collection["icons"]:
        icon = collection["aliases"][icon]["parent"]
    about = collection["icons"][icon]
    sides = {
        key: about.get(key, collection.get(key, default))
        for key, default in (("left", 0), ("top", 0), ("width", 16), ("height", 16))
    }
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink" '
        'viewBox="{left} {top} {width} {height}">'.format(**sides)
        + about["body"]
        + "</svg>"
    ).encode("utf-8")


def _is_drawn(path: Path, size: int) -> bool:
    if not path.exists():
        return False
    with Image.open(path) as image:
        return image.size == (size, size)


def _draw(job: tuple[Path, bytes, int]) -> None:
    path, data, size = job
    if data.startswith(b"<svg"):
        import resvg_py

        data = resvg_py.svg_to_bytes(
            svg_string=data.decode("utf-8"), width=size, skip_system_fonts=True
        )
    image = _on_square(read_image(bytes(data)), size)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path) as new:
        new.write_bytes(encode_png(image))


def _on_square(image: np.ndarray, size: int) -> np.ndarray:
    height, width = image.shape[:2]
    if height != width:
        side = max(height, width)
        square = Image.new("RGB", (side, side), "white")
        square.paste(
            Image.fromarray(image), ((side - width) // 2, (side - height) // 2)
        )
        image = np.array(square)
    return resize_image(image, size)


def _drop_identical(
    folder: Path, drawings: list[_Drawing], min_drawings: int
) -> list[_Drawing]:
    """Delete images that stand pixel by pixel in two classes, or twice in one.

    A class that has too few left goes too.
    """
    digests = {
        d.path: sha256(read_image(folder / d.path).tobytes()).hexdigest()
        for d in drawings
    }
    classes: dict[str, set[str]] = {}
    for d in drawings:
        classes.setdefault(digests[d.path], set()).add(d.emoji_class)
    kept, seen = [], set()
    for d in drawings:
        digest = digests[d.path]
        if len(classes[digest]) > 1 or digest in seen:
            continue
        seen.add(digest)
        kept.append(d)
    counts = Counter(d.emoji_class for d in kept)
    kept = [d for d in kept if counts[d.emoji_class] >= min_drawings]
    for path in {d.path for d in drawings} - {d.path for d in kept}:
        (folder / path).unlink()
    for emoji_class in {d.emoji_class for d in drawings}:
        class_folder = folder / emoji_class
        # A file manager may have put a file of its own there.
        if counts[emoji_class] < min_drawings and not any(class_folder.iterdir()):
            class_folder.rmdir()
    return kept


def _write_manifest(path: Path, drawings: list[_Drawing]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "class", "category", "set", "family", "license"])
    for d in drawings:
        about = d.emoji_set
        writer.writerow(
            [d.path, d.emoji_class, d.category, about.name, about.family, about.license]
        )
    with written(path) as new:
        new.write_text(text.getvalue(), encoding="utf-8")


def _write_attribution(path: Path, drawings: list[_Drawing]) -> None:
    counts = Counter(d.emoji_set for d in drawings)
    lines = [
        "# Where these drawings come from",
        "",
        "Each was drawn to a square PNG on white and is otherwise unchanged.",
        "",
        "| set | images | author | license | source | npm package |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {s.name} | {count} | {s.author} | {s.license} | {s.source} "
        f"| {s.package.name} {s.package.version} |"
        for s, count in counts.items()
    ]
    with written(path) as new:
        new.write_text("\n".join(lines) + "\n", encoding="utf-8")

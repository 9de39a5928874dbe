"""Build the furniture set: objects of Sweet Home 3D rendered in several views.

One class an object, with the catalogue's category as super-class, much like Stanford
Online Products. The models are the Debian package sweethome3d-furniture.
"""

import hashlib
import os
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.data_sets.debian import DebianPackage, fetch_debian
from benchmarks.data_sets.renderer import Renderer, View
from benchmarks.data_sets.wavefront import Part, read_model
from tfdml.files import written
from tfdml.images import encode_png
from tfdml.progress import tracked
from training.data.data_set import DataSet
from training.data.folder import split_classes
from training.data.manifest import write_manifest

FURNITURE_PACKAGE = DebianPackage(
    "sweethome3d-furniture",
    "1.8-1",
    "3ccb90c63f9525e887a767b9cd5c8b6933b8b6b2973a615a5359ee68a2118668",
)
_PROPERTY = re.compile(r"^(\w+)#(\d+)=(.*)$", re.MULTILINE)
_LARGEST_MODEL = 8_000_000  # bytes; one tree is larger and would take minutes


@dataclass(frozen=True)
class _Object:
    """One object of a catalogue."""

    archive: Path
    model: str
    class_name: str
    category: str
    creator: str
    license: str
    sides: tuple[float, float, float]
    rotation: tuple[float, ...]


def build_furniture(
    folder: str | os.PathLike[str],
    *,
    size: int = 128,
    views: int = 12,
    objects: int | None = None,
    archives: Sequence[Path] | None = None,
) -> DataSet:
    """Render `class/view.png` and write `manifest.csv` and `ATTRIBUTION.md`.

    Half of the classes trains and half tests, by the SHA-256 of their names. Azimuths
    are spread evenly with a random part; elevation (5 to 50 degrees), zoom, place,
    light and background are random, seeded by the name of the class. Images that are
    already there are kept, so that a stopped build goes on where it stopped.

    Args:
        folder: Where the images go; the fetched package goes to `folder/.packages`.
        size: Side of the square images in pixels.
        views: Images of each object.
        objects: Use this many objects alone, evenly spread over the catalogues.
        archives: Catalogues (`.sh3f` files) other than those of the package.

    Returns:
        The data set as written.

    Raises:
        FetchError: The package cannot be fetched or is not the pinned one.
        RuntimeError: moderngl or an EGL driver is missing.
    """
    if size < 8 or views < 2 or (objects is not None and objects < 4):
        raise ValueError(
            "`size` must be at least 8, `views` 2 and `objects` 4. "
            f"Received: size={size}, views={views}, objects={objects}."
        )
    folder = Path(folder)
    # Reported before anything is fetched. OpenGL itself starts in the workers alone: in
    # one process with TensorFlow it can hang.
    if find_spec("moderngl") is None:
        raise RuntimeError(
            "Rendering needs the package moderngl: `pip install '.[test-data]'`."
        )
    if archives is None:
        unpacked = fetch_debian(FURNITURE_PACKAGE, folder / ".packages")
        archives = sorted(unpacked.glob("usr/share/sweethome3d/furniture/*.sh3f"))
    found = [one for archive in archives for one in _objects(archive)]
    if objects is not None and objects < len(found):
        chosen = np.linspace(0, len(found) - 1, objects).round().astype(int)
        found = [found[i] for i in chosen]
    jobs = [
        (one, folder / one.class_name, size, views)
        for one in found
        if not _is_drawn(folder / one.class_name, size, views)
    ]
    # A fork of a process that has started OpenGL hangs.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        done = pool.map(_draw, jobs)
        for _ in tracked(done, "rendering", len(jobs), "objects"):
            pass
    data = _data_set(folder, found, views)
    _write_attribution(folder / "ATTRIBUTION.md", found)
    # The last file: with it the set is complete.
    write_manifest(data, folder / "manifest.csv")
    return data


def _objects(archive: Path) -> list[_Object]:
    with zipfile.ZipFile(archive) as file:
        text = file.read("PluginFurnitureCatalog.properties").decode("latin-1")
        sizes = {info.filename: info.file_size for info in file.infolist()}
    terms = re.search(r"^license=(.*)$", text, re.MULTILINE)
    table: dict[int, dict[str, str]] = {}
    for name, number, value in _PROPERTY.findall(text):
        table.setdefault(int(number), {})[name] = value.strip()
    found = []
    for _, about in sorted(table.items()):
        model = about.get("model", "").lstrip("/")
        if not model.endswith(".obj") or sizes.get(model, 0) > _LARGEST_MODEL:
            continue
        rotation = about.get("modelRotation", "1 0 0 0 1 0 0 0 1").split()
        found.append(
            _Object(
                archive=archive,
                model=model,
                class_name=re.sub("[^A-Za-z0-9-]+", "_", about["id"]),
                category=about["category"],
                creator=about.get("creator", ""),
                license=terms[1] if terms else "",
                sides=(
                    float(about["width"]),
                    float(about["height"]),
                    float(about["depth"]),
                ),
                rotation=tuple(float(value) for value in rotation),
            )
        )
    return found


def _view_path(class_folder: Path, view: int) -> Path:
    return class_folder / f"{view:02}.png"


def _is_drawn(class_folder: Path, size: int, views: int) -> bool:
    for view in range(views):
        path = _view_path(class_folder, view)
        if not path.exists():
            return False
        with Image.open(path) as image:
            if image.size != (size, size):
                return False
    # Of another number of views each stands at another angle.
    return not _view_path(class_folder, views).exists()


def _draw(job: tuple[_Object, Path, int, int]) -> None:
    one, class_folder, size, views = job
    with zipfile.ZipFile(one.archive) as file:
        parts = _in_catalogue_size(read_model(one.model, file.read), one)
    images = _renderer(size).draw(parts, _views(one.class_name, views))
    class_folder.mkdir(parents=True, exist_ok=True)
    for path in class_folder.glob("[0-9][0-9].png"):
        path.unlink()
    for view, image in enumerate(images):
        path = _view_path(class_folder, view)
        with written(path) as new:
            new.write_bytes(encode_png(image))


_renderers: dict[int, Renderer] = {}


def _renderer(size: int) -> Renderer:
    """Return this process' renderer: starting OpenGL takes longer than drawing."""
    if size not in _renderers:
        _renderers[size] = Renderer(size)
    return _renderers[size]


def _in_catalogue_size(parts: list[Part], one: _Object) -> list[Part]:
    """Turn the model upright and stretch it to the sides that the catalogue states."""
    turn = np.array(one.rotation).reshape(3, 3)
    points = np.concatenate([part.vertices[:, :3] for part in parts]) @ turn.T
    extent = np.maximum(np.ptp(points, axis=0), 1e-6)
    scale = np.array(one.sides) / extent
    changed = []
    for part in parts:
        vertices = part.vertices.copy()
        vertices[:, :3] = part.vertices[:, :3] @ turn.T * scale
        normals = part.vertices[:, 3:6] @ turn.T / scale
        length = np.linalg.norm(normals, axis=1, keepdims=True)
        vertices[:, 3:6] = normals / np.maximum(length, 1e-12)
        changed.append(replace(part, vertices=vertices))
    return changed


def _views(class_name: str, count: int) -> list[View]:
    digest = hashlib.sha256(class_name.encode("utf-8")).digest()
    generator = np.random.default_rng(list(digest))
    views = []
    for i in range(count):
        light = generator.normal(loc=(0, 1.5, 2))
        x, y, z = (float(value) for value in light / np.linalg.norm(light))
        red, green, blue = (float(value) for value in generator.uniform(0.2, 1, 3))
        right, up = (float(value) for value in generator.uniform(-0.06, 0.06, 2))
        views.append(
            View(
                azimuth=360 * (i + generator.uniform()) / count,
                elevation=generator.uniform(5, 50),
                zoom=generator.uniform(0.85, 1.25),
                shift=(right, up),
                light=(x, y, z),
                background=(red, green, blue),
            )
        )
    return views


def _data_set(folder: Path, found: list[_Object], views: int) -> DataSet:
    names = tuple(one.class_name for one in found)
    split_names = split_classes(names, test_fraction=0.5, validation_fraction=0, seed=0)
    tested = set(split_names["test"])
    splits = ["test" if name in tested else "train" for name in names]
    return DataSet(
        images=tuple(
            _view_path(folder / name, view) for name in names for view in range(views)
        ),
        labels=np.repeat(np.arange(len(names)), views),
        splits=np.repeat(splits, views),
        class_names=names,
        categories=np.repeat([one.category for one in found], views),
    )


def _write_attribution(path: Path, found: list[_Object]) -> None:
    counts = Counter((one.archive.stem, one.license) for one in found)
    lines = [
        "# Where these models come from",
        "",
        "3D models of the Debian package "
        f"{FURNITURE_PACKAGE.name} {FURNITURE_PACKAGE.version}, from "
        "https://www.sweethome3d.com; rendered to images and otherwise unchanged.",
        "",
        "| catalogue | objects | license |",
        "| --- | --- | --- |",
        *(f"| {name} | {n} | {terms} |" for (name, terms), n in counts.items()),
        "",
        "| object | creator |",
        "| --- | --- |",
        *(f"| {one.class_name} | {one.creator or 'not stated'} |" for one in found),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

"""Measure a new index against the old one before it takes its place."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.export import SavedEmbedder
from tfdml.images import UnreadableImageError, find_images
from tfdml.index import LocalIndex, SearchResult
from tfdml.metrics import Calibration

from .embedding import embed_files
from .gallery import CLASS, Gallery, class_of

_NEAREST = 10


@dataclass(frozen=True)
class Comparison:
    """What the same queries find in two indexes, each with its own model.

    Attributes:
        queries: Number of queries.
        agreement: Mean share of the 10 nearest that both find.
        same_first: Share of the queries with the same first hit.
        precision_before: Precision@1 by class in the old index; None without classes.
        precision_after: The same in the new one.
        recall: Recall@10 of the new index, compared with exact search.
        threshold_before: From which similarity a hit is a match; None if the old model
            has no calibration.
        threshold_after: The same of the new model.
        matches_before: Share of the queries whose first hit is a match.
        matches_after: The same in the new index.
    """

    queries: int
    agreement: float
    same_first: float
    precision_before: float | None
    precision_after: float | None
    recall: float
    threshold_before: float | None
    threshold_after: float | None
    matches_before: float | None
    matches_after: float | None

    @property
    def loss(self) -> float | None:
        """How much Precision@1 falls; None without classes."""
        if self.precision_before is None or self.precision_after is None:
            return None
        return self.precision_before - self.precision_after

    def to_json(self) -> dict[str, Any]:
        """Return it in JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Side:
    """An index and where its images are."""

    index: LocalIndex
    gallery: Gallery


def compare_by_items(
    old: Side, new: Side, *, queries: int = 200, seed: int = 0
) -> Comparison | None:
    """Search with images of the gallery, none of which finds itself.

    Args:
        old: The old index.
        new: The new one.
        queries: How many images are drawn, at most.
        seed: Seed of the drawing.

    Returns:
        The comparison; None if the indexes share fewer than two images.
    """
    ids = [id_ for id_ in old.index.ids.tolist() if id_ in new.index]
    if len(ids) < 2:
        return None
    generator = np.random.default_rng(seed)
    count = min(queries, len(ids))
    drawn = [ids[row] for row in generator.choice(len(ids), count, replace=False)]
    classes = [own.get(CLASS) for own in old.index.get(drawn).attributes]
    rows = [side.index.get(drawn).embeddings for side in (old, new)]
    exclude = [[id_] for id_ in drawn]
    return _compare(old, new, rows, [str(c) if c else None for c in classes], exclude)


def compare_by_images(
    old: Side,
    new: Side,
    models: Sequence[SavedEmbedder],
    folder: Path,
    *,
    batch_size: int,
    max_pixels: int,
) -> Comparison:
    """Search with the images of a folder, such as the test images of a run.

    Args:
        old: The old index.
        new: The new one.
        models: The old and the new model.
        folder: Folder of images, class/image.
        batch_size: Images per run of a model.
        max_pixels: Width times height above which an image cannot be read.

    Raises:
        UnreadableImageError: A file is not an image.
        ValueError: There is no image.
    """
    folder = folder.resolve()
    paths = list(find_images(folder).paths)
    sides: list[NDArray[np.float32]] = []
    for model in models:
        rows = []
        for _, row in embed_files(model, folder, paths, batch_size, max_pixels):
            if isinstance(row, UnreadableImageError):
                raise row
            rows.append(row)
        sides.append(np.stack(rows))
    classes = [class_of(path) or None for path in paths]
    return _compare(old, new, sides, classes, None)


def _compare(
    old: Side,
    new: Side,
    rows: Sequence[NDArray[np.float32]],
    classes: Sequence[str | None],
    exclude: list[list[str]] | None,
) -> Comparison:
    before, after = (
        side.index.search(own, _NEAREST, exclude=exclude)
        for side, own in zip((old, new), rows, strict=True)
    )
    pairs = list(zip(before.ids.tolist(), after.ids.tolist(), strict=True))
    shares = [len({*one} & {*other}) / max(1, len(one)) for one, other in pairs]
    return Comparison(
        len(pairs),
        float(np.mean(shares)),
        float(np.mean([one[:1] == other[:1] for one, other in pairs])),
        _precision(old, before, classes),
        _precision(new, after, classes),
        float(new.index.measure_recall(rows[1]).mean()),
        _threshold(old.gallery.calibration),
        _threshold(new.gallery.calibration),
        _matches(old.gallery.calibration, before),
        _matches(new.gallery.calibration, after),
    )


def _precision(
    side: Side, found: SearchResult, classes: Sequence[str | None]
) -> float | None:
    if not any(classes) or not found.ids.shape[1]:
        return None
    hits = side.index.get(found.ids[:, 0].tolist()).attributes
    same = [
        own.get(CLASS) == name
        for own, name in zip(hits, classes, strict=True)
        if name is not None
    ]
    return float(np.mean(same))


def _threshold(known: Calibration | None) -> float | None:
    return None if known is None else known.threshold


def _matches(known: Calibration | None, found: SearchResult) -> float | None:
    if known is None or not found.ids.shape[1]:
        return None
    return float(np.mean([known.is_match(score) for score in found.scores[:, 0]]))

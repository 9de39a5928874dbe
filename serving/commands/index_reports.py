"""`index stats`, `verify`, `duplicates` and `map`: inspect an index."""

import argparse
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfdml.messages import shortened
from tfdml.progress import Progress

from .tables import (
    details,
    print_json,
    print_text,
    printable,
    progress_of,
    table,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tfdml.index import Index, NearDuplicates, SearchResult, Where

    from ..search.gallery.map_layout import MapLayout, MapPoint


_MEMBERS = 10  # of a group that are printed
_BLOCK = 4096  # images whose attributes are read at once


def stats(parsed: argparse.Namespace) -> None:
    """Describe an index and its content."""
    from ..search.gallery.gallery import CLASS, load_gallery
    from ..search.gallery.report import engine_of, method_of
    from ..search.gallery.stored_images import STORED_IMAGE

    index, gallery = load_gallery(parsed.index)
    with index:
        known = index.stats()
        method, engine = method_of(index), engine_of(index)
        settings = getattr(index, "settings", None)
        names: set[str] = set()
        if CLASS in known.attributes:
            names = set(_classes_of(index, index.ids.tolist()).values()) - {""}
    calibration = gallery.calibration
    threshold = None if calibration is None else calibration.threshold
    held = {name: value for name, value in known.details.items() if name != "folder"}
    kinds = {
        name: kind for name, kind in known.attributes.items() if name != STORED_IMAGE
    }
    if parsed.json:
        print_json(
            {
                "index": parsed.index,
                "kind": known.kind,
                "images": known.count,
                "classes": len(names),
                "root": str(gallery.root),
                "model": {
                    "name": gallery.model_name,
                    "version": gallery.model_version,
                    "fingerprint": known.model_fingerprint,
                },
                "dimension": known.dimension,
                "metric": known.metric,
                "method": method,
                "engine": engine,
                "attributes": kinds,
                "calibration": None if calibration is None else calibration.to_json(),
                "details": held,
            }
        )
        return
    attributes = [f"{name} ({kind})" for name, kind in sorted(kinds.items())]
    print_text(
        details(
            {
                "index": parsed.index,
                "images": known.count,
                "classes": len(names),
                "images from": str(gallery.root),
                "model": f"{gallery.model_name}, version {gallery.model_version}",
                "dimension": known.dimension,
                "dimension of embeddings": held.get("embedding_dimension"),
                "metric": known.metric,
                "method": method,
                "engine": engine,
                "address": held.get("uri"),
                "collection": held.get("collection"),
                "slower because": settings.reason
                if settings is not None and settings.is_stand_in
                else None,
                "recall": _recall_text(held.get("recall")),
                "no match below": threshold,
                "recall of matches": None
                if calibration is None
                else calibration.recall,
                "attributes": ", ".join(attributes) or None,
                "added since the build": held.get("added"),
                "removed since the build": held.get("removed"),
                "log of changes, bytes": held.get("log_bytes"),
            }
        )
    )


def _recall_text(recall: dict[str, Any] | None) -> str | None:
    if recall is None:
        return None
    if not recall["queries"]:
        return "1 (all images are compared)"
    return (
        f"{recall['value']:.4f} at {recall['k']} ({recall['low']:.4f} to "
        f"{recall['high']:.4f}, {recall['queries']:,} queries; target "
        f"{recall['target']:g})"
    )


def verify(parsed: argparse.Namespace) -> None:
    """Check every file of an index.

    Raises:
        ValueError: It is damaged.
    """
    from tfdml.index import verify_index

    from ..search.gallery.verifying import image_problems

    report = verify_index(parsed.index)
    problems = [*report.problems]
    if report.ok:
        # An index that the library saved has no images.
        with contextlib.suppress(FileNotFoundError):
            problems += image_problems(parsed.index)
    if parsed.json:
        found = asdict(report) | {"problems": problems}
        print_json({"index": parsed.index, "ok": not problems} | found)
    else:
        print_text(
            details(
                {
                    "index": parsed.index,
                    "intact": not problems,
                    "kind": report.kind or None,
                    "items": report.items,
                    "whole files": report.files,
                    "bytes": report.bytes,
                    "changes in the log": report.changes,
                    "bytes cut short": report.torn_bytes or None,
                    "searched for": report.tried,
                    "found": report.found,
                }
            )
        )
        for problem in problems:
            print_text(f"problem: {printable(problem)}")
    if problems:
        raise ValueError(
            f"{parsed.index} is damaged. Restore it from a copy, or build it again."
        )


def duplicates(parsed: argparse.Namespace) -> None:
    """Print the groups of images that are nearly the same."""
    from tfdml.index import near_duplicates

    from ..search.gallery.gallery import load_gallery

    _check_limit(parsed.limit)
    index, _ = load_gallery(parsed.index)
    with index, progress_of(parsed, len(index), "comparing") as bar:
        found = near_duplicates(_Watched(index, bar), threshold=parsed.threshold)
        members = [member for group in found.groups for member in group]
        classes = _classes_of(index, members)
    if parsed.json:
        print_json(_duplicates_json(found, classes))
        return
    groups = len(found.groups)
    print(
        f"{len(found.pairs.scores):,} pairs in {groups:,} groups among "
        f"{found.compared:,} images, at a similarity of {found.threshold:g} or more."
    )
    if not found.complete:
        print("Some images have so many near-duplicates that groups may be split.")
    if not groups:
        return
    rows: list[list[str | int | float | None]] = []
    for number, group in enumerate(found.groups[: parsed.limit], start=1):
        least: float | None = found.least_scores[number - 1]
        shown: int | None = number
        for member in group[:_MEMBERS]:
            rows.append([shown, least, classes[member], member])
            shown = least = None
        if len(group) > _MEMBERS:
            rows.append([None, None, "", f"and {len(group) - _MEMBERS:,} more"])
    print_text(table(["group", "similarity", "class", "id"], rows))
    if groups > parsed.limit:
        print(f"{groups - parsed.limit:,} more groups: see --limit, or --json for all.")


def _duplicates_json(
    found: "NearDuplicates", classes: dict[str, str]
) -> dict[str, Any]:
    return {
        "threshold": found.threshold,
        "images": found.compared,
        "complete": found.complete,
        "pairs": [
            {"first": first, "second": second, "similarity": score}
            for first, second, score in zip(
                *(side.tolist() for side in found.pairs), strict=True
            )
        ],
        "groups": [
            {
                "similarity": score,
                "images": [{"id": id_, "class": classes[id_]} for id_ in group],
            }
            for group, score in zip(found.groups, found.least_scores, strict=True)
        ],
    }


def gallery_map(parsed: argparse.Namespace) -> None:
    """Print the clusters of a gallery, or the place of each image."""
    from ..search.gallery.gallery import load_gallery

    _check_limit(parsed.limit)
    index, _ = load_gallery(parsed.index)
    with index:
        layout = _layout(index, parsed.limit)
        classes = _classes_of(index, [point.id for point in layout.points])
    if parsed.json:
        points = [
            {"id": point.id, "class": classes[point.id]} | asdict(point)
            for point in layout.points
        ]
        print_json({"method": "t-SNE", "of": layout.of, "points": points})
        return
    print(
        f"{len(layout.points):,} of {layout.of:,} images; --json adds their positions."
    )
    members: dict[int, list[MapPoint]] = {}
    for point in layout.points:
        members.setdefault(point.cluster, []).append(point)
    rows: list[list[str | int | float]] = []
    for cluster, own in sorted(members.items()):
        counts = Counter(classes[point.id] for point in own)
        name, most = counts.most_common(1)[0]
        rows.append([cluster, len(own), name, most / len(own), str(own[0].id)])
    print_text(table(["cluster", "images", "main class", "share", "such as"], rows))


def _layout(index: "Index", limit: int) -> "MapLayout":
    try:
        from ..search.gallery.map_layout import lay_out

        return lay_out(index, limit=limit)
    except ImportError as error:
        raise RuntimeError(
            'A map needs scikit-learn and Matplotlib: pip install "tfdml[evaluation]" '
            f"({shortened(error)})."
        ) from error


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"--limit must be at least 1. Received: {limit}.")


def _classes_of(index: "Index", ids: "Sequence[Any]") -> dict[Any, str]:
    """Return the class of each image, or "", by its id."""
    from ..search.gallery.gallery import CLASS

    found: dict[Any, str] = {}
    for start in range(0, len(ids), _BLOCK):
        items = index.get(ids[start : start + _BLOCK])
        for id_, own in zip(items.ids.tolist(), items.attributes, strict=True):
            found[id_] = str(own.get(CLASS, ""))
    return found


class _Watched:
    """An index whose searches advance a progress bar."""

    def __init__(self, index: "Index", bar: Progress) -> None:
        self._index = index
        self._bar = bar
        self.get, self.count, self.stats = index.get, index.count, index.stats

    @property
    def ids(self) -> "NDArray[Any]":
        return self._index.ids

    def search(
        self, queries: "ArrayLike", k: int = 10, *, where: "Where | None" = None
    ) -> "SearchResult":
        found = self._index.search(queries, k, where=where)
        self._bar.update(len(found.ids))
        return found

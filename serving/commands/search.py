"""`search`: find the images of an index that are nearest to an image."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdml.command_parser import command
from tfdml.messages import shortened, shown

from .options import add_embedder, add_json, credentials_of
from .tables import (
    print_json,
    print_text,
    printable,
    progress_of,
    table,
)

if TYPE_CHECKING:
    from tfdml.index import Where
    from tfdml.metrics import Calibration

    from ..search.gallery.image_search import ImageSearch
    from ..search.gallery.items import Hit
    from ..search.gallery.query import Query
    from ..search.gallery.uploads import Crop


def add_search(commands: Any) -> None:
    """Add the command."""
    search = commands.add_parser("search", help="find the images nearest to an image")
    search.add_argument(
        "queries",
        nargs="+",
        metavar="IMAGE",
        type=_no_folder,
        help="image files; - for one from stdin",
    )
    search.add_argument(
        "--index", required=True, help="folder that `index build` wrote"
    )
    add_embedder(search)
    search.add_argument(
        "-k", type=int, default=10, help="images to find per query; default: 10"
    )
    search.add_argument(
        "--where", metavar="JSON", help='filter, such as {"class": ["shoe", "boot"]}'
    )
    search.add_argument(
        "--exclude",
        metavar="ID",
        action="append",
        default=[],
        help="exclude this image (may be given more than once)",
    )
    search.add_argument(
        "--crop",
        metavar="X,Y,WIDTH,HEIGHT",
        help="search with this region of each image, such as 0.25,0.25,0.5,0.5",
    )
    search.add_argument(
        "--expand",
        type=int,
        metavar="K",
        default=0,
        help="move each query toward its K nearest images and search again; default: "
        "no second search",
    )
    search.add_argument("--images", help="folder of the images, if they were moved")
    add_json(search)
    search.set_defaults(run_command=_search, job="search")


def _no_folder(name: str) -> str:
    """Refuse a folder: `search INDEX` was once the search page."""
    if Path(name).is_dir():
        raise argparse.ArgumentTypeError(
            f"{shown(name)} is a folder, not an image. The search page of an index is "
            f"served by `{command('serving', 'page INDEX --endpoint URL')}`"
        )
    return name


def _search(parsed: argparse.Namespace) -> None:
    from ..search.gallery.query import File, Query

    if parsed.queries.count("-") > 1:
        raise ValueError("Standard input, -, can be given only once.")
    where, crop = _where(parsed.where), _crop(parsed.crop)
    if parsed.expand < 0:
        raise ValueError(f"--expand must be at least 0. Received: {parsed.expand}.")
    results: list[tuple[str, list[Hit]]] = []
    with _open(parsed) as search:
        with progress_of(parsed, len(parsed.queries), "searching") as bar:
            for name in parsed.queries:
                file = File(sys.stdin.buffer.read() if name == "-" else Path(name))
                query = Query(
                    file, parsed.k, where, parsed.exclude, crop, parsed.expand
                )
                results.append((name, _nearest(search, name, query)))
                bar.update()
        known = None if parsed.expand else search.gallery.calibration
    if parsed.json:
        found = [_to_json(name, hits, known) for name, hits in results]
        print_json({"index": parsed.index, "k": parsed.k, "results": found})
    else:
        print_text("\n\n".join(_to_text(name, hits, known) for name, hits in results))


def _open(parsed: argparse.Namespace) -> "ImageSearch":
    from ..search.gallery.opening import open_local_search, open_search

    if parsed.model is not None:
        return open_local_search(parsed.index, parsed.model, images=parsed.images)
    return open_search(
        parsed.index,
        parsed.endpoint,
        images=parsed.images,
        credentials=credentials_of(parsed),
    )


def _nearest(search: "ImageSearch", name: str, query: "Query") -> "list[Hit]":
    from tfdml.images import UnreadableImageError

    try:
        return search.nearest(query)
    except UnreadableImageError as error:
        shown = "standard input" if name == "-" else repr(name)
        reason = str(error).removeprefix("This file ")
        raise UnreadableImageError(f"{shown}: {reason}") from error


def _where(text: str | None) -> "Where | None":
    from tfdml.index import where_from_json

    if text is None:
        return None
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(
            '--where must be JSON, such as {"class": "shoe"}. '
            f"Received: {shown(text)} ({shortened(error)})."
        ) from error
    return where_from_json(values)


def _crop(text: str | None) -> "Crop | None":
    from ..search.gallery.uploads import Crop

    if text is None:
        return None
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(
            "--crop must be X,Y,WIDTH,HEIGHT in fractions of the image, such as "
            f"0.25,0.25,0.5,0.5. Received: {shown(text)}."
        ) from None
    return Crop.of(numbers)


def _to_json(
    name: str, hits: "Sequence[Hit]", known: "Calibration | None"
) -> dict[str, Any]:
    from ..search.gallery.gallery import CLASS
    from ..search.gallery.stored_images import STORED_IMAGE

    found = [
        {
            "id": hit.item.id,
            "class": hit.item.class_name,
            "attributes": {
                name: value
                for name, value in hit.item.attributes.items()
                if name not in (CLASS, STORED_IMAGE)
            },
            "similarity": hit.similarity,
        }
        | ({} if hit.is_match is None else {"match": hit.is_match})
        for hit in hits
    ]
    reply: dict[str, Any] = {"query": name, "hits": found}
    if known is not None:
        reply |= {
            "match": _is_match(hits),
            "threshold": known.threshold,
            "recall_at_threshold": known.recall,
        }
    return reply


def _to_text(name: str, hits: "Sequence[Hit]", known: "Calibration | None") -> str:
    title = "standard input" if name == "-" else printable(name)
    if known is not None and not _is_match(hits):
        title += (
            f": no match (below a similarity of {known.threshold:.4f}, at which "
            f"{known.recall:.0%} of the queries that have a match get it)"
        )
    if not hits:
        return f"{title}\nThere are no images left to find."
    headers = ["similarity", "class", "id"]
    rows: list[list[Any]] = [
        [hit.similarity, hit.item.class_name, hit.item.id] for hit in hits
    ]
    if known is not None:
        headers.insert(1, "match")
        for row, hit in zip(rows, hits, strict=True):
            row.insert(1, hit.is_match)
    return f"{title}\n{table(headers, rows)}"


def _is_match(hits: "Sequence[Hit]") -> bool:
    """Return whether there is a match: hits come nearest first."""
    return any(hit.is_match for hit in hits[:1])

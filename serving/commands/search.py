"""`search`: find the images of an index that are nearest to an image."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    from ..search.gallery.query import Examples, File, Query, Text
    from ..search.gallery.uploads import Crop


def add_search(commands: Any) -> None:
    """Add the command."""
    search = commands.add_parser("search", help="find the images nearest to an image")
    search.add_argument(
        "queries",
        nargs="*",
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
    search.add_argument(
        "--text",
        action="append",
        default=[],
        help="search with a text, if the model has a text tower (may be given more "
        "than once)",
    )
    search.add_argument(
        "--together",
        action="store_true",
        help="search with all images and texts at once, such as several of one thing",
    )
    search.add_argument(
        "--not-like",
        metavar="IMAGE",
        action="append",
        default=[],
        type=_no_folder,
        help="stay away from what is in this image (may be given more than once)",
    )
    search.add_argument(
        "--negative-weight",
        type=float,
        metavar="WEIGHT",
        default=0.5,
        help="how much --not-like counts, from 0 to below 1; default: %(default)s",
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
    from ..search.gallery.query import File, Query, Text

    names = [*parsed.queries, *parsed.text]
    if not names:
        raise ValueError("Name an image to search with, or give a --text.")
    if not all(text.strip() for text in parsed.text):
        raise ValueError("--text must not be empty.")
    if (parsed.queries + parsed.not_like).count("-") > 1:
        raise ValueError("Standard input, -, can be given only once.")
    where, crop = _where(parsed.where), _crop(parsed.crop)
    if parsed.expand < 0:
        raise ValueError(f"--expand must be at least 0. Received: {parsed.expand}.")
    if not 0 <= parsed.negative_weight < 1:
        raise ValueError(
            "--negative-weight must be at least 0 and below 1. "
            f"Received: {parsed.negative_weight}."
        )
    is_one = parsed.together and len(names) > 1
    if crop is not None and (is_one or parsed.text):
        raise ValueError(
            "--crop must not be given with --text, or several images --together."
        )
    groups = [names] if is_one else [[name] for name in names]
    results: list[_Result] = []
    with _open(parsed) as search:
        negatives = [_file(name) for name in parsed.not_like]
        sources: list[File | Text] = [_file(name) for name in parsed.queries]
        sources += [Text(text) for text in parsed.text]
        parts = [sources] if is_one else [[source] for source in sources]
        with progress_of(parsed, len(groups), "searching") as bar:
            for names, part in zip(groups, parts, strict=True):
                source = _source(part, negatives, parsed.negative_weight)
                query = Query(
                    source, parsed.k, where, parsed.exclude, crop, parsed.expand
                )
                known = search.gallery.calibration if query.is_plain else None
                hits = _nearest(search, names[0], query)
                results.append(_Result(names, parsed.not_like, hits, known))
                bar.update()
    if parsed.json:
        found = [result.to_json() for result in results]
        print_json({"index": parsed.index, "k": parsed.k, "results": found})
    else:
        print_text("\n\n".join(result.to_text() for result in results))


def _file(name: str) -> "File":
    from ..search.gallery.query import File

    if name == "-":
        return File(sys.stdin.buffer.read(), "standard input")
    return File(Path(name), shown(name))


def _source(
    sources: "list[File | Text]", negatives: "list[File]", weight: float
) -> "File | Text | Examples":
    from ..search.gallery.query import Examples, File

    if len(sources) > 1 or negatives:
        return Examples(sources, negatives, weight)
    (source,) = sources
    return replace(source, name="") if isinstance(source, File) else source


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

    from ..search.gallery.query import Examples

    try:
        return search.nearest(query)
    except UnreadableImageError as error:
        if isinstance(query.source, Examples):  # the error names the image
            raise
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


@dataclass(frozen=True)
class _Result:
    """The hits of one search.

    Args:
        names: The images that were searched with.
        negatives: Those that the hits should be unlike.
        hits: The hits.
        known: The calibration that says which are matches.
    """

    names: list[str]
    negatives: list[str]
    hits: "Sequence[Hit]"
    known: "Calibration | None"

    @property
    def is_match(self) -> bool:
        """Whether there is a match: hits come nearest first."""
        return any(hit.is_match for hit in self.hits[:1])

    def to_json(self) -> dict[str, Any]:
        """Return the result in JSON types."""
        reply: dict[str, Any] = {
            "query": self.names[0] if len(self.names) == 1 else None,
            "hits": [_hit_to_json(hit) for hit in self.hits],
        }
        if len(self.names) > 1 or self.negatives:
            reply |= {"queries": self.names, "negatives": self.negatives}
        if self.known is not None:
            reply |= {
                "match": self.is_match,
                "threshold": self.known.threshold,
                "recall_at_threshold": self.known.recall,
            }
        return reply

    def to_text(self) -> str:
        """Return the result as a table below the names of the images."""
        title = _names_to_text(self.names)
        if self.negatives:
            title += f", not like {_names_to_text(self.negatives)}"
        known = self.known
        if known is not None and not self.is_match:
            title += (
                f": no match (below a similarity of {known.threshold:.4f}, at which "
                f"{known.recall:.0%} of the queries that have a match get it)"
            )
        if not self.hits:
            return f"{title}\nThere are no images left to find."
        headers = ["similarity", "class", "id"]
        rows: list[list[Any]] = [
            [hit.similarity, hit.item.class_name, hit.item.id] for hit in self.hits
        ]
        if known is not None:
            headers.insert(1, "match")
            for row, hit in zip(rows, self.hits, strict=True):
                row.insert(1, hit.is_match)
        return f"{title}\n{table(headers, rows)}"


def _names_to_text(names: list[str]) -> str:
    return ", ".join(
        "standard input" if name == "-" else printable(name) for name in names
    )


def _hit_to_json(hit: "Hit") -> dict[str, Any]:
    from ..search.gallery.gallery import CLASS
    from ..search.gallery.stored_images import STORED_IMAGE

    return {
        "id": hit.item.id,
        "class": hit.item.class_name,
        "attributes": {
            name: value
            for name, value in hit.item.attributes.items()
            if name not in (CLASS, STORED_IMAGE)
        },
        "similarity": hit.similarity,
    } | ({} if hit.is_match is None else {"match": hit.is_match})

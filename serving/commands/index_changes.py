"""`index build`, `merge`, `add` and `remove`: change the content of an index."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tfdml.command_parser import command
from tfdml.text_files import decode, lines_of, read_text

from .options import credentials_of
from .tables import details, print_json, print_text, printable

if TYPE_CHECKING:
    from ..search.gallery.report import AddReport, IndexReport, ShardReport

    _Report = AddReport | IndexReport | ShardReport


def build(parsed: argparse.Namespace) -> None:
    """Embed a folder into an index, or into one shard of it."""
    from ..search.gallery.indexing import embed_shard, index_images
    from ..search.gallery.shards import Part

    images, index, model = parsed.images, parsed.index, parsed.model
    reading: dict[str, Any] = {
        "only": parsed.only,
        "batch_size": parsed.batch_size,
        "skip_unreadable": parsed.skip_unreadable,
        "outside_links": not parsed.no_outside_links,
        "max_pixels": parsed.max_pixels,
        "progress": not parsed.json,
    }
    if parsed.shard is None:
        options = _searching(parsed)
        report = index_images(images, index, model, **options, **reading)
        _print_index(report, parsed)
        return
    for name, value in _searching(parsed).items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{option} must not be given with --shard. Give it to `index merge`, "
                "which builds the index."
            )
    shard = embed_shard(images, index, model, Part.parse(parsed.shard), **reading)
    values = {
        "shard": parsed.index,
        "part": str(shard.part),
        "embedded": shard.embedded,
        "images": shard.images,
    }
    if parsed.json:
        print_json(values | _left_out(shard))
        return
    _print_details(values, shard)
    print(f"Merge all shards with `{command('serving', 'index merge')}`.")


def merge(parsed: argparse.Namespace) -> None:
    """Build an index from all its shards."""
    from ..search.gallery.indexing import merge_shards

    report = merge_shards(
        parsed.index,
        parsed.shards,
        **_searching(parsed),
        progress=not parsed.json,
    )
    _print_index(report, parsed)


def _searching(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return how an index is to search: options of `index_images`."""
    return {
        "dimensions": parsed.dimensions,
        "target_recall": parsed.target_recall,
        "engine": parsed.engine,
        "codes": parsed.codes,
        "code_dimensions": parsed.code_dimensions,
        "store": parsed.store,
        "collection": parsed.collection,
    }


def _print_index(report: "IndexReport", parsed: argparse.Namespace) -> None:
    gallery = report.gallery
    known = gallery.calibration
    if parsed.json:
        print_json(
            {
                "index": parsed.index,
                "images": report.images,
                "classes": report.classes,
                "dimension": report.dimension,
                "embedding_dimension": report.embedding_dimension,
                "method": report.method,
                "engine": report.engine,
                "recall": report.recall,
                "root": str(gallery.root),
                "model": {"name": gallery.model_name, "version": gallery.model_version},
                "calibration": None if known is None else known.to_json(),
                **_left_out(report),
            }
        )
        return
    values = {
        "index": parsed.index,
        "images": report.images,
        "classes": report.classes,
        "dimension": report.dimension,
        "dimension of embeddings": report.embedding_dimension
        if report.embedding_dimension != report.dimension
        else None,
        "method": report.method,
        "engine": report.engine,
        "recall": report.recall,
        "model": f"{gallery.model_name}, version {gallery.model_version}",
        "no match below": None if known is None else known.threshold,
        "recall of matches": None if known is None else known.recall,
    }
    _print_details(values, report)


def add(parsed: argparse.Namespace) -> None:
    """Embed a folder and add it to an index."""
    from ..search.gallery.changing import add_images

    report = add_images(
        parsed.index,
        parsed.images,
        model=parsed.model,
        endpoint=parsed.endpoint,
        credentials=credentials_of(parsed),
        only=parsed.only,
        batch_size=parsed.batch_size,
        skip_unreadable=parsed.skip_unreadable,
        outside_links=not parsed.no_outside_links,
        max_pixels=parsed.max_pixels,
        skip_existing=parsed.skip_existing,
        progress=not parsed.json,
    )
    values = {
        "index": parsed.index,
        "added": report.added,
        "stored": report.stored,
        "existing": report.existing,
        "images": report.images,
    }
    if parsed.json:
        print_json(values | _left_out(report))
    else:
        _print_details(values, report)


def remove(parsed: argparse.Namespace) -> None:
    """Remove images from an index."""
    from ..search.gallery.changing import remove_images

    lines = _lines_of_file(parsed.from_file)
    if not (parsed.ids or lines):
        raise ValueError("Give the ids of the images to remove, or --from-file.")
    try:
        report = remove_images(parsed.index, parsed.ids, lines=lines)
    except KeyError as error:
        raise ValueError(f"{error.args[0]} Nothing was removed.") from error
    values = {
        "index": parsed.index,
        "removed": report.removed,
        "images": report.images,
    }
    if parsed.json:
        print_json(values)
    else:
        _print_details(values)


def _lines_of_file(file: str | None) -> list[str]:
    """Read a file of one id per line."""
    if file is None:
        return []
    if file != "-":
        return [line for _, line in lines_of(read_text(file))]
    text, errors = decode(sys.stdin.buffer.read())
    if errors:
        raise ValueError(f"Standard input, {errors[0]}")
    return [line for _, line in lines_of(text)]


def _left_out(report: "_Report") -> dict[str, list[str]]:
    return {"skipped": list(report.skipped), "notes": list(report.notes)}


def _print_details(values: dict[str, Any], report: "_Report | None" = None) -> None:
    print_text(details(values))
    if report is None:
        return
    for note in report.notes:
        print_text(printable(note))
    if report.skipped:
        print_text(f"{len(report.skipped)} unreadable images skipped:")
        for reason in report.skipped:
            print_text(f"  {printable(reason)}")

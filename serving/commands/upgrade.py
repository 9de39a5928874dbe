"""`upgrade`: bring a new model to a live gallery, go back, and tell how far it is."""

import argparse
from typing import TYPE_CHECKING, Any

from .options import add_credentials, add_json, add_max_pixels, credentials_of
from .tables import details, print_json, print_text, table

if TYPE_CHECKING:
    from ..search.gallery.pair import Pair
    from ..search.gallery.upgrade_measure import Comparison
    from ..search.gallery.upgrading import UpgradeReport


def add_upgrade(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "upgrade", help="embed a live gallery with a new model, and switch to it"
    )
    parser.add_argument("index", help="folder that `index build` wrote")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--model",
        metavar="NEW",
        help="new version of the model: its folder, or the folder of all versions, of "
        "which the latest is taken",
    )
    what.add_argument(
        "--status", action="store_true", help="print the pairs, and how far it is"
    )
    what.add_argument(
        "--rollback",
        action="store_true",
        help="switch back to the pair that is kept, and keep the other one",
    )
    what.add_argument(
        "--delete-old", action="store_true", help="delete the pair that is kept"
    )
    what.add_argument(
        "--cancel", action="store_true", help="give up an unfinished upgrade"
    )

    embedding = parser.add_argument_group("embedding")
    embedding.add_argument(
        "--images", metavar="FOLDER", help="folder of the images, if they were moved"
    )
    embedding.add_argument(
        "--shard",
        metavar="NUMBER/COUNT",
        help="only embed this part of the gallery, such as 2/8, beside other processes",
    )
    embedding.add_argument(
        "--images-per-second",
        type=float,
        metavar="N",
        help="embed no more than this; default: as fast as possible",
    )
    embedding.add_argument(
        "--batch-size", type=int, default=64, help="images per batch; default: 64"
    )
    embedding.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="leave out images that have vanished or cannot be read, and list them",
    )
    add_max_pixels(embedding)

    switching = parser.add_argument_group("measuring and switching")
    switching.add_argument(
        "--queries",
        metavar="FOLDER",
        help="measure with these images too, class/image; the old model must lie "
        "beside the new one",
    )
    switching.add_argument(
        "--largest-loss",
        type=float,
        default=0.02,
        metavar="SHARE",
        help="switch only if Precision@1 falls by no more; default: 0.02",
    )
    switching.add_argument(
        "--compatible",
        action="store_true",
        help="let the new model search the old gallery until the switch, if it finds "
        "as much there; the endpoint must serve it already",
    )
    switching.add_argument(
        "--no-switch",
        action="store_true",
        help="stop before the switch; the same command without it goes on",
    )
    switching.add_argument(
        "--endpoint",
        metavar="URL",
        help="endpoint that must serve the new model before the switch",
    )
    add_credentials(switching)
    add_json(parser)
    parser.set_defaults(run_command=_run, job="upgrade")


def _run(parsed: argparse.Namespace) -> None:
    if parsed.model is not None:
        _shard(parsed) if parsed.shard is not None else _upgrade(parsed)
    elif parsed.status:
        _status(parsed)
    elif parsed.rollback:
        _roll_back(parsed)
    elif parsed.delete_old:
        from ..search.gallery.upgrade_switch import delete_kept

        kept = delete_kept(parsed.index)
        text = "No pair is kept." if kept is None else f"Deleted: the pair of {kept}."
        _say(parsed, {"deleted": _pair(kept)}, text)
    else:
        from ..search.gallery.upgrading import cancel

        was_there = cancel(parsed.index)
        text = "Ended the upgrade." if was_there else "There is no upgrade to end."
        _say(parsed, {"canceled": was_there}, text)


def _upgrade(parsed: argparse.Namespace) -> None:
    from ..search.gallery.upgrading import upgrade

    report = upgrade(
        parsed.index,
        parsed.model,
        images=parsed.images,
        queries=parsed.queries,
        endpoint=parsed.endpoint,
        credentials=credentials_of(parsed),
        largest_loss=parsed.largest_loss,
        switch=not parsed.no_switch,
        compatible=parsed.compatible,
        pacing=_pacing(parsed),
    )
    found = {"gallery": report.by_items, "queries": report.by_images}
    values = {
        "before": _pair(report.before),
        "after": _pair(report.after),
        "images": report.images,
        "skipped": list(report.skipped),
        "dimensions": list(report.dimensions),
        **{name: each and each.to_json() for name, each in found.items()},
        "is_switched": report.is_switched,
    }
    _say(parsed, values, _text(report))
    if report.why_not:
        raise ValueError(f"The old pair still serves. {report.why_not}")


def _shard(parsed: argparse.Namespace) -> None:
    from ..search.gallery.shards import Part
    from ..search.gallery.upgrading import embed_upgrade_shard

    part = Part.parse(parsed.shard)
    count = embed_upgrade_shard(
        parsed.index,
        parsed.model,
        part,
        images=parsed.images,
        pacing=_pacing(parsed),
    )
    text = (
        f"Embedded {count} images of the shard {part}. When all shards are done, run "
        "the command without --shard: it measures and switches."
    )
    _say(parsed, {"shard": str(part), "embedded": count}, text)


def _pacing(parsed: argparse.Namespace) -> Any:
    from ..search.gallery.upgrade_blocks import Pacing

    return Pacing(
        parsed.batch_size,
        parsed.images_per_second,
        parsed.skip_unreadable,
        parsed.max_pixels,
        progress=not parsed.json,
    )


def _roll_back(parsed: argparse.Namespace) -> None:
    from ..search.gallery.upgrade_switch import roll_back

    report = roll_back(parsed.index)
    values = {
        "before": _pair(report.before),
        "after": _pair(report.after),
        "missing": list(report.missing),
    }
    text = f"Switched from {report.before} to {report.after}."
    if report.missing:
        text += (
            f"\n{len(report.missing)} images were added since, and are only in the "
            f"other pair: {report.missing[0]}"
        ) + (" and others." if len(report.missing) > 1 else ".")
    _say(parsed, values, text)


def _status(parsed: argparse.Namespace) -> None:
    from ..search.gallery.upgrading import status

    now = status(parsed.index)
    values = {
        "serves": _pair(now.used),
        "kept": _pair(now.kept),
        "next": _pair(now.next),
        "blocks_done": now.blocks[0],
        "blocks": now.blocks[1],
        "is_ready": now.is_staged,
    }
    shown = {
        "serves": str(now.used),
        "kept": None if now.kept is None else str(now.kept),
        "next": None if now.next is None else str(now.next),
        "blocks": f"{now.blocks[0]} of {now.blocks[1]}" if now.next else None,
        "ready": "yes" if now.is_staged else None,
    }
    _say(parsed, values, details(shown))


def _text(report: "UpgradeReport") -> str:
    lines = [
        f"{report.images} images embedded with {report.after}, before with "
        f"{report.before}."
    ]
    if report.dimensions[0] != report.dimensions[1]:
        one, other = report.dimensions
        lines.append(f"The dimension was {one} and is {other}.")
    if report.skipped:
        lines.append(f"{len(report.skipped)} left out, such as: {report.skipped[0]}")
    for name, found in (
        ("images of the gallery", report.by_items),
        ("given images", report.by_images),
    ):
        if found is not None:
            lines += ["", f"{found.queries} {name} as queries:", _compared(found)]
    end = "The new pair serves; the old one is kept for --rollback."
    if not report.is_switched:
        end = "The old pair serves; the new one is ready."
    return "\n".join([*lines, "", end])


def _compared(found: "Comparison") -> str:
    rows = [
        ["Precision@1", found.precision_before, found.precision_after],
        ["threshold of a match", found.threshold_before, found.threshold_after],
        ["share of matches", found.matches_before, found.matches_after],
        ["recall@10 of the index", None, found.recall],
        ["of the 10 hits, in both", None, found.agreement],
        ["same first hit", None, found.same_first],
    ]
    return table(["", "before", "after"], rows)


def _pair(pair: "Pair | None") -> dict[str, Any] | None:
    if pair is None:
        return None
    return {"name": pair.name, "version": pair.version, "fingerprint": pair.fingerprint}


def _say(parsed: argparse.Namespace, values: dict[str, Any], text: str) -> None:
    if parsed.json:
        print_json(values)
    else:
        print_text(text)

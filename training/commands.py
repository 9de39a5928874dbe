"""The commands of `python -m training` that build and check data sets."""

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.data.data_set import DataSet

_RELEASES = ("cub", "cars", "sop", "in_shop", "mpii", "lsun", "coco")


def add_to(commands: Any) -> None:
    """Add the commands to the subparsers of `python -m training`."""
    check = commands.add_parser("check", help="list every problem of a manifest")
    check.add_argument("manifest", help="a CSV file, see docs/data-sets.md")
    check.add_argument("--root", help="folder of the images (default: the manifest's)")
    check.set_defaults(run_command=_check)

    manifest = commands.add_parser(
        "manifest", help="write the manifest of a benchmark that you have"
    )
    manifest.add_argument("release", choices=_RELEASES)
    manifest.add_argument("folder", help="what the release unpacks to")
    manifest.add_argument(
        "--crop", action="store_true", help="use the published boxes (CUB, Cars)"
    )
    manifest.add_argument(
        "--embeddings", help="a .npy file with a row for each caption (COCO)"
    )
    manifest.set_defaults(run_command=_manifest)

    tfds = commands.add_parser("tfds", help="write out a TensorFlow Datasets set")
    tfds.add_argument("name", help="such as cars196 or caltech_birds2011")
    tfds.add_argument("folder", help="where the images and the manifest go")
    tfds.add_argument("--data-dir", help="folder of TensorFlow Datasets")
    tfds.add_argument("--image", help="the image's name among the features")
    tfds.add_argument("--label", help="the label's name among the features")
    tfds.add_argument(
        "--own-splits",
        action="store_true",
        default=None,
        help="keep its splits; otherwise the first half of the classes trains",
    )
    tfds.set_defaults(run_command=_tfds)

    furniture = commands.add_parser(
        "furniture", help="fetch and render the furniture data set"
    )
    furniture.add_argument("folder", help="where the images go")
    furniture.add_argument("--size", type=int, default=128, help="side in pixels")
    furniture.add_argument(
        "--views", type=int, default=12, help="images of each object"
    )
    furniture.add_argument(
        "--objects", type=int, help="render this many alone (default: all 819)"
    )
    furniture.set_defaults(run_command=_furniture)

    pose = commands.add_parser("pose", help="draw the pose data set")
    pose.add_argument("folder", help="where the images go")
    pose.add_argument("--size", type=int, default=96, help="side in pixels")
    pose.add_argument("--views", type=int, default=4, help="images of each frame")
    pose.add_argument(
        "--frames", type=int, help="draw this many of each clip alone (default: all)"
    )
    pose.set_defaults(run_command=_pose)

    glyphs = commands.add_parser("glyphs", help="fetch fonts and draw the glyph set")
    glyphs.add_argument("folder", help="where the images go")
    glyphs.add_argument("--size", type=int, default=64, help="side in pixels")
    glyphs.add_argument(
        "--classes",
        type=int,
        help="draw this many characters alone (default: all 20,992)",
    )
    glyphs.add_argument("--fonts", type=int, help="use the first fonts alone")
    glyphs.set_defaults(run_command=_glyphs)


def _check(parsed: argparse.Namespace) -> None:
    from training.data.data_set import SPLITS
    from training.data.manifest import check_manifest, read_manifest

    problems = check_manifest(parsed.manifest, root=parsed.root)
    for problem in problems:
        print(f"{parsed.manifest}:{problem.line}: {problem.text}")
    if problems:
        raise ValueError(f"{len(problems)} problems in {parsed.manifest}.")
    data = read_manifest(parsed.manifest, root=parsed.root)
    for split in SPLITS:
        part = data.of_split(split)
        classes = "" if data.is_continuous else f", {len(part.class_names)} classes"
        if len(part):
            print(f"{split}: {len(part)} images{classes}")


def _manifest(parsed: argparse.Namespace) -> None:
    from training.data.manifest import write_manifest

    data = _read_release(parsed)
    path = Path(parsed.folder) / "manifest.csv"
    write_manifest(data, path)
    print(f"{len(data)} images in {path}.")


def _read_release(parsed: argparse.Namespace) -> "DataSet":
    for name, belongs in (("crop", ("cub", "cars")), ("embeddings", ("coco",))):
        if getattr(parsed, name) and parsed.release not in belongs:
            raise ValueError(
                f"`--{name}` is for {' and '.join(belongs)}. "
                f"Received: {parsed.release}."
            )
    match parsed.release:
        case "mpii":
            from training.data.releases.mpii import read_mpii

            return read_mpii(parsed.folder)
        case "lsun":
            from training.data.releases.lsun import read_lsun

            return read_lsun(parsed.folder)
        case "coco":
            from training.data.releases.coco import read_coco

            if not parsed.embeddings:
                raise ValueError(
                    "COCO needs `--embeddings`, a file with a row for each caption "
                    "that `training.data.releases.coco.list_captions` lists."
                )
            return read_coco(parsed.folder, parsed.embeddings)
    from training.data.releases import retrieval_benchmarks as benchmarks

    data = getattr(benchmarks, f"read_{parsed.release}")(parsed.folder)
    if not parsed.crop:
        return dataclasses.replace(data, boxes=None)
    if data.boxes is None:
        raise ValueError(f"`--crop`: {parsed.release} comes without boxes.")
    return data


def _tfds(parsed: argparse.Namespace) -> None:
    from training.data.releases.tfds import export_tfds

    data = export_tfds(
        parsed.name,
        parsed.folder,
        data_dir=parsed.data_dir,
        image_key=parsed.image,
        label_key=parsed.label,
        own_splits=parsed.own_splits,
    )
    print(f"{len(data)} images in {parsed.folder}; see ATTRIBUTION.md there.")


def _furniture(parsed: argparse.Namespace) -> None:
    from benchmarks.data_sets.furniture import build_furniture

    data = build_furniture(
        parsed.folder, size=parsed.size, views=parsed.views, objects=parsed.objects
    )
    print(f"{len(data)} images in {parsed.folder}; see ATTRIBUTION.md there.")


def _pose(parsed: argparse.Namespace) -> None:
    from benchmarks.data_sets.pose import build_pose

    data = build_pose(
        parsed.folder, size=parsed.size, views=parsed.views, frames=parsed.frames
    )
    print(f"{len(data)} images in {parsed.folder}; see ATTRIBUTION.md there.")


def _glyphs(parsed: argparse.Namespace) -> None:
    from benchmarks.data_sets.glyphs import build_glyphs

    data = build_glyphs(
        parsed.folder, size=parsed.size, classes=parsed.classes, fonts=parsed.fonts
    )
    print(
        f"{len(data)} images of {len(data.class_names)} classes in {parsed.folder}; "
        "see ATTRIBUTION.md there."
    )

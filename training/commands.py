"""Run the commands that build and check data sets."""

import argparse
import dataclasses
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdml.messages import cut, shown

if TYPE_CHECKING:
    from .data.data_set import DataSet

_RELEASES = {
    "cub": "retrieval_benchmarks",
    "cars": "retrieval_benchmarks",
    "sop": "retrieval_benchmarks",
    "in_shop": "retrieval_benchmarks",
    "mpii": "mpii",
    "lsun": "lsun",
    "coco": "coco",
}
"""The module in `training.data.releases` that has `read_RELEASE`, by release."""

_EXPECTED = {
    "cub": "CUB-200-2011 (images.txt, classes.txt, images)",
    "cars": "Cars-196 (cars_annos.mat and car_ims, or devkit, cars_train, cars_test)",
    "sop": "Stanford Online Products (Ebay_train.txt, Ebay_test.txt)",
    "in_shop": "DeepFashion In-Shop (list_eval_partition.txt, img)",
    "mpii": "MPII Human Pose (mpii_human_pose_v1_u12_1.mat, images)",
    "lsun": "LSUN room layout (training.mat, validation.mat, layout_seg, images)",
}
"""What the folder of a release must hold, for messages."""


def add_to(commands: Any) -> None:
    """Add the commands to the subparsers of a `CommandParser`."""
    emoji = commands.add_parser("emoji", help="fetch and draw the emoji data set")
    emoji.add_argument("folder", help="where to write the images")
    emoji.add_argument(
        "--size",
        type=int,
        default=128,
        help="side of the images in pixels (default: 128)",
    )
    emoji.set_defaults(run_command=_emoji, job="emoji")

    check = commands.add_parser("check", help="list every problem in a manifest")
    check.add_argument("manifest", help="a CSV file with a line per image")
    check.add_argument(
        "--root", help="folder of the images (default: the folder of the manifest)"
    )
    check.set_defaults(run_command=_check, job="check")

    manifest = commands.add_parser(
        "manifest", help="write the manifest of a benchmark that you have downloaded"
    )
    manifest.add_argument("release", choices=tuple(_RELEASES))
    manifest.add_argument("folder", help="the unpacked release")
    manifest.add_argument(
        "--crop",
        action="store_true",
        help="use the published boxes (CUB, Cars), and write manifest_boxes.csv",
    )
    manifest.add_argument(
        "--embeddings", help="a .npy file with one row per caption (COCO)"
    )
    manifest.add_argument(
        "--year",
        type=int,
        choices=(2014, 2017),
        help="release of COCO (default: the one in the folder, 2017 if both are)",
    )
    manifest.set_defaults(run_command=_manifest, job="manifest")

    tfds = commands.add_parser(
        "tfds", help="export a data set from TensorFlow Datasets"
    )
    tfds.add_argument("name", help="its name, such as cars196 or caltech_birds2011")
    tfds.add_argument("folder", help="where to write the images and the manifest")
    tfds.add_argument("--data-dir", help="folder of TensorFlow Datasets")
    tfds.add_argument("--image", help="name of the image among the features")
    tfds.add_argument("--label", help="name of the label among the features")
    tfds.add_argument(
        "--own-splits",
        action="store_true",
        default=None,
        help="keep its splits; by default, the first half of the classes trains",
    )
    tfds.set_defaults(run_command=_tfds, job="tfds")


def _emoji(parsed: argparse.Namespace) -> None:
    from .data.emoji.build import build_emoji

    count = build_emoji(parsed.folder, size=parsed.size)
    print(f"{count} images in {parsed.folder}; see ATTRIBUTION.md there.")


def _check(parsed: argparse.Namespace) -> None:
    from .data.data_set import SPLITS
    from .data.manifest import check_manifest, read_manifest

    problems = check_manifest(parsed.manifest, root=parsed.root)
    for problem in problems:
        print(f"{parsed.manifest}:{problem.line}: {problem.text}")
    if problems:
        raise ValueError(f"{len(problems)} problems in {parsed.manifest}.")
    data = read_manifest(parsed.manifest, root=parsed.root)
    for split in SPLITS:
        selected = data.of_split(split)
        classes = "" if data.is_continuous else f", {len(selected.class_names)} classes"
        if len(selected):
            print(f"{split}: {len(selected)} images{classes}")


def _manifest(parsed: argparse.Namespace) -> None:
    from .data.manifest import write_manifest

    data, name = _read_release(parsed)
    path = Path(parsed.folder) / name
    write_manifest(data, path)
    print(f"{len(data)} images in {path}.")


def _read_release(parsed: argparse.Namespace) -> tuple["DataSet", str]:
    """Read a release, and name its manifest: one by itself for each content."""
    name = parsed.release
    for option, releases in (
        ("crop", ("cub", "cars")),
        ("embeddings", ("coco",)),
        ("year", ("coco",)),
    ):
        if getattr(parsed, option) and name not in releases:
            raise ValueError(
                f"`--{option}` is for {' and '.join(releases)}. Received: {name}."
            )
    module = importlib.import_module(f".data.releases.{_RELEASES[name]}", __package__)
    read = getattr(module, f"read_{name}")
    if name == "coco":
        return _read_coco(parsed, read, module.year_of(parsed.folder, parsed.year))
    try:
        data = read(parsed.folder)
    except FileNotFoundError as error:
        if error.filename is None:  # it says itself what is missing
            raise
        raise FileNotFoundError(
            f"{cut(parsed.folder)} must hold {_EXPECTED[name]}. There is no "
            f"{shown(str(error.filename))}."
        ) from error
    if parsed.crop and data.boxes is None:
        raise ValueError(f"`--crop`: {name} has no published boxes.")
    if _RELEASES[name] != "retrieval_benchmarks":  # what is cut out is the image
        return data, "manifest.csv"
    if parsed.crop:
        return data, "manifest_boxes.csv"
    return dataclasses.replace(data, boxes=None), "manifest.csv"


def _read_coco(
    parsed: argparse.Namespace, read: Any, year: int
) -> tuple["DataSet", str]:
    if not parsed.embeddings:
        raise ValueError(
            f"COCO {year} needs `--embeddings`, a file with one row for each caption "
            f"that `{__package__}.data.releases.coco.list_captions` lists."
        )
    data = read(parsed.folder, parsed.embeddings, year=year)
    # Each release has a manifest of its own, as both unpack to one folder.
    return data, "manifest.csv" if year == 2017 else f"manifest_{year}.csv"


def _tfds(parsed: argparse.Namespace) -> None:
    from .data.releases.tfds import export_tfds

    data = export_tfds(
        parsed.name,
        parsed.folder,
        data_dir=parsed.data_dir,
        image_key=parsed.image,
        label_key=parsed.label,
        own_splits=parsed.own_splits,
    )
    print(f"{len(data)} images in {parsed.folder}; see ATTRIBUTION.md there.")

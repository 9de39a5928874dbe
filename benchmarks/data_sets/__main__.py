"""Build the data sets that only the benchmarks and their recipes use.

    python -m benchmarks.data_sets furniture data/furniture
    python -m benchmarks.data_sets pose data/pose
    python -m benchmarks.data_sets glyphs data/glyphs

docs/data-sets.md says what each of them holds.
"""

import argparse
import sys

from tfdml.command_line import run_command


def main(arguments: list[str] | None = None) -> int:
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.data_sets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    furniture = commands.add_parser("furniture", help="fetch and render furniture")
    furniture.add_argument("folder", help="where to write the images")
    furniture.add_argument("--size", type=int, default=128, help="side in pixels")
    furniture.add_argument("--views", type=int, default=12, help="images per object")
    furniture.add_argument(
        "--objects", type=int, help="render only so many (default: all 819)"
    )
    furniture.set_defaults(run_command=_furniture)

    pose = commands.add_parser("pose", help="draw a figure in many poses")
    pose.add_argument("folder", help="where to write the images")
    pose.add_argument("--size", type=int, default=96, help="side in pixels")
    pose.add_argument("--views", type=int, default=4, help="images per frame")
    pose.add_argument(
        "--frames", type=int, help="draw only so many per clip (default: all)"
    )
    pose.set_defaults(run_command=_pose)

    glyphs = commands.add_parser("glyphs", help="fetch fonts, draw Chinese characters")
    glyphs.add_argument("folder", help="where to write the images")
    glyphs.add_argument("--size", type=int, default=64, help="side in pixels")
    glyphs.add_argument(
        "--classes", type=int, help="draw only so many characters (default: all 20,992)"
    )
    glyphs.add_argument("--fonts", type=int, help="use only the first fonts")
    glyphs.set_defaults(run_command=_glyphs)
    return parser


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


if __name__ == "__main__":
    sys.exit(main())

"""`python -m training`: build a data set, train an embedder."""

import argparse
import sys
from pathlib import Path

from tfdml.command_line import run_command
from training import data_commands

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    emoji = commands.add_parser("emoji", help="fetch and draw the emoji data set")
    emoji.add_argument("folder", help="where the images go")
    emoji.add_argument("--size", type=int, default=128, help="side in pixels")
    emoji.set_defaults(run_command=_emoji)

    data_commands.add_to(commands)

    fit = commands.add_parser("fit", help="train an embedder by a recipe")
    fit.add_argument("recipe", help="a TOML file, such as training/recipes/demo.toml")
    fit.add_argument("--run", help="run folder (default: runs/NAME_OF_THE_RECIPE)")
    fit.add_argument(
        "--images", help="use this folder of images instead of the recipe's"
    )
    fit.add_argument("--seed", type=int, help="instead of the recipe's")
    fit.add_argument("--overwrite", action="store_true", help="replace a finished run")
    fit.add_argument(
        "--restart",
        action="store_true",
        help="throw an interrupted run away instead of going on with it",
    )
    fit.set_defaults(run_command=_fit)

    report = commands.add_parser("report", help="write the report of a run again")
    report.add_argument("run", help="the run folder")
    report.set_defaults(run_command=_report)
    return parser


def _emoji(parsed: argparse.Namespace) -> None:
    from training.data.emoji import build_emoji

    count = build_emoji(parsed.folder, size=parsed.size)
    print(f"{count} images in {parsed.folder}; see ATTRIBUTION.md there.")


def _fit(parsed: argparse.Namespace) -> None:
    import dataclasses

    from training.recipe import read_recipe

    recipe = read_recipe(parsed.recipe, images=parsed.images)
    if parsed.seed is not None:
        settings = dataclasses.replace(recipe.fit, seed=parsed.seed)
        recipe = dataclasses.replace(recipe, fit=settings)
    from training.fit import fit
    from training.report import summary

    run = parsed.run or Path("runs") / Path(parsed.recipe).stem
    results = fit(recipe, run, overwrite=parsed.overwrite, restart=parsed.restart)
    print(summary(results))
    print(f"Run folder: {run} (report.html)")


def _report(parsed: argparse.Namespace) -> None:
    from training.html_report import write_report

    print(write_report(Path(parsed.run)))


if __name__ == "__main__":
    sys.exit(main())

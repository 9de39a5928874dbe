"""Build data sets, train embedders, evaluate and compare them."""

import argparse
import sys
from pathlib import Path
from typing import Any

from tfdml.command_line import run_command
from tfdml.command_parser import CommandParser, command
from tfdml.progress import Progress

from . import commands as data_commands
from .recipe.paper_tables import PAPER_TABLES
from .recipe.tables import RERANKINGS


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return run_command(_parser(), arguments)


def hints() -> dict[str, str]:
    """Return what to say of commands that are not here, by their words."""
    return {"train": f"An embedder is trained by `{command('training', 'fit')}`."}


def add_to(commands: Any) -> None:
    """Add the commands to the subparsers of a `CommandParser`."""
    data_commands.add_to(commands)

    fit = commands.add_parser("fit", help="train an embedder from a recipe")
    fit.add_argument(
        "recipe",
        help="a TOML file, or the name of a recipe that comes with tfdml, such as demo",
    )
    fit.add_argument(
        "--variant",
        help="which recipe of a file with variants, such as cub/densenet201/topk",
    )
    fit.add_argument(
        "--run", help="run folder (default: runs/RECIPE_NAME, with the variant)"
    )
    fit.add_argument("--images", help="images to use in place of the recipe's")
    fit.add_argument("--seed", type=int, help="seed to use in place of the recipe's")
    length = fit.add_mutually_exclusive_group()
    length.add_argument(
        "--steps",
        type=int,
        help="train for this many steps, with the schedule in proportion",
    )
    length.add_argument(
        "--minutes",
        type=float,
        help="train for this many minutes, with the schedule in proportion",
    )
    fit.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="TABLE.KEY=VALUE",
        help="a value in place of the recipe's, such as fit.learning_rate=1e-4 (may be "
        "repeated)",
    )
    fit.add_argument("--overwrite", action="store_true", help="replace a finished run")
    fit.add_argument(
        "--restart",
        action="store_true",
        help="discard an interrupted run instead of resuming it",
    )
    fit.set_defaults(run_command=_fit, job="fit")

    recipes = commands.add_parser(
        "recipes", help="list recipes, and what papers printed for them"
    )
    recipes.add_argument(
        "recipe",
        nargs="?",
        help="a file with variants (default: list the recipes that come with tfdml)",
    )
    recipes.set_defaults(run_command=_recipes, job="recipes")

    calibrate = commands.add_parser(
        "calibrate", help="choose the similarity threshold of a match"
    )
    calibrate.add_argument("run", help="the run folder")
    target = calibrate.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--precision",
        type=float,
        help="share of matches that are correct, such as 0.95",
    )
    target.add_argument(
        "--false-positive-rate",
        type=float,
        help="share of queries without a positive that get a match, such as 0.01",
    )
    calibrate.add_argument(
        "--images", help="where the images of the run are now, if they have moved"
    )
    calibrate.add_argument(
        "--training-images",
        action="store_true",
        help="add the training images to the gallery, to make it as large as the one "
        "that will be searched",
    )
    calibrate.add_argument(
        "--if-possible",
        action="store_true",
        help="exit with success if no threshold can be chosen",
    )
    calibrate.set_defaults(run_command=_calibrate, job="calibrate")

    evaluate = commands.add_parser(
        "evaluate", help="measure an embedder, and plot the results"
    )
    evaluate.add_argument(
        "model",
        help="a run folder, an embedder (.keras), an exported SavedModel, or "
        "embeddings (.npy), one row per image",
    )
    evaluate.add_argument(
        "images",
        nargs="?",
        help="a folder or a manifest (default: the images of the run)",
    )
    evaluate.add_argument(
        "--root", help="folder of the images of a manifest (default: its own)"
    )
    evaluate.add_argument(
        "--run", help="the run that the model comes from, to use its images"
    )
    evaluate.add_argument(
        "--split",
        choices=("train", "validation", "test", "all"),
        help="which images (default: the test images if there are any, else all)",
    )
    evaluate.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="skip files that cannot be read, and list them",
    )
    evaluate.add_argument(
        "--metric",
        choices=("cosine", "squared_euclidean"),
        help="how embeddings are compared (default: as the model or the run says, else "
        "cosine)",
    )
    evaluate.add_argument(
        "--k",
        type=int,
        nargs="+",
        metavar="K",
        help="the k of Precision@k and Recall@k, such as --k 1 3 5 10 (default: 1, 2, "
        "4, 5, 8, 10, 100, 1000, and those of the recipe)",
    )
    evaluate.add_argument(
        "--table",
        choices=tuple(PAPER_TABLES),
        help="measure and print the columns of a paper's table (default: that of the "
        "recipe)",
    )
    evaluate.add_argument(
        "--rerank",
        nargs="*",
        choices=RERANKINGS,
        help="also measure retrieval with these re-rankings (default: those of the "
        "recipe; without a name: none)",
    )
    evaluate.add_argument(
        "--rerank-neighbors",
        type=int,
        metavar="K",
        help="neighbors that they look at (default: as in the recipe, or 10; "
        "k-reciprocal: 20)",
    )
    evaluate.add_argument(
        "--against",
        metavar="OLD",
        help="an old model: measure whether MODEL may search a gallery that OLD has "
        "embedded",
    )
    evaluate.add_argument(
        "--out",
        help="where to write (default: MODEL/evaluation for a run, else "
        "evaluations/MODEL_NAME)",
    )
    evaluate.add_argument(
        "--overwrite", action="store_true", help="replace an evaluation"
    )
    evaluate.add_argument(
        "--keep-embeddings", action="store_true", help="also write embeddings.npy"
    )
    evaluate.set_defaults(run_command=_evaluate, job="evaluate")

    compare = commands.add_parser(
        "compare", help="compare runs, with confidence intervals"
    )
    compare.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="run folders or evaluations; the others are compared with the first",
    )
    compare.add_argument(
        "--metric",
        action="append",
        help="a metric, such as recall_at_10 (may be repeated)",
    )
    compare.add_argument(
        "--out", help="where to write the page (default: comparison.html)"
    )
    compare.set_defaults(run_command=_compare, job="compare")

    schema = commands.add_parser(
        "schema", help="print the JSON Schema of recipes, for editors"
    )
    schema.add_argument("--out", help="file to write it to, such as recipe.schema.json")
    schema.set_defaults(run_command=_schema, job="schema")

    convert = commands.add_parser(
        "convert", help="convert published weights of a backbone for Keras"
    )
    convert.add_argument("backbone", help="bn_inception, googlenet or resnet34")
    convert.add_argument("source", help="the published file: .pth or .safetensors")
    convert.add_argument("target", help="the .weights.h5 file to write")
    convert.set_defaults(run_command=_convert, job="convert")

    report = commands.add_parser("report", help="rewrite the report of a run")
    report.add_argument("run", help="the run folder")
    report.set_defaults(run_command=_report, job="report")


def _parser() -> CommandParser:
    parser = CommandParser(
        prog=f"python -m {__package__}", description=__doc__, hints=hints()
    )
    add_to(parser.add_subparsers(required=True))
    return parser


def _fit(parsed: argparse.Namespace) -> None:
    import dataclasses

    with Progress("loading"):  # Keras and its backend take seconds
        from .recipe.recipe import read_recipe
        from .reports.published import published_text, tested
        from .reports.text import summary, trained
        from .run.fit import fit

        recipe = read_recipe(
            parsed.recipe,
            variant=parsed.variant,
            images=parsed.images,
            settings=parsed.set,
        )
    settings = recipe.fit
    if parsed.steps is not None:
        settings = settings.with_steps(parsed.steps)
    if parsed.minutes is not None:
        settings = settings.with_minutes(parsed.minutes)
    if parsed.seed is not None:
        settings = dataclasses.replace(settings, seed=parsed.seed)
    recipe = dataclasses.replace(recipe, fit=settings)
    named = (Path(parsed.recipe).stem, *(parsed.variant or "").split("/"))
    run = parsed.run or Path("runs") / "-".join(filter(None, named))
    results = fit(recipe, run, overwrite=parsed.overwrite, restart=parsed.restart)
    print(f"Trained {trained(results)}.")
    print(summary(results))
    if text := published_text(recipe.published, tested(results)):
        print(text)
    print(f"Run folder: {run} (report.html)")


def _recipes(parsed: argparse.Namespace) -> None:
    from .recipe.files import read_tables, shipped_recipes
    from .recipe.variants import recipe_file
    from .reports.published import listing

    names = shipped_recipes() if parsed.recipe is None else [parsed.recipe]
    for name in names:
        described = recipe_file(read_tables(name), name)
        if parsed.recipe is None:
            count = f" ({len(described.variants)} variants)" if described else ""
            print(f"{name}{count}")
        else:
            print(listing(described) if described else f"{name} is a single recipe.")


def _calibrate(parsed: argparse.Namespace) -> None:
    from tfdml.run_calibration import CALIBRATION

    from .evaluation.calibrate import NoThresholdError, calibrate_run
    from .reports.threshold import calibration_text

    try:
        found = calibrate_run(
            parsed.run,
            precision=parsed.precision,
            false_positive_rate=parsed.false_positive_rate,
            images=parsed.images,
            training_images=parsed.training_images,
        )
    except NoThresholdError as error:
        if not parsed.if_possible:
            raise
        print(f"No threshold was chosen. {error}")
        return
    print(calibration_text(found))
    written = Path(parsed.run) / CALIBRATION
    print(f"Written to {written}. Export and index again to use it.")


def _evaluate(parsed: argparse.Namespace) -> None:
    from .evaluation.against import OldModel
    from .evaluation.evaluate import default_folder, evaluate
    from .evaluation.subject import open_subject
    from .recipe.published import Published
    from .reports.compatibility import compatibility_text
    from .reports.published import published_text
    from .reports.text import evaluation_summary

    subject = open_subject(
        parsed.model,
        parsed.images,
        parsed.split,
        parsed.run,
        parsed.root,
        metric=parsed.metric,
        skip_unreadable=parsed.skip_unreadable,
    )
    old = None if parsed.against is None else OldModel(parsed.against, subject)
    out = parsed.out or default_folder(parsed.model, subject)
    results = evaluate(
        subject,
        out,
        k=parsed.k,
        table=parsed.table,
        rerank=parsed.rerank,
        rerank_neighbors=parsed.rerank_neighbors,
        against=old,
        overwrite=parsed.overwrite,
        keep_embeddings=parsed.keep_embeddings,
    )
    print(evaluation_summary(results))
    if old is not None:
        print(compatibility_text(results["compatibility"]))
    published = Published(**results.get("published", {}))
    if text := published_text(published, results):
        print(text)
    print(f"Written to {out} (report.html)")


def _compare(parsed: argparse.Namespace) -> None:
    from .evaluation.compare import compare
    from .evaluation.comparison_page import (
        check_page_free,
        comparison_text,
        write_comparison,
    )

    out = Path(parsed.out or "comparison.html")
    check_page_free(out)
    comparison = compare(parsed.runs, metrics=parsed.metric)
    print(comparison_text(comparison))
    write_comparison(comparison, out)
    print(f"Curves: {out}")


def _schema(parsed: argparse.Namespace) -> None:
    import json

    from .recipe.schema import recipe_schema

    text = json.dumps(recipe_schema(), indent=1)
    if parsed.out is None:
        print(text)
    else:
        Path(parsed.out).write_text(f"{text}\n", encoding="utf-8")


def _convert(parsed: argparse.Namespace) -> None:
    with Progress("loading"):
        from tfdml.models import convert_weights

        convert_weights(parsed.source, parsed.target, backbone=parsed.backbone)
    print(f"Written to {parsed.target}. Set `weights` in [embedder] to this path.")


def _report(parsed: argparse.Namespace) -> None:
    from .reports.run_page import write_report

    print(write_report(Path(parsed.run)))


if __name__ == "__main__":
    sys.exit(main())

"""Evaluate embeddings: every metric, the report, and the files `compare` reads."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np

from tfdml.files import replace_folder
from tfdml.messages import shown
from tfdml.metrics import (
    PairCounts,
    QueryResults,
    Reranking,
    RetrievalTask,
    bootstrap_interval,
    hubness_of_occurrences,
    k_occurrences,
    match_scores,
    opis,
    pair_counts,
    query_metrics,
    verification_metrics,
)
from tfdml.progress import Progress
from tfdml.run_calibration import read_calibration

from ..environment import environment
from ..json_files import write_json
from ..measure.measure import (
    clustering_of,
    nearest_images,
    split_results,
    task_of,
)
from ..measure.query_files import write_queries, write_roc
from ..recipe.paper_tables import PAPER_TABLES, filled_table
from .against import OldModel
from .asked import Asked, what_to_measure
from .evaluation_page import write_evaluation_report
from .figures import Drawn
from .reranked import asked_rerankings, measured_again
from .subject import Subject

HUB_K = 10


def evaluate(
    subject: Subject,
    out: str | PathLike[str],
    *,
    k: Sequence[int] | None = None,
    table: str | None = None,
    rerank: Sequence[str] | None = None,
    rerank_neighbors: int | None = None,
    against: OldModel | None = None,
    overwrite: bool = False,
    keep_embeddings: bool = False,
) -> dict[str, Any]:
    """Measure everything that applies, and write it to a folder.

    With classes: all metrics of `tfdml.metrics`, each with its interval by resampling
    classes, over queries and over classes, by category and of the categories as
    super-classes; clustering into as many clusters as there are classes (and
    categories); verification of all pairs, where cosines compare; hubness. With
    continuous labels: label distance and nDCG, and hubness.

    Queries without a positive are left out of every mean, and counted.

    The folder holds `metrics.json`, `queries.npz` (the metrics of each query),
    `roc.npz` (verification), `report.html` and, where wanted, `embeddings.npy`. It
    appears once all is measured, and the report after that.

    Args:
        subject: What to evaluate.
        out: The folder.
        k: The k of Precision@k and Recall@k, or of label distance and nDCG; 1 is always
            measured. By default 1, 2, 4, 5, 8, 10, 100 and 1000 and those of the recipe
            of a run, as far as the images are enough.
        table: A name in `training.recipe.paper_tables.PAPER_TABLES`, whose columns are
            measured too and become the member `table`; None for that of the recipe.
        rerank: Names of `training.recipe.tables.RERANKINGS`: retrieval is measured with
            each of them, too, and becomes the member `reranked`; None for those of the
            recipe.
        rerank_neighbors: How many neighbors they look at; by default as the recipe
            says, or 10, and 20 for k-reciprocal.
        against: An old model, to measure whether this one may search its gallery: the
            member `compatibility`.
        overwrite: Whether an evaluation in it may be replaced.
        keep_embeddings: Whether `embeddings.npy` is written, `[N, dimension]`.

    Returns:
        What `metrics.json` holds.

    Raises:
        FileExistsError: The folder exists, and `overwrite` is False or it holds no
            evaluation.
        ValueError: An embedding is not finite, a file of the run is damaged, `k` is out
            of range, or there is no such `table` or re-ranking for the images.
        UnreadableImageError: An image of the report is broken; all else is written.
    """
    folder = Path(out).resolve()
    _check_free(folder, overwrite)
    asked = what_to_measure(subject, k, table)
    rerankings = asked_rerankings(subject, rerank, rerank_neighbors)
    threshold = _threshold(subject)  # which may be damaged: before minutes of work
    above = next(p for p in folder.parents if p.is_dir())
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=above) as scratch:
        new = Path(scratch) / folder.name
        new.mkdir()
        results, drawn = _evaluate_into(
            new, subject, asked, rerankings, keep_embeddings, threshold, against
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(new, folder, Path(scratch) / "replaced")
    # Last, because it needs the images: a broken one costs no more than the report.
    with Progress("drawing figures"):
        write_evaluation_report(folder, results, drawn)
    return results


def default_folder(model: str | PathLike[str], subject: Subject) -> Path:
    """Return the default folder of an evaluation.

    That of the test images of a run goes into the run, where `compare` finds it.
    """
    path = Path(model).resolve()
    if subject.is_test_of_run:
        return path / "evaluation"
    name = path.stem if path.is_file() else path.name
    if name.isdigit():  # the version of a SavedModel
        name = f"{path.parent.name}-{name}"
    if subject.run is not None:
        name = f"{name}-{Path(subject.images).stem}-{subject.split_name}"
    return Path("evaluations") / name


def _check_free(folder: Path, overwrite: bool) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(
            f"{shown(str(folder))} is a file. Choose another folder with --out."
        )
    if not (folder / "queries.npz").is_file() or (folder / "recipe.json").exists():
        raise FileExistsError(
            f"{shown(str(folder))} holds something other than an evaluation, and is "
            "not replaced. Choose another folder with --out."
        )
    if not overwrite:
        raise FileExistsError(
            f"{shown(str(folder))} already holds an evaluation. Choose another folder "
            "with --out, or replace it with --overwrite."
        )


def _evaluate_into(
    folder: Path,
    subject: Subject,
    asked: Asked,
    rerankings: dict[str, Reranking],
    keep_embeddings: bool,
    threshold: float | None,
    against: OldModel | None,
) -> tuple[dict[str, Any], Drawn]:
    """Measure, and write all but the report."""
    stages = _Stages()
    split, data = subject.split, subject.split.data
    with stages.timed("embedding"):
        embeddings = subject.embeddings()
        try:
            task = task_of(split, embeddings)
        except ValueError as error:
            raise ValueError(f"{subject.name}: {error}") from error
    if keep_embeddings:
        np.save(folder / "embeddings.npy", task.embeddings, allow_pickle=False)
    with stages.timed("retrieval"):
        queried = split_results(split, task, asked.ks, metric=subject.metric)
        intervals = _intervals(queried)
    results: dict[str, Any] = {
        "model": subject.name,
        "of": subject.images,
        "split": subject.split_name,
        "images": len(data),
        "gallery": int(data.is_gallery().sum()),
        "classes": len(data.class_names),
        "classes_trained_on": subject.classes_trained_on,
        "dimension": task.embeddings.shape[1],
        "compared_by": subject.metric,
        "queries": len(queried.queries),
        "queries_without_positive": len(queried.without_positive),
        "rule": "queries without a positive are left out of every mean",
        "metrics": queried.means(),
        "intervals": intervals,
    }
    pairs = None
    if not data.is_continuous:
        with stages.timed("clustering"):
            results |= _of_classes(subject, task, queried)
        # Thresholds are those of cosines: distances have no scale of their own.
        if subject.metric == "cosine":
            with stages.timed("verification"):
                pairs, verification = _verification(task)
            results |= verification
        if threshold is not None and pairs is not None:
            with stages.timed("threshold"):
                scores = match_scores(task)
            results["at_threshold"] = {
                "threshold": threshold,
                "gallery": scores.gallery,
                **scores.rates_at(threshold),
            }
    if rerankings:
        results["reranked"] = measured_again(task, asked.ks, rerankings)
    if against is not None:
        with stages.timed("compatibility"):
            results["compatibility"] = against.measured(subject, task)
    if asked.table:
        results["table"] = _table(asked.table, results)
    with stages.timed("hubness"):
        occurrences = _occurrences(subject, task)
    if occurrences is not None:
        results["hubness"] = {"k": HUB_K, **hubness_of_occurrences(occurrences)}
    write_queries(folder, queried, split, subject.names)
    if pairs is not None:
        write_roc(folder, pairs)
    if asked.published.rows:
        results["published"] = dataclasses.asdict(asked.published)
    results |= {
        "seconds": stages.seconds,
        "backend": keras.backend.backend(),
        "environment": environment(),
    }
    write_json(folder / "metrics.json", results)
    drawn = Drawn(
        subject,
        task,
        queried,
        pairs,
        occurrences,
        hub_k=HUB_K,
        threshold=threshold,
    )
    return results, drawn


class _Stages:
    """Show each stage while it goes on, and record how long it took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Show a stage and record its time."""
        began = time.monotonic()
        with Progress(name):
            yield
        self.seconds[name] = round(time.monotonic() - began, 3)


def _intervals(results: QueryResults) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each mean; none for a single class."""
    if len(np.unique(results.classes)) < 2:
        return {}
    return {
        name: bootstrap_interval(values, results.classes)
        for name, values in results.values.items()
    }


def _of_classes(
    subject: Subject, task: RetrievalTask, queried: QueryResults
) -> dict[str, Any]:
    data = subject.split.data
    found: dict[str, Any] = {
        "macro": queried.means(average="macro"),
        "clustering": clustering_of(task, data.labels, subject.metric),
    }
    if data.categories is None or not data.has_categories:
        return found
    found["categories"] = queried.by(data.categories)
    prefix = "recall_at_"
    ks = [int(n.removeprefix(prefix)) for n in queried.values if n.startswith(prefix)]
    by_category = RetrievalTask(
        task,
        data.categories,
        is_query=data.is_query(),
        is_gallery=data.is_gallery(),
        groups=data.sequences,
    )
    of_categories = query_metrics(by_category, ks=ks, metric=subject.metric)
    found["superclasses"] = {
        "metrics": of_categories.means(),
        "clustering": clustering_of(task, data.categories, subject.metric),
    }
    return found


def _table(name: str, results: dict[str, Any]) -> dict[str, Any]:
    metrics, clusters = results["metrics"], results.get("clustering")
    if PAPER_TABLES[name].of_categories and "superclasses" in results:
        of_categories = results["superclasses"]["clustering"]
        return filled_table(name, metrics, of_categories, clusters_of="categories")
    return filled_table(name, metrics, clusters)


def _verification(task: RetrievalTask) -> tuple[PairCounts | None, dict[str, Any]]:
    counts = pair_counts(task)
    if not counts.negatives.any():
        return None, {}  # a single class
    found = verification_metrics(task, counts=counts)
    # A small set has too few pairs for its rates, or for two classes.
    with contextlib.suppress(ValueError):
        found |= opis(task, counts=counts)
    return counts, {"verification": found}


def _occurrences(subject: Subject, task: RetrievalTask) -> np.ndarray | None:
    """Count how often each item of the gallery is among the nearest of a query.

    None if the gallery is too small.
    """
    data = subject.split.data
    asked = np.flatnonzero(data.is_query())
    found, _ = nearest_images(task, asked, HUB_K, subject.metric)
    if found.shape[1] < HUB_K:
        return None
    searched = np.flatnonzero(data.is_gallery())
    return k_occurrences(np.searchsorted(searched, found), len(searched))


def _threshold(subject: Subject) -> float | None:
    """Return the similarity threshold of the run's search, if it has one."""
    if subject.run is None:
        return None
    calibration = read_calibration(subject.run.folder / "embedder.keras")
    return None if calibration is None else calibration.threshold

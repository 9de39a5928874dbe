"""Draw the figures of an evaluation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.metrics import PairCounts, QueryResults, RetrievalTask, roc_curve
from tfdml.plots import (
    plot_convergence,
    plot_embedding_map,
    plot_hubness,
    plot_precision_recall,
    plot_recall_at_k,
    plot_retrieval_gallery,
    plot_roc,
    plot_similarity_histograms,
)

from ..json_files import read_json
from ..measure.measure import nearest_images
from ..reports.page import Figure
from .subject import Subject

_MOST_ON_THE_MAP = 2000
_THUMBNAIL = 48
_ROWS = 8
_HITS = 8


@dataclass(frozen=True)
class Drawn:
    """What the figures show.

    Args:
        subject: What was evaluated.
        task: The checked embeddings of its images.
        queried: The metrics of each query.
        pairs: Pairs by similarity; None without classes or with a single one.
        occurrences: How often each gallery item is among the `hub_k` nearest of a
            query, or None.
        hub_k: The number of neighbors that count.
        threshold: A calibrated similarity, or None.
    """

    subject: Subject
    task: RetrievalTask
    queried: QueryResults
    pairs: PairCounts | None
    occurrences: np.ndarray | None
    hub_k: int
    threshold: float | None = None


def figures(drawn: Drawn) -> Iterator[Figure]:
    """Draw each figure that has data, one after the other.

    Raises:
        UnreadableImageError: A file is broken.
        FileNotFoundError: A file is gone.
    """
    name, queried = drawn.subject.name, drawn.queried
    if queried.first_ranks is not None:
        worst = _worst(queried.first_ranks, queried.classes)
        if len(worst):
            yield Figure(
                "Worst searches",
                "The queries whose first image of their own class ranks lowest, one "
                "per class.",
                plot_retrieval_gallery(_rows(drawn, worst)),
            )
        at_random = np.random.default_rng(0).permutation(len(queried.queries))
        yield Figure(
            "Searches drawn at random",
            "What a user would see, neither the best nor the worst.",
            plot_retrieval_gallery(_rows(drawn, at_random[:_ROWS])),
        )
    roc = None if drawn.pairs is None else roc_curve(drawn.pairs)[:2]
    yield from curves({name: queried}, {name: roc})
    if drawn.pairs is not None:
        yield Figure(
            "Similarity of pairs",
            "The less the two overlap, the better a threshold separates them.",
            plot_similarity_histograms(
                drawn.pairs.scores,
                drawn.pairs.positives,
                drawn.pairs.negatives,
                threshold=drawn.threshold,
            ),
        )
    if drawn.occurrences is not None:
        yield Figure(
            "Hubness",
            f"How often each image is among the {drawn.hub_k} nearest of a query: "
            "hubs are found by many queries they do not belong to, anti-hubs by none.",
            plot_hubness(drawn.occurrences, drawn.hub_k),
        )
    yield _map(drawn)
    if drawn.subject.run is not None:
        yield from convergence({name: drawn.subject.run.folder})


def curves(
    results: Mapping[str, QueryResults],
    rocs: Mapping[str, tuple[np.ndarray, np.ndarray] | None],
) -> Iterator[Figure]:
    """Draw recall, precision and the ROC of one or several models on common axes.

    Args:
        results: What was measured of each query, by model.
        rocs: False and true accept rates by model; None where not measured.
    """
    ranks = {n: r.first_ranks for n, r in results.items() if r.first_ranks is not None}
    if ranks:
        yield Figure(
            "Recall against k",
            "The share of queries with at least one image of their class among the "
            "first k.",
            plot_recall_at_k(ranks),
        )
    precision = {
        name: (found.curve.recall, found.curve.interpolated)
        for name, found in results.items()
        if found.curve is not None
    }
    if precision:
        yield Figure(
            "Precision and recall of the rankings",
            "Of each query's whole ranking, interpolated; the mean over queries.",
            plot_precision_recall(precision),
        )
    measured = {name: roc for name, roc in rocs.items() if roc is not None}
    if measured:
        missing = ", ".join(name for name, roc in rocs.items() if roc is None)
        yield Figure(
            "Verification of pairs",
            "Two images count as one class if their similarity is above a threshold."
            + f" Not measured: {missing}; `evaluate` does." * bool(missing),
            plot_roc(measured),
        )


def convergence(runs: Mapping[str, Path]) -> Iterator[Figure]:
    """Draw Figure 4 of Lu et al., ICCV 2019, of the runs that have its data.

    Args:
        runs: Run folders by name.
    """
    on: dict[str, dict[str, _Curve]] = {"validation": {}, "test": {}}
    for name, folder in runs.items():
        for images, curve in _training_curves(folder).items():
            on[images][name] = curve
    for images, curves in on.items():
        if not curves:
            continue
        yield Figure(
            "Training" if images == "validation" else "Training, on test images",
            "The same values against iterations and against the triplets sampled so "
            "far: of top-k precision its misplaced pairs, else all of the batches."
            + " No weights were chosen by them."
            * (images == "test"),
            plot_convergence(
                *({name: c[i] for name, c in curves.items()} for i in range(3)),
                metric=f"Precision@1 on {images}",
            ),
        )


_Curve = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Values, iterations and triplets of a run."""


def _training_curves(folder: Path) -> dict[str, _Curve]:
    """Return the curves that a run has, on validation and on test images."""
    history, recipe, results = (
        _json(folder / f"{n}.json") for n in ("history", "recipe", "metrics")
    )
    triplets = history.get("triplets", [])
    # A run that began before triplets were counted has too few.
    if not recipe or len(triplets) != len(history.get("loss", triplets)):
        return {}
    found: dict[str, _Curve] = {}
    values = history.get("val_precision_at_1", [])
    if values and len(values) == len(triplets):
        about = recipe["fit"]
        steps = about["steps_per_epoch"]
        if not about.get("minutes"):
            steps = min(steps, about["steps"])
        ends = steps * np.arange(1, len(values) + 1)
        # Where time ended the run, its last epoch may be shorter.
        ends = np.minimum(ends, results.get("steps_of_training", ends[-1]))
        found["validation"] = values, ends.tolist(), triplets
    test = history.get("test", {})
    values = test.get("precision_at_1", [])
    if values and triplets:
        of_epochs = [triplets[int(epoch) - 1] for epoch in test["epoch"]]
        found["test"] = values, test["step"], of_epochs
    return found


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _worst(first_ranks: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the queries whose first positive is farthest back, one of each class."""
    order = np.argsort(-first_ranks, kind="stable")
    order = order[first_ranks[order] > 1]
    _, first = np.unique(classes[order], return_index=True)
    return order[np.sort(first)][:_ROWS]


def _rows(drawn: Drawn, chosen: np.ndarray) -> list[Any]:
    """Search with some of the queries, for `plot_retrieval_gallery`."""
    split, data = drawn.subject.split, drawn.subject.split.data
    asked = drawn.queried.queries[chosen]
    found, scores = nearest_images(drawn.task, asked, _HITS, drawn.subject.metric)

    def about(image: int) -> tuple[np.ndarray, str]:
        pixels = split.images.central(split.positions[[image]])[0]
        return pixels, data.class_names[data.labels[image]]

    return [
        (
            *about(query),
            [
                (*about(i), float(score), bool(data.labels[i] == data.labels[query]))
                for i, score in zip(row, scores[q], strict=True)
            ],
        )
        for q, (query, row) in enumerate(zip(asked, found, strict=True))
    ]


def _map(drawn: Drawn) -> Figure:
    split, count = drawn.subject.split, len(drawn.task)
    chosen = np.random.default_rng(0).permutation(count)[:_MOST_ON_THE_MAP]
    images = split.images.central(split.positions[chosen])
    step = max(1, images.shape[1] // _THUMBNAIL)
    labels = None
    if not split.data.is_continuous:
        labels = np.array(split.data.class_names)[split.data.labels[chosen]]
    of = f"{len(chosen):,} of {count:,} images. " if count > len(chosen) else ""
    if drawn.subject.metric != "cosine":
        of += "Similar are those of nearly one direction, whatever their lengths."
    return Figure(
        "Map of the embeddings",
        "t-SNE places similar images side by side; distances across the map mean "
        f"nothing. {of}".strip(),
        plot_embedding_map(
            drawn.task.embeddings[chosen], images[:, ::step, ::step], labels
        ),
    )

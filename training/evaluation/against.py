"""Measure whether the model of an evaluation may search the gallery of an old one."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.messages import shown
from tfdml.metrics import (
    Compatibility,
    QueryResults,
    RetrievalTask,
    backfill_curve,
    backfill_order,
    bootstrap_interval,
    compatibility,
)

from ..json_files import read_json
from ..run.opened_model import OpenedModel
from .subject import Subject, open_beside

SHARES = (0.25, 0.5, 0.75)
"""Shares of the gallery that are embedded again, between none and all."""

_KS = (1, 5)


class OldModel:
    """The model whose gallery another one is to search.

    Args:
        path: As `evaluate` takes a model.
        subject: What is evaluated, with its images.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: It is no model, the images have continuous labels, or its embeddings
            are compared in another way than those of the subject.
    """

    def __init__(self, path: str | PathLike[str], subject: Subject) -> None:
        if subject.split.data.is_continuous:
            raise ValueError(
                "`--against` must be left out for images with continuous labels. "
                f"Received: {shown(str(path))}."
            )
        self._model: OpenedModel = open_beside(Path(path))
        if Path(path).suffix != ".npy" and self._model.metric != subject.metric:
            raise ValueError(
                "`--against` must be a model whose embeddings are compared in the same "
                f"way, here by {subject.metric}. Received: {shown(str(path))}, whose "
                f"embeddings are compared by {self._model.metric}."
            )
        splits = Path(path) / "splits.json"
        trained = read_json(splits)["train"] if splits.is_file() else []
        found = set(trained).intersection(subject.split.data.class_names)
        self._classes_trained_on = len(found)

    def measured(self, subject: Subject, task: RetrievalTask) -> dict[str, Any]:
        """Measure old and new queries on an old, a new and a mixed gallery.

        Args:
            subject: What is evaluated.
            task: Its checked embeddings.

        Returns:
            Values that JSON can hold, as `training.reports.compatibility` reads them.

        Raises:
            ValueError: The old embeddings have another dimension.
        """
        data = subject.split.data
        own = task.embeddings.shape[1]
        if self._model.dimension is not None:  # before minutes of work
            self._check_dimension(self._model.dimension, subject, own)
        old = self._model.embed_others(subject.split)
        self._check_dimension(old.shape[-1], subject, own)
        most = int(task.compared_counts[task.has_positive].min())
        about: dict[str, Any] = {
            "labels": data.labels,
            "ks": [k for k in _KS if k <= most],
            "metric": subject.metric,
            "is_query": None if data.roles is None else data.is_query(),
            "is_gallery": None if data.roles is None else data.is_gallery(),
            "groups": data.sequences,
        }
        found = compatibility(old, task.embeddings, **about)
        orders = {
            "random": np.random.default_rng(0).permutation(len(data)),
            "by_class": backfill_order(old, data.labels, metric=subject.metric),
        }

        def curve(order: np.ndarray) -> list[dict[str, float]]:
            rows = (old, task.embeddings)
            between = backfill_curve(*rows, order=order, shares=SHARES, **about)
            return [r.means() for r in (found.new_on_old, *between, found.new_on_new)]

        return {
            "old_model": self._model.name,
            "classes_old_model_trained_on": self._classes_trained_on,
            **_measured(found),
            "backfill": {
                "shares": [0.0, *SHARES, 1.0],
                **{name: curve(order) for name, order in orders.items()},
            },
        }

    def _check_dimension(self, dimension: int, subject: Subject, own: int) -> None:
        if dimension != own:
            raise ValueError(
                "`--against` must be a model of the same dimension, or the embeddings "
                "of the two cannot be compared. Received: "
                f"{shown(self._model.name)} of dimension {dimension}, and "
                f"{shown(subject.name)} of {own}."
            )


def _measured(found: Compatibility) -> dict[str, Any]:
    """Return the means of the three measurements, their intervals and differences."""
    by_name: dict[str, QueryResults] = vars(found)
    several = len(np.unique(found.old_on_old.classes)) > 1
    names = list(found.old_on_old.values)
    changes = {n: found.change(n) for n in names} if several else {}
    shares = {n: found.gain_share(n) for n in names} if several else {}
    return {
        "metrics": {name: results.means() for name, results in by_name.items()},
        "intervals": {
            name: {
                n: bootstrap_interval(values, results.classes)
                for n, values in results.values.items()
            }
            for name, results in by_name.items()
        }
        if several
        else {},
        "change": {n: change._asdict() for n, change in changes.items()},
        "gain_share": {n: s._asdict() for n, s in shares.items() if s is not None},
    }

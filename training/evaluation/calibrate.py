"""Choose the threshold of a finished run on its validation images."""

from os import PathLike

import numpy as np

from tfdml.metrics import (
    Calibration,
    RetrievalTask,
    calibrate,
    check_target,
    match_scores,
)
from tfdml.run_calibration import write_calibration

from ..data.split import Split
from ..measure.embed import embed
from ..run.finished_run import read_finished_run


class NoThresholdError(ValueError):
    """The run is sound, but its images allow no threshold."""


def calibrate_run(
    run: str | PathLike[str],
    *,
    precision: float | None = None,
    false_positive_rate: float | None = None,
    images: str | PathLike[str] | None = None,
    training_images: bool = False,
) -> Calibration:
    """Choose a threshold on the validation images of a run and keep it in its folder.

    Every image is a query among all others, or each query in the gallery where the data
    set has such roles. Images of the query's own sequence are
    left out: a threshold that suits neighboring frames would be too low for an image
    that was taken another time.

    In a larger gallery the nearest image of another class is nearer. If the validation
    split is small, the training images can be searched as well: they are of other
    classes than any query.

    An earlier `calibration.json` is replaced; it stays where no threshold is found.

    Args:
        run: What `tfdml fit` wrote.
        precision: The wanted share of correct answers; see `tfdml.metrics.calibrate`.
        false_positive_rate: The wanted share of false positives, in place of it.
        images: Folder or manifest, if the images are no longer those of the recipe.
        training_images: Whether the training images are in the gallery too.

    Returns:
        What was written.

    Raises:
        FileNotFoundError: There is no finished run, or its images are gone.
        NoThresholdError: The run has no validation images or no classes, or the wanted
            rate cannot be reached on them.
        ValueError: The wanted rate is out of range, the run is damaged, or the images
            cannot be used.
    """
    check_target(precision, false_positive_rate)  # before minutes of work
    finished = read_finished_run(run)
    split, _ = finished.split("validation", images)
    data = split.data
    if data.is_continuous:
        raise NoThresholdError(
            f"{run} was trained on continuous labels, which have no positives to "
            "calibrate. A threshold needs classes."
        )
    if not finished.recipe.embedder.unit_length:
        raise NoThresholdError(
            f"{run} has embeddings of any length, and a threshold is a cosine "
            "similarity. Train it with `unit_length` = true in [embedder]."
        )
    if not len(data):
        raise NoThresholdError(
            f"{run} has no validation images to choose a threshold on. Train it with "
            "`validation_fraction` above 0 in [data], or give `images` a manifest "
            'whose `split` is "validation" for classes that it has not seen.'
        )
    splits, is_query, is_gallery = [split], data.is_query(), data.is_gallery()
    if training_images:
        others, _ = finished.split("train", images)
        splits.append(others)
        is_query = np.append(is_query, np.zeros(len(others.data), bool))
        is_gallery = np.append(is_gallery, np.ones(len(others.data), bool))
    embedder = finished.embedder()
    rows = np.concatenate([embed(embedder, some) for some in splits])
    labels = [np.array(some.data.class_names)[some.data.labels] for some in splits]
    task = RetrievalTask(  # a NaN is an error of the run, not of its images
        rows,
        np.concatenate(labels),
        is_query=is_query,
        is_gallery=is_gallery,
        groups=_sequences(splits),
    )
    try:
        found = calibrate(
            match_scores(task),
            precision=precision,
            false_positive_rate=false_positive_rate,
        )
    except ValueError as error:
        raise NoThresholdError(str(error)) from error
    write_calibration(finished.folder / "embedder.keras", found)
    return found


def _sequences(splits: list[Split]) -> np.ndarray | None:
    sequences = [split.data.sequences for split in splits]
    known = [names for names in sequences if names is not None]
    return np.concatenate(known) if len(known) == len(sequences) else None

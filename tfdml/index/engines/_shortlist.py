"""Choose a shortlist that reaches a recall, for codes that were asked for."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from tfdml._core.arguments import one_of, whole
from tfdml.index._recall import MeasuredRecall, RecallTarget
from tfdml.index.engines._exact import ExactRows
from tfdml.index.engines._faiss import import_faiss
from tfdml.index.engines._rescored import RescoredSearcher
from tfdml.index.engines._samples import (
    FEW,
    K,
    Sample,
    Searcher,
    draw_samples,
    has_reached,
    may_reach,
    measured,
    recalls_of,
)
from tfdml.index.engines._settings import (
    CodeKind,
    Codes,
    Engine,
    EngineLimits,
    IndexSettings,
    code_settings,
    exact_settings,
)
from tfdml.messages import shown
from tfdml.neighbors import Metric

_MOST = 4  # a shortlist of more than one row in so many saves nothing
_LOGGER = logging.getLogger(__name__)


def searcher_of_codes(
    gallery: NDArray[np.float32],
    *,
    metric: Metric,
    codes: Codes,
    target: RecallTarget | None,
    limits: EngineLimits,
) -> Searcher:
    """Build a searcher by codes with the shortest shortlist that reaches a recall.

    Args:
        gallery: Embeddings `[N, D]`, finite, `N` at least 1; not copied.
        metric: `"cosine"` or `"dot_product"`.
        codes: What was asked for.
        target: What is to be reached; None for the usual shortlist, of which nothing is
            measured.
        limits: From how many rows codes are worthwhile.

    Returns:
        The searcher. It is exact for few rows, where no shortlist of at most a quarter
        of the rows reaches the target, and as a stand-in without FAISS.
    """
    rows = len(gallery)
    recall = None if target is None else MeasuredRecall.of_exact(target)
    if rows < limits.codes_from:
        reason = f"{rows} rows are fewer than {limits.codes_from}."
        return ExactRows(gallery, exact_settings(reason), metric=metric, recall=recall)
    try:
        import_faiss()
    except ImportError as error:
        _LOGGER.warning(
            "%d items are compared with every query, because FAISS, which their codes "
            'need, is not here: pip install "tfdml[faiss]".',
            rows,
        )
        reason = str(error).partition(" Install it")[0]
        settings = exact_settings(reason, is_stand_in=True)
        return ExactRows(gallery, settings, metric=metric, recall=recall)
    settings = code_settings(codes, f"{codes} were asked for.")
    searcher = RescoredSearcher.of_rows(gallery, settings, metric=metric)
    if target is None:
        return searcher
    exact = ExactRows(gallery, exact_settings(""), metric=metric)
    choosing, measuring = draw_samples(gallery, exact, target)
    most = 0.0
    for length in _lengths(rows):
        tried = searcher.using(replace(settings, reorder=length))
        recalls = _tried(tried, choosing, target.value)
        most = max(most, float(recalls.mean()))
        if not has_reached(recalls, target.value):
            continue
        recalls = recalls_of(tried, measuring)
        if recalls.mean() >= target.value:
            reason = (
                f"{codes} were asked for. {length} of {rows} items are the shortest "
                f"shortlist that reaches recall@{K} {target.value:g}: scoring them "
                f"with all numbers found {recalls.mean():.4f} of the neighbors."
            )
            chosen: IndexSettings = replace(tried.settings, reason=reason)
            return searcher.using(chosen, recall=measured(recalls, target))
    reason = (
        f"{codes} were asked for, but no shortlist of up to {rows // _MOST} of {rows} "
        f"items reached recall@{K} {target.value:g}. The most that was reached: "
        f"{most:.3f}."
    )
    _LOGGER.warning("%s A query is compared with all items.", reason)
    return exact.using(exact_settings(reason), recall=recall)


def checked_codes(
    kind: CodeKind | None, dimensions: int | None, metric: Metric, engine: Engine | None
) -> Codes | None:
    """Check what codes were asked for; see `LocalIndex.build`.

    Raises:
        ValueError: They make no sense, by themselves or with the rest.
        ImportError: FAISS cannot be imported.
    """
    if kind is None:
        if dimensions is not None:
            raise ValueError("`code_dimensions` must come with `codes`.")
        return None
    one_of("codes", kind, get_args(CodeKind))
    allowed = ("cosine",) if kind == "binary" else ("cosine", "dot_product")
    if metric in get_args(Metric) and metric not in allowed:
        raise ValueError(
            f"`metric` must be {' or '.join(map(repr, allowed))} with codes="
            f"{shown(kind)}. Received: metric={shown(metric)}."
        )
    if engine not in (None, "faiss"):
        raise ValueError(
            "`engine` must be 'faiss' or left out with `codes`. Received: "
            f"engine={shown(engine)}."
        )
    if dimensions is not None:
        dimensions = whole("code_dimensions", dimensions)
    elif kind == "float32":
        raise ValueError(
            "`code_dimensions` must be given with codes='float32', which would hold "
            "all numbers otherwise."
        )
    import_faiss()
    return Codes(kind, dimensions)


def check_code_dimensions(codes: Codes | None, dimension: int) -> None:
    """Check that codes are of fewer dimensions than there are.

    Raises:
        ValueError: They are of more, or the float32 ones of all.
    """
    if codes is None or codes.dimensions is None:
        return
    most = dimension - (codes.kind == "float32")
    if codes.dimensions > most:
        raise ValueError(
            f"`code_dimensions` must be from 1 to {most} with {dimension} dimensions "
            f"and codes={shown(codes.kind)}. Received: code_dimensions="
            f"{codes.dimensions}."
        )


def _lengths(rows: int) -> Iterator[int]:
    """Yield the shortlists to try, each 1.4 times as long as the one before."""
    for step in range(2 * rows.bit_length()):
        length = round(K * 2 ** (step / 2))
        if length > rows // _MOST:
            return
        yield length


def _tried(
    searcher: RescoredSearcher, sample: Sample, target: float
) -> NDArray[np.float64]:
    """Measure the recall of each query, of few where these show it to fail."""
    recalls = recalls_of(searcher, sample.part(slice(FEW)))
    rest = sample.part(slice(FEW, None))
    if len(rest.queries) and may_reach(recalls, target):
        recalls = np.concatenate([recalls, recalls_of(searcher, rest)])
    return recalls

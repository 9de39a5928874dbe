"""Choose the similarity above which a search answers with its nearest item."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml.messages import shown
from tfdml.metrics._calibration import Calibration, Target
from tfdml.metrics._intervals import wilson_interval
from tfdml.metrics._task import RetrievalTask


@dataclass(frozen=True, eq=False)
class MatchScores:
    """What a search would answer for each query.

    Args:
        queries: Which items these queries are, int64 `[Q]`, in rising order.
        similarity: Of the nearest gallery item, float32 `[Q]`; -inf where the query is
            compared with none.
        is_positive: Whether that item has the query's class, bool `[Q]`.
        has_positive: Whether the query is compared with any of its class, bool `[Q]`.
        negative_similarity: Of the nearest item of another class, float32 `[Q]`: what a
            query gets if its class is not in the gallery; -inf where there is none.
        gallery: Number of items searched.
    """

    queries: NDArray[np.int64]
    similarity: NDArray[np.float32]
    is_positive: NDArray[np.bool_]
    has_positive: NDArray[np.bool_]
    negative_similarity: NDArray[np.float32]
    gallery: int

    def rates_at(self, threshold: float) -> dict[str, float]:
        """Count what a search with a threshold would answer.

        Args:
            threshold: The least cosine similarity of an answer.

        Returns:
            The counts `queries`, `queries_with_positive`, `answered`, `correct` (the
            answers that are a positive) and `false_positives` (the queries that would
            be answered if their class were not in the gallery), and the shares of
            `calibrate`: `recall`, `false_positive_rate` and `precision`, which is
            missing where no query is answered.

        Example:
            >>> rows = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]
            >>> scores = match_scores(rows, ["cat", "cat", "dog"])
            >>> rates = scores.rates_at(0.7)
            >>> rates["answered"], rates["precision"], rates["recall"]
            (2, 1.0, 1.0)
        """
        # In float32 the threshold could be rounded onto a similarity that it refuses.
        answers = self.similarity.astype(np.float64) >= threshold
        false = int((self.negative_similarity.astype(np.float64) >= threshold).sum())
        answered, correct = int(answers.sum()), int((answers & self.is_positive).sum())
        with_positive = int(self.has_positive.sum())
        rates: dict[str, float] = {
            "queries": len(answers),
            "queries_with_positive": with_positive,
            "answered": answered,
            "correct": correct,
            "false_positives": false,
            "recall": correct / with_positive,
            "false_positive_rate": false / len(answers),
        }
        return rates | ({"precision": correct / answered} if answered else {})


def match_scores(
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike | None = None,
    *,
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> MatchScores:
    """Search every query exactly, in the gallery with and without its own class.

    The similarity is the cosine; that of a zero embedding with all others is 0. The
    query itself is left out by its position, so its duplicates are found. Of items
    that tie, the first in order counts.

    The first 32 neighbors nearly always contain one of another class. Where they do
    not, the gallery is searched again without that class, once per such class. These
    classes have 32 items or more, so they are few, and memory stays that of a copy of
    the gallery.

    Args:
        embeddings: Real finite numbers `[N, dimension]`; or a `RetrievalTask`, which
            holds labels, roles and groups too.
        labels: Class of each item, integers or strings `[N]`.
        is_query: Bool array `[N]`; `None`: all are queries.
        is_gallery: Bool array `[N]`; `None`: all are in the gallery.
        groups: Integers or strings `[N]`: items of the query's own group are not
            compared with it, such as the other frames of its clip. `None` leaves out
            the query alone.

    Returns:
        The similarities of all queries, also of those without a positive.

    Raises:
        ValueError: The shapes do not fit, a number is not finite, or no query is
            compared with its own class, or none with another one; the message names
            the argument that leaves none, and the numbers.

    Example:
        >>> rows = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]
        >>> scores = match_scores(rows, ["cat", "cat", "dog"])
        >>> scores.is_positive.tolist(), scores.has_positive.tolist()
        ([True, True, False], [True, True, False])
        >>> scores.negative_similarity.round(3).tolist()
        [0.0, 0.6000000238418579, 0.6000000238418579]
    """
    task = RetrievalTask.of(
        embeddings, labels, is_query=is_query, is_gallery=is_gallery, groups=groups
    )
    queries, class_of = task.queries, task.class_of
    has_positive = task.has_positive[queries]
    if not has_positive.any():
        raise ValueError(task.why_no_positive())
    items, scores = task.nearest(queries, task.limits.first)
    is_positive = (items >= 0) & (class_of[items] == class_of[queries][:, np.newaxis])
    is_negative = (items >= 0) & ~is_positive
    first = np.arange(len(queries)), is_negative.argmax(axis=1)
    negatives = np.where(is_negative[first], scores[first], np.float32(-np.inf))
    unknown = np.flatnonzero(~is_negative[first])
    for name in np.unique(class_of[queries[unknown]]):
        of_class = unknown[class_of[queries[unknown]] == name]
        others = task.among(task.searched[class_of[task.searched] != name])
        negatives[of_class] = others.nearest(queries[of_class], 1)[1][:, 0]
    if not np.isfinite(negatives).any():
        rule = "`is_query`, `is_gallery` and `groups` must leave a query an item of"
        if task.class_count == 1:
            rule = "`labels` must hold two classes or more: no query has an item of"
        raise ValueError(f"{rule} another class. Received: {task}.")
    return MatchScores(
        queries=queries,
        similarity=scores[:, 0],
        is_positive=is_positive[:, 0],
        has_positive=has_positive,
        negative_similarity=negatives,
        gallery=len(task.searched),
    )


def calibrate(
    scores: MatchScores,
    *,
    precision: float | None = None,
    false_positive_rate: float | None = None,
    least_answers: int = 30,
) -> Calibration:
    """Choose the lowest threshold that reaches a requested rate.

    A search answers with its nearest item if the similarity is at least t. Over
    queries q, with s_q the similarity of the nearest item and n_q that of the nearest
    item of another class:

    - precision(t) = correct answers / answers, the answers being all q with s_q >= t.
      Queries without a positive count: their answers are incorrect.
    - false_positive_rate(t) = share of all q with n_q >= t: those that would be
      answered if their class were not in the gallery.
    - recall(t) = correct answers / queries with a positive.

    The false-positive rate falls as t rises. Precision need not rise, because single
    answers move it up and down. Of the thresholds whose precision reaches the target,
    the one with the most answers is chosen. Only thresholds with `least_answers`
    answers or more are considered: a few answers that happen to be correct prove
    nothing. The threshold lies midway between the last similarity that is accepted and
    the next one below, so rounding changes no answer.

    Precision holds for queries whose class is in the gallery as often as here. The
    false-positive rate does not depend on that. Both get worse in a larger gallery,
    where the nearest item of another class is nearer. The threshold is chosen on these
    scores, so the rate is a little better here than elsewhere: choose on validation
    data, and measure on other data.

    Args:
        scores: From `match_scores`.
        precision: The wanted precision, above 0 and at most 1.
        false_positive_rate: The wanted rate, in place of `precision`; above 0, below 1
            and at least 1 / queries.
        least_answers: Fewest queries, and fewest answers that count as a precision, at
            least 1.

    Returns:
        The threshold, and the rates at it with the interval of the wanted one.

    Raises:
        ValueError: Both targets or none are given, the target is out of range, there
            are too few queries, or no threshold reaches it; the message says what can
            be reached.

    Example:
        >>> scores = MatchScores(
        ...     queries=np.arange(4),
        ...     similarity=np.array([0.9, 0.8, 0.7, 0.6], "float32"),
        ...     is_positive=np.array([True, True, True, False]),
        ...     has_positive=np.array([True, True, True, True]),
        ...     negative_similarity=np.array([0.2, 0.3, 0.1, 0.6], "float32"),
        ...     gallery=4,
        ... )
        >>> found = calibrate(scores, precision=0.9, least_answers=2)
        >>> round(found.threshold, 3), found.precision, found.recall
        (0.65, 1.0, 0.75)

    Reference:
        Grother, Ngan and Hanaoka, Face Recognition Vendor Test (FRVT) Part 2:
        Identification, NISTIR 8271, 2019, section 3: the false-positive rate is the
        FPIR of open-set identification, there with queries of people who are not in the
        gallery.
    """
    target, wanted = check_target(precision, false_positive_rate)
    least = whole("least_answers", least_answers)
    if len(scores.queries) < least:
        raise ValueError(
            f"A calibration needs at least {least} queries. Received: "
            f"{len(scores.queries)}. Take more validation images."
        )
    if target == "precision":
        threshold = _for_precision(scores, wanted, least)
    else:
        threshold = _for_false_positives(scores, wanted)
    found = scores.rates_at(threshold)
    of, among = "false_positives", "queries"
    if target == "precision":
        of, among = "correct", "answered"
    low, high = wilson_interval(int(found[of]), int(found[among]))
    return Calibration(
        threshold=threshold,
        target=target,
        target_value=wanted,
        precision=found["precision"],
        recall=found["recall"],
        false_positive_rate=found["false_positive_rate"],
        low=low,
        high=high,
        queries=int(found["queries"]),
        answered=int(found["answered"]),
        gallery=scores.gallery,
    )


def check_target(
    precision: float | None, false_positive_rate: float | None
) -> tuple[Target, float]:
    """Check which rate is requested and how high, before anything is embedded.

    Args:
        precision: As in `calibrate`, and so is the other.
        false_positive_rate: In place of it.

    Returns:
        Its name and value.

    Raises:
        ValueError: Both or none are given, or the value is out of range.

    Example:
        >>> check_target(0.9, None)
        ('precision', 0.9)
    """
    if (precision is None) == (false_positive_rate is None):
        raise ValueError(
            "Either `precision` or `false_positive_rate` must be given. "
            f"Received: precision={precision}, "
            f"false_positive_rate={false_positive_rate}."
        )
    name: Target = "false_positive_rate" if precision is None else "precision"
    value: Any = false_positive_rate if precision is None else precision
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not (0 < value < 1 or (name == "precision" and value == 1)):
        rule = "above 0 and at most 1" if name == "precision" else "above 0 and below 1"
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={shown(value)}.")
    return name, float(value)


def _for_precision(scores: MatchScores, wanted: float, least: int) -> float:
    order = np.argsort(-scores.similarity, kind="stable")
    order = order[np.isfinite(scores.similarity[order])]
    similarity = scores.similarity[order].astype(np.float64)
    # Queries that tie are answered together.
    ends = np.flatnonzero(np.append(np.diff(similarity) < 0, True))
    ends = ends[ends + 1 >= least]
    if not len(order) or not len(ends):
        raise ValueError(
            f"A precision needs at least {least} answers. Received: {len(order)} "
            "queries that are compared with anything. Take more validation images."
        )
    precisions = np.cumsum(scores.is_positive[order])[ends] / (ends + 1)
    enough = np.flatnonzero(precisions >= wanted)
    if not len(enough):
        best = int(precisions.argmax())
        raise ValueError(
            f"`precision` must be at most {_below(precisions[best])}, the best that a "
            f"threshold reaches ({ends[best] + 1} of {len(scores.queries)} queries "
            f"answered; at least {least} must be). Received: precision={wanted}."
        )
    last = int(ends[enough[-1]])
    return _midway(similarity[last + 1 : last + 2], similarity[last])


def _for_false_positives(scores: MatchScores, wanted: float) -> float:
    count = len(scores.queries)
    if wanted < 1 / count:
        raise ValueError(
            f"`false_positive_rate` must be at least 1 / queries: {count} queries "
            f"cannot measure a smaller one. Received: false_positive_rate={wanted}."
        )
    negatives = -np.sort(-scores.negative_similarity.astype(np.float64))
    allowed = int((np.arange(count) / count <= wanted).sum()) - 1
    refused = negatives[allowed]  # and all that are no higher
    correct = scores.similarity[scores.is_positive].astype(np.float64)
    if not (correct > refused).any():
        reason = "no query finds its class first, at any threshold"
        if len(correct):
            best = float((negatives >= correct.max()).mean())
            reason = f"the lowest with any correct answer is {best:.4g}"
        raise ValueError(
            f"`false_positive_rate` cannot be reached: {reason}. "
            f"Received: false_positive_rate={wanted}."
        )
    seen = np.concatenate((scores.similarity, scores.negative_similarity))
    accepted = float(seen[seen > refused].min())
    return _midway(np.array([refused])[np.isfinite([refused])], accepted)


def _midway(refused: NDArray[np.float64], accepted: float) -> float:
    """Return the middle, or what is accepted where nothing is refused."""
    return float((refused[0] + accepted) / 2 if len(refused) else accepted)


def _below(rate: float) -> float:
    """Round a rate down to one that can be reached."""
    return math.floor(1000 * rate) / 1000

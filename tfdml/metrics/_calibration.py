"""The similarity from which on a search should trust its nearest item."""

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml._arguments import whole
from tfdml.metrics._calibration_record import Calibration, Target
from tfdml.metrics._match_scores import MatchScores

_NORMAL_QUANTILE = 1.959963984540054  # of 0.975: the interval has 95% confidence


def calibrate(
    scores: MatchScores,
    *,
    precision: float | None = None,
    false_positive_rate: float | None = None,
    least_answers: int = 30,
) -> Calibration:
    """Choose the lowest threshold that reaches a wanted rate.

    A search answers with its nearest item where the similarity is at least t. Over
    queries q, with s_q the similarity of the nearest item and n_q of the nearest of
    another class:

    - precision(t) = answers that are right / answers, the answers being all q with
      s_q >= t. Queries without a positive count: their answers are wrong.
    - false_positive_rate(t) = share of all q with n_q >= t: those that would be
      answered if their class were not in the gallery.
    - recall(t) = answers that are right / queries that have a positive.

    The false-positive rate falls as t rises. Precision need not: it goes up and down by
    single answers. The threshold chosen is the one with the most answers whose
    precision reaches the target, and only thresholds with `least_answers` answers are
    looked at: a few answers that happen to be right prove nothing. It lies midway
    between the last similarity that is accepted and the next one below, so that
    rounding changes no answer.

    Precision holds for queries whose class is in the gallery as often as here. The
    false-positive rate does not depend on that. Both get worse in a larger gallery,
    where the nearest item of another class is nearer. The threshold is chosen on these
    scores, so that the rate is a little better here than elsewhere: choose on
    validation data, and measure on other data.

    Args:
        scores: From `match_scores`.
        precision: The precision wanted, above 0 and at most 1.
        false_positive_rate: The rate wanted, in place of `precision`; above 0, below 1
            and at least 1 / queries.
        least_answers: Fewest queries, and fewest answers that count as a precision, at
            least 1.

    Returns:
        The threshold, and the rates at it with the interval of the wanted one.

    Raises:
        ValueError: Not one target alone is given, it is out of range, there are too few
            queries, or no threshold reaches it; the message tells the best that can be
            reached.

    Example:
        >>> scores = MatchScores(
        ...     queries=np.arange(4),
        ...     similarity=np.array([0.9, 0.8, 0.7, 0.6], "float32"),
        ...     is_right=np.array([True, True, True, False]),
        ...     has_positive=np.array([True, True, True, True]),
        ...     negative_similarity=np.array([0.2, 0.3, 0.1, 0.6], "float32"),
        ...     gallery=4,
        ... )
        >>> found = calibrate(scores, precision=0.9, least_answers=2)
        >>> round(found.threshold, 3), found.precision, found.recall
        (0.65, 1.0, 0.75)

    Reference:
        Grother, Ngan and Hanaoka, Face Recognition Vendor Test, part 2: Identification,
        NISTIR 8271, 2019, section 3: the false-positive rate is the FPIR of open-set
        identification, there with queries of people who are not in the gallery.
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
    # In float32 the threshold could be rounded onto a similarity that it refuses.
    answers = scores.similarity.astype(np.float64) >= threshold
    false = int((scores.negative_similarity.astype(np.float64) >= threshold).sum())
    answered, right = int(answers.sum()), int((answers & scores.is_right).sum())
    queries = len(answers)
    counts = (right, answered) if target == "precision" else (false, queries)
    low, high = wilson_interval(*counts)
    return Calibration(
        threshold=threshold,
        target=target,
        target_value=wanted,
        precision=right / answered,
        recall=right / int(scores.has_positive.sum()),
        false_positive_rate=false / queries,
        low=low,
        high=high,
        queries=queries,
        answered=answered,
        gallery=scores.gallery,
    )


def check_target(
    precision: float | None, false_positive_rate: float | None
) -> tuple[Target, float]:
    """Return which rate is wanted and how high, before anything is embedded.

    Args:
        precision: As in `calibrate`, and so is the other.
        false_positive_rate: In place of it.

    Returns:
        Its name and value.

    Raises:
        ValueError: Not one alone is given, or it is out of range.

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
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}.")
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
    precisions = np.cumsum(scores.is_right[order])[ends] / (ends + 1)
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
            f"cannot tell a smaller one. Received: false_positive_rate={wanted}."
        )
    negatives = -np.sort(-scores.negative_similarity.astype(np.float64))
    allowed = int((np.arange(count) / count <= wanted).sum()) - 1
    refused = negatives[allowed]  # and all that are no higher
    right = scores.similarity[scores.is_right].astype(np.float64)
    if not (right > refused).any():
        reason = "no query finds its class first, at any threshold"
        if len(right):
            best = float((negatives >= right.max()).mean())
            reason = f"the lowest at which any query is answered rightly is {best:.4g}"
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
    """Round a rate down, so that it can be asked for."""
    return math.floor(1000 * rate) / 1000


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95% interval of a share by Wilson's score.

    With p = k / n and z = 1.96: (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) /
    (1 + z^2 / n). It is right for few trials and for shares of 0 and 1 too. It takes
    trials for independent; queries of one class share their items, so that with few
    classes the truth is wider (`tfdml.metrics.bootstrap_interval` draws classes).

    Args:
        successes: k, from 0 to n.
        trials: n, at least 1.

    Returns:
        The lower and the upper end, from 0 to 1.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> low, high = wilson_interval(9, 10)
        >>> round(low, 3), round(high, 3)
        (0.596, 0.982)

    Reference:
        Wilson, Probable Inference, the Law of Succession, and Statistical Inference,
        JASA 1927.
    """
    trials, successes = whole("trials", trials), whole("successes", successes, least=0)
    if successes > trials:
        raise ValueError(
            f"`successes` must be at most `trials`. Received: {successes} of {trials}."
        )
    z, p = _NORMAL_QUANTILE, successes / trials
    centre = p + z**2 / (2 * trials)
    half = z * math.sqrt(p * (1 - p) / trials + z**2 / (4 * trials**2))
    scale = 1 + z**2 / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)

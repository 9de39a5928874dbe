"""Compare the queries of a period with the gallery, to see whether they drift from it.

A query is as far from the gallery as its nearest image. What is usual is shown by the
images of the gallery, each with its nearest other one, and by earlier queries. Two such
samples are compared by the two-sample Kolmogorov-Smirnov statistic

    D = max over s of |F(s) - G(s)|,

where F(s) and G(s) are the shares of each sample with a similarity of at most s. It is
0 for equal distributions and 1 for samples that do not overlap.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml.figure_style import COLORS, legend_below, new_figure, plain_axes
from tfdml.index import Index

GALLERY_SAMPLE = 2_000
"""Images of the gallery that are searched with."""

_BLOCK = 1_024


class Share(NamedTuple):
    """A share, and Wilson's interval of it with 95% confidence."""

    share: float
    low: float
    high: float


class Distance(NamedTuple):
    """How far two samples are apart."""

    statistic: float
    """D of the module, from 0 to 1."""
    p_value: float
    """Probability of this D or a larger one for two samples of one distribution."""


@dataclass(frozen=True)
class Sample:
    """Similarities to the nearest image.

    Attributes:
        scores: As the index scores, higher is nearer, float64 `[Q]`, Q at least 1,
            rising.
        threshold: The calibrated threshold; None without a calibration.
    """

    scores: NDArray[np.float64]
    threshold: float | None

    @property
    def median(self) -> float:
        """The middle of the similarities."""
        return float(np.median(self.scores))

    @property
    def lowest(self) -> float:
        """The similarity that 5 % of the queries do not reach."""
        return float(np.quantile(self.scores, 0.05))

    @property
    def without_match(self) -> Share | None:
        """The share below the threshold; None if there is none."""
        if self.threshold is None:
            return None
        from scipy.stats import binomtest

        below = int(np.sum(self.scores < self.threshold))
        found = binomtest(below, len(self.scores))
        low, high = found.proportion_ci(0.95, method="wilson")
        return Share(below / len(self.scores), float(low), float(high))

    def distance(self, other: "Sample") -> Distance:
        """Compare with another sample."""
        from scipy.stats import ks_2samp

        found = ks_2samp(self.scores, other.scores)
        return Distance(float(found.statistic), float(found.pvalue))


@dataclass(frozen=True)
class Drift:
    """The queries of a period beside what is usual.

    Attributes:
        queries: Those of the period.
        gallery: Images of the gallery, each with its nearest other one.
        earlier: Queries from before the period; None if there are none.
    """

    queries: Sample
    gallery: Sample
    earlier: Sample | None

    @property
    def samples(self) -> dict[str, Sample]:
        """The samples by name, that of the period last."""
        named = {"gallery": self.gallery}
        if self.earlier is not None:
            named["earlier queries"] = self.earlier
        return {**named, "queries": self.queries}

    @property
    def distances(self) -> dict[str, Distance]:
        """How far the period is from each of the others, by name."""
        return {
            name: self.queries.distance(sample)
            for name, sample in self.samples.items()
            if sample is not self.queries
        }


def measure_drift(
    index: Index,
    queries: NDArray[np.float32],
    earlier: NDArray[np.float32],
    *,
    threshold: float | None = None,
    seed: int = 0,
) -> Drift:
    """Compare queries with a gallery.

    Args:
        index: The gallery, of at least two images.
        queries: Embeddings of the period, `[Q, D]`, Q at least 1.
        earlier: Those before it, `[E, D]`; may be empty.
        threshold: The calibrated threshold; None without a calibration.
        seed: Of the choice of images of the gallery.

    Raises:
        ValueError: The gallery has fewer than two images, or there is no query.
    """
    if len(index) < 2:
        raise ValueError(
            f"The gallery must have at least 2 images. Received: {len(index)}."
        )
    if not len(queries):
        raise ValueError("There must be at least one query in the period.")
    drawn = np.random.default_rng(seed).permutation(len(index))[:GALLERY_SAMPLE]
    known = _sorted(_of_gallery(index, index.ids[drawn]))
    return Drift(
        Sample(_sorted(_nearest(index, queries)), threshold),
        Sample(known, threshold),
        Sample(_sorted(_nearest(index, earlier)), threshold) if len(earlier) else None,
    )


def _sorted(scores: NDArray[Any]) -> NDArray[np.float64]:
    return np.sort(scores.astype(np.float64))


def _nearest(index: Index, queries: NDArray[np.float32]) -> NDArray[Any]:
    return np.concatenate(
        [
            index.search(queries[start : start + _BLOCK], 1).scores[:, 0]
            for start in range(0, len(queries), _BLOCK)
        ]
    )


def _of_gallery(index: Index, ids: NDArray[Any]) -> NDArray[Any]:
    """Return the score of the nearest other image of each."""
    scores = []
    for start in range(0, len(ids), _BLOCK):
        own = ids[start : start + _BLOCK]
        found = index.search(index.get(own).embeddings, 2)
        # Among equal images, or in a quick search, the first need not be itself.
        is_itself = found.ids[:, 0] == own
        scores.append(np.where(is_itself, found.scores[:, 1], found.scores[:, 0]))
    return np.concatenate(scores)


def draw_drift(drift: Drift) -> Any:
    """Draw which share of each sample has at most a similarity.

    The largest vertical gap between two curves is their D.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure = new_figure(7.0, 3.9)
    axes = figure.subplots()
    looks: tuple[Any, ...] = ("-", (0, (1.4, 1.4)), (0, (5, 1.8)))
    names, lines = [], []
    for place, (name, sample) in enumerate(drift.samples.items()):
        lines += axes.plot(
            *_steps(sample.scores),
            color=COLORS[place],
            linestyle=looks[place],
            linewidth=1.8,
        )
        names.append(f"{len(sample.scores):,} {name}")
    threshold = drift.queries.threshold
    if threshold is not None:
        lines.append(axes.axvline(threshold, color=COLORS[-1], linewidth=1.2))
        names.append(f"threshold {threshold:.4g}")
    axes.set_ylim(0, 100)
    axes.xaxis.get_major_formatter().set_useOffset(False)
    axes.set_xlabel("similarity of the nearest image")
    axes.set_ylabel("% with at most this similarity")
    plain_axes(axes)
    legend_below(figure, lines, names)
    return figure


def _steps(scores: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the corners of the distribution, in percent."""
    shares = 100 * np.arange(len(scores) + 1) / len(scores)
    return np.repeat(scores, 2), np.repeat(shares, 2)[1:-1]

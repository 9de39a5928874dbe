"""Lay out a gallery on a plane with t-SNE, and find its clusters."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tfdml.index import Index, Items
from tfdml.messages import shortened, shown
from tfdml.metrics import cluster
from tfdml.plots import embedding_map

_FORMAT = 1
_METHOD = "t-SNE"
_MOST_CLUSTERS = 24


@dataclass(frozen=True)
class MapPoint:
    """An item on the map.

    Attributes:
        id: Its id in the index.
        x: Its place from left to right, 0 to 1.
        y: Its place in the other direction, 0 to 1.
        cluster: Its cluster, 0 for the largest.
    """

    id: str | int
    x: float
    y: float
    cluster: int


@dataclass(frozen=True)
class MapLayout:
    """A map of a gallery, or of a sample of it.

    Attributes:
        points: The items, in random order: the first n are a sample too.
        of: Number of items in the gallery.
        state: Digest of the items; another gallery has another one.
        is_current: False if the gallery has changed since.
    """

    points: tuple[MapPoint, ...]
    of: int
    state: str
    is_current: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return it in JSON types, for `from_json`."""
        points = [asdict(point) for point in self.points]
        return {
            "format": _FORMAT,
            "method": _METHOD,
            "state": self.state,
            "of": self.of,
            "points": points,
        }

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Create a layout from what `to_json` returned.

        Raises:
            ValueError: It is something else.
        """
        try:
            if (values["format"], values["method"]) != (_FORMAT, _METHOD):
                raise ValueError(f"a map of format {shown(values['format'])}")
            points = tuple(MapPoint(**point) for point in values["points"])
            for point in points:
                if not (0 <= point.x <= 1 and 0 <= point.y <= 1):
                    raise ValueError(f"a point at {point.x}, {point.y}")
            return cls(points, int(values["of"]), str(values["state"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"This is not a map of a gallery: {shortened(error)}."
            ) from error


class Sample(NamedTuple):
    """The items to lay out, their number, their digest, and how they are compared."""

    items: Items
    of: int
    state: str
    metric: Literal["cosine", "squared_euclidean"]


def lay_out(index: Index, *, limit: int = 2_000, seed: int = 0) -> MapLayout:
    """Lay out a gallery on a plane, and find its clusters.

    The places are those of `tfdml.plots.embedding_map`, moved and scaled so that the
    longer side goes from 0 to 1; the shorter side has the same scale, and is centered.
    They follow directions alone, also of embeddings of any length. The clusters are
    those of `tfdml.metrics.cluster`, by the metric of the index, found among the
    embeddings, not among the places: sqrt(n / 2) for n items, rounded, at least 1 and
    at most 24. Equal embeddings may leave fewer.

    Args:
        index: The gallery. It may be empty.
        limit: Most items to lay out, at least 1; a larger gallery is sampled. 2,000
            items take some seconds.
        seed: Seed of the sample, the layout and the clusters, at least 0.

    Returns:
        The layout; the same for the same gallery and seed.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: An argument is out of its range.
    """
    check_whole("limit", limit, 1)
    check_whole("seed", seed, 0)
    return lay_out_sample(sampled(index, limit, seed), seed)


def check_whole(name: str, value: int, least: int) -> None:
    """Check that an argument is a whole number, not below the least.

    Raises:
        ValueError: It is not.
    """
    if type(value) is not int or value < least:
        raise ValueError(
            f"`{name}` must be a whole number of at least {least}. "
            f"Received: {name}={shown(value)}."
        )


def sampled(index: Index, limit: int, seed: int) -> Sample:
    """Draw at most `limit` items of a gallery, which may change meanwhile."""
    while True:
        ids = index.ids
        generator = np.random.default_rng(seed)
        chosen = generator.choice(len(ids), min(limit, len(ids)), replace=False)
        try:
            items = index.get(ids[chosen])
        except KeyError:  # removed meanwhile
            continue
        digest = hashlib.sha256(f"{_FORMAT} {seed} {len(ids)}\n".encode())
        digest.update(json.dumps(items.ids.tolist()).encode())
        digest.update(items.embeddings.tobytes())
        is_distance = index.metric == "squared_euclidean"
        return Sample(
            items,
            len(ids),
            digest.hexdigest(),
            "squared_euclidean" if is_distance else "cosine",
        )


def lay_out_sample(sample: Sample, seed: int) -> MapLayout:
    """Lay out what `sampled` returned, as `lay_out` does."""
    ids, embeddings = sample.items.ids.tolist(), sample.items.embeddings
    if not ids:
        return MapLayout((), 0, sample.state)
    places = _scaled(embedding_map(embeddings, seed))
    count = min(max(1, round(math.sqrt(len(ids) / 2))), _MOST_CLUSTERS)
    found = cluster(embeddings, count, metric=sample.metric, seed=seed)
    clusters = _by_size(found)
    points = (
        MapPoint(item, x, y, number)
        for item, (x, y), number in zip(
            ids, places.tolist(), clusters.tolist(), strict=True
        )
    )
    return MapLayout(tuple(points), sample.of, sample.state)


def _scaled(places: NDArray[np.float32]) -> NDArray[np.float64]:
    """Fit places into the unit square, centered, without distorting them."""
    points = places.astype(np.float64)
    sides = np.ptp(points, axis=0)
    points -= points.min(axis=0)
    if sides.max() > 0:
        points /= sides.max()
        sides /= sides.max()
    return np.clip(points + (1 - sides) / 2, 0, 1)


def _by_size(clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number clusters by size: the largest is 0; ties follow their first item."""
    _, first, which, sizes = np.unique(
        clusters, return_index=True, return_inverse=True, return_counts=True
    )
    numbers = np.empty(len(sizes), np.int64)
    numbers[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return numbers[which]

"""Map a gallery: place its images with t-SNE, and find their clusters.

A layout takes seconds, so a thread computes it and a file keeps it:

    INDEX/map.json      method, state, number of items, place and cluster of each point

The state is a digest of everything that the layout depends on. If the file has another
state, or is damaged, the layout is computed again.
"""

import hashlib
import json
import logging
import math
import threading
import time
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tfdml.files import written
from tfdml.index import Items
from tfdml.index.local import LocalIndex
from tfdml.metrics import cluster
from tfdml.plots import embedding_map

_LOGGER = logging.getLogger(__name__)

_FILE = "map.json"
_FORMAT = 1
_METHOD = "t-SNE"
_MOST_CLUSTERS = 24


class MapError(RuntimeError):
    """The map of a gallery cannot be computed."""


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
                raise ValueError(f"a map of format {values['format']!r}")
            points = tuple(MapPoint(**point) for point in values["points"])
            for point in points:
                if not (0 <= point.x <= 1 and 0 <= point.y <= 1):
                    raise ValueError(f"a point at {point.x}, {point.y}")
            return cls(points, int(values["of"]), str(values["state"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"This is not a map of a gallery: {error}.") from error


class _Sample(NamedTuple):
    items: Items
    of: int
    state: str


def lay_out(index: LocalIndex, *, limit: int = 2_000, seed: int = 0) -> MapLayout:
    """Lay out a gallery on a plane, and find its clusters.

    The places are those of `tfdml.plots.embedding_map`, moved and scaled so that the
    longer side goes from 0 to 1; the shorter side has the same scale, and is centered.
    The clusters are those of `tfdml.metrics.cluster`, found among the embeddings, not
    among the places: sqrt(n / 2) for n items, rounded, at least 1 and at most 24. Equal
    embeddings may leave fewer.

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
    _check_whole("limit", limit, 1)
    _check_whole("seed", seed, 0)
    return _lay_out(_sampled(index, limit, seed), seed)


def _check_whole(name: str, value: int, least: int) -> None:
    if type(value) is not int or value < least:
        raise ValueError(
            f"`{name}` must be a whole number of at least {least}. "
            f"Received: {name}={value!r}."
        )


def _sampled(index: LocalIndex, limit: int, seed: int) -> _Sample:
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
        return _Sample(items, len(ids), digest.hexdigest())


def _lay_out(sample: _Sample, seed: int) -> MapLayout:
    ids, embeddings = sample.items.ids.tolist(), sample.items.embeddings
    if not ids:
        return MapLayout((), 0, sample.state)
    places = _scaled(embedding_map(embeddings, seed))
    count = min(max(1, round(math.sqrt(len(ids) / 2))), _MOST_CLUSTERS)
    clusters = _by_size(cluster(embeddings, count, seed=seed))
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


class GalleryMap:
    """The map of a gallery, computed by a thread on demand.

    Any number of threads may call `get`. A context manager: at its end, `close` is
    called.

    Args:
        index: The gallery; it may change.
        folder: Where to keep the map, the folder of the index. Default: nowhere.
        limit: As in `lay_out`.
        seed: As in `lay_out`.
        rest_seconds: Time between the end of one computation and the next, finite, so
            that a gallery that changes all the time is not computed all the time.

    Raises:
        ValueError: As `lay_out`.
    """

    def __init__(
        self,
        index: LocalIndex,
        folder: str | PathLike[str] | None = None,
        *,
        limit: int = 2_000,
        seed: int = 0,
        rest_seconds: float = 60.0,
    ) -> None:
        self._index = index
        self._file = None if folder is None else Path(folder) / _FILE
        _check_whole("limit", limit, 1)
        _check_whole("seed", seed, 0)
        if not math.isfinite(rest_seconds):
            raise ValueError(
                "`rest_seconds` must be finite. "
                f"Received: rest_seconds={rest_seconds!r}."
            )
        self._limit, self._seed = limit, seed
        self._rest_seconds = rest_seconds
        self._rests_until = -math.inf
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._layout: MapLayout | None = None
        self._failed: tuple[str, Exception] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def get(self) -> MapLayout | None:
        """Return the map of the gallery; None while the first one is computed.

        The first call starts the computation. After a change of the gallery, the last
        map is returned, no longer current, and a call starts to compute the next one if
        enough time has passed. The call itself computes a digest of the sample, in some
        milliseconds.

        Raises:
            MapError: It could not be computed and the gallery has not changed since, or
                `close` was called.
        """
        with self._lock:
            if self._is_closed:
                raise MapError("The map was closed.")
            if self._thread is not None and self._thread.is_alive():
                return self._last()
            sample = _sampled(self._index, self._limit, self._seed)
            if self._layout is None:
                self._layout = self._read(sample.state)
            if self._layout is not None and self._layout.state == sample.state:
                return self._layout
            if self._failed is not None and self._failed[0] == sample.state:
                error = self._failed[1]
                raise MapError(f"The map could not be computed: {error}") from error
            if self._layout is None or time.monotonic() >= self._rests_until:
                self._thread = threading.Thread(
                    target=self._compute, args=(sample,), name="gallery map"
                )
                self._thread.start()
            return self._last()

    def _last(self) -> MapLayout | None:
        """Return the last map of the gallery, if there is one."""
        layout = self._layout
        return None if layout is None else replace(layout, is_current=False)

    def close(self) -> None:
        """Wait for an unfinished computation, up to some seconds."""
        with self._lock:
            self._is_closed = True
        if self._thread is not None:
            self._thread.join()

    def _compute(self, sample: _Sample) -> None:
        try:
            layout = _lay_out(sample, self._seed)
        except Exception as error:  # `get` raises it
            _LOGGER.exception("The map of the gallery could not be computed.")
            self._failed = sample.state, error
            return
        finally:
            self._rests_until = time.monotonic() + self._rest_seconds
        self._write(layout)
        self._layout = layout

    def _read(self, state: str) -> MapLayout | None:
        """Read the file; None if there is no readable one of this state."""
        try:
            if self._file is not None:
                layout = MapLayout.from_json(json.loads(self._file.read_bytes()))
                return layout if layout.state == state else None
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            _LOGGER.warning("%s is computed again: %s", self._file, error)
        return None

    def _write(self, layout: MapLayout) -> None:
        if self._file is None:
            return
        try:
            with written(self._file) as new:
                new.write_text(json.dumps(layout.to_json()), encoding="utf-8")
        except OSError as error:  # a disk that is full or may not be written
            _LOGGER.warning("The map cannot be kept in %s: %s", self._file, error)

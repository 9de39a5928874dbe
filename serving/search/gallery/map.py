"""Compute the map of a gallery in a thread, and keep it in a file.

A layout takes seconds, so a thread computes it and a file keeps it:

    INDEX/map.json      method, state, number of items, place and cluster of each point

The state is a digest of everything that the layout depends on. If the file has another
state, or is damaged, the layout is computed again.
"""

import json
import logging
import math
import threading
import time
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Self

from tfdml.files import written
from tfdml.index import Index
from tfdml.messages import shortened, shown

from .map_layout import (
    MapLayout,
    Sample,
    check_whole,
    lay_out_sample,
    sampled,
)

_LOGGER = logging.getLogger(__name__)

_FILE = "map.json"


class MapError(RuntimeError):
    """The map of a gallery cannot be computed."""


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
        index: Index,
        folder: str | PathLike[str] | None = None,
        *,
        limit: int = 2_000,
        seed: int = 0,
        rest_seconds: float = 60.0,
    ) -> None:
        self._index = index
        self._file = None if folder is None else Path(folder) / _FILE
        check_whole("limit", limit, 1)
        check_whole("seed", seed, 0)
        if not math.isfinite(rest_seconds):
            raise ValueError(
                "`rest_seconds` must be finite. "
                f"Received: rest_seconds={shown(rest_seconds)}."
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
            sample = sampled(self._index, self._limit, self._seed)
            if self._layout is None:
                self._layout = self._read(sample.state)
            if self._layout is not None and self._layout.state == sample.state:
                return self._layout
            if self._failed is not None and self._failed[0] == sample.state:
                error = self._failed[1]
                raise MapError(
                    f"The map could not be computed: {shortened(error)}."
                ) from error
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

    def _compute(self, sample: Sample) -> None:
        try:
            layout = lay_out_sample(sample, self._seed)
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

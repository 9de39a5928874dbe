"""Let the GPU and all cores work at the same time, block by block."""

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tfdml._core.devices import is_out_of_memory
from tfdml._core.exact_search._scores import GpuQueries, PreparedGallery
from tfdml._core.parallel import behind

_PREPARED = 2**24  # numbers of queries prepared at once: 64 MiB
_QUEUED = 2  # blocks that the GPU has at a time: it need not wait for the next


class Block(NamedTuple):
    """Queries that a GPU compares with the gallery at once."""

    queries: NDArray[np.int64]
    """Which, `[B]`."""
    prepared: GpuQueries
    """These queries in its form."""
    size: int
    """At least B: to so many they are filled up."""

    def confirms(
        self,
        gallery: PreparedGallery,
        rows: NDArray[np.int64],
        numbers: NDArray[np.float32],
        scores: NDArray[np.float32],
    ) -> bool:
        """Return whether numbers of the GPU are as near the scores as is relied on.

        They are not where something has it multiply with fewer digits all the same,
        such as `NVIDIA_TF32_OVERRIDE=1`. Warns then.

        Args:
            gallery: The gallery.
            rows: The place in the block of each query, `[P]`.
            numbers: What the GPU computed, `[P]`.
            scores: What `PreparedGallery.scores` returned, `[P]`.
        """
        expected = self.prepared.base[rows] + gallery.sign * numbers.astype(np.float64)
        if (np.abs(expected - scores) <= self.prepared.slack[rows]).all():
            return True
        warnings.warn(
            "The GPU multiplies float32 with fewer digits than exact search relies on, "
            "so the CPU searches, more slowly. Does NVIDIA_TF32_OVERRIDE ask for it?",
            stacklevel=2,
        )
        return False


class Pending(Protocol):
    """What a GPU has been asked for."""

    def fetch(self) -> Any:
        """Wait for it and return it."""


Found = TypeVar("Found", bound=Pending)


def run_blocks(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    chosen: NDArray[np.int64],
    launch: Callable[[Block], Iterator[tuple[Any, Pending]]],
    finish: Callable[[Block, Any, Any], None],
) -> None:
    """Ask a GPU for blocks of queries, and finish each while it computes the next.

    Where its memory is not enough, the rest is left, with a warning.

    Args:
        gallery: The gallery.
        queries: Checked embeddings `[Q, D]`.
        chosen: Which of them are asked for.
        launch: Asks the GPU for a block: yields what `finish` wants to know of each
            request, and the request.
        finish: Gets block, that, and what `fetch` returned; called in threads.
    """
    for _ in behind(
        lambda item: finish(*item), _fetched(gallery, queries, chosen, launch)
    ):
        pass


def _fetched(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    chosen: NDArray[np.int64],
    launch: Callable[[Block], Iterator[tuple[Any, Pending]]],
) -> Iterator[tuple[Block, Any, Any]]:
    waiting: deque[tuple[Block, Any, Pending]] = deque()
    try:
        for block in _blocks(gallery, queries, chosen):
            for asked, pending in launch(block):
                waiting.append((block, asked, pending))
                if len(waiting) == _QUEUED:
                    done, known, ready = waiting.popleft()
                    yield done, known, ready.fetch()
        while waiting:
            done, known, ready = waiting.popleft()
            yield done, known, ready.fetch()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        gallery.warn_of_memory()


def _blocks(
    gallery: PreparedGallery, queries: NDArray[np.float32], chosen: NDArray[np.int64]
) -> Iterator[Block]:
    size = gallery.gpu_queries(len(chosen))
    stretch = max(1, _PREPARED // queries.shape[1] // size) * size
    are_all = np.array_equal(chosen, np.arange(len(queries)))
    for start in range(0, len(chosen), stretch):
        some = chosen[start : start + stretch]
        # A slice spares a copy.
        place = slice(start, start + stretch) if are_all else some
        prepared = gallery.for_gpu(queries, place)
        for first in range(0, len(some), size):
            part = slice(first, first + size)
            yield Block(some[part], prepared.part(part), size)

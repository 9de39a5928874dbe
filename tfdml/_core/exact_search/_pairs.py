"""Score pairs of rows in float64, each on its own."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml._core.embeddings import row_norms, row_products


class Pairs(NamedTuple):
    """Pairs of a query and a gallery row."""

    metric: str
    """As in `PreparedGallery`."""
    queries: NDArray[np.float32]
    """`[Q, D]`; the gallery itself spares their lengths."""
    gallery: NDArray[np.float32]
    """`[N, D]`."""
    gallery_norms: NDArray[np.float64]
    """The lengths of its rows, `[N]`."""
    rows: NDArray[np.int64]
    """Which query each pair has, `[P]`."""
    columns: NDArray[np.int64]
    """Which gallery row, `[P]`."""
    gathered_numbers: int
    """Numbers of each side that are gathered at once."""

    def scores(self) -> NDArray[np.float32]:
        """Return the score of each pair, `[P]`, rounded to float32.

        Raises:
            ValueError: A score is too large for float32.
        """
        scores = self._sums()
        if self.metric == "cosine":
            scores /= self._lengths(least=1)
        with np.errstate(over="ignore"):
            rounded = scores.astype(np.float32)
        if not np.isfinite(rounded).all():
            raise ValueError(
                f"A `{self.metric}` score is too large for float32: scale the "
                "embeddings down."
            )
        return rounded

    def rounded(self, sums: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return what `scores` does, in less time where a GPU has added up.

        A GPU adds in another order. Where that could change the rounding to float32,
        the pair is scored here.

        Args:
            sums: What it added up for each pair, `[P]`.
        """
        # Two sums of D products are each off by D roundings of |q||g|, and those of
        # squares by D of themselves; 8 more pay for the quotient.
        unit = 2 * (8 + self.gallery.shape[1]) * float(np.finfo(np.float64).eps)
        error: Any = unit
        if self.metric == "cosine":
            sums = sums / self._lengths(least=1)
        elif self.metric == "dot_product":
            error = unit * self._lengths()
        else:
            error = unit * sums
        with np.errstate(over="ignore"):
            low = (sums - error).astype(np.float32)
            high = (sums + error).astype(np.float32)
        # Zero has two signs.
        in_doubt = np.flatnonzero((low != high) | (low == 0) | ~np.isfinite(low))
        rows, columns = self.rows[in_doubt], self.columns[in_doubt]
        low[in_doubt] = self._replace(rows=rows, columns=columns).scores()
        return low

    def _lengths(self, *, least: float = 0) -> NDArray[np.float64]:
        """Return the product of the lengths of each pair, or `least` in place of 0."""
        norms = self.gallery_norms
        if self.queries is not self.gallery:
            norms = np.empty(len(self.queries))
            is_used = np.bincount(self.rows, minlength=len(self.queries)) > 0
            used = np.flatnonzero(is_used)
            norms[used] = row_norms(self.queries[used])
        lengths = norms[self.rows] * self.gallery_norms[self.columns]
        lengths[lengths == 0] = least
        return lengths

    def _sums(self) -> NDArray[np.float64]:
        """Add up the products, or the squares of the differences, of each pair."""
        count, dimension = len(self.rows), self.gallery.shape[1]
        sums = np.empty(count)
        step = max(1, min(count, self.gathered_numbers // dimension))
        narrow = np.empty((step, dimension), np.float32)
        wide = np.empty((2, step, dimension))
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            size = part.stop - start
            for array, places, held in (
                (self.queries, self.rows, wide[0]),
                (self.gallery, self.columns, wide[1]),
            ):
                array.take(places[part], axis=0, out=narrow[:size], mode="clip")
                held[:size] = narrow[:size]
            left, right = wide[:, :size]
            if self.metric == "squared_euclidean":
                left -= right
                right = left
            sums[part] = row_products(left, right)
        return sums

"""Cut embeddings to the numbers that an index keeps of each."""

from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.embeddings import embeddings_and_norms, row_norms
from tfdml.index._checks import of_dimension
from tfdml.index._interface import Metric
from tfdml.messages import cut, shown
from tfdml.neighbors import first_dimensions
from tfdml.versioned_folder import IndexFileError

_WHOLE = "embedding_dimension"


class Width(NamedTuple):
    """How many numbers of an embedding an index keeps."""

    kept: int
    """The dimension of the index."""
    whole: int
    """That of the embeddings; the same, unless they were cut."""
    metric: Metric
    """How the index compares."""

    @classmethod
    def of(
        cls, gallery: NDArray[np.float32], dimensions: int | None, metric: Metric
    ) -> tuple[NDArray[np.float32], Self]:
        """Cut a checked gallery, unless `dimensions` is None; return its width too.

        Raises:
            ValueError: As `first_dimensions`.
        """
        whole = gallery.shape[1]
        if dimensions is not None:
            gallery = first_dimensions(gallery, dimensions, metric=metric)
        return gallery, cls(gallery.shape[1], whole, metric)

    @property
    def whole_if_cut(self) -> int | None:
        """The dimension of the embeddings, if it is not that of the index."""
        return None if self.whole == self.kept else self.whole

    def of_rows(self, name: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return checked embeddings in the dimension of the index.

        Args:
            name: The argument's name, for the error.
            rows: Checked embeddings `[N, D]`, whole or cut already.

        Raises:
            ValueError: They have another dimension, or are cut to zeros.
        """
        if rows.shape[1] == self.whole != self.kept:
            return first_dimensions(rows, self.kept, metric=self.metric)
        return of_dimension(name, rows, self.kept, self.whole_if_cut)

    def of_queries(
        self, queries: ArrayLike
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Check queries, cut them, and return their lengths too; see `of_rows`."""
        unit = self.metric == "cosine"
        given, norms = embeddings_and_norms("queries", queries, unit=unit)
        checked = self.of_rows("queries", given)
        return checked, norms if checked is given else row_norms(checked)

    def described(self) -> dict[str, int]:
        """Return what the manifest and `stats` say of it beside the dimension."""
        return {} if self.whole == self.kept else {_WHOLE: self.whole}

    @classmethod
    def read(cls, manifest: dict[str, Any], folder: Path) -> Self:
        """Return what a manifest says.

        Raises:
            IndexFileError: It cannot be.
        """
        kept = manifest["dimension"]
        whole = manifest.get(_WHOLE, kept)
        if type(whole) is not int or whole < kept:
            raise IndexFileError(
                f"The index is damaged: the manifest in {cut(folder)} must have an "
                f"`{_WHOLE}` of at least {kept}. Received: {shown(whole)}."
            )
        return cls(kept, whole, manifest["metric"])

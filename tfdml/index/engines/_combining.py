"""Hand a searcher to ScaNN's operators, for a model that searches in its graph."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfdml.index.engines._exact import ExactRows
from tfdml.index.engines._prepared import PreparedRows
from tfdml.index.engines._samples import Searcher
from tfdml.index.engines._scann import ScannSearcher


def write_scann(
    searcher: Searcher, gallery: NDArray[np.float32], folder: Path, *, unit: bool
) -> None:
    """Write the files of a ScaNN that answers as a searcher does.

    Args:
        searcher: The searcher.
        gallery: Its rows.
        folder: An empty folder.
        unit: Whether it searches by cosine.

    Raises:
        ValueError: It searches with another library.
        ImportError: ScaNN cannot be imported.
    """
    if isinstance(searcher, ExactRows):
        prepared = PreparedRows(gallery, unit=unit)
        searcher = ScannSearcher.of_rows(prepared, searcher.settings)
    if not isinstance(searcher, ScannSearcher):
        raise ValueError(
            "An index that is put into a model must search with ScaNN or compare with "
            f"all. Received: the engine {searcher.engine}. Build it with `scann`."
        )
    searcher.write(folder)

"""Find the engine that can be imported here."""

from collections.abc import Callable
from typing import Any

from tfdml.index.engines._coded import CodedSearcher
from tfdml.index.engines._faiss import FaissSearcher, import_faiss
from tfdml.index.engines._scann import ScannSearcher
from tfdml.index.engines._scann_library import import_scann
from tfdml.index.engines._settings import Engine

CODED: dict[str, tuple[type[CodedSearcher], Callable[[], Any]]] = {
    "scann": (ScannSearcher, import_scann),
    "faiss": (FaissSearcher, import_faiss),
}
"""The engines that compare with codes, the best first, and what imports each."""

NAMES = {"scann": "ScaNN", "faiss": "FAISS", "exact": "our own exact search"}


def engine_here(
    wanted: Engine | None,
) -> tuple[type[CodedSearcher] | None, str]:
    """Return the engine to build with, and why there is none.

    Args:
        wanted: The one to take if it can be imported; None for the best.

    Returns:
        Its searcher and "", or None and the reason.
    """
    if wanted == "exact":
        return None, "Exact search was asked for."
    reasons = []
    for name in sorted(CODED, key=lambda name: name != wanted):
        searcher, load = CODED[name]
        try:
            load()
        except ImportError as error:
            reasons.append(str(error).partition(" Install it")[0])
        else:
            return searcher, ""
    return None, " ".join(reasons)

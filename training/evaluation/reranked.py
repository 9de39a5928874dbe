"""Measure what re-ranking the results of a search gains."""

import time
from collections.abc import Sequence
from typing import Any

from tfdml.messages import shown
from tfdml.metrics import (
    GalleryAugmentation,
    KReciprocal,
    QueryExpansion,
    Reranking,
    RetrievalTask,
    reranked_query_metrics,
)
from tfdml.progress import Progress

from ..recipe.tables import RERANKINGS
from .subject import Subject

_MUTUAL = 20
_NEIGHBORS = 10


def asked_rerankings(
    subject: Subject, names: Sequence[str] | None, neighbors: int | None
) -> dict[str, Reranking]:
    """Check, before anything is embedded, how to rank again.

    Args:
        subject: What is evaluated.
        names: Of `RERANKINGS`; None for those of the recipe of a run.
        neighbors: How many neighbors each looks at; None for the recipe's number, or 10
            and 20 for k-reciprocal.

    Raises:
        ValueError: The images have no classes or too few, or their embeddings are not
            compared by cosine; or there is no such name.
    """
    if subject.run is not None and names is None:
        recipe = subject.run.recipe.evaluation
        names = recipe.rerank
        neighbors = neighbors or recipe.rerank_neighbors or None
    if not names:
        if neighbors is not None:
            raise ValueError("`rerank_neighbors` must come with `rerank`.")
        return {}
    for name in names:
        if name not in RERANKINGS:
            raise ValueError(
                f"`rerank` must be one of {', '.join(RERANKINGS)}. Received: "
                f"{shown(name)}."
            )
    if subject.split.data.is_continuous:
        raise ValueError("`rerank` must be left out without classes.")
    if subject.metric != "cosine":
        raise ValueError(
            "`rerank` must be left out where embeddings are not compared by cosine. "
            f"Received: metric={shown(subject.metric)}."
        )
    most = subject.split.data.largest_k() - 1
    for name in names:
        usual = _MUTUAL if name == "k-reciprocal" else _NEIGHBORS
        k = usual if neighbors is None else neighbors
        if not 1 <= k <= most:
            raise ValueError(
                f"`rerank_neighbors` must be from 1 to {most}, fewer than every query "
                f"is compared with. Received: {shown(k)} for {name}."
            )
    return {name: _reranking(name, neighbors) for name in dict.fromkeys(names)}


def _reranking(name: str, neighbors: int | None) -> Reranking:
    if name == "k-reciprocal":
        k1 = neighbors or _MUTUAL
        return KReciprocal(k1, min(KReciprocal.k2, k1 + 1))
    kind = QueryExpansion if name == "query-expansion" else GalleryAugmentation
    return kind(neighbors or _NEIGHBORS)


def measured_again(
    task: RetrievalTask, ks: Sequence[int], rerankings: dict[str, Reranking]
) -> dict[str, Any]:
    """Measure the retrieval with each re-ranking.

    Args:
        task: The embeddings with classes and roles.
        ks: The k of Precision@k and Recall@k; those beyond the gallery are left out.
        rerankings: What `asked_rerankings` returned.

    Returns:
        By name: its options, its metrics, and the seconds it took to rank and measure.
    """
    allowed = task.compared_counts[task.has_positive].min()
    chosen = [k for k in ks if k <= allowed]
    found = {}
    for name, rerank in rerankings.items():
        began = time.monotonic()
        with Progress(name):
            results = reranked_query_metrics(task, ks=chosen, rerank=rerank)
        found[name] = {
            "options": vars(rerank).copy(),
            "metrics": results.means(),
            "seconds": round(time.monotonic() - began, 3),
        }
    return found

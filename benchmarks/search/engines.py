"""Build an index with each engine, and search it with a setting.

An engine is a function of the gallery, the number of threads and what it is to be
like. It returns a function of queries, `k` and a setting, that returns positions
`[Q, k]`, and ladders of settings, each from the fastest to the most careful. The
libraries are imported by the engine that needs them: peers run in an environment of
their own.
"""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

Search = Callable[[np.ndarray, int, Mapping[str, Any]], np.ndarray]

Ladders = Sequence[Sequence[Mapping[str, Any]]]


class Built(NamedTuple):
    """An engine with its gallery.

    Attributes:
        search: Finds positions `[Q, k]`.
        ladders: Settings that may be given to it, each ladder from the fastest to the
            most careful.
        about: What to note beside the measurements.
        index: The object itself.
    """

    search: Search
    ladders: Ladders
    about: Mapping[str, Any]
    index: Any


def _ours(
    engine: Literal["scann", "faiss"],
) -> Callable[[np.ndarray, int, Mapping[str, Any]], Built]:
    """Our index, on a library."""

    def build(gallery: np.ndarray, threads: int, like: Mapping[str, Any]) -> Built:
        from tfdml.index import LocalIndex

        target = like.get("target", 0.99)
        index = LocalIndex.build(gallery, target_recall=target, engine=engine)
        details = index.stats().details
        about = {"settings": details["settings"], "recall": details["recall"]}

        def search(
            queries: np.ndarray, k: int, setting: Mapping[str, Any]
        ) -> np.ndarray:
            return index.search(queries, k).ids

        return Built(search, [[{}]], about, index)

    return build


def _scann(gallery: np.ndarray, threads: int, like: Mapping[str, Any]) -> Built:
    """ScaNN alone, with the settings that ours has chosen."""
    from tfdml.index.engines import import_scann, tree_training

    builder = import_scann().builder(gallery, 10, "dot_product")
    more: dict[str, int] = {}
    if like["method"] == "tree":
        builder = builder.tree(
            like["leaves"],
            like["leaves_to_search"],
            spherical=like["spherical"],
            **tree_training(like["leaves"]),
        )
        more["leaves_to_search"] = like["leaves_to_search"]
    if like["method"] == "exact":
        builder = builder.score_brute_force()
    else:
        builder = builder.score_ah(
            like["dimensions_per_block"],
            anisotropic_quantization_threshold=like["anisotropic_threshold"],
        ).reorder(like["reorder"])
        more["pre_reorder_num_neighbors"] = like["reorder"]
    searcher = builder.build()
    if threads > 1:
        searcher.set_num_threads(threads - 1)  # the caller works too

    def search(queries: np.ndarray, k: int, setting: Mapping[str, Any]) -> np.ndarray:
        return _batched(searcher, queries, k, more, threads)

    return Built(search, [[{}]], {}, searcher)


def _faiss_flat(gallery: np.ndarray, threads: int, like: Mapping[str, Any]) -> Built:
    return _faiss("Flat", gallery, threads, [[{}]], lambda index, setting: None)


def _faiss_ivf_pq(
    dimensions_per_code: int,
) -> Callable[[np.ndarray, int, Mapping[str, Any]], Built]:
    """Inverted lists, 4-bit codes by fast scan, and exact scores of the best."""

    def build(gallery: np.ndarray, threads: int, like: Mapping[str, Any]) -> Built:
        import faiss

        lists = max(1, round(2 * math.sqrt(len(gallery))))
        codes = gallery.shape[1] // dimensions_per_code
        ladders = [
            [{"nprobe": n, "k_factor": k_factor} for n in _doubling(1, lists)]
            for k_factor in (5, 6, 7, 8, 10, 14, 20, 40)
        ]

        def use(index: Any, setting: Mapping[str, Any]) -> None:
            inverted: Any = faiss.downcast_index(index.base_index)
            inverted.nprobe = setting["nprobe"]
            index.k_factor = setting["k_factor"]

        name = f"IVF{lists},PQ{codes}x4fs,RFlat"
        return _faiss(name, gallery, threads, ladders, use)

    return build


def _faiss_hnsw(gallery: np.ndarray, threads: int, like: Mapping[str, Any]) -> Built:
    def use(index: Any, setting: Mapping[str, Any]) -> None:
        index.hnsw.efSearch = setting["ef"]

    return _faiss("HNSW16", gallery, threads, [_EFS], use)


def _faiss(
    name: str,
    gallery: np.ndarray,
    threads: int,
    ladders: Ladders,
    use: Callable[[Any, Mapping[str, Any]], None],
) -> Built:
    import faiss

    faiss.omp_set_num_threads(threads)
    made = faiss.index_factory(gallery.shape[1], name, faiss.METRIC_INNER_PRODUCT)
    index = faiss.downcast_index(made)
    index.train(gallery)
    index.add(gallery)

    def search(queries: np.ndarray, k: int, setting: Mapping[str, Any]) -> np.ndarray:
        use(index, setting)
        return index.search(queries, k)[1]

    return Built(search, ladders, {"factory": name}, (made, index))


def _hnswlib(gallery: np.ndarray, threads: int, like: Mapping[str, Any]) -> Built:
    import hnswlib

    index = hnswlib.Index(space="ip", dim=gallery.shape[1])
    index.init_index(max_elements=len(gallery), ef_construction=100, M=16)
    index.set_num_threads(threads)
    index.add_items(gallery)

    def search(queries: np.ndarray, k: int, setting: Mapping[str, Any]) -> np.ndarray:
        index.set_ef(setting["ef"])
        return index.knn_query(queries, k)[0]

    return Built(search, [_EFS], {"M": 16, "ef_construction": 100}, index)


def _usearch(gallery: np.ndarray, threads: int, like: Mapping[str, Any]) -> Built:
    from usearch.index import Index

    index = Index(
        ndim=gallery.shape[1],
        metric="ip",
        dtype="f32",
        connectivity=16,
        expansion_add=100,
    )
    index.add(np.arange(len(gallery)), gallery, threads=threads)

    def search(queries: np.ndarray, k: int, setting: Mapping[str, Any]) -> np.ndarray:
        index.expansion_search = setting["ef"]
        keys = index.search(queries, k, threads=threads).keys
        return np.asarray(keys).reshape(len(queries), k)

    return Built(search, [_EFS], {"M": 16, "ef_construction": 100}, index)


def _doubling(first: int, last: int) -> list[int]:
    """List numbers that grow by about the square root of 2, up to the last."""
    numbers = {min(last, round(first * 2 ** (i / 2))) for i in range(64)}
    return sorted(numbers)


_EFS = [{"ef": ef} for ef in _doubling(16, 2_000)]

ENGINES = {
    "tfdml": _ours("scann"),
    "tfdml-faiss": _ours("faiss"),
    "scann": _scann,
    "faiss-flat": _faiss_flat,
    "faiss-ivf-pq2": _faiss_ivf_pq(2),
    "faiss-ivf-pq4": _faiss_ivf_pq(4),
    "faiss-hnsw": _faiss_hnsw,
    "hnswlib": _hnswlib,
    "usearch": _usearch,
}

PEERS = tuple(name for name in ENGINES if name not in ("tfdml", "tfdml-faiss", "scann"))
"""Those that run in the environment of `peer_search.txt`."""


def load(engine: str) -> None:
    """Import the library that an engine needs, before it is measured."""
    if engine in ("tfdml", "scann"):
        from tfdml.index.engines import import_scann

        import_scann()
    else:
        names = {"tfdml-faiss": "faiss"}
        importlib.import_module(names.get(engine, engine.split("-")[0]))


def scann_alone(index: Any, k: int) -> Callable[[np.ndarray], Any]:
    """Return a search of the ScaNN inside an index, with no check around it."""
    searcher = index._table.snapshot.searcher
    settings, inner = searcher.settings, searcher._searcher
    more: dict[str, int] = {}
    if settings.method != "exact":
        more["pre_reorder_num_neighbors"] = settings.candidates(k, len(index))
    if settings.method == "tree":
        more["leaves_to_search"] = settings.leaves_for(k, len(index))
    return lambda queries: _batched(inner, queries, k, more, searcher.threads)


def _batched(
    searcher: Any, queries: np.ndarray, k: int, more: Mapping[str, int], threads: int
) -> np.ndarray:
    if threads == 1 or len(queries) == 1:
        return searcher.search_batched(queries, k, **more)[0]
    size = math.ceil(len(queries) / (4 * threads))
    return searcher.search_batched_parallel(queries, k, **more, batch_size=size)[0]

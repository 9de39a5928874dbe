"""Time evaluation at the size of Stanford Online Products, against floors and peers.

    python -m benchmarks.evaluation --out evaluation.jsonl

Embeddings are drawn around the centers of classes of 2 to 12 items. Each measurement
runs in a process of its own, one after the other, with its peak of memory above the
embeddings; the floor is the bare product of all pairs, block by block, in float32. The
peer is pytorch-metric-learning's AccuracyCalculator with FAISS (`make bench-peers`).

On a GPU each is called four times: the first call, which may compile, counts apart, and
of the others the median. The floors are then those of plain PyTorch on the same card,
where it is installed for CUDA, its TF32 off: product and 10 largest, product and ranks.
"""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.peak import added_memory
from benchmarks.peers import ROOT
from benchmarks.session import bare_parser, card, machine, use_threads, write

PEER = ROOT / ".peers" / "pml" / "bin" / "python"
KS = (1, 10, 100, 1000)
_LARGEST_CLASS = 12
_BLOCK_ELEMENTS = 2**23
_GPU_QUERIES = 4096


def clustered(
    items: int, dimension: int, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw unit embeddings around random centers, float32, and their classes.

    Args:
        items: How many.
        dimension: Of the embeddings.
        spread: Length of an item's way from its center over that of the center.

    Returns:
        Embeddings `[items, dimension]` and labels int64 `[items]`, in random order.
    """
    generator = np.random.default_rng(0)
    sizes = generator.integers(2, _LARGEST_CLASS + 1, items)
    labels = np.repeat(np.arange(items), sizes)[:items]
    labels = generator.permutation(labels)
    rows = generator.standard_normal((items, dimension), dtype=np.float32)
    rows *= spread
    rows += generator.standard_normal((labels.max() + 1, dimension), dtype=np.float32)[
        labels
    ]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, labels


def _floor(rows: np.ndarray, labels: np.ndarray, queries: int) -> None:
    step = max(64, _BLOCK_ELEMENTS // len(rows))
    product = np.empty((step, len(rows)), np.float32)
    for start in range(0, queries, step):
        block = rows[start : min(start + step, queries)]
        np.matmul(block, rows.T, out=product[: len(block)])


def _gpu_floor_nearest(rows: np.ndarray, labels: np.ndarray, queries: int) -> None:
    for _, products in _gpu_products(rows, queries):
        for found in products.topk(10, dim=1):
            found.cpu()


def _gpu_floor_ranks(rows: np.ndarray, labels: np.ndarray, queries: int) -> None:
    import torch

    positives = torch.tensor(_positives(labels), device="cuda")
    for start, products in _gpu_products(rows, queries):
        place = torch.arange(len(products), device="cuda")
        products[place, place + start] = -torch.inf
        mine = positives[start : start + len(products)].clamp(min=0)
        for own in products.gather(1, mine).T:
            (products > own[:, None]).sum(dim=1).cpu()


def _gpu_products(rows: np.ndarray, queries: int) -> Iterator[tuple[int, Any]]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    gallery = torch.tensor(rows, device="cuda")
    for start in range(0, queries, _GPU_QUERIES):
        stop = min(start + _GPU_QUERIES, queries)
        yield start, gallery[start:stop] @ gallery.T


def _positives(labels: np.ndarray) -> np.ndarray:
    """Return the other items of each item's class, -1 after the last one."""
    order = np.argsort(labels, kind="stable")
    classes = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    table = np.full((len(labels), max(map(len, classes)) - 1), -1)
    for items in classes:
        for item in items:
            table[item, : len(items) - 1] = items[items != item]
    return table


def _ranks(rows: np.ndarray, labels: np.ndarray, queries: int) -> dict[str, float]:
    from tfdml.metrics import retrieval_metrics

    ks = [k for k in KS if k < len(rows)]
    return retrieval_metrics(rows, labels, ks, is_query=np.arange(len(rows)) < queries)


def _clusters(rows: np.ndarray, labels: np.ndarray, queries: int) -> dict[str, float]:
    from tfdml.metrics import cluster, clustering_metrics

    return clustering_metrics(cluster(rows, len(np.unique(labels))), labels)


def _pairs(rows: np.ndarray, labels: np.ndarray, queries: int) -> dict[str, float]:
    from tfdml.metrics import verification_metrics

    return verification_metrics(rows, labels)


def _nearest(rows: np.ndarray, labels: np.ndarray, queries: int) -> dict[str, float]:
    from tfdml.neighbors import nearest_neighbors

    own = np.arange(queries)
    found, _ = nearest_neighbors(rows[:queries], rows, 10, exclude=own)
    return {"recall_at_1": float(np.mean(labels[found[:, 0]] == labels[:queries]))}


def _peer(include: tuple[str, ...]) -> Callable[..., dict[str, float]]:
    def measure(rows: np.ndarray, labels: np.ndarray, queries: int) -> dict[str, float]:
        import torch
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

        calculator = AccuracyCalculator(include=include, k="max_bin_count")
        return calculator.get_accuracy(torch.tensor(rows), torch.tensor(labels))

    return measure


CASES: dict[str, Callable[..., Any]] = {
    "floor: the bare product": _floor,
    "retrieval_metrics: all, from ranks": _ranks,
    "nearest_neighbors: 10": _nearest,
    "cluster and clustering_metrics": _clusters,
    "verification_metrics": _pairs,
}
GPU_FLOORS: dict[str, Callable[..., Any]] = {
    "floor on the GPU: product, 10 largest": _gpu_floor_nearest,
    "floor on the GPU: product, ranks": _gpu_floor_ranks,
}
_FLOOR_OF = {"nearest_neighbors: 10": 0, "retrieval_metrics: all, from ranks": 1}
PEER_CASES: dict[str, Callable[..., Any]] = {
    "PML: P@1, R-precision, MAP@R": _peer(
        ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    ),
    "PML: k-means, NMI": _peer(("NMI",)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bare_parser("evaluation", __doc__)
    add = parser.add_argument
    add("--items", type=int, default=60_502, help="embeddings (60502, as SOP)")
    add("--dimension", type=int, default=512, help="of the embeddings (512)")
    add("--queries", type=int, default=0, help="so many search, for floor and search")
    add("--spread", type=float, default=1.8, help="within a class (1.8)")
    add("--threads", type=int, default=2, help="CPU cores to use (2)")
    add("--only", nargs="+", metavar="CASE", help="cases whose name holds one of these")
    add("--here", help="measure this case in this process, and print JSON")
    options = parser.parse_args(arguments)
    use_threads(options.threads)
    size = [options.items, options.dimension, options.spread]
    queries = options.queries or options.items
    if options.here:
        print(json.dumps(_measured(options.here, queries, *size)))
        return 0
    floors = dict.fromkeys(GPU_FLOORS if _has_cuda() else ())
    wanted = [
        name
        for name in (*floors, *CASES, *PEER_CASES)
        if not options.only or any(part in name for part in options.only)
    ]
    about = {**machine(), "threads": options.threads, "queries": queries}
    about |= dict(zip(("items", "dimension", "spread"), size, strict=True))
    print(about)
    print(f"{'':38}{'first s':>9}{'s':>9}{'x floor':>9}{'MB':>8}")
    seconds: dict[str, float] = {}
    failed = False
    for name in wanted:
        record = {"case": name, **about, **_in_a_process(name, options)}
        write(options.out, record)
        if "error" in record:
            failed = True
            print(f"{name:38}{record['error']}")
            continue
        seconds[name] = record["seconds"]
        floor = "floor: the bare product"
        if floors and name in _FLOOR_OF:
            floor = list(floors)[_FLOOR_OF[name]]
        times = seconds[name] / seconds.get(floor, float("nan"))
        megabytes = record["megabytes"]
        print(
            f"{name:38}{record['first']:9.2f}{seconds[name]:9.2f}{times:9.2f}"
            f"{megabytes:8.0f}  "
            + ", ".join(f"{k} {v:.4g}" for k, v in _main(record["values"])),
            flush=True,
        )
    return int(failed)


def _main(values: dict[str, float] | None) -> list[tuple[str, float]]:
    """Return the values that two runs can be compared by."""
    kept = {"precision_at_1", "recall_at_1000", "r_precision", "map_at_r", "NMI"}
    kept |= {"mean_average_precision", "mean_average_precision_at_r", "pair_auc"}
    kept |= {"nmi_arithmetic", "recall_at_1"}
    return [(name, v) for name, v in (values or {}).items() if name in kept]


def _in_a_process(name: str, options: Any) -> dict[str, Any]:
    python = str(PEER) if name in PEER_CASES else sys.executable
    command = [python, "-m", "benchmarks.evaluation", "--here", name]
    for option in ("items", "dimension", "queries", "spread", "threads"):
        command += [f"--{option}", str(getattr(options, option))]
    try:
        run = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return {"error": "no peer here: `make bench-peers` installs it"}
    if run.returncode:
        return {"error": f"exit status {run.returncode}: {run.stderr[-300:]}"}
    return json.loads(run.stdout.splitlines()[-1])


def _measured(
    name: str, queries: int, items: int, dimension: int, spread: float
) -> dict[str, Any]:
    rows, labels = clustered(items, dimension, spread)
    case = {**CASES, **GPU_FLOORS, **PEER_CASES}[name]
    if name in CASES:
        import keras  # noqa: F401  large products then go to its GPU, if it has one
    few = min(2000, items)
    case(rows[:few], labels[:few], few)  # imports what it needs
    seconds: list[float] = []

    def measure() -> Any:
        start = time.perf_counter()
        values = case(rows, labels, queries)
        seconds.append(time.perf_counter() - start)
        return values

    values, added = added_memory(measure)
    if name in GPU_FLOORS or (name in CASES and _computes_on_gpu()):
        for _ in range(3):
            measure()
    usual = float(np.median(seconds[1:] or seconds))
    about = {"first": seconds[0], "seconds": usual, "megabytes": added / 2**20}
    return {**about, "values": values}


def _computes_on_gpu() -> bool:
    import keras

    return card(keras.backend.backend()) is not None


def _has_cuda() -> bool:
    """Return whether PyTorch is installed and has a CUDA card."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    sys.exit(main())

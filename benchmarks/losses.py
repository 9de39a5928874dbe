"""Time of every loss, forward and backward, against the floor and against peers.

    python -m benchmarks.losses --out results.jsonl
    python -m benchmarks.report results.jsonl

The floor is what any pair-based loss must do: the matrix product S = X X^T of unit
rows, and its gradient. Floor and loss are compiled by XLA and run alternately in one
process; the smallest time of each counts. For a loss on proxies or on a memory the
floor is still the product of the batch with itself; the ratio to the bare product with
the proxies, or with batch and memory, is given beside it. KERAS_BACKEND chooses
TensorFlow or JAX. Each peer runs in a process, and a virtual environment, of its own
(`make bench-peers` creates them).
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.peers import PEERS, measured_peer, missing_peers
from benchmarks.session import chosen, machine, parser, use_threads, write
from benchmarks.timing import compiled_gradient, smallest_times

BATCHES = (64, 256, 1024, 4096)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if missing_peers() and not options.no_peers:
        sys.exit(
            f"There is no environment of {missing_peers()}: `make bench-peers` creates "
            "it, `--no-peers` goes without."
        )
    use_threads(options.threads)
    from benchmarks.catalogue import CASES, MANY_POSITIVES, similarity_product

    cases = chosen(CASES, MANY_POSITIVES, options.only)
    about = {**machine(), "threads": options.threads, "dimension": options.dimension}
    print(about)
    failed = False
    for batch in options.batches:
        product = similarity_product(batch, options.dimension)
        floor = compiled_gradient(product.function, product.inputs, product.trained)
        floor()
        print(f"\n{'B':>5}  {'loss':36}{'floor ms':>10}{'ms':>10}{'ratio':>7}")
        for case in cases:
            ours = _ours(case, batch, options, floor)
            failed |= "error" in ours
            for record in [ours, *_theirs(case, batch, options)]:
                record = {"loss": case.name, "batch": batch, **record, **about}
                write(options.out, record)
                print(_line(record, ours.get("ms")), flush=True)
    return int(failed)


def _ours(
    case: Any, batch: int, options: Any, floor: Callable[[], None]
) -> dict[str, Any]:
    """Time the floor, the loss and, where it has one, its own bare product."""
    try:
        problem = case.build(batch, options.dimension)
        functions = {
            "floor_ms": floor,
            "ms": compiled_gradient(problem.function, problem.inputs, problem.trained),
        }
        if problem.product is not None:
            product = problem.product
            functions["product_ms"] = compiled_gradient(
                product.function, product.inputs, product.trained
            )
        for function in functions.values():
            function()  # compiles
        return {"sorts": case.sorts, **smallest_times(functions, options.seconds)}
    except Exception as error:  # one loss that fails must not end the run
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def _theirs(case: Any, batch: int, options: Any) -> Iterator[dict[str, Any]]:
    """Time the same loss of each peer."""
    for peer in () if options.no_peers else PEERS:
        name = getattr(case, peer)
        if name is not None:
            size = batch, options.dimension
            yield measured_peer(peer, name, *size, options.seconds)


def _line(record: dict[str, Any], ours: float | None) -> str:
    start = f"{record['batch']:5}  {record['loss']:36}"
    if "peer" in record:
        start = f"{'':7}{record['peer']:46}"
    if "error" in record:
        return f"{start}{record['error']}"
    if "peer_over" in record:
        return f"{start}over {record['peer_over']}"
    if "peer_ms" in record:
        times = f", {record['peer_ms'] / ours:.1f} times ours" if ours else ""
        return f"{start}{record['peer_ms']:10.2f}  {record['mode']}{times}"
    ratio = record["ms"] / record["floor_ms"]
    line = f"{start}{record['floor_ms']:10.2f}{record['ms']:10.2f}{ratio:7.2f}"
    if "product_ms" in record:
        ratio = record["ms"] / record["product_ms"]
        line += f"  own product {record['product_ms']:.2f}: {ratio:.2f}"
    return line


def _options(arguments: Sequence[str] | None) -> Any:
    made = parser("losses", __doc__)
    add = made.add_argument
    add("--batches", type=int, nargs="+", default=BATCHES, help="sizes (64 to 4096)")
    add("--no-peers", action="store_true", help="our losses alone")
    add("--seconds", type=float, default=3.0, help="for each loss and batch (3)")
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Measure the peak memory of every loss, forward and backward, under XLA on a CPU.

    python -m benchmarks.memory --out memory.jsonl
    python -m benchmarks.report memory.jsonl

Each loss runs in a process of its own, on TensorFlow. After a first call, which
compiles, the peak of the resident memory is set back; what a second call adds to the
memory that was in use before it is given in matrices of B x B float32 numbers, and in
the loss's own matrices, which differ for a loss on proxies or on a memory.
"""

import json
import os
import subprocess
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peak import added_memory
from benchmarks.session import chosen, machine, parser, use_threads, write

ROOT = Path(__file__).parents[1]
# TensorFlow would keep freed memory in a pool, and a second call would add none.
ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "TF_ENABLE_ONEDNN_OPTS": "0"}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    os.environ.update(ENVIRONMENT)
    use_threads(options.threads)
    from benchmarks.catalogue import CASES, MANY_POSITIVES, Case, similarity_product

    cases = [Case("floor", similarity_product), *CASES, *MANY_POSITIVES]
    cases = chosen(cases, [], options.only)
    if options.here:
        print(json.dumps(_extra(cases[0], options.batch, options.dimension)))
        return 0
    about = {**machine(), "threads": options.threads, "dimension": options.dimension}
    print(about)
    print(f"{'peak at B = ' + str(options.batch):44}{'B x B':>8}{'own':>8}")
    failed = False
    for case in cases:
        record = {"loss": case.name, "batch": options.batch, **about}
        record |= _in_a_process(case.name, options.batch, options.dimension)
        failed |= "error" in record
        write(options.out, record)
        shown = record.get("error")
        if shown is None:
            own = record["matrices"] / record["own_size"]
            shown = f"{record['matrices']:8.1f}{own:8.1f}"
        print(f"{case.name:44}{shown}", flush=True)
    return int(failed)


def _in_a_process(name: str, batch: int, dimension: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", "--here", "--only", name]
    command += ["--batch", str(batch), "--dimension", str(dimension)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        return {"error": f"exit status {run.returncode}: {run.stderr[-200:]}"}
    return json.loads(run.stdout)


def _extra(case: Any, batch: int, dimension: int) -> dict[str, float]:
    """Measure the peak, and say how many B x B matrices the loss's own matrix is."""
    from benchmarks.timing import compiled_gradient

    problem = case.build(batch, dimension)
    function = compiled_gradient(problem.function, problem.inputs, problem.trained)
    function()  # compiles
    _, peak = added_memory(function)
    own = batch**2 if problem.product is None else problem.product.inputs[-1].size
    return {"matrices": peak / (4 * batch**2), "own_size": own / batch**2}


def _options(arguments: Sequence[str] | None) -> Any:
    made = parser("memory", __doc__)
    made.add_argument("--batch", type=int, default=4096, help="its size (4096)")
    made.add_argument("--here", action="store_true", help=SUPPRESS)
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""The search against other libraries, under changes, under kills, and in the browser.

    python -m benchmarks.search speed --out search.jsonl
    python -m benchmarks.search footprint
    python -m benchmarks.search codes
    python -m benchmarks.search churn
    python -m benchmarks.search kill --times 50
    python -m benchmarks.search page
    python -m benchmarks.search metrics
    python -m benchmarks.search rows --beside ../before

speed: recall, queries a second, build time and memory of the index through its
interface, of ScaNN alone at the same settings, and of FAISS, hnswlib and usearch. The
peers run in an environment of their own: `make .peers/search/installed`.

footprint: memory of a process that opens an index and answers a search. codes: memory,
time and recall of short codes with rescoring, against exact search in the same run.

churn: items are added and removed while others search; every answer is checked, and
recall is measured whenever the writer waits. kill: a process that changes a saved index
is killed at random moments; what it had acknowledged must be there. page: a gallery of
drawn images, the endpoint and the page as processes, and Chromium; the model has
random weights. metrics: CPU time of a search on a page with metrics and on one without,
in turn. rows: ids and attributes of a million rows, against polars and the tfdml
of another checkout.

Exit status 1 means that something failed, was wrong or was lost.
"""

import sys
from collections.abc import Sequence

from benchmarks.session import run_command_of

_COMMANDS = ("speed", "footprint", "codes", "churn", "kill", "page", "metrics", "rows")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command_of("search", __doc__, _COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(main())

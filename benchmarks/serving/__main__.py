"""The endpoint under load: throughput, half an hour of it, new versions, a restart.

    python -m benchmarks.serving throughput
    python -m benchmarks.serving soak --minutes 30
    python -m benchmarks.serving swap --seconds 300 --every 20
    python -m benchmarks.serving restart
    python -m benchmarks.serving upgrade

Servers, clients and the floor share the cores of this machine, over its loopback
address. Models have random weights, which changes neither work nor size.

throughput: concurrent clients that ask for one image each, against the SavedModel
called directly with the best batch size and number of threads. The clients are h2load
(Debian's nghttp2-client) where it is installed, which takes least of the cores.

soak: mixed requests of which some are bad, each answer compared, and the server's
memory. swap: new versions appear and old ones go under load. restart: the process is
killed and started again at once, as a supervisor does. upgrade: a gallery goes from one
model to another and back while visitors search it, and the upgrades are killed.

Exit status 1 means that an answer was wrong or missing.
"""

import sys
from collections.abc import Sequence

from benchmarks.session import run_command_of

_COMMANDS = ("throughput", "soak", "swap", "restart", "upgrade")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command_of("serving", __doc__, _COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(main())

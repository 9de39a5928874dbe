r"""The papers' tables in small: losses on emoji, furniture and poses, over seeds.

    python -m benchmarks.papers pack emoji data/emoji build/papers/emoji.npz
    python -m benchmarks.papers run --packed build/papers --weights mobilenet.h5 \
        --out results.jsonl
    python -m benchmarks.papers tables results.jsonl

pack: a data set becomes one file of small JPEGs, which can be carried to the machine
that trains. run: the runs of the studies (`--study`), several processes side by side,
those that take times alone at the end; what the file of results (`--out`) has already
is left out, so that a command that was ended goes on. The learning rate of each loss is
chosen on validation classes from one small grid; the reported values are of test
classes, after the last step. The status is 1 where a result is missing.
tables: the results as Markdown. figures: the results as images.

With KERAS_BACKEND=jax nothing here needs TensorFlow.
"""

import sys
from collections.abc import Sequence

from benchmarks.session import run_command_of

_COMMANDS = ("pack", "run", "tables", "figures")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command_of("papers", __doc__, _COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Measure the floor: the SavedModel called directly, in its own process.

    python -m benchmarks.serving.floor VERSION_FOLDER IMAGE...

It reads requests from its input, one JSON object a line (`batch`, `threads`, `seconds`,
`image`, `pause`), measures, and answers with one line each.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.serving.latency import latency

ROOT = Path(__file__).parents[2]


class Floor:
    """The process, from the side that asks.

    Args:
        version: Folder of the version.
        images: Files of the images; `measure` names them by position.
    """

    def __init__(self, version: Path, images: Sequence[Path]) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.serving.floor", str(version)),
                *map(str, images),
            ],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(
        self,
        batch: int,
        threads: int,
        seconds: float,
        image: int = 0,
        pause: float = 0,
    ) -> dict[str, Any]:
        """Call the model for a while.

        Args:
            batch: Copies of the image in each call.
            threads: Threads that call at one time.
            seconds: How long.
            image: Position of the image.
            pause: Seconds that a thread sleeps before each call. A server waits for
                its client between two requests, and what TensorFlow had in the caches
                and its threads that were awake are gone when the next one comes.

        Returns:
            `rate`, images a second, without the pauses; `cpu_ms`, CPU time of an
            image; `samples`, `p50_ms` and `p99_ms` of the calls as `latency` has them.
        """
        asked = {
            "batch": batch,
            "threads": threads,
            "seconds": seconds,
            "image": image,
            "pause": pause,
        }
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("The process of the floor has no pipes.")
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The floor ended with status {self._process.wait()}.")
        return json.loads(line)

    def __enter__(self) -> Self:
        """Return the floor itself; the end of the block ends its process."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()  # waits, and closes the pipes


def main(arguments: Sequence[str] | None = None) -> int:
    import tensorflow as tf

    folder, *files = sys.argv[1:] if arguments is None else arguments
    model = tf.saved_model.load(folder)
    embed = model.signatures["serving_default"]
    images = [Path(file).read_bytes() for file in files]

    def call(batch: list[bytes]) -> None:
        embed(image_bytes=tf.constant(batch))["embedding"].numpy()

    for line in sys.stdin:
        asked = json.loads(line)
        batch = [images[asked["image"]]] * asked["batch"]
        call(batch)
        measured = _measure(lambda: call(batch), asked)  # noqa: B023
        print(json.dumps(measured), flush=True)
    return 0


def _measure(call: Any, asked: dict[str, Any]) -> dict[str, Any]:
    times: list[float] = []
    pause, count = asked["pause"], asked["threads"]
    start, cpu = time.perf_counter(), time.process_time()
    end = start + asked["seconds"]

    def work() -> None:
        while time.perf_counter() < end:
            if pause:
                time.sleep(pause)
            before = time.perf_counter()
            call()
            times.append(time.perf_counter() - before)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    if pause:
        seconds = sum(times) / count
    images = len(times) * asked["batch"]
    return {
        "rate": images / seconds,
        "cpu_ms": 1000 * cpu / images,
        **latency([1000 * took for took in times]),
    }


if __name__ == "__main__":
    sys.exit(main())

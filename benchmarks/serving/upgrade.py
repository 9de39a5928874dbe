"""Upgrade a gallery under load, and kill the upgrades: wrong answers, seconds."""

import argparse
import base64
import collections
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.page_process import ROOT, running_page
from benchmarks.serving.model import export_model
from benchmarks.serving.process import NAME, running_server
from benchmarks.session import machine, write

_QUERIES = 32
_K = 5
_DIFFERENCE = 1e-4  # of one image embedded twice, in another batch
_MOST_EXAMPLES = 20
_CLASSES = 100
_MODELS = """model_config_list {{ config {{
  name: "{name}" base_path: "{base}" model_platform: "tensorflow"
  model_version_policy {{ all {{ }} }}
}} }}
"""

Hits = tuple[list[str], list[float]]


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--images", type=int, default=10_000, help="in the gallery (10,000)")
    add("--upgrades", type=int, default=20, help="from one model to the other (20)")
    add("--kills", type=int, default=20, help="of upgrades under way, in all (20)")
    add("--rollbacks", type=int, default=5, help="at the end (5)")
    add("--minutes", type=float, default=60, help="after which no other begins (60)")
    add("--clients", type=int, default=2, help="of the page (2)")
    add("--seed", type=int, default=0, help="of the moments of the kills (0)")


class Answers:
    """What the visitors got; used from several threads.

    Args:
        expected: What each query finds, by the version of model and index.
    """

    def __init__(self, expected: Mapping[int, Sequence[Hits]]) -> None:
        self._expected = expected
        self._lock = threading.Lock()
        self.counts: collections.Counter[str] = collections.Counter()
        self.examples: list[str] = []
        self.version = 0
        """Of the last answer."""

    def add(self, number: int, reply: Mapping[str, Any]) -> None:
        """Count an answer to a query: it is that of one pair, or mixed."""
        version = reply["model_version"]
        found = (
            [hit["id"] for hit in reply["hits"]],
            [hit["similarity"] for hit in reply["hits"]],
        )
        if is_same(found, self._expected[version][number]):
            with self._lock:
                self.counts["answers"] += 1
                self.version = version
        else:
            self._note("mixed", f"version {version}, query {number}: {found}")

    def fail(self, error: Exception) -> None:
        """Count a request without an answer."""
        self._note("failed", f"{type(error).__name__}: {error}")

    def _note(self, kind: str, text: str) -> None:
        with self._lock:
            self.counts[kind] += 1
            if len(self.examples) < _MOST_EXAMPLES:
                self.examples.append(f"{kind}: {text}")


def is_same(found: Hits, expected: Hits) -> bool:
    """Return whether two answers are the same, with ties in any order."""
    return len(found[1]) == len(expected[1]) and bool(
        np.abs(np.subtract(found[1], expected[1])).max() <= _DIFFERENCE
        and found[0][0] == expected[0][0]
    )


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if an answer failed or was mixed."""
    about = machine()
    print(about, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected, queries = _prepare(folder, options.images)
        config = folder / "models.config"
        base = folder / NAME
        config.write_text(_MODELS.format(name=NAME, base=base), encoding="utf-8")
        answers = Answers(expected)
        with (
            running_server(config) as server,
            running_page(
                folder / "index", f"http://{server.rest_address}/v1/models/{NAME}"
            ) as (page, _),
        ):
            record = _under_load(folder, page, queries, answers, options)
    record |= {"benchmark": "serving_upgrade", "images": options.images}
    write(options.out, {**about, **record})
    for example in answers.examples:
        print(example)
    print(
        f"{record['upgrades']} upgrades of {options.images} images, {record['kills']} "
        f"kills, {record['rollbacks']} rollbacks: {record['answers']} answers, "
        f"{record['failed']} failed, {record['mixed']} mixed, {record['other_pair']} "
        "kills that left another pair than the old one"
    )
    for what in ("upgrade", "rollback", "follow"):
        if times := record[f"{what}_seconds"]:
            print(
                f"{what}: {np.median(times):.2f} s (median of {len(times)}; "
                f"{min(times):.2f} to {max(times):.2f})"
            )
    return int(record["failed"] + record["mixed"] + record["other_pair"] > 0)


def _prepare(
    folder: Path, images: int
) -> tuple[dict[int, list[Hits]], list[tuple[str, bytes]]]:
    """Write models, images and the index; returns what each query finds."""
    from PIL import Image

    from serving.search.gallery.gallery import load_gallery
    from serving.search.gallery.indexing import index_images

    generator = np.random.default_rng(0)
    for number in range(images):
        class_ = number % _CLASSES
        file = folder / "images" / f"{class_:03}" / f"{number:06}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (4, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((32, 32)).save(file)
    for version in (1, 2):
        export_model("tiny", folder / NAME / str(version), seed=version)
    expected: dict[int, list[Hits]] = {}
    for version in (2, 1):
        place = folder / ("index" if version == 1 else "other")
        model = folder / NAME / str(version)
        index_images(folder / "images", place, model, progress=False)
        index, _ = load_gallery(place)
        with index:
            ids = sorted(index.ids.tolist())[:: max(1, images // _QUERIES)]
            found = index.search(index.get(ids).embeddings, _K)
            expected[version] = [
                (hits, scores)
                for hits, scores in zip(
                    found.ids.tolist(), found.scores.tolist(), strict=True
                )
            ]
    # Others could not tell the two models apart.
    pairs = zip(expected[1], expected[2], strict=True)
    told = [n for n, (one, other) in enumerate(pairs) if not is_same(one, other)]
    if not told:
        raise ValueError("No query can tell the two models apart.")
    queries = [(ids[n], (folder / "images" / ids[n]).read_bytes()) for n in told]
    return {v: [found[n] for n in told] for v, found in expected.items()}, queries


def _under_load(
    folder: Path,
    page: str,
    queries: Sequence[tuple[str, bytes]],
    answers: Answers,
    options: argparse.Namespace,
) -> dict[str, Any]:
    bodies = [
        json.dumps({"image": {"b64": base64.b64encode(data).decode()}, "k": _K})
        for _, data in queries
    ]
    stopping = threading.Event()
    threads = [
        threading.Thread(target=_visit, args=(page, bodies, answers, stopping, seed))
        for seed in range(options.clients)
    ]
    for thread in threads:
        thread.start()
    try:
        return _upgrades(folder, answers, options)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _upgrades(
    folder: Path, answers: Answers, options: argparse.Namespace
) -> dict[str, Any]:
    generator = random.Random(options.seed)  # noqa: S311  (no secret)
    index, version, left = folder / "index", 1, options.kills
    times: dict[str, list[float]] = collections.defaultdict(list)
    typical, other_pair, done = 0.0, 0, 0
    deadline = time.perf_counter() + 60 * options.minutes
    for number in range(options.upgrades):
        if time.perf_counter() > deadline:
            break
        target = 3 - version
        model = str(folder / NAME / str(target))
        kills = -(-left // (options.upgrades - number)) if typical else 0
        start = time.perf_counter()
        for _ in range(kills):
            again = time.perf_counter()
            process = _start(index, "--model", model, "--largest-loss", "1")
            try:
                process.wait(generator.uniform(0, typical))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                left -= 1
            if process.wait() == 0:  # it came too late
                typical = time.perf_counter() - again
            if _pair(index) == target:
                break
            other_pair += _pair(index) != version
        if _pair(index) != target:
            again = time.perf_counter()
            _finish(_start(index, "--model", model, "--largest-loss", "1"))
            typical = typical or time.perf_counter() - again
        times["upgrade"].append(time.perf_counter() - start)
        times["follow"].append(_followed(answers, target))
        version, done = target, done + 1
        print(f"upgrade {number + 1}: {dict(answers.counts)}", flush=True)
    for _ in range(options.rollbacks):
        version = 3 - version
        start = time.perf_counter()
        _finish(_start(index, "--rollback"))
        times["rollback"].append(time.perf_counter() - start)
        _followed(answers, version)
    counts = {name: answers.counts[name] for name in ("answers", "failed", "mixed")}
    return {
        "upgrades": done,
        "kills": options.kills - left,
        "rollbacks": options.rollbacks,
        "other_pair": other_pair,
        **counts,
        **{f"{n}_seconds": times[n] for n in ("upgrade", "rollback", "follow")},
    }


def _followed(answers: Answers, version: int) -> float:
    """Wait until the page answers with a version; returns the seconds."""
    start = time.perf_counter()
    while answers.version != version:
        if time.perf_counter() - start > 300:
            raise RuntimeError(f"The page never answered with version {version}.")
        time.sleep(0.01)
    return time.perf_counter() - start


def _start(index: Path, *options: str) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-m", "serving", "upgrade", str(index), *options)
    return subprocess.Popen(
        [*command, "--json"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=None
    )


def _finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise RuntimeError(f"An upgrade ended with status {process.returncode}.")


def _pair(index: Path) -> int:
    """Return the version that the folder of the index names."""
    from serving.search.gallery.pair import pair_in

    return pair_in(index).version


def _visit(
    page: str,
    bodies: Sequence[str],
    answers: Answers,
    stopping: threading.Event,
    seed: int,
) -> None:
    generator = random.Random(seed)  # noqa: S311  (no secret)
    while not stopping.is_set():
        number = generator.randrange(len(bodies))
        request = urllib.request.Request(  # noqa: S310  (the page is ours)
            f"{page.rstrip('/')}/api/search",
            bodies[number].encode(),
            {"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
                answers.add(number, json.load(reply))
        except urllib.error.HTTPError as error:
            answers.fail(RuntimeError(f"{error.code} {error.read(500)!r}"))
        except Exception as error:  # whatever it is, the visitor got no answer
            answers.fail(error)

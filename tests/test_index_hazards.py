"""Inputs on which the ScaNN library ends the process or answers with wrong ids.

Each runs in a process of its own, so that a crash is a failed test and not the end
of the test run. TensorFlow is kept out of these processes: ScaNN searches without
it, and they start in a tenth of the time.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tfdml

PRELUDE = """
import sys
sys.modules["tensorflow"] = None
import inspect, os, threading
from pathlib import Path
import numpy as np
from tfdml import scann_search
from tfdml.index import ExactIndex, ScannIndex, load_index

def use(method):
    limits = {"exact": (10**9, 10**9), "hashing": (0, 10**9), "tree": (0, 0)}
    scann_search._HASHING_FROM, scann_search._TREE_ABOVE = limits[method]

def draw(rows, dimension=8):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(40, dimension))
    return centers[np.arange(rows) % 40] + 0.3 * rng.normal(size=(rows, dimension))

def refused(action):
    try:
        action()
    except ValueError as error:
        print(error)
    else:
        raise SystemExit("was not refused")

gallery = draw(3000)
use(METHOD)
"""

METHODS = pytest.mark.parametrize("method", ["exact", "hashing", "tree"])


def run(code, method="tree", folder=""):
    """Run code in a new process and return what it prints; it must end well."""
    result = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"METHOD = {method!r}\n{PRELUDE}\n{textwrap.dedent(code)}\nprint('end')",
            folder,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(Path(tfdml.__file__).parents[1])},
    )
    assert result.returncode == 0, f"exit code {result.returncode}\n{result.stderr}"
    assert result.stdout.endswith("end\n")
    return result.stdout


@METHODS
def test_nan_or_infinity_in_the_gallery_is_refused(method):
    printed = run(
        """
        for value in (np.nan, np.inf, -np.inf):
            for row in (0, 2999):
                bad = gallery.copy()
                bad[row, 3] = value
                refused(lambda: ScannIndex.build(bad))
                refused(lambda: ScannIndex.build(bad, metric="dot_product"))
        """,
        method,
    )
    assert printed.count("`embeddings` must be finite") == 12
    assert printed.count("row 2999") == 6


def test_nan_outside_the_training_sample_is_refused():
    # ScaNN trains on 100,000 rows; it crashes later on a NaN among the others.
    printed = run(
        """
        bad = np.ones((120_000, 2), np.float32)
        bad[-1] = np.nan
        refused(lambda: ScannIndex.build(bad))
        """
    )
    assert "`embeddings` must be finite in float32" in printed
    assert "row 119999" in printed


@METHODS
def test_nan_query_is_refused(method):
    printed = run(
        """
        index = ScannIndex.build(gallery)
        for value in (np.nan, np.inf, 1e39):
            queries = gallery[:5].copy()
            queries[2, 0] = value
            refused(lambda: index.search(queries))
        """,
        method,
    )
    assert printed.count("`queries` must be finite in float32") == 3
    assert printed.count("row 2") == 3


@METHODS
def test_huge_k_is_refused_before_memory_is_taken(method):
    printed = run(
        """
        import resource
        # It starts at the peak of the process that started this one.
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        index = ScannIndex.build(gallery)
        for k in (3001, 10**9, 2**63, 0, -1):
            refused(lambda: index.search(gallery[:2], k=k))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert after - before < 2**20  # KiB; ScaNN would take 16 GB
        """,
        method,
    )
    assert printed.count("`k` must be from 1 to 3000") == 5
    assert "Received: k=1000000000." in printed


@METHODS
def test_every_k_gets_k_different_rows(method):
    run(
        """
        index = ScannIndex.build(gallery, ids=[f"item-{i}" for i in range(3000)])
        for k in (1, 60, 500, 2999, 3000):
            ids, scores = index.search(gallery[:20], k=k)
            assert ids.shape == scores.shape == (20, k)
            assert np.isfinite(scores).all()
            assert all(len(set(row)) == k for row in ids.tolist())
        """,
        method,
    )


def test_padding_is_never_returned():
    # Two leaves of 55 hold about 109 rows. Where they hold fewer than k, ScaNN
    # fills up with id 0 and NaN; the margins that make this rare are taken away.
    run(
        """
        import dataclasses
        scann_search._REORDER = 1
        index = ScannIndex.build(gallery)
        searcher = index._searcher
        searcher.settings = dataclasses.replace(index.settings, leaves_to_search=1)
        queries = gallery[:200].astype(np.float32)
        rows, scores = searcher._call(queries, k=100, candidates=100, leaves=2)
        assert np.isnan(scores).any(axis=1).sum() > 10
        ids, scores = index.search(queries, k=100)
        assert np.isfinite(scores).all()
        assert all(len(set(row)) == 100 for row in ids.tolist())
        """
    )


def test_answer_that_stays_short_is_an_error():
    # Should ScaNN pad even when it searches everything, nobody gets to see it.
    run(
        """
        index = ScannIndex.build(gallery)
        class Short:
            def search_batched(self, queries, final_num_neighbors, **settings):
                shape = (len(queries), final_num_neighbors)
                return np.zeros(shape, np.uint32), np.full(shape, np.nan, np.float32)
        index._searcher._searcher = Short()
        try:
            index.search(gallery[:2], k=3)
        except RuntimeError as error:
            assert "fewer than k=3 of 3000 rows" in str(error)
        else:
            raise SystemExit("was not refused")
        """
    )


@METHODS
def test_empty_batch_of_queries_is_answered(method):
    run(
        """
        index = ScannIndex.build(gallery)
        ids, scores = index.search(np.empty((0, 8)), k=5)
        assert ids.shape == scores.shape == (0, 5)
        """,
        method,
    )


@METHODS
def test_query_of_another_dimension_is_refused(method):
    printed = run(
        """
        index = ScannIndex.build(gallery)
        refused(lambda: index.search(np.ones((2, 7))))
        refused(lambda: index.search(np.ones((2, 9))))
        refused(lambda: index.search(np.ones((2, 0))))
        """,
        method,
    )
    assert printed.count("`queries` must have the dimension of the index, 8.") == 2


def test_complex_numbers_are_refused():
    printed = run(
        """
        refused(lambda: ScannIndex.build(gallery * 1j))
        refused(lambda: ScannIndex.build(gallery).search(gallery[:2] * 1j))
        """
    )
    assert "`embeddings` must hold real numbers. Received: dtype=complex128." in printed
    assert "`queries` must hold real numbers. Received: dtype=complex128." in printed


def test_zero_vector_is_refused_by_cosine():
    printed = run(
        """
        index = ScannIndex.build(gallery)
        refused(lambda: index.search(np.zeros((1, 8))))
        bad = gallery.copy()
        bad[1234] = 0
        refused(lambda: ScannIndex.build(bad))
        """
    )
    assert "`queries` must not have a row of zeros" in printed
    assert "`embeddings` must not have a row of zeros" in printed
    assert "row 1234" in printed


@METHODS
def test_galleries_without_spread_are_searched(method):
    run(
        """
        for rows in (
            np.ones((3000, 8)),
            np.repeat(gallery[:3], 1000, axis=0),
            np.zeros((3000, 8)),
            np.zeros((3000, 8)) + (np.arange(3000) == 5)[:, None],
            gallery[:, :1],
            gallery[:, :3],
        ):
            index = ScannIndex.build(rows, metric="dot_product")
            ids, scores = index.search(rows[:10], k=50)
            assert np.isfinite(scores).all()
            assert all(len(set(row)) == 50 for row in ids.tolist())
        """,
        method,
    )


def test_duplicate_ids_are_refused():
    printed = run("refused(lambda: ScannIndex.build(gallery, ids=[7] * 3000))")
    assert "`ids` must not repeat. Received: 7 3000 times." in printed


@METHODS
def test_eight_threads_search_at_once(method):
    run(
        """
        index = ScannIndex.build(gallery)
        expected = index.search(gallery[:200], k=10)
        wrong = []
        def search():
            for _ in range(15):
                found = index.search(gallery[:200], k=10)
                if not (found.ids == expected.ids).all():
                    wrong.append(found)
        threads = [threading.Thread(target=search) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        """,
        method,
    )


def test_threads_and_batch_size_of_scann_cannot_be_set():
    # ScaNN divides by a batch size of 0 and crashes on 0 threads.
    run(
        """
        assert list(inspect.signature(ScannIndex.search).parameters) == [
            "self", "queries", "k"
        ]
        assert list(inspect.signature(ScannIndex.build).parameters) == [
            "embeddings", "ids", "metric", "model_fingerprint"
        ]
        """
    )


DAMAGE = {
    "flipped": "content[len(content) // 2] ^= 1; path.write_bytes(content)",
    "flipped-at-the-end": "content[-1] ^= 128; path.write_bytes(content)",
    "truncated": "path.write_bytes(content[:-1])",
    "longer": "path.write_bytes(content + bytes(1))",
    "empty": "path.write_bytes(bytes())",
    "missing": "path.unlink()",
}


@METHODS
def test_any_damage_to_any_file_is_refused(method, tmp_path):
    damages = "\n".join(
        f"    ({name!r}, lambda path, content: exec({code!r}, globals(), "
        "{'path': path, 'content': content})),"
        for name, code in DAMAGE.items()
    )
    printed = run(
        f"""
folder = Path(sys.argv[1]) / "index"
ScannIndex.build(gallery).save(folder)
files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
for path in files:
    whole = path.read_bytes()
    for name, damage in [
{damages}
    ]:
        damage(path, bytearray(whole))
        refused(lambda: load_index(folder))
        path.write_bytes(whole)
load_index(folder).search(gallery[:5])
print(len(files), "files")
""",
        method,
        str(tmp_path),
    )
    files = {"exact": 5, "hashing": 7, "tree": 9}[method]
    assert f"{files} files" in printed
    refusals = printed.splitlines()[:-2]
    assert len(refusals) == files * len(DAMAGE)
    assert all("damaged" in line or "holds no index" in line for line in refusals)


def test_files_of_another_index_are_refused(tmp_path):
    # ScaNN loads a smaller dataset.npy and then reads beyond its end.
    printed = run(
        """
        use("hashing")
        one, other = Path(sys.argv[1]) / "one", Path(sys.argv[1]) / "other"
        ScannIndex.build(gallery).save(one)
        ScannIndex.build(gallery[:500]).save(other)
        (small,), (large,) = other.glob("data-*/dataset.npy"), one.glob(
            "data-*/dataset.npy")
        large.write_bytes(small.read_bytes())
        refused(lambda: load_index(one))
        """,
        folder=str(tmp_path),
    )
    assert "damaged" in printed
    assert "dataset.npy must have bytes" in printed


@METHODS
def test_pickle_in_an_index_folder_is_never_run(method, tmp_path):
    run(
        """
        import pickle
        folder = Path(sys.argv[1]) / "index"
        ScannIndex.build(gallery).save(folder)
        class Bomb:
            def __reduce__(self):
                return os._exit, (66,)
        for place in (folder, *folder.glob("data-*")):
            (place / "scann_docids.pkl").write_bytes(pickle.dumps(Bomb()))
        assert load_index(folder).search(gallery[:5]).ids[:, 0].tolist() == list(
            range(5))
        ids = np.array([Bomb()], dtype=object)
        refused(lambda: ExactIndex.build(gallery[:1], ids=ids))
        """,
        method,
        str(tmp_path),
    )


@METHODS
def test_folder_works_where_it_was_moved_to(method, tmp_path):
    run(
        """
        import shutil
        first, copy = Path(sys.argv[1]) / "first", Path(sys.argv[1]) / "copy"
        index = ScannIndex.build(gallery)
        index.save(first)
        shutil.copytree(first, copy)
        # The same folder name now holds another gallery.
        ScannIndex.build(gallery[::-1].copy()).save(first)
        expected = index.search(gallery[:50])
        assert (load_index(copy).search(gallery[:50]).ids == expected.ids).all()
        shutil.rmtree(first)
        os.chdir("/")
        assert (load_index(copy).search(gallery[:50]).ids == expected.ids).all()
        """,
        method,
        str(tmp_path),
    )


def test_failing_disk_is_an_error_and_spares_the_old_index(tmp_path):
    run(
        """
        import resource
        folder = Path(sys.argv[1]) / "index"
        ScannIndex.build(gallery[:100]).save(folder)
        large = ScannIndex.build(gallery)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        try:
            large.save(folder)
        except OSError as error:
            assert "ScaNN cannot write" in str(error), error
        else:
            raise SystemExit("was not refused")
        assert len(load_index(folder)) == 100
        assert len(list(folder.iterdir())) == 2
        """,
        folder=str(tmp_path),
    )

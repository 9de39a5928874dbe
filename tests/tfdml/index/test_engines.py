"""Which engine an index takes, and what it does where its engine is missing."""

import json
import logging

import numpy as np
import pytest

from tests.support.installed import skip_without
from tests.support.refuses import refusals, refuses
from tests.support.saved_indexes import (
    clustered,
    data_of,
    rewrite_manifest,
    run_python,
    snapshot,
)
from tfdml import index as public
from tfdml.index import (
    ExactIndex,
    IndexFileError,
    LocalIndex,
    ScannIndex,
    load_index,
    verify_index,
)
from tfdml.index.engines import _choice as choice
from tfdml.index.engines._settings import EngineLimits
from tfdml.neighbors import nearest_neighbors

ROWS = clustered(1_000)
OTHERS = {"scann": "faiss", "faiss": "scann"}
CODED = pytest.mark.parametrize("engine", OTHERS)


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    """Have codes compared, or settings measured, from 400 rows on."""
    limits = EngineLimits(hashing_from=400, tree_above=900, measured_from=400)
    monkeypatch.setattr(LocalIndex, "engine_limits", limits)


@pytest.fixture
def hide(monkeypatch):
    """Return what makes engines fail to be imported, until `hide()` is called."""

    def hide_some(*engines):
        for name in OTHERS:
            skip_without(name)
            monkeypatch.setitem(choice.CODED, name, ORIGINAL[name])
        for name in engines:

            def load(name=name):
                raise ImportError(f"{name} is hidden. Install it with: a test.")

            class Hidden(ORIGINAL[name][0]):
                @classmethod
                def read(cls, *arguments, load=load, **options):
                    load()

            monkeypatch.setitem(choice.CODED, name, (Hidden, load))

    return hide_some


ORIGINAL = dict(choice.CODED)


def check_exact(index, rows=ROWS):
    true, scores = nearest_neighbors(rows[:20], rows, 5)
    found = index.search(rows[:20], 5)
    np.testing.assert_array_equal(found.ids, true)
    np.testing.assert_array_equal(found.scores, scores)


# The choice


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [((), "scann"), (["scann"], "faiss"), (["faiss"], "scann")],
)
@pytest.mark.parametrize("target", [None, 0.9])
def test_best_engine_that_is_there_is_taken(hide, hidden, expected, target, tmp_path):
    hide(*hidden)
    index = LocalIndex.build(ROWS, target_recall=target)
    assert index.settings.engine in (expected, "exact")  # if that takes less time
    if target is None:
        assert (index.settings.method, index.settings.engine) == ("tree", expected)
        assert {"scann": "ScaNN", "faiss": "FAISS"}[expected] in str(index)
    details = index.stats().details
    assert details["engine"] == details["settings"]["engine"] == index.settings.engine
    index.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["engine"] == manifest["settings"]["engine"] == details["engine"]
    assert manifest["class"] == index.stats().kind == "LocalIndex"


@CODED
def test_engine_that_is_asked_for_stays(hide, engine, tmp_path):
    hide()
    index = LocalIndex.build(ROWS[:500], target_recall=None, engine=engine)
    assert (index.settings.engine, index.settings.method) == (engine, "hashing")
    index.save(tmp_path)
    index.close()
    with load_index(tmp_path) as loaded:
        loaded.add(ROWS[500:], np.arange(500, 1_000))
        loaded.compact()
        assert (loaded.settings.engine, loaded.settings.method) == (engine, "tree")


def test_exact_search_that_is_asked_for_needs_no_engine(hide, caplog):
    hide("scann", "faiss")
    index = LocalIndex.build(ROWS, engine="exact")
    assert (index.settings.engine, index.settings.is_stand_in) == ("exact", False)
    check_exact(index)
    assert not caplog.records


@CODED
def test_engine_that_is_asked_for_and_missing_is_an_error(hide, engine):
    hide(engine)
    with pytest.raises(ImportError, match=f"{engine} is hidden"):
        LocalIndex.build(ROWS[:3], engine=engine)


@refusals(
    ("engine", "hnsw", "must be one of scann, faiss, exact"),
    ("engine", 1, "must be one of"),
)
def test_unknown_engines_are_refused(argument, value, rule):
    valid = {"embeddings": np.eye(3)}
    refuses(LocalIndex.build, argument=argument, value=value, rule=rule, valid=valid)


@pytest.mark.parametrize("target", [None, 0.9])
def test_few_rows_need_no_engine(hide, target, tmp_path):
    hide("scann", "faiss")
    index = LocalIndex.build(ROWS[:399], target_recall=target)
    check_exact(index, ROWS[:399])
    assert (index.settings.engine, index.settings.is_stand_in) == ("exact", False)
    index.save(tmp_path)
    assert {file.suffix for file in data_of(tmp_path).iterdir()} == {".npy"}
    check_exact(load_index(tmp_path), ROWS[:399])


@pytest.mark.parametrize("target", [None, 0.9])
def test_many_rows_without_an_engine_are_compared_with(hide, target, tmp_path, caplog):
    hide("scann", "faiss")
    index = LocalIndex.build(ROWS, target_recall=target)
    check_exact(index)
    settings = index.settings
    assert (settings.engine, settings.method, settings.is_stand_in) == (
        "exact",
        "exact",
        True,
    )
    assert settings.reason == "scann is hidden. faiss is hidden."
    assert (index.recall and index.recall.value) == (target and 1.0)
    assert 'pip install "tfdml[search]"' in caplog.text
    index.save(tmp_path)
    index.close()
    hide("scann")  # FAISS was installed meanwhile
    with load_index(tmp_path) as loaded:
        check_exact(loaded)
        loaded.compact()
        assert not loaded.settings.is_stand_in
        assert loaded.settings.engine in ("faiss", "exact")


# Where the engine is missing


@CODED
@pytest.mark.parametrize("metric", ["cosine", "dot_product"])
def test_index_whose_engine_is_missing_answers_exactly(
    hide, engine, metric, tmp_path, caplog
):
    hide()
    built = LocalIndex.build(ROWS, metric=metric, target_recall=None, engine=engine)
    built.save(tmp_path)
    built.close()
    before = snapshot(tmp_path)
    hide(engine)
    with caplog.at_level(logging.WARNING), load_index(tmp_path) as index:
        true, scores = nearest_neighbors(ROWS[:20], ROWS, 5, metric=metric)
        found = index.search(ROWS[:20], 5)
        np.testing.assert_array_equal(found.ids, true)
        np.testing.assert_array_equal(found.scores, scores)
        settings = index.settings
        assert settings.is_stand_in
        assert settings.reason.startswith("It was built with ")
        assert "is hidden" in settings.reason
        assert index.stats().details["engine"] == "exact"
    assert "not here" in caplog.text
    assert verify_index(tmp_path).ok
    assert snapshot(tmp_path) == before
    hide()
    with load_index(tmp_path) as index:
        assert index.settings == built.settings


@CODED
@pytest.mark.parametrize("way", ["compact", "save"])
def test_index_whose_engine_is_missing_is_rebuilt_with_the_other(
    hide, engine, way, tmp_path
):
    hide()
    built = LocalIndex.build(ROWS, target_recall=None, engine=engine)
    built.save(tmp_path)
    built.close()
    hide(engine)
    with load_index(tmp_path) as index:
        index.remove([3])
        if way == "compact":
            index.compact()
            index.compact()
        index.save(tmp_path)
        assert index.settings.engine == OTHERS[engine]
        assert index.search(ROWS[:1], 1).ids.tolist() == [[0]]
    with load_index(tmp_path) as index:
        assert index.settings.engine == OTHERS[engine]
        assert len(index) == 999


def test_recall_of_an_index_without_its_engine_is_one(hide, tmp_path):
    hide()
    rows = clustered(2_000, 16, 100)
    built = LocalIndex.build(rows, target_recall=0.9, engine="faiss")
    if built.settings.engine == "exact":
        pytest.skip("Exact search took less time.")
    built.save(tmp_path)
    hide("faiss")
    with load_index(tmp_path) as index:
        recall = index.recall
        assert (recall.value, recall.queries, recall.target) == (1.0, 0, 0.9)
        assert "comparing with all" in str(index)


def test_engine_of_a_later_tfdml_is_refused(hide, tmp_path):
    hide()
    LocalIndex.build(ROWS, target_recall=None).save(tmp_path)
    settings = json.loads((tmp_path / "manifest.json").read_text())["settings"]
    rewrite_manifest(tmp_path, settings=settings | {"engine": "later"})
    with pytest.raises(IndexFileError, match="must be one of scann, faiss, exact"):
        load_index(tmp_path)


def test_codes_of_other_rows_are_refused(hide, tmp_path):
    hide()
    for name, rows in (("one", ROWS), ("other", ROWS[:900])):
        index = LocalIndex.build(rows, target_recall=None, engine="faiss")
        index.save(tmp_path / name)
        index.close()
    manifests = [
        json.loads((tmp_path / name / "manifest.json").read_text())["files"]
        for name in ("one", "other")
    ]
    file = "faiss_codes.npy"
    codes = (data_of(tmp_path / "other") / file).read_bytes()
    (data_of(tmp_path / "one") / file).write_bytes(codes)
    rewrite_manifest(tmp_path / "one", files=manifests[0] | {file: manifests[1][file]})
    with pytest.raises(IndexFileError, match="900 x 8"):
        load_index(tmp_path / "one")


# Names, and what is not imported


def test_former_names_stay():
    assert ScannIndex is LocalIndex
    assert public.ScannSettings is public.IndexSettings


def test_local_index_of_few_rows_imports_no_engine():
    result = run_python("""
        import sys
        import numpy as np
        for name in ("scann", "faiss", "tensorflow"):
            sys.modules[name] = None
        from tfdml.index import LocalIndex, load_index
        index = LocalIndex.build(np.eye(8))
        assert index.search(np.eye(8), 1).ids[:, 0].tolist() == list(range(8))
        assert "keras" not in sys.modules
    """)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("module", "content", "reason"),
    [
        ("scann", "raise ModuleNotFoundError('none')", "ModuleNotFoundError: none"),
        # Not all that goes wrong is an ImportError.
        ("scann", "raise RuntimeError('undefined symbol')", "RuntimeError: undefined"),
        ("faiss", "raise OSError('no libgomp')", "OSError: no libgomp"),
    ],
)
def test_missing_or_broken_engine_is_explained(module, content, reason, tmp_path):
    (tmp_path / f"{module}.py").write_text(content)
    result = run_python(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from tfdml.index import LocalIndex
        try:
            LocalIndex.build(np.eye(2), engine={module!r})
        except ImportError as error:
            print(error)
        """)
    assert result.returncode == 0, result.stderr
    assert reason in result.stdout
    assert "pip install" in result.stdout


def test_classes_in_memory_are_told_apart(tmp_path):
    ExactIndex.build(np.eye(3)).save(tmp_path)
    with pytest.raises(IndexFileError, match="must hold a LocalIndex"):
        LocalIndex.load(tmp_path)

"""Collections in Milvus: build, open and save them, and who may."""

import dataclasses
import subprocess
import sys
import textwrap
import traceback

import pytest

from tests.support.index_kinds import drawn
from tests.support.refuses import refusals, refuses
from tests.support.saved_indexes import rewrite_manifest
from tfdml.index import IndexFileError, MilvusIndex, load_index
from tfdml.index.milvus import _content, _index, _opening
from tfdml.index.milvus._connection import connect, disconnect, place_of
from tfdml.index.milvus._store import Store

pymilvus = pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")


@pytest.fixture
def build(milvus):
    return milvus


def gone(*arguments, **options):
    raise ConnectionResetError("the server is gone")


# Build and connect


def test_connect_finds_what_build_has_made(milvus_path, build):
    attributes = {
        "class": ["shoe", None] * 25,
        "price": [3] * 50,
        "weight": [0.25] * 50,
        "new": [True] * 50,
        'ein "Name"]': [1] * 50,
    }
    index = build(
        drawn(50),
        attributes=attributes,
        metric="dot_product",
        model_fingerprint="abc",
        search_parameters={},
        consistency="Bounded",
    )
    collection = index.stats().details["collection"]
    with MilvusIndex.connect(
        milvus_path, collection, dimension=5, model_fingerprint="abc"
    ) as again:
        assert again.stats() == index.stats()
        assert again.stats().attributes == {
            "class": "string",
            "price": "integer",
            "weight": "number",
            "new": "boolean",
            'ein "Name"]': "integer",
        }
        found = again.search(drawn(2), k=9).ids.tolist()
        assert found == index.search(drawn(2), k=9).ids.tolist()
        # What one client adds, with a new attribute, the other one knows of.
        again.add(drawn(1, seed=7), [99], {"maker": ["x"]})
        assert index.count({"maker": "x"}) == 1
        assert index.get([99]).attributes == [{"maker": "x"}]
    assert index.count() == 51


def test_other_model_dimension_or_collection_is_refused(milvus_path, build):
    index = build(drawn(3), model_fingerprint="abc")
    collection = index.stats().details["collection"]
    for options, message in (
        ({"model_fingerprint": "xyz"}, "`model_fingerprint` must be that of the model"),
        ({"dimension": 7}, "`dimension` must be that of the model"),
    ):
        with pytest.raises(IndexFileError, match=message):
            MilvusIndex.connect(milvus_path, collection, **options)
    with pytest.raises(IndexFileError, match="must be in Milvus"):
        MilvusIndex.connect(milvus_path, "absent")
    client = index._content.store.client
    client.create_collection("foreign", dimension=5)
    with pytest.raises(IndexFileError, match="must be one that `MilvusIndex"):
        MilvusIndex.connect(milvus_path, "foreign")
    client.alter_collection_properties(
        collection, properties={"tfdml.state": "building"}
    )
    with pytest.raises(IndexFileError, match="must be complete"):
        MilvusIndex.connect(milvus_path, collection)


@pytest.mark.parametrize(
    ("module", "step"), [(_content, "kinds_of"), (_opening, "read_facts")]
)
def test_connection_is_closed_where_opening_fails(
    module, step, milvus_path, build, monkeypatch
):
    collection = build(drawn(3)).stats().details["collection"]
    closed = []
    monkeypatch.setattr(module, step, gone)
    for opener in (_index, _opening):
        monkeypatch.setattr(
            opener, "disconnect", lambda client: closed.append(disconnect(client))
        )
    with pytest.raises(ConnectionResetError):
        MilvusIndex.connect(milvus_path, collection)
    assert len(closed) == 1


def test_build_refuses_a_collection_that_is_there(build):
    collection = build(drawn(3)).stats().details["collection"]
    with pytest.raises(ValueError, match="`collection` must be new"):
        build(drawn(3), collection=collection)


def test_failed_build_leaves_no_collection(build, milvus_path, monkeypatch):
    monkeypatch.setattr(_opening, "finish", gone)
    with pytest.raises(ConnectionResetError):
        build(drawn(3), collection="halfway")
    with pytest.raises(IndexFileError, match="must be in Milvus"):
        MilvusIndex.connect(milvus_path, "halfway")


def test_build_of_which_a_request_came_twice_is_refused(
    build, milvus_path, monkeypatch
):
    fill = Store.fill

    def twice(store, rows):
        fill(store, rows)
        store.client.insert(store.collection, [rows.values(slice(1))[0] | {"id": 9}])

    monkeypatch.setattr(Store, "fill", twice)
    with pytest.raises(ConnectionError, match="must hold the 3 items"):
        build(drawn(3), collection="twice")
    with pytest.raises(IndexFileError, match="must be in Milvus"):
        MilvusIndex.connect(milvus_path, "twice")


@refusals(
    ("collection", "a b", "must be a word"),
    ("consistency", "strong", "must be one of"),
    ("batch_size", 0, "must be a whole number"),
    ("batch_size", 2.5, "must be a whole number"),
    ("timeout", 0, "must be above 0"),
    ("index_parameters", [1], "must be a dictionary"),
    ("index_parameters", {"M": {1}}, "must be a dictionary"),
    ("index_type", None, "must be Milvus' name"),
    # milvus-lite accepts these, and compares with every item.
    ("index_type", "SCANN", "must be one of FLAT"),
    ("index_type", "DISKANN", "must be one of FLAT"),
    ("index_type", "hnsw", "must be one of FLAT"),
    ("search_parameters", {1: 2}, "must be a dictionary"),
    ("uri", "", "must be an address or a path"),
    ("uri", "milvus", 'a path for milvus-lite that ends with ".db"'),
    ("uri", "no/such/folder/m.db", "a path in an existing folder"),
)
def test_bad_settings_are_refused(argument, value, rule, build):
    valid = {"embeddings": drawn(3)}
    refuses(build, argument=argument, value=value, rule=rule, valid=valid)


def test_bad_embed_is_refused_before_a_connection():
    with pytest.raises(ValueError, match=r"^`embed` must be a function"):
        MilvusIndex.connect("http://127.0.0.1:9", "gallery", embed=3)


def test_server_that_does_not_answer_is_named_without_its_password(caplog):
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:9 ") as caught:
        MilvusIndex.connect("http://root:secret@127.0.0.1:9", "gallery", timeout=1)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "secret" not in told.replace('"http://root:secret@127.0.0.1:9"', "")


def test_import_of_pymilvus_leaves_logging_as_it_was():
    code = """
        import io, logging, sys
        class Closing(logging.StreamHandler):
            def close(self):
                self.stream.close()
        stream = io.StringIO()
        logging.getLogger().addHandler(Closing(stream))
        from tfdml.index import MilvusIndex
        try:
            MilvusIndex.connect("http://127.0.0.1:9", "gallery", timeout=0.1)
        except ConnectionError:
            logging.getLogger("mine").warning("still heard")
        assert "still heard" in stream.getvalue()
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_error_of_the_server_is_a_connection_error(build):
    index = build(drawn(3))
    index._content.store.client.drop_collection(
        index.stats().details["collection"], timeout=30
    )
    with pytest.raises(ConnectionError, match="Milvus refused a request") as caught:
        index.count()
    assert isinstance(caught.value, pymilvus.MilvusException)


def run_python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
    )


def test_client_gets_the_token_and_pings_a_cluster_alone(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(
        pymilvus, "MilvusClient", lambda uri, **options: made.append(options)
    )
    connect(str(tmp_path / "m.db"), None, "", 1)
    connect("http://host:19530", None, "", 1)
    monkeypatch.setenv("MILVUS_TOKEN", "of the environment")
    connect("http://host:19530", None, "", 1)
    connect("http://host:19530", "given", "", 1)
    tokens = [options["token"] for options in made[1:]]
    assert tokens == ["", "of the environment", "given"]
    assert made[0]["grpc_options"]["grpc.keepalive_time_ms"] == 2**31 - 1
    assert not any("grpc_options" in options for options in made[1:])


@pytest.mark.slow
def test_two_processes_share_a_server_by_its_address(tmp_path):
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    server, database, port = start_server_in_thread(
        data_dir=str(tmp_path / "server"), host="127.0.0.1", port=0
    )
    address = f"http://127.0.0.1:{port}"
    code = """
        import sys
        from tfdml.index import load_index
        with load_index(sys.argv[1]) as index:
            index.remove(["a"])
            index.add([[0, 0, 1.0]], ["c"], {"n": [7]})
    """
    with MilvusIndex.build(
        [[1.0, 0, 0], [0, 1.0, 0]], ["a", "b"], uri=address, collection="shared"
    ) as index:
        index.save(tmp_path / "index")
        done = run_python(code, str(tmp_path / "index"))
        assert done.returncode == 0, done.stderr
        assert index.search([[0, 0, 1.0]], k=1, where={"n": 7}).ids.tolist() == [["c"]]
        assert index.count() == 2
        assert "a" not in index
    server.stop(grace=None).wait()
    database.close()


@pytest.mark.slow
def test_items_outlive_the_process_and_are_of_one_process_at_a_time(tmp_path):
    code = """
        import os, sys
        import numpy as np
        from tfdml.index import LockedError, MilvusIndex
        path, taken = sys.argv[1:]
        try:
            MilvusIndex.connect(taken, "taken")
        except LockedError as error:
            assert "serves one at a time" in str(error), error
        else:
            sys.exit("both have it")
        index = MilvusIndex.build(
            np.eye(3), list("abc"), {"n": [1, None, 3]},
            uri=path, collection="letters", model_fingerprint="m",
        )
        index.add([[1, 1, 0]], ["d"])
        os._exit(0)
    """
    path, taken = str(tmp_path / "m.db"), str(tmp_path / "taken.db")
    with MilvusIndex.build(drawn(3), uri=taken, collection="taken"):
        done = run_python(code, path, taken)
    assert done.returncode == 0, done.stderr
    with MilvusIndex.connect(path, "letters", model_fingerprint="m") as index:
        assert index.search([[1, 1, 0.1]], k=1).ids.tolist() == [["d"]]
        assert (index.count(), index.count({"n": 3})) == (4, 1)


def test_missing_pymilvus_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(ImportError, match=r"tfdml\[milvus\]"):
        MilvusIndex.connect("http://127.0.0.1:9", "gallery")


# Files


def test_notes_come_back_and_dropped_items_are_gone(build, tmp_path):
    index = build(drawn(3), collection="dropped")
    assert index.notes == {}
    assert index.stats().details["folder"] is None
    index.notes = {"root": "photos"}
    index.save(tmp_path / "index")
    with load_index(tmp_path / "index") as again:
        assert again.notes == {"root": "photos"}
        assert again.stats().details["folder"] == str(tmp_path / "index")
        again.drop()
    with pytest.raises(IndexFileError, match="must be in Milvus"):
        load_index(tmp_path / "index")


def test_saved_folder_of_a_collection_that_was_replaced_is_refused(build, tmp_path):
    index = build(drawn(5), collection="replaced", model_fingerprint="abc")
    index.save(tmp_path / "index")
    index._content.store.client.drop_collection("replaced")
    build(drawn(5), collection="replaced", model_fingerprint="new")
    with pytest.raises(IndexFileError, match="is not the one that was saved"):
        load_index(tmp_path / "index")


def test_path_that_was_moved_is_named_with_what_to_do(build, tmp_path):
    index = build(drawn(3))
    index.save(tmp_path / "index")
    old = tmp_path / "gone" / "a.db"
    rewrite_manifest(tmp_path / "index", uri=str(old))
    for load in (load_index, MilvusIndex.load):
        with pytest.raises(IndexFileError, match=r"a\.db, which does not") as caught:
            load(tmp_path / "index")
        assert "damaged" not in str(caught.value)
        assert "`MilvusIndex.connect`" in str(caught.value)
    with pytest.raises(IndexFileError, match=r"a\.db, which does not"):
        MilvusIndex.connect(str(tmp_path / "a.db"), "c")
    assert not (tmp_path / "a.db").exists()
    index.save(tmp_path / "index")
    with load_index(tmp_path / "index") as again:
        assert again.count() == 3


def test_saved_folder_leads_back_to_the_collection_and_holds_no_secret(build, tmp_path):
    index = build(drawn(5), list("abcde"), token="root:secret")  # noqa: S106
    index.save(tmp_path / "index")
    (tmp_path / "index").rename(tmp_path / "moved")
    index.remove(["a"])
    with load_index(tmp_path / "moved") as again:
        assert again.count() == 4
    store = index._content.store
    store = dataclasses.replace(store, uri=place_of("https://root:secret@host:19530"))
    index = MilvusIndex(store, None)
    index.save(tmp_path / "moved")
    assert index.stats().details["uri"] == "https://host:19530"
    files = [path for path in (tmp_path / "moved").rglob("*") if path.is_file()]
    written = b"".join(path.read_bytes() for path in files)
    assert b"secret" not in written
    assert b"https://host:19530" in written

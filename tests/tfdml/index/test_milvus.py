"""What is Milvus' own: requests, failures, connections. The rest is the contract."""

import dataclasses
import itertools
import json
import subprocess
import sys
import textwrap
import traceback

import numpy as np
import pytest

from tests.support.index_examples import METRICS
from tests.support.saved_indexes import rewrite_manifest
from tfdml.index import (
    ExactIndex,
    IndexFileError,
    LockedError,
    MilvusIndex,
    Not,
    Range,
    load_index,
)
from tfdml.index.milvus._filters import expression_of, key_of, name_of
from tfdml.index.milvus._store import MilvusLimits

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

NASTY = [
    'a"b',
    "a'b",
    "a\\",
    '\\" or true or "',
    '"] or id != "',
    "{name}",
    "%",
    "a\nb",
    "a\r\tb",
    "\x01\x7f",
    "",
    " ",
    "Straße",
    "鞋",
    "👟",
    "\u2028",
    "null",
    "True",
]
_names = (f"c{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """A milvus-lite that the tests of this file share."""
    return str(tmp_path_factory.mktemp("milvus") / "gallery.db")


@pytest.fixture
def build(uri):
    """Return a function that builds in a collection of its own."""
    made = []

    def build(*arguments, **options):
        settings = {
            "uri": uri,
            "collection": next(_names),
            "index_type": "FLAT",
            "timeout": 30,
        } | options
        made.append(MilvusIndex.build(*arguments, **settings))
        return made[-1]

    yield build
    for index in made:
        index.close()


def points(rows, dimension=6, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dimension)).astype("float32")


def assert_same(result, expected):
    np.testing.assert_array_equal(result.ids, expected.ids)
    np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-5, atol=1e-6)
    assert result.ids.dtype.kind == expected.ids.dtype.kind
    assert result.scores.dtype == np.float32


# Searching


@METRICS
@pytest.mark.parametrize("index_type", ["HNSW", "IVF_FLAT", "AUTOINDEX"])
def test_approximate_index_that_searches_everything_is_exact(metric, index_type, build):
    gallery, queries = points(400), points(30, seed=2)
    parameters = {
        "HNSW": ({"M": 32, "efConstruction": 400}, {"ef": 400}),
        "IVF_FLAT": ({"nlist": 4}, {"nprobe": 4}),
        "AUTOINDEX": ({}, {}),
    }[index_type]
    index = build(
        gallery,
        metric=metric,
        index_type=index_type,
        index_parameters=parameters[0],
        search_parameters=parameters[1],
    )
    expected = ExactIndex.build(gallery, metric=metric).search(queries, k=5)
    found = index.search(queries, k=5)
    same = [set(a) & set(b) for a, b in zip(found.ids, expected.ids, strict=True)]
    assert sum(map(len, same)) >= 0.98 * expected.ids.size
    assert index.stats().details["index_type"] == index_type


@pytest.fixture(scope="module")
def clusters():
    """A cluster of 4 items and one of 60, and a query in each."""
    rows = np.random.default_rng(0).normal(size=(66, 6)) / 20
    rows[:4, 0] += 1
    rows[4:, 1] += 1
    rows[65] = rows[0]
    return rows[:64].astype("float32"), rows[64:].astype("float32")


def test_query_of_which_little_is_found_gets_as_many_items_as_the_others(
    build, clusters
):
    gallery, queries = clusters
    index = build(
        gallery,
        index_type="IVF_FLAT",
        index_parameters={"nlist": 2},
        search_parameters={"nprobe": 1},
    )
    limit(index, compared=0)
    (answer,) = index._store.search(True, queries[1:], 10)
    assert len(answer) == 4  # what the list that Milvus looks into holds
    expected = ExactIndex.build(gallery).search(queries, k=10)
    assert_same(index.search(queries, k=10), expected)


def limit(index, **limits):
    """Give an index other limits of its requests."""
    index._store = dataclasses.replace(index._store, limits=MilvusLimits(**limits))


def cut(monkeypatch, index, most):
    """Let Milvus find few items for those queries that point to the first axis."""
    client, search = index._store.client, index._store.client.search

    def call(*names, data, **options):
        answers = search(*names, data=data, **options)
        return [
            hits[:most] if row[0] > row[1] else hits
            for row, hits in zip(data, answers, strict=True)
        ]

    monkeypatch.setattr(client, "search", call)


@pytest.mark.parametrize("kind", ["string", "integer"])
@METRICS
def test_items_that_milvus_never_finds_are_compared_with_here(
    build, clusters, monkeypatch, metric, kind
):
    gallery, queries = clusters
    ids = list(range(64)) if kind == "integer" else [f'{row:02}"' for row in range(64)]
    attributes = {"even": [row % 2 == 0 for row in range(64)]}
    index = build(gallery, ids, attributes, metric=metric, batch_size=9)
    cut(monkeypatch, index, 3)
    exact = ExactIndex.build(gallery, ids, attributes, metric=metric)
    for options in (
        {},
        {"where": {"even": True}},
        {"exclude": [ids[5], ids[0], ids[6]]},
        {"exclude": [[], ids[:12:2]], "where": {"even": True}},
        {"exclude": [ids[:60], []]},
    ):
        expected = exact.search(queries, 10, **options)
        assert_same(index.search(queries, 10, **options), expected)


def test_collection_too_large_to_be_read_gives_fewer_columns(
    build, clusters, monkeypatch
):
    gallery, queries = clusters
    index = build(gallery)
    cut(monkeypatch, index, 3)
    limit(index, compared=63)
    expected = ExactIndex.build(gallery).search(queries, k=3)
    assert_same(index.search(queries, k=10), expected)


def test_query_that_excludes_many_has_the_others_ask_for_no_more(build, monkeypatch):
    index = build(points(300))
    asked, search = [], index._store.client.search

    def call(*names, **options):
        asked.append((len(options["data"]), options["limit"]))
        return search(*names, **options)

    monkeypatch.setattr(index._store.client, "search", call)
    exclude = [[7], range(200), *([] for _ in range(8))]
    found = index.search(points(10, seed=2), k=3, exclude=exclude)
    assert sorted(asked) == [(1, 203), (9, 4)]
    expected = ExactIndex.build(points(300)).search(
        points(10, seed=2), k=3, exclude=exclude
    )
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("index_type", "built_with", "given", "expected"),
    [
        ("HNSW", {}, {"ef": 7}, {"ef": 50}),
        ("HNSW", {}, {}, {"ef": 50}),
        ("DISKANN", {}, {"search_list": 90}, {"search_list": 90}),
        ("IVF_FLAT", {"nlist": 64}, {"nprobe": 8}, {"nprobe": 64}),
        ("IVF_SQ8", {}, {}, {"nprobe": 128}),
        ("SCANN", {"nlist": 9}, {}, {"nprobe": 9, "reorder_k": 50}),
        ("GPU_IVF_FLAT", {"nlist": 9_999}, {}, {"nprobe": 2_048}),
        ("FLAT", {}, {}, {}),
    ],
)
def test_to_ask_widely_is_to_look_at_all_that_an_index_type_can(
    index_type, built_with, given, expected
):
    from tfdml.index.milvus._collection import Facts
    from tfdml.index.milvus._store import Store

    facts = Facts("integer", 3, "cosine", "", "Strong", index_type, built_with, given)
    store = Store(None, "c", facts, given, "Strong", 9, 1.0)
    assert store._parameters(5, widely=True) == expected
    assert store._parameters(1, widely=False) == given
    assert max(store._parameters(16_384, widely=True).values(), default=0) <= 32_768


def test_many_queries_go_in_blocks(build):
    gallery, queries = points(50), points(23, seed=2)
    index = build(gallery)
    whole = index.search(queries, k=3)
    limit(index, queries=5)
    assert_same(index.search(queries, k=3), whole)


def test_k_above_what_milvus_returns_is_refused(build):
    index = build(points(5))
    assert index.search(points(1), k=16_384).ids.shape == (1, 5)
    assert index.search(points(1), k=16_384, exclude=[0]).ids.shape == (1, 4)
    with pytest.raises(ValueError, match="must be at most 16384"):
        index.search(points(1), k=16_385)
    with pytest.raises(ValueError, match="must be at most 16384"):
        index.search(points(1), k=16_384, exclude=[[0]])
    with pytest.raises(ValueError, match="`k` must be a whole number"):
        index.search(points(1), k=0)


# Filters


def test_expression_has_no_more_quotes_than_its_strings():
    for word in NASTY:
        text = expression_of({"class": word}, {"class": "string"})
        body = text.removeprefix('(attributes["class"] == "').removesuffix('")')
        assert text == f'(attributes["class"] == "{body}")'
        assert json.loads(f'"{body}"', strict=False) == word


@pytest.mark.parametrize("name", ["class", "ein Name", 'a"]["b', "hex__", "鞋", "1"])
def test_attribute_names_become_plain_keys_and_come_back(name):
    assert key_of(name).isidentifier()
    assert key_of(name).isascii()
    assert name_of(key_of(name)) == name


def test_attributes_of_another_program_are_left_out(build):
    index = build(points(2), attributes={"n": [1, None]})
    store = index._store
    foreign = {"id": 5, "embedding": points(1)[0], "attributes": {"hex__z": [], "n": 3}}
    store.client.insert(store.collection, [foreign])
    assert index.get([0, 5]).attributes == [{"n": 1}, {"n": 3}]
    assert index.count({"n": Not(1)}) == 2


# Changes


def test_half_an_addition_is_taken_back(build, monkeypatch):
    index = build(points(5), batch_size=2)
    calls = failing(monkeypatch, index, "upsert", at=3)
    with pytest.raises(ConnectionResetError):
        index.add(points(6), range(10, 16))
    assert len(calls) == 3
    assert index.count() == 5
    assert 10 not in index


def test_half_an_update_is_taken_back(build, monkeypatch):
    index = build(points(6), attributes={"n": list(range(6))}, batch_size=2)
    failing(monkeypatch, index, "upsert", at=2)
    with pytest.raises(ConnectionResetError):
        index.update(range(6), points(6, seed=9), {"n": [7] * 6})
    items = index.get(range(6))
    np.testing.assert_array_equal(items.embeddings, points(6))
    assert items.attributes == [{"n": n} for n in range(6)]


def test_change_that_cannot_be_taken_back_says_so(build, monkeypatch):
    index = build(points(5), batch_size=2)
    failing(monkeypatch, index, "upsert", at=2)
    failing(monkeypatch, index, "delete", at=1)
    with pytest.raises(ConnectionResetError) as caught:
        index.add(points(6), range(10, 16))
    assert "could not be restored" in caught.value.__notes__[0]


def failing(monkeypatch, index, method, *, at):
    """Make the `at`-th call of a method of the client fail; return all calls."""
    client, calls = index._store.client, []
    original = getattr(client, method)

    def call(*arguments, **options):
        calls.append(arguments)
        if len(calls) == at:
            raise ConnectionResetError("the server is gone")
        return original(*arguments, **options)

    monkeypatch.setattr(client, method, call)
    return calls


def test_requests_stay_below_the_limit_of_bytes(build, monkeypatch):
    index = build(points(20), [str(i) * 40 for i in range(20)])
    limit(index, bytes_written=300)
    calls = failing(monkeypatch, index, "upsert", at=0)
    index.add(points(9), ["x" * 40 + str(i) for i in range(9)])
    assert [len(rows) for _, rows in calls] == [4, 4, 1]
    assert index.count() == 29


def test_answers_stay_below_the_limit_of_bytes_however_long_attributes_are(
    build, monkeypatch
):
    index = build(points(7), attributes={"text": ["x" * 60_000] * 7})
    limit(index, bytes_read=4 * 2**16)
    calls = failing(monkeypatch, index, "query", at=0)
    items = index.get(range(7))
    assert len(calls) == 3
    assert [len(own["text"]) for own in items.attributes] == [60_000] * 7
    assert len(index.get(range(7)).ids) == 7


@pytest.mark.parametrize("batch_size", [1, 7.0, 100])
def test_ids_are_all_found_page_by_page_in_rising_order(build, batch_size, monkeypatch):
    names = [*NASTY, *(f"{number}" for number in range(20))]
    index = build(points(len(names)), names, batch_size=batch_size)
    index.add(points(2), ["later", "\U0010ffff"])
    calls = failing(monkeypatch, index, "query", at=0)
    assert index.ids.tolist() == sorted([*names, "later", "\U0010ffff"])
    assert len(calls) == 1 + -(-(len(names) + 2) // batch_size)  # the last is empty
    numbers = [-(2**63) + 1, 2**63 - 1, 0, -5, *range(10, 20)]
    index = build(points(14), numbers, batch_size=batch_size)
    assert index.ids.tolist() == sorted(numbers)


def test_ids_of_an_empty_collection_are_of_its_kind(build):
    assert build(points(0), np.empty(0, str)).ids.dtype.kind == "U"
    assert build(points(0)).ids.dtype == np.int64


def test_id_that_milvus_returns_twice_is_once_in_ids(build, monkeypatch):
    index = build(points(3), ["b", "a", "c"])
    client, query = index._store.client, index._store.client.query
    monkeypatch.setattr(
        client,
        "query",
        lambda *given, **options: [
            row for row in query(*given, **options) for _ in range(2)
        ],
    )
    assert index.ids.tolist() == ["a", "b", "c"]


def test_values_that_milvus_cannot_hold_are_refused(build):
    index = build(points(1), ["a"])
    for ids, attributes, message in (
        (["b"], {"text": ["x" * 65_536]}, "at most 65535 bytes as JSON"),
        (["b"], {"n": [-(2**63)]}, r"above -2\*\*63"),
    ):
        with pytest.raises(ValueError, match=message):
            index.add(points(1), ids, attributes)
    with pytest.raises(ValueError, match=r"above -2\*\*63"):
        build(points(1), [-(2**63)])
    assert index.count() == 1
    assert index.stats().attributes == {}


def test_integers_of_64_bits_keep_every_digit(build):
    ids = [-(2**63) + 1, -1, 0, 2**53 + 1, 2**63 - 1]
    index = build(points(5), ids, {"n": ids})
    items = index.get(ids[::-1])
    assert items.ids.tolist() == ids[::-1]
    assert [own["n"] for own in items.attributes] == ids[::-1]
    assert index.get([0, 0]).ids.tolist() == [0, 0]
    assert [index.count({"n": n}) for n in ids] == [1] * 5
    assert index.count({"n": Range(2**53 + 1)}) == 2
    index.remove(ids[:4])
    assert index.count() == 1


# Opening


def test_connect_finds_what_build_has_made(uri, build):
    attributes = {
        "class": ["shoe", None] * 25,
        "price": [3] * 50,
        "weight": [0.25] * 50,
        "new": [True] * 50,
        'ein "Name"]': [1] * 50,
    }
    index = build(
        points(50),
        attributes=attributes,
        metric="dot_product",
        model_fingerprint="abc",
        search_parameters={},
        consistency="Bounded",
    )
    collection = index.stats().details["collection"]
    with MilvusIndex.connect(
        uri, collection, dimension=6, model_fingerprint="abc"
    ) as again:
        assert again.stats() == index.stats()
        assert again.stats().attributes == {
            "class": "string",
            "price": "integer",
            "weight": "number",
            "new": "boolean",
            'ein "Name"]': "integer",
        }
        assert_same(again.search(points(2), k=9), index.search(points(2), k=9))
        # What one client adds, with a new attribute, the other one knows of.
        again.add(points(1, seed=7), [99], {"maker": ["x"]})
        assert index.count({"maker": "x"}) == 1
        assert index.get([99]).attributes == [{"maker": "x"}]
    assert index.count() == 51


def test_other_model_dimension_or_collection_is_refused(uri, build):
    index = build(points(3), model_fingerprint="abc")
    collection = index.stats().details["collection"]
    for options, message in (
        ({"model_fingerprint": "xyz"}, "`model_fingerprint` must be that of the model"),
        ({"dimension": 7}, "`dimension` must be that of the model"),
    ):
        with pytest.raises(IndexFileError, match=message):
            MilvusIndex.connect(uri, collection, **options)
    with pytest.raises(IndexFileError, match="must be in Milvus"):
        MilvusIndex.connect(uri, "absent")
    client = index._store.client
    client.create_collection("foreign", dimension=6)
    with pytest.raises(IndexFileError, match="must be one that `MilvusIndex"):
        MilvusIndex.connect(uri, "foreign")
    client.alter_collection_properties(
        collection, properties={"tfdml.state": "building"}
    )
    with pytest.raises(IndexFileError, match="must be complete"):
        MilvusIndex.connect(uri, collection)


def test_embed_that_is_no_function_is_refused_before_a_connection(build, tmp_path):
    index = build(points(3))
    index.save(tmp_path / "index")
    with pytest.raises(ValueError, match=r"^`embed` must be a function"):
        MilvusIndex.load(tmp_path / "index", embed=3)
    with pytest.raises(ValueError, match=r"^`embed` must be a function"):
        MilvusIndex.connect("http://127.0.0.1:9", "gallery", embed=3)
    with pytest.raises(ValueError, match=r"^`model_fingerprint` must be a string"):
        MilvusIndex.load(tmp_path / "index", model_fingerprint=3)


@pytest.mark.parametrize("step", ["kinds_of", "read_facts"])
def test_connection_is_closed_where_opening_fails(step, uri, build, monkeypatch):
    from tfdml.index.milvus import _connection as milvus_connection
    from tfdml.index.milvus import _index as milvus
    from tfdml.index.milvus import _opening as milvus_opening

    collection = build(points(3)).stats().details["collection"]

    def fail(*arguments):
        raise ConnectionResetError("the server is gone")

    closed = []
    for module in (milvus, milvus_opening):
        if hasattr(module, step):
            monkeypatch.setattr(module, step, fail)
        monkeypatch.setattr(
            module,
            "disconnect",
            lambda client: closed.append(milvus_connection.disconnect(client)),
        )
    with pytest.raises(ConnectionResetError):
        MilvusIndex.connect(uri, collection)
    assert len(closed) == 1


def test_build_refuses_a_collection_that_is_there(build):
    collection = build(points(3)).stats().details["collection"]
    with pytest.raises(ValueError, match="`collection` must be new"):
        build(points(3), collection=collection)


def test_failed_build_leaves_no_collection(build, uri, monkeypatch):
    from tfdml.index.milvus import _opening as milvus_opening

    def fail(*arguments):
        raise ConnectionResetError("the server is gone")

    monkeypatch.setattr(milvus_opening, "finish", fail)
    with pytest.raises(ConnectionResetError):
        build(points(3), collection="halfway")
    with pytest.raises(IndexFileError, match="must be in Milvus"):
        MilvusIndex.connect(uri, "halfway")


def test_build_of_which_a_request_came_twice_is_refused(build, uri, monkeypatch):
    from tfdml.index.milvus._store import Store

    fill = Store.fill

    def twice(store, rows):
        fill(store, rows)
        store.client.insert(store.collection, [rows.values(slice(1))[0] | {"id": 9}])

    monkeypatch.setattr(Store, "fill", twice)
    with pytest.raises(ConnectionError, match="must hold the 3 items"):
        build(points(3), collection="twice")
    with pytest.raises(IndexFileError, match="must be in Milvus"):
        MilvusIndex.connect(uri, "twice")


def test_parameters_reach_the_index_and_the_search(build, monkeypatch):
    index = build(
        points(30),
        index_type="HNSW",
        index_parameters={"M": 5, "efConstruction": 50},
        search_parameters={"ef": 7},
    )
    store = index._store
    found = store.client.describe_index(store.collection, "embedding")
    assert found["params"] == {"M": 5, "efConstruction": 50}
    sent = []
    search = store.client.search
    monkeypatch.setattr(
        store.client,
        "search",
        lambda *names, **options: sent.append(options) or search(*names, **options),
    )
    for k in (3, 20):
        index.search(points(1), k=k)
    assert [options["search_params"]["params"]["ef"] for options in sent] == [7, 20]
    assert [options["consistency_level"] for options in sent] == ["Strong"] * 2


@pytest.mark.parametrize("index_type", ["SCANN", "DISKANN", "hnsw"])
def test_index_type_that_milvus_lite_only_pretends_to_have_is_refused(
    index_type, build
):
    with pytest.raises(ValueError, match="`index_type` must be one of FLAT"):
        build(points(3), index_type=index_type)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collection": "a b"}, "`collection` must be a word"),
        ({"metric": "euclidean"}, "`metric` must be one of"),
        ({"consistency": "strong"}, "`consistency` must be one of"),
        ({"batch_size": 0}, "`batch_size` must be a whole number"),
        ({"batch_size": 2.5}, "`batch_size` must be a whole number"),
        ({"embed": "model"}, "`embed` must be a function of images, or None"),
        ({"timeout": 0}, "`timeout` must be above 0"),
        ({"index_parameters": [1]}, "`index_parameters` must be a dictionary"),
        ({"index_parameters": {"M": {1}}}, "`index_parameters` must be a dictionary"),
        ({"index_type": None}, "`index_type` must be Milvus' name"),
        ({"search_parameters": {1: 2}}, "`search_parameters` must be a dictionary"),
        ({"model_fingerprint": 1}, "`model_fingerprint` must be a string"),
        ({"uri": ""}, "`uri` must be an address or a path"),
        ({"uri": "milvus"}, r"a path for milvus-lite that ends with \".db\""),
        ({"uri": "no/such/folder/m.db"}, "a path in an existing folder"),
        ({"ids": [1]}, "one id for each of the 3 rows"),
    ],
)
def test_bad_settings_are_refused(options, message, build):
    with pytest.raises(ValueError, match=message):
        build(points(3), **options)


def test_server_that_does_not_answer_is_named_without_its_password(caplog):
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:9 ") as caught:
        MilvusIndex.connect("http://root:secret@127.0.0.1:9", "gallery", timeout=1)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "secret" not in told.replace('"http://root:secret@127.0.0.1:9"', "")


def run_python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
    )


def test_milvus_lite_is_not_pinged_and_a_cluster_is(monkeypatch, tmp_path):
    import pymilvus

    from tfdml.index.milvus._connection import connect

    made = []
    monkeypatch.setattr(
        pymilvus, "MilvusClient", lambda uri, **options: made.append(options)
    )
    connect(str(tmp_path / "m.db"), None, "", 1)
    connect("http://host:19530", None, "", 1)
    assert made[0]["grpc_options"]["grpc.keepalive_time_ms"] == 2**31 - 1
    assert "grpc_options" not in made[1]


def test_token_comes_from_the_environment_unless_it_is_given(monkeypatch):
    import pymilvus

    from tfdml.index.milvus._connection import connect

    made = []
    monkeypatch.setattr(
        pymilvus, "MilvusClient", lambda uri, **options: made.append(options)
    )
    connect("http://host:19530", None, "", 1)
    monkeypatch.setenv("MILVUS_TOKEN", "of the environment")
    connect("http://host:19530", None, "", 1)
    connect("http://host:19530", "given", "", 1)
    tokens = [options["token"] for options in made]
    assert tokens == ["", "of the environment", "given"]


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
def test_second_process_on_one_milvus_lite_is_told_why(uri, build):
    build(points(3), collection="taken")
    code = """
        import sys
        from tfdml.index import LockedError, MilvusIndex
        try:
            MilvusIndex.connect(sys.argv[1], "taken")
        except LockedError as error:
            print(error)
    """
    done = run_python(code, uri)
    assert "serves one at a time" in done.stdout, done.stderr
    assert issubclass(LockedError, OSError)


@pytest.mark.slow
def test_items_outlive_the_process(tmp_path):
    code = """
        import sys
        import numpy as np
        from tfdml.index import MilvusIndex
        path, turn = sys.argv[1:]
        if turn == "first":
            index = MilvusIndex.build(
                np.eye(3), list("abc"), {"n": [1, None, 3]},
                uri=path, collection="letters", model_fingerprint="m",
            )
            index.add([[1, 1, 0]], ["d"])
        else:
            index = MilvusIndex.connect(path, "letters", model_fingerprint="m")
        nearest = index.search([[1, 1, 0.1]], k=1).ids
        print(index.count(), nearest, index.count({"n": 3}))
        index.close()
    """
    first, second = (
        run_python(code, str(tmp_path / "m.db"), turn) for turn in ("first", "again")
    )
    assert first.stdout == second.stdout == "4 [['d']] 1\n", second.stderr


def test_importing_the_package_does_not_import_pymilvus():
    code = """
        import sys
        import tfdml.index
        sys.exit("pymilvus" in sys.modules or "milvus_lite" in sys.modules)
    """
    assert run_python(code).returncode == 0


def test_missing_pymilvus_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(ImportError, match=r"tfdml\[milvus\]"):
        MilvusIndex.connect("http://127.0.0.1:9", "gallery")


# Files


def test_saved_folder_leads_back_to_the_collection(build, tmp_path):
    index = build(points(5), list("abcde"), model_fingerprint="abc")
    index.save(tmp_path / "index")
    (tmp_path / "index").rename(tmp_path / "moved")
    index.remove(["a"])
    for load in (load_index, MilvusIndex.load):
        with load(tmp_path / "moved", model_fingerprint="abc") as again:
            assert isinstance(again, MilvusIndex)
            assert again.count() == 4
        with pytest.raises(IndexFileError, match="`model_fingerprint`"):
            load(tmp_path / "moved", model_fingerprint="xyz")
    with pytest.raises(IndexFileError, match="holds a MilvusIndex"):
        ExactIndex.load(tmp_path / "moved")
    ExactIndex.build(points(2)).save(tmp_path / "exact")
    with pytest.raises(IndexFileError, match="holds a ExactIndex"):
        MilvusIndex.load(tmp_path / "exact")


def test_saved_folder_of_a_collection_that_was_replaced_is_refused(build, tmp_path):
    index = build(points(5), collection="replaced", model_fingerprint="abc")
    index.save(tmp_path / "index")
    index._store.client.drop_collection("replaced")
    build(points(5), collection="replaced", model_fingerprint="new")
    with pytest.raises(IndexFileError, match="is not the one that was saved"):
        load_index(tmp_path / "index")


def test_path_that_was_moved_is_named_with_what_to_do(build, tmp_path):
    index = build(points(3))
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


def test_saved_folder_holds_no_secret(build, tmp_path):
    store = build(points(2), token="root:secret")._store  # noqa: S106
    index = MilvusIndex(store, "https://root:secret@host:19530", "default", None)
    index.save(tmp_path / "index")
    assert index.stats().details["uri"] == "https://host:19530"
    files = [path for path in (tmp_path / "index").rglob("*") if path.is_file()]
    written = b"".join(path.read_bytes() for path in files)
    assert b"secret" not in written
    assert b"https://host:19530" in written

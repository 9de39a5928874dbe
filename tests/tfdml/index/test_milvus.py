"""What is Milvus' own in searches and changes. The rest is the contract."""

import dataclasses
import json

import numpy as np
import pytest

from tests.support.index_examples import METRICS
from tests.support.index_kinds import NASTY, drawn
from tfdml.index import (
    ExactIndex,
    Not,
)
from tfdml.index.milvus._collection import Facts
from tfdml.index.milvus._filters import expression_of, key_of, name_of
from tfdml.index.milvus._store import MilvusLimits, Store

pymilvus = pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")


@pytest.fixture
def build(milvus):
    return milvus


def assert_same(result, expected):
    np.testing.assert_array_equal(result.ids, expected.ids)
    np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-5, atol=1e-6)
    assert result.ids.dtype.kind == expected.ids.dtype.kind
    assert result.scores.dtype == np.float32


# Searching


@METRICS
@pytest.mark.parametrize("index_type", ["HNSW", "IVF_FLAT", "AUTOINDEX"])
def test_approximate_index_that_searches_everything_is_exact(metric, index_type, build):
    gallery, queries = drawn(400), drawn(30, seed=2)
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
    (answer,) = index._content.store.search(True, queries[1:], 10)
    assert len(answer) == 4  # what the list that Milvus looks into holds
    expected = ExactIndex.build(gallery).search(queries, k=10)
    assert_same(index.search(queries, k=10), expected)


def limit(index, **limits):
    """Give an index other limits of its requests."""
    index._content.store = dataclasses.replace(
        index._content.store, limits=MilvusLimits(**limits)
    )


def cut(monkeypatch, index, most):
    """Let Milvus find few items for those queries that point to the first axis."""
    client, search = index._content.store.client, index._content.store.client.search

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
    index = build(drawn(300))
    calls = failing(monkeypatch, index, "search")
    options = {"k": 3, "exclude": [[7], range(200), *([] for _ in range(8))]}
    found = index.search(drawn(10, seed=2), **options)
    asked = [(len(sent["data"]), sent["limit"]) for _, sent in calls]
    assert sorted(asked) == [(1, 203), (9, 4)]
    expected = ExactIndex.build(drawn(300)).search(drawn(10, seed=2), **options)
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
    facts = Facts("integer", 3, "cosine", "", "Strong", index_type, built_with, given)
    store = Store(None, "c", facts, given, "Strong", 9, 1.0, "m.db", "")
    assert store._parameters(5, widely=True) == expected
    assert store._parameters(1, widely=False) == given
    assert max(store._parameters(16_384, widely=True).values(), default=0) <= 32_768


def test_many_queries_go_in_blocks(build):
    gallery, queries = drawn(50), drawn(23, seed=2)
    index = build(gallery)
    whole = index.search(queries, k=3)
    limit(index, queries=5)
    assert_same(index.search(queries, k=3), whole)


def test_k_above_what_milvus_returns_is_refused(build):
    index = build(drawn(5))
    assert index.search(drawn(1), k=16_384).ids.shape == (1, 5)
    assert index.search(drawn(1), k=16_384, exclude=[0]).ids.shape == (1, 4)
    with pytest.raises(ValueError, match="must be at most 16384"):
        index.search(drawn(1), k=16_385)
    with pytest.raises(ValueError, match="must be at most 16384"):
        index.search(drawn(1), k=16_384, exclude=[[0]])
    with pytest.raises(ValueError, match="`k` must be a whole number"):
        index.search(drawn(1), k=0)


def test_parameters_reach_the_index_and_the_search(build, monkeypatch):
    index = build(
        drawn(30),
        index_type="HNSW",
        index_parameters={"M": 5, "efConstruction": 50},
        search_parameters={"ef": 7},
    )
    store = index._content.store
    found = store.client.describe_index(store.collection, "embedding")
    assert found["params"] == {"M": 5, "efConstruction": 50}
    calls = failing(monkeypatch, index, "search")
    for k in (3, 20):
        index.search(drawn(1), k=k)
    sent = [options["search_params"]["params"]["ef"] for _, options in calls]
    assert sent == [7, 20]
    assert {options["consistency_level"] for _, options in calls} == {"Strong"}


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
    index = build(drawn(2), attributes={"n": [1, None]})
    store = index._content.store
    foreign = {"id": 5, "embedding": drawn(1)[0], "attributes": {"hex__z": [], "n": 3}}
    store.client.insert(store.collection, [foreign])
    assert index.get([0, 5]).attributes == [{"n": 1}, {"n": 3}]
    assert index.count({"n": Not(1)}) == 2


# Changes


def test_half_a_change_is_taken_back(build, monkeypatch):
    index = build(drawn(6), attributes={"n": list(range(6))}, batch_size=2)
    for change in (
        lambda: index.add(drawn(6), range(10, 16)),
        lambda: index.update(range(6), drawn(6, seed=9), {"n": [7] * 6}),
    ):
        with monkeypatch.context() as patch:
            calls = failing(patch, index, "upsert", at=3)
            with pytest.raises(ConnectionResetError):
                change()
        assert len(calls) >= 3  # and those that write the old items again
        assert index.count() == 6
        assert 10 not in index
        items = index.get(range(6))
        np.testing.assert_array_equal(items.embeddings, drawn(6))
        assert items.attributes == [{"n": n} for n in range(6)]


def test_change_that_cannot_be_taken_back_says_so(build, monkeypatch):
    index = build(drawn(5), batch_size=2)
    failing(monkeypatch, index, "upsert", at=2)
    failing(monkeypatch, index, "delete", at=1)
    with pytest.raises(ConnectionResetError) as caught:
        index.add(drawn(6), range(10, 16))
    assert "could not be restored" in caught.value.__notes__[0]


def failing(monkeypatch, index, method, *, at=0):
    """Make the `at`-th call of a method of the client fail; return all calls."""
    client, calls = index._content.store.client, []
    original = getattr(client, method)

    def call(*arguments, **options):
        calls.append((arguments, options))
        if len(calls) == at:
            raise ConnectionResetError("the server is gone")
        return original(*arguments, **options)

    monkeypatch.setattr(client, method, call)
    return calls


def test_requests_stay_below_the_limit_of_bytes(build, monkeypatch):
    index = build(drawn(20), [str(i) * 40 for i in range(20)])
    limit(index, bytes_written=300)
    calls = failing(monkeypatch, index, "upsert")
    index.add(drawn(9), ["x" * 40 + str(i) for i in range(9)])
    assert [len(rows) for (_, rows), _ in calls] == [4, 4, 1]
    assert index.count() == 29


def test_answers_stay_below_the_limit_of_bytes_however_long_attributes_are(
    build, monkeypatch
):
    index = build(drawn(7), attributes={"text": ["x" * 60_000] * 7})
    limit(index, bytes_read=4 * 2**16)
    calls = failing(monkeypatch, index, "query")
    items = index.get(range(7))
    assert len(calls) == 3
    assert [len(own["text"]) for own in items.attributes] == [60_000] * 7
    assert len(index.get(range(7)).ids) == 7


@pytest.mark.parametrize("batch_size", [1, 7.0, 100])
def test_ids_are_all_found_page_by_page_in_rising_order(build, batch_size, monkeypatch):
    names = [*NASTY, *(f"{number}" for number in range(20))]
    index = build(drawn(len(names)), names, batch_size=batch_size)
    index.add(drawn(2), ["later", "\U0010ffff"])
    calls = failing(monkeypatch, index, "query")
    assert index.ids.tolist() == sorted([*names, "later", "\U0010ffff"])
    assert len(calls) == 1 + -(-(len(names) + 2) // batch_size)  # the last is empty
    numbers = [-(2**63) + 1, 2**63 - 1, 0, -5, *range(10, 20)]
    index = build(drawn(14), numbers, batch_size=batch_size)
    assert index.ids.tolist() == sorted(numbers)


def test_ids_of_an_empty_collection_are_of_its_kind(build):
    assert build(drawn(0), np.empty(0, str)).ids.dtype.kind == "U"
    assert build(drawn(0)).ids.dtype == np.int64


def test_id_that_milvus_returns_twice_is_once_in_ids(build, monkeypatch):
    index = build(drawn(3), ["b", "a", "c"])
    client, query = index._content.store.client, index._content.store.client.query
    monkeypatch.setattr(
        client,
        "query",
        lambda *given, **options: [
            row for row in query(*given, **options) for _ in range(2)
        ],
    )
    assert index.ids.tolist() == ["a", "b", "c"]


def test_values_that_milvus_cannot_hold_are_refused(build):
    index = build(drawn(1), ["a"])
    for ids, attributes, message in (
        (["b"], {"text": ["x" * 65_536]}, "at most 65535 bytes as JSON"),
        (["b"], {"n": [-(2**63)]}, r"above -2\*\*63"),
    ):
        with pytest.raises(ValueError, match=message):
            index.add(drawn(1), ids, attributes)
    with pytest.raises(ValueError, match=r"above -2\*\*63"):
        build(drawn(1), [-(2**63)])
    assert index.count() == 1
    assert index.stats().attributes == {}

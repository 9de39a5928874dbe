"""The embeddings of queries, recorded in a folder that stays small."""

import numpy as np
import pytest

from serving.search.gallery.opening import open_search
from serving.search.gallery.query import (
    Crop,
    Embedding,
    Examples,
    Member,
    Query,
    Upload,
)
from serving.search.gallery.query_record import QueryRecorder, read_queries
from tests.support.clock import Clock
from tests.support.refuses import refuses
from tests.support.search_fixtures import encoded, page_of, post, quarter_colors
from tfdml.index import LocalIndex

FINGERPRINT = "1" * 64


def index_of(dimension=4, fingerprint=FINGERPRINT, rows=8):
    embeddings = np.random.default_rng(0).normal(size=(rows, dimension))
    names = [f"image-{row}" for row in range(rows)]
    return LocalIndex.build(embeddings, names, model_fingerprint=fingerprint)


def query(number, dimension=4):
    return np.full(dimension, number, np.float32)


@pytest.fixture
def index():
    return index_of()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def recorder(tmp_path, clock):
    return QueryRecorder(tmp_path / "queries", clock=clock)


@pytest.fixture
def keep(recorder, index):
    return recorder.keeper(index)


def test_what_was_recorded_is_read_in_the_order_of_time(
    tmp_path, index, clock, recorder, keep
):
    for number in (1, 2, 3):
        clock.now += 10
        keep(query(number))
        if number != 2:
            recorder.write()
    found = read_queries(tmp_path / "queries", index)
    assert found.embeddings.tolist() == [query(n).tolist() for n in (1, 2, 3)]
    assert found.times.tolist() == [1010, 1020, 1030]
    assert found.between(1010, 1030).tolist() == [[1] * 4, [2] * 4]
    assert len(list((tmp_path / "queries").iterdir())) == 2


def test_nothing_is_written_without_queries(tmp_path, recorder):
    recorder.write()
    assert list((tmp_path / "queries").iterdir()) == []


def test_folder_is_for_its_owner_alone(tmp_path, recorder):
    assert (tmp_path / "queries").stat().st_mode & 0o777 == 0o700


def test_end_writes_what_waits(tmp_path, index, recorder, keep):
    with recorder:
        keep(query(7))
    recorder._thread.join()  # however slow the machine is
    assert read_queries(tmp_path / "queries", index).embeddings[0, 0] == 7


def test_folder_stays_below_its_size_and_loses_the_oldest(tmp_path, clock):
    wide = index_of(1000)
    recorder = QueryRecorder(tmp_path / "queries", most_bytes=1_000_000, clock=clock)
    keep = recorder.keeper(wide)
    for number in range(500):  # of 4,000 bytes each
        clock.now += 1
        keep(query(number, 1000))
        if number % 10 == 9:
            recorder.write()
    files = list((tmp_path / "queries").iterdir())
    size = sum(file.stat().st_size for file in files)
    assert 900_000 < size <= 1_000_000
    kept = read_queries(tmp_path / "queries", wide).embeddings[:, 0]
    assert kept.tolist() == list(range(500 - len(kept), 500))


def test_long_batch_is_cut_into_files(tmp_path, clock):
    wide = index_of(1000)
    recorder = QueryRecorder(tmp_path / "queries", most_bytes=1_000_000, clock=clock)
    keep = recorder.keeper(wide)
    for number in range(60):
        keep(query(number, 1000))
    recorder.write()
    sizes = [file.stat().st_size for file in (tmp_path / "queries").iterdir()]
    assert len(sizes) == 3
    assert max(sizes) < 110_000


def test_whole_embeddings_are_cut_as_the_index_cuts_queries(tmp_path, recorder):
    embeddings = np.random.default_rng(0).normal(size=(8, 6))
    index = LocalIndex.build(
        embeddings,
        list("abcdefgh"),
        dimensions=4,
        model_fingerprint=FINGERPRINT,
    )
    recorder.keeper(index)(np.arange(6, dtype=np.float32))
    recorder.write()
    (found,) = read_queries(tmp_path / "queries", index).embeddings
    whole = np.arange(4) / np.linalg.norm(np.arange(4))
    np.testing.assert_allclose(found / np.linalg.norm(found), whole, rtol=1e-6)


def test_queries_of_another_model_are_left_out(tmp_path, recorder, keep):
    keep(query(1))
    recorder.write()
    found = read_queries(tmp_path / "queries", index_of(fingerprint="2" * 64))
    assert found.embeddings.shape == (0, 4)
    assert found.of_other_models == 1


def test_models_that_follow_each_other_have_files_of_their_own(
    tmp_path, index, recorder, keep
):
    new = index_of(6, fingerprint="2" * 64)
    keep(query(1))
    recorder.keeper(new)(query(2, 6))
    recorder.write()
    for each, number in ((index, 1), (new, 2)):
        found = read_queries(tmp_path / "queries", each)
        assert found.embeddings[:, 0].tolist() == [number]
        assert found.of_other_models == 1


def test_full_disk_is_told_in_the_log_and_stops_nothing(
    tmp_path, recorder, keep, caplog, index
):
    recorder._folder.rmdir()
    keep(query(1))
    recorder.write()
    assert "1 queries were not recorded" in caplog.text
    recorder._folder.mkdir()
    keep(query(2))
    recorder.write()
    assert len(read_queries(tmp_path / "queries", index).embeddings) == 1


def test_folder_without_records_is_refused(tmp_path, index):
    with pytest.raises(FileNotFoundError, match="--record-queries"):
        read_queries(tmp_path, index)


def test_damaged_file_is_named(tmp_path, index, recorder, keep):
    keep(query(1))
    recorder.write()
    (file,) = (tmp_path / "queries").iterdir()
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match=f"{file.name} is damaged. Delete it"):
        read_queries(tmp_path / "queries", index)


def test_size_that_is_too_small_is_refused(tmp_path):
    refuses(
        QueryRecorder,
        argument="most_bytes",
        value=999_999,
        rule="must be at least 1000000",
        valid={"folder": tmp_path},
    )


def test_images_from_outside_are_recorded_and_those_of_the_gallery_are_not(
    colors, colors_url, tmp_path
):
    blue = encoded((0, 0, 255))
    with open_search(colors / "index", colors_url) as search:
        recorder = QueryRecorder(tmp_path / "queries", clock=Clock())
        search.came = recorder.keeper(search.index)
        search.nearest(Query(Upload(blue), 3))
        search.nearest(Query(Upload(blue), 3, crop=Crop(0, 0, 0.5, 0.5)))
        search.nearest(Query(Embedding([1.0] * 12), 3))
        search.nearest(Query(Member("red/pale.png"), 3))
        search.nearest(Query(Examples([Upload(blue), Member("red/pale.png")]), 3))
        recorder.write()
        found = read_queries(tmp_path / "queries", search.index).embeddings
    assert len(found) == 3
    expected = quarter_colors(np.broadcast_to(np.array([0, 0, 255]), (2, 2, 3)))
    np.testing.assert_allclose(found[0], expected, atol=1e-3)


def test_page_records_what_it_is_asked(colors, colors_url, tmp_path):
    recorder = QueryRecorder(tmp_path / "queries", clock=Clock())
    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search, recorder=recorder) as page,
    ):
        assert post(page, encoded((0, 0, 255))).status_code == 200
        page.get("/api/similar", params={"id": "red/pale.png"})
        recorder.write()
        found = read_queries(tmp_path / "queries", search.index)
    assert len(found.embeddings) == 1

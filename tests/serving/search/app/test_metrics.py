"""What the search service counts for Prometheus."""

import functools
import queue
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.search.app.recall_watch import RecallWatch
from serving.search.gallery.opening import open_search
from serving.search.gallery.query import Query, Upload
from serving.web.access import TokenAccess
from tests.support.search_fixtures import encoded, page_of, post
from tests.support.token_files import write_tokens


def sample_of(page, name, **labels):
    """Return the value of a sample; None if there is none."""
    text = page.get("/metrics").text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


@pytest.fixture
def counted(colors, calibrated, colors_url):
    with (
        open_search(calibrated, colors_url, images=colors / "images") as search,
        page_of(search, with_metrics=True) as page,
    ):
        yield page


REQUESTS = "tfdml_search_requests_total"
STAGES = "tfdml_search_stage_seconds_count"
ANSWERS = "tfdml_search_answers_total"


class TestRequests:
    def test_they_are_counted_by_call_and_status(self, counted):
        post(counted, encoded((20, 10, 240)))
        post(counted, b"no image")
        counted.get("/api/similar", params={"id": "nowhere"})
        counted.get("/api/../../etc/passwd")
        assert sample_of(counted, REQUESTS, call="search", status="OK") == 1
        assert (
            sample_of(counted, REQUESTS, call="search", status="INVALID_ARGUMENT") == 1
        )
        assert sample_of(counted, REQUESTS, call="similar", status="NOT_FOUND") == 1
        assert sample_of(counted, REQUESTS, call="unknown", status="NOT_FOUND") == 1
        seconds = "tfdml_search_request_seconds_count"
        assert sample_of(counted, seconds, call="search") == 2

    def test_stages_of_a_search_are_timed(self, counted):
        post(counted, encoded((20, 10, 240)))
        counted.get("/api/similar", params={"id": "red/pale.png"})
        assert sample_of(counted, STAGES, stage="decode") == 1
        assert sample_of(counted, STAGES, stage="embed") == 1
        assert sample_of(counted, STAGES, stage="index") == 2

    def test_answers_are_counted_by_whether_they_match(self, counted):
        post(counted, encoded((0, 0, 255)))
        post(counted, encoded((255, 255, 0)))
        assert sample_of(counted, ANSWERS, index="index", answer="match") == 1
        assert sample_of(counted, ANSWERS, index="index", answer="no_match") == 1

    def test_answers_without_a_calibration_are_unknown(self, colors, colors_url):
        with (
            open_search(colors / "index", colors_url) as search,
            page_of(search, with_metrics=True) as page,
        ):
            post(page, encoded((0, 0, 255)))
            assert sample_of(page, ANSWERS, index="index", answer="unknown") == 1

    def test_thumbnails_are_counted_by_whether_they_were_kept(self, counted):
        name = "tfdml_search_thumbnails_total"
        for _ in range(3):
            counted.get("/images", params={"id": "red/pale.png"})
        assert sample_of(counted, name, cache="miss") == 1
        assert sample_of(counted, name, cache="hit") == 2


class TestGallery:
    def test_its_size_and_changes_are_told(self, counted):
        assert sample_of(counted, "tfdml_search_index_images", index="index") == 9
        assert sample_of(counted, "tfdml_search_index_added", index="index") == 0
        assert sample_of(counted, "tfdml_search_index_removed", index="index") == 0
        assert sample_of(counted, "tfdml_search_index_recall", index="index") == 1


class TestRecall:
    def test_recent_searches_are_compared_with_all_items(self, colors, colors_url):
        with open_search(colors / "index", colors_url) as search:
            watch = RecallWatch({"index": search})
            search.seen = functools.partial(watch.keep, "index")
            watch.measure()
            assert watch.recalls == {}
            search.nearest(Query(Upload(encoded((0, 0, 255))), 3))
            watch.measure()
            assert watch.recalls == {"index": 1.0}

    def test_it_is_not_told_before_it_was_measured(self, counted):
        name = "tfdml_search_index_recall_now"
        assert sample_of(counted, name, index="index") is None

    def test_whole_and_cut_queries_are_measured_together(self):
        measured = []

        def measure(queries):
            measured.append(queries.tolist())
            return np.ones(len(queries))

        index = SimpleNamespace(measure_recall=measure)
        watch = RecallWatch({"index": SimpleNamespace(index=index)})
        watch.keep("index", np.array([1.0, 2.0, 3.0]))
        watch.keep("index", np.array([4.0, 5.0]))
        watch.measure()
        assert measured == [[[1, 2], [4, 5]]]

    def test_gallery_that_cannot_be_measured_is_told_in_the_log(self, caplog):
        def refuse(queries):
            raise ValueError("The index must hold at least one item.")

        empty = SimpleNamespace(index=SimpleNamespace(measure_recall=refuse))
        watch = RecallWatch({"index": empty})
        watch.keep("index", np.zeros(12))
        watch.measure()
        assert watch.recalls == {}
        assert "must hold at least one item" in caplog.text

    def test_it_is_measured_again_and_again_until_the_end(self):
        measured = queue.Queue()

        def measure(queries):
            measured.put(len(queries))
            watch.keep("index", np.zeros(12))
            return np.ones(len(queries))

        index = SimpleNamespace(measure_recall=measure)
        watch = RecallWatch(
            {"index": SimpleNamespace(index=index)}, seconds=0.01, queries=2
        )
        watch.keep("index", np.zeros(12))
        watch.start()
        assert [measured.get(timeout=60) for _ in range(4)] == [1, 2, 2, 2]
        watch.close()


class TestAccess:
    def test_there_are_none_unless_wanted(self, page):
        assert page.get("/metrics").status_code == 404

    def test_they_need_the_token_of_the_gallery(self, colors, colors_url, tmp_path):
        access = TokenAccess(write_tokens(tmp_path / "tokens", "0123456789abcdef\n"))
        with (
            open_search(colors / "index", colors_url) as search,
            page_of(search, with_metrics=True, access=access) as page,
        ):
            assert page.get("/metrics").status_code == 401
            page.headers["authorization"] = "Bearer 0123456789abcdef"
            assert page.get("/metrics").status_code == 200

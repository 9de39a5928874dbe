"""What the search service counts for Prometheus."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.search.gallery.opening import open_search
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

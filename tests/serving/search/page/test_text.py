"""The box that searches with words, where the model has a text tower."""

import pytest
from playwright.sync_api import expect

from tests.serving.search.page.browsing import (
    DESKTOP,
    PHONE,
    has_no_horizontal_scrolling,
    served,
    visiting,
)
from tests.support.search_fixtures import serve_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def words(towers):
    with (
        serve_model(towers / "words") as url,
        served(towers / "index", url) as address,
    ):
        yield address


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_words_search_and_the_address_keeps_them(browser, words, size):
    with visiting(browser, words, size) as page:
        box = page.get_by_label("What the images should show")
        box.fill("a photo of green")
        box.press("Enter")
        expect(page.locator(".hits .card")).to_have_count(9)
        expect(page.locator(".hits .card-class").first).to_have_text("green")
        expect(page.locator("#preview-title")).to_have_text("“a photo of green”")
        assert has_no_horizontal_scrolling(page)
        page.get_by_label("Not like this: clear.png").first.click()
        expect(page.locator(".hits .card")).to_have_count(8)
        page.go_back()
        expect(page.locator(".hits .card")).to_have_count(9)
        page.reload()
        expect(page.locator(".hits .card-class").first).to_have_text("green")


def test_without_a_text_tower_there_is_no_box(visit):
    page = visit()
    expect(page.locator("#strip .card")).to_have_count(9)
    expect(page.locator("#query-text")).to_be_hidden()

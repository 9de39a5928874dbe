import io

import pytest
from PIL import Image
from playwright.sync_api import expect

from serving.search.app.fetching import FetchError
from tests.serving.search.page.browsing import served, status

pytestmark = pytest.mark.slow


class Elsewhere:
    """Stands for other servers: one image is there, and nothing else."""

    async def fetch(self, url):
        if url != "https://images.example/sky.png":
            raise FetchError(
                "The image at `url` could not be fetched.", is_refused=False
            )
        buffer = io.BytesIO()
        Image.new("RGB", (20, 20), (0, 0, 250)).save(buffer, "PNG")
        return buffer.getvalue()


@pytest.fixture(scope="module")
def fetching(colors, colors_url):
    options = {"allow_url": True, "fetcher": Elsewhere()}
    with served(colors / "index", colors_url, **options) as address:
        yield address


def are_loaded(images):
    return images.evaluate_all(
        "async images => { await Promise.all(images.map(i => i.complete || "
        "new Promise(done => { i.onload = i.onerror = done; })));"
        " return images.every(i => i.naturalWidth > 0); }"
    )


def test_a_gallery_with_tokens_asks_for_one_and_shows_its_images(visit, guarded, token):
    page = visit(at=guarded)
    dialog = page.get_by_role("dialog", name="This gallery requires a token")
    expect(page.get_by_label("Access token")).to_be_focused()
    page.keyboard.type("one-that-is-not-valid")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#strip img[src^=blob]")).to_have_count(9)
    assert are_loaded(page.locator("#strip img"))
    page.locator("#strip .card").first.click()
    expect(page.locator(".hits img[src^=blob]").first).to_be_visible()
    expect(page.locator("#preview-image[src^=blob]")).to_be_visible()
    page.get_by_role("button", name="Choose a region").click()
    expect(page.locator("#crop-search")).to_be_enabled()
    page.keyboard.press("Escape")
    # The token is kept as long as the page is open.
    page.reload()
    expect(page.locator(".hits .card")).to_have_count(8)


def test_who_gives_no_token_is_told_what_is_missing(visit, guarded):
    page = visit(at=guarded)
    expect(page.locator("#token-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(status(page)).to_contain_text("Bearer TOKEN")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#token-dialog")).to_be_visible()


def test_an_image_elsewhere_is_searched_with_by_its_address(visit, fetching):
    page = visit(at=fetching)
    page.get_by_label("Address of an image").fill("https://images.example/sky.png")
    page.keyboard.press("Enter")
    expect(page.locator(".hits .card-class").first).to_have_text("blue")
    title = page.locator("#preview-title")
    expect(title).to_have_text("https://images.example/sky.png")
    expect(page.locator("#preview-image")).to_be_hidden()
    page.reload()
    expect(page.locator(".hits .card")).to_have_count(9)


def test_an_image_that_is_not_fetched_is_reported(visit, fetching):
    page = visit(at=fetching)
    field = page.get_by_label("Address of an image")
    field.fill("https://images.example/gone.png")
    page.keyboard.press("Enter")
    expect(status(page)).to_contain_text("could not be fetched")
    expect(page.locator("#preview-title")).to_contain_text("gone.png")
    with page.expect_request("**/api/search"):
        field.press("Enter")

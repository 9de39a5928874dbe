"""No rule of axe-core is broken in any view, at any width, in either color scheme."""

import pytest
from playwright.sync_api import expect

from serving.search.gallery.indexing import index_images
from tests.serving.search.page.browsing import (
    WIDTHS,
    editable,
    has_no_horizontal_scrolling,
    settled,
    upload,
    visiting,
)
from tests.support.axe import axe_source, violations
from tests.support.search_fixtures import (
    write_image,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(colors, colors_url, calibrated, reddish, reddish_url, tmp_path_factory):
    """A page that offers everything: two indexes, changes, addresses, a threshold."""
    folder = tmp_path_factory.mktemp("search")
    index_images(colors / "images", folder / "reddish", reddish)
    options = {"compare": (folder / "reddish", reddish_url), "allow_url": True}
    options["feedback"] = folder / "feedback"
    with editable(calibrated, colors_url, folder / "index", **options) as address:
        yield address


@pytest.fixture(scope="module")
def axe(request):
    return axe_source(request.config.cache.mkdir("axe-core"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("desktop", "light"), id="desktop-light"),
        pytest.param(("phone", "dark"), id="phone-dark", marks=pytest.mark.full),
    ],
)
def shared_page(browser, address, request):
    """One page for all views: each width and each color scheme once."""
    width, scheme = request.param
    calm = {"color_scheme": scheme, "reduced_motion": "reduce"}
    with visiting(browser, address, WIDTHS[width], **calm) as page:
        yield page


@pytest.fixture
def page(shared_page, address):
    """The start of the page, as if nothing was done with it."""
    shared_page.unroute_all()
    shared_page.goto("about:blank")
    shared_page.goto(f"{address}/")
    expect(shared_page.locator("#strip img")).to_have_count(9)
    return shared_page


def assert_accessible(page, axe):
    settled(page)
    assert violations(page, axe) == []
    assert has_no_horizontal_scrolling(page)


def test_axe_finds_what_it_should(page, axe):
    page.evaluate("document.querySelector('#strip img').removeAttribute('alt')")
    found = violations(page, axe)
    assert any(line.startswith("image-alt") for line in found)


def test_start_and_its_error(page, axe, tmp_path):
    assert_accessible(page, axe)
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    upload(page, bad)
    expect(page.locator("#status.error")).to_be_visible()
    assert_accessible(page, axe)


def test_hits_and_the_dialog_of_a_region(page, axe, tmp_path):
    upload(page, write_image(tmp_path / "sky.png", (0, 0, 200)))
    expect(page.locator(".hits .card")).to_have_count(18)
    assert_accessible(page, axe)
    options = page.get_by_role("button", name="Options")
    if options.is_visible():  # on a phone
        options.click()
    page.locator("#export summary").click()
    assert_accessible(page, axe)
    page.get_by_label("Index", exact=True).select_option("index")
    expect(page.locator(".hits .card")).to_have_count(9)
    assert_accessible(page, axe)
    page.get_by_role("button", name="Choose a region").click()
    expect(page.locator("#crop-search")).to_be_enabled()
    assert_accessible(page, axe)
    page.locator("#crop-search").click()
    expect(page.locator("#preview-region")).to_be_visible()
    assert_accessible(page, axe)


def test_examples_beside_the_query(page, axe):
    options = (
        "more=%5B%22like/blue%2Fpale.png%22%5D&not=%5B%22like/green%2Fpale.png%22%5D"
    )
    page.goto(f"{page.url.split('#')[0]}#like/red%2Fclear.png?{options}&index=index")
    expect(page.locator(".hits .card")).to_have_count(6)
    expect(page.locator(".example")).to_have_count(2)
    page.locator(".hits .card").first.focus()
    assert_accessible(page, axe)


def test_sharing_keys_and_the_hint(page, axe):
    expect(page.locator("#hint")).to_be_visible()
    page.locator("#keys-open").click()
    assert_accessible(page, axe)
    page.keyboard.press("Escape")
    page.locator("#strip .card").first.click()
    expect(page.locator(".hits .card").first).to_be_visible()
    options = page.get_by_role("button", name="Options")
    if options.is_visible():
        options.click()
    page.locator("#group").click()
    expect(page.locator(".stack-button").first).to_be_visible()
    assert_accessible(page, axe)
    page.get_by_role("button", name="Why is").first.click()
    expect(page.locator("#why-said")).to_contain_text("part")
    expect(page.locator("#why-rating")).to_be_visible()
    assert_accessible(page, axe)
    page.locator("#why-close").click()
    page.locator("#share").click()
    expect(page.locator("#share-dialog")).to_be_visible()
    assert_accessible(page, axe)


def test_no_match(page, axe, tmp_path):
    upload(page, write_image(tmp_path / "lemon.png", (200, 200, 0)))
    expect(page.locator(".divider").first).to_be_visible()
    assert_accessible(page, axe)


def test_browsing_and_the_question_before_a_removal(page, axe):
    page.get_by_role("link", name="Browse", exact=True).click()
    expect(page.locator("#page-images .card")).to_have_count(9)
    assert_accessible(page, axe)
    page.locator(".card-remove").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#remove-dialog")).to_be_visible()
    assert_accessible(page, axe)


def test_the_pages_of_a_long_gallery(page, axe):
    def answer(route):
        reply = route.fetch().json()
        route.fulfill(json=reply | {"total": 10_000})

    page.route("**/api/images?*", answer)
    page.goto(page.url.split("#")[0] + "#browse?page=2")
    expect(page.locator("#pager")).to_be_visible()
    assert_accessible(page, axe)


def test_near_duplicates(page, axe):
    page.goto(page.url.split("#")[0] + "#duplicates?threshold=0.8")
    expect(page.locator(".group").first).to_be_visible()
    assert_accessible(page, axe)


def test_the_map_and_its_clusters(page, axe):
    page.get_by_role("link", name="Map").click()
    expect(page.locator("#canvas")).to_be_visible(timeout=60_000)
    page.locator("#clusters summary").first.click()
    assert_accessible(page, axe)


def test_adding(page, axe, tmp_path):
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    page.get_by_role("link", name="Add", exact=True).click()
    expect(page.locator("#adding-title")).to_be_focused()
    assert_accessible(page, axe)
    good = write_image(tmp_path / "good.png", (250, 250, 0))
    page.set_input_files("#add-files", [bad, good])
    expect(page.locator("#add-list .add-item")).to_have_count(2)
    assert_accessible(page, axe)
    page.route("**/api/images", lambda route: route.fulfill(status=400, json=refused))
    refused = {"error": "This is not an image."}
    page.get_by_role("button", name="Add 2 images").click()
    expect(page.locator("#status.warning")).to_be_visible()
    assert_accessible(page, axe)


def test_the_token_dialog(page, axe):
    error = {"error": "The bearer token is not valid here."}
    page.route("**/api/info", lambda route: route.fulfill(status=401, json=error))
    page.reload()
    page.get_by_label("Access token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    assert_accessible(page, axe)

import re

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.serving.search.page.browsing import (
    choose_class,
    has_no_horizontal_scrolling,
    hit_ids,
    settled,
    status,
    upload,
)
from tests.support.search_fixtures import write_image

pytestmark = pytest.mark.slow


@pytest.fixture
def page(visit):
    page = visit()
    expect(page.locator("#strip img")).to_have_count(9)
    return page


def test_the_page_starts_with_a_sample_of_the_gallery(page):
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("colors, version 1")
    expect(page.locator("#intro-text")).to_contain_text("9 images")
    loaded = page.locator("#strip img").evaluate_all(
        "async images => { await Promise.all(images.map(i => i.decode()));"
        " return images.every(i => i.naturalWidth > 0); }"
    )
    assert loaded
    page.get_by_role("button", name="Show others").click()
    expect(page.locator("#strip img")).to_have_count(9)
    # Neither a camera nor other servers are offered where there are none.
    expect(page.get_by_text("Take a photo")).to_be_hidden()
    expect(page.get_by_label("Address of an image")).to_be_hidden()


def test_an_upload_shows_the_nearest_with_class_and_similarity(page, tmp_path):
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    cards = page.locator(".hits .card")
    expect(cards).to_have_count(9)
    for row in range(3):
        expect(cards.nth(row).locator(".card-class")).to_have_text("blue")
    expect(cards.first.locator("b")).to_have_text(re.compile(r"^(0\.99\d|1\.000)$"))
    expect(cards.first.locator("img")).to_have_attribute("alt", re.compile("clear.png"))
    expect(status(page)).to_contain_text("The 9 nearest of 9 images")
    expect(page.locator("#preview-title")).to_have_text("sky.png")
    preview = page.locator("#preview-image")
    assert (
        preview.evaluate("async i => { await i.decode(); return i.naturalWidth; }")
        == 24
    )
    filling = cards.first.locator(".meter i").bounding_box()["width"]
    whole = cards.first.locator(".meter").bounding_box()["width"]
    assert 0.98 * whole < filling <= whole
    assert has_no_horizontal_scrolling(page)


def test_an_image_of_the_gallery_searches_and_back_returns(page):
    first = page.locator("#strip .card").first
    title = first.get_attribute("title")
    first.click()
    cards = page.locator(".hits .card")
    expect(cards).to_have_count(8)
    expect(status(page)).to_contain_text("2 of the 8 have the class of the query")
    expect(page.locator(".hits .same")).to_have_count(2)
    titles = hit_ids(page)
    assert title not in titles
    assert {name.split("/")[0] for name in titles[:2]} == {title.split("/")[0]}

    cards.nth(7).click()
    expect(page.locator("#preview-title")).to_have_text(titles[7].split("/")[0])
    expect(page.locator("#results-title")).to_be_focused()
    page.go_back()
    expect(page.locator("#preview-title")).to_have_text(title.split("/")[0])
    page.go_back()
    expect(page.locator("#samples")).to_be_visible()
    expect(page.locator("#preview")).to_be_hidden()


def test_a_text_file_named_as_an_image_shows_what_is_wrong(page, tmp_path):
    bad = tmp_path / "notes.png"
    bad.write_text("no image")
    upload(page, bad)
    expect(status(page)).to_contain_text("notes.png: This is not an image")
    expect(status(page)).to_have_class(re.compile("error"))
    expect(page.locator(".hits")).to_have_count(0)
    assert has_no_horizontal_scrolling(page)

    upload(page, write_image(tmp_path / "good.png", (250, 0, 0)))
    expect(page.locator(".hits .card")).to_have_count(9)
    expect(status(page)).not_to_have_class(re.compile("error"))


def test_a_file_above_the_limit_is_refused_before_it_is_sent(page, tmp_path):
    big = tmp_path / "big.png"
    big.write_bytes(b"x" * 100_001)
    sent = []
    page.on("request", lambda request: sent.append(request.method))
    upload(page, big)
    expect(status(page)).to_contain_text("At most 0.1 MB")
    assert "POST" not in sent


def test_a_dropped_or_pasted_image_is_searched_with(page, tmp_path):
    Image.new("RGB", (8, 8), (0, 255, 0)).save(tmp_path / "leaf.png")
    content = list((tmp_path / "leaf.png").read_bytes())
    transfer = page.evaluate_handle(
        "bytes => { const data = new DataTransfer(); data.items.add(new File("
        "[new Uint8Array(bytes)], 'leaf.png', {type: 'image/png'})); return data; }",
        content,
    )
    page.dispatch_event("body", "dragenter", {"dataTransfer": transfer})
    expect(page.locator("#veil")).to_be_visible()
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    expect(page.locator("#veil")).to_be_hidden()
    expect(page.locator(".hits .card-class").first).to_have_text("green")

    page.get_by_role("link", name="Search", exact=True).click()
    expect(page.locator("#results")).to_be_hidden()
    page.evaluate(
        "data => document.dispatchEvent(new ClipboardEvent('paste',"
        " {clipboardData: data, bubbles: true}))",
        transfer,
    )
    expect(page.locator(".hits .card-class").first).to_have_text("green")


def test_the_page_can_be_used_with_the_keyboard(page):
    for name in ("Image search", "Search", "Browse", "Map", "Duplicates"):
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name=name, exact=True)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#file")).to_be_focused()
    page.locator("#shuffle").focus()
    page.keyboard.press("Tab")
    expect(page.locator("#strip .card").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".hits .card")).to_have_count(8)
    expect(page.locator("#results-title")).to_be_focused()


def test_back_comes_to_the_link_and_the_place_that_were_left(visit):
    page = visit(viewport={"width": 390, "height": 300})
    card = page.locator("#strip .card").nth(6)
    card.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    assert before > 0
    card.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#results-title")).to_be_focused()
    assert page.evaluate("scrollY") == 0
    page.go_back()
    expect(card).to_be_focused()
    assert page.evaluate("scrollY") == before


def test_an_earlier_image_is_found_again_by_back_and_forward(page, tmp_path):
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    expect(page.locator("#preview-title")).to_have_text("sky.png")
    upload(page, write_image(tmp_path / "leaf.png", (10, 250, 10)))
    expect(page.locator("#preview-title")).to_have_text("leaf.png")
    expect(page.locator(".hits .card-class").first).to_have_text("green")
    page.go_back()
    expect(page.locator("#preview-title")).to_have_text("sky.png")
    expect(page.locator(".hits .card-class").first).to_have_text("blue")
    page.go_forward()
    expect(page.locator(".hits .card-class").first).to_have_text("green")


def test_an_image_that_a_reload_lost_is_asked_for_again(page, tmp_path):
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    expect(page.locator(".hits .card")).to_have_count(9)
    page.reload()
    expect(status(page)).to_contain_text("Choose it again.")
    expect(page.locator("#file")).to_be_attached()
    expect(page.locator("#preview")).to_be_hidden()


def test_an_address_of_hits_shows_them_at_once(visit):
    page = visit("#like/green%2Fpale.png")
    expect(page.locator(".hits .card")).to_have_count(8)
    expect(page.locator("#preview-title")).to_have_text("green")
    expect(page.locator("#preview-note")).to_have_text("pale.png")


def test_an_address_of_an_image_that_is_not_there_says_so(visit):
    page = visit("#like/gone.png")
    expect(status(page)).to_have_text("There is no image 'gone.png' in the gallery.")
    expect(page.locator(".hits")).to_have_count(0)


def test_an_address_that_nobody_wrote_breaks_nothing(visit, address):
    page = visit("#like/%")
    expect(status(page)).to_contain_text("There is no image")
    for fragment in ("#nowhere", "#browse?where={", "#like"):
        page.goto(f"{address}/{fragment}")
        settled(page)
        expect(page.locator("h1:visible")).to_have_count(1)
        page.get_by_role("link", name="Search", exact=True).click()
        expect(page.locator("#strip .card")).to_have_count(9)


def test_a_phone_offers_its_camera(visit, tmp_path):
    page = visit(phone=True)
    camera = page.locator("#camera")
    expect(page.get_by_text("Take a photo")).to_be_visible()
    expect(camera).to_have_attribute("capture", "environment")
    camera.set_input_files(write_image(tmp_path / "photo.png", (250, 5, 5)))
    expect(page.locator(".hits .card-class").first).to_have_text("red")


def test_hits_can_be_of_one_class_only(page, tmp_path):
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    expect(page.locator(".hits .card")).to_have_count(9)
    classes = page.get_by_label("Class", exact=True)
    choose_class(page, "green")
    expect(page.locator(".hits .card")).to_have_count(3)
    expect(page.locator(".hits .card-class")).to_have_text(["green"] * 3)
    expect(status(page)).to_contain_text("The 3 nearest of images with class “green”")
    expect(classes).to_be_focused()
    page.locator(".hits .card").first.click()
    expect(page.locator(".hits .card")).to_have_count(2)
    choose_class(page, "")
    expect(page.locator(".hits .card")).to_have_count(8)
    page.go_back()
    expect(classes).to_have_value("green")


@pytest.mark.parametrize(
    ("engine", "text"),
    [("faiss", "FAISS, tree search"), ("scann", "ScaNN, tree search")],
)
def test_the_engine_of_the_index_is_named(visit, engine, text):
    def change(route):
        info = route.fetch().json()
        info["indexes"][0] |= {"engine": engine, "method": "tree"}
        route.fulfill(json=info)

    page = visit(answers={"**/api/info": change})
    expect(page.locator("#facts")).to_contain_text(text)


def test_the_number_of_results_can_be_chosen(visit):
    def enlarge(route):
        info = route.fetch().json()
        info["indexes"][0]["images"] = 50
        route.fulfill(json=info)

    # A gallery of 9 offers no choice; the page believes this one to be larger.
    answers, start = {"**/api/info": enlarge}, "#like/red%2Fclear.png"
    page = visit(start=start, answers=answers)
    expect(page.locator(".hits .card")).to_have_count(8)
    options = page.locator("#count option").all_inner_texts()
    assert options == ["12", "24", "48", "50"]
    with page.expect_request("**/api/search") as sent:
        page.locator("#count").focus()
        page.select_option("#count", "48")
    assert sent.value.post_data_json["k"] == 48
    expect(page.locator("#count")).to_be_focused()


def test_a_search_server_that_went_away_is_reported_and_asked_again(visit):
    page = visit(phone=True)
    expect(page.locator("#strip img")).to_have_count(9)
    page.route("**/api/search", lambda route: route.abort())
    page.locator("#strip .card").first.click()
    expect(status(page)).to_contain_text("cannot be reached")
    expect(page.locator("#preview")).to_be_visible()
    page.unroute("**/api/search")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".hits .card")).to_have_count(8)
    expect(page.locator("#again")).to_be_hidden()


def test_an_error_without_words_is_reported_by_its_status(visit):
    page = visit()
    expect(page.locator("#strip img")).to_have_count(9)
    page.route("**/api/search", lambda route: route.fulfill(status=500, body="<html>"))
    page.locator("#strip .card").first.click()
    expect(status(page)).to_have_text("The server answered with status 500.")


def test_a_gallery_that_cannot_be_changed_offers_no_change(visit, address):
    page = visit("#browse")
    expect(page.locator("#page-images .card")).to_have_count(9)
    expect(page.locator(".card-remove")).to_have_count(0)
    expect(page.get_by_role("link", name="Add", exact=True)).to_be_hidden()
    page.locator("#page-images .card").first.click()
    expect(page.locator(".hits .card")).to_have_count(8)
    expect(page.get_by_role("button", name="Remove", exact=True)).to_be_hidden()
    page.goto(f"{address}/#add")
    expect(status(page)).to_contain_text("cannot be added here")
    expect(page.locator("#add-form")).to_be_hidden()

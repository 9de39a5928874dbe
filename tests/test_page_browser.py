import re
from urllib.parse import urlsplit

import pytest
from PIL import Image
from playwright.sync_api import expect

from serving.search.image_search import open_search
from serving.search.page import create_app
from tests.running_chromium import chromium
from tests.running_server import running
from tests.search_fixtures import build_search, serve_model, write_picture

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = build_search(tmp_path_factory.mktemp("search"))
    with (
        serve_model(folder / "models" / "colors") as url,
        open_search(folder / "index", url) as search,
        running(create_app(search, max_upload_bytes=100_000)) as address,
    ):
        yield address


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """The address of a page whose gallery calls nothing below 0.9 a match."""
    folder = build_search(tmp_path_factory.mktemp("calibrated"), threshold=0.9)
    with (
        serve_model(folder / "models" / "colors") as url,
        open_search(folder / "index", url) as search,
        running(create_app(search)) as address,
    ):
        yield address


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def page(browser, address, request):
    """The loaded page; at the end, no request went elsewhere and no script failed."""
    context = browser.new_context(
        viewport=request.param, has_touch=request.param is PHONE
    )
    page = context.new_page()
    page.set_default_timeout(15_000)
    requests, errors = [], []
    page.on("request", lambda sent: requests.append(sent.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: errors.append(message.text)
        if message.type == "error"
        else None,
    )
    page.goto(address)
    expect(page.locator("#strip img")).to_have_count(9)
    yield page
    context.close()
    hosts = {urlsplit(url).netloc for url in requests if not url.startswith("blob:")}
    assert hosts == {urlsplit(address).netloc}
    # Chromium itself reports each refused upload.
    assert [text for text in errors if "status of 4" not in text] == []


def upload(page, file):
    page.set_input_files("#file", file)


def has_no_horizontal_scrolling(page):
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


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
    assert has_no_horizontal_scrolling(page)


def test_an_upload_shows_the_nearest_with_class_and_similarity(page, tmp_path):
    upload(page, write_picture(tmp_path / "sky.png", (10, 10, 250)))
    cards = page.locator("#hits .card")
    expect(cards).to_have_count(9)
    for row in range(3):
        expect(cards.nth(row).locator(".card-class")).to_have_text("blue")
    expect(cards.first.locator("b")).to_have_text(re.compile(r"^(0\.99\d|1\.000)$"))
    expect(cards.first.locator("img")).to_have_attribute("alt", re.compile("clear.png"))
    status = page.get_by_role("status")
    expect(status).to_contain_text("9 nearest of 9 images")
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


def test_a_picture_of_the_gallery_searches_and_back_returns(page):
    first = page.locator("#strip .card").first
    title = first.get_attribute("title")
    first.click()
    cards = page.locator("#hits .card")
    expect(cards).to_have_count(8)
    expect(page.get_by_role("status")).to_contain_text(
        "2 of them are of the same class"
    )
    expect(page.locator("#hits .same")).to_have_count(2)
    titles = cards.evaluate_all("cards => cards.map(card => card.title)")
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


def test_a_text_file_named_as_a_picture_shows_what_is_wrong(page, tmp_path):
    bad = tmp_path / "notes.png"
    bad.write_text("no picture")
    upload(page, bad)
    status = page.get_by_role("status")
    expect(status).to_contain_text("notes.png: This is not an image")
    expect(status).to_have_class(re.compile("error"))
    expect(page.locator("#results")).to_be_hidden()
    assert has_no_horizontal_scrolling(page)

    upload(page, write_picture(tmp_path / "good.png", (250, 0, 0)))
    expect(page.locator("#hits .card")).to_have_count(9)
    expect(status).not_to_have_class(re.compile("error"))


def test_a_file_above_the_limit_is_refused_before_it_is_sent(page, tmp_path):
    big = tmp_path / "big.png"
    big.write_bytes(b"x" * 100_001)
    sent = []
    page.on("request", lambda request: sent.append(request.method))
    upload(page, big)
    expect(page.get_by_role("status")).to_contain_text("at most 0.1 MB")
    assert "POST" not in sent


def test_a_dropped_or_pasted_picture_is_searched_with(page, tmp_path):
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
    expect(page.locator("#hits .card-class").first).to_have_text("green")

    page.get_by_role("link", name="New search").click()
    expect(page.locator("#results")).to_be_hidden()
    page.evaluate(
        "data => document.dispatchEvent(new ClipboardEvent('paste',"
        " {clipboardData: data, bubbles: true}))",
        transfer,
    )
    expect(page.locator("#hits .card-class").first).to_have_text("green")


def test_the_page_can_be_used_with_the_keyboard(page):
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.locator("#file")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Show others")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#strip .card").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#hits .card")).to_have_count(8)
    expect(page.locator("#results-title")).to_be_focused()


def test_the_number_of_results_can_be_chosen(browser, address):
    context = browser.new_context(viewport=DESKTOP)
    page = context.new_page()
    # A gallery of 9 offers no choice; the page believes this one to be larger.
    page.route(
        "**/api/info",
        lambda route: route.fulfill(json=route.fetch().json() | {"max_k": 50}),
    )
    page.goto(f"{address}/#like/0")
    expect(page.locator("#hits .card")).to_have_count(8)
    options = page.locator("#count option").all_inner_texts()
    assert options == ["12", "24", "48", "50"]
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    with page.expect_response("**/api/similar/0*"):
        page.select_option("#count", "48")
    assert any("/api/similar/0?k=8" in url for url in sent)
    context.close()


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def calibrated_page(browser, calibrated, request):
    context = browser.new_context(viewport=request.param)
    page = context.new_page()
    page.set_default_timeout(15_000)
    page.goto(calibrated)
    yield page
    context.close()


def test_matches_stand_above_a_divider_and_the_rest_below(calibrated_page, tmp_path):
    page = calibrated_page
    expect(page.locator("#facts")).to_contain_text("from a similarity of 0.900 on")
    upload(page, write_picture(tmp_path / "sky.png", (0, 0, 200)))
    items = page.locator("#hits > li")
    expect(items).to_have_count(10)
    expect(items.nth(2)).to_have_text("Below 0.900: near, but no match")
    weak = items.evaluate_all("all => all.map(li => !!li.querySelector('.weak'))")
    assert weak == [False] * 3 + [True] * 7
    expect(page.locator("#results-title")).to_have_text("Nearest images")
    expect(page.get_by_role("status")).to_contain_text("2 are matches.")
    whole = page.locator("#hits").bounding_box()["width"]
    assert items.nth(2).bounding_box()["width"] == pytest.approx(whole, abs=1)
    assert has_no_horizontal_scrolling(page)


def test_query_without_a_match_is_told_so_before_the_nearest(calibrated_page, tmp_path):
    page = calibrated_page
    upload(page, write_picture(tmp_path / "lemon.png", (200, 200, 0)))
    expect(page.get_by_role("heading", name="No match")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("No match among 9 images")
    first = page.locator("#hits > li").first
    expect(first).to_contain_text("Nothing here is similar enough.")
    expect(first).to_contain_text(
        "needs a similarity of 0.900, the nearest image has 0.8"
    )
    expect(page.locator("#hits .card.weak")).to_have_count(9)
    assert has_no_horizontal_scrolling(page)

    upload(page, write_picture(tmp_path / "sky.png", (0, 0, 200)))
    expect(page.get_by_role("heading", name="Nearest images")).to_be_visible()
    expect(page.locator("#hits .card.weak")).to_have_count(7)


@pytest.mark.parametrize(
    ("threshold", "similarities", "match", "sentence", "scores"),
    [
        (
            0.7482,
            [0.7479, 0.51],
            False,
            "needs a similarity of 0.7482, the nearest image has 0.7479.",
            ["0.7479", "0.5100"],
        ),
        (
            0.748201,
            [0.748204, 0.748199],
            True,
            "Below 0.748201: near, but no match",
            ["0.748204", "0.748199"],
        ),
        (0.748, [0.7486, 0.7474], True, "Below 0.748: near", ["0.749", "0.747"]),
    ],
)
def test_digits_tell_what_matches_from_what_does_not(
    calibrated_page, threshold, similarities, match, sentence, scores
):
    page = calibrated_page

    def answer(route):
        reply = route.fetch()
        whole = reply.json()
        hits = whole["hits"][: len(similarities)]
        for hit, value in zip(hits, similarities, strict=True):
            hit |= {"similarity": value, "match": value >= threshold}
        changes = {"hits": hits, "match": match, "threshold": threshold}
        route.fulfill(response=reply, json=whole | changes)

    page.route("**/api/similar/**", answer)
    page.locator("#strip .card").first.click()
    expect(page.locator("#hits .divider")).to_contain_text(sentence)
    expect(page.locator("#hits .card b")).to_have_text(scores)


def test_a_search_server_that_went_away_is_reported(browser, address):
    context = browser.new_context(viewport=PHONE)
    page = context.new_page()
    page.goto(address)
    expect(page.locator("#strip img")).to_have_count(9)
    page.route("**/api/similar/**", lambda route: route.abort())
    page.locator("#strip .card").first.click()
    expect(page.get_by_role("status")).to_contain_text("cannot be reached")
    context.close()

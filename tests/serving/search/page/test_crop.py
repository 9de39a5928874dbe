import re

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.serving.search.page.browsing import (
    has_no_horizontal_scrolling,
    status,
    upload,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """An image whose left half is red and whose right half is blue."""
    image = Image.new("RGB", (200, 100), (250, 0, 0))
    image.paste((0, 0, 250), (100, 0, 200, 100))
    file = tmp_path_factory.mktemp("query") / "halves.png"
    image.save(file)
    return file


@pytest.fixture
def page(visit, halves):
    """The dialog of a region, open for the image of two halves."""
    page = visit()
    open_dialog(page, halves)
    return page


def open_dialog(page, image):
    upload(page, image)
    expect(page.locator("#results-title")).to_be_focused()  # the search has ended
    page.get_by_role("button", name="Choose a region").click()
    expect(page.locator("#crop-search")).to_be_enabled()


def place(page, x, y):
    """Where a point of the image, in fractions, is on the screen."""
    box = page.locator("#crop-stage").bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def drag(page, start, end):
    page.mouse.move(*place(page, *start))
    page.mouse.down()
    page.mouse.move(*place(page, *end), steps=4)
    page.mouse.up()


def numbers(page):
    """Left, top, width and height in percent, as they are told."""
    text = page.locator("#crop-numbers").inner_text()
    form = r"Left (\d+)%, top (\d+)%, width (\d+)%, height (\d+)%"
    return [int(number) for number in re.fullmatch(form, text).groups()]


def first_class(page):
    return page.locator(".hits .card-class").first


def test_a_new_region_is_drawn_with_the_mouse_and_searched_with(page):
    drag(page, (0.98, 0.05), (0.6, 0.95))
    assert numbers(page) == pytest.approx([60, 5, 38, 90], abs=1)
    page.locator("#crop-search").click()
    expect(page.locator("#preview-note")).to_have_text("your image (region)")
    expect(first_class(page)).to_have_text("blue")
    expect(page.locator("#preview-region")).to_be_visible()
    region = page.locator("#preview-region").bounding_box()
    whole = page.locator("#preview-frame").bounding_box()
    assert region["width"] / whole["width"] == pytest.approx(0.38, abs=0.03)

    page.get_by_role("button", name="Whole image").click()
    expect(page.locator("#preview-note")).to_have_text("your image")
    expect(page.locator("#preview-region")).to_be_hidden()
    page.go_back()
    expect(page.locator("#preview-note")).to_have_text("your image (region)")
    expect(first_class(page)).to_have_text("blue")


def test_corners_and_the_region_itself_are_dragged(page):
    assert numbers(page) == [15, 15, 70, 70]
    drag(page, (0.15, 0.15), (0.3, 0.4))
    assert numbers(page) == pytest.approx([30, 40, 55, 45], abs=1)
    drag(page, (0.5, 0.6), (0.4, 0.5))
    assert numbers(page) == pytest.approx([20, 30, 55, 45], abs=1)
    drag(page, (0.4, 0.5), (3, -3))
    assert numbers(page) == pytest.approx([45, 0, 55, 45], abs=1)


def test_arrows_move_the_region_and_with_shift_change_its_size(page):
    expect(page.locator("#crop-box")).to_be_focused()
    expect(page.locator("#crop-numbers")).to_have_attribute("aria-live", "polite")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert numbers(page) == [17, 13, 70, 70]
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Shift+ArrowDown")
    assert numbers(page) == [17, 13, 68, 72]
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
    assert numbers(page) == [32, 28, 68, 72]
    for _ in range(36):
        page.keyboard.press("Shift+ArrowLeft")
        page.keyboard.press("Shift+ArrowUp")
    assert numbers(page) == [32, 28, 5, 5]
    for _ in range(36):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(first_class(page)).to_have_text("blue")


def test_the_region_is_drawn_with_a_finger(visit, halves):
    page = visit(phone=True)
    open_dialog(page, halves)
    touch = page.context.new_cdp_session(page)

    def send(kind, points):
        places = [place(page, *point) for point in points]
        touches = [{"x": x, "y": y} for x, y in places]
        event = {"type": kind, "touchPoints": touches}
        touch.send("Input.dispatchTouchEvent", event)

    send("touchStart", [(0.02, 0.05)])
    for share in (0.1, 0.2, 0.4):
        send("touchMove", [(share, 0.05 + share)])
    send("touchEnd", [])
    assert numbers(page) == pytest.approx([2, 5, 38, 40], abs=1)
    assert has_no_horizontal_scrolling(page)
    page.locator("#crop-search").click()
    expect(first_class(page)).to_have_text("red")


def test_escape_changes_nothing_and_gives_the_focus_back(page):
    page.keyboard.press("Escape")
    expect(page.locator("#crop-dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Choose a region")).to_be_focused()
    expect(page.locator("#preview-note")).to_have_text("your image")


def test_a_region_of_an_image_of_the_gallery_outlives_a_reload(visit):
    page = visit("#like/red%2Fclear.png")
    page.get_by_role("button", name="Choose a region").click()
    expect(page.locator("#crop-search")).to_be_enabled()
    page.keyboard.press("ArrowLeft")
    with page.expect_request("**/api/search") as sent:
        page.locator("#crop-search").click()
    assert sent.value.post_data_json["crop"] == "0.13,0.15,0.7,0.7"
    expect(page.locator("#preview-note")).to_have_text("clear.png (region)")
    page.reload()
    expect(page.locator("#preview-region")).to_be_visible()
    expect(first_class(page)).to_have_text("red")
    page.get_by_role("button", name="Change region").click()
    expect(page.locator("#crop-dialog")).to_be_visible()
    assert numbers(page) == [13, 15, 70, 70]
    page.locator("#crop-whole").click()
    expect(page.locator("#preview-note")).to_have_text("clear.png")


def test_an_image_that_the_browser_cannot_show_has_no_region(visit, tmp_path):
    file = tmp_path / "scan.tif"
    Image.new("RGB", (20, 20), (0, 250, 0)).save(file)
    page = visit()
    upload(page, file)
    expect(first_class(page)).to_have_text("green")
    page.get_by_role("button", name="Choose a region").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot show the image")
    expect(page.locator("#crop-search")).to_be_disabled()
    page.locator("#crop-cancel").click()
    expect(page.locator("#crop-dialog")).to_be_hidden()


@pytest.mark.parametrize("crop", ["NaN", "0,0,1", "0,0,1,x", "a,b,c,d"])
def test_a_region_in_the_address_that_is_none_is_not_ignored(visit, crop):
    page = visit(f"#like/red%2Fpale.png?crop={crop}")
    expect(status(page)).to_contain_text("must be four numbers")
    expect(status(page)).to_contain_text(f"It is “{crop}”.")

import re

import pytest
from playwright.sync_api import expect

from tests.serving.search.page.browsing import (
    status,
)

pytestmark = pytest.mark.slow

MARGIN = 36  # pixels around the map
# Known places: one in each corner, and two close to each other in the middle.
PLACES = {
    "red/clear.png": (0, 0, 0),
    "red/pale.png": (1, 0, 0),
    "green/clear.png": (0, 1, 1),
    "green/pale.png": (1, 1, 1),
    "blue/clear.png": (0.5, 0.5, 2),
    "blue/pale.png": (0.51, 0.5, -1),
}


def answer_with(places, current=True):
    """The answer of the service with points whose places are known."""

    def answer(route):
        points = [
            {"id": id_, "class": id_.split("/")[0], "attributes": {}}
            | {"url": f"images?id={id_}", "x": x, "y": y, "cluster": cluster}
            for id_, (x, y, cluster) in places.items()
        ]
        reply = {"method": "t-SNE", "points": points, "of": len(points)}
        route.fulfill(json=reply | {"current": current})

    return answer


def is_shown(page):
    expect(page.locator("#canvas")).to_be_visible()


@pytest.fixture
def page(visit):
    """The map of known places."""
    answers = {"**/api/map": answer_with(PLACES)}
    page = visit("#map", answers=answers)
    is_shown(page)
    return page


def at(page, x, y):
    """Where a place of the whole map is on the screen, once it is there."""
    is_shown(page)
    box = page.locator("#canvas").bounding_box()
    return (
        box["x"] + MARGIN + x * (box["width"] - 2 * MARGIN),
        box["y"] + MARGIN + y * (box["height"] - 2 * MARGIN),
    )


def turn_wheel(page, distance):
    """Turn the wheel, and wait until the map has heard of it."""
    canvas = page.locator("#canvas")
    canvas.evaluate(
        "canvas => canvas.addEventListener('wheel',"
        " () => { canvas.dataset.wheel = 'heard'; }, { once: true })"
    )
    page.mouse.wheel(0, distance)
    expect(canvas).to_have_attribute("data-wheel", "heard")


def caption(page):
    return page.locator("#plot-caption")


def query(page):
    return page.locator("#preview-note")


def test_the_map_of_a_gallery_appears_when_it_is_computed(visit):
    page = visit()
    page.get_by_role("link", name="Map").click()
    expect(status(page)).to_contain_text("is being computed")
    expect(page.locator("#plot")).to_be_hidden()
    expect(status(page)).to_have_text("9 images, laid out by t-SNE.", timeout=60_000)
    expect(page.locator("#canvas")).to_be_visible()
    expect(page.locator("#clusters .cluster").first).to_contain_text("images")


def test_there_is_no_map_before_its_images_are_known(visit):
    asked = []
    answers = {
        "**/api/map": answer_with(PLACES),
        "**/api/info": lambda route: asked.append(route),
    }
    page = visit("#map", answers=answers)
    expect(page.locator("#mapping-title")).to_be_visible()
    expect(page.locator("#canvas")).to_be_hidden()
    (route,) = asked
    route.continue_()
    is_shown(page)


def test_a_click_on_an_image_of_the_map_searches_with_it(page):
    page.mouse.move(*at(page, 1, 0))
    expect(caption(page)).to_have_text("red · pale.png")
    page.mouse.click(*at(page, 1, 0))
    expect(query(page)).to_have_text("pale.png")
    page.go_back()
    page.mouse.click(*at(page, 0, 1))
    expect(query(page)).to_have_text("clear.png")
    expect(page.locator("#preview-title")).to_have_text("green")


def test_the_wheel_zooms_about_the_pointer_and_a_drag_moves_the_map(page):
    page.mouse.move(*at(page, 1, 1))
    turn_wheel(page, -300)
    # What was under the pointer is there still; what was far is out of sight.
    page.mouse.move(*at(page, 0.999, 0.999))
    expect(caption(page)).to_have_text("green · pale.png")
    page.mouse.move(*at(page, 0, 0))
    expect(caption(page)).to_have_text("")
    page.mouse.move(*at(page, 1, 1))
    page.mouse.down()
    page.mouse.move(*at(page, 0.8, 0.8), steps=5)
    page.mouse.up()
    expect(page.locator("#preview")).to_be_hidden()
    page.mouse.move(*at(page, 0.801, 0.8))
    expect(caption(page)).to_have_text("green · pale.png")
    page.get_by_role("button", name="Whole map").click()
    page.mouse.move(*at(page, 0, 0))
    expect(caption(page)).to_have_text("red · clear.png")


def test_a_drag_of_which_a_busy_page_hears_the_ends_alone_is_no_click(page):
    mouse = page.context.new_cdp_session(page)
    for kind, place in (("mousePressed", (1, 0)), ("mouseReleased", (0, 0))):
        x, y = at(page, *place)
        event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
        mouse.send("Input.dispatchMouseEvent", event)
    page.mouse.move(*at(page, 0, 0))
    expect(caption(page)).to_have_text("red · clear.png")
    expect(page.locator("#preview")).to_be_hidden()


def test_the_map_is_used_with_the_keyboard(page):
    page.locator("#zoom-all").focus()
    page.keyboard.press("Tab")
    canvas = page.locator("#canvas")
    expect(canvas).to_be_focused()
    expect(canvas).to_have_attribute("aria-label", "Map of 6 images")
    expect(caption(page)).to_have_attribute("aria-live", "polite")
    expect(caption(page)).to_have_text("blue · clear.png")
    for _ in range(3):
        page.keyboard.press("+")
    for _ in range(12):
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowDown")
    expect(caption(page)).to_have_text("green · clear.png")
    page.keyboard.press("0")
    expect(caption(page)).to_have_text("blue · clear.png")
    page.keyboard.press("Enter")
    expect(page.locator("#preview-title")).to_have_text("blue")


def test_the_map_is_where_it_was_left(page):
    page.locator("#canvas").focus()
    page.keyboard.press("+")
    for _ in range(9):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowUp")
    expect(caption(page)).to_have_text("red · pale.png")
    page.keyboard.press("Enter")
    expect(query(page)).to_have_text("pale.png")
    page.go_back()
    is_shown(page)
    page.locator("#zoom-all").focus()
    page.keyboard.press("Tab")
    expect(caption(page)).to_have_text("red · pale.png")


def test_two_fingers_zoom_and_one_moves_the_map(visit):
    answers = {"**/api/map": answer_with(PLACES)}
    page = visit(phone=True, start="#map", answers=answers)
    is_shown(page)
    page.locator("#canvas").scroll_into_view_if_needed()
    touch = page.context.new_cdp_session(page)

    def send(kind, *points):
        touches = [
            {"x": x, "y": y, "id": number}
            for number, (x, y) in enumerate(at(page, *point) for point in points)
        ]
        event = {"type": kind, "touchPoints": touches}
        touch.send("Input.dispatchTouchEvent", event)

    # Spread by four about the middle: 0.51 moves away from it by four as well.
    send("touchStart", (0.4, 0.5), (0.6, 0.5))
    for part in (0.3, 0.2, 0.1):
        send("touchMove", (part, 0.5), (1 - part, 0.5))
    send("touchEnd")
    page.touchscreen.tap(*at(page, 0.5, 0.5))
    expect(query(page)).to_have_text(re.compile("clear.png|pale.png"))
    page.go_back()
    is_shown(page)
    # One finger: the corner comes in.
    for _ in range(3):
        send("touchStart", (0.2, 0.2))
        for part in (0.4, 0.6, 0.8):
            send("touchMove", (part, part))
        send("touchEnd")
    page.locator("#canvas").focus()
    page.keyboard.press("ArrowUp")
    expect(caption(page)).to_have_text("red · clear.png")


def test_clusters_are_listed_for_those_who_cannot_see_the_map(page):
    clusters = page.locator("#clusters .cluster")
    expect(clusters.locator("summary")).to_have_text(
        [
            "red2 images",
            "green2 images",
            "blue1 image",
            "In no cluster1 image",
        ]
    )
    expect(clusters.locator(".strip img")).to_have_count(0)
    expect(clusters.nth(1).locator(".faces img")).to_have_count(2)
    clusters.nth(1).locator("summary").focus()
    page.keyboard.press("Enter")
    links = clusters.nth(1).locator(".strip").get_by_role("link")
    expect(links).to_have_count(2)
    page.keyboard.press("Tab")
    expect(links.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#preview-title")).to_have_text("green")


def test_a_cluster_is_named_by_its_commonest_classes_which_are_browsed_from_it(visit):
    mixed = {
        f"{name}/{number}.png": (number / 9, 0.5, 0)
        for name, count in {"red": 1, "green": 2, "blue": 2}.items()
        for number in range(count)
    }
    mixed["red/5.png"] = mixed["red/6.png"] = (0.1, 0.1, 0)
    answers = {
        "**/images?id=*": lambda route: route.abort(),
        "**/api/map": answer_with(mixed),
    }
    page = visit("#map", answers=answers)
    expect(page.locator(".cluster-name")).to_have_text("red, green and blue")
    page.locator("#clusters summary").click()
    page.get_by_role("link", name="Browse its 3 commonest classes").click()
    expect(status(page)).to_have_text("9 images with class “red” or “green” or “blue”.")
    expect(page.get_by_label("Class", exact=True)).to_have_value("red, green, blue")


def test_a_large_cluster_is_listed_in_parts(visit):
    many = {f"red/{number}.png": (number / 120, 0.5, 0) for number in range(120)}
    answers = {
        "**/images?id=*": lambda route: route.abort(),
        "**/api/map": answer_with(many),
    }
    page = visit("#map", answers=answers)
    page.locator("#clusters summary").click()
    links = page.locator("#clusters .strip a")
    expect(links).to_have_count(48)
    page.get_by_role("button", name="Show more").click()
    expect(links).to_have_count(96)
    expect(links.nth(48)).to_be_focused()
    page.get_by_role("button", name="Show more").click()
    expect(links).to_have_count(120)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()


def test_a_map_of_before_a_change_says_so(visit):
    answers = {"**/api/map": answer_with(PLACES, current=False)}
    page = visit("#map", answers=answers)
    expect(status(page)).to_contain_text("The gallery has changed since")


def test_a_map_that_cannot_be_made_is_reported_and_asked_for_again(visit):
    error = {"error": "The map could not be computed: no memory."}
    answers = {"**/api/map": lambda route: route.fulfill(status=500, json=error)}
    page = visit("#map", answers=answers)
    expect(status(page)).to_have_text("The map could not be computed: no memory.")
    page.unroute("**/api/map")
    page.route("**/api/map", answer_with(PLACES))
    page.get_by_role("button", name="Try again").click()
    is_shown(page)

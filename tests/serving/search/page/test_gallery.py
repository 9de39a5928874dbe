import colorsys
import json
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from serving.search.gallery.indexing import index_images
from tests.serving.search.page.browsing import (
    choose_class,
    served,
    status,
)
from tests.support.search_fixtures import serve_model, write_color_model, write_image

pytestmark = pytest.mark.slow

COUNT = 100  # more than two pages of 48
CLASSES = ["dim", "lively"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page of 100 one-color images, each hue once dim and once lively."""
    folder = tmp_path_factory.mktemp("search")
    models = folder / "models" / "colors"
    write_color_model(models / "1")
    for number in range(COUNT):
        color = colorsys.hsv_to_rgb(number // 2 / 50, (0.6, 1)[number % 2], 1)
        name = f"{CLASSES[number % 2]}/{number:03}.png"
        rounded = tuple(round(255 * channel) for channel in color)
        write_image(folder / "images" / name, rounded)
    index_images(folder / "images", folder / "index", models)
    with serve_model(models) as url, served(folder / "index", url) as address:
        yield address


def names(page):
    cards = page.locator("#page-images .card")
    return cards.evaluate_all("cards => cards.map(card => card.title)")


# Browsing


def test_the_gallery_is_browsed_page_by_page(page):
    page.get_by_role("link", name="Browse", exact=True).click()
    expect(status(page)).to_have_text("1 to 48 of 100 images.")
    assert names(page)[0] == "dim/000.png"
    seen = names(page)
    assert page.get_by_text("Previous").get_attribute("href") is None
    page.get_by_role("link", name="Next").click()
    expect(status(page)).to_have_text("49 to 96 of 100 images.")
    expect(page.locator("#browsing-title")).to_be_focused()
    seen += names(page)
    page.get_by_role("link", name="Next").click()
    expect(status(page)).to_have_text("97 to 100 of 100 images.")
    seen += names(page)
    assert len(set(seen)) == len(seen) == COUNT
    assert page.get_by_text("Next").get_attribute("href") is None
    page.go_back()
    expect(status(page)).to_have_text("49 to 96 of 100 images.")


def test_a_page_is_chosen_by_its_number(page):
    page.goto(page.url.split("#")[0] + "#browse")
    page.get_by_label("Page", exact=True).fill("3")
    page.keyboard.press("Enter")
    expect(status(page)).to_have_text("97 to 100 of 100 images.")
    page.get_by_label("Page", exact=True).fill("99")
    page.keyboard.press("Enter")
    expect(status(page)).to_have_text("97 to 100 of 100 images.")


def test_one_class_is_browsed_alone_and_an_image_of_it_searched_with(page):
    page.goto(page.url.split("#")[0] + "#browse?page=2")
    expect(status(page)).to_have_text("49 to 96 of 100 images.")
    choose_class(page, "lively")
    expect(status(page)).to_have_text("1 to 48 of 50 images with class “lively”.")
    assert {name.split("/")[0] for name in names(page)} == {"lively"}
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#page-images .card")).to_have_count(2)
    page.locator("#page-images .card").first.click()
    expect(page.locator("#preview-title")).to_have_text("lively")
    expect(page.locator(".hits .card")).to_have_count(24)


def test_an_address_beyond_the_gallery_says_so(page):
    page.goto(page.url.split("#")[0] + "#browse?page=1000")
    expect(status(page)).to_have_text("This page is past the last of 100 images.")
    page.get_by_role("link", name="Previous").click()
    expect(status(page)).to_have_text("97 to 100 of 100 images.")
    where = json.dumps({"class": "gone"})
    page.goto(page.url.split("#")[0] + f"#browse?where={where}")
    expect(status(page)).to_have_text("No image has class “gone”.")
    expect(page.get_by_label("Class", exact=True)).to_have_value("gone")


def test_an_attribute_that_the_gallery_has_not_is_an_error_in_words(page):
    page.goto(page.url.split("#")[0] + '#browse?where={"color":"red"}')
    expect(status(page)).to_contain_text("`where` must name attributes of the index")


def test_any_attribute_of_few_values_is_filtered_by(visit):
    values = {
        "class": {"dim": 50, "lively": 50},
        "shop": {"north": 60, "south": 40},
        "only": {"one": 100},
        "label": {f"label {number}": 1 for number in range(300)},
    }
    answers = {"**/api/stats": lambda route: route.fulfill(json={"values": values})}
    page = visit("#browse", answers=answers)
    shop = page.get_by_label("Shop")
    expect(shop.locator("option")).to_have_text(["All", "north (60)", "south (40)"])
    expect(page.get_by_label("Only")).to_have_count(0)
    page.route("**/api/images?*", lambda route: route.fulfill(json=nothing))
    nothing = {"total": 0, "images": []}
    with page.expect_request("**/api/images?*") as sent:
        shop.select_option("south")
    assert "where=%7B%22shop%22%3A%22south%22%7D" in sent.value.url
    expect(status(page)).to_have_text("No image has shop “south”.")
    label = page.get_by_label("Label")
    label.fill("label 7")
    label.press("Enter")
    expect(status(page)).to_have_text("No image has shop “south”, label “label 7”.")


def test_value_with_spaces_at_its_ends_is_filtered_by_as_it_is(visit):
    values = {"class": {" lead": 50, "tail ": 50}}
    answers = {"**/api/stats": lambda route: route.fulfill(json={"values": values})}
    page = visit("#browse", answers=answers)
    with page.expect_request("**/api/images?*where*") as sent:
        choose_class(page, " lead")
    where = parse_qs(urlsplit(sent.value.url).query)["where"]
    assert [json.loads(text) for text in where] == [{"class": " lead"}]


def test_filter_in_the_address_that_cannot_be_read_is_not_ignored(visit):
    page = visit('#browse?where={"class":"red"')
    expect(status(page)).to_contain_text("must be a JSON object")


# Near-duplicates


def expected_groups(threshold):
    """Sizes of the connected groups, from the definition of the model."""
    rows = []
    for number in range(COUNT):
        color = colorsys.hsv_to_rgb(number // 2 / 50, (0.6, 1)[number % 2], 1)
        rows.append([round(255 * channel) for channel in color])
    unit = np.array(rows, float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    near = unit @ unit.T >= threshold
    sizes, left = [], set(range(COUNT))
    while left:
        group, waiting = set(), {left.pop()}
        while waiting:
            member = waiting.pop()
            group.add(member)
            waiting |= {int(i) for i in np.flatnonzero(near[member])} & left
            left -= waiting
        if len(group) > 1:
            sizes.append(len(group))
    return sorted(sizes, reverse=True)


def test_near_duplicates_are_shown_in_groups(page):
    sizes = expected_groups(0.999)
    assert 1 < len(sizes) <= 24
    page.goto(page.url.split("#")[0] + "#duplicates?threshold=0.999")
    expect(status(page)).to_contain_text(f"{len(sizes)} groups, with {sum(sizes)} of")
    groups = page.locator("#groups > .group")
    assert [
        groups.nth(place).locator(".card").count() for place in range(len(sizes))
    ] == sizes
    groups.first.locator(".card").first.click()
    expect(page.locator("#results-title")).to_be_focused()
    page.go_back()
    expect(groups).to_have_count(len(sizes))


def test_the_threshold_is_moved_with_the_keyboard_and_kept_in_the_address(page):
    page.goto(page.url.split("#")[0] + "#duplicates")
    expect(status(page)).to_contain_text("100 images")
    slider = page.get_by_label("Minimum similarity")
    expect(slider).to_have_value("0.95")
    slider.focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#threshold-value")).to_have_text("1.000")
    expect(status(page)).to_contain_text(
        "No two of 100 images have a similarity of at least 1.000"
    )
    expect(slider).to_be_focused()
    page.reload()
    expect(slider).to_have_value("1")


def test_more_groups_are_shown_when_asked_for(visit):
    item = {"class": "a", "url": "favicon.svg", "attributes": {}}
    groups = [
        {
            "similarity": 0.97,
            "count": 150 if number == 0 else 2,
            "images": [item | {"id": f"{number}/{side}"} for side in "xy"],
        }
        for number in range(60)
    ]

    def answer(route):
        limit = int(route.request.url.split("limit=")[1])
        reply = {"groups": groups[:limit], "group_count": 60, "images": 500}
        route.fulfill(json=reply | {"threshold": 0.95, "pairs": 9, "complete": False})

    answers = {"**/api/duplicates?*": answer}
    page = visit("#duplicates", answers=answers)
    expect(page.locator(".group")).to_have_count(24)
    expect(status(page)).to_contain_text("The 24 largest of 60 groups, with 196")
    expect(status(page)).to_contain_text("may be split")
    expect(page.locator(".group h2").first).to_have_text(
        "150 images (2 shown), similarity to the first at least 0.970"
    )
    page.get_by_role("button", name="Show more groups").click()
    expect(page.locator(".group")).to_have_count(60)
    expect(page.get_by_role("button", name="Show more groups")).to_be_hidden()


def test_leaving_a_view_ends_what_it_waits_for(visit):
    page = visit(phone=True)
    asked = []
    page.route("**/api/map", lambda route: asked.append(route))
    page.get_by_role("link", name="Map").click()
    expect(status(page)).to_have_text("Loading the map …")
    with page.expect_event("requestfailed"):
        page.get_by_role("link", name="Browse", exact=True).click()
    expect(status(page)).to_have_text("1 to 48 of 100 images.")
    expect(page.locator("#mapping")).to_be_hidden()
    assert len(asked) == 1

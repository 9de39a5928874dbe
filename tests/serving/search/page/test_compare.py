import pytest
from playwright.sync_api import expect

from serving.search.gallery.indexing import index_images
from tests.serving.search.page.browsing import (
    has_no_horizontal_scrolling,
    hit_ids,
    served,
    status,
    upload,
)
from tests.support.search_fixtures import (
    write_image,
)
from tfdml.images import list_images

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(colors, colors_url, reddish, reddish_url, tmp_path_factory):
    """A page of two indexes; the second has another model, and misses two images."""
    folder = tmp_path_factory.mktemp("search")
    only = folder / "only.txt"
    only.write_text("\n".join(list_images(colors / "images")[2:]))
    index_images(colors / "images", folder / "reddish", reddish, only=only)
    other = (folder / "reddish", reddish_url)
    with served(colors / "index", colors_url, compare=other) as address:
        yield address


def test_both_indexes_are_described_and_answer_side_by_side(page, tmp_path):
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    columns = page.locator("#columns > .column")
    expect(columns).to_have_count(2)
    expect(columns.locator("h2")).to_have_text(["index", "reddish"])
    expect(columns.nth(0)).to_contain_text("colors, version 1")
    expect(columns.nth(1)).to_contain_text("reddish, version 1")
    expect(columns.nth(0)).to_contain_text("The 9 nearest of 9 images")
    expect(columns.nth(1)).to_contain_text("The 7 nearest of 7 images")
    boxes = [columns.nth(place).bounding_box() for place in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    expect(page.locator(".to-next")).to_be_hidden()
    assert has_no_horizontal_scrolling(page)
    facts = page.locator("#facts .index-facts")
    expect(facts).to_have_count(2)
    expect(facts.nth(1)).to_contain_text("reddish, version 1")


def test_hits_that_both_have_are_marked_with_their_rank_there(page, tmp_path):
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    expect(status(page)).to_have_text("7 of 9 hits are in both.")
    columns = page.locator("#columns > .column")
    ranks = {id_: rank for rank, id_ in enumerate(hit_ids(page, 1), 1)}
    ordinals = ["1st", "2nd", "3rd", "4th", "5th", "6th", "7th"]
    for place, id_ in enumerate(hit_ids(page, 0)):
        mark = columns.nth(0).locator(".card").nth(place).locator(".both")
        if id_ in ranks:
            expect(mark).to_have_text(f"in both, {ordinals[ranks[id_] - 1]} there")
        else:
            expect(mark).to_have_count(0)
    expect(columns.nth(1).locator(".both")).to_have_count(7)


def test_one_of_the_indexes_can_be_chosen_and_back_shows_both(page):
    page.locator("#strip .card").first.click()
    columns = page.locator("#columns > .column")
    expect(columns).to_have_count(2)
    index = page.get_by_label("Index", exact=True)
    index.focus()
    index.select_option("reddish")
    expect(columns).to_have_count(1)
    expect(columns.locator(".both")).to_have_count(0)
    expect(index).to_be_focused()
    expect(status(page)).to_contain_text("nearest of 7 images")
    page.locator(".hits .card").first.click()
    expect(index).to_have_value("reddish")
    expect(columns).to_have_count(1)
    page.go_back()
    page.go_back()
    expect(columns).to_have_count(2)


def test_an_image_that_only_the_first_index_has_is_searched_with_in_both(page):
    page.goto(page.url.split("#")[0] + "#like/blue%2Fclear.png")
    columns = page.locator("#columns > .column")
    expect(columns.nth(0).locator(".card")).to_have_count(8)
    expect(columns.nth(1).locator(".card")).to_have_count(7)
    assert hit_ids(page, 1)[0].startswith("blue/")


def test_one_index_that_fails_leaves_the_hits_of_the_other(visit):
    page = visit(phone=True)

    def fail(route):
        if route.request.post_data_json["index"] == "reddish":
            route.fulfill(status=502, json={"error": "The endpoint is away."})
        else:
            route.continue_()

    expect(page.locator("#strip .card")).to_have_count(9)
    page.route("**/api/search", fail)
    page.locator("#strip .card").first.click()
    columns = page.locator("#columns > .column")
    expect(columns.nth(0).locator(".card")).to_have_count(8)
    expect(columns.nth(1)).to_contain_text("The endpoint is away.")
    expect(status(page)).to_contain_text("Only one of the indexes")


def test_on_a_narrow_screen_the_second_index_is_below_and_gone_to_at_once(visit):
    page = visit(phone=True)
    page.locator("#strip .card").first.click()
    columns = page.locator("#columns > .column")
    expect(columns).to_have_count(2)
    boxes = [columns.nth(place).bounding_box() for place in (0, 1)]
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]
    assert has_no_horizontal_scrolling(page)
    page.get_by_role("button", name="Go to reddish").click()
    heading = page.get_by_role("heading", name="reddish")
    expect(heading).to_be_focused()
    expect(heading).to_be_in_viewport()

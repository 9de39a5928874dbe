"""Several images in one query, "more like this" and "not like this"."""

import re

import pytest
from playwright.sync_api import expect

from tests.serving.search.page.browsing import (
    has_no_horizontal_scrolling,
    hit_ids,
    settled,
    status,
    upload,
)
from tests.support.search_fixtures import write_image

pytestmark = pytest.mark.slow

COLORS = {"a.png": (250, 10, 10), "b.png": (250, 30, 0), "c.png": (10, 10, 250)}


@pytest.fixture
def files(tmp_path):
    return [write_image(tmp_path / name, color) for name, color in COLORS.items()]


def titles(page, which):
    return page.locator(f"#examples-{which} .example").evaluate_all(
        "items => items.map(item => item.title)"
    )


def answer_to(page, act):
    """Return the answer to the search that follows an action."""
    with page.expect_response("**/api/search") as answered:
        act()
    reply = answered.value.json()
    settled(page)
    return reply


def sent_by(page, act):
    """Return the JSON of the search that follows an action."""
    with page.expect_request("**/api/search") as sent:
        act()
    settled(page)
    return sent.value.post_data_json


def test_several_dropped_images_are_one_search(page, files):
    reply = answer_to(page, lambda: upload(page, files))
    assert reply["queries"] == [None] * 3
    expect(page.locator(".hits .card")).to_have_count(9)
    expect(page.locator("#preview-title")).to_have_text("a.png")
    assert titles(page, "more") == ["b.png", "c.png"]
    assert hit_ids(page)[0].startswith("red/")  # two of three are red
    expect(page.get_by_role("button", name="Choose a region")).to_have_count(0)
    assert has_no_horizontal_scrolling(page)

    remove = page.get_by_label("Remove c.png from the query")
    assert answer_to(page, remove.click)["queries"] == [None] * 2
    expect(page.locator("#examples-more .example")).to_have_count(1)
    page.go_back()
    expect(page.locator("#examples-more .example")).to_have_count(2)


def test_hits_can_be_wanted_and_unwanted_examples(visit):
    page = visit("#like/red%2Fclear.png")
    expect(page.locator(".hits .card")).to_have_count(8)
    body = sent_by(page, page.get_by_label("Not like this: paler.png").first.click)
    assert body["queries"] == [{"id": "red/clear.png"}]
    assert [entry["id"] for entry in body["negatives"]] == ["red/paler.png"]
    expect(page.locator(".hits .card")).to_have_count(7)
    assert titles(page, "not") == ["red/paler.png"]
    card = page.locator(".hits li", has=page.locator(".card[title='blue/pale.png']"))
    sent = sent_by(page, card.get_by_label("More like this: pale.png").click)
    assert sent["queries"][1] == {"id": "blue/pale.png"}
    expect(page.locator(".hits .card")).to_have_count(6)
    address = page.url
    page.goto("about:blank")
    page.goto(address)  # the address alone shows it again
    expect(page.locator(".hits .card")).to_have_count(6)
    assert titles(page, "more") == ["blue/pale.png"]
    page.locator(".hits .card").first.click()
    expect(page.locator(".hits .card")).to_have_count(8)
    expect(page.locator("#examples-more .example")).to_have_count(0)


def test_images_are_added_to_the_query_and_broken_ones_named(visit, files, tmp_path):
    page = visit("#like/red%2Fclear.png", phone=True)
    expect(page.locator(".hits .card")).to_have_count(8)
    add = "#examples-file"
    reply = answer_to(page, lambda: page.set_input_files(add, files[2:]))
    assert [item and item["id"] for item in reply["queries"]] == [
        None,
        "red/clear.png",
    ]
    expect(page.locator("#examples-more .example")).to_have_count(1)
    expect(page.locator(".hits .card")).to_have_count(8)
    assert has_no_horizontal_scrolling(page)
    broken = tmp_path / "broken.png"
    broken.write_text("no image")
    page.set_input_files("#examples-file", broken)
    expect(status(page)).to_contain_text("broken.png: This is not an image")
    expect(status(page)).to_have_class(re.compile("error"))
    page.get_by_label("Remove broken.png from the query").click()
    expect(page.locator(".hits .card")).to_have_count(8)


def test_too_many_images_are_refused_with_the_number(page, files):
    upload(page, [files[0]] * 17)
    expect(status(page)).to_have_text(
        "At most 16 images can be searched with at once. These are 17."
    )


def test_a_query_can_be_expanded(visit):
    page = visit("#like/red%2Fclear.png")
    expect(page.locator(".hits .card")).to_have_count(8)
    refine = page.get_by_label("Refine", exact=True)
    sent = sent_by(page, lambda: refine.select_option("3"))
    assert sent["expand"] == 3
    expect(refine).to_have_value("3")
    sent = sent_by(page, lambda: refine.select_option(label="Off"))
    assert "expand" not in sent


def test_a_region_goes_with_what_is_not_wanted(visit):
    page = visit("#like/red%2Fclear.png?crop=0,0,0.5,0.5")
    expect(page.locator(".hits .card")).to_have_count(8)
    expect(page.get_by_label("More like this: pale.png")).to_have_count(0)
    sent = sent_by(page, page.get_by_label("Not like this: pale.png").first.click)
    assert sent["crop"] == "0,0,0.5,0.5"
    expect(page.locator(".hits .card")).to_have_count(7)

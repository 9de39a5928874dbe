"""Links to a search, files of its hits, keys, and the hint of a first visit."""

import csv
import io
import json
import zipfile

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.serving.search.page.browsing import hit_ids, status, upload
from tests.support.search_fixtures import write_image

pytestmark = pytest.mark.slow


def link_of(page):
    page.get_by_role("button", name="Share").click()
    field = page.get_by_label("Link to this search")
    expect(field).to_be_visible()
    return field.input_value()


def downloaded(page, name, folder):
    page.locator("#export summary").click()
    with page.expect_download() as file:
        page.get_by_role("button", name=name).click()
    path = folder / file.value.suggested_filename
    file.value.save_as(path)
    return path


def test_link_to_a_search_with_an_image_of_ones_own_has_that_image(visit, tmp_path):
    page = visit()
    noise = Image.effect_noise((600, 400), 60).convert("RGB")
    noise.paste((0, 0, 250), (0, 0, 600, 300))
    noise.save(tmp_path / "sea.jpg", quality=60)
    upload(page, tmp_path / "sea.jpg")
    expect(page.locator(".hits .card")).to_have_count(9)
    found = hit_ids(page)
    link = link_of(page)
    expect(page.locator("#share-note")).to_contain_text("a small copy of your image")
    assert 100 < len(link) < 5000
    other = visit("#browse")
    other.goto(link)
    expect(other.locator("#preview-title")).to_have_text("sea.jpg")
    expect(other.locator(".hits .card")).to_have_count(9)
    assert hit_ids(other)[:3] == found[:3]
    size = other.locator("#preview-image").evaluate(
        "async one => { await one.decode();"
        " return one.naturalWidth / one.naturalHeight; }"
    )
    assert size == pytest.approx(1.5, abs=0.05)


def test_link_to_a_search_in_the_gallery_is_its_address(visit):
    page = visit("#like/red%2Fclear.png?group=class")
    expect(page.locator(".hits .card")).to_have_count(8)
    assert link_of(page) == page.url


def test_link_that_was_cut_says_so(visit):
    page = visit("#image/abc%25?name=sea.png")
    expect(status(page)).to_contain_text("The image in this address is not whole")


def test_hits_are_exported_as_a_table_as_json_and_with_their_images(visit, tmp_path):
    page = visit("#like/red%2Fclear.png")
    expect(page.locator(".hits .card")).to_have_count(8)
    ids = hit_ids(page)
    text = downloaded(page, "Table (CSV)", tmp_path).read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in rows] == ids
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, 9)]
    assert {row["class"] for row in rows} == {"red", "green", "blue"}
    (answer,) = json.loads(downloaded(page, "JSON", tmp_path).read_text())["answers"]
    assert [hit["id"] for hit in answer["hits"]] == ids
    assert answer["query"]["id"] == "red/clear.png"
    assert answer["model"]["name"] == "colors"
    with zipfile.ZipFile(downloaded(page, "Images (zip)", tmp_path)) as archive:
        assert len([name for name in archive.namelist() if name.endswith(".jpg")]) == 8
    expect(status(page)).to_have_text("The images of 8 hits were packed.")


def test_export_that_fails_says_why(visit):
    page = visit("#like/red%2Fclear.png")
    expect(page.locator(".hits .card")).to_have_count(8)
    page.route("**/api/export?*", lambda route: route.abort())
    page.locator("#export summary").click()
    page.get_by_role("button", name="Images (zip)").click()
    expect(status(page)).to_contain_text("cannot be reached")


def test_keys_are_listed_and_work(visit):
    page = visit("#like/red%2Fclear.png")
    cards = page.locator(".hits .card")
    expect(cards).to_have_count(8)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("b")  # in a dialog, keys do nothing
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("h")
    expect(cards.nth(0)).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(cards.nth(1)).to_be_focused()
    page.keyboard.press("g")
    expect(page.locator("#group")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("/")
    field = page.get_by_label("Class", exact=True)
    expect(field).to_be_focused()
    page.keyboard.type("bd")
    expect(field).to_have_value("bd")
    page.locator("#results-title").focus()
    page.keyboard.press("Control+m")
    page.keyboard.press("b")
    expect(page.locator("#browsing-title")).to_be_focused()


def test_keys_can_be_turned_off(visit):
    page = visit()
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Use these keys").uncheck()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("b")
    page.reload()
    expect(page.locator("#strip .card")).to_have_count(9)
    page.keyboard.press("b")
    expect(page.locator("#browsing")).to_be_hidden()


def test_first_visit_has_a_hint_until_it_is_dismissed(visit):
    page = visit()
    hint = page.locator("#hint")
    expect(hint).to_contain_text("New here?")
    page.locator("#strip .card").first.click()
    expect(hint).to_contain_text("Press a hit to search on with it.")
    page.get_by_role("button", name="Got it").click()
    expect(hint).to_be_hidden()
    page.reload()
    expect(page.locator(".hits .card")).to_have_count(8)
    expect(hint).to_be_hidden()


def test_class_typed_at_the_start_is_browsed(visit, tmp_path):
    page = visit()
    page.get_by_label("Name of a class").fill("Green")
    page.keyboard.press("Enter")
    expect(status(page)).to_have_text("3 images with class “green”.")
    page.go_back()
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    expect(page.get_by_label("Name of a class")).to_be_hidden()

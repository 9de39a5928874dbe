import httpx2
import pytest
from playwright.sync_api import expect

from tests.serving.search.page.browsing import (
    choose_class,
    editable,
    has_no_horizontal_scrolling,
    settled,
    status,
    upload,
)
from tests.support.search_fixtures import write_image

pytestmark = pytest.mark.slow


@pytest.fixture
def address(colors, colors_url, tmp_path):
    """The page of a copy that a test may change."""
    with editable(colors / "index", colors_url, tmp_path / "index") as address:
        yield address


@pytest.fixture
def page(visit):
    page = visit()
    expect(page.locator("#strip img")).to_have_count(9)
    return page


def choose(page, *files):
    page.set_input_files("#add-files", files)


def notes(page):
    return page.locator("#add-list .add-note")


# Adding


def test_several_images_are_added_with_a_class_and_found_at_once(page, tmp_path):
    page.get_by_role("link", name="Add", exact=True).click()
    expect(page.get_by_role("button", name="Add", exact=True)).to_be_disabled()
    files = [
        write_image(tmp_path / f"{name}.png", color)
        for name, color in {"lemon": (250, 250, 0), "sun": (240, 240, 10)}.items()
    ]
    choose(page, *files)
    expect(notes(page)).to_have_text(["waiting", "waiting"])
    page.get_by_label("Class (optional)").fill("yellow")
    page.get_by_role("button", name="Add 2 images").click()
    expect(notes(page)).to_have_text(["added as yellow", "added as yellow"])
    expect(status(page)).to_have_text("2 images added.")
    expect(page.locator("#add-count")).to_have_text("2 of 2")
    expect(page.locator("#facts")).to_contain_text("Images11")

    page.get_by_role("link", name="Search with lemon.png").click()
    first = page.locator(".hits .card-class").first
    expect(first).to_have_text("yellow")
    choose_class(page, "yellow")
    expect(page.locator(".hits .card")).to_have_count(1)
    page.go_back()
    page.go_back()
    expect(notes(page)).to_have_count(2)


def test_a_file_that_is_no_image_is_reported_and_the_others_are_added(page, tmp_path):
    bad = tmp_path / "notes.png"
    bad.write_text("no image")
    good = write_image(tmp_path / "lemon.png", (250, 250, 0))
    page.get_by_role("link", name="Add", exact=True).click()
    choose(page, bad, good)
    page.get_by_role("button", name="Add 2 images").click()
    expect(notes(page).nth(1)).to_have_text("added")
    expect(notes(page).nth(0)).to_contain_text("This is not an image")
    expect(status(page)).to_contain_text("1 image could not be added; see the list.")
    expect(page.get_by_role("button", name="Try again with 1 image")).to_be_enabled()
    page.get_by_role("button", name="Discard notes.png").click()
    expect(notes(page)).to_have_text(["added"])
    expect(page.get_by_role("link", name="Search with lemon.png")).to_be_focused()


def test_an_image_that_failed_is_kept_and_tried_again(page, tmp_path):
    page.get_by_role("link", name="Add", exact=True).click()
    choose(page, write_image(tmp_path / "lemon.png", (250, 250, 0)))
    page.route("**/api/images", lambda route: route.abort())
    page.get_by_role("button", name="Add 1 image").click()
    expect(notes(page)).to_contain_text(["cannot be reached"])
    page.unroute("**/api/images")
    page.get_by_role("link", name="Browse", exact=True).click()
    page.go_back()
    page.get_by_role("button", name="Try again with 1 image").click()
    expect(notes(page)).to_have_text(["added"])


def test_dropped_images_are_added_in_that_view_and_not_searched_with(page, tmp_path):
    file = write_image(tmp_path / "lemon.png", (250, 250, 0))
    page.get_by_role("link", name="Add", exact=True).click()
    transfer = page.evaluate_handle(
        "bytes => { const data = new DataTransfer(); for (const name of ['a', 'b'])"
        " data.items.add(new File([new Uint8Array(bytes)], name + '.png',"
        " {type: 'image/png'})); return data; }",
        list(file.read_bytes()),
    )
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    expect(page.locator("#add-list .add-name")).to_have_text(["a.png", "b.png"])
    expect(page.locator("#results")).to_be_hidden()
    # Both have the same content, of which the service makes the id.
    page.get_by_role("button", name="Add 2 images").click()
    expect(notes(page).nth(1)).to_contain_text("The gallery already has an image")


# Removing


def test_an_image_is_removed_after_a_question(page):
    page.get_by_role("link", name="Browse", exact=True).click()
    cards = page.locator("#page-images .card")
    expect(cards).to_have_count(9)
    name = cards.nth(3).get_attribute("title")
    following = cards.nth(4).get_attribute("title")
    page.get_by_role("button", name=f"Remove {name}").click()
    dialog = page.get_by_role("dialog", name="Remove this image?")
    expect(dialog).to_contain_text(name)
    expect(page.locator("#remove-cancel")).to_be_focused()
    page.locator("#remove-confirm").click()
    expect(dialog).to_be_hidden()
    expect(cards).to_have_count(8)
    expect(status(page)).to_have_text(f"{name} was removed.")
    expect(page.get_by_role("button", name=f"Remove {following}")).to_be_focused()
    page.goto(page.url.split("#")[0] + "#like/" + name.replace("/", "%2F"))
    expect(status(page)).to_contain_text("There is no image")


def test_who_thinks_again_is_back_at_the_button(page):
    page.get_by_role("link", name="Browse", exact=True).click()
    expect(page.locator("#browsing-title")).to_be_focused()
    button = page.locator(".card-remove").nth(2)
    button.focus()
    for way in ("Cancel", "Escape"):
        page.keyboard.press("Enter")
        expect(page.locator("#remove-dialog")).to_be_visible()
        if way == "Cancel":
            page.get_by_role("button", name="Cancel").click()
        else:
            page.keyboard.press("Escape")
        expect(page.locator("#remove-dialog")).to_be_hidden()
        expect(button).to_be_focused()
    expect(page.locator("#page-images .card")).to_have_count(9)


def test_a_removal_that_fails_is_reported_in_the_dialog(visit):
    page = visit(phone=True, start="#browse")
    page.locator(".card-remove").first.click()
    page.route("**/api/images?*", lambda route: route.abort())
    page.locator("#remove-confirm").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    page.unroute("**/api/images?*")
    page.locator("#remove-confirm").click()
    expect(page.locator("#page-images .card")).to_have_count(8)


def test_the_query_is_removed_from_its_preview(visit):
    page = visit("#like/red%2Fpale.png")
    page.get_by_role("button", name="Remove", exact=True).click()
    page.locator("#remove-confirm").click()
    expect(page.locator("#strip .card")).to_have_count(8)
    expect(page.locator("#intro-text")).to_contain_text("8 images")


def test_a_near_duplicate_is_removed_and_its_group_with_it(visit):
    # The first two shades of each color are alike by 0.9487 or more.
    page = visit("#duplicates?threshold=0.94")
    groups = page.locator("#groups > .group")
    expect(groups).to_have_count(3)
    before = groups.first.locator(".card").count()
    groups.first.locator(".card-remove").nth(1).click()
    page.locator("#remove-confirm").click()
    expect(page.locator("#remove-dialog")).to_be_hidden()
    if before == 2:
        expect(groups).to_have_count(2)
        expect(page.locator("#duplicating-title")).to_be_focused()
    else:
        expect(groups.first.locator(".card")).to_have_count(before - 1)


# Small galleries


def test_a_gallery_of_one_image_and_of_none_is_reported(visit, address, tmp_path):
    with httpx2.Client(base_url=address, timeout=60) as client:
        first, *others = client.get("/api/images").json()["images"]
        for image in others:
            removed = client.delete("/api/images", params={"id": image["id"]})
            assert removed.status_code == 200, removed.text
    page = visit(phone=True)
    expect(page.locator("#intro-text")).to_contain_text("1 image.")
    expect(page.locator("#strip .card")).to_have_attribute("title", first["id"])
    page.locator("#strip .card").click()
    text = "There is no other image in the gallery."
    expect(status(page)).to_have_text(text)
    expect(page.locator(".hits .empty")).to_have_text(text)

    page.get_by_role("button", name="Remove", exact=True).click()
    page.locator("#remove-confirm").click()
    empty = "There are no images in this gallery yet."
    expect(page.locator("#intro-text")).to_have_text(empty)
    for view in ("Browse", "Map"):
        page.get_by_role("link", name=view, exact=True).click()
        expect(status(page)).to_have_text(empty, timeout=60_000)
    expect(page.locator("#plot")).to_be_hidden()
    page.get_by_role("link", name="Search", exact=True).click()
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    expect(page.locator(".hits .empty")).to_have_text(
        "There is no image in the gallery."
    )
    assert has_no_horizontal_scrolling(page)


def test_narrow_screen_with_all_links_scrolls_down_alone(visit):
    page = visit(viewport={"width": 320, "height": 640})
    expect(page.get_by_role("link", name="Add", exact=True)).to_be_visible()
    for view in ("#start", "#browse", "#like/red%2Fpale.png", "#add"):
        page.goto(page.url.split("#")[0] + view)
        settled(page)
        assert has_no_horizontal_scrolling(page)

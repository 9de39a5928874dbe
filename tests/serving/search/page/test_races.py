"""What is asked for last is what is shown, in whatever order the replies arrive."""

import re

import pytest
from playwright.sync_api import expect

from tests.serving.search.page.browsing import (
    Held,
    editable,
    status,
)
from tests.support.search_fixtures import write_image

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(colors, colors_url, tmp_path_factory):
    """The page of a copy that the tests change, each another image of it."""
    copy = tmp_path_factory.mktemp("copy") / "index"
    with editable(colors / "index", colors_url, copy) as address:
        yield address


def go(page, fragment):
    page.evaluate("fragment => { location.hash = fragment; }", fragment)


def card(page, name):
    return page.locator(f'#page-images .card[title="{name}"]')


# Searching


def test_the_hits_are_those_of_the_last_search(visit):
    page = visit()
    held = Held(page, "**/api/search")
    with page.expect_request("**/api/search"):
        go(page, "#like/red%2Fclear.png")
    with page.expect_event("requestfailed"):
        go(page, "#like/blue%2Fclear.png")
    expect(page.locator("#preview-title")).to_have_text("blue")
    expect(page.locator(".hits .card-class").first).to_have_text("blue")
    expect(page.locator("#results-title")).to_be_focused()
    assert held.count == 2


@pytest.mark.full
def test_a_region_can_be_chosen_while_the_search_runs(visit):
    page = visit()
    held = Held(page, "**/api/search")
    with page.expect_request("**/api/search"):
        go(page, "#like/red%2Fclear.png")
    page.get_by_role("button", name="Choose a region").click()
    expect(page.locator("#crop-search")).to_be_enabled()
    held.let_go()
    expect(page.locator(".hits .card").first).to_be_attached()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Choose a region")).to_be_focused()


@pytest.mark.full
def test_a_button_pressed_while_the_search_ends_is_clicked(visit):
    page = visit()
    held = Held(page, "**/api/search")
    with page.expect_request("**/api/search"):
        go(page, "#like/red%2Fclear.png")
    page.get_by_role("button", name="Choose a region").hover()
    page.mouse.down()
    held.let_go()
    expect(page.locator(".hits .card").first).to_be_attached()
    page.mouse.up()
    expect(page.locator("#crop-dialog")).to_be_visible()


def test_a_dialog_does_not_outlive_the_view_it_belongs_to(visit):
    page = visit("#browse")
    card(page, "red/clear.png").click()
    page.get_by_role("button", name="Choose a region").click()
    expect(page.locator("#crop-dialog")).to_be_visible()
    page.go_back()
    expect(page.locator("#crop-dialog")).to_be_hidden()
    expect(card(page, "red/clear.png")).to_be_focused()


@pytest.mark.full
def test_an_image_given_before_the_gallery_is_known_is_searched_with(visit, tmp_path):
    page = visit()
    held = Held(page, "**/api/info")
    with page.expect_request("**/api/info"):
        page.reload()
    page.set_input_files("#file", write_image(tmp_path / "s.png", (0, 0, 250)))
    held.let_go()
    expect(page.locator(".hits .card-class").first).to_have_text("blue")


@pytest.mark.full
def test_other_samples_are_shown_after_a_failure(visit):
    answers = {"**/api/info": lambda route: route.abort()}
    page = visit(answers=answers)
    expect(status(page)).to_contain_text("cannot be reached")
    page.unroute("**/api/info")
    page.get_by_role("button", name="Show others").click()
    expect(page.locator("#strip .card").first).to_be_visible()
    expect(status(page)).to_have_text("")
    expect(page.locator("#shuffle")).to_be_focused()


def test_a_view_left_while_it_loads_is_found_where_it_was(visit):
    low = {"width": 390, "height": 300}
    page = visit(viewport=low, start="#browse")
    below = page.locator("#page-images .card").nth(3)
    below.focus()
    before = page.evaluate("scrollY")
    assert before > 0
    page.keyboard.press("Enter")
    expect(page.locator("#results-title")).to_be_focused()
    Held(page, "**/api/images?*")
    with page.expect_request("**/api/images?*"):
        page.go_back()
    page.go_forward()
    expect(page.locator("#results-title")).to_be_focused()
    page.go_back()
    expect(below).to_be_focused()
    assert page.evaluate("scrollY") == before


# Adding


def test_what_is_left_out_while_others_are_sent_is_not_added(visit, tmp_path):
    files = [
        write_image(tmp_path / f"{name}.png", color)
        for name, color in {"lemon": (250, 250, 0), "sun": (230, 240, 10)}.items()
    ]
    page = visit("#add")
    held = Held(page, "**/api/images", only="POST")
    page.set_input_files("#add-files", files)
    with page.expect_request("**/api/images"):
        page.get_by_role("button", name="Add 2 images").click()
    page.get_by_role("button", name="Discard sun.png").click()
    held.let_go()
    expect(status(page)).to_have_text("1 image added.")
    expect(page.locator("#add-list .add-note")).to_have_text(["added"])
    expect(page.locator("#add-count")).to_have_text("1 of 1")
    assert held.count == 1


@pytest.mark.full
def test_what_became_of_the_adding_is_reported_in_its_own_view(visit, tmp_path):
    file = write_image(tmp_path / "rose.png", (250, 100, 150))
    page = visit("#add")
    held = Held(page, "**/api/images", only="POST")
    page.set_input_files("#add-files", file)
    with page.expect_request("**/api/images"):
        page.get_by_role("button", name="Add 1 image").click()
    page.get_by_role("link", name="Duplicates").click()
    expect(status(page)).to_contain_text("groups")
    with page.expect_response("**/api/stats"):  # the counts are asked for anew
        held.let_go()
    expect(page.locator("#facts")).to_contain_text("Images")
    expect(status(page)).to_contain_text("groups")
    page.go_back()
    expect(status(page)).to_have_text("1 image added.")


# Removing


def test_a_removal_runs_once_and_closes_no_other_question(visit):
    page = visit("#browse")
    held = Held(page, "**/api/images?*", only="DELETE")
    page.get_by_role("button", name="Remove green/clear.png").click()
    with page.expect_request("**/api/images?*"):
        page.locator("#remove-confirm").dblclick()
    expect(page.locator("#remove-cancel")).to_be_disabled()
    dialog = page.locator("#remove-dialog")
    # As some browsers close a dialog whatever the page says.
    dialog.evaluate("dialog => dialog.close()")
    page.get_by_role("button", name="Remove green/pale.png").click()
    held.let_go()
    expect(card(page, "green/clear.png")).to_have_count(0)
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("green/pale.png")
    page.locator("#remove-cancel").click()
    expect(card(page, "green/pale.png")).to_be_visible()
    assert held.count == 1


@pytest.mark.full
def test_escape_does_not_put_away_a_removal_that_runs(visit):
    page = visit("#browse")
    held = Held(page, "**/api/images?*", only="DELETE")
    page.get_by_role("button", name="Remove green/paler.png").click()
    with page.expect_request("**/api/images?*"):
        page.locator("#remove-confirm").click()
    page.keyboard.press("Escape")
    expect(page.locator("#remove-dialog")).to_be_visible()
    held.let_go()
    expect(page.locator("#remove-dialog")).to_be_hidden()
    expect(card(page, "green/paler.png")).to_have_count(0)


@pytest.mark.full
def test_a_view_come_to_during_a_removal_stays_and_is_brought_up_to_date(visit):
    page = visit("#browse")
    card(page, "blue/paler.png").click()
    held = Held(page, "**/api/images?*", only="DELETE")
    page.get_by_role("button", name="Remove", exact=True).click()
    with page.expect_request("**/api/images?*"):
        page.locator("#remove-confirm").click()
    page.go_back()
    expect(card(page, "blue/paler.png")).to_be_visible()
    held.let_go()
    expect(card(page, "blue/paler.png")).to_have_count(0)
    expect(page).to_have_url(re.compile("#browse$"))


@pytest.mark.full
def test_a_removal_that_failed_after_its_question_was_put_away_is_reported(visit):
    failing = []
    page = visit("#browse")
    page.get_by_role("button", name="Remove red/paler.png").click()
    page.route("**/api/images?*", lambda route: failing.append(route))
    with page.expect_request("**/api/images?*"):
        page.locator("#remove-confirm").click()
    page.locator("#remove-dialog").evaluate("dialog => dialog.close()")
    failing[0].abort()
    expect(status(page)).to_contain_text("red/paler.png was not removed.")


def test_a_query_removed_while_its_search_ends_leaves_its_view(visit):
    page = visit()
    held = Held(page, "**/api/search")
    with page.expect_request("**/api/search"):
        go(page, "#like/blue%2Fpale.png")
    page.get_by_role("button", name="Remove", exact=True).click()
    held.let_go()
    expect(page.locator(".hits .card").first).to_be_attached()
    page.locator("#remove-confirm").click()
    expect(page).to_have_url(re.compile("#start$"))
    expect(page.locator("#strip .card").first).to_be_visible()


def test_a_field_entered_while_a_search_loads_keeps_the_focus(visit):
    page = visit("#like/red%2Fclear.png")
    expect(page.locator(".hits .card").first).to_be_visible()
    held = Held(page, "**/api/search")
    with page.expect_request("**/api/search"):
        go(page, "#like/blue%2Fpale.png")
    field = page.get_by_label("Class", exact=True)
    field.focus()
    held.let_go()
    expect(page.locator('.hits .card[title="blue/paler.png"]')).to_be_visible()
    expect(field).to_be_focused()


# A gallery behind a token, whose images are fetched by the page


def test_a_slower_older_image_does_not_replace_the_newer_one(visit, guarded, token):
    page = visit(at=guarded)
    page.evaluate("t => sessionStorage.setItem('image-search-token', t)", token)
    Held(page, re.compile("/images.id=red"))
    with page.expect_request(re.compile("/images.id=red")) as older:
        page.goto(f"{guarded}/#like/red%2Fclear.png")
        page.reload()
    with page.expect_event("requestfailed", lambda sent: sent == older.value):
        go(page, "#like/blue%2Fclear.png")
    expect(page.locator("#preview-title")).to_have_text("blue")
    expect(page.locator("#preview-image[src^=blob]")).to_be_visible()


def test_a_request_refused_late_asks_for_no_second_token(visit, guarded, token):
    page = visit(at=guarded)
    expect(page.get_by_label("Access token")).to_be_focused()
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    expect(page.locator("#strip .card")).to_have_count(9)
    late = (
        "async () => Promise.race([(await import('./access.js'))"
        ".askForToken('', 0),"
        " new Promise(resolve => setTimeout(resolve, 5000, 'asked again'))])"
    )
    assert page.evaluate(late) is True
    expect(page.locator("#token-dialog")).to_be_hidden()

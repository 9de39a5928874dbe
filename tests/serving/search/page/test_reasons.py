"""The dialog that tells why a hit is alike, and asks whether it is right."""

import pytest
from playwright.sync_api import expect

from tests.serving.search.page.browsing import served, upload
from tests.support.search_fixtures import write_image
from training.data.manifest import read_manifest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def address(colors, colors_url, folder):
    with served(colors / "index", colors_url, feedback=folder) as address:
        yield address


def opacity(page, side):
    """The sum of what covers an image."""
    script = """canvas => canvas.getContext("2d")
        .getImageData(0, 0, canvas.width, canvas.height).data
        .reduce((sum, value, at) => sum + (at % 4 === 3) * value, 0)"""
    return page.locator(f"#why-{side}-heat").evaluate(script)


def test_parts_that_make_a_hit_alike_are_marked(visit):
    cells = [[0.0] * 7 for _ in range(7)]
    cells[1][2] = 0.5
    reply = {"similarity": 0.9, "query": cells, "hit": [[0.0] * 7] * 7}
    answers = {"**/api/why?*": lambda route: route.fulfill(json=reply)}
    page = visit("#like/red%2Fclear.png", answers=answers)
    page.get_by_role("button", name="Why is").first.click()
    dialog = page.get_by_role("dialog", name="Why is this alike?")
    expect(dialog).to_contain_text("Covering a marked part would lower the similarity")
    assert opacity(page, "query") == 200
    assert opacity(page, "hit") == 0
    expect(dialog).to_contain_text("hit 1 of 8")
    page.keyboard.press("ArrowRight")
    expect(dialog).to_contain_text("hit 2 of 8")
    page.get_by_role("button", name="Search with it").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#preview-title")).to_be_visible()


def test_a_hit_of_ones_own_image_is_rated_right(visit, folder, tmp_path):
    page = visit()
    upload(page, write_image(tmp_path / "sky.png", (10, 10, 250)))
    page.get_by_role("button", name="Why is").first.click()
    said, question = page.locator("#why-said"), page.locator("#why-question")
    # An image of one color, of which no part counts.
    expect(said).to_contain_text("No single part matters")
    page.get_by_role("button", name="Right").click()
    expect(question).to_have_text("Saved as right.")
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("No single part matters")
    page.keyboard.press("w")
    expect(question).to_have_text("Saved as wrong.")
    page.keyboard.press("Escape")
    rated = page.locator(".hits .rated")
    expect(rated).to_have_text(["rated right", "rated wrong"])
    labels = read_manifest(folder / "manifest.csv")
    assert sorted(labels.class_names) == ["blue", "blue (2)"]

import pytest
from playwright.sync_api import expect

from tests.serving.search.page.browsing import (
    WIDTHS,
    has_no_horizontal_scrolling,
    served,
    status,
    upload,
)
from tests.support.search_fixtures import write_image

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(calibrated, colors_url):
    """The page of a gallery with a threshold of 0.9."""
    with served(calibrated, colors_url) as address:
        yield address


@pytest.fixture
def width():
    return "desktop"


@pytest.fixture
def page(visit, width):
    return visit(viewport=WIDTHS[width])


@pytest.mark.parametrize("width", WIDTHS)
def test_matches_stand_above_a_divider_and_the_rest_below(page, tmp_path):
    expect(page.locator("#facts")).to_contain_text("similarity of at least 0.900")
    upload(page, write_image(tmp_path / "sky.png", (0, 0, 200)))
    items = page.locator(".hits > li")
    expect(items).to_have_count(10)
    expect(items.nth(2)).to_have_text("Below 0.900: similar, but not a match")
    weak = items.evaluate_all("all => all.map(li => !!li.querySelector('.weak'))")
    assert weak == [False] * 3 + [True] * 7
    expect(page.locator("#results-title")).to_have_text("Nearest images")
    expect(status(page)).to_contain_text("2 are matches.")
    # It stands in the grid, as wide as a card: no column beside it is empty.
    card = items.nth(3).bounding_box()["width"]
    assert items.nth(2).bounding_box()["width"] == pytest.approx(card, abs=1)
    assert has_no_horizontal_scrolling(page)


def test_query_without_a_match_is_told_so_before_the_nearest(page, tmp_path):
    upload(page, write_image(tmp_path / "lemon.png", (200, 200, 0)))
    expect(page.get_by_role("heading", name="No match")).to_be_visible()
    expect(status(page)).to_contain_text("No match among 9 images")
    first = page.locator(".hits > li").first
    expect(first).to_contain_text("No image of the same thing seems to be in this")
    expect(first).to_contain_text(
        "needs a similarity of 0.900; the nearest image has 0.8"
    )
    meaning = "80% of the queries that have a match get it"
    expect(first).to_contain_text(f"At this similarity, {meaning}")
    expect(page.locator("#facts")).to_contain_text(f"{meaning}, 93% of the answers")
    expect(page.locator(".hits .card.weak")).to_have_count(9)
    assert has_no_horizontal_scrolling(page)

    upload(page, write_image(tmp_path / "sky.png", (0, 0, 200)))
    expect(page.get_by_role("heading", name="Nearest images")).to_be_visible()
    expect(page.locator(".hits .card.weak")).to_have_count(7)


@pytest.mark.parametrize(
    ("threshold", "similarities", "match", "sentence", "scores"),
    [
        (
            0.7482,
            [0.7479, 0.51],
            False,
            "needs a similarity of 0.7482; the nearest image has 0.7479.",
            ["0.7479", "0.5100"],
        ),
        (
            0.748201,
            [0.748204, 0.748199],
            True,
            "Below 0.748201: similar, but not a match",
            ["0.748204", "0.748199"],
        ),
        (0.748, [0.7486, 0.7474], True, "Below 0.748: similar", ["0.749", "0.747"]),
    ],
)
def test_digits_tell_what_matches_from_what_does_not(
    page, threshold, similarities, match, sentence, scores
):
    def answer(route):
        reply = route.fetch()
        whole = reply.json()
        hits = whole["hits"][: len(similarities)]
        for hit, value in zip(hits, similarities, strict=True):
            hit |= {"similarity": value, "match": value >= threshold}
        changes = {"hits": hits, "match": match, "threshold": threshold}
        route.fulfill(response=reply, json=whole | changes)

    page.route("**/api/search", answer)
    page.locator("#strip .card").first.click()
    expect(page.locator(".hits .divider")).to_contain_text(sentence)
    expect(page.locator(".hits .card b")).to_have_text(scores)

"""How hits are named, scaled and stacked."""

import io

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import expect

from tests.serving.search.page.browsing import choose_class, hit_ids, status

pytestmark = pytest.mark.slow

WRITTEN = {
    "1f383_jack-o-lantern": "jack-o'-lantern",
    "1f550_one-oclock": "one o'clock",
    "1f455_t-shirt": "t-shirt",
    "1f238_japanese-application-button": "japanese application button",
    "0030-20e3_keycap-0": "keycap 0",
    "2049_exclamation-question-mark": "exclamation question mark",
    "001.Black_footed_Albatross": "Black footed Albatross",
    "n02085620-Chihuahua": "Chihuahua",
    "chair_final": "chair final",
    "Rolls-Royce": "Rolls-Royce",
    # Nothing is cut that may be the name itself.
    "2023_model": "2023 model",
    "face_mask": "face mask",
    "a123_red": "a123 red",
    "42": "42",
    "1f383_": "1f383",
    "red": "red",
}


def call(page, module, code, given):
    """Run a function of a module of the page."""
    script = (
        f"async given => {{ const m = await import('./{module}'); return {code}; }}"
    )
    return page.evaluate(script, given)


def answer_with(hits, **changes):
    """The answer of the service with other hits: class, similarity and image."""

    def answer(route):
        whole = route.fetch().json()
        least = changes.get("threshold")
        made = [
            {"id": f"{name}/{place}.png", "class": name, "attributes": {}}
            | {"url": f"drawn/{image}.png", "similarity": similarity}
            | ({} if least is None else {"match": similarity >= least})
            for place, (name, similarity, image) in enumerate(hits)
        ]
        route.fulfill(json=whole | {"hits": made} | changes)

    return answer


def drawing(kind):
    """A scene as PNG: "a" and "a-again" differ by their size and encoding alone."""
    side = 300 if kind == "a-again" else 240
    image = Image.new("RGB", (side, side), "white")
    box = {"a": (0.2, 0.2, 0.7, 0.8), "b": (0.5, 0.1, 0.9, 0.5)}[kind[0]]
    draw = ImageDraw.Draw(image)
    draw.rectangle([side * edge for edge in box], fill=(20, 90, 200))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def draw(route):
    name = route.request.url.rsplit("/", 1)[1].removesuffix(".png")
    route.fulfill(body=drawing(name), content_type="image/png")


@pytest.fixture
def shown(visit):
    """Show hits that a test makes up."""

    def shown(hits, start="#like/red%2Fclear.png", **changes):
        answers = {"**/api/search": answer_with(hits, **changes), "**/drawn/*": draw}
        page = visit(start, answers=answers)
        expect(page.locator(".hits .card").first).to_be_attached()
        return page

    return shown


def bars(page):
    """The filled share of each bar, in percent."""
    return page.locator(".hits .meter i").evaluate_all(
        "all => all.map(one => parseFloat(one.style.getPropertyValue('--share')))"
    )


# Names


def test_classes_are_named_as_people_write_them(page):
    given = list(WRITTEN)
    assert call(page, "names.js", "given.map(m.className)", given) == [
        *WRITTEN.values()
    ]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1f383_jack-o-lantern", "1f383_jack-o-lantern"),
        ("Jack O Lantern", "1f383_jack-o-lantern"),
        ("jack-o\u2019-lantern", "1f383_jack-o-lantern"),
        ("button", ["1f238_japanese-application-button", "1f191_cl-button"]),
        ("cl, jack", ["1f191_cl-button", "1f383_jack-o-lantern"]),
        ("no such thing", "no such thing"),
        ("  ", ""),
    ],
)
def test_a_class_is_found_by_what_people_type(page, text, meant):
    classes = [
        "1f383_jack-o-lantern",
        "1f238_japanese-application-button",
        "1f191_cl-button",
    ]
    assert call(page, "filters.js", "m.meant(...given)", [text, classes]) == meant


def test_a_hit_has_the_name_that_people_write_and_keeps_its_id(shown):
    page = shown([("1f383_jack-o-lantern", 0.9, "a")])
    expect(page.locator(".hits .card-class")).to_have_text("jack-o'-lantern")
    assert hit_ids(page) == ["1f383_jack-o-lantern/0.png"]


def test_a_word_of_several_classes_filters_by_all_of_them(visit):
    page = visit("#browse")
    choose_class(page, "RE")
    expect(status(page)).to_have_text("6 images with class “green” or “red”.")
    choose_class(page, "Blue")
    expect(status(page)).to_have_text("3 images with class “blue”.")


# Similarities


def test_bars_tell_hits_apart_that_lie_close_to_each_other(shown):
    values = [0.9999, 0.9987, 0.9971, 0.9960]
    page = shown([("red", value, "a") for value in values])
    span = values[0] - values[-1]
    expected = [8 + 92 * (value - values[-1]) / span for value in values]
    assert bars(page) == pytest.approx(expected, abs=0.06)
    expect(page.locator(".scale-note")).to_have_text("Bars run from 0.9960 to 0.9999.")
    expect(page.locator(".hits .rank")).to_have_text(["1", "2", "3", "4"])


def test_bars_of_hits_far_apart_show_the_similarity_itself(shown):
    page = shown([("red", value, "a") for value in (0.9, 0.5, -0.2)])
    assert bars(page) == [90, 50, 0]
    expect(page.locator(".scale-note")).to_have_count(0)


def test_bars_show_distances_too(shown):
    page = shown([("red", value, "a") for value in (-1.0, -3.0, -5.0)])
    assert bars(page) == pytest.approx([100, 54, 8], abs=0.06)


def test_hits_in_a_row_do_not_show_the_same_number(shown):
    page = shown([("red", 0.9 + 1e-4 * step, "a") for step in (3, 2, 1, 0)])
    numbers = page.locator(".hits .card b")
    expect(numbers).to_have_text(["0.9003", "0.9002", "0.9001", "0.9000"])


# Stacks

MIXED = [("red", 0.9, "a"), ("blue", 0.8, "b"), ("red", 0.7, "b"), ("red", 0.6, "b")]


def test_hits_are_grouped_by_class_on_request(shown):
    page = shown(MIXED)
    expect(page.locator(".hits .card:visible")).to_have_count(3)
    page.get_by_role("button", name="Group by class").click()
    cards = page.locator(".hits .card:visible")
    expect(cards).to_have_count(2)
    expect(cards.locator(".card-class")).to_have_text(["red", "blue"])
    more = page.get_by_role("button", name="+ 2 of this class")
    more.click()
    expect(cards.locator(".rank")).to_have_text(["1", "3", "4", "2"])
    page.get_by_role("button", name="Show fewer").click()
    expect(cards).to_have_count(2)
    expect(page.get_by_role("button", name="Group by class")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.go_back()
    expect(cards).to_have_count(3)


def test_near_duplicates_are_one_card(shown):
    hits = [
        ("red", 0.9, "a"),
        ("red", 0.89, "b"),
        ("red", 0.88, "a-again"),
        ("blue", 0.87, "a"),  # the same image, of another class: worth a look
    ]
    page = shown(hits)
    cards = page.locator(".hits .card:visible")
    expect(cards).to_have_count(3)
    expect(cards.locator(".rank")).to_have_text(["1", "2", "4"])
    more = page.get_by_role("button", name="+ 1 nearly the same")
    expect(more).to_have_attribute("aria-expanded", "false")
    more.click()
    expect(cards.locator(".rank")).to_have_text(["1", "3", "2", "4"])


def test_a_border_with_nothing_below_it_is_not_shown(shown):
    hits = [("red", 0.95, "a"), ("red", 0.5, "b")]
    page = shown(hits, match=True, threshold=0.9)
    expect(page.locator(".divider")).to_have_count(1)
    page.get_by_role("button", name="Group by class").click()
    expect(page.locator(".stack-button")).to_be_visible()
    expect(page.locator(".divider")).to_have_count(0)


def test_on_a_narrow_screen_the_options_are_behind_a_button(visit):
    page = visit("#like/red%2Fclear.png", phone=True)
    expect(page.locator(".hits .card")).to_have_count(8)
    field = page.get_by_label("Class", exact=True)
    expect(field).to_be_hidden()
    page.get_by_role("button", name="Options").click()
    expect(field).to_be_visible()

"""What users say about hits is kept as a manifest that training reads."""

import csv
import io

import pytest
from PIL import Image

from serving.search.app.app import run
from serving.search.gallery.feedback import Feedback, RatedImage, Rating, labels_of
from serving.search.gallery.opening import open_search
from tests.support.search_fixtures import encoded, error_of, page_of
from training.data.manifest import check_manifest, read_manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("feedback") / "kept"


@pytest.fixture(scope="module")
def rating(colors, colors_url, folder):
    with (
        open_search(colors / "index", colors_url) as search,
        page_of(search, feedback=folder) as client,
    ):
        yield client


def rate(client, query, hit, verdict, **fields):
    source = (
        {"id": (None, query)} if isinstance(query, str) else {"image": ("q", query)}
    )
    given = {"hit": hit, "verdict": verdict, **fields}
    files = source | {name: (None, value) for name, value in given.items()}
    return client.post("/api/feedback", files=files)


def test_ratings_become_a_manifest_that_training_reads(rating, folder):
    assert rating.get("/api/info").json()["can_rate"] is True
    own = encoded((250, 10, 10))
    first = rate(rating, own, "red/clear.png", "right")
    assert first.status_code == 201
    assert first.json() == {"verdict": "right", "ratings": 1}
    rate(rating, own, "blue/clear.png", "wrong")
    halves = Image.new("RGB", (40, 20), (0, 0, 250))
    halves.paste((0, 250, 0), (20, 0, 40, 20))
    halves.save(folder / "halves.png")
    content = (folder / "halves.png").read_bytes()
    crop = {"crop": "0.5,0,0.5,1"}
    last = rate(rating, content, "green/pale.png", "right", **crop)
    assert last.json()["ratings"] == 3

    file = folder / "manifest.csv"
    assert check_manifest(file) == []
    data = read_manifest(file)
    rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8"))))
    labels = {row["gallery_id"] or row["path"]: row["label"] for row in rows}
    assert labels["red/clear.png"] == "red"
    assert labels["blue/clear.png"] == "blue"
    assert labels["green/pale.png"] == "green"
    assert sorted(labels.values()) == ["blue", "green", "green", "red", "red"]
    assert len(data) == 5
    # The region alone is kept of the last query.
    regions = [row for row in rows if not row["gallery_id"] and row["label"] == "green"]
    with Image.open(folder / regions[0]["path"]) as image:
        assert image.size == (20, 20)
        assert image.convert("RGB").getpixel((0, 0)) == (0, 250, 0)


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        (("red/clear.png", "red/pale.png", "maybe"), 400, "must be right or wrong"),
        (("red/clear.png", "red/clear.png", "right"), 400, "are the same image"),
        (("red/clear.png", "gone", "right"), 404, "no image 'gone'"),
        ((b"no image", "red/pale.png", "right"), 400, "not an image"),
    ],
)
def test_what_is_no_rating_is_refused(rating, fields, status, text):
    assert text in error_of(rate(rating, *fields), status)


def test_nothing_is_kept_unless_asked_for(page):
    assert page.get("/api/info").json()["can_rate"] is False
    refused = rate(page, "red/clear.png", "red/pale.png", "right")
    assert "--feedback FOLDER" in error_of(refused, 403)


def test_feedback_beyond_this_machine_needs_a_token(tmp_path):
    with pytest.raises(ValueError, match="`feedback` need a token"):
        run(
            "index",
            "http://127.0.0.1:1/v1/models/m",
            host="10.0.0.1",
            feedback=tmp_path,
        )


def test_a_rating_that_was_cut_off_costs_no_other(tmp_path):
    query, hit = RatedImage("q.png"), RatedImage("h.png", "a/h.png", "a")
    feedback = Feedback(tmp_path)
    assert feedback.add(Rating(query, hit, True)) == 1
    with (tmp_path / "ratings.jsonl").open("ab") as file:
        file.write(b'{"query": {"fi')
    assert feedback.add(Rating(query, hit, False)) == 2
    assert [rating.is_right for rating in Feedback(tmp_path).ratings()] == [True, False]


# Labels

A, B, C, D = (RatedImage(f"{name}.png") for name in "abcd")
CAT, DOG, CAT_2 = (
    RatedImage(f"{number}.png", f"{name}/{number}.png", name)
    for number, name in enumerate(("cat", "dog", "cat"))
)


@pytest.mark.parametrize(
    ("ratings", "expected"),
    [
        ([(A, CAT, 1)], {A: "cat", CAT: "cat"}),
        ([(A, CAT, 0)], {A: "a", CAT: "cat"}),
        # What is right for the same query is the same thing.
        ([(A, CAT, 1), (A, DOG, 1), (A, CAT_2, 1)], dict.fromkeys((A, DOG), "cat")),
        # Of one class in the gallery, but not the same.
        ([(CAT, CAT_2, 0)], {CAT: "cat", CAT_2: "cat (2)"}),
        ([(CAT, B, 1), (CAT_2, B, 0)], {B: "cat", CAT_2: "cat (2)"}),
        # What was said last counts.
        ([(A, CAT, 1), (A, CAT, 0)], {A: "a", CAT: "cat"}),
        ([(A, CAT, 0), (A, CAT, 1)], {A: "cat", CAT: "cat"}),
        ([(A, B, 0), (B, CAT, 1), (A, CAT, 1)], {A: "cat", B: "cat"}),
        ([(B, CAT, 1), (A, CAT, 1), (A, B, 0)], {A: "cat", B: "b"}),
        ([(A, B, 1), (C, D, 1)], {A: "a", B: "a", C: "c", D: "c"}),
    ],
)
def test_right_hits_have_the_label_of_their_query_and_wrong_ones_another(
    ratings, expected
):
    found = labels_of(
        [Rating(query, hit, bool(right)) for query, hit, right in ratings]
    )
    assert {image: found[image] for image in expected} == expected

"""The report of a run: text, charts, searches, one page."""

import base64
import io
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.support.running_chromium import chromium
from training.__main__ import main
from training.data.data_set import DataSet
from training.data.split import Split
from training.reports.contact_sheet import contact_sheet
from training.reports.page import Section, Table, write_page
from training.reports.run_page import draw_curves, write_report
from training.reports.text import (
    metric_text,
    metric_title,
    no_gain,
    summary,
    trained,
)

RESULTS = {
    "images": {"train": 50, "validation": 10, "test": 1200},
    "classes": {"train": 5, "validation": 1, "test": 120},
    "skipped_files": ["a"],
    "seconds_of_training": 125.4,
    "best_epoch": 2,
    "backend": "jax",
    "environment": {"date": "2026-01-02 03:04 UTC", "cpu_cores": "2"},
    "test_of_raw_32x32_pixels": {"precision_at_1": 0.5, "label_distance_at_10": 20.0},
    "test_before_training": {"precision_at_1": 0.25, "label_distance_at_10": 30.0},
    "test_after_training": {
        "precision_at_1": 0.755,
        "label_distance_at_10": 12.34567,
        "queries_without_positive": 3,
    },
}
HISTORY = {
    "loss": [3.0, 1.0, 2.0],
    "val_precision_at_1": [0.25, 0.5, 0.4],
    "val_label_distance_at_10": [30.0, 20.0, 25.0],
    "learning_rate": [0.1, 0.05, 0.0],
}
RECIPE = {
    "data": {"images": "<emoji>", "test_fraction": 0.5},
    "loss": {"name": "ProxyAnchorLoss", "arguments": {}},
    "embedder": {"backbone": "residual", "widths": [32, 64, 128, 256]},
    "fit": {"steps": 77},
}


def write(run, sheet):
    run.mkdir()
    for name, value in (
        ("metrics", RESULTS),
        ("history", HISTORY),
        ("recipe", RECIPE),
        ("neighbors", sheet),
    ):
        (run / f"{name}.json").write_text(json.dumps(value))


def test_summary_has_shares_in_percent_and_distances_as_they_are():
    text = summary(RESULTS)
    assert text.splitlines()[0].startswith("1200 test images of 120 classes")
    assert "Precision@1  label distance@10" in text
    assert re.search(r"^before training +25.0% +30$", text, re.MULTILINE)
    assert re.search(r"^after training +75.5% +12.35$", text, re.MULTILINE)
    assert text.endswith("are alone in their class and are not used as queries.")


def test_steps_and_time_of_training_also_of_an_earlier_version():
    assert trained(RESULTS) == "2 min 5 s"
    assert trained(RESULTS | {"steps_of_training": 1}) == "1 step in 2 min 5 s"
    assert trained(RESULTS | {"steps_of_training": 1040}) == "1,040 steps in 2 min 5 s"


def test_summary_without_test_images():
    nothing = dict.fromkeys(
        ("test_before_training", "test_after_training", "test_of_raw_32x32_pixels")
    )
    empty = RESULTS | nothing | {"images": {"test": 0}, "classes": {"test": 0}}
    assert summary(empty).endswith("nothing to measure.")


@pytest.mark.parametrize(
    ("before", "after", "raw", "gained"),
    [(30, 40, 35, True), (30, 33, 35, False), (40, 40, 35, False), (45, 40, 35, False)],
)
@pytest.mark.parametrize("is_distance", [False, True], ids=["classes", "distances"])
def test_training_that_gained_nothing_is_called_so(
    before, after, raw, gained, is_distance
):
    name = "label_distance_at_10" if is_distance else "precision_at_1"
    rows = zip(
        ("test_before_training", "test_after_training", "test_of_raw_32x32_pixels"),
        (before, after, raw),
        strict=True,
    )
    results = RESULTS | {
        row: {name: 100 - value if is_distance else value / 100} for row, value in rows
    }
    text = no_gain(results)
    assert (text == "") == gained
    assert summary(results).endswith(text)
    if not gained:
        assert metric_text(name, results["test_after_training"][name]) in text


@pytest.mark.parametrize(
    ("name", "title", "text"),
    [
        ("precision_at_1", "Precision@1", "12.5%"),
        ("recall_at_100", "Recall@100", "12.5%"),
        ("map_at_r", "MAP@R", "12.5%"),
        ("ndcg_at_10_other_sequences", "nDCG@10 other sequences", "12.5%"),
        ("label_distance_at_1", "label distance@1", "0.125"),
        ("misplaced_pairs", "misplaced pairs", "0.125"),
        ("loss", "loss", "0.125"),
    ],
)
def test_metrics_are_written_for_people(name, title, text):
    assert metric_title(name) == title
    assert metric_text(name, 0.125) == text


def test_curves_hold_the_values_of_each_epoch_and_mark_the_best():
    series = {"P@1": [0.5, float("nan"), 0.75], "MAP@R": [0.25, 0.5, float("inf")]}
    figure = draw_curves(series, in_percent=True, best=3)
    first, second, mark = figure.axes[0].lines
    np.testing.assert_array_equal(first.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(first.get_ydata(), series["P@1"])
    np.testing.assert_array_equal(second.get_ydata(), series["MAP@R"])
    assert mark.get_xdata() == [3, 3]
    figure.canvas.draw()  # without a warning
    texts = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert all(text.endswith("%") for text in texts)
    assert [t.get_text() for t in figure.legends[0].get_texts()] == list(series)


@pytest.mark.parametrize(
    "values", [[3.0], [0.0, 0.0], [-5.0, 1e6], [float("nan")]], ids=str
)
def test_curves_of_unusual_values_can_be_drawn(values):
    draw_curves({"a": values}, in_percent=False, best=0).canvas.draw()


def split_of(labels, roles=None, classes=("a", "b", "c")):
    """A split whose image i is all of the gray 20 i, its files in another order."""
    count = len(labels)
    positions = np.arange(count)[::-1] + 1
    data = DataSet(
        np.zeros((count, 4, 4, 3), "uint8"),
        np.asarray(labels),
        np.full(count, "test"),
        classes if np.ndim(labels) == 1 else (),
        roles,
    )

    def central(wanted):
        grays = [min(20 * int(np.flatnonzero(positions == p)[0]), 255) for p in wanted]
        return np.stack([np.full((8, 8, 3), gray, "uint8") for gray in grays])

    return Split(data, SimpleNamespace(central=central), positions)


def circle(degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype("float32")


def gray(item):
    with Image.open(io.BytesIO(base64.b64decode(item["image"]))) as image:
        return round(np.asarray(image).mean() / 20)


def test_searches_have_the_nearest_neighbors_with_their_images():
    split = split_of([0, 0, 1, 1, 2])
    names = [f"{i}.png" for i in range(5)]
    sheet = contact_sheet(split, 3 * circle([0, 10, 25, 90, 91]), names)
    found = {q["name"]: [n["name"] for n in q["neighbors"]] for q in sheet}
    assert found == {  # 4.png is alone in its class: no query
        "0.png": ["1.png", "2.png", "3.png", "4.png"],
        "1.png": ["0.png", "2.png", "3.png", "4.png"],
        "2.png": ["1.png", "0.png", "3.png", "4.png"],
        "3.png": ["4.png", "2.png", "1.png", "0.png"],
    }
    query = next(q for q in sheet if q["name"] == "2.png")
    assert query["class"] == "b"
    assert [n["positive"] for n in query["neighbors"]] == [False, False, True, False]
    first = query["neighbors"][0]["similarity"]
    assert first == pytest.approx(np.cos(np.radians(15)), abs=1e-4)
    assert [gray(n) for n in query["neighbors"]] == [1, 0, 3, 4]


def test_failures_are_drawn_from_queries_whose_nearest_neighbor_is_negative():
    labels = [0] * 30 + [1, 1]
    angles = [*np.linspace(0, 29, 30), 5.4, 24.6]
    split = split_of(labels, classes=("a", "b"))
    sheet = contact_sheet(split, circle(angles), [str(i) for i in range(32)], queries=3)
    assert [q["drawn"] for q in sheet[:3]] == ["from all"] * 3
    assert len({q["name"] for q in sheet}) == len(sheet)
    failures = [q for q in sheet if q["drawn"] == "from failures"]
    assert failures
    assert not any(q["neighbors"][0]["positive"] for q in failures)


def test_searches_keep_queries_and_gallery_apart():
    roles = np.array(["query", "query", "gallery", "gallery"])
    split = split_of([0, 1, 0, 1], roles)
    sheet = contact_sheet(split, circle([0, 40, 50, 60]), list("abcd"))
    assert {q["name"] for q in sheet} == {"a", "b"}
    assert all({n["name"] for n in q["neighbors"]} <= {"c", "d"} for q in sheet)


def test_continuous_labels_are_neither_positive_nor_negative():
    split = split_of(np.arange(4.0)[:, np.newaxis])
    sheet = contact_sheet(split, circle([0, 10, 20, 30]), list("abcd"))
    assert len(sheet) == 4
    assert {n["positive"] for q in sheet for n in q["neighbors"]} == {None}


def test_part_with_nothing_to_find_has_no_searches():
    assert contact_sheet(split_of([0, 1, 2]), circle([0, 10, 20]), list("abc")) == []


def test_page_shows_the_run_and_asks_for_nothing_else(tmp_path, capsys):
    split = split_of([0, 0, 1, 1, 2], classes=("a&b", "b", "c"))
    write(tmp_path / "run", contact_sheet(split, circle([0, 9, 25, 90, 91]), "vwxyz"))
    assert main(["report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'run' / 'report.html'}\n"
    page = (tmp_path / "run/report.html").read_text("utf-8")
    for text in (
        "2 min 5 s on jax; the weights of epoch 2, the best on validation, are kept",
        '<td class="n">75.5%</td><td class="n">12.35</td>',
        "<figcaption>Validation: label distance@10</figcaption>",
        "a&amp;b",
        "negative, 0.",
        "Skipped 1 unreadable files.",
        '<div class="given">images = &#34;&lt;emoji&gt;&#34;</div>',
        "<div>test_fraction = 0.5</div>",  # the default
        '<div class="given">steps = 77</div>',
        "2026-01-02 03:04 UTC",
    ):
        assert text in page, text
    assert page.count("data:image/png") == 4
    assert not re.search(r"https?://|<script|<link|url\(", page)


def test_page_shows_the_searches_of_an_old_run(tmp_path):
    item = {"name": "v", "class": "a", "picture": "AAAA"}
    near = item | {"similarity": 0.5, "right": True}
    write(tmp_path / "run", [item | {"drawn": "from all", "neighbors": [near]}])
    page = write_report(tmp_path / "run").read_text("utf-8")
    assert '<div class="cell positive"><img alt="a" title="v"' in page
    assert "positive, 0.50" in page


def test_page_of_a_run_without_validation_and_searches(tmp_path):
    write(tmp_path / "run", [])
    (tmp_path / "run/neighbors.json").unlink()
    (tmp_path / "run/history.json").write_text('{"loss": [1.0]}')
    page = write_report(tmp_path / "run").read_text("utf-8")
    assert page.count("data:image/png") == 1
    assert "Searches" not in page


def test_damaged_file_of_a_run_is_named(tmp_path, capsys):
    write(tmp_path / "run", [])
    (tmp_path / "run/history.json").write_text('{"loss": [1.0')
    assert main(["report", str(tmp_path / "run")]) == 1
    assert "history.json is damaged: " in capsys.readouterr().err


def test_pages_fit_a_phone(tmp_path):
    run = tmp_path / ("a_long_name_" * 8)
    write(run, [])
    name = "a_name_that_is_longer_than_the_page_is_wide_on_a_telephone.jpg"
    wide = Table(["", *map(str, range(1, 20))], [[name, *["12.3 to 45.6"] * 19]])
    sections = [Section("wide", tables=[wide, wide])]
    write_page(tmp_path / "table.html", "table", "lead", sections=sections)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 400, "height": 800})
        for file in (write_report(run), tmp_path / "table.html"):
            page.goto(file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_folder_without_a_finished_run_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "holds no finished run" in capsys.readouterr().err

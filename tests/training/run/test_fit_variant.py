"""A run of one of many recipes in a file, beside what a paper printed for it."""

import json

import pytest

from tests.support.training_runs import RECIPE
from training.__main__ import main

pytestmark = pytest.mark.slow

CHOICES = """
paper = "Somebody, Something, 2020"
choices.short.fit = {steps_per_epoch = 4, steps = 4}
choices.triplet.loss = {name = "TripletLoss"}

[[results]]
table = "Table 1"
columns = ["recall_at_1", "recall_at_3", "clustering.nmi_geometric"]
rows = {"short/triplet" = [50.25, 60, 70]}
"""


def rows_of(text):
    """Return published and measured values by metric, as a command prints them."""
    lines = text[text.index("As published for") :].splitlines()[2:5]
    return {words[0]: words[1:] for words in map(str.split, lines)}


def test_run_and_evaluation_stand_beside_the_published_row(
    shapes, tmp_path, monkeypatch, capsys
):
    _, tables = RECIPE.format(images=shapes / "images").split("[data]")
    head, results = CHOICES.split("[[results]]")
    recipe = tmp_path / "paper.toml"
    recipe.write_text(f"{head}[data]{tables}[[results]]{results}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["fit", str(recipe), "--variant", "short/triplet"]) == 0
    run = tmp_path / "runs" / "paper-short-triplet"
    trained = json.loads((run / "metrics.json").read_text("utf-8"))
    found = rows_of(capsys.readouterr().out)
    measured = trained["test_after_training"]
    assert found == {
        "Recall@1": ["50.25", f"{100 * measured['recall_at_1']:.2f}"],
        "Recall@3": ["60.00", f"{100 * measured['recall_at_3']:.2f}"],
        "NMI": ["70.00", f"{100 * trained['clustering']['nmi_geometric']:.2f}"],
    }
    assert "As published" in (run / "report.html").read_text("utf-8")
    assert json.loads((run / "recipe.json").read_text("utf-8"))["published"] == {
        "paper": "Somebody, Something, 2020",
        "variant": "short/triplet",
        "rows": {
            "Table 1": {
                "recall_at_1": 50.25,
                "recall_at_3": 60.0,
                "clustering.nmi_geometric": 70.0,
            }
        },
    }
    assert main(["evaluate", str(run)]) == 0
    results = json.loads((run / "evaluation" / "metrics.json").read_text("utf-8"))
    assert results["clustering"] == trained["clustering"]
    assert rows_of(capsys.readouterr().out) == found
    page = (run / "evaluation" / "report.html").read_text("utf-8")
    assert "As published" in page
    # The row of a paper is of test images.
    assert main(["evaluate", str(run), "--split", "validation", "--out", "other"]) == 0
    assert "As published" not in capsys.readouterr().out

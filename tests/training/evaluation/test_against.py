"""`evaluate --against`: may the new model search the old gallery?"""

import json

import numpy as np
import pytest

from tests.support.small_images import write_shapes
from tfdml.metrics import compatibility
from tfdml.models import build_embedder
from training.__main__ import main
from training.evaluation.against import OldModel
from training.evaluation.subject import open_subject
from training.measure.measure import task_of
from training.reports.compatibility import compatibility_text, verdict

pytestmark = pytest.mark.slow

CLASSES, IMAGES = 20, 3
LABELS = np.repeat(np.arange(CLASSES), IMAGES)


def rows(noise, seed, turned=False):
    centers = np.random.default_rng(0).normal(size=(CLASSES, 16))[LABELS]
    found = centers + noise * np.random.default_rng(seed).normal(size=centers.shape)
    if turned:
        found = found @ np.linalg.qr(np.random.default_rng(5).normal(size=(16, 16)))[0]
    return found.astype("float32")


OLD, NEW, TURNED = rows(1.2, 1), rows(0.5, 2), rows(0.5, 2, turned=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("against")
    write_shapes(root / "images", classes=CLASSES, images_per_class=IMAGES)
    for name, found in (("old", OLD), ("new", NEW), ("turned", TURNED)):
        np.save(root / f"{name}.npy", found)
    return root


def measured(subject, old):
    task = task_of(subject.split, subject.embeddings())
    return OldModel(old, subject).measured(subject, task)


def test_three_measurements_and_the_curve_are_written_and_printed(root, capsys):
    new = ["evaluate", root / "new.npy", root / "images", "--out", root / "new"]
    assert main([str(a) for a in [*new, "--against", root / "old.npy"]]) == 0
    text = capsys.readouterr().out
    results = json.loads((root / "new" / "metrics.json").read_text("utf-8"))
    found = results["compatibility"]
    # Images are listed class by class in the order of their names.
    names = sorted(f"class-{c}" for c in range(CLASSES))
    labels = np.repeat(names, IMAGES)
    expected = compatibility(OLD, NEW, labels, [1, 5])
    for name, results in vars(expected).items():
        assert found["metrics"][name] == pytest.approx(results.means())
        low, high = found["intervals"][name]["map_at_r"]
        assert low < found["metrics"][name]["map_at_r"] < high
    change = expected.change()
    assert found["change"]["precision_at_1"]["difference"] == change.difference > 0
    share = expected.gain_share()
    assert found["gain_share"]["precision_at_1"] == pytest.approx(share._asdict())
    curve = found["backfill"]
    assert curve["shares"] == [0, 0.25, 0.5, 0.75, 1]
    for order in ("random", "by_class"):
        ends = curve[order][0], curve[order][-1]
        assert ends == (found["metrics"]["new_on_old"], found["metrics"]["new_on_new"])
    for line in (
        "Queries on gallery, against old.npy:",
        "The new model may search the old gallery: Precision@1 rises by ",
        "of the gain of embedding all images again.",
        "worst of each class first",
    ):
        assert line in text
    page = (root / "new" / "report.html").read_text("utf-8")
    assert "Compatibility with old.npy" in page
    assert "may search the old gallery" in page


def test_incompatible_model_is_told_not_to_search(root):
    subject = open_subject(root / "turned.npy", root / "images")
    text = compatibility_text(measured(subject, root / "old.npy"))
    assert "The new model must not search the old gallery: Precision@1 falls" in text


def test_verdict_is_open_where_the_interval_holds_zero():
    change = {"difference": 0.004, "low": -0.012, "high": 0.02, "is_significant": False}
    text = verdict({"change": {"precision_at_1": change}, "gain_share": {}})
    assert text.startswith("Not decided: new queries change Precision@1")
    assert "by +0.4 points (95 % interval -1.2 to +2.0). Up to 1.2 points may" in text
    assert "single class" in verdict({"change": {}, "gain_share": {}})


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("short.npy", ValueError, r"of dimension 4, and 'new\.npy' of 16"),
        ("wide.keras", ValueError, r"of dimension 7, and 'new\.npy' of 16"),
        ("lengths.keras", ValueError, "embeddings are compared by squared_euclidean"),
        ("missing", FileNotFoundError, "There is no model at"),
    ],
)
def test_models_that_cannot_be_compared_are_refused(
    name, error, message, root, tmp_path
):
    np.save(tmp_path / "short.npy", OLD[:, :4])
    if name.endswith(".keras"):
        is_unit = name != "lengths.keras"
        embedder = build_embedder(16, 7, widths=(4,), unit_length=is_unit)
        embedder.save(tmp_path / name)
    subject = open_subject(root / "new.npy", root / "images")
    with pytest.raises(error, match=message):
        measured(subject, tmp_path / name)


def test_run_against_itself_changes_nothing(finished_run):
    found = measured(open_subject(finished_run, split="train"), finished_run)
    for name in ("new_on_old", "new_on_new"):
        assert found["metrics"][name] == found["metrics"]["old_on_old"]
    assert found["change"]["map_at_r"]["difference"] == 0
    assert found["gain_share"] == {}
    text = compatibility_text(found)
    assert "Not decided: new queries change Precision@1" in text
    assert "The old model was trained on 5 of these classes" in text

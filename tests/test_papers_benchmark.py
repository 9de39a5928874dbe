"""The papers' tables in small measure what they say."""

import json

import numpy as np
import pytest
from PIL import Image

from benchmarks.papers import __main__ as papers
from benchmarks.papers import tables
from benchmarks.papers.cases import CASES
from benchmarks.papers.pack import pack, read_packed
from benchmarks.papers.run import do
from benchmarks.papers.runs import Run, read_results
from benchmarks.papers.sets import SETS, tables_of
from benchmarks.papers.studies import STUDIES, floor_runs
from benchmarks.papers.train import frozen, train
from benchmarks.papers.tuning import RATES, rates_of, tuning_runs
from training.recipe import recipe_of

TINY = {
    "embedder": {
        "backbone": "residual",
        "weights": "",
        "image_size": 16,
        "embedding_dimension": 8,
        "widths": [4, 8],
    },
    "batches": {"images_per_class": 2, "classes_per_batch": 4},
    "fit": {"steps": 4, "steps_per_epoch": 2, "learning_rate": 0.01},
}
"""What makes a recipe small, and its network one of random weights."""


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of 20 classes, each with 4 pictures of about one colour."""
    folder = tmp_path_factory.mktemp("papers") / "emoji"
    random = np.random.default_rng(0)
    for name, color in enumerate(random.integers(0, 256, (20, 3))):
        (folder / f"{name:02}").mkdir(parents=True)
        for number in range(4):
            noise = random.integers(-20, 21, (24, 24, 3))
            picture = np.clip(color + noise, 0, 255).astype("uint8")
            Image.fromarray(picture).save(folder / f"{name:02}" / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def packed(images, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "emoji.npz"
    assert pack("emoji", str(images), path, 16) == 80
    return path


def recipe(case="multi-similarity"):
    return recipe_of(CASES[case].tables("emoji", **TINY))


# Packing


def test_packed_pictures_are_those_of_the_folder(images, packed):
    data = read_packed(packed)
    assert data.images.shape == (80, 16, 16, 3)
    for place in (0, 37, 79):
        name = data.class_names[data.labels[place]]
        means = [
            np.asarray(Image.open(file)).mean(axis=(0, 1))
            for file in sorted((images / name).glob("*.png"))
        ]
        found = data.images[place].mean(axis=(0, 1))
        assert np.abs(np.array(means) - found).max(axis=1).min() < 3


def test_packed_classes_are_split_as_the_set_says(packed):
    data = read_packed(packed)
    classes = {
        split: set(data.labels[data.splits == split])
        for split in ("train", "validation", "test")
    }
    assert [len(classes[split]) for split in classes] == [8, 2, 10]
    assert not classes["train"] & classes["test"]


# Training


def test_run_is_measured_on_its_split_after_each_epoch(packed):
    data = read_packed(packed)
    found = train(recipe(), data, "test", with_curve=True)
    assert len(found["queries"]) == 40
    reached = np.mean(found["queries"])
    assert found["metrics"]["precision_at_1"] == pytest.approx(reached, abs=1e-6)
    assert [point["step"] for point in found["curve"]] == [2, 4]
    # A batch of 4 pairs: 8 anchors, 1 positive, 6 negatives.
    assert [point["triplets"] for point in found["curve"]] == [2 * 48, 4 * 48]
    assert found["curve"][-1]["precision_at_1"] == found["metrics"]["precision_at_1"]


def test_equal_runs_reach_the_same(packed):
    data = read_packed(packed)
    assert train(recipe(), data, "test") == train(recipe(), data, "test")


def test_loss_that_becomes_nan_ends_its_run(packed):
    tables = CASES["multi-similarity"].tables("emoji", **TINY)
    tables["fit"] |= {"learning_rate": 1e30, "warmup_steps": 0, "optimizer": "sgd"}
    found = train(recipe_of(tables), read_packed(packed), "test")
    assert found == {"diverged_at": 2} or found == {"diverged_at": 4}


def test_network_that_is_not_trained_is_measured_by_its_pooled_features(packed):
    data = read_packed(packed)
    found = frozen(recipe(), data, "test")
    assert len(found["classes"]) == len(found["queries"]) == 40
    assert 0 < found["metrics"]["precision_at_1"] <= 1


# The runs of the studies


def all_runs():
    rates = {(set_, case): 1e-4 for set_ in SETS for case in CASES}
    yield from floor_runs(list(SETS))
    yield from tuning_runs(CASES, SETS, 1500)
    for name, study in STUDIES.items():
        yield from study.runs(name, list(SETS), rates, 1500, [0, 1])


def test_every_run_has_a_recipe_that_can_be():
    runs = list(all_runs())
    assert len(runs) > 300
    for run in runs:
        recipe_of(run.tables, run.name)
        assert run.set in SETS


def test_runs_are_told_apart_by_what_they_compute():
    by_key = {}
    for run in all_runs():
        same = by_key.setdefault(run.key, run)
        assert (same.tables, same.split) == (run.tables, run.split)
    one = Run("losses", "one", tables_of("emoji", {}))
    assert one.key == Run("other", "two", tables_of("emoji", {})).key
    assert one.key != Run("losses", "one", tables_of("furniture", {})).key
    assert one.key != Run("losses", "one", tables_of("emoji", {}), "validation").key


def tuned(name, rate, reached, study="tuning"):
    tables = {"fit": {"learning_rate": rate}}
    record = {"study": study, "name": name, "set": "emoji", "tables": tables}
    return record | ({"metrics": {"precision_at_1": reached}} if reached else {})


def test_best_rate_on_validation_is_taken():
    records = [
        tuned("a", RATES[0], 0.5),
        tuned("a", RATES[1], 0.6),
        tuned("a", RATES[2], None),  # diverged
        tuned("a", 1.0, 0.9, study="losses"),
        tuned("b", RATES[2], 0.1),
    ]
    assert rates_of(records) == {("emoji", "a"): RATES[1], ("emoji", "b"): RATES[2]}


def work(run):
    """As a process does a run; at the top of the module, so that it can be sent."""
    if run.name == "late":
        return None
    if run.name == "broken":
        raise ValueError("broken")
    return {"name": run.name}


@pytest.mark.slow
def test_a_run_that_fails_or_comes_too_late_does_not_end_the_others(capsys):
    runs = [Run("s", name, tables_of("emoji", {})) for name in ("a", "broken", "b")]
    kept = []
    assert not do(runs, work, lambda run, found: kept.append((run.name, found)), 2)
    assert sorted(name for name, _ in kept) == ["a", "b"]
    assert "s broken of emoji failed" in capsys.readouterr().out
    late = [Run("s", "late", tables_of("emoji", {}))]
    assert not do(late, work, lambda run, found: kept.append(run), 1)
    assert len(kept) == 2
    assert do(runs[:1], work, lambda run, found: None, 1)
    assert do([], work, kept.append, 1)


@pytest.mark.slow
def test_command_goes_on_where_it_was_ended(packed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.papers.sets._TRAINED", TINY)
    monkeypatch.setattr("benchmarks.papers.tuning.RATES", (1e-3,))
    out = tmp_path / "results.jsonl"
    command = ["run", "--packed", str(packed.parent), "--study", "proxy_anchor"]
    command += ["--seeds", "0", "--steps", "2", "--out", str(out)]
    assert papers.main([*command, "--seconds", "0"]) == 1
    assert not out.exists()


# Tables


def record(name, queries, study="losses", **more):
    reached = float(np.mean(queries))
    metrics = {metric: reached for metric, _ in tables._COLUMNS[False].values()}
    return {
        "study": study,
        "name": name,
        "set": "emoji",
        "queries": queries,
        "metrics": metrics,
        "tables": {"fit": {"learning_rate": 1e-4}},
    } | more


def test_table_tells_mean_half_range_and_what_does_not_differ(tmp_path, capsys):
    good, alike, bad = [1] * 19 + [0], [1] * 18 + [0] * 2, [0] * 19 + [1]
    classes = [str(place) for place in range(20)]
    records = [
        record("bad", bad),
        record("good", good),
        record("good", [1] * 20),
        record("alike", alike),
        record("not trained", bad, "floor", classes=classes),
    ]
    lines = tables.table(records, "emoji").splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines[:3]] == [
        "| good",
        "| alike",
        "| bad",
    ]
    assert "| 2 | 97.5 +- 2.5 |" in lines[0]
    assert "n.s." in lines[1]
    assert "n.s." not in lines[2]
    path = tmp_path / "results.jsonl"
    text = [json.dumps(r | {"key": str(i)}) for i, r in enumerate(records)]
    path.write_text("\n".join(text), "utf-8")
    assert len(read_results([path, tmp_path / "none"])) == 5
    assert papers.main(["tables", str(path)]) == 0
    assert "## All losses on the same batches" in capsys.readouterr().out

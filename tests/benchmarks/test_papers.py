"""The papers' tables in small measure what they say."""

import dataclasses

import keras
import numpy as np
import pytest
from PIL import Image

from benchmarks.papers.cases import CASES
from benchmarks.papers.full_loss import contrastive_of_all
from benchmarks.papers.pack import pack, read_packed
from benchmarks.papers.rates import share_step
from benchmarks.papers.runs import FLOORS, Run
from benchmarks.papers.sets import SETS, tables_of
from benchmarks.papers.splits import mislabeled, splits_of, thinned
from benchmarks.papers.studies import STUDIES, floor_runs
from benchmarks.papers.train import frozen, timed, train
from benchmarks.papers.tuning import RATES, Place, rates_of, tuning_runs
from training.data.data_set import DataSet
from training.measure.embed import embed, raw_pixels
from training.measure.measure import split_results, task_of
from training.recipe.recipe import recipe_of
from training.run.build_batches import build_loss
from training.run.build_optimizer import build_optimizer
from training.run.schedules import build_schedule

TINY = {
    "embedder": {
        "backbone": "residual",
        "weights": "",
        "image_size": 16,
        "embedding_dimension": 8,
        "widths": [4, 8],
    },
    "batches": {"images_per_class": 2, "classes_per_batch": 4},
    "fit": {
        "steps": 4,
        "steps_per_epoch": 2,
        "learning_rate": 0.01,
        "warmup_steps": 1,
        "jit_compile": False,
    },
}
"""What makes a recipe small, and its network one of random weights."""
NEIGHBORS = {"design": "neighbors", "batch_size": 12, "neighbors": 3}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of 20 classes, each with 4 images of about one color."""
    folder = tmp_path_factory.mktemp("papers") / "emoji"
    random = np.random.default_rng(0)
    for name, color in enumerate(random.integers(0, 256, (20, 3))):
        (folder / f"{name:02}").mkdir(parents=True)
        for number in range(4):
            noise = random.integers(-20, 21, (24, 24, 3))
            image = np.clip(color + noise, 0, 255).astype("uint8")
            Image.fromarray(image).save(folder / f"{name:02}" / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def packed(images, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "emoji.npz"
    assert pack("emoji", str(images), path, 16) == 80
    return path


def small_run(case="multi-similarity", **more):
    return Run("losses", case, CASES[case].tables("emoji", TINY), **more)


def trained(run, packed):
    return train(run, recipe_of(run.tables), read_packed("emoji", packed))


# Packing


def test_packed_images_are_those_of_the_folder(images, packed):
    data = read_packed("emoji", packed)
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
    data = read_packed("emoji", packed)
    classes = {
        split: set(data.labels[data.splits == split])
        for split in ("train", "validation", "test")
    }
    assert [len(classes[split]) for split in classes] == [8, 2, 10]
    assert not classes["train"] & classes["test"]


# Splits


def test_a_share_up_to_gamma_is_removed_from_each_class_and_two_images_stay():
    labels = np.tile(np.arange(40), 20)
    half = thinned(labels, 0.5)
    sizes = np.bincount(labels[half])
    assert sizes.min() >= 10
    assert 18 <= sizes.max() <= 20
    assert len(np.unique(sizes)) > 5
    every = np.bincount(labels[thinned(labels, 1.0)])
    assert 2 <= every.min() < 4
    # What is removed is drawn once, and gamma scales it.
    assert np.abs((20 - every[every > 2]) / 2 - (20 - sizes[every > 2])).max() <= 1
    assert thinned(labels, 0.0).tolist() == list(range(800))
    assert half.tolist() == thinned(labels, 0.5).tolist()
    assert thinned(np.array([0, 0, 1]), 1.0).tolist() == [0, 1, 2]


def test_wrong_labels_are_those_of_other_classes():
    labels = np.repeat([3, 5, 9], 100)
    wrong = mislabeled(labels, 0.2)
    assert (wrong != labels).sum() == 60
    assert set(wrong) == {3, 5, 9}
    assert wrong.tolist() == mislabeled(labels, 0.2).tolist()
    assert mislabeled(labels, 0.0).tolist() == labels.tolist()


def test_only_training_images_are_thinned_and_mislabeled(packed):
    data = read_packed("emoji", packed)
    recipe = recipe_of(small_run().tables)
    whole = splits_of(recipe, data, ("train", "test"))
    splits = splits_of(recipe, data, ("train", "test"), 1.0)
    assert 16 <= len(splits[0].data) < len(whole[0].data) == 32
    assert len(splits[1].data) == 40
    assert splits[0].data.class_names == data.of_split("train").class_names
    noisy = splits_of(recipe, data, ("train", "test"), 0.0, 0.25)
    before, after = ([s.data.labels for s in some] for some in (whole, noisy))
    assert (before[0] != after[0]).sum() == 8
    assert (before[1] == after[1]).all()


# Training


@pytest.mark.slow
def test_run_is_measured_on_its_split_after_each_epoch(packed):
    found = trained(small_run("BinLifted", with_curve=True), packed)
    assert len(found["queries"]) == 40
    reached = np.mean([int(hit) for hit in found["queries"]])
    assert found["metrics"]["precision_at_1"] == pytest.approx(reached, abs=1e-6)
    assert [point["step"] for point in found["curve"]] == [2, 4]
    assert found["curve"][-1]["precision_at_1"] == found["metrics"]["precision_at_1"]
    assert found["metrics"]["queries"] == 40
    assert found["validation"]["queries"] == 8
    assert all("misplaced" not in point["triplets"] for point in found["curve"])


@pytest.mark.slow
def test_misplaced_pairs_of_top_k_precision_are_counted(packed):
    found = trained(small_run("top-k precision", with_curve=True), packed)
    first, second = (point["triplets"] for point in found["curve"])
    assert second["anchor"] == 2 * first["anchor"]
    # With k = 1 an anchor has one misplaced pair at most.
    assert 0 < first["misplaced"] < second["misplaced"] <= second["anchor"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["multi-similarity", "weighted contrastive"])
def test_what_some_losses_report_beside(packed, case):
    found = trained(small_run(case, with_curve=True), packed)
    if case == "multi-similarity":
        share = found["metrics"]["batches_without_informative_pair"]
        assert 0 <= share <= 1
    else:
        assert all(point["training_loss"] > 0 for point in found["curve"])


def test_contrastive_loss_of_all_pairs_equals_a_loop(monkeypatch):
    monkeypatch.setattr("benchmarks.papers.full_loss._ROWS", 4)
    random = np.random.default_rng(0)
    vectors, labels = random.normal(size=(9, 3)), random.integers(0, 3, 9)
    costs = []
    for i in range(9):
        for j in range(9):
            if i != j:
                far = np.linalg.norm(vectors[i] - vectors[j])
                alike = labels[i] == labels[j]
                costs.append(far**2 if alike else max(0, 2 - far) ** 2)
    found = contrastive_of_all(vectors, labels, 2.0)
    assert found == pytest.approx(np.mean(costs), rel=1e-12)


@pytest.mark.full
def test_run_that_becomes_nan_has_diverged(packed):
    run = small_run(with_curve=True)
    run.tables["fit"] |= {"learning_rate": 1e30, "optimizer": "sgd"}
    assert trained(run, packed) == {"diverged_at": 2}


def test_learning_rate_of_the_schedule_is_a_variable_of_the_step():
    recipe = recipe_of(small_run().tables)
    optimizer = build_optimizer(recipe.fit)
    expected = build_schedule(recipe.fit)
    share_step(optimizer, recipe.fit)
    optimizer.build([keras.Variable(np.zeros(3, "float32"))])
    for step in range(5):
        optimizer.iterations.assign(step)
        assert float(optimizer.learning_rate) == pytest.approx(float(expected(step)))
    assert any(variable is optimizer.rate for variable in optimizer.variables)


@pytest.mark.slow
def test_step_is_timed(packed, monkeypatch):
    monkeypatch.setattr("benchmarks.papers.train._TIMED_STEPS", 2)
    run = small_run("top-k precision", is_timed=True)
    found = timed(run, recipe_of(run.tables), read_packed("emoji", packed))
    assert list(found) == ["step_ms"]
    assert found["step_ms"] > 0


def floor(series, packed):
    tables = CASES["NCA"].tables("emoji", TINY)
    run = Run("floor", series, tables, is_trained=False)
    return frozen(run, recipe_of(tables), read_packed("emoji", packed))


def test_floors_are_of_what_they_are_called(packed):
    recipe = recipe_of(CASES["NCA"].tables("emoji", TINY))
    (split,) = splits_of(recipe, read_packed("emoji", packed), ["test"])
    task = task_of(split, raw_pixels(split))
    hits = split_results(split, task, (1,)).values["precision_at_1"]
    found = {series: floor(series, packed)["queries"] for series in FLOORS}
    assert found["raw pixels"] == "".join(map(str, hits.astype(int)))
    # 3 of 39 others are of the class, and colors tell the classes apart.
    assert found["at random"].count("1") < 12 < found["not trained"].count("1")


@pytest.fixture(scope="module")
def poses():
    """Six clips of gray images whose brightness is the label."""
    random = np.random.default_rng(1)
    labels = random.uniform(0, 2, (72, 1))
    images = np.broadcast_to(100 * labels[..., np.newaxis, np.newaxis], (72, 16, 16, 3))
    splits = np.repeat(["train", "test", "validation"], 24)
    clips = np.repeat(list("abcdef"), 12)
    return DataSet(images.astype("uint8"), labels, splits, sequences=clips)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit_length", [pytest.param(True, marks=pytest.mark.full), False]
)
def test_poses_are_compared_by_cosine_or_if_not_of_unit_length_by_distance(
    poses, unit_length, monkeypatch
):
    seen = []

    def embedded(embedder, split):
        seen.append(embed(embedder, split))
        return seen[-1]

    monkeypatch.setattr("benchmarks.papers.train.embed", embedded)
    tables = CASES["log-ratio"].tables("pose", TINY | {"batches": NEIGHBORS})
    run = Run("pose", "log-ratio", tables, unit_length=unit_length)
    found = train(run, recipe_of(tables), poses)
    rows, _ = seen
    labels, clips = poses.labels[24:48, 0], poses.sequences[24:48]
    lengths = np.linalg.norm(rows, axis=1)
    assert np.allclose(lengths, 1, atol=1e-4) == unit_length
    apart = ((rows[:, None].astype("float64") - rows) ** 2).sum(axis=-1)
    apart[clips[:, None] == clips] = np.inf
    expected = abs(labels - labels[apart.argmin(axis=1)])
    np.testing.assert_allclose(found["queries"], expected, atol=1e-3)
    assert "label_distance_at_10_other_sequences" in found["validation"]


@pytest.mark.slow
def test_some_classes_are_trained_on_at_a_time(packed, monkeypatch):
    seen = []

    def noted(recipe, data, design):
        loss = build_loss(recipe, data, design)
        seen.append((loss.class_counts, data.class_names))
        return loss

    monkeypatch.setattr("benchmarks.papers.sampled_classes.build_loss", noted)
    found = trained(small_run("weighted contrastive", classes=5), packed)
    assert 0 < found["metrics"]["precision_at_1"] <= 1
    assert [counts for counts, _ in seen] == [[4] * 5] * 2  # of two epochs
    assert seen[0][1] != seen[1][1]


def test_more_classes_than_there_are_cannot_be_trained_on(packed):
    with pytest.raises(ValueError, match=r"`classes` must be at most 8, .*: 9"):
        trained(small_run("weighted contrastive", classes=9), packed)


@pytest.mark.slow
def test_first_components_are_measured_of_one_training(packed):
    run = small_run(prefix=8, prefixes=(2, 8))
    run.tables["loss"] |= {"dimensions": [2, 8]}
    found = trained(run, packed)
    cut, whole = run.found_by(found | {"seconds": 1.0})
    assert (cut[0].prefix, cut[0].point, cut[1]["seconds"]) == (2, 2, 1.0)
    assert whole[0].prefix == whole[0].point == 8
    plain = trained(dataclasses.replace(run, prefix=0, prefixes=()), packed)
    assert whole[1]["queries"] == plain["queries"]
    assert whole[1]["metrics"] == pytest.approx(plain["metrics"], abs=1e-3)
    assert cut[1]["validation"].keys() == plain["validation"].keys()


def test_runs_that_measure_other_components_are_trained_once():
    runs = [small_run(prefix=prefix, prefixes=(2, 8)) for prefix in (2, 8)]
    assert runs[0].training == runs[1].training
    assert len({run.work for run in [*runs, small_run()]}) == 3
    diverged = runs[0].found_by({"diverged_at": 100})
    assert [found for _, found in diverged] == [{"diverged_at": 100}] * 2


def test_rates_of_large_batches_are_chosen_in_fewer_steps():
    variants = STUDIES["large_batches"].of("emoji")
    assert [v.point for v in variants[:4]] == [64, 320, 1024, 1664]
    small, *large = (v.place("emoji") for v in variants[:4])
    assert len({small, *large}) == 2
    fit = large[0].run(1e-4, 1000).tables["fit"]
    assert (fit["steps"], fit["learning_rate"]) == (400, 1e-4)
    assert large[0].run(1e-4, 1000).tables["batches"]["classes_per_batch"] == 80


def test_runs_on_all_classes_are_called_as_before():
    run = small_run()
    assert "classes" not in run.record()
    assert small_run(classes=3).record()["classes"] == 3
    assert len({run.key, small_run(classes=3).key, small_run(classes=4).key}) == 3


# The runs of the studies


def all_runs():
    places = {
        variant.place(set_): 1e-4
        for study in STUDIES.values()
        for set_ in SETS
        for variant in study.of(set_)
    }
    yield from floor_runs(list(SETS))
    yield from (run for _, run in tuning_runs(places, 1500))
    for name, study in STUDIES.items():
        yield from study.runs(name, list(SETS), places, 1500, [0])


def test_every_run_has_a_recipe_that_can_be():
    runs = list(all_runs())
    assert {run.study for run in runs} == {"floor", "tuning", *STUDIES}
    for run in runs:
        recipe_of(run.tables, run.series)
        assert run.set in SETS


def test_every_run_has_a_name_of_its_own():
    runs = list(all_runs())
    names = {(r.study, r.set, r.series, r.point) for r in runs if r.study != "tuning"}
    assert len(names) == sum(run.study != "tuning" for run in runs)
    assert len({run.key for run in runs}) == len(runs)


def test_runs_that_compute_the_same_share_their_work():
    one = Run("losses", "one", tables_of("emoji"))
    again = Run("other", "two", tables_of("emoji"), 8)
    assert one.work == again.work
    assert one.key != again.key
    record = one.record() | {"metrics": {"precision_at_1": 0.5}}
    renamed = again.renamed(record)
    assert (renamed["series"], renamed["point"]) == ("two", 8)
    assert renamed["metrics"] == record["metrics"]
    for other in (
        Run("losses", "one", tables_of("furniture")),
        Run("losses", "one", tables_of("emoji"), split="validation"),
        Run("losses", "one", tables_of("emoji"), thinned=0.5),
    ):
        assert other.work != one.work
    assert Run("cost", "one", tables_of("emoji"), is_timed=True).work != one.work
    assert len({run.work for run in floor_runs(["emoji"])}) == len(FLOORS)


def results_of(runs, reached):
    """Records with what each rate reaches on validation; None: it diverged."""
    return {
        run.key: {} if value is None else {"metrics": {metric: value}}
        for run, value in zip(runs, reached, strict=True)
        for metric in [SETS[run.set].metrics.chosen_by]
    }


@pytest.mark.parametrize(
    ("place", "reached", "rate"),
    [
        (Place("emoji", "N-pair"), [0.5, 0.6, None], RATES[2]),
        (Place("emoji", "N-pair"), [0.5, 0.6, 0.6], RATES[2]),
        (Place("pose", "log-ratio"), [0.5, None, 0.1], RATES[3]),
    ],
)
def test_best_rate_on_validation_is_taken(place, reached, rate):
    tuning = tuning_runs([place], 100)
    runs = [run for _, run in tuning]
    assert [run.split for run in runs] == ["validation"] * 3
    assert rates_of(tuning, results_of(runs, reached)) == {place: rate}


def test_rates_are_chosen_in_the_batches_of_the_study():
    whole, unequal = (
        {v.name: v.place("emoji") for v in STUDIES[name].of("emoji")}
        for name in ("headline", "headline_unequal")
    )
    assert len(whole) == 9 + 12
    assert len(set(whole.values())) == len(set(unequal.values())) == 10
    assert not {*whole.values()} & {*unequal.values()}
    run = whole["top-k precision, k 10, margin 0.05"].run(1e-4, 100)
    assert run.tables["batches"]["design"] == "capped"
    assert (run.tables["loss"]["k"], run.tables["loss"]["margin"]) == (5, 0.1)
    assert unequal["N-pair"].run(1e-4, 100).thinned == 1.0


def test_weights_on_and_off_are_compared_at_one_rate():
    on, off = (v.place("emoji") for v in STUDIES["training_loss"].of("emoji"))
    assert on == off

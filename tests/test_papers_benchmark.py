"""The papers' tables in small measure what they say."""

import numpy as np
import pytest
from PIL import Image

from benchmarks.papers import __main__ as papers
from benchmarks.papers import tables
from benchmarks.papers.cases import CASES
from benchmarks.papers.figures import curves, lines
from benchmarks.papers.groups import Column
from benchmarks.papers.pack import pack, read_packed
from benchmarks.papers.parts import parts_of, thinned
from benchmarks.papers.run import do
from benchmarks.papers.runs import Run, read_results
from benchmarks.papers.sets import SETS, tables_of
from benchmarks.papers.studies import STUDIES, Study, Variant, floor_runs
from benchmarks.papers.train import frozen, train
from benchmarks.papers.tuning import RATES, rates_of, tuning_runs
from training.data.data_set import DataSet
from training.evaluation import embed
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


def small_run(case="multi-similarity", **more):
    return Run("losses", case, CASES[case].tables("emoji", TINY), **more)


def trained(run, packed):
    return train(run, recipe_of(run.tables), read_packed(packed))


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


# Parts


def test_class_sizes_are_thinned_from_all_down_to_two():
    labels = np.tile(np.arange(5), 9)
    kept = thinned(labels, 0.5)
    # The shares are 1, 7/8, 3/4, 5/8, 1/2 of 9 images.
    assert sorted(np.bincount(labels[kept])) == [4, 6, 7, 8, 9]
    assert sorted(np.bincount(labels[thinned(labels, 1.0)])) == [2, 2, 4, 7, 9]
    assert thinned(labels, 0.0).tolist() == list(range(45))
    assert kept.tolist() == thinned(labels, 0.5).tolist()


def test_only_training_images_are_thinned(packed):
    data = read_packed(packed)
    recipe = recipe_of(small_run().tables)
    parts = parts_of(recipe, data, ("train", "test"), 1.0)
    assert [len(part.data) for part in parts] == [20, 40]
    train_of = data.of_split("train").class_names
    assert parts[0].data.class_names == train_of


# Training


@pytest.mark.slow
def test_run_is_measured_on_its_split_after_each_epoch(packed):
    found = trained(small_run("BinLifted", with_curve=True), packed)
    assert len(found["queries"]) == 40
    reached = np.mean([int(hit) for hit in found["queries"]])
    assert found["metrics"]["precision_at_1"] == pytest.approx(reached, abs=1e-6)
    assert [point["step"] for point in found["curve"]] == [2, 4]
    # A batch of 4 pairs: 8 anchors, 1 positive, 6 negatives.
    assert [point["triplets"] for point in found["curve"]] == [2 * 48, 4 * 48]
    assert found["curve"][-1]["precision_at_1"] == found["metrics"]["precision_at_1"]
    assert found["step_ms"] > 0
    validated = trained(small_run(split="validation"), packed)
    assert len(validated["queries"]) == 8
    assert "curve" not in validated


@pytest.mark.slow
def test_loss_that_becomes_nan_ends_its_run(packed):
    run = small_run()
    run.tables["fit"] |= {"learning_rate": 1e30, "warmup_steps": 0, "optimizer": "sgd"}
    assert trained(run, packed)["diverged_at"] in (2, 4)


def test_network_that_is_not_trained_is_measured_by_its_pooled_features(packed):
    run = small_run(is_trained=False)
    found = frozen(run, recipe_of(run.tables), read_packed(packed))
    assert len(found["classes"]) == len(found["queries"]) == 40
    assert 0 < found["metrics"]["precision_at_1"] <= 1


@pytest.fixture(scope="module")
def poses():
    """Four clips of grey pictures whose brightness is the label."""
    random = np.random.default_rng(1)
    labels = random.uniform(0, 2, (48, 1))
    images = np.broadcast_to(100 * labels[..., np.newaxis, np.newaxis], (48, 16, 16, 3))
    splits = np.repeat(["train", "test"], 24)
    clips = np.repeat(["a", "b", "c", "d"], 12)
    return DataSet(images.astype("uint8"), labels, splits, sequences=clips)


@pytest.mark.slow
@pytest.mark.parametrize("unit_length", [True, False])
def test_poses_are_compared_by_cosine_or_if_not_of_unit_length_by_distance(
    poses, unit_length, monkeypatch
):
    seen = []

    def embedded(embedder, part):
        seen.append(embed(embedder, part))
        return seen[-1]

    monkeypatch.setattr("benchmarks.papers.train.embed", embedded)
    tables = CASES["log-ratio"].tables("pose", TINY | {"batches": NEIGHBORS})
    run = Run("pose", "log-ratio", tables, unit_length=unit_length)
    found = train(run, recipe_of(tables), poses)
    (rows,) = seen
    labels, clips = poses.labels[24:, 0], poses.sequences[24:]
    lengths = np.linalg.norm(rows, axis=1)
    assert np.allclose(lengths, 1, atol=1e-4) == unit_length
    apart = ((rows[:, None].astype("float64") - rows) ** 2).sum(axis=-1)
    apart[clips[:, None] == clips] = np.inf
    expected = (labels - labels[apart.argmin(axis=1)]) ** 2
    expected = np.sqrt(expected)
    np.testing.assert_allclose(found["queries"], expected, atol=1e-3)


# The runs of the studies


def all_runs():
    pairs = [(set_, case) for set_ in SETS for case in CASES]
    pairs = [(set_, case) for set_, case in pairs if CASES[case].suits(set_)]
    yield from floor_runs(list(SETS))
    yield from tuning_runs(pairs, 1500)
    for name, study in STUDIES.items():
        yield from study.runs(name, list(SETS), dict.fromkeys(pairs, 1e-4), 1500, [0])


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
    renamed = again.named_anew(record)
    assert (renamed["series"], renamed["point"]) == ("two", 8)
    assert renamed["metrics"] == record["metrics"]
    for other in (
        Run("losses", "one", tables_of("furniture")),
        Run("losses", "one", tables_of("emoji"), split="validation"),
        Run("losses", "one", tables_of("emoji"), thinned=0.5),
    ):
        assert other.work != one.work


def tuned(name, rate, reached, study="tuning", steps=100):
    tables = {"fit": {"learning_rate": rate, "steps": steps}}
    record = {"study": study, "series": name, "set": "emoji", "tables": tables}
    return record | ({"metrics": {"precision_at_1": reached}} if reached else {})


def test_best_rate_on_validation_is_taken_once_the_grid_is_whole():
    records = [
        tuned("a", RATES[0], 0.5),
        tuned("a", RATES[1], 0.6),
        tuned("a", RATES[2], None),  # diverged
        tuned("a", 1.0, 0.9, study="losses"),
        tuned("a", RATES[0], 0.7, steps=200),
        tuned("b", RATES[2], 0.1),
    ]
    assert rates_of(records, 100) == {("emoji", "a"): RATES[1]}


def work(run):
    """As a process does a run; at the top of the module, so that it can be sent."""
    if run.series == "late":
        return None
    if run.series == "broken":
        raise ValueError("broken")
    return run.series


@pytest.mark.slow
def test_a_run_that_fails_or_comes_too_late_does_not_end_the_others(capsys):
    names = ("a", "broken", "late", "b")
    runs = [Run("s", name, tables_of("emoji")) for name in names]
    kept = []
    assert not do(runs, work, lambda run, found: kept.append((run.series, found)), 2)
    assert sorted(kept) == [("a", "a"), ("b", "b")]
    assert "s broken of emoji failed" in capsys.readouterr().out
    assert do([], work, kept.append, 1)


@pytest.fixture
def tiny(monkeypatch):
    """Two small studies that share their work, one rate, and no processes."""
    monkeypatch.setattr("benchmarks.papers.sets._TRAINED", TINY)
    monkeypatch.setattr("benchmarks.papers.tuning.RATES", (1e-3,))
    losses = [
        Variant("binomial deviance", scale, changes={"loss": {"negative_scale": scale}})
        for scale in (10.0, 40.0)
    ]
    for name in ("powers", "thinned"):
        study = Study(f"Study of {name}", lambda set_: iter(losses), "scale")
        monkeypatch.setitem(STUDIES, name, study)
    worked = []

    def here(runs, work, keep, processes):
        found = [(run, work(run)) for run in runs]
        for run, result in found:
            if result is not None:
                keep(run, result)
                worked.append(run)
        return all(result is not None for _, result in found)

    monkeypatch.setattr("benchmarks.papers.run.do", here)
    return worked


@pytest.mark.slow
def test_command_goes_on_where_it_ended_and_shares_work(packed, tmp_path, tiny, capsys):
    out = tmp_path / "results.jsonl"
    command = ["run", "--packed", str(packed.parent), "--study", "powers", "thinned"]
    command += ["--seeds", "0", "--steps", "2", "--commit", "abc", "--out", str(out)]
    assert papers.main([*command, "--seconds", "0"]) == 1
    assert not out.exists()
    assert papers.main(command) == 0
    assert [run.study for run in tiny] == ["floor", "tuning", "powers", "powers"]
    records = list(read_results([out]).values())
    assert {r["commit"] for r in records} == {"abc"}
    reached = {
        study: {r["point"]: r["metrics"] for r in records if r["study"] == study}
        for study in ("powers", "thinned")
    }
    assert list(reached["powers"]) == [10, 40]
    assert reached["powers"] == reached["thinned"]
    before = out.read_bytes()
    assert papers.main(command) == 0
    assert out.read_bytes() == before
    capsys.readouterr()
    assert papers.main(["tables", str(out)]) == 0
    told = capsys.readouterr().out
    assert "## Study of thinned: emoji\n\n| scale | 10 | 40 |" in told
    folder = tmp_path / "figures"
    assert papers.main(["figures", str(out), "--folder", str(folder)]) == 0
    drawn = {file.name for file in folder.iterdir()}
    assert drawn == {"powers_emoji.png", "thinned_emoji.png"}


# Tables


def record(series, queries, study="losses", **more):
    reached = float(np.mean(queries))
    metrics = {column.metric: reached for column in tables._COLUMNS[False].values()}
    return {
        "study": study,
        "series": series,
        "point": None,
        "set": "emoji",
        "queries": "".join(map(str, queries)),
        "metrics": metrics,
        "tables": {"fit": {"learning_rate": 1e-4}},
    } | more


def test_table_tells_mean_half_range_and_what_does_not_differ():
    good, alike, bad = [1] * 19 + [0], [1] * 18 + [0] * 2, [0] * 19 + [1]
    classes = [str(place) for place in range(20)]
    records = [
        record("bad", bad),
        record("good", good),
        record("good", [1] * 20),
        record("alike", alike),
    ]
    broken = record("broken", bad)
    del broken["metrics"], broken["queries"]
    floor = [record("not trained", bad, "floor", classes=classes)]
    text = tables.table(STUDIES["losses"], [*records, broken], floor, "emoji")
    lines = text.splitlines()[2:]
    assert [line.split(" | ")[0][2:] for line in lines] == [
        "good",
        "alike",
        "bad",
        "not trained",
        "broken",
    ]
    assert "| 2 | 97.5 ± 2.5 |" in lines[0]
    assert "n.s." in lines[1]
    assert "n.s." not in lines[2]
    assert "| (1 diverged) |" in lines[-1]


def test_table_of_what_is_varied_has_a_column_a_point():
    records = [
        record("a", [1, 0], "top_k", point=k, step_ms=2.0) for k in (10, 3, 3)
    ] + [record("b", [1, 1], "top_k", point=3)]
    text = tables.table(STUDIES["top_k"], records, [], "emoji")
    assert text.splitlines() == [
        "| k | 3 | 10 |",
        "| --- | ---: | ---: |",
        "| a | 50.0 ± 0.0 | 50.0 |",
        "| b | 100.0 |  |",
    ]
    timed = tables.table(STUDIES["cost"], records[:1], [], "emoji")
    assert timed.splitlines()[-1] == "| a | 2.00 ± 0.00 |"


# Figures


def test_curves_are_means_over_seeds_against_steps_and_triplets():
    def run(reached):
        points = [
            {"step": step, "triplets": 48 * step, "precision_at_1": value}
            for step, value in zip((100, 200), reached, strict=True)
        ]
        return record("top-k precision", [1, 0], curve=points)

    figure = curves([run((0.4, 0.6)), run((0.5, 0.8))], ("top-k precision", "N-pair"))
    left, right = (axes.lines[0].get_xydata().tolist() for axes in figure.axes)
    assert left == [[100, 45], [200, 70]]
    assert right == [[4800, 45], [9600, 70]]
    assert curves([record("N-pair", [1, 0])], ("N-pair",)) is None


def test_lines_have_a_point_for_each_value_and_a_range_over_seeds():
    records = [
        record("a", hits, "top_k", point=k)
        for k, hits in ((1, [1, 0]), (1, [0, 0]), (10, [1, 1]))
    ]
    columns = {"Precision@1, %": Column("precision_at_1", 100)}
    figure = lines(STUDIES["top_k"], records, columns)
    (axes,) = figure.axes
    drawn = axes.lines[-1].get_xydata().tolist()
    assert drawn == [[1, 25], [10, 100]]
    assert axes.collections[0].get_segments()[0].tolist() == [[1, 0], [1, 50]]
    words = [record("a", [1, 0], "designs", point=p) for p in ("(2, 32)", "p = 0.1")]
    (axes,) = lines(STUDIES["designs"], words, columns).axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["(2, 32)", "p = 0.1"]

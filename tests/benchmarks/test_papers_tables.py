"""Tables and figures of the papers' comparisons tell what the results hold."""

import json

import numpy as np
import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers.cases import CASES
from benchmarks.papers.figures import curves, followed
from benchmarks.papers.groups import grouped, points_of
from benchmarks.papers.lines import lines
from benchmarks.papers.metrics import CLASSES, LABELS
from benchmarks.papers.runs import NOT_TRAINED, Run
from benchmarks.papers.sets import tables_of
from benchmarks.papers.studies import STUDIES, Study
from benchmarks.papers.tables import section
from benchmarks.papers.triplets import (
    most_triplets_a_step,
    running_totals,
    sampled_triplets,
)
from tfdml.metrics import clustering_metrics, paired_difference
from training.data.data_set import DataSet
from training.data.split import Split
from training.measure.measure import means_of, split_results, task_of

NAMES = {
    "emoji": (
        "precision_at_1",
        "precision_at_3",
        "precision_at_5",
        "precision_at_10",
        "recall_at_3",
        "recall_at_5",
        "recall_at_10",
        "map_at_r",
        "mean_average_precision",
        "nmi_arithmetic",
        "pairwise_f1",
    ),
    "pose": (
        "label_distance_at_1_other_sequences",
        "label_distance_at_10_other_sequences",
        "ndcg_at_10_other_sequences",
        "label_distance_at_1",
    ),
}
"""What a file of results has of each set."""
ABOUT = {"backend": "jax 0.8", "device": "H200", "date": "2026-11-29", "seconds": 1.0}
CLASS_OF = [str(place // 2) for place in range(20)]
CLIP_OF = [place // 7 for place in range(20)]


def a_run(series, *, study="losses", set_="emoji", seed=0, rate=1e-4, **more):
    fit = {"learning_rate": rate, "seed": seed}
    fit["steps"] = more.pop("steps", 1500)
    case = CASES.get(series)
    tables = (case.tables if case else tables_of)(set_, {"fit": fit})
    return Run(study, series, tables, **more)


def record_of(run, queries, **more):
    """A result whose metrics are all the mean over queries, and what it is."""
    metrics = dict.fromkeys(NAMES[run.set], float(np.mean(queries)))
    if run.set == "emoji":
        queries = "".join(map(str, queries))
    found = {"metrics": metrics, "queries": queries, "commit": "abc", **ABOUT}
    return run.record() | found | more


def record(series, queries, *, found=None, **more):
    return record_of(a_run(series, **more), queries, **found or {})


def broken(series, **more):
    found = {"diverged_at": 100, "commit": "abc", **ABOUT}
    return a_run(series, **more).record() | found


def floor_of(queries, set_="emoji", series=NOT_TRAINED):
    run = Run("floor", series, tables_of(set_), is_trained=False)
    classes = CLASS_OF if set_ == "emoji" else CLIP_OF
    return [record_of(run, queries, classes=classes)]


def hits(count):
    """Twenty queries, so many of them right."""
    return [1] * count + [0] * (20 - count)


def rows(text):
    """The lines of the tables as lists of cells, without those below the heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in cells if "---" not in row]


# The names of metrics


def measured(labels, **more):
    """What is measured of 36 random embeddings, and of each query."""
    data = DataSet(np.zeros((36, 4, 4, 3), "uint8"), labels, **more)
    random = np.random.default_rng(0)
    split = Split(data, None, np.arange(36))
    task = task_of(split, random.normal(size=(36, 4)))
    return split_results(split, task, (1, 3, 5, 10))


def test_every_metric_of_classes_is_measured():
    labels = np.repeat(np.arange(3), 12)
    splits = np.repeat("test", 36)
    results = measured(labels, splits=splits, class_names=("a", "b", "c"))
    names = {*means_of(results), *clustering_metrics(labels % 2, labels)}
    assert {column.metric for column in CLASSES.columns} <= names
    assert {CLASSES.query, CLASSES.chosen_by} <= set(results.values)
    assert [column.metric for column in CLASSES.columns] == list(NAMES["emoji"])


def test_every_metric_of_continuous_labels_is_measured():
    labels = np.random.default_rng(1).uniform(size=(36, 2))
    splits, clips = np.repeat("test", 36), np.repeat(["a", "b", "c"], 12)
    results = measured(labels, splits=splits, sequences=clips)
    assert {column.metric for column in LABELS.columns} <= set(means_of(results))
    assert {LABELS.query, LABELS.chosen_by} <= set(results.values)
    assert [column.metric for column in LABELS.columns] == list(NAMES["pose"])


# Groups


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"steps": 500}, "fit.steps = 1500 and 500"),
        ({"rate": 3e-4}, "fit.learning_rate = 0.0001 and 0.0003"),
        ({"thinned": 0.5}, "thinned = 0.0 and 0.5"),
        ({"seed": 0}, "fit.seed = 0 more than once"),
    ],
)
def test_runs_of_a_group_differ_in_the_seed_alone(other, said):
    about = {"study": "top_k", "point": 3}
    records = [
        record("a", hits(9), **about),
        record("a", hits(8), **about | {"seed": 1} | other),
    ]
    with pytest.raises(ValueError, match="one protocol") as error:
        grouped(records)
    assert str(error.value).endswith(f"of top_k on emoji, a at 3: {said}.")


def test_groups_are_the_runs_of_a_series_and_point():
    records = [
        record("a", hits(9), seed=seed, point=point) for seed, point in ((0, 8), (1, 8))
    ]
    records.append(record("a", hits(9), steps=500, point=2))
    found = {at: len(runs) for at, runs in grouped(records).items()}
    assert found == {("a", 8): 2, ("a", 2): 1}
    assert points_of(records) == [2, 8]


# Tables of all metrics


def told(records, floor, set_="emoji", **more):
    return section(STUDIES["losses"], records, floor, set_, **more)


def test_table_tells_mean_half_range_rate_and_seeds_the_best_first():
    records = [
        record("bad", hits(2)),
        record("good", hits(19), rate=1e-3),
        record("good", hits(20), seed=1, rate=1e-3),
        broken("good", seed=2, rate=1e-3),
        broken("broken"),
    ]
    head, *lines = rows(told(records, floor_of(hits(1))))
    assert head[:4] == ["loss", "rate", "seeds", "Precision@1"]
    assert [line[0] for line in lines] == ["good", "bad", "not trained", "broken"]
    assert lines[0][1:4] == ["0.001 (end)", "3 (1 diverged)", "97.5 ± 2.5"]
    assert lines[1][1:4] == ["0.0001", "1", "10.0"]
    assert lines[2][1:4] == ["", "", "5.0"]
    assert lines[3][1:4] == ["0.0001", "1 (1 diverged)", ""]
    assert lines[3][-1] == ""


def test_table_compares_with_the_best_in_percent():
    records = [record("good", hits(20)), record("alike", hits(19))]
    records.append(record("bad", hits(2)))
    text = told(records, floor_of(hits(1)))
    against = {row[0]: row[-1] for row in rows(text)}
    found = paired_difference(hits(20), hits(2), CLASS_OF)
    low, high = 100 * found.low, 100 * found.high
    assert against["good"] == ""
    assert against["bad"] == f"-90.0 ({low:+.1f} to {high:+.1f})"
    assert against["alike"].startswith("-5.0 (")
    assert against["alike"].endswith("n.s.")
    assert text.count("after the fact") == text.count("not corrected") == 1
    assert "clips" not in text


def test_table_of_continuous_labels_has_the_least_distance_first_in_its_unit():
    near, far = [15**0.5] * 20, [3 * 15**0.5] * 20
    records = [record(n, q, set_="pose") for n, q in (("far", far), ("near", near))]
    text = told(records, floor_of(far, "pose"), "pose")
    _, first, second, floor = rows(text)
    assert (first[0], first[3]) == ("near", "1.000")
    assert second[0] == "far"
    assert second[-1] == floor[-1] == "+2.000 (+2.000 to +2.000)"
    assert "the 3 clips, which are few" in text


# Tables of what is varied

VARIED = Study(
    "Study",
    lambda set_: iter(()),
    "k",
    reported=("MAP@R", "Precision@1"),
    baselines=(("b", "a"), ("c", "a")),
    note="A note.",
)


def test_commands_tell_and_draw_what_the_files_hold(tmp_path, capsys):
    curve = [{"step": 100 * n, "precision_at_1": 0.1 * n} for n in (1, 2)]
    validation = {"validation": dict.fromkeys(NAMES["emoji"], 0.125)}
    records = [
        *floor_of(hits(1)),
        record("N-pair", hits(9), found={"curve": curve, **validation}),
        record("multi-similarity", hits(9), study="batch_sizes", point=20),
    ]
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert papers.main(["tables", str(file)]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {STUDIES[name].title}: emoji, test images"
        for name in ("losses", "batch_sizes")
    ]
    assert papers.main(["tables", str(file), "--split", "validation"]) == 0
    text = capsys.readouterr().out
    assert text.count("## ") == 1
    assert "| N-pair | 0.0001 | 1 | 12.5 |" in text
    folder = tmp_path / "figures"
    assert papers.main(["figures", str(file), "--folder", str(folder)]) == 0
    drawn = {path.name for path in folder.iterdir()}
    names = ("figure_4", "convergence", "batch_sizes")
    assert drawn == {f"{name}_emoji.png" for name in names}


# Figures


def test_triplets_are_counted_from_the_batch_and_how_the_loss_samples():
    tables = {
        "batches": {"classes_per_batch": 3, "images_per_class": 4},
        "loss": {"k": 5},
    }
    labels = np.repeat(np.arange(3), 4)
    alike = labels[:, None] == labels
    pairs = alike.sum() - len(labels)
    every = sum(
        alike[a, p] and a != p and not alike[a, n]
        for a in range(12)
        for p in range(12)
        for n in range(12)
    )
    ways = ("all", "pair", "anchor", "misplaced")
    found = [most_triplets_a_step(way, tables) for way in ways]
    assert found == [every, pairs, 12, 3 * 12]
    counted = sampled_triplets([labels, labels], 0.75)
    assert counted == dict(zip(ways, [2 * every, 2 * pairs, 24, 18], strict=True))
    assert list(sampled_triplets([labels])) == ["all", "pair", "anchor"]
    totals = running_totals([{"all": 3, "pair": 1}, {"all": 4, "pair": 0}])
    assert totals == [{"all": 3, "pair": 1}, {"all": 7, "pair": 1}]


def test_curves_are_means_over_seeds_against_steps_and_triplets():
    def run(name, seed, reached):
        points = [
            {"step": step, "precision_at_1": value}
            for step, value in zip((100, 200), reached, strict=True)
        ]
        return record(name, hits(9), seed=seed, found={"curve": points})

    records = [
        run("N-pair", 0, (0.1, 0.2)),
        run("triplet, hard", 0, (0.4, 0.6)),
        run("triplet, hard", 1, (0.5, 0.8)),
    ]
    sampled = {"triplet, hard": "anchor", "N-pair": "all", "angular": "all"}
    figure = curves(records, floor_of(hits(1)), sampled)
    left, right = (axes.lines[0].get_xydata().tolist() for axes in figure.axes)
    assert left == [[100, 45], [200, 70]]
    # An anchor each of 16 x 4 images.
    assert right == [[6400, 45], [12800, 70]]
    other = figure.axes[1].lines[1].get_xdata().tolist()
    assert other == [100 * 64 * 3 * 60, 200 * 64 * 3 * 60]
    assert list(figure.axes[0].lines[2].get_ydata()) == [5, 5]
    assert curves([record("N-pair", hits(9))], [], sampled) is None


def test_triplets_that_were_counted_are_drawn():
    points = [
        {"step": 100 * n, "precision_at_1": 0.1, "triplets": {"misplaced": 7 * n}}
        for n in (1, 2)
    ]
    name = "top-k precision"
    records = [record(name, hits(9), found={"curve": points})]
    figure = curves(records, [], {name: "misplaced"})
    assert figure.axes[1].lines[0].get_xdata().tolist() == [7, 14]


def test_metric_of_the_curves_is_drawn_beside_precision():
    points = [{"step": 100, "precision_at_1": 0.5, "training_loss": 0.2}]
    figure = followed([record("a", hits(9), found={"curve": points})], "training_loss")
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[100, 0.2]]
    assert figure.axes[1].lines[0].get_xydata().tolist() == [[100, 50]]
    assert followed([record("a", hits(9))], "training_loss") is None


def ranges(axes):
    """The ends of the error bars of each series."""
    return [
        [segment[:, 1].tolist() for segment in bars.get_segments()]
        for bars in axes.collections
    ]


def test_lines_have_a_point_a_value_and_the_true_range_over_seeds():
    records = [
        record("a", hits(count), point=k, seed=seed)
        for k, seed, count in ((1, 0, 0), (1, 1, 0), (1, 2, 12), (10, 0, 20))
    ]
    (upper, lower) = lines(VARIED, records, [], "emoji").axes
    assert np.allclose(lower.lines[0].get_xydata(), [[1, 20], [10, 100]])
    assert np.allclose(ranges(lower), [[[0, 60], [100, 100]]])
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("MAP@R, %", "Precision@1, %")
    assert lower.get_xlabel() == "k"
    assert lower.lines[0].get_linestyle() == "-"

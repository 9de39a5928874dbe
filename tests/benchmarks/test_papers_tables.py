"""Tables and figures of the papers' comparisons tell what the results hold."""

import json
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers.cases import CASES
from benchmarks.papers.figures import curves, triplets_a_step
from benchmarks.papers.groups import grouped, points_of, validated
from benchmarks.papers.lines import lines
from benchmarks.papers.metrics import CLASSES, LABELS
from benchmarks.papers.runs import FLOORS, NOT_TRAINED, Run
from benchmarks.papers.sets import tables_of
from benchmarks.papers.studies import STUDIES, Study
from benchmarks.papers.tables import section
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


def test_told_columns_of_every_study_are_columns_of_its_sets():
    for study in STUDIES.values():
        for set_, metrics in (("emoji", CLASSES), ("pose", LABELS)):
            if study.of(set_):
                assert all(metrics.column(name) for name in study.told)


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


def test_table_compares_with_the_series_asked_for():
    records = [record("good", hits(20)), record("bad", hits(2))]
    text = told(records, floor_of(hits(1)), against="bad")
    head, *lines = rows(text)
    assert head[-1] == "against bad"
    assert "Against bad: a loss less bad, of" in text
    assert {line[0]: line[-1][:6] for line in lines[:2]} == {
        "good": "+90.0 ",
        "bad": "",
    }
    head, *_ = rows(told(records, floor_of(hits(1)), against="unknown"))
    assert head[-1] == "against the best"


def test_table_of_continuous_labels_has_the_least_distance_first_in_its_unit():
    near, far = [15**0.5] * 20, [3 * 15**0.5] * 20
    records = [record(n, q, set_="pose") for n, q in (("far", far), ("near", near))]
    text = told(records, floor_of(far, "pose"), "pose")
    _, first, second, floor = rows(text)
    assert (first[0], first[3]) == ("near", "1.000")
    assert second[0] == "far"
    assert second[-1] == floor[-1] == "+2.000 (+2.000 to +2.000)"
    assert "the 3 clips, which are few" in text


def test_table_says_where_there_is_no_floor():
    text = told([record("a", hits(9)), record("b", hits(8))], [])
    assert rows(text)[-1][-1] == "no floor"
    assert "No floor: without" in text


def test_queries_that_are_not_those_of_the_floor_are_refused():
    records = [record("a", hits(9)), record("b", hits(8)[:-1])]
    with pytest.raises(ValueError, match=r"has, 20 on emoji.*losses, b: 19"):
        told(records, floor_of(hits(1)))


def test_floors_of_two_protocols_are_refused():
    (floor,) = floor_of(hits(1))
    other = floor | {"tables": tables_of("emoji", {"embedder": {"image_size": 64}})}
    study = Study("Study", lambda set_: iter(()), "k")
    records = [record("a", hits(9), point=3)]
    with pytest.raises(ValueError, match=r"embedder\.image_size = 96 and 64"):
        section(study, records, [floor, other], "emoji")


def test_table_is_followed_by_what_it_comes_from():
    found = {"commit": "abd", "device": "H100"}
    records = [record("a", hits(9), seed=1), record("a", hits(8), found=found)]
    assert told(records, []).splitlines()[-1] == (
        "Mean over seeds ± half their range. From commit abc, abd; "
        "device H100, H200; backend jax 0.8; date 2026-11-29; seed 0, 1; steps 1500."
    )


def test_validation_images_have_a_table_without_comparison():
    validation = {"validation": dict.fromkeys(NAMES["emoji"], 0.125)}
    records = validated(
        [record("a", hits(9), found=validation), record("b", hits(9)), broken("c")]
    )
    text = told(records, [], split="validation")
    head, *lines = rows(text)
    assert head[-1] == "F1"
    assert [(line[0], line[3]) for line in lines] == [("a", "12.5"), ("c", "")]
    assert text.splitlines()[0].endswith(": emoji, validation images")


# Tables of what is varied

VARIED = Study(
    "Study",
    lambda set_: iter(()),
    "k",
    told=("MAP@R", "Precision@1"),
    baselines=(("b", "a"), ("c", "a")),
    note="A note.",
)


def test_table_of_what_is_varied_has_a_column_a_point_for_each_metric():
    records = [
        record("a", hits(count), point=k, seed=seed)
        for k, count, seed in ((10, 10, 0), (3, 10, 0), (3, 8, 1))
    ]
    records += [broken("a", point=10, seed=1), record("b", hits(20), point=3)]
    text = section(VARIED, records, floor_of(hits(1)), "emoji")
    found = paired_difference([hits(10), hits(8)], hits(20), CLASS_OF)
    low, high = 100 * found.low, 100 * found.high
    table = [
        "| k | 3 | 10 |",
        "| --- | ---: | ---: |",
        "| a | 45.0 ± 5.0 | 50.0 (1 diverged) |",
        "| b | 100.0 |  |",
    ]
    assert text.splitlines()[:-4] == [
        "## Study: emoji, test images",
        "",
        "A note.",
        "",
        "**MAP@R**",
        "",
        *table,
        "",
        "Not trained: 5.0.",
        "",
        "**Precision@1**",
        "",
        *table,
        f"| b - a | +55.0 ({low:+.1f} to {high:+.1f}) |  |",
        "",
        "Not trained: 5.0.",
    ]
    assert text.splitlines()[-3].startswith("Differences, of Precision@1; in brackets")


def test_series_stand_in_the_order_of_their_study():
    names = [f"margin {margin}" for margin in (0.4, 0.05, 0.2, 0.1)]
    records = [record(n, hits(9), study="top_k", point=1) for n in (*names, "new")]
    sorted_ = ["margin 0.05", "margin 0.1", "margin 0.2", "margin 0.4", "new"]
    text = section(STUDIES["top_k"], records, [], "emoji")
    assert [row[0] for row in rows(text)] == 3 * ["k", *sorted_]
    (legend,) = lines(STUDIES["top_k"], records, [], "emoji").legends
    assert [text.get_text() for text in legend.get_texts()] == sorted_


def test_every_floor_is_told():
    floors = zip(FLOORS, (9, 4, 1), strict=True)
    floor = [r for series, n in floors for r in floor_of(hits(n), series=series)]
    records = [record("a", hits(19), point=3)]
    text = section(VARIED, records, floor, "emoji")
    assert text.count("Not trained: 45.0; raw pixels: 20.0; at random: 5.0.") == 2
    every = rows(told([record("a", hits(19))], floor))[1:]
    assert [row[0] for row in every] == ["a", *FLOORS]


def test_series_is_compared_with_several():
    study = Study("S", lambda set_: iter(()), "k", baselines=(("a", "b"), ("a", "c")))
    records = [record(name, hits(9), point=3) for name in "abc"]
    text = section(study, records, floor_of(hits(1)), "emoji")
    assert [row[0] for row in rows(text)[-2:]] == ["a - b", "a - c"]


def test_baselines_are_not_compared_without_a_floor():
    records = [record(name, hits(9), point=3) for name in "ab"]
    text = section(VARIED, records, [], "emoji")
    assert rows(text)[-1] == ["b - a", "no floor"]
    assert "Not trained" not in text
    validation = {"validation": dict.fromkeys(NAMES["emoji"], 0.125)}
    records = validated([r | validation for r in records])
    assert "b - a" not in section(VARIED, records, [], "emoji", "validation")


def test_table_of_times_leaves_out_what_diverged():
    records = [
        a_run("a", study="cost", seed=seed, is_timed=True).record() | found
        for seed, found in enumerate(
            ({"step_ms": 2.0}, {"step_ms": 3.0}, {"diverged_at": 100})
        )
    ]
    text = section(STUDIES["cost"], records, [], "emoji")
    assert rows(text)[-1] == ["a", "2.50 ± 0.50 (1 diverged)"]
    assert validated(records) == []


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
    tables = {"batches": {"classes_per_batch": 3, "images_per_class": 4}}
    labels = np.repeat(np.arange(3), 4)
    alike = labels[:, None] == labels
    pairs = alike.sum() - len(labels)
    every = sum(
        alike[a, p] and a != p and not alike[a, n]
        for a in range(12)
        for p in range(12)
        for n in range(12)
    )
    found = [triplets_a_step(way, tables) for way in ("all", "pair", "anchor")]
    assert found == [every, pairs, 12]


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
    names = ("triplet, hard", "N-pair", "angular")
    figure = curves(records, floor_of(hits(1)), names)
    left, right = (axes.lines[0].get_xydata().tolist() for axes in figure.axes)
    assert left == [[100, 45], [200, 70]]
    # An anchor each of 16 x 4 images.
    assert right == [[6400, 45], [12800, 70]]
    other = figure.axes[1].lines[1].get_xdata().tolist()
    assert other == [100 * 64 * 3 * 60, 200 * 64 * 3 * 60]
    assert list(figure.axes[0].lines[2].get_ydata()) == [5, 5]
    assert curves([record("N-pair", hits(9))], [], ("N-pair",)) is None


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


def test_series_at_one_point_stand_beside_each_other_and_words_are_not_joined():
    records = [
        record(name, hits(9), study="designs", point=point)
        for name in ("a", "b")
        for point in ("p = 0.1", "(2, 32)")  # not as in the study
    ]
    (axes,) = lines(STUDIES["designs"], records, [], "emoji").axes
    first, second = axes.lines[:2]
    assert {line.get_linestyle() for line in (first, second)} == {"None"}
    assert [t.get_text() for t in axes.get_xticklabels()] == ["(2, 32)", "p = 0.1"]
    apart = second.get_xdata() - first.get_xdata()
    assert (apart > 0.1).all()
    assert np.allclose((first.get_xdata() + second.get_xdata()) / 2, [0, 1])


def test_labels_of_points_do_not_overlap():
    points = [*range(1, 20), 4096, 8192]
    records = [record("a", hits(9), point=point) for point in points]
    figure = lines(VARIED, records, [], "emoji")
    figure.draw_without_rendering()
    labels = [t for t in figure.axes[-1].get_xticklabels() if t.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert 5 < len(labels) < len(points)
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_floor_is_a_line_where_it_is_near_and_else_an_arrow():
    records = [
        record("a", hits(count), point=k) for k, count in ((1, 10), (2, 14), (3, 20))
    ]
    for count, drawn, said in (
        (8, 1, "not\ntrained"),
        (0, 0, "not\ntrained\n0 \N{DOWNWARDS ARROW}"),
    ):
        floor = floor_of(hits(count))
        axes = lines(STUDIES["top_k"], records[1:], floor, "emoji").axes[0]
        level = [line for line in axes.lines if list(line.get_xdata()) == [0, 1]]
        assert len(level) == drawn
        assert [text.get_text() for text in axes.texts] == [said]
        assert (axes.get_ylim()[0] < 5 * count) == bool(drawn)


def test_legend_says_what_diverged():
    records = [record("a", hits(9), point=1), broken("a", point=2)]
    (legend,) = lines(VARIED, records, [], "emoji").legends
    assert [text.get_text() for text in legend.get_texts()] == ["a (1 diverged)"]

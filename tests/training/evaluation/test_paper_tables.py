"""The papers' tables: their columns, filled by `evaluate` and by `fit`."""

import json
import math
import re
from collections import Counter

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tests.support.small_images import write_shapes
from tests.support.training_runs import fit
from tfdml.metrics import cluster
from training.__main__ import main
from training.evaluation.reranked import asked_rerankings
from training.evaluation.subject import open_subject
from training.recipe.checks import RecipeError
from training.recipe.paper_tables import PAPER_TABLES, filled_table
from training.recipe.recipe import recipe_of
from training.reports.text import table_lines

CLASSES, IMAGES = 6, 4
LABELS = np.repeat(np.arange(CLASSES), IMAGES)
TEN = ["P/R@1", "P@3", "P@5", "P@10", "R@3", "R@5", "R@10", "NMI", "mAP", "F1"]


def rows():
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(CLASSES, 5))
    scatter = 0.8 * generator.normal(size=(CLASSES * IMAGES, 5))
    return (centers[LABELS] + scatter).astype("float32")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    write_shapes(root / "images", classes=CLASSES, images_per_class=IMAGES)
    np.save(root / "rows.npy", rows())
    return root


def evaluate(root, out, *options):
    command = ["evaluate", root / "rows.npy", root / "images", "--out", out, *options]
    assert main([str(word) for word in command]) == 0
    return json.loads((out / "metrics.json").read_text("utf-8"))


def naive_searches(ks):
    """Search with each image among all others, as Lu et al. do, in plain loops."""
    unit = rows().astype("float64")
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    found = {}
    for query in range(len(unit)):
        others = [i for i in range(len(unit)) if i != query]
        others.sort(key=lambda i: -float(unit[i] @ unit[query]))
        hits = [LABELS[i] == LABELS[query] for i in others]
        for k in ks:
            found.setdefault(f"P@{k}", []).append(sum(hits[:k]) / k)
            found.setdefault(f"R@{k}", []).append(float(any(hits[:k])))
        places = [place for place, hit in enumerate(hits, start=1) if hit]
        precisions = [n / place for n, place in enumerate(places, start=1)]
        found.setdefault("mAP", []).append(sum(precisions) / len(places))
    return {name: sum(values) / len(values) for name, values in found.items()}


def entropy(names):
    return -sum(
        n / len(names) * math.log(n / len(names)) for n in Counter(names).values()
    )


def naive_clustering(labels):
    clusters = cluster(rows(), len(set(labels))).tolist()
    pairs = list(zip(clusters, labels, strict=True))
    information = entropy(clusters) + entropy(labels) - entropy(pairs)
    together = alike = both = 0
    for i, (one, label) in enumerate(pairs):
        for other, other_label in pairs[:i]:
            together += one == other
            alike += label == other_label
            both += one == other and label == other_label
    precision, recall = both / together, both / alike
    entropies = entropy(clusters), entropy(labels)
    return {
        "arithmetic": 2 * information / sum(entropies),
        "geometric": information / math.sqrt(math.prod(entropies)),
        "F1": 2 * precision * recall / (precision + recall),
    }


@pytest.mark.slow
def test_topk_has_the_ten_columns_of_the_paper(root, tmp_path, capsys):
    results = evaluate(root, tmp_path / "out", "--table", "topk")
    columns = results["table"]["columns"]
    assert list(columns) == TEN
    searches, clusters = naive_searches([1, 3, 5, 10]), naive_clustering(LABELS)
    expected = searches | {"P/R@1": searches["P@1"], "NMI": clusters["arithmetic"]}
    expected |= {"F1": clusters["F1"]}
    assert columns == pytest.approx({name: expected[name] for name in TEN}, abs=1e-6)
    printed = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(printed) if line.split() == TEN)
    values = [f"{100 * columns[name]:.2f}" for name in TEN]
    assert printed[place + 1].split() == values
    assert len(printed[place]) == len(printed[place + 1]) <= 90
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert all(f">{value}</td>" in page for value in values)


@pytest.mark.slow
def test_k_names_the_columns(root, tmp_path):
    results = evaluate(root, tmp_path / "out", "--k", "3", "20")
    measured = {name for name in results["metrics"] if "_at_" in name} - {"map_at_r"}
    expected = {f"{n}_at_{k}" for n in ("precision", "recall") for k in (1, 3, 20)}
    assert measured == expected
    searches = naive_searches([3, 20])
    for k in (3, 20):
        precision = results["metrics"][f"precision_at_{k}"]
        assert precision == pytest.approx(searches[f"P@{k}"])
    assert "table" not in results


@pytest.mark.slow
def test_k_and_a_table_are_measured_together(root, tmp_path, capsys):
    options = ("--k", "2", "--table", "weighted-contrastive")
    results = evaluate(root, tmp_path / "out", *options)
    columns = results["table"]["columns"]
    assert list(columns) == ["R@1", "R@2", "R@4", "R@8", "NMI"]
    clusters = naive_clustering(LABELS)
    assert columns["NMI"] == pytest.approx(clusters["geometric"], abs=1e-6)
    assert "geometric" in capsys.readouterr().out
    assert {"precision_at_2", "precision_at_8"} <= set(results["metrics"])


@pytest.mark.slow
def test_k_beyond_the_images_is_a_dash_in_a_table(root, tmp_path, capsys):
    results = evaluate(root, tmp_path / "out", "--table", "proxy-anchor-sop")
    columns = results["table"]["columns"]
    assert columns["R@10"] is not None
    assert (columns["R@100"], columns["R@1000"]) == (None, None)
    assert "too few for this k" in capsys.readouterr().out


def test_what_cannot_be_measured_is_refused_before_anything_is_embedded(
    root, tmp_path, capsys
):
    command = ["evaluate", str(root / "rows.npy"), str(root / "images")]
    for options, message in (
        (["--k", "24"], "`k` must be from 1 to 23"),
        (["--k", "0"], "`k` must be from 1 to 23"),
        (["--table", "log-ratio"], "`table` must be one of topk"),
    ):
        out = tmp_path / options[1]
        assert main([*command, "--out", str(out), *options]) == 1
        assert message in capsys.readouterr().err
        assert not out.exists()


@pytest.mark.slow
def test_clusters_of_sop_are_of_its_categories(root, tmp_path):
    names = [f"{label}" for label in LABELS]
    kinds = ["even" if label % 2 == 0 else "odd" for label in LABELS]
    lines = [
        f"class-{label}/{number % IMAGES}.png,{name},test,{kind}"
        for number, (label, name, kind) in enumerate(
            zip(LABELS, names, kinds, strict=True)
        )
    ]
    manifest = root / "images" / "manifest.csv"
    manifest.write_text("\n".join(["path,label,split,category", *lines]) + "\n")
    out = tmp_path / "out"
    command = ["evaluate", root / "rows.npy", manifest, "--out", out, "--table", "topk"]
    assert main([str(word) for word in command]) == 0
    table = json.loads((out / "metrics.json").read_text("utf-8"))["table"]
    clusters = naive_clustering([label % 2 for label in LABELS])
    assert table["columns"]["F1"] == pytest.approx(clusters["F1"], abs=1e-6)
    assert "categories" in table["note"]
    manifest.unlink()


def test_every_table_names_metrics_that_are_measured():
    measured = r"(precision|recall|ndcg|label_distance)_at_[0-9]+"
    others = {"nmi_arithmetic", "nmi_geometric", "pairwise_f1"}
    others |= {"mean_average_precision"}
    for name, table in PAPER_TABLES.items():
        unknown = set(table.columns.values()) - others
        assert all(re.fullmatch(measured, metric) for metric in unknown), name
        text = table_lines(filled_table(name, dict.fromkeys(table.columns.values(), 1)))
        assert max(map(len, text)) <= 120


def test_label_distances_are_no_shares():
    table = filled_table("log-ratio", {"label_distance_at_1": 1.5, "ndcg_at_1": 0.5})
    head, values = (line.split() for line in table_lines(table)[1:3])
    by_title = dict(zip(head, values, strict=True))
    assert (by_title["D@1"], by_title["nDCG@1"]) == ("1.5", "50.00")
    assert by_title["D@50"] == "-"


def recipe_with(**evaluation):
    return recipe_of({"data": {"images": "images"}, "evaluation": evaluation})


def test_recipe_measures_its_k_and_those_of_its_table():
    assert recipe_with().evaluation.ks((1, 5)) == (1, 5)
    assert recipe_with(k=[20, 3]).evaluation.ks((1, 5)) == (1, 3, 20)
    asked = recipe_with(k=[40], table="proxy-anchor").evaluation
    assert asked.ks((1, 5)) == (1, 2, 4, 8, 40)


@refusals(
    ("k", [0], "must hold whole numbers of at least 1"),
    ("k", [5, 5], "none of them twice. Received: [5, 5]"),
    ("k", [1.5], "must be a whole number"),
    ("k", 5, "must be a list"),
    ("table", "top-k", "must be"),
    ("rerank", ["k_reciprocal"], "must hold names among 'query-expansion', "),
    ("rerank_neighbors", 5, "goes with `rerank`"),
)
def test_recipe_refuses(argument, value, rule):
    refuses(recipe_with, argument=argument, value=value, rule=rule)


@pytest.mark.parametrize(
    "other",
    [{"batches": {"design": "neighbors"}}, {"embedder": {"unit_length": False}}],
)
def test_re_ranking_is_for_classes_compared_by_cosine(other):
    tables = {"data": {"images": "images"}, "loss": {"name": "LogRatioLoss"}}
    asked = {"evaluation": {"rerank": ["k-reciprocal"]}}
    with pytest.raises(RecipeError, match="`rerank` must be left out with continuous"):
        recipe_of(tables | other | asked)


@pytest.mark.slow
def test_fit_measures_the_table_of_its_recipe(shapes, tmp_path, capsys):
    options = ["evaluation.table=topk", "evaluation.k=[2]"]
    options += ['evaluation.rerank=["k-reciprocal"]', "evaluation.rerank_neighbors=2"]
    more = [word for option in options for word in ("--set", option)]
    assert fit(shapes / "recipe.toml", tmp_path / "run", *more) == 0
    results = json.loads((tmp_path / "run" / "metrics.json").read_text("utf-8"))
    after, columns = results["test_after_training"], results["table"]["columns"]
    assert list(columns) == TEN
    assert columns["P@3"] == after["precision_at_3"]
    assert 0 <= columns["NMI"] <= 1
    before = results["test_before_training"]
    assert {f"recall_at_{k}" for k in (1, 2, 3, 5, 10)} <= set(before) & set(after)
    assert "P/R@1" in capsys.readouterr().out
    assert "P/R@1" in (tmp_path / "run" / "report.html").read_text("utf-8")
    # And `evaluate` prints it, whose recipe asks for it.
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert "P/R@1" in capsys.readouterr().out
    evaluated = tmp_path / "run" / "evaluation" / "metrics.json"
    again = json.loads(evaluated.read_text("utf-8"))
    assert again["table"]["columns"] == pytest.approx(columns)
    # And measures the re-rankings that the recipe names, if no others are asked for.
    assert again["reranked"]["k-reciprocal"]["options"]["k1"] == 2
    subject = open_subject(tmp_path / "run")
    assert asked_rerankings(subject, [], None) == {}
    (other,) = asked_rerankings(subject, ["query-expansion"], 3).values()
    assert other.k == 3


@pytest.mark.slow
def test_table_that_does_not_suit_the_images_ends_fit_at_once(shapes, tmp_path, capsys):
    more = ["--set", "evaluation.table=log-ratio"]
    assert fit(shapes / "recipe.toml", tmp_path / "run", *more) == 1
    assert "`table` must be one of topk" in capsys.readouterr().err

"""The benchmarks time every loss, and report what they measured."""

import json

import keras
import numpy as np
import pytest

from benchmarks import devices, evaluation, losses, memory, recipes, report, session
from benchmarks.catalogue import CASES
from tests.support.autodiff import value_and_gradient
from tfdml.neighbors import nearest_neighbors


def test_the_losses_of_the_five_papers_are_timed():
    timed = {case.name.split("(")[0] for case in CASES}
    assert timed >= {
        "BalancedContrastiveLoss",
        "LogRatioLoss",
        "MultiSimilarityLoss",
        "ProxyAnchorLoss",
        "TopKPrecisionLoss",
        "WeightedContrastiveLoss",
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_case_has_a_loss_and_a_gradient_that_are_not_zero(case):
    problem = case.build(16, 8)
    rows, *rest = problem.inputs
    value, gradient = value_and_gradient(
        lambda x: problem.function(x, *map(keras.ops.convert_to_tensor, rest))[0], rows
    )
    assert value != 0
    assert abs(gradient).sum() > 0


def test_records_of_tensorflow_name_the_card_that_they_were_measured_on(monkeypatch):
    import tensorflow as tf

    name, card = (
        "NVIDIA H200",
        tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU"),
    )
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [card])
    config = tf.config.experimental
    monkeypatch.setattr(
        config, "get_device_details", lambda card: {"device_name": name}
    )
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    assert session.machine()["device"] == name


ABOUT = {"backend": "b", "device": "d", "dimension": 8, "threads": 2, "date": "today"}


def report_of(records, tmp_path, capsys):
    file = tmp_path / "records.jsonl"
    lines = [json.dumps({**ABOUT, **record}) for record in records]
    file.write_text("\n".join(lines), encoding="utf-8")
    report.main([str(file)])
    return capsys.readouterr().out


def test_report_gives_ratios_to_the_floor_and_multiples_of_ours(tmp_path, capsys):
    ours = {"batch": 64, "loss": "ALoss", "floor_ms": 2.0, "ms": 9.0}
    records = [
        ours,
        {**ours, "ms": 3.0},  # measured again
        {**ours, "batch": 256, "floor_ms": 4.0, "ms": 10.0, "product_ms": 5.0},
        {"batch": 64, "loss": "ALoss", "peer": "P", "peer_case": "A", "peer_ms": 6.0},
        {
            "batch": 256,
            "loss": "ALoss",
            "peer": "P",
            "peer_case": "A",
            "peer_over": "x",
        },
    ]
    lines = report_of(records, tmp_path, capsys).splitlines()
    assert "| ALoss | 1.50 | 2.50 |" in lines
    assert "| ALoss | 2.00 |" in lines  # the bare product of its own
    assert "| A | ALoss | 6.0 ms, 2.0 x | over x |" in lines


def test_report_shows_a_loss_that_failed(tmp_path, capsys):
    good = {"batch": 64, "loss": "ALoss", "floor_ms": 2.0, "ms": 3.0}
    bad = {"batch": 64, "loss": "BLoss", "error": "ValueError: no"}
    lines = report_of([good, bad], tmp_path, capsys).splitlines()
    assert "| BLoss | error |" in lines


def test_report_gives_memory_in_matrices(tmp_path, capsys):
    record = {"batch": 64, "loss": "ALoss", "matrices": 6.0, "own_size": 1.5}
    assert "| ALoss | 6.0 | 4.0 |" in report_of([record], tmp_path, capsys)


@pytest.mark.slow
def test_a_measured_loss_is_written_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(losses, "use_threads", lambda threads: None)
    out = tmp_path / "records.jsonl"
    common = ["--no-peers", "--seconds", "0", "--dimension", "4", "--out", str(out)]
    status = losses.main([*common, "--batches", "8", "--only", "NCALoss"])
    (record,) = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert status == 0
    assert record["loss"] == "NCALoss"
    assert record["ms"] > 0
    assert record["floor_ms"] > 0


@pytest.mark.parametrize("command", [losses, memory])
def test_name_of_no_loss_is_refused(command, monkeypatch):
    monkeypatch.setattr(command, "use_threads", lambda threads: None)
    monkeypatch.setattr(losses, "missing_peers", list)
    with pytest.raises(SystemExit, match=r"TripletLoss.*\{'NoLoss'\}"):
        command.main(["--only", "NoLoss"])


def test_runs_of_recipes_become_a_table_of_means_and_half_ranges():
    def run(recipe, seed, value):
        keys = ("test_of_raw_32x32_pixels", "test_before_training")
        rows = {key: {"precision_at_1": 0.25, "queries": 9} for key in keys}
        after = {"precision_at_1": value, "queries": 9}
        return {"recipe": recipe, "seed": seed, **rows, "test_after_training": after}

    text = recipes.table([run("a", 0, 0.5), run("a", 1, 0.6), run("b", 0, 0.7)])
    assert text.splitlines() == [
        "",
        "| a | precision_at_1 |",
        "| --- | ---: |",
        "| a, raw 32 x 32 pixels | 25.0 |",
        "| a, untrained | 25.0 |",
        "| a, trained | 55.0 +- 5.0 |",
        "| b, raw 32 x 32 pixels | 25.0 |",
        "| b, untrained | 25.0 |",
        "| b, trained | 70.0 |",
    ]


def test_columns_of_other_names_begin_another_table():
    def run(recipe, measured):
        keys = ("of_raw_32x32_pixels", "before_training", "after_training")
        rows = {f"test_{key}": dict(measured) for key in keys}
        return {"recipe": recipe, "seed": 0, **rows}

    classes, poses = (
        run("a", {"map_at_r": 0.5}),
        run("pose", {"label_distance_at_1": 1.5}),
    )
    text = recipes.table([classes, poses])
    assert text.count("| --- |") == 2
    assert "| pose, trained | 1.500 |" in text


def test_one_device_is_not_compared_with_several():
    with pytest.raises(SystemExit, match="At least 2 devices of JAX are needed"):
        devices.main([])


@pytest.mark.full
def test_evaluation_is_measured_beside_its_floor(tmp_path, capsys):
    size = ["--items", "300", "--dimension", "8", "--queries", "50"]
    out = tmp_path / "evaluation.jsonl"
    only = ["--only", "floor", "nearest", "--out", str(out)]
    assert evaluation.main([*size, *only]) == 0
    floor, nearest = map(json.loads, out.read_text().splitlines())
    assert floor["queries"] == nearest["queries"] == 50
    assert min(floor["seconds"], nearest["seconds"]) > 0
    rows, labels = evaluation.clustered(300, 8, 1.8)
    found = nearest_neighbors(rows[:50], rows, 1, exclude=np.arange(50))[0][:, 0]
    expected = np.mean(labels[found] == labels[:50])
    assert nearest["values"]["recall_at_1"] == expected
    ratio = nearest["seconds"] / floor["seconds"]
    assert f"{ratio:9.2f}" in capsys.readouterr().out


def test_clustered_embeddings_are_unit_vectors_near_their_centers():
    rows, labels = evaluation.clustered(500, 16, 0.1)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    sizes = np.bincount(labels)
    assert sizes.sum() == 500
    assert sizes.max() <= 12
    same = labels[:, None] == labels
    assert (rows @ rows.T)[same].min() > 0.9

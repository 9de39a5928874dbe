"""`python -m training evaluate`: what is measured, of what, and what is refused."""

import json
import re
import shutil
from contextlib import contextmanager

import keras
import numpy as np
import pytest

from tests.support.small_images import write_shapes
from tfdml._core import embeddings as _embeddings
from tfdml.export import export_embedder
from tfdml.images import View
from tfdml.metrics import (
    GalleryAugmentation,
    KReciprocal,
    QueryExpansion,
    reranked_query_metrics,
    retrieval_metrics,
)
from tfdml.models import load_embedder
from training.__main__ import main
from training.evaluation.subject import open_subject
from training.measure.query_files import read_queries, read_roc

pytestmark = pytest.mark.slow

CLASSES, IMAGES = 6, 4


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Images of six classes, and embeddings of which some are wrong."""
    root = tmp_path_factory.mktemp("evaluate")
    write_shapes(root / "images", classes=CLASSES, images_per_class=IMAGES)
    np.save(root / "rows.npy", rows())
    return root


def rows():
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(CLASSES, 5))
    scatter = 0.8 * generator.normal(size=(CLASSES * IMAGES, 5))
    return (np.repeat(centers, IMAGES, axis=0) + scatter).astype("float32")


@contextmanager
def passes():
    """Count how often an array of embeddings is checked."""
    counted = []
    with pytest.MonkeyPatch.context() as patch:
        check = _embeddings._checked

        def counting(*arguments):
            counted.append(arguments)
            return check(*arguments)

        patch.setattr(_embeddings, "_checked", counting)
        yield counted


@pytest.fixture(scope="module")
def evaluated(root):
    arguments = ["evaluate", root / "rows.npy", root / "images"]
    with passes() as counted:
        assert main([str(a) for a in [*arguments, "--out", root / "out"]]) == 0
    # By the metrics, and by the map of the embeddings drawn for it.
    assert len(counted) == 2
    return root / "out"


def read(path):
    return json.loads(path.read_text("utf-8"))


def test_metrics_are_those_of_the_embeddings(evaluated):
    results = read(evaluated / "metrics.json")
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    expected = retrieval_metrics(rows(), labels, (1, 2, 4, 5, 8, 10))
    assert results["queries"] == expected.pop("queries") == 24
    assert results["queries_without_positive"] == 0
    del expected["queries_without_positive"]
    assert results["metrics"] == pytest.approx(expected)
    assert 0.3 < expected["precision_at_1"] < 1
    for name, (low, high) in results["intervals"].items():
        assert low <= results["metrics"][name] <= high
    assert results["macro"]["map_at_r"] == pytest.approx(expected["map_at_r"])
    assert 0 < results["clustering"]["nmi_arithmetic"] <= 1
    assert results["hubness"]["mean"] == 10


def test_single_queries_and_the_roc_are_kept(evaluated):
    results, found = read(evaluated / "metrics.json"), read_queries(evaluated)
    assert found.names.tolist()[:2] == ["class-0/0.png", "class-0/1.png"]
    assert found.results.classes.tolist()[::IMAGES] == [
        f"class-{i}" for i in range(CLASSES)
    ]
    assert found.results.means() == pytest.approx(results["metrics"])
    assert found.results.curve.interpolated.shape == (101,)
    false, true = read_roc(evaluated)
    area = np.trapezoid(true, false)
    assert area == pytest.approx(results["verification"]["pair_auc"])
    assert 0 < results["verification"]["opis"] < 1
    assert results["verification"]["calibrated_classes"] == CLASSES
    assert "OPIS" in (evaluated / "report.html").read_text("utf-8")


def test_report_shows_every_figure(evaluated):
    page = (evaluated / "report.html").read_text("utf-8")
    titles = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert titles == [
        "Worst searches",
        "Searches drawn at random",
        "Recall against k",
        "Precision and recall of the rankings",
        "Verification of pairs",
        "Similarity of pairs",
        "Hubness",
        "Map of the embeddings",
    ]
    assert page.count("data:image/png;base64,") == len(titles)
    assert "http" not in page.replace("http-equiv", "")


def test_evaluation_is_replaced_only_when_asked(evaluated, root, capsys):
    arguments = [str(root / "rows.npy"), str(root / "images"), "--out", str(evaluated)]
    assert main(["evaluate", *arguments]) == 1
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert main(["evaluate", *arguments, "--overwrite", "--keep-embeddings"]) == 0
    assert np.load(evaluated / "embeddings.npy").shape == (24, 5)
    assert "Precision@1" in capsys.readouterr().out


def test_other_folders_are_never_replaced(root, capsys):
    arguments = [str(root / "rows.npy"), str(root / "images"), "--overwrite"]
    assert main(["evaluate", *arguments, "--out", str(root / "images")]) == 1
    assert "holds something other than an evaluation" in capsys.readouterr().err
    assert (root / "images/class-0/0.png").exists()


def test_neighboring_folders_stay(root, tmp_path):
    beside = tmp_path / "out.part"
    beside.mkdir()
    (beside / "notes.txt").write_text("mine")
    arguments = [str(root / "rows.npy"), str(root / "images")]
    assert main(["evaluate", *arguments, "--out", str(tmp_path / "out")]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "out.part"]
    assert (beside / "notes.txt").read_text() == "mine"


def test_file_is_no_folder(root, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    arguments = [str(root / "rows.npy"), str(root / "images"), "--overwrite"]
    assert main(["evaluate", *arguments, "--out", str(tmp_path / "file")]) == 1
    assert "file' is a file. Choose another" in capsys.readouterr().err


def test_broken_image_costs_the_report_alone(root, tmp_path, capsys):
    write_shapes(tmp_path / "images", classes=3, images_per_class=4)
    np.save(tmp_path / "rows.npy", rows()[:12])
    (tmp_path / "images" / "class-1" / "0.png").write_bytes(b"no image")
    arguments = [str(tmp_path / "rows.npy"), str(tmp_path / "images")]
    assert main(["evaluate", *arguments, "--out", str(tmp_path / "out")]) == 1
    assert "0.png" in capsys.readouterr().err
    assert read(tmp_path / "out" / "metrics.json")["queries"] == 12
    assert not (tmp_path / "out" / "report.html").exists()


def test_two_classes_of_two_images_are_enough(tmp_path):
    write_shapes(tmp_path / "images", classes=2, images_per_class=2)
    np.save(tmp_path / "rows.npy", rows()[[0, 1, 4, 5]])
    arguments = [str(tmp_path / "rows.npy"), str(tmp_path / "images")]
    assert main(["evaluate", *arguments, "--out", str(tmp_path / "out")]) == 0
    results = read(tmp_path / "out" / "metrics.json")
    assert results["verification"]["negative_pairs"] == 4
    assert "opis" not in results["verification"]  # of rates of 1 %
    assert "hubness" not in results


def test_failure_leaves_nothing_behind(root, tmp_path, capsys):
    broken = rows()
    broken[7, 2] = np.nan
    np.save(tmp_path / "broken.npy", broken)
    arguments = [str(tmp_path / "broken.npy"), str(root / "images")]
    deep = tmp_path / "deep" / "out"
    assert main(["evaluate", *arguments, "--out", str(deep)]) == 1
    assert "NaN or infinity in row 7" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["broken.npy"]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.ones((23, 5)),
            "each of the 24 images. Received: shape=(23, 5)",
        ),
        (np.ones(24), "rows.npy: `embeddings` must have the shape [rows, D]"),
        (np.array([["a"]] * 24), "rows.npy: `embeddings` must hold real numbers"),
    ],
    ids=["rows", "rank", "text"],
)
def test_embeddings_of_another_shape_are_refused(
    array, message, root, tmp_path, capsys
):
    np.save(tmp_path / "rows.npy", array)
    arguments = [str(tmp_path / "rows.npy"), str(root / "images")]
    assert main(["evaluate", *arguments, "--out", str(tmp_path / "out")]) == 1
    assert message in " ".join(capsys.readouterr().err.split())


def test_no_array_is_refused(root, tmp_path):
    (tmp_path / "rows.npy").write_text("nothing")
    subject = open_subject(tmp_path / "rows.npy", root / "images")
    with pytest.raises(ValueError, match="must hold an array"):
        subject.embeddings()


def test_embedder_and_its_export_are_evaluated_alike(root, tmp_path):
    inputs = keras.Input((12, 12, 3), dtype="uint8")
    x = keras.layers.Rescaling(1 / 255)(inputs)
    x = keras.layers.Dense(4)(keras.layers.Flatten()(x))
    embedder = keras.Model(inputs, keras.layers.UnitNormalization()(x))
    embedder.save(tmp_path / "embedder.keras")
    export_embedder(embedder, tmp_path / "exported" / "3")
    first, second = (
        open_subject(tmp_path / name, root / "images").embeddings()
        for name in ("embedder.keras", "exported")
    )
    assert first.shape == (24, 4)
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_images_that_cannot_be_read_are_skipped_where_asked(root, tmp_path, capsys):
    shutil.copytree(root / "images", tmp_path / "images")
    broken = sorted((tmp_path / "images").rglob("*.png"))[5]
    broken.write_bytes(b"no image")
    inputs = keras.Input((12, 12, 3), dtype="uint8")
    x = keras.layers.Rescaling(1 / 255)(inputs)
    keras.Model(inputs, keras.layers.Flatten()(x)).save(tmp_path / "embedder.keras")
    arguments = [str(tmp_path / "embedder.keras"), str(tmp_path / "images")]
    arguments = ["evaluate", *arguments, "--out", str(tmp_path / "out")]
    assert main(arguments) == 1
    assert broken.name in capsys.readouterr().err
    assert main([*arguments, "--skip-unreadable"]) == 0
    printed = capsys.readouterr().out
    assert "Skipped 1 unreadable files:" in printed
    assert broken.name in printed
    assert json.loads((tmp_path / "out/metrics.json").read_text())["images"] == 23


@pytest.fixture
def wide_run(finished_run, tmp_path):
    """A run that saw the whole width of its images."""
    run = tmp_path / "wide"
    shutil.copytree(finished_run, run)
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["images"] |= {"resize": 20, "pad": True}
    (run / "recipe.json").write_text(json.dumps(recipe))
    return run


def test_file_in_a_run_is_evaluated_as_the_run(wide_run):
    whole = open_subject(wide_run)
    assert whole.split.images.view == View(16, 20, pad=True)
    for name in ("embedder.keras", "last.keras"):
        one = open_subject(wide_run / name)
        assert (one.names, one.split_name) == (whole.names, "test")
        assert one.split.images.view == whole.split.images.view
        assert one.run is None  # so that its evaluation does not replace the run's
    one = open_subject(wide_run / "embedder.keras")
    np.testing.assert_array_equal(one.embeddings(), whole.embeddings())


def test_file_in_an_unfinished_run_sees_images_as_the_run_does(wide_run, root):
    (wide_run / "metrics.json").unlink()
    subject = open_subject(wide_run / "last.keras", root / "images")
    assert subject.split.images.view == View(16, 20, pad=True)


def test_model_is_evaluated_on_the_test_images_of_a_run_that_is_named(
    finished_run, tmp_path, capsys
):
    export_embedder(load_embedder(finished_run / "embedder.keras"), tmp_path / "m/1")
    of_run = open_subject(finished_run)
    subject = open_subject(tmp_path / "m", run=finished_run)
    assert subject.names == of_run.names
    np.testing.assert_allclose(subject.embeddings(), of_run.embeddings(), atol=1e-5)
    with pytest.raises(ValueError, match="which trained on most of them"):
        open_subject(tmp_path / "m", split="all", run=finished_run)
    with pytest.raises(ValueError, match="`run` must be left out"):
        open_subject(finished_run, run=finished_run)
    command = ["evaluate", str(tmp_path / "m"), "--run", str(finished_run)]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert f"among {len(of_run.names)} images" in capsys.readouterr().out


def test_missing_and_unsuitable_things_are_named(root, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no .*nowhere' to evaluate"):
        open_subject(tmp_path / "nowhere", root / "images")
    with pytest.raises(FileNotFoundError, match="There are no images at"):
        open_subject(root / "rows.npy", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is not a run folder, so its images"):
        open_subject(root / "rows.npy")
    with pytest.raises(ValueError, match=r"must be a run folder, a `.keras` or"):
        open_subject(tmp_path, root / "images")
    with pytest.raises(ValueError, match=r"no split 'test'\. There are: train, all"):
        open_subject(root / "rows.npy", root / "images", "test")
    write_shapes(tmp_path / "alone", classes=3, images_per_class=1)
    with pytest.raises(ValueError, match="3 queries and 3 images to search, of 3"):
        open_subject(root / "rows.npy", tmp_path / "alone")


def test_categories_are_superclasses_and_sequences_are_left_out(root, tmp_path):
    lines = ["path,label,split,category,sequence"]
    for label in range(CLASSES):
        for number in range(IMAGES):
            lines.append(
                f"class-{label}/{number}.png,class {label},test,"
                f"{'odd' if label % 2 else 'even'},{label}-{number // 2}"
            )
    manifest = root / "images" / "manifest.csv"
    manifest.write_text("\n".join(lines) + "\n")
    subject = [str(root / "rows.npy"), str(manifest)]
    out = tmp_path / "out"
    with passes() as counted:
        assert main(["evaluate", *subject, "--out", str(out)]) == 0
    assert len(counted) == 2  # though the super-classes are measured, too
    manifest.unlink()
    results = read(out / "metrics.json")
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    groups = np.arange(CLASSES * IMAGES) // 2
    fine = retrieval_metrics(rows(), labels, (1,), groups=groups)
    coarse = retrieval_metrics(rows(), labels % 2, (1,), groups=groups)
    assert results["metrics"]["map_at_r"] == pytest.approx(fine["map_at_r"])
    found = results["superclasses"]["metrics"]
    assert found["map_at_r"] == pytest.approx(coarse["map_at_r"])
    assert results["superclasses"]["clustering"]["clusters"] == 2
    assert set(results["categories"]) == {"odd", "even"}
    by_category = [c["precision_at_1"] for c in results["categories"].values()]
    assert np.mean(by_category) == pytest.approx(fine["precision_at_1"])
    page = (out / "report.html").read_text("utf-8")
    assert "Categories, worst first" in page


def test_one_class_alone_is_measured_as_far_as_it_can_be(root, tmp_path):
    lines = ["path,label,split"]
    lines += [f"class-0/{number}.png,a,test" for number in range(IMAGES)]
    manifest = root / "images" / "one.csv"
    manifest.write_text("\n".join(lines) + "\n")
    np.save(tmp_path / "rows.npy", rows()[:IMAGES])
    out = tmp_path / "out"
    arguments = [str(tmp_path / "rows.npy"), str(manifest), "--out", str(out)]
    assert main(["evaluate", *arguments]) == 0
    manifest.unlink()
    results = read(out / "metrics.json")
    assert results["metrics"]["precision_at_1"] == 1.0
    assert results["intervals"] == {}
    assert "verification" not in results
    assert read_roc(out) is None


def test_continuous_labels_are_measured_by_their_distance(root, tmp_path):
    lines = ["path,split,label_row"]
    for number in range(CLASSES * IMAGES):
        path = f"class-{number // IMAGES}/{number % IMAGES}.png"
        lines.append(f"{path},test,{number}")
    manifest = root / "images" / "poses.csv"
    manifest.write_text("\n".join(lines) + "\n")
    np.save(
        root / "images" / "poses.labels.npy", np.random.default_rng(0).random((24, 3))
    )
    out = tmp_path / "out"
    arguments = [str(root / "rows.npy"), str(manifest), "--out", str(out)]
    assert main(["evaluate", *arguments]) == 0
    manifest.unlink()
    results = read(out / "metrics.json")
    assert set(results["metrics"]) == {
        f"{name}_at_{k}"
        for name in ("label_distance", "ndcg")
        for k in (1, 2, 4, 5, 8, 10)
    }
    low, high = results["intervals"]["ndcg_at_1"]
    assert low < results["metrics"]["ndcg_at_1"] < high
    assert read_queries(out).results.first_ranks is None


# Re-ranking


def test_re_ranking_is_measured_beside_the_search(root, capsys):
    out, names = root / "reranked", ("query-expansion", "gallery-augmentation")
    arguments = ["evaluate", root / "rows.npy", root / "images", "--out", out]
    more = ["--rerank", *names, "k-reciprocal", "--rerank-neighbors", "3"]
    assert main([str(a) for a in [*arguments, *more]]) == 0
    results = read(out / "metrics.json")
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    by_name = {
        "query-expansion": QueryExpansion(3),
        "gallery-augmentation": GalleryAugmentation(3),
        "k-reciprocal": KReciprocal(3, 4),
    }
    assert list(results["reranked"]) == list(by_name)
    for name, rerank in by_name.items():
        found = results["reranked"][name]
        expected = reranked_query_metrics(rows(), labels, [1, 2], rerank=rerank)
        for metric, value in expected.means().items():
            assert found["metrics"][metric] == pytest.approx(value)
        assert found["options"] == vars(rerank)
    printed = capsys.readouterr().out
    assert "query-expansion, 3 neighbors" in printed
    assert "k-reciprocal, 3 neighbors" in (out / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--rerank", "k-reciprocal", "--rerank-neighbors", "23"],
            "`rerank_neighbors` must be from 1 to 22",
        ),
        (["--rerank-neighbors", "3"], "must come with `rerank`"),
        (
            ["--rerank", "query-expansion", "--metric", "squared_euclidean"],
            "not compared by cosine",
        ),
    ],
)
def test_re_ranking_that_makes_no_sense_is_refused(root, options, message, capsys):
    arguments = ["evaluate", root / "rows.npy", root / "images", "--out", root / "no"]
    assert main([str(a) for a in [*arguments, *options]]) == 1
    assert message in capsys.readouterr().err
    assert not (root / "no").exists()

"""Runs on manifests: continuous labels, queries and galleries, other batch designs."""

import json

import numpy as np
import pytest

from tests.support.small_images import write_shapes
from tests.support.training_runs import JIT
from training.__main__ import main
from training.data.source import read_source
from training.measure.measure import monitored
from training.recipe.recipe import Data

pytestmark = [pytest.mark.backend, pytest.mark.slow]

RECIPE = """
[data]
images = "{manifest}"
validation_fraction = {validation}
[embedder]
image_size = 16
embedding_dimension = 16
widths = [8, 16]
{tables}
[fit]
steps = 6
steps_per_epoch = 3
jit_compile = {jit}
"""


@pytest.fixture
def root(tmp_path):
    write_shapes(tmp_path, classes=12, images_per_class=4)
    return tmp_path


def run(root, header, row, tables, validation=0.2):
    """Train on a manifest of the images; `row` maps (class, number) to more cells."""
    lines = [f"class-{c}/{i}.png,{row(c, i)}" for c in range(12) for i in range(4)]
    (root / "set.csv").write_text("\n".join([f"path,{header}", *lines]) + "\n")
    text = RECIPE.format(
        manifest=root / "set.csv", validation=validation, tables=tables, jit=JIT
    )
    (root / "recipe.toml").write_text(text)
    assert main(["fit", str(root / "recipe.toml"), "--run", str(root / "run")]) == 0
    return {
        name: json.loads((root / "run" / f"{name}.json").read_text())
        for name in ("metrics", "history", "splits")
    }


def split_of(c):
    return "test" if c >= 8 else "train"


def test_continuous_labels_train_and_are_measured_by_their_distance(root):
    tables = (
        "[loss]\nname = 'LogRatioLoss'\n"
        "[batches]\ndesign = 'neighbors'\nbatch_size = 10\nneighbors = 3"
    )
    results = run(
        root,
        "label_0,label_1,split,sequence",
        lambda c, i: f"{c}.25,{i}.5,{split_of(c)},clip {c}",
        tables,
    )
    after = results["metrics"]["test_after_training"]
    assert {"label_distance_at_10", "ndcg_at_10_other_sequences"} <= set(after)
    # 2 of 8 clips validate: 8 images, fewer than 10 others of each.
    assert results["metrics"]["images"] == {"train": 24, "validation": 8, "test": 16}
    distances = results["history"]["val_label_distance_at_1"]
    assert results["metrics"]["best_epoch"] == 1 + int(np.argmin(distances))
    clips = [{p.split("/")[0] for p in part} for part in results["splits"].values()]
    assert sum(map(len, clips)) == len(set.union(*clips)) == 12


def test_best_epoch_is_chosen_by_a_distance_that_is_measured(root):
    path = root / "few.csv"
    lines = [
        f"class-0/{i}.png,{i}.5,{'train' if i < 2 else 'validation'}" for i in range(4)
    ]
    path.write_text("path,label_0,split\n" + "\n".join(lines) + "\n")
    data = read_source(Data(str(path))).data.of_split("validation")
    assert monitored(data) == ("val_label_distance_at_1", "min")


def test_queries_search_their_gallery(root):
    results = run(
        root,
        "label,split,role",
        lambda c, i: (
            f"{c},{split_of(c)},{('query' if i else 'gallery') if c >= 8 else ''}"
        ),
        "",
    )
    # 4 classes of 3 queries, each with one image in the gallery.
    assert results["metrics"]["test_after_training"]["queries"] == 12


@pytest.mark.parametrize(
    "tables",
    [
        "[loss]\nname = 'ProxyAnchorLoss'\n"
        "[batches]\ndesign = 'shuffled'\nbatch_size = 9",
        "[loss]\nname = 'WeightedContrastiveLoss'\n[batches]\ndesign = 'pairs'\n"
        "batch_size = 12\nimportance_weights = true",
        "[loss]\nname = 'BalancedContrastiveLoss'\n[batches]\nimages_per_class = 3\n"
        "classes_per_batch = 4\nsmall_classes = 'leave_out'\nimportance_weights = true",
        "[images]\nresize = 20\ncrop = 'position'",
    ],
    ids=["proxies", "pairs", "weighted groups", "crops"],
)
def test_losses_train_on_what_they_need(root, tables):
    results = run(root, "label,split", lambda c, i: f"{c},{split_of(c)}", tables)
    assert np.isfinite(results["history"]["loss"]).all()
    assert len(results["splits"]["validation"]) == 2


def test_hierarchical_loss_trains_on_categories_and_classes(root):
    results = run(
        root,
        "label,split,category",
        lambda c, i: f"{c},{split_of(c)},{c % 3}",
        "[loss]\nname = 'HierarchicalAPLoss'\n[batches]\nimages_per_class = 2\n"
        "classes_per_batch = 6",
    )
    assert np.isfinite(results["history"]["loss"]).all()


def test_manifest_without_training_images_is_refused(root, capsys):
    (root / "set.csv").write_text("path,label,split\nclass-0/0.png,a,test\n")
    text = RECIPE.format(manifest=root / "set.csv", validation=0.2, tables="", jit=JIT)
    (root / "recipe.toml").write_text(text)
    assert main(["fit", str(root / "recipe.toml"), "--run", str(root / "run")]) == 1
    assert 'set.csv has no image whose `split` is "train"' in capsys.readouterr().err

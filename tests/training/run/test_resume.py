"""A run that is interrupted, wherever, ends as if it had not been."""

import errno
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

import training.run.fit
import training.run.progress
import training.run.state
from tests.support.small_images import write_shapes
from tests.support.training_runs import RECIPE, fit
from tfdml.images import RandomChanges
from tfdml.models import load_embedder
from training.run.state import locked, read_state, write_state

pytestmark = [pytest.mark.backend, pytest.mark.slow]

# Runs `fit`, and kills its own process when the third state is on the disk but not yet
# in its place.
KILLED = """
import os, pathlib, signal, sys
replace, states = pathlib.Path.replace, []

def killed(self, target):
    states.extend([target] * (pathlib.Path(target).name == "state.npz"))
    if len(states) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

pathlib.Path.replace = killed
from training.__main__ import main
sys.exit(main(["fit", *sys.argv[1:]]))
"""


class StopError(BaseException):
    """Ends a run wherever it is, as Ctrl-C does."""


def stop_fit(recipe, run, where, name, count, when):
    """Train, and end before or after the n-th call of a function."""
    module, *names = where.split(":")
    owner = importlib.import_module(module)
    for part in names:
        owner = getattr(owner, part)
    original, calls = getattr(owner, name), []

    def replaced(*args, **kwargs):
        calls.append(name)
        if len(calls) == count and when == "before":
            raise StopError
        result = original(*args, **kwargs)
        if len(calls) == count:
            raise StopError
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, replaced)
        with pytest.raises(StopError):
            fit(recipe, run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("resume")
    write_shapes(root / "images", classes=10, images_per_class=4)
    recipe = RECIPE.format(images=root / "images").replace("steps = 12", "steps = 18")
    recipe = recipe.replace("widths = [8, 16]", "widths = [8, 16]\ndropout = 0.2")
    (root / "recipe.toml").write_text(recipe)
    return root


@pytest.fixture(scope="module")
def whole(folder):
    """A run that nothing interrupts."""
    assert fit(folder / "recipe.toml", folder / "whole") == 0
    return folder / "whole"


def assert_same_run(run, whole):
    """Two run folders hold the same files, with equal weights and histories."""
    assert sorted(p.name for p in run.parent.glob("run*")) == ["run"]
    assert {p.name for p in run.iterdir()} == {p.name for p in whole.iterdir()}
    for name in ("history.json", "neighbors.json", "splits.json"):
        assert json.loads((run / name).read_text()) == json.loads(
            (whole / name).read_text()
        )
    for name in ("embedder.keras", "last.keras"):
        received, expected = (load_embedder(r / name) for r in (run, whole))
        for a, b in zip(received.get_weights(), expected.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("where", "name", "count", "when"),
    [
        # In the middle of the second epoch.
        pytest.param(
            "training.run.progress:Progress",
            "on_train_batch_end",
            9,
            "after",
            marks=pytest.mark.jax,
        ),
        # The state of the second epoch is written; the epoch has not ended.
        pytest.param(
            "training.run.state", "write_state", 3, "after", marks=pytest.mark.full
        ),
        # All epochs are done, the run folder is not.
        pytest.param("keras:Model", "save", 1, "before", marks=pytest.mark.full),
    ],
)
def test_interrupted_run_goes_on_and_ends_with_the_same_weights(
    folder, whole, tmp_path, capsys, where, name, count, when
):
    run = tmp_path / "run"
    stop_fit(folder / "recipe.toml", run, where, name, count, when)
    assert not run.exists()
    capsys.readouterr()
    assert fit(folder / "recipe.toml", run) == 0
    assert "Resuming after epoch" in capsys.readouterr().out
    assert_same_run(run, whole)


def test_killed_run_goes_on_and_ends_with_the_same_weights(folder, whole, tmp_path):
    run, recipe = tmp_path / "run", folder / "recipe.toml"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(recipe), "--run", str(run)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not run.exists()
    assert fit(recipe, run) == 0
    assert_same_run(run, whole)


SECOND_EPOCH = ("training.run.progress:Progress", "on_epoch_begin", 2, "before")


@pytest.fixture(scope="module")
def unfinished(folder):
    """What a run leaves that was interrupted in its second epoch."""
    stop_fit(folder / "recipe.toml", folder / "run", *SECOND_EPOCH)
    return folder / "run.unfinished"


def test_another_recipe_does_not_go_on(folder, unfinished, tmp_path, capsys):
    shutil.copytree(unfinished, tmp_path / "run.unfinished")
    state = (tmp_path / "run.unfinished/state.npz").read_bytes()
    other = (folder / "recipe.toml", tmp_path / "run", "--seed", "5")
    assert fit(*other) == 1
    message = capsys.readouterr().err
    assert "another recipe: fit.seed was 0 and is 5" in message
    assert (tmp_path / "run.unfinished/state.npz").read_bytes() == state
    assert fit(*other, "--restart") == 0
    assert "Resuming" not in capsys.readouterr().out


def test_vanished_image_is_named(folder, unfinished, tmp_path, capsys):
    shutil.copytree(unfinished, tmp_path / "run.unfinished")
    image = next((folder / "images").glob("*/*"))
    hidden = tmp_path / image.name
    image.rename(hidden)
    try:
        assert fit(folder / "recipe.toml", tmp_path / "run") == 1
    finally:
        hidden.rename(image)
    message = capsys.readouterr().err
    assert f"{image.parent.name}/{image.name} is missing (1 in all" in message
    assert (tmp_path / "run.unfinished/state.npz").exists()


def test_replaced_image_is_named(folder, unfinished, tmp_path, capsys):
    shutil.copytree(unfinished, tmp_path / "run.unfinished")
    image, other = sorted((folder / "images").glob("*/*"))[:2]
    content = image.read_bytes()
    image.write_bytes(other.read_bytes())
    try:
        assert fit(folder / "recipe.toml", tmp_path / "run") == 1
    finally:
        image.write_bytes(content)
    message = capsys.readouterr().err
    assert f"{image.parent.name}/{image.name} shows something else (1 in all" in message


def test_full_disk_loses_nothing(folder, whole, tmp_path, monkeypatch, capsys):
    written = []

    def full(file, **arrays):
        written.append(file)
        if len(written) == 3:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        return savez(file, **arrays)

    savez = np.savez
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        assert fit(folder / "recipe.toml", tmp_path / "run") == 1
    message = capsys.readouterr().err
    assert "No space left on device" in message
    assert "Nothing is lost" in message
    left = sorted(p.name for p in (tmp_path / "run.unfinished").iterdir())
    assert "state.npz.part" not in left
    assert read_state(tmp_path / "run.unfinished/state.npz")[1]["epochs"] == 1
    assert fit(folder / "recipe.toml", tmp_path / "run") == 0
    assert_same_run(tmp_path / "run", whole)


def test_loss_that_becomes_nan_stops_the_run_and_names_the_batch(
    folder, tmp_path, monkeypatch, capsys
):
    text = (folder / "recipe.toml").read_text() + '[loss]\nname = "ProxyAnchorLoss"\n'
    text = text.replace("[augmentation]", "[augmentation]\nbrightness = 0.1")
    (tmp_path / "recipe.toml").write_text(text)
    get = training.run.fit.ImageBatches.batch
    broken = []

    def spoiled(self, step):
        (images, numbers), labels = get(self, step)
        if step == 8:
            column = RandomChanges.COLUMNS.index("brightness")
            numbers[:, column] = np.nan
            broken.append([self._paths[i] for i in self.positions(8)])
        return (images, numbers), labels

    monkeypatch.setattr(training.run.fit.ImageBatches, "batch", spoiled)
    init = training.run.progress.Progress.__init__

    def remembering(self, path, batches, paths, *more, **others):
        batches._paths = paths
        init(self, path, batches, paths, *more, **others)

    monkeypatch.setattr(training.run.progress.Progress, "__init__", remembering)
    written = training.run.state.StateWriter._written

    def late(*arguments):
        time.sleep(1)  # the steps until the first bad loss take less
        return written(*arguments)

    monkeypatch.setattr(training.run.state.StateWriter, "_written", late)
    assert fit(tmp_path / "recipe.toml", tmp_path / "run") == 1
    message = capsys.readouterr().err
    assert "At step 9 (batch 3 of epoch 2) the loss became infinite or NaN" in message
    left = tmp_path / "run.unfinished"
    assert (left / "diverged_batch.txt").read_text().splitlines() == broken[0]
    embedder = load_embedder(left / "last_good.keras")
    assert embedder.output_shape == (None, 16)
    good = embedder.get_weights()
    kept = read_state(left / "state.npz")[0]["model"]
    assert all(np.isfinite(w).all() for w in good)
    np.testing.assert_array_equal(good[0], kept[0])


def test_two_runs_cannot_write_into_one_folder(folder, tmp_path, capsys):
    lock = tmp_path / "run.lock"
    code = (
        "import pathlib, sys, time; from tfdml.files import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('held', flush=True); "
        "time.sleep(60)"
    )
    lock.write_text("4711\n")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as other:
        assert other.stdout.readline() == "held\n"
        assert fit(folder / "recipe.toml", tmp_path / "run") == 1
        message = capsys.readouterr().err
        assert f"Process 4711 trains into {tmp_path / 'run'}." in message
        other.kill()
    with locked(lock):  # it ended with its process
        assert lock.read_text() == f"{os.getpid()}\n"


def test_state_is_read_as_it_was_written(tmp_path):
    arrays = [np.arange(12.0).reshape(3, 4), np.array(7, "int64")]
    variable = keras.Variable(np.ones(3, "float32"))
    about = {"epochs": 3, "history": {"loss": [1.5, float("inf")]}}
    for _ in range(2):
        write_state(tmp_path / "s", {"a": arrays, "b": [variable], "c": []}, about)
    groups, read = read_state(tmp_path / "s")
    assert read == about
    assert sorted(groups) == ["a", "b"]
    for a, b in zip(groups["a"], arrays, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(groups["b"][0], [1, 1, 1])
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_image_that_vanishes_in_a_run_is_named_and_the_run_goes_on(
    folder, whole, tmp_path, monkeypatch, capsys
):
    text = (folder / "recipe.toml").read_text() + "[images]\ncache_megabytes = 0\n"
    (tmp_path / "recipe.toml").write_text(text)
    splits = json.loads((whole / "splits.json").read_text())
    image = folder / "images" / splits["train"][0] / "0.png"
    hidden = tmp_path / "hidden.png"
    end = training.run.progress.Progress.on_epoch_end

    def hide(self, epoch, logs=None):
        end(self, epoch, logs)
        if epoch == 0:
            image.rename(hidden)

    with monkeypatch.context() as patch:
        patch.setattr(training.run.progress.Progress, "on_epoch_end", hide)
        assert fit(tmp_path / "recipe.toml", tmp_path / "run") == 1
    hidden.rename(image)
    message = capsys.readouterr().err
    assert message.count("\n") < 40
    assert f"{image}: there is no such file" in message
    assert fit(tmp_path / "recipe.toml", tmp_path / "run") == 0
    assert_same_run(tmp_path / "run", whole)


def test_changed_manifest_does_not_go_on(folder, tmp_path, capsys):
    lines = [
        f"{folder.name}/images/class-{c}/{i}.png,{c},{'train' if c < 6 else 'test'}"
        for c in range(10)
        for i in range(4)
    ]
    manifest = folder.parent / f"{folder.name}.csv"
    manifest.write_text("path,label,split\n" + "\n".join(lines) + "\n")
    text = (folder / "recipe.toml").read_text()
    text = text.replace(f'"{folder / "images"}"', f'"{manifest}"')
    (tmp_path / "recipe.toml").write_text(text)
    stop_fit(tmp_path / "recipe.toml", tmp_path / "run", *SECOND_EPOCH)
    other_label = [*lines]
    other_label[36] = lines[36].replace(",9,", ",8,")  # both are test classes
    for changed in (other_label, [*lines[1::-1], *lines[2:]]):
        manifest.write_text("path,label,split\n" + "\n".join(changed) + "\n")
        assert fit(tmp_path / "recipe.toml", tmp_path / "run") == 1
        assert "had another order, or other labels" in capsys.readouterr().err

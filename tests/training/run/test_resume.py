"""A run that is interrupted, wherever, ends as if it had not been."""

import errno
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import training.run.fit
import training.run.progress
from tests.support.small_images import write_shapes
from tests.training.run.test_fit import RECIPE
from tfdml.models import load_embedder
from training.__main__ import main
from training.run.state import locked, read_state, write_state

pytestmark = [pytest.mark.backend, pytest.mark.slow]

# Runs `fit`, and kills its own process when a function is called for the n-th time.
KILLED = """
import importlib, os, signal, sys
where, name, count, when, *arguments = sys.argv[1:]
owner = importlib.import_module(where.split(":")[0])
for part in where.split(":")[1:]:
    owner = getattr(owner, part)
original, left = getattr(owner, name), int(count)

def replaced(*args, **kwargs):
    global left
    left -= 1
    if left == 0 and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*args, **kwargs)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, name, replaced)
from training.__main__ import main
sys.exit(main(["fit", *arguments]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("resume")
    write_shapes(root / "images", classes=10, images_per_class=4)
    recipe = RECIPE.format(images=root / "images").replace("steps = 12", "steps = 18")
    recipe = recipe.replace("widths = [8, 16]", "widths = [8, 16]\ndropout = 0.2")
    (root / "recipe.toml").write_text(recipe)
    return root


@pytest.fixture(scope="module")
def quick(folder):
    """The same recipe where no weights are compared: XLA would compile each run."""
    (folder / "quick").mkdir()
    text = (folder / "recipe.toml").read_text() + "jit_compile = false\n"
    (folder / "quick/recipe.toml").write_text(text)
    return folder / "quick"


def arguments(folder, run, *more):
    return [str(folder / "recipe.toml"), "--run", str(run), *more]


@pytest.fixture(scope="module")
def whole(folder):
    """The weights of a run that nothing interrupts."""
    assert main(["fit", *arguments(folder, folder / "whole")]) == 0
    return load_embedder(folder / "whole/embedder.keras").get_weights()


def killed(folder, run, where, name, count, when):
    command = [sys.executable, "-c", KILLED, where, name, str(count), when]
    done = subprocess.run(
        [*command, *arguments(folder, run)], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    ("where", "name", "count", "when"),
    [
        # In the middle of the second epoch.
        ("training.run.progress:Progress", "on_train_batch_end", 9, "after"),
        # The new state is on the disk, but not yet in its place.
        ("pathlib:Path", "replace", 2, "before"),
        # The state of the second epoch is written; the epoch has not ended.
        ("training.run.progress", "write_state", 3, "after"),
        # All epochs are done, the run folder is not.
        ("keras:Model", "save", 1, "before"),
    ],
)
def test_killed_run_goes_on_and_ends_with_the_same_weights(
    folder, whole, tmp_path, capsys, where, name, count, when
):
    run = tmp_path / "run"
    killed(folder, run, where, name, count, when)
    assert not run.exists()
    assert main(["fit", *arguments(folder, run)]) == 0
    history = json.loads((run / "history.json").read_text())
    expected = json.loads((folder / "whole/history.json").read_text())
    assert history == expected
    received = load_embedder(run / "embedder.keras").get_weights()
    for a, b in zip(received, whole, strict=True):
        np.testing.assert_array_equal(a, b)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


def interrupted(folder, run, monkeypatch, epoch=1):
    """Leave a run as after Ctrl-C in an epoch, counted from 0."""

    def stop(self, number, logs=None):
        if number == epoch:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.run.progress.Progress, "on_epoch_begin", stop)
        assert main(["fit", *arguments(folder, run)]) == 130


@pytest.fixture(scope="module")
def unfinished(quick):
    """What a run leaves that was interrupted in its second epoch."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        interrupted(quick, quick / "run", monkeypatch)
    return quick / "run.unfinished"


def test_run_tells_that_it_goes_on(quick, unfinished, tmp_path, capsys):
    shutil.copytree(unfinished, tmp_path / "run.unfinished")
    capsys.readouterr()
    assert main(["fit", *arguments(quick, tmp_path / "run")]) == 0
    assert "Going on after epoch 1 of 3." in capsys.readouterr().out


def test_another_recipe_does_not_go_on(quick, unfinished, tmp_path, capsys):
    shutil.copytree(unfinished, tmp_path / "run.unfinished")
    state = (tmp_path / "run.unfinished/state.npz").read_bytes()
    assert main(["fit", *arguments(quick, tmp_path / "run", "--seed", "5")]) == 1
    message = capsys.readouterr().err
    assert "another recipe: fit.seed was 0 and is 5" in message
    assert (tmp_path / "run.unfinished/state.npz").read_bytes() == state
    restart = arguments(quick, tmp_path / "run", "--seed", "5", "--restart")
    assert main(["fit", *restart]) == 0
    assert "Going on" not in capsys.readouterr().out


def test_vanished_image_is_named(folder, quick, unfinished, tmp_path, capsys):
    shutil.copytree(unfinished, tmp_path / "run.unfinished")
    image = next((folder / "images").glob("*/*"))
    hidden = tmp_path / image.name
    image.rename(hidden)
    try:
        assert main(["fit", *arguments(quick, tmp_path / "run")]) == 1
    finally:
        hidden.rename(image)
    message = capsys.readouterr().err
    assert f"{image.parent.name}/{image.name} is missing (1 in all" in message
    assert main(["fit", *arguments(quick, tmp_path / "run")]) == 0


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
        assert main(["fit", *arguments(folder, tmp_path / "run")]) == 1
    message = capsys.readouterr().err
    assert "No space left on device" in message
    assert "Nothing is lost" in message
    left = sorted(p.name for p in (tmp_path / "run.unfinished").iterdir())
    assert "state.npz.part" not in left
    assert read_state(tmp_path / "run.unfinished/state.npz")[1]["epochs"] == 1
    assert main(["fit", *arguments(folder, tmp_path / "run")]) == 0
    received = load_embedder(tmp_path / "run/embedder.keras").get_weights()
    for a, b in zip(received, whole, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("loss", ["TopKPrecisionLoss", "ProxyAnchorLoss"])
def test_loss_that_becomes_nan_stops_the_run_and_names_the_batch(
    folder, tmp_path, monkeypatch, capsys, loss
):
    text = (folder / "recipe.toml").read_text() + f'[loss]\nname = "{loss}"\n'
    (tmp_path / "recipe.toml").write_text(text)
    get = training.run.fit.ImageBatches.__getitem__
    broken = []

    def spoiled(self, index):
        images, labels = get(self, index)
        if self._epoch == 1 and index == 2:
            images = images * np.nan
            broken.append([self._paths[i] for i in self.positions(8)])
        return images, labels

    monkeypatch.setattr(training.run.fit.ImageBatches, "__getitem__", spoiled)
    init = training.run.progress.Progress.__init__

    def remembering(self, path, batches, paths, *more, **others):
        batches._paths = paths
        init(self, path, batches, paths, *more, **others)

    monkeypatch.setattr(training.run.progress.Progress, "__init__", remembering)
    assert main(["fit", *arguments(tmp_path, tmp_path / "run")]) == 1
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
    code = (
        "import pathlib, sys, time; from training.run.state import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('held', flush=True); "
        "time.sleep(60)"
    )
    lock = tmp_path / "run.lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as other:
        assert other.stdout.readline() == "held\n"
        assert main(["fit", *arguments(folder, tmp_path / "run")]) == 1
        message = capsys.readouterr().err
        assert f"Process {other.pid} trains into {tmp_path / 'run'}." in message
        other.kill()
    with locked(lock):  # it ended with its process
        pass


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


def test_patience_counts_on_after_an_interruption(quick, tmp_path, monkeypatch, capsys):
    recipe = (quick / "recipe.toml").read_text()
    (tmp_path / "recipe.toml").write_text(
        recipe.replace("steps = 18", "steps = 60\npatience = 2")
    )

    def evaluate(self, epoch, logs):
        logs["val_precision_at_1"] = 0.5 if epoch == 0 else 0.4

    monkeypatch.setattr(training.run.fit.SplitEvaluation, "on_epoch_end", evaluate)
    interrupted(tmp_path, tmp_path / "run", monkeypatch, epoch=2)
    assert main(["fit", *arguments(tmp_path, tmp_path / "run")]) == 0
    history = json.loads((tmp_path / "run/history.json").read_text())
    assert history["val_precision_at_1"] == [0.5, 0.4, 0.4]


def test_image_that_vanishes_in_a_run_is_named_and_the_run_goes_on(
    folder, whole, tmp_path, monkeypatch, capsys
):
    text = (folder / "recipe.toml").read_text() + "[images]\ncache_megabytes = 0\n"
    (tmp_path / "recipe.toml").write_text(text)
    command = ["fit", str(tmp_path / "recipe.toml"), "--run", str(tmp_path / "run")]
    splits = json.loads((folder / "whole/splits.json").read_text())
    image = folder / "images" / splits["train"][0] / "0.png"
    hidden = tmp_path / "hidden.png"
    end = training.run.progress.Progress.on_epoch_end

    def hide(self, epoch, logs=None):
        end(self, epoch, logs)
        if epoch == 0:
            image.rename(hidden)

    with monkeypatch.context() as patch:
        patch.setattr(training.run.progress.Progress, "on_epoch_end", hide)
        assert main(command) == 1
    hidden.rename(image)
    message = capsys.readouterr().err
    assert message.count("\n") < 40
    assert f"No such file or directory: '{image}'" in message
    assert main(command) == 0
    received = load_embedder(tmp_path / "run/embedder.keras").get_weights()
    for a, b in zip(received, whole, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("change", ["labels", "order"])
def test_changed_manifest_does_not_go_on(
    folder, quick, tmp_path, monkeypatch, capsys, change
):
    lines = [
        f"{folder.name}/images/class-{c}/{i}.png,{c},{'train' if c < 6 else 'test'}"
        for c in range(10)
        for i in range(4)
    ]
    manifest = folder.parent / f"{folder.name}-{change}.csv"
    manifest.write_text("path,label,split\n" + "\n".join(lines) + "\n")
    text = (quick / "recipe.toml").read_text()
    text = text.replace(f'"{folder / "images"}"', f'"{manifest}"')
    (tmp_path / "recipe.toml").write_text(text)
    interrupted(tmp_path, tmp_path / "run", monkeypatch)
    if change == "labels":
        lines[36] = lines[36].replace(",9,", ",8,")  # both are test classes
    else:
        lines[:2] = lines[1::-1]
    manifest.write_text("path,label,split\n" + "\n".join(lines) + "\n")
    assert main(["fit", *arguments(tmp_path, tmp_path / "run")]) == 1
    assert "had another order, or other labels" in capsys.readouterr().err

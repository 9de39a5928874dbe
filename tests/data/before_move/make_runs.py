"""Write images, a finished and an interrupted run of them, and an export.

See README.md beside this.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import training.progress
from PIL import Image
from serving.models.saved_model import model_fingerprint
from serving.models.warm_up import read_warm_up_requests
from tfdml.embedder import load_embedder
from tfdml.saved_embedder import SavedEmbedder

from serving.__main__ import main as serving
from training.__main__ import main as training_command

RECIPE = """\
[data]
images = "data/manifest.csv"
[embedder]
image_size = 8
embedding_dimension = 4
widths = [2]
[loss]
k = 2
margin = 0.5
[pictures]
resize = 10
pad = true
[batches]
images_per_class = 3
classes_per_batch = 4
[fit]
steps = 4
steps_per_epoch = 2
learning_rate = 0.003
"""

PROXY_RECIPE = """\
[data]
images = "images"
test_fraction = 0.3
validation_fraction = 0.3
[embedder]
image_size = 8
embedding_dimension = 4
widths = [2]
pooling = "gem"
[loss]
name = "SoftTripleLoss"
scale = 10.0
[proxies]
centers_per_class = 2
center_penalty = 0.2
learning_rate_multiplier = 10.0
[pictures]
resize = 9
crop = "position"
[batches]
images_per_class = 2
classes_per_batch = 2
[augmentation]
shift = 0.1
[fit]
steps = 4
steps_per_epoch = 2
learning_rate = 0.003
schedule = "exponential"
decay_every = 2
decay_factor = 0.5
warmup_steps = 1
ema_momentum = 0.9
"""


def drawn(label: int, number: int, rows: int) -> np.ndarray:
    """Return an image of two halves, in shades of the two colors of a class."""
    colors = np.random.default_rng(label).integers(40, 216, (2, 3))
    shade = np.random.default_rng([label, number]).integers(-40, 40, 3)
    row = (colors + shade).astype("uint8").repeat(4, axis=0)
    return np.stack([row] * rows)


def write_images() -> None:
    """Write a manifest of boxes on three images, and a folder of images."""
    Path("data").mkdir()
    lines = ["path,label,split,x,y,width,height"]
    splits = {"train": range(4), "validation": range(4, 7), "test": range(7, 9)}
    for split, labels in splits.items():
        boxes = [
            (label, number)
            for label in labels
            for number in range(10 if split == "validation" else 3)
        ]
        sheet = np.concatenate([drawn(*box, rows=8) for box in boxes])
        Image.fromarray(sheet).save(f"data/{split}.png", optimize=True)
        lines += [
            f"{split}.png,class-{label},{split},0,{8 * place},8,8"
            for place, (label, _) in enumerate(boxes)
        ]
    Path("data/manifest.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for label in range(7):
        Path(f"images/class-{label}").mkdir(parents=True)
        for number in range(2):
            image = Image.fromarray(drawn(label, number, rows=10))
            image.save(f"images/class-{label}/{number}.png", optimize=True)


def files() -> list[Path]:
    """Return all images of the folder, sorted."""
    return sorted(Path("images").glob("*/*.png"))


def pixels() -> np.ndarray:
    """Return them as an embedder of 8 x 8 pixels takes them."""
    return np.stack([np.asarray(Image.open(file))[1:9] for file in files()])


def check(code: int, expected: int = 0) -> None:
    """End where a command has failed."""
    if code != expected:
        sys.exit(f"A command ended with {code}, not {expected}.")


def save_embeddings(run: str, file: str) -> None:
    """Write what the embedder of a run makes of the images."""
    embedder = load_embedder(f"{run}/embedder.keras")
    np.save(file, embedder.predict(pixels(), verbose=0))


def make_runs() -> None:
    """Write a finished run, with threshold and evaluation, and an interrupted one."""
    for name, recipe in (("run", RECIPE), ("interrupted", PROXY_RECIPE)):
        Path(f"{name}.toml").write_text(recipe, encoding="utf-8")
    check(training_command(["fit", "run.toml", "--run", "run"]))
    check(training_command(["calibrate", "run", "--false-positive-rate", "0.4"]))
    check(training_command(["evaluate", "run", "--keep-embeddings"]))
    save_embeddings("run", "run_embeddings.npy")
    # Nothing reads a page; `python -m training report` writes it from the rest.
    Path("run/report.html").unlink()
    Path("run/evaluation/report.html").unlink()

    # What the interrupted run is to end with.
    check(training_command(["fit", "interrupted.toml", "--run", "whole"]))
    Path("whole/history.json").rename("interrupted_history.json")
    save_embeddings("whole", "interrupted_embeddings.npy")
    shutil.rmtree("whole")

    def stop(self: object, number: int, logs: object = None) -> None:
        if number == 1:
            raise KeyboardInterrupt

    training.progress.Progress.on_epoch_begin = stop
    arguments = ["fit", "interrupted.toml", "--run", "interrupted"]
    check(training_command(arguments), 130)


def make_export() -> None:
    """Export the run, with a signature of another type and warm-up requests."""
    folder = Path("export/model/1")
    arguments = ["export", "run", str(folder), "--output-dtype", "int8"]
    check(serving([*arguments, "--warm-up-count", "2"]))
    np.save("export/embeddings.npy", SavedEmbedder(folder).embed(pixels()))
    signatures = tf.saved_model.load(str(folder)).signatures
    data = tf.constant([file.read_bytes() for file in files()])
    found = signatures["serving_default"](image_bytes=data)["embedding"]
    np.save("export/embeddings_of_files.npy", found.numpy())
    known = {
        "fingerprint": model_fingerprint(folder),
        "signatures": sorted(signatures),
        "warm_up": len(read_warm_up_requests(folder)),
    }
    Path("export/expected.json").write_text(json.dumps(known) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_images()
    make_runs()
    make_export()

"""Two small towers, trained together on images of colors and captions of their classes.

The captions are made from the names of the classes, as of a folder `class/image`.
"""

from pathlib import Path

import keras
import numpy as np

from serving.export.exporting import export_run
from serving.search.gallery.indexing import index_images
from tests.support.search_fixtures import PURE, SHADES, SIZE, write_gallery_images
from tfdml.layers import L2Normalization
from tfdml.losses import PairwiseSigmoidLoss

TEMPLATES = ("{}", "a photo of {}", "something {}", "an image of the color {}")
DIMENSION = 8


def build_text_search(folder: Path) -> Path:
    """Write both towers (`run`), the model `words/1`, `images` and their `index`."""
    images, texts = train_towers()
    (folder / "run").mkdir()
    images.save(folder / "run" / "embedder.keras")
    texts.save(folder / "run" / "text.keras")
    export_run(
        folder / "run",
        folder / "words" / "1",
        text_tower=folder / "run" / "text.keras",
        warm_up_count=0,
    )
    write_gallery_images(folder / "images")
    index_images(folder / "images", folder / "index", folder / "words")
    return folder


def train_towers(steps: int = 150) -> tuple[keras.Model, keras.Model]:
    """Train both towers, and return that of the images and that of the texts."""
    keras.utils.set_random_seed(0)
    names = list(PURE)
    captions = [template.format(name) for name in names for template in TEMPLATES]
    image_tower, text_tower = _image_tower(), _text_tower(captions)
    images = np.stack(
        [
            np.broadcast_to(np.maximum(PURE[name], white), (SIZE, SIZE, 3))
            for name in names
            for white in SHADES.values()
        ]
    )
    texts = keras.Input((), dtype="string")
    pixels = keras.Input((SIZE, SIZE, 3))
    both = keras.Model(
        [pixels, texts], [image_tower(pixels), text_tower(texts)], name="towers"
    )
    labels = np.repeat(np.arange(3), len(SHADES)), np.repeat(np.arange(3), 4)
    return _fitted(both, images, captions, np.concatenate(labels), steps)


def _image_tower() -> keras.Model:
    pixels = keras.Input((SIZE, SIZE, 3), name="images")
    x = keras.layers.Rescaling(1 / 255)(pixels)
    x = keras.layers.AveragePooling2D(SIZE // 2)(x)
    x = keras.layers.Dense(DIMENSION)(keras.layers.Flatten()(x))
    return keras.Model(pixels, L2Normalization()(x), name="image_tower")


def _text_tower(captions: list[str]) -> keras.Model:
    words = keras.layers.TextVectorization(output_sequence_length=8)
    words.adapt(captions)
    texts = keras.Input((), dtype="string", name="texts")
    x = keras.layers.Embedding(words.vocabulary_size(), 16)(words(texts))
    x = keras.layers.Dense(DIMENSION)(keras.layers.GlobalAveragePooling1D()(x))
    return keras.Model(texts, L2Normalization()(x), name="text_tower")


def _fitted(both, images, captions, labels, steps):
    import tensorflow as tf

    loss, optimizer = PairwiseSigmoidLoss(5.0, bias=-2.5), keras.optimizers.Adam(0.02)
    inputs = [tf.constant(images, tf.float32), tf.constant(captions)]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            rows = tf.concat(both(inputs, training=True), axis=0)
            value = loss(labels, rows)
        weights = both.trainable_variables
        optimizer.apply(tape.gradient(value, weights), weights)

    optimizer.build(both.trainable_variables)
    for _ in range(steps):
        step()
    return both.get_layer("image_tower"), both.get_layer("text_tower")

"""A small SavedModel for tests of serving, made of plain TensorFlow."""

import io

import numpy as np
import tensorflow as tf
from PIL import Image


class _Example(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "image_bytes")])
    def embed(self, image_bytes):
        return {
            "embedding": tf.map_fn(
                _embed_one, image_bytes, fn_output_signature=tf.TensorSpec([4])
            )
        }

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.uint8, "images")])
    def embed_tensors(self, images):
        means = tf.reduce_mean(tf.cast(images, tf.float32), [1, 2]) / 255
        return {"embedding": tf.pad(means, [[0, 0], [0, 1]], constant_values=1)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64, "number"),
            tf.TensorSpec([None], tf.string, "text"),
        ]
    )
    def mixed(self, number, text):
        return {
            "third": tf.cast(number, tf.float64) / 3,
            "even": number % 2 == 0,
            "text": tf.strings.upper(text),
            "text_bytes": text,
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "packed")])
    def unpack(self, packed):
        return {"unpacked": tf.io.decode_compressed(packed, "GZIP")}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "values")])
    def total(self, values):
        return {"total": tf.reduce_sum(values)}


def _embed_one(encoded):
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image.set_shape([None, None, 3])
    mean = tf.reduce_mean(tf.image.resize(image, [8, 8]), [0, 1]) / 255
    return tf.concat([mean, [1.0]], 0)


def write_example_model(folder):
    """Write the model; `folder` is the folder of one version."""
    model = _Example()
    tf.saved_model.save(
        model,
        str(folder),
        signatures={
            "serving_default": model.embed,
            "tensors": model.embed_tensors,
            "mixed": model.mixed,
            "unpack": model.unpack,
            "total": model.total,
        },
    )


def png(red, green, blue):
    """Encode an image of 8 x 8 pixels of one color."""
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), (red, green, blue), np.uint8)).save(
        buffer, "PNG"
    )
    return buffer.getvalue()

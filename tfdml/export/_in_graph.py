"""Decode images in the TensorFlow graph, as training reads them."""

from tfdml.images import View

GRAPH_FORMATS = ("JPEG", "PNG", "GIF", "WebP", "BMP")
"""Formats that an exported model decodes; of GIF and WebP still images."""


def training_form(data, view: View):  # type: ignore[no-untyped-def]
    """Decode one image in the graph as `tfdml.images` does in Python.

    docs/images.md says how near the two are, and what the graph refuses.

    Args:
        data: Scalar string tensor.
        view: What the result shows of it.

    Returns:
        float32 `[size, size, 3]` of whole numbers from 0 to 255.
    """
    import tensorflow as tf

    image = tf.cond(
        tf.io.is_jpeg(data),
        # The default, a faster transform, differs from libjpeg's own by a level.
        lambda: tf.cast(
            tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"),
            tf.float32,
        ),
        lambda: _decode_other(data),
    )
    image.set_shape([None, None, 3])
    return tf.clip_by_value(tf.round(_central(image, view)), 0.0, 255.0)


def _central(image, view: View):  # type: ignore[no-untyped-def]
    """Do in the graph what `View.central` does."""
    import tensorflow as tf

    size = [view.image_size, view.image_size]
    if not view.resize:
        return tf.image.resize(image, size, "bilinear", antialias=True)
    shape = tf.shape(image, tf.int64)[:2]
    if view.pad:
        side = tf.reduce_max(shape)
        # Of the black bands, only what is in the filter of a pixel that shows some of
        # the image: a line of pixels would become a square that fills the memory.
        reach = 2 * (side // view.resize + 2)
        before = (side - shape) // 2
        kept = tf.minimum(before, reach)
        after = tf.minimum(side - shape - before, reach)
        bands = tf.concat([tf.stack([kept, after], axis=1), [[0, 0]]], axis=0)
        image = tf.pad(image, bands)
        # Where the image with its bands begins in the square.
        start = tf.cast(before - kept, tf.float32)
        resized = tf.fill([2], tf.constant(view.resize, tf.int64))
        scale = tf.fill([2], tf.cast(view.resize / side, tf.float32))
    else:
        start = tf.zeros([2])
        resized = view.resize * shape // tf.reduce_min(shape)
        scale = tf.cast(resized / shape, tf.float32)
    cut = tf.cast((resized - view.image_size) // 2, tf.float32)
    # The op behind tf.image.resize, which cannot cut.
    return tf.raw_ops.ScaleAndTranslate(
        images=image[tf.newaxis],
        size=size,
        scale=scale,
        translation=scale * start - cut,
        kernel_type="triangle",
        antialias=True,
    )[0]


def _decode_other(data):  # type: ignore[no-untyped-def]
    import tensorflow as tf

    header = tf.strings.substr(tf.strings.join([data, tf.fill([], "\0" * 34)]), 0, 34)

    def header_is(start: int, *values: bytes):  # type: ignore[no-untyped-def]
        field = tf.strings.substr(header, start, len(values[0]))
        return tf.reduce_any(tf.equal(field, list(values)))

    # decode_image reads the indices of a palette BMP as gray, without a word.
    is_bmp = header_is(0, b"BM")
    is_direct = header_is(28, b"\x18\0\0\0\0\0", b"\x20\0\0\0\0\0")
    # decode_image of TensorFlow 2.20 writes the RGBA frames of an animated WebP over
    # the end of an RGB buffer, which ends the process.
    flags = tf.bitwise.bitwise_and(
        tf.io.decode_raw(tf.strings.substr(header, 20, 1), tf.uint8)[0], 2
    )
    is_animated = header_is(8, b"WEBPVP8X") & tf.equal(flags, 2)
    checks = [
        tf.debugging.Assert(
            tf.logical_or(tf.logical_not(is_bmp), is_direct),
            ["A BMP must have 24 or 32 bits a pixel; send this image as PNG."],
        ),
        tf.debugging.Assert(
            tf.logical_not(is_animated),
            ["An animated WebP is not decoded; send this image as PNG."],
        ),
    ]
    with tf.control_dependencies(checks):
        image = tf.io.decode_image(data, channels=0, expand_animations=False)
    image.set_shape([None, None, None])
    image = tf.cast(image, tf.float32)
    channels = tf.shape(image)[2]
    is_even = tf.equal(channels % 2, 0)  # gray + alpha, RGB + alpha
    color = tf.cond(is_even, lambda: image[:, :, :-1], lambda: image)
    alpha = tf.cond(
        # The fourth byte of a BMP has no meaning.
        tf.logical_and(is_even, tf.logical_not(is_bmp)),
        lambda: image[:, :, -1:],
        lambda: tf.fill([1, 1, 1], 255.0),
    )
    color = tf.broadcast_to(color, [tf.shape(image)[0], tf.shape(image)[1], 3])
    return tf.round(color * (alpha / 255.0) + 255.0 * (1.0 - alpha / 255.0))

"""Build the networks of `keras.applications`."""

import difflib
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfdml.layers import ColorTransform
from tfdml.messages import shortened, shown
from tfdml.models._published_networks import PUBLISHED_NETWORKS

_USUAL = ("EfficientNetV2B0", "MobileNetV3Small", "ResNet50")


def application_names() -> list[str]:
    """Return the names of all networks."""
    return sorted(n for n in vars(keras.applications) if n[:1].isupper())


def unknown_backbone(name: str) -> ValueError:
    """Return the error of a backbone that is none at all."""
    known = application_names()
    near = difflib.get_close_matches(
        name[:100], [*PUBLISHED_NETWORKS, *known], cutoff=0.5
    )
    own = ", ".join(map(repr, ("residual", *PUBLISHED_NETWORKS)))
    return ValueError(
        f"`backbone` must be one of {own}, one of the networks of "
        f"keras.applications, such as {', '.join(near or _USUAL)}, a preset "
        "(keras_hub:NAME, hf://USER/NAME or a folder) or a .keras file. "
        f"Received: {shown(name)}."
    )


def application(
    name: str, image_size: int, weights: str | None
) -> tuple[ColorTransform, keras.Model]:
    """Build the preprocessing of a network and the network, with its weights.

    Args:
        name: One of `application_names`.
        image_size: Side of the images in pixels.
        weights: As Keras takes them.

    Raises:
        ValueError: The images are too small, or the weights cannot be loaded.
    """
    build = getattr(keras.applications, name)
    shape = (image_size, image_size, 3)
    try:
        network = build(include_top=False, weights=weights, input_shape=shape)
    except ValueError:
        raise
    except Exception as error:  # Keras raises this type when a download fails
        raise ValueError(
            f"`weights` of {name} cannot be downloaded: {shortened(error)}. Without "
            "internet give the path of a .weights.h5 file, or leave `weights` out for "
            f"random ones. Received: weights={shown(weights)}."
        ) from error
    # In the module of its network.
    return color_map(vars(inspect.getmodule(build))["preprocess_input"]), network


def color_map(preprocess: Callable[[np.ndarray], Any]) -> ColorTransform:
    """Return the layer that does what a function does with each color.

    Args:
        preprocess: An affine map of colors, RGB of 0 to 255. It is determined by its
            values at black and at the three pure colors.
    """
    probes = np.zeros((1, 1, 4, 3), dtype="float32")
    probes[0, 0, [1, 2, 3], [0, 1, 2]] = 255.0
    mapped = keras.ops.convert_to_numpy(preprocess(probes.copy())).reshape(4, 3)
    matrix = (mapped[1:] - mapped[0]) / 255.0
    return ColorTransform(matrix, mapped[0], name="preprocessing")

"""Load image backbones of KerasHub, with their preprocessing, for a size of images."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfdml.layers import ColorTransform
from tfdml.messages import nearest, shortened, shown
from tfdml.models._applications import color_map

PREFIX = "keras_hub:"


def hub_network(name: str, image_size: int) -> tuple[keras.Model, ColorTransform, int]:
    """Load a preset.

    Args:
        name: "keras_hub:" and what `from_preset` takes, or this alone.
        image_size: Side of the images in pixels. Position embeddings for another size
            are interpolated.

    Returns:
        The network from preprocessed images to features, the preprocessing, and how
        many tokens stand before those of the patches.

    Raises:
        ValueError: There is no such preset, it cannot be downloaded, it has no image
            backbone, or its network does not take images of this size.
        MissingPackageError: KerasHub is not installed.
    """
    converter, whole = loaded_preset(name)
    # Of a network for images and texts.
    tower = getattr(whole, "vision_encoder", None)
    tower = whole if tower is None else tower
    tower = image_network(tower, image_size, name)
    return tower, colors_of(converter, name), _leading_tokens(tower, image_size, name)


def loaded_preset(name: str) -> tuple[Any, keras.Model]:
    """Load the image converter and the backbone of a preset.

    Raises:
        ValueError, MissingPackageError: As `hub_network`.
    """
    import keras_hub

    preset = name.removeprefix(PREFIX)
    is_folder = os.path.isdir(preset)
    if not is_folder and "://" not in preset:
        _check_known(preset, keras_hub.layers.ImageConverter.presets)
    policy = keras.config.dtype_policy()
    try:
        # In half precision colors would be rounded. It comes before the weights, which
        # a preset of another kind need not download.
        keras.config.set_dtype_policy("float32")
        converter = keras_hub.layers.ImageConverter.from_preset(preset)
        keras.config.set_dtype_policy(policy)
        whole = keras_hub.models.Backbone.from_preset(preset)
    except MemoryError:
        raise
    except Exception as error:  # of keras_hub, kagglehub, huggingface_hub, h5py, json
        raise _unusable(name, is_folder, error) from error
    finally:
        keras.config.set_dtype_policy(policy)
    return converter, whole


def image_network(tower: keras.Model, image_size: int, name: str) -> keras.Model:
    """Return the image network of a preset, for images of a size.

    Raises:
        ValueError: It takes no images, or none of this size.
    """
    _check_image_network(tower, name)
    return _sized(tower, image_size, name)


def _check_known(preset: str, known: dict[str, Any]) -> None:
    if preset in known:
        return
    near = nearest(preset, known)
    hint = f" Did you mean {shown(PREFIX + near)}?" if near else ""
    raise ValueError(
        "`backbone` must name a preset of an image backbone in keras_hub, or a folder "
        f"that `save_to_preset` wrote. Received: {shown(PREFIX + preset)}.{hint}"
    )


def _unusable(name: str, is_folder: bool, error: Exception) -> ValueError:
    reason = f"{type(error).__name__}: {shortened(error, 120)}"
    if is_folder:
        return ValueError(
            "`backbone` must be a folder with an image backbone and its image "
            "converter, as `save_to_preset` of keras_hub writes them. Received: "
            f"{shown(name, 100)} ({reason})."
        )
    return ValueError(
        f"`backbone` cannot be downloaded ({reason}). Without internet, save the "
        "preset on another machine by `save_to_preset` and give its folder "
        f"(docs/backbones.md). Received: {shown(name, 100)}."
    )


def _check_image_network(tower: keras.Model, name: str) -> None:
    shapes = [tuple(tensor.shape) for tensor in tower.inputs]
    match shapes:
        case [(_, _, _, 3)] if len(tower.outputs) == 1:
            return
    raise ValueError(
        "`backbone` must name a preset of an image backbone, from images [batch, "
        f"height, width, 3] to one output. Received: {shown(name)}, a "
        f"{type(tower).__name__} with the inputs {shown(shapes)} and "
        f"{len(tower.outputs)} outputs."
    )


def _patch_size(tower: keras.Model) -> int | None:
    patch = tower.get_config().get("patch_size")
    return patch[0] if isinstance(patch, (tuple, list)) else patch


def _sized(tower: keras.Model, image_size: int, name: str) -> keras.Model:
    """Return the network for images of a size, in the precision of the global policy.

    Raises:
        ValueError: It cannot be built for it.
    """
    patch = _patch_size(tower)
    if patch and image_size % patch:
        raise ValueError(
            f"`image_size` must be divisible by the patch size of {shown(name)}, "
            f"{patch}. Received: image_size={image_size}."
        )
    config = tower.get_config()
    own = config.get("image_shape")
    dtype = keras.config.dtype_policy().name
    sides = {image_size} if own is None else set(own[:2])
    if sides <= {image_size, None} and tower.dtype_policy.name == dtype:
        return tower
    shape = (image_size, image_size, 3)
    try:
        resized = type(tower).from_config(
            {**config, "image_shape": shape, "dtype": dtype}
        )
        if "position_embedding_shape" in config:
            # Its layers interpolate what they load.
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "own_size.weights.h5")
                tower.save_weights(file)
                resized.load_weights(file)
        else:
            for old, new in zip(tower.weights, resized.weights, strict=True):
                new.assign(_fitted(old, new, (image_size // (patch or 1)) ** 2))
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise ValueError(
            f"`image_size` must be {own[0]}, that of {shown(name)}, whose network "
            f"cannot be resized ({shortened(error, 150)}). "
            f"Received: image_size={image_size}."
        ) from error
    return resized


def _fitted(old: keras.Variable, new: keras.Variable, patches: int) -> Any:
    """Return the value of a weight in a network for images of another size."""
    if "position_ids" in new.path:
        return np.arange(new.shape[-1]).reshape(new.shape)
    if tuple(old.shape) == tuple(new.shape):
        return old.value
    if "position" not in new.path or old.shape[-1] != new.shape[-1]:
        raise ValueError(f"{new.path} depends on the size")
    rows = keras.ops.convert_to_numpy(keras.ops.cast(old.value, "float32"))
    rows = rows.reshape(-1, rows.shape[-1])
    # Those of a class token come first.
    leading = new.shape[-2] - patches
    side, new_side = math.isqrt(len(rows) - leading), math.isqrt(patches)
    grid = rows[leading:].reshape(1, side, side, -1)
    grid = keras.ops.image.resize(
        grid,
        (new_side, new_side),
        interpolation="bicubic",
        antialias=True,
        data_format="channels_last",
    )
    grid = keras.ops.convert_to_numpy(grid).reshape(patches, -1)
    return np.concatenate([rows[:leading], grid]).reshape(new.shape)


def _leading_tokens(tower: keras.Model, image_size: int, name: str) -> int:
    shape = tower.outputs[0].shape
    if len(shape) != 3:
        return 0
    count, patch = shape[1], _patch_size(tower)
    patches = (image_size // patch) ** 2 if patch else count
    if patches <= count:
        return count - patches
    # Later stages of a hierarchical transformer have fewer tokens than patches.
    if math.isqrt(count) ** 2 == count:
        return 0
    raise ValueError(
        "`backbone` must end in a feature map, or in tokens of a square of patches. "
        f"Received: {shown(name)}, which ends in {count} tokens."
    )


def colors_of(converter: Any, name: str) -> ColorTransform:
    """Return what an image converter does with colors, as a layer.

    The view of the embedder has resized its images already.
    """
    converter.image_size = None
    layer = color_map(converter)
    colors = np.linspace(0, 255, 24, dtype="float32").reshape(1, 2, 4, 3)
    wanted = keras.ops.convert_to_numpy(converter(colors))
    received = np.asarray(colors @ layer.matrix + layer.offset)
    if wanted.shape == received.shape and np.allclose(wanted, received, atol=1e-3):
        return layer
    raise ValueError(
        "`backbone` must name a preset whose image converter scales and shifts colors "
        f"alone. Received: {shown(name)}, with a {type(converter).__name__}."
    )

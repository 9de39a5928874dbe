"""Find the network that a backbone names."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from tfdml.messages import shown
from tfdml.models._applications import (
    application,
    application_names,
    unknown_backbone,
)
from tfdml.models._hub_presets import PREFIX, hub_network
from tfdml.models._keras_file import gist, read_keras_file
from tfdml.models._published_networks import PUBLISHED_NETWORKS, published_network

_SCHEMES = (PREFIX, "hf://", "kaggle://", "modelscope://")


@dataclass(frozen=True)
class Backbone:
    """What an embedder has before its pooling.

    Args:
        name: What messages call it.
        model: From preprocessed images to features.
        preprocessing: From RGB of 0 to 255; None where the model does that itself.
        leading_tokens: As `pooled` takes it.
    """

    name: str
    model: keras.Model
    preprocessing: keras.Layer | None = None
    leading_tokens: int | None = 0

    def __call__(self, images: keras.KerasTensor) -> keras.KerasTensor:
        """Return the features of images.

        Raises:
            ValueError: The network cannot take images of this size.
        """
        x = images if self.preprocessing is None else self.preprocessing(images)
        # Some take their one input by its name.
        inputs = keras.tree.map_structure(lambda _: x, self.model.input)
        try:
            return self.model(inputs)
        except ValueError as error:
            raise ValueError(
                "`image_size` must be one that the backbone takes "
                f"({gist(error)}). Received: image_size={images.shape[1]} with the "
                f"backbone {shown(self.name)}."
            ) from error


def find_backbone(name: str, image_size: int, weights: str | None) -> Backbone:
    """Build or load a backbone.

    Args:
        name: As `build_embedder` takes it, but for "residual".
        image_size: Side of the images in pixels.
        weights: As `build_embedder` takes them.

    Raises:
        ValueError: The name is unknown, or there is no such network for such images.
    """
    if name in PUBLISHED_NETWORKS:
        preprocessing, model = published_network(name, image_size, weights)
        return Backbone(name, model, preprocessing)
    if name in application_names():
        preprocessing, model = application(name, image_size, weights)
        return Backbone(name, model, preprocessing)
    is_file = name.endswith(".keras")
    if not (is_file or name.startswith(_SCHEMES) or os.path.isdir(name)):
        raise unknown_backbone(name)
    if weights is not None:
        raise ValueError(
            "`weights` must be None with a preset or a .keras file, which brings its "
            f"own. Received: weights={shown(weights)} with {shown(name)}."
        )
    if is_file:
        return Backbone(name, _own_network(name, image_size), leading_tokens=None)
    model, preprocessing, leading_tokens = hub_network(name, image_size)
    return Backbone(name, model, preprocessing, leading_tokens)


def _own_network(name: str, image_size: int) -> keras.Model:
    model = read_keras_file(Path(name), "`backbone`", "model.save")
    inputs = list(getattr(model, "inputs", None) or [])
    outputs = list(getattr(model, "outputs", None) or [])
    shapes: list[tuple[Any, ...]] = [tuple(tensor.shape) for tensor in inputs]
    match shapes:
        case [(_, height, width, 3)] if len(outputs) == 1:
            pass
        case _:
            raise ValueError(
                "`backbone` must be a functional or sequential model from images "
                "[batch, height, width, 3] to one output. Received: "
                f"{shown(name)}, with the inputs {shown(shapes)} and "
                f"{len(outputs)} outputs."
            )
    if {height, width} - {None, image_size}:
        raise ValueError(
            f"`image_size` must be that of the backbone {shown(name)}, {height} x "
            f"{width} pixels. Received: image_size={image_size}."
        )
    if len(outputs[0].shape) not in (2, 3, 4):
        raise ValueError(
            "`backbone` must end in a feature map [batch, height, width, channels], "
            "tokens [batch, tokens, channels] or vectors [batch, channels]. Received: "
            f"{shown(name)}, which ends in {shown(tuple(outputs[0].shape))}."
        )
    return model

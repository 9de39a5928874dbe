"""Convert the weights of a network from a file of PyTorch to one of Keras."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np

from tfdml._core.arguments import one_of
from tfdml.files import make_folder, short_names, written
from tfdml.messages import cut, shortened, shown
from tfdml.models._published_networks import PUBLISHED_NETWORKS, layers_of

_ENDING = ".weights.h5"

# Variables of a layer of Keras, and what PyTorch calls them.
_NAMES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


@short_names()
def convert_weights(
    source: str | PathLike[str], target: str | PathLike[str], *, backbone: str
) -> None:
    """Convert published weights for `build_embedder(..., weights=target)`.

    The weights of the top, behind the feature maps, are left out.

    Args:
        source: The published file: `.safetensors`, or what `torch.save` wrote, which
            needs torch (`pip install "tfdml[torch]"`). No code in it is run.
        target: The file to write, which ends in `.weights.h5`. One that is there is
            replaced.
        backbone: `"bn_inception"` (published as bn_inception-52deb4733.pth by Cadene's
            pretrained-models.pytorch), `"googlenet"` (googlenet-1378be20.pth by
            torchvision) or `"resnet34"` (resnet34-b627a593.pth by torchvision).

    Raises:
        ValueError: `backbone` or `target` is another, or `source` does not hold the
            weights of this network.
        OSError: `source` cannot be read, or `target` cannot be written.
    """
    one_of("backbone", backbone, tuple(PUBLISHED_NETWORKS))
    target = Path(target)
    if not target.name.endswith(_ENDING):
        raise ValueError(
            f"`target` must end in {_ENDING}. Received: {shown(str(target))}."
        )
    source = Path(source)
    arrays = _arrays(source)
    network = layers_of(backbone, 64)
    about = PUBLISHED_NETWORKS[backbone]
    misfit = _misfit(network, arrays, about.top)
    if misfit:
        raise ValueError(
            f"`source` must hold the weights of {backbone}, as {about.file} does. "
            f"Received: {shown(str(source))}, {misfit}."
        )
    make_folder(target.parent)
    with written(target) as new, TemporaryDirectory(dir=target.parent) as folder:
        # Keras wants this ending.
        whole = Path(folder, f"whole{_ENDING}")
        network.save_weights(whole)
        whole.replace(new)


def _arrays(source: Path) -> dict[str, Any]:
    """Read a file into arrays by their names.

    Raises:
        ValueError: It holds none.
        OSError: It cannot be read.
    """
    source.open("rb").close()  # with an error that names the file
    read = _read_safetensors if source.suffix == ".safetensors" else _read_torch
    try:
        return read(source)
    except (MemoryError, OSError, ImportError):
        raise
    except Exception as error:  # pickle and torch raise many types
        raise ValueError(
            "`source` must be a .safetensors file or a state dict that `torch.save` "
            f"wrote. Received: {shown(str(source))} ({shortened(error)})."
        ) from error


def _read_safetensors(source: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(source))


def _read_torch(source: Path) -> dict[str, Any]:
    import torch

    state = torch.load(source, map_location="cpu", weights_only=True)
    return {name: tensor.numpy() for name, tensor in state.items()}


def _misfit(
    network: keras.Model, arrays: Mapping[str, Any], top: tuple[str, ...]
) -> str:
    """Give a network its weights, and return what does not fit, empty if all does."""
    left = {name for name in arrays if not name.startswith(top)}
    by_variable = {name.replace(".", "_"): name for name in left}
    for layer in network.layers:
        for variable in layer.variables:
            name = by_variable.get(f"{layer.name}_{_NAMES[variable.name]}")
            if name is None:
                return f"which lacks the {_NAMES[variable.name]} of {layer.name}"
            values = np.asarray(arrays[name])
            shape = values.shape
            if len(shape) == 4:
                values = values.transpose(2, 3, 1, 0)
            elif shape == (1, *variable.shape):
                values = values[0]  # as in the file of BN-Inception
            if values.shape != tuple(variable.shape):
                return f"whose {cut(name)} has the shape {shape}"
            if not np.isfinite(values).all():
                return f"whose {cut(name)} is not finite"
            variable.assign(values)
            left.discard(name)
    left = {name for name in left if not name.endswith(".num_batches_tracked")}
    return f"which also has {cut(min(left))}" if left else ""

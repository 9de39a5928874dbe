"""Read what TF Serving's metadata say about a model."""

from dataclasses import dataclass
from typing import Any

from tfdml.images import View
from tfdml.model_version import DESCRIBE, TEXT_SIGNATURE

DEFAULT = "serving_default"
"""Name of the signature that embeds images."""

OUTPUT = "embedding"
"""Name of the output that is taken of several."""


@dataclass(frozen=True)
class ModelMetadata:
    """What the endpoint says about its model; None where it does not say.

    Attributes:
        name: Name of the model.
        version: Number of its version.
        image_size: Side of the square that the network sees, in pixels.
        dimension: Length of an embedding.
        view: What it sees of an image.
        input_name: Name of the input that takes encoded images.
        is_described: Whether it can be asked for its description.
        fingerprint: SHA-256 of its graph and weights.
        has_text: Whether it embeds texts, too.
    """

    name: str
    version: int | None
    image_size: int | None
    dimension: int | None
    view: View | None
    input_name: str
    is_described: bool = False
    fingerprint: str | None = None
    has_text: bool = False


def parse_metadata(reply: dict[str, Any]) -> ModelMetadata:
    """Read the metadata of an embedder.

    Args:
        reply: TF Serving's metadata, as its JSON.

    Returns:
        What it says.

    Raises:
        ValueError: The model does not take encoded images.
    """
    spec = _member(reply, "model_spec")
    version = str(spec.get("version", ""))
    signatures = _member(reply, "metadata", "signature_def", "signature_def")
    inputs = _member(signatures, DEFAULT, "inputs")
    kinds = [_member(inputs, name).get("dtype") for name in inputs]
    if kinds != ["DT_STRING"]:
        raise ValueError(
            "the model must take encoded images (one input of type DT_STRING in "
            f"`serving_default`), its metadata lists {kinds or 'none'}"
        )
    pixels = _dims(signatures, "tensors", "inputs", "images")
    output = _dims(signatures, DEFAULT, "outputs", OUTPUT)
    is_square = len(pixels) == 4 and pixels[1] == pixels[2]
    size = pixels[1] if is_square else None
    return ModelMetadata(
        name=str(spec.get("name", "")),
        version=int(version) if version.isdigit() else None,
        image_size=size,
        dimension=output[1] if len(output) == 2 else None,
        view=None if size is None else View.of_signatures(signatures, size),
        input_name=next(iter(inputs)),
        is_described=DESCRIBE in signatures,
        has_text=TEXT_SIGNATURE in signatures,
    )


def _dims(signatures: dict[str, Any], *way: str) -> list[int | None]:
    dims = _member(signatures, *way, "tensor_shape").get("dim", [])
    if not isinstance(dims, list):
        return []
    sizes = [str(_member({"dim": dim}, "dim").get("size", "")) for dim in dims]
    return [int(size) if size.isdigit() and int(size) else None for size in sizes]


def _member(value: Any, *way: str) -> dict[str, Any]:
    for name in way:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}

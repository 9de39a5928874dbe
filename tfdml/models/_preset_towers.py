"""Load both towers of a preset of KerasHub: images and texts in one space."""

from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from tfdml._core.arguments import whole
from tfdml.layers import L2Normalization
from tfdml.messages import shortened, shown
from tfdml.models._hub_presets import colors_of, image_network, loaded_preset

if TYPE_CHECKING:
    from tfdml.images import View

_PROBES = ["A photo of a red shoe, and more words than fit. " * 40, "", "Grün!"]


class Towers(NamedTuple):
    """Two towers that were trained together.

    Attributes:
        images: Embedder from `[batch, size, size, 3]`, RGB of 0 to 255, to rows of
            length 1, `[batch, dimension]`.
        texts: Text tower from strings `[batch]` to rows of length 1, with its
            tokenizer.
        view: What the preset sees of an image.
    """

    images: keras.Model
    texts: keras.Model
    view: "View"


def load_towers(preset: str, image_size: int) -> Towers:
    """Load both towers of a preset of SigLIP or CLIP in KerasHub, as they are.

    `tfdml.export.export_embedder(towers.images, folder, towers.view,
    text=towers.texts)` writes a model for text-to-image search, without any training.
    The texts are split by TensorFlow Text, which servers need beside TensorFlow.

    Args:
        preset: As `backbone` of `build_embedder`: `"keras_hub:NAME"`,
            `"hf://USER/NAME"`, or the folder of a preset that has its tokenizer.
        image_size: Side of the images in pixels. Position embeddings for another size
            than the preset's are interpolated.

    Returns:
        The towers.

    Raises:
        RuntimeError: Keras does not run on TensorFlow.
        ValueError: There is no such preset, it has no two towers or no tokenizer, or
            its network does not take images of this size.
        MissingPackageError: KerasHub is not installed.
    """
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "A text tower needs Keras on TensorFlow: set KERAS_BACKEND=tensorflow "
            f"before Python starts. Received: {keras.backend.backend()}."
        )
    if not isinstance(preset, str):
        raise ValueError(
            f"`preset` must be the name of a preset. Received: {shown(preset)}."
        )
    # Who wants networks alone needs none of the packages that read images.
    from tfdml.images import View

    whole("image_size", image_size, 8)
    converter, backbone = loaded_preset(preset)
    network = getattr(backbone, "vision_encoder", None)
    if network is None or not hasattr(backbone, "get_text_embeddings"):
        raise ValueError(
            "`preset` must name a preset with an image and a text tower, of SigLIP or "
            f"CLIP. Received: {shown(preset)}, a {type(backbone).__name__}."
        )
    resized = getattr(converter, "crop_to_aspect_ratio", False)
    view = View(image_size, resize=image_size if resized else 0)
    texts = _text_tower(preset, backbone)
    network = image_network(network, image_size, preset)
    pixels = keras.Input((image_size, image_size, 3), name="images", dtype="float32")
    colored = colors_of(converter, preset)(pixels)
    rows = network(dict.fromkeys(network.input, colored))
    if hasattr(backbone, "vision_projection"):  # CLIP
        rows = backbone.vision_projection(backbone.vision_pooler(rows))
    images = keras.Model(pixels, L2Normalization()(rows), name="image_tower")
    return Towers(images, texts, view)


def _text_tower(preset: str, backbone: keras.Model) -> keras.Model:
    import keras_hub

    kind = type(backbone).__name__.removesuffix("Backbone")
    kinds = {
        "SigLIP": keras_hub.models.SigLIPPreprocessor,
        "CLIP": keras_hub.models.CLIPPreprocessor,
    }
    if kind not in kinds:
        raise ValueError(
            "`preset` must name a preset of SigLIP or CLIP. Received: "
            f"{shown(preset)}, a {type(backbone).__name__}."
        )
    try:
        name = preset.removeprefix("keras_hub:")
        preprocessor = kinds[kind].from_preset(name)
        preprocessor.build(None)
        tokens = _Tokens(preprocessor)
        _check_tokens(tokens, preprocessor)
    except MemoryError:
        raise
    except Exception as error:  # of keras_hub, kagglehub, json, sentencepiece
        raise ValueError(
            "`preset` must have a tokenizer that works in a graph of TensorFlow, as "
            "`save_to_preset` of its preprocessor writes it. Received: "
            f"{shown(preset, 80)} ({type(error).__name__}: {shortened(error, 120)})."
        ) from error
    texts = keras.Input((), dtype="string", name="texts")
    rows = backbone.get_text_embeddings(tokens(texts))
    return keras.Model(texts, L2Normalization()(rows), name="text_tower")


class _Tokens(keras.layers.Layer):
    """Splits texts into tokens as a preprocessor of KerasHub does, in the graph.

    The preprocessor itself wants images, too.
    """

    def __init__(self, preprocessor: Any) -> None:
        super().__init__(dtype="int32")
        self.preprocessor = preprocessor

    def compute_output_spec(self, texts: Any) -> Any:
        shape = texts.shape[0], self.preprocessor.sequence_length
        return keras.KerasTensor(shape, "int32")

    def call(self, texts: Any) -> Any:
        import tensorflow as tf

        own = self.preprocessor
        if getattr(own, "canonicalize_text", False):
            texts = own.canonicalize_inputs(texts)
        if getattr(own, "to_lower", False):
            texts = tf.strings.lower(texts)
        tokens, _ = own.packer(
            own.tokenizer(texts),
            sequence_length=own.sequence_length,
            add_start_value=own.add_start_token,
            add_end_value=own.add_end_token,
        )
        return tokens


def _check_tokens(tokens: _Tokens, preprocessor: Any) -> None:
    """Check that texts are split as the preprocessor does it."""
    import tensorflow as tf

    converter, preprocessor.image_converter = preprocessor.image_converter, None
    images = np.zeros((len(_PROBES), 8, 8, 3), "float32")
    wanted = preprocessor({"prompts": _PROBES, "images": images})["token_ids"]
    preprocessor.image_converter = converter
    if not np.array_equal(tokens(tf.constant(_PROBES)), wanted):
        raise ValueError("its preprocessor splits texts in another way")

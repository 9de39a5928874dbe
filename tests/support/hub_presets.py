"""Small presets in the format of KerasHub, with random weights."""

from pathlib import Path

import numpy as np

SCALE, OFFSET = [0.017, 0.018, 0.019], [-2.1, -2.0, -1.8]
"""What their image converters do with colors."""

_TRANSFORMER = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8}
_TEXT = {
    "vocabulary_size": 9,
    "embedding_dim": 8,
    "hidden_dim": 8,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 8,
    "max_sequence_length": 4,
}


def write_preset(kind: str, folder: Path) -> Path:
    """Write a preset, of images of 16 pixels and patches of 4, and return its folder.

    Args:
        kind: "dinov2", "dinov3", "vit", "clip", "siglip" or "resnet"; or "text" for one
            without images.
        folder: Where it goes.
    """
    import keras_hub

    backbone, converter = _MAKERS[kind](keras_hub)
    rng = np.random.default_rng(0)
    for weight in backbone.weights:
        if "position_ids" in weight.path:  # of published weights, not of random ones
            weight.assign(np.arange(weight.shape[-1])[None])
        elif "float" in weight.dtype and "variance" not in weight.path:
            weight.assign(weight + rng.normal(0, 0.1, weight.shape))
    backbone.save_to_preset(folder)
    if converter is not None:
        made = converter(
            image_size=(16, 16), scale=SCALE, offset=OFFSET, interpolation="bicubic"
        )
        made.save_to_preset(folder)
    return folder


TEXTS = ["A photo of red!", "", "blue shoe " * 9]
"""Texts for the tokenizers of `write_towers_preset`."""


def write_towers_preset(kind: str, folder: Path) -> Path:
    """Write a preset of both towers with their tokenizer, and return its folder.

    Args:
        kind: "clip" or "siglip".
        folder: Where it goes.
    """
    import keras_hub as hub

    if kind == "clip":
        letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
        words = ["<|startoftext|>", "<|endoftext|>", *letters]
        words += [f"{letter}</w>" for letter in letters] + [
            "re",
            "red</w>",
            "!",
            "!</w>",
        ]
        tokenizer = hub.models.CLIPTokenizer(
            vocabulary={word: row for row, word in enumerate(words)},
            merges=["r e", "re d</w>"],
        )
        preprocessor = hub.models.CLIPPreprocessor
    else:
        tokenizer = hub.models.SigLIPTokenizer(proto=_sentence_pieces())
        preprocessor = hub.models.SigLIPPreprocessor
    size = {"vocabulary_size": tokenizer.vocabulary_size(), "max_sequence_length": 8}
    kept = dict(_TEXT)
    try:
        _TEXT.update(size)
        write_preset(kind, folder)
    finally:
        _TEXT.clear()
        _TEXT.update(kept)
    preprocessor(tokenizer, sequence_length=8).save_to_preset(folder)
    converter = _MAKERS[kind](hub)[1]
    made = converter(image_size=(16, 16), scale=SCALE, offset=OFFSET)
    made.save_to_preset(folder)
    return folder


def _sentence_pieces() -> bytes:
    import io

    import sentencepiece

    written = io.BytesIO()
    text = "a photo of red green blue something image the color shoe boot"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text] * 50),
        model_writer=written,
        vocab_size=24,
        hard_vocab_limit=False,
        pad_id=0,
        bos_id=-1,
        eos_id=1,
        unk_id=2,
        minloglevel=2,
    )
    return written.getvalue()


def _dinov2(hub):
    backbone = hub.models.DINOV2Backbone(
        patch_size=4,
        intermediate_dim=16,
        num_register_tokens=2,
        image_shape=(16, 16, 3),
        position_embedding_shape=(24, 24, 3),
        **_TRANSFORMER,
    )
    return backbone, hub.layers.DINOV2ImageConverter


def _dinov3(hub):
    backbone = hub.models.DINOV3Backbone(
        patch_size=4,
        intermediate_dim=16,
        num_register_tokens=1,
        image_shape=(16, 16, 3),
        **_TRANSFORMER,
    )
    return backbone, hub.layers.DINOV3ImageConverter


def _vit(hub):
    backbone = hub.models.ViTBackbone((16, 16, 3), 4, mlp_dim=16, **_TRANSFORMER)
    return backbone, hub.layers.ViTImageConverter


def _clip(hub):
    backbone = hub.models.CLIPBackbone(
        hub.models.CLIPVisionEncoder(
            4, intermediate_dim=16, image_shape=(16, 16, 3), **_TRANSFORMER
        ),
        hub.models.CLIPTextEncoder(**_TEXT),
        projection_dim=6,
    )
    return backbone, hub.layers.CLIPImageConverter


def _siglip(hub):
    backbone = hub.models.SigLIPBackbone(
        hub.models.SigLIPVisionEncoder(
            4, intermediate_dim=16, image_shape=(16, 16, 3), **_TRANSFORMER
        ),
        hub.models.SigLIPTextEncoder(**_TEXT),
    )
    return backbone, hub.layers.SigLIPImageConverter


def _resnet(hub):
    backbone = hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64],
        stackwise_num_blocks=[1],
        stackwise_num_strides=[1],
        block_type="basic_block",
        image_shape=(None, None, 3),
    )
    return backbone, hub.layers.ResNetImageConverter


def _text(hub):
    backbone = hub.models.BertBackbone(
        vocabulary_size=9,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        max_sequence_length=4,
    )
    return backbone, None


_MAKERS = {
    "dinov2": _dinov2,
    "dinov3": _dinov3,
    "vit": _vit,
    "clip": _clip,
    "siglip": _siglip,
    "resnet": _resnet,
    "text": _text,
}

"""Build and load embedders, which map an image to a vector."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import keras
from keras import layers

from tfdml._core.arguments import at_least_zero, boolean, fraction, one_of, whole
from tfdml._core.embedding_part import ANY_LENGTH, embedding_part
from tfdml.files import short_names
from tfdml.layers import DividedEmbedding, L2Normalization
from tfdml.messages import shown
from tfdml.models._backbone import find_backbone
from tfdml.models._keras_file import read_keras_file
from tfdml.models._large_batch import LargeBatch
from tfdml.models._pooling import POOLINGS, pooled
from tfdml.models._tuning import LORA_LAYERS, TUNINGS, fix_positions, tune


def build_embedder(
    image_size: int,
    embedding_dimension: int = 128,
    *,
    backbone: str = "residual",
    weights: str | None = None,
    pooling: str = "average",
    widths: Sequence[int] = (32, 64, 128, 256),
    blocks: int = 1,
    stem_stride: int = 2,
    dropout: float = 0.0,
    unit_length: bool = True,
    learners: Sequence[int] = (),
    diversity: float = 0.0,
    adversary: int = 0,
    weight_penalty: float = 100.0,
    tuning: str = "whole",
    lora_rank: int = 8,
    lora_layers: str = "attention",
) -> keras.Model:
    """Build an embedder: preprocessing, backbone, pooling, dense, unit length.

    Args:
        image_size: Side of the square input in pixels, at least 8.
        embedding_dimension: Length of the embedding, at least 1.
        backbone: `"residual"`, a small residual network for training from scratch;
            `"bn_inception"`, `"googlenet"` or `"resnet34"`, as their weights are
            published for PyTorch; the name of a class or function in
            `keras.applications`, such as `"MobileNet"`; a preset of an image backbone
            in KerasHub, `"keras_hub:dinov2_small"`, `"hf://USER/NAME"` or a folder
            that `save_to_preset` wrote, which needs the extra `hub`; or a `.keras`
            file of a network that takes RGB of 0 to 255 itself. All but the last come
            with the preprocessing that their weights were trained with. A network for
            another image size gets interpolated position embeddings.
        weights: `None` for random ones, `"imagenet"` (downloaded by Keras; for
            `keras.applications` only), or the path of a `.weights.h5` file for the
            backbone without its top, such as `convert_weights` writes. A preset and a
            `.keras` file bring their own.
        pooling: How the last feature map is reduced to a vector: its `"average"`, its
            `"max"`, `"average_and_max"` (their sum, as in Proxy-Anchor's code),
            `"gem"` (the generalized mean, whose exponent is trained), or `"flatten"`,
            which preserves positions: suitable for aligned images, such as packshots
            and drawings. The patch tokens of a transformer are such a map. `"token"`
            takes its class token in place of them, or the vector that the backbone has
            pooled itself (SigLIP).
        widths: Channels of each stage of the residual network; each stage after the
            first halves the resolution.
        blocks: Residual blocks per stage.
        stem_stride: Stride of the first convolution of the residual network.
        dropout: Share of the pooled features dropped in training, at least 0 and below
            1.
        unit_length: Whether embeddings are scaled to length 1, and compared by cosine
            similarity. With False they have any length, as the papers train them with
            the contrastive, lifted structure, N-pair and log-ratio losses, and are
            compared by squared Euclidean distance (`search_metric`). The loss must not
            scale them either (`normalize=False`).
        learners: Lengths of the parts of an ensemble, which add up to
            `embedding_dimension`: then a `DividedEmbedding` takes the place of the
            dense layer and the unit length. `BIERLoss` needs it. Empty: no ensemble.
        diversity: Weight of its activation or adversarial loss, at least 0; 0 without
            `learners`.
        adversary: Width of its adversaries, 0 for the activation loss; 0 without
            `diversity`.
        weight_penalty: Part of that loss, as in `DividedEmbedding`.
        tuning: Which weights of the backbone train: the `"whole"`; none, `"frozen"`;
            or none but small additions to its kernels, `"lora"`: W + A B of rank
            `lora_rank`, where B is 0 at first. Keras adds them to the kernels when the
            embedder is saved.
        lora_rank: Rank of these additions, at least 1.
        lora_layers: `"attention"`: the query and value projections, as in the paper;
            `"all"`: all dense and convolutional layers but depthwise ones.

    Returns:
        Model from `images` `[batch, image_size, image_size, 3]`, RGB of 0 to 255, to
        float32 vectors `[batch, embedding_dimension]`, by default of length 1.

    Raises:
        ValueError: An argument is out of range, a name is unknown, or the weights
            cannot be loaded.
        MissingPackageError: KerasHub is not installed, and `backbone` is its preset.

    Reference:
        Ioffe and Szegedy, Batch Normalization: Accelerating Deep Network Training by
        Reducing Internal Covariate Shift, ICML 2015 (`"bn_inception"`).
        Szegedy, Liu, Jia, Sermanet, Reed, Anguelov, Erhan, Vanhoucke and Rabinovich,
        Going Deeper with Convolutions, CVPR 2015 (`"googlenet"`).
        He, Zhang, Ren and Sun, Deep Residual Learning for Image Recognition, CVPR 2016
        (`"resnet34"`).
        Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang and Chen, LoRA: Low-Rank Adaptation
        of Large Language Models, ICLR 2022 (`tuning="lora"`).

    Example:
        >>> embedder = build_embedder(32, 16, widths=(8, 16))
        >>> tuple(embedder(np.zeros((2, 32, 32, 3))).shape)
        (2, 16)
    """
    whole("image_size", image_size, 8)
    whole("embedding_dimension", embedding_dimension)
    one_of("pooling", pooling, POOLINGS)
    fraction("dropout", dropout)
    boolean("unit_length", unit_length)
    one_of("tuning", tuning, TUNINGS)
    whole("lora_rank", lora_rank)
    one_of("lora_layers", lora_layers, LORA_LAYERS)
    if not isinstance(backbone, str):
        raise ValueError(
            "`backbone` must be the name of a network, as text. "
            f"Received: {shown(backbone)}."
        )
    images = keras.Input((image_size, image_size, 3), name="images", dtype="float32")
    if backbone == "residual":
        if weights is not None:
            raise ValueError(
                "`weights` must be None with backbone='residual', which has no "
                f"published weights. Received: weights={shown(weights)}."
            )
        x = layers.Rescaling(1 / 127.5, offset=-1.0, name="preprocessing")(images)
        x = pooled(_residual_network(x, widths, blocks, stem_stride), pooling, backbone)
    else:
        network = find_backbone(backbone, image_size, weights)
        x = pooled(network(images), pooling, backbone, network.leading_tokens)
    if dropout:
        x = layers.Dropout(dropout, name="dropout")(x)
    if adversary and not diversity:
        raise ValueError(
            f"`adversary` must be 0 without `diversity`. Received: {shown(adversary)}."
        )
    if learners:
        head = DividedEmbedding(
            learners,
            diversity=diversity,
            adversary=adversary,
            weight_penalty=weight_penalty,
            name="embedding",
        )
        if sum(head.learners) != embedding_dimension or not unit_length:
            raise ValueError(
                "`learners` must add up to `embedding_dimension`, with unit length. "
                f"Received: learners={shown(learners)}, embedding_dimension="
                f"{embedding_dimension}, unit_length={unit_length}."
            )
        embedder = keras.Model(images, head(x), name="embedder")
        tune(embedder, tuning, lora_rank, lora_layers, backbone)
        return embedder
    if at_least_zero("diversity", diversity):
        raise ValueError(
            "`diversity` must be 0 without `learners`. "
            f"Received: diversity={diversity}."
        )
    x = layers.Dense(embedding_dimension, name="dense")(x)
    if unit_length:
        embedding = L2Normalization(name="embedding")(x)
    else:
        # The name says how rows are compared, also in a file of an embedder.
        embedding = layers.Activation("linear", dtype="float32", name=ANY_LENGTH)(x)
    embedder = keras.Model(images, embedding, name="embedder")
    tune(embedder, tuning, lora_rank, lora_layers, backbone)
    return embedder


@short_names()
def load_embedder(path: str | PathLike[str]) -> keras.Model:
    """Load an embedder from a `.keras` file, ready for inference or more training.

    Args:
        path: `.keras` file that `embedder.save` wrote.

    Returns:
        The model, not compiled, from `[batch, size, size, 3]` to `[batch, dimension]`,
        without a last layer `Proxies` or `ClassBoundaries`; of a `LargeBatch` its
        embedder.

    Raises:
        ValueError: The file does not exist, Keras cannot load it, or the model has
            other shapes: its input must be square, of known size and with 3 channels,
            its output one row per image.
        MissingPackageError: It has a backbone of KerasHub, which is not installed.
    """
    file = Path(path)
    model = read_keras_file(file, "`path`", "embedder.save")
    if isinstance(model, LargeBatch):
        model = model.embedder
    fix_positions(model)
    if len(getattr(model, "outputs", None) or ()) == 1:
        model = embedding_part(model, "Save the model that ends in the embeddings.")
    # A model that was never built has no shapes.
    shapes = [getattr(model, f"{end}_shape", None) for end in ("input", "output")]
    match shapes:
        case [(None, int(height), int(width), 3), (None, int())] if height == width:
            return model
    raise ValueError(
        "`path` must hold an embedder, from (None, size, size, 3) to (None, "
        f"dimension). Received: {shown(str(path))}, from {shown(shapes[0])} to "
        f"{shown(shapes[1])}."
    )


def _residual_network(
    x: keras.KerasTensor, widths: Sequence[int], blocks: int, stem_stride: int
) -> keras.KerasTensor:
    whole("blocks", blocks)
    whole("stem_stride", stem_stride)
    if not widths or min(widths) < 1:
        raise ValueError(
            "`widths` must have at least one stage, each of at least 1 channel. "
            f"Received: {tuple(widths)}."
        )
    x = _convolution(x, widths[0], max(3, stem_stride), stride=stem_stride)
    x = layers.ReLU()(x)
    for stage, width in enumerate(widths):
        for block in range(blocks):
            x = _block(x, width, stride=2 if stage > 0 and block == 0 else 1)
    return x


def _block(x: keras.KerasTensor, width: int, stride: int) -> keras.KerasTensor:
    """Append a basic block of He et al., Deep Residual Learning, CVPR 2016."""
    shortcut = x
    if stride > 1:
        # The average keeps what a strided 1 x 1 convolution would discard.
        shortcut = layers.AveragePooling2D(stride, padding="same")(shortcut)
    if shortcut.shape[-1] != width:
        shortcut = _convolution(shortcut, width, 1)
    x = _convolution(x, width, 3, stride=stride)
    x = layers.ReLU()(x)
    x = _convolution(x, width, 3)
    return layers.ReLU()(layers.Add()([x, shortcut]))


def _convolution(
    x: keras.KerasTensor, width: int, kernel: int, stride: int = 1
) -> keras.KerasTensor:
    x = layers.Conv2D(
        width,
        kernel,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
    )(x)
    # The default momentum of 0.99 lags behind in runs of a few hundred steps.
    return layers.BatchNormalization(momentum=0.9)(x)

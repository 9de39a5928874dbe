"""Build an embedder whose learners look through attention masks: ABE."""

import keras
from keras import layers

from tfdml._core.arguments import fraction, whole
from tfdml.layers import AttentionMasks, JoinedHeads
from tfdml.messages import shown
from tfdml.models._published_networks import published_network

_CUT = "inception4a_branch1_conv"  # the first layer behind the third pool
_AFTER = "inception5a_branch1_conv"  # the first layer behind the fourth


def build_attention_ensemble(
    image_size: int,
    embedding_dimension: int = 512,
    *,
    heads: int = 8,
    weights: str | None = None,
    dropout: float = 0.0,
) -> keras.Model:
    """Build the attention-based ensemble of Kim et al., ECCV 2018 (ABE), on GoogLeNet.

    GoogLeNet is cut behind its third pool, into S and G. Between them, each learner m
    multiplies the feature map by a mask of its own:

        B_m(x) = G(S(x) * A_m(S(x)))

    The masks come from one attention network, a copy of the blocks 4a to 4e without
    pools, and a 1 x 1 convolution for each learner. G and the dense layer behind it are
    shared. `ABELoss(heads)` trains it. An embedding takes about `heads` times as long
    as with GoogLeNet alone.

    Args:
        image_size: Side of the square input in pixels, at least 32.
        embedding_dimension: Length of the embedding, a multiple of `heads`.
        heads: Number of learners, at least 1.
        weights: `None` for random ones, or a `.weights.h5` file of `"googlenet"`, which
            `convert_weights` writes; the attention network begins with them too.
        dropout: Share of the pooled features dropped in training, at least 0 and below
            1.

    Returns:
        Model from `images` `[batch, image_size, image_size, 3]`, RGB of 0 to 255, to
        float32 vectors `[batch, embedding_dimension]` of length 1.

    Raises:
        ValueError: An argument is out of range, or the weights cannot be loaded.

    Example:
        >>> embedder = build_attention_ensemble(32, 8, heads=2)
        >>> embedder.output_shape
        (None, 8)

    Reference:
        Kim, Goyal, Chawla, Lee and Kwon, Attention-based Ensemble for Deep Metric
        Learning, ECCV 2018.
    """
    whole("image_size", image_size, 32)
    whole("heads", heads)
    if whole("embedding_dimension", embedding_dimension) % heads:
        raise ValueError(
            "`embedding_dimension` must be a multiple of `heads`. Received: "
            f"embedding_dimension={embedding_dimension}, heads={heads}."
        )
    fraction("dropout", dropout)
    if weights is not None and not isinstance(weights, str):
        raise ValueError(
            f"`weights` must be None or the path of a file. Received: {shown(weights)}."
        )
    preprocessing, network = published_network("googlenet", image_size, weights)
    _, other = published_network("googlenet", image_size, weights)
    cut = network.get_layer(_CUT).input
    spatial = keras.Model(network.input, cut, name="spatial")
    shared = keras.Model(cut, network.output, name="shared")
    pool = other.get_layer(_AFTER).input._keras_history.operation
    attention = keras.Model(other.get_layer(_CUT).input, pool.input, name="attention")

    images = keras.Input((image_size, image_size, 3), name="images", dtype="float32")
    maps = spatial(preprocessing(images))
    x = shared(AttentionMasks(heads, name="masks")([maps, attention(maps)]))
    x = layers.GlobalAveragePooling2D(name="pooling")(x)
    if dropout:
        x = layers.Dropout(dropout, name="dropout")(x)
    x = layers.Dense(embedding_dimension // heads, name="dense")(x)
    return keras.Model(images, JoinedHeads(heads, name="embedding")(x), name="embedder")

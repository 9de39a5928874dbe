"""Networks whose weights are published for PyTorch, and the conversion of these."""

import keras
import numpy as np
import pytest

from tests.support.published_weights import GOLDENS, drawn_images, drawn_weights
from tfdml.models import build_embedder, convert_weights, load_embedder

pytestmark = pytest.mark.backend


def write(folder, arrays, *, by_torch=False):
    """Write weights as they are published, and return the path."""
    if by_torch:
        torch = pytest.importorskip("torch")
        path = folder / "published.pth"
        tensors = {name: torch.from_numpy(v) for name, v in arrays.items()}
        # The published files are older than zip archives in PyTorch.
        torch.save(tensors, path, _use_new_zipfile_serialization=False)
        return path
    numpy = pytest.importorskip("safetensors.numpy")
    path = folder / "published.safetensors"
    numpy.save_file(arrays, path)
    return path


def published(backbone):
    """Return weights in the published format."""
    arrays = drawn_weights(GOLDENS[backbone]["shapes"])
    if backbone == "bn_inception":
        # Its file was written before PyTorch 0.4.
        arrays = {
            name: values[None] if "_bn." in name and values.ndim else values
            for name, values in arrays.items()
            if not name.endswith("num_batches_tracked")
        }
    return arrays


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return the weights of the smallest network, and a valid file of them."""
    arrays = published("googlenet")
    return arrays, write(tmp_path_factory.mktemp("published"), arrays)


# As https://github.com/osmr/imgclsmob lists it, and torchvision's pages.
PARAMETERS = {
    "bn_inception": 11_295_240,
    "googlenet": 6_624_904,
    "resnet34": 21_797_672,
}


@pytest.mark.slow
@pytest.mark.parametrize("by_torch", [False, True], ids=["safetensors", "torch"])
@pytest.mark.parametrize("backbone", GOLDENS)
def test_converted_weights_give_the_features_of_pytorch(backbone, by_torch, tmp_path):
    source = write(tmp_path, published(backbone), by_torch=by_torch)
    target = tmp_path / "made" / "weights.weights.h5"
    convert_weights(source, target, backbone=backbone)
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    embedder = build_embedder(100, 8, backbone=backbone, weights=str(target))
    embedder.save(tmp_path / "embedder.keras")
    embedder = load_embedder(tmp_path / "embedder.keras")
    pooled = embedder.get_layer("pooling").output
    features = keras.Model(embedder.inputs, pooled)
    received = features.predict(drawn_images().astype("float32"), verbose=0)
    expected = np.array(GOLDENS[backbone]["features"])
    np.testing.assert_allclose(received[:, ::16], expected, rtol=2e-4, atol=2e-4)
    variables = embedder.get_layer(backbone).trainable_variables
    top = (pooled.shape[1] + 1) * 1000
    count = sum(np.prod(variable.shape) for variable in variables) + top
    assert count == PARAMETERS[backbone] == GOLDENS[backbone]["parameters"]
    assert pooled.shape[1] == (512 if backbone == "resnet34" else 1024)


@pytest.mark.slow
def test_bn_inception_halves_odd_sides_too():
    """A block that halves 5 pixels, and the next 3: the published code fails there."""
    embedder = build_embedder(40, 4, backbone="bn_inception")
    embeddings = embedder.predict(np.zeros((1, 40, 40, 3), "float32"), verbose=0)
    assert np.isfinite(embeddings).all()


@pytest.mark.parametrize("weights", ["imagenet", "missing.weights.h5", "other.pth"])
def test_weights_that_cannot_be_loaded_are_answered_with_what_to_fetch(weights):
    with pytest.raises(ValueError, match=r"`weights` of googlenet must be") as raised:
        build_embedder(32, 4, backbone="googlenet", weights=weights)
    message = str(raised.value)
    assert "models/googlenet-1378be20.pth" in message
    assert "convert googlenet googlenet-1378be20.pth googlenet.weights.h5" in message
    assert f"Received: weights='{weights}'" in message
    assert len(message) <= 500


def test_image_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="`image_size` must be at least 32 with the"):
        build_embedder(31, 4, backbone="resnet34")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"conv1.conv.weight": None}, "which lacks the weight of conv1_conv"),
        (
            {"conv2.bn.bias": np.zeros(63, "float32")},
            r"whose conv2.bn.bias has the shape \(63,\)",
        ),
        (
            {"conv2.bn.bias": np.full(64, np.nan, "float32")},
            "whose conv2.bn.bias is not finite",
        ),
        ({"conv9.bias": np.zeros(1, "float32")}, "which also has conv9.bias"),
    ],
    ids=str,
)
def test_weights_of_another_network_are_refused(small, change, reason, tmp_path):
    arrays = {**small[0], **change}
    source = write(tmp_path, {n: v for n, v in arrays.items() if v is not None})
    target = tmp_path / "googlenet.weights.h5"
    with pytest.raises(
        ValueError, match=f"`source` must hold the weights of googlenet.*{reason}"
    ):
        convert_weights(source, target, backbone="googlenet")
    assert not target.exists()


def test_bad_files_and_names_are_refused(small, tmp_path):
    source, target = small[1], tmp_path / "googlenet.weights.h5"
    with pytest.raises(ValueError, match=r"`backbone` must be one of bn_inception, "):
        convert_weights(source, target, backbone="ResNet50")
    with pytest.raises(ValueError, match=r"`target` must end in \.weights\.h5.*\.h5'"):
        convert_weights(source, tmp_path / "googlenet.h5", backbone="googlenet")
    with pytest.raises(FileNotFoundError, match=r"none\.pth"):
        convert_weights(tmp_path / "none.pth", target, backbone="googlenet")
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(source.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"`source` must be a \.safetensors file or"):
        convert_weights(damaged, target, backbone="googlenet")
    assert not target.exists()

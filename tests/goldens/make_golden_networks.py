"""Record what published networks compute, into golden_networks.json beside it.

It runs in an environment of its own, from the root of the checkout:

    pip install torch==2.13.0 torchvision==0.28.0 pretrainedmodels==0.7.4
    python -m tests.goldens.make_golden_networks

Each network holds the names and shapes of its weights in the published file, the number
of its parameters without auxiliary heads, and every 16th mean feature of two images for
weights drawn by lot.
"""

import json

import numpy as np
import torch
from pretrainedmodels.models import bninception
from torchvision import models

from tests.support.published_weights import FILE, drawn_images, drawn_weights

EVERY = 16


def caffe_colors(images):
    """Preprocess as pretrainedmodels says of BN-Inception."""
    settings = bninception.pretrained_settings["bninception"]["imagenet"]
    assert settings["input_space"] == "BGR"
    assert settings["input_range"] == [0, 255]
    mean = torch.tensor(settings["mean"]).reshape(3, 1, 1)
    return images.flip(1) - mean


def scaled_colors(images):
    """Preprocess as torchvision says of all its networks."""
    preset = models.ResNet34_Weights.IMAGENET1K_V1.transforms()
    mean, deviation = torch.tensor(preset.mean), torch.tensor(preset.std)
    scaled = images / 255 - mean.reshape(3, 1, 1)
    return scaled / deviation.reshape(3, 1, 1)


def features_of(network, last, images):
    """Return the mean of each feature map before the pool, a row for each image."""
    maps = []
    getattr(network, last).register_forward_hook(
        lambda module, inputs, output: maps.append(output)
    )
    network(images)
    return maps[0].mean((2, 3)).numpy()


class BNInceptionFeatures(torch.nn.Module):
    """BN-Inception, which has a method for its feature maps."""

    def __init__(self):
        super().__init__()
        self.network = bninception.BNInception()
        self.maps = torch.nn.Identity()

    def forward(self, images):
        return self.maps(self.network.features(images))


def entry(network, weights_of, last, preprocess):
    shapes = {name: list(t.shape) for name, t in weights_of.state_dict().items()}
    drawn = {name: torch.from_numpy(v) for name, v in drawn_weights(shapes).items()}
    weights_of.load_state_dict(drawn)
    network.eval()
    images = torch.from_numpy(drawn_images()).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        features = features_of(network, last, preprocess(images))
    return {
        "shapes": shapes,
        "parameters": sum(
            values.numel()
            for name, values in weights_of.named_parameters()
            if not name.startswith("aux")
        ),
        "features": np.round(features[:, ::EVERY].astype(float), 6).tolist(),
    }


def main():
    features = BNInceptionFeatures()
    # The published file has the auxiliary heads, too.
    googlenet = models.googlenet(transform_input=True, init_weights=False)
    resnet34 = models.resnet34()
    entries = {
        "bn_inception": entry(features, features.network, "maps", caffe_colors),
        "googlenet": entry(googlenet, googlenet, "inception5b", scaled_colors),
        "resnet34": entry(resnet34, resnet34, "layer4", scaled_colors),
    }
    FILE.write_text(json.dumps(entries) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Read images with a torch DataLoader and torchvision, in an interpreter of its own.

Run by the peer's own interpreter: nothing of this library or of Keras is imported.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from PIL import Image
from torch import library as torch_operators

EPOCHS = 15


def main() -> None:
    """Print a JSON line for each way to do it: images a second, the best epoch."""
    parser = argparse.ArgumentParser(description="Read images with torchvision.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("size", type=int)
    parser.add_argument("resize", type=int)
    parser.add_argument("workers", type=int)
    options = parser.parse_args()
    v2 = _transforms()
    crops = {
        "position": [v2.Resize(options.resize), v2.RandomCrop(options.size)],
        "resized": [v2.RandomResizedCrop(options.size, scale=(0.16, 1.0))],
        "central": [v2.Resize(options.resize), v2.CenterCrop(options.size)],
    }
    files = sorted(options.folder.glob("*.jpg"))
    for name, steps in crops.items():
        ways = {
            "Pillow's resize": v2.Compose([*steps, v2.PILToTensor()]),
            "torch's resize": v2.Compose([v2.PILToTensor(), *steps]),
        }
        for way, transform in ways.items():
            rate = _images_a_second(_Files(files, transform), options.workers)
            print(json.dumps({"name": name, "way": way, "rate": rate}), flush=True)


class _Files(torch.utils.data.Dataset):
    def __init__(self, files, transform) -> None:  # type: ignore[no-untyped-def]
        self.files = files
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.files[index]) as image:
            return self.transform(image.convert("RGB"))


def _images_a_second(files: _Files, workers: int) -> float:
    loader = torch.utils.data.DataLoader(
        files, batch_size=64, num_workers=workers, persistent_workers=True
    )
    best = 0.0
    for _ in range(EPOCHS):
        start = time.perf_counter()
        count = sum(len(batch) for batch in loader)
        best = max(best, count / (time.perf_counter() - start))
    return best


def _transforms():  # type: ignore[no-untyped-def]
    """Import `torchvision.transforms.v2`.

    The wheel on PyPI is built for CUDA. Beside a torch for CPUs its operators do not
    load, and without a declaration of these two neither does the rest, which needs
    none of them.
    """
    try:
        from torchvision.transforms import v2
    except RuntimeError:
        operators = torch_operators.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(
                f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        from torchvision.transforms import v2

        v2.operators = operators  # declarations end with the object
    return v2


if __name__ == "__main__":
    main()

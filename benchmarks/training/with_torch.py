"""Measure the same training in PyTorch, with pytorch-metric-learning and torchvision.

Run by the peer's own interpreter: nothing of this library or of Keras is imported.
`python -m benchmarks.training.with_torch SETTINGS`
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.image_files import class_batches, image_files
from benchmarks.reading.with_torch import (
    Endless,
    Files,
    decodes_itself,
    torchvision,
    transform_of,
)
from benchmarks.rounds import steps_of, tell, tell_rounds
from benchmarks.training.settings import Settings

_BATCHES = 2000
_MEAN = (123.675, 116.28, 103.53)
_SPREAD = (58.395, 57.12, 57.375)


def main() -> None:
    settings = Settings.read(sys.argv[1])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    tell(
        "peer",
        torch=torch.__version__,
        device_of_peer=_name(device),
        decoder="torchvision.io" if decodes_itself() else "Pillow",
    )
    files = image_files(Path(settings.folder))
    batches = class_batches(
        files, settings.classes_per_batch, settings.images_per_class, _BATCHES
    )
    names = sorted({file.parent.name for file in files})
    classes = {name: number for number, name in enumerate(names)}
    labels = torch.tensor([classes[file.parent.name] for file in files])
    step = _step(settings, device)
    images = torch.randint(
        0, 256, (settings.batch, 3, settings.image_size, settings.image_size)
    ).to(device, torch.uint8)
    on_device = images, labels[torch.from_numpy(batches[0])].to(device)
    begin = time.perf_counter()
    step(on_device)
    _wait(device)
    tell("first step", seconds=time.perf_counter() - begin)
    for _ in range(3):
        step(on_device)
    _wait(device)

    def steps() -> int:
        for _ in range(settings.steps):
            step(on_device)
        _wait(device)
        return settings.steps * settings.batch

    tell_rounds("step", steps, settings.rounds)
    for kind in ("Pillow", "tensor"):
        read, transform = transform_of(kind, settings.image_size, flip=True)
        loader = DataLoader(
            _Labeled(files, read, transform, labels),
            batch_sampler=Endless(batches.tolist()),
            num_workers=settings.workers,
            pin_memory=device.type == "cuda",
        )
        _tell_loader(kind, loader, step, device, settings)


class _Labeled(Files):
    def __init__(
        self, files: Any, read: Any, transform: Any, labels: torch.Tensor
    ) -> None:
        super().__init__(files, read, transform)
        self._labels = labels

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index), self._labels[index]


def _tell_loader(
    kind: str,
    loader: DataLoader,
    step: Callable[[Any], None],
    device: torch.device,
    settings: Settings,
) -> None:
    """Measure the loader alone, then with the steps; its workers go on meanwhile."""
    batches = iter(loader)
    # As many at least as are read ahead when the loader begins.
    ahead = 2 * settings.workers
    list(itertools.islice(batches, ahead))
    alone = steps_of(batches, max(settings.steps, settings.workers))
    tell_rounds("reading, files", alone, settings.rounds, peer=kind)
    trained = steps_of(_on_device(batches, device), settings.steps, step)

    def whole() -> int:
        images = trained()
        _wait(device)
        return images

    whole()
    tell_rounds("end to end, files", whole, settings.rounds, peer=kind)


def _on_device(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    for images, labels in batches:
        yield (
            images.to(device, non_blocking=True),
            labels.to(device, non_blocking=True),
        )


def _step(settings: Settings, device: torch.device) -> Callable[[Any], None]:
    from pytorch_metric_learning.losses import MultiSimilarityLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    build = getattr(torchvision().models, settings.backbone.lower())
    network = build(weights=None)
    network.fc = torch.nn.Linear(network.fc.in_features, settings.embedding)
    network = network.to(device, memory_format=torch.channels_last).train()
    on_gpu = device.type == "cuda"
    forward = torch.compile(network) if on_gpu else network
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=1e-4, weight_decay=1e-4, fused=on_gpu
    )
    loss, miner = MultiSimilarityLoss(), MultiSimilarityMiner()
    mean, spread = (
        torch.tensor(values, device=device).view(1, 3, 1, 1)
        for values in (_MEAN, _SPREAD)
    )
    half = settings.precision == "mixed_bfloat16"

    def step(batch: Any) -> None:
        images, labels = batch
        pixels = images.contiguous(memory_format=torch.channels_last)
        pixels = (pixels.float() - mean) / spread
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            embeddings = forward(pixels)
        embeddings = embeddings.float()
        value = loss(embeddings, labels, miner(embeddings, labels))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()

    return step


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else "CPU"


if __name__ == "__main__":
    main()

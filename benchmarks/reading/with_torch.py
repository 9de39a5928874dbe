"""Read by a torch DataLoader with torchvision's transforms.

Run by the peer's own interpreter: nothing of this library or of Keras is imported.
"""

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import library as torch_operators
from torch.utils.data import DataLoader, Dataset

from benchmarks.reading.measured import MIN_SCALE, Task


def batches_of(task: Task, kind: str) -> Iterator[torch.Tensor]:
    """Yield uint8 crops `[batch, 3, size, size]`; for `kind` see `transform_of`."""
    loader = DataLoader(
        Files(task.files, *transform_of(kind, task.image_size)),
        batch_sampler=Endless(task.batches.tolist()),
        num_workers=task.cores,
    )
    yield from loader


class Files(Dataset):
    """Images, each read and transformed when it is asked for."""

    def __init__(
        self,
        files: Sequence[Path],
        read: Callable[[str], Any],
        transform: Callable[[Any], torch.Tensor],
    ) -> None:
        self._files = [str(file) for file in files]
        self._read = read
        self._transform = transform

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._files)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return an image."""
        return self._transform(self._read(self._files[index]))


class Endless:
    """Batches of positions that come again and again."""

    def __init__(self, batches: list[list[int]]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        """Begin with the first."""
        return itertools.cycle(self._batches)


def transform_of(
    kind: str, size: int, *, flip: bool = False
) -> tuple[Callable[[str], Any], Callable[[Any], torch.Tensor]]:
    """Return how a file is read, and what becomes of it.

    Args:
        kind: "Pillow" reads and resizes by Pillow; "tensor" decodes by torchvision.io
            and resizes tensors.
        size: Side of the crop.
        flip: Whether half of them are turned over.
    """
    v2 = torchvision().transforms.v2
    steps = [v2.RandomResizedCrop(size, scale=(MIN_SCALE, 1.0), antialias=True)]
    if flip:
        steps.append(v2.RandomHorizontalFlip())
    if kind == "Pillow":
        return _opened, v2.Compose([*steps, v2.PILToTensor()])
    if decodes_itself():
        from torchvision.io import ImageReadMode, decode_jpeg, read_file

        def read(file: str) -> torch.Tensor:
            return decode_jpeg(read_file(file), mode=ImageReadMode.RGB)

        return read, v2.Compose(steps)
    return _opened, v2.Compose([v2.PILToTensor(), *steps])


def decodes_itself() -> bool:
    """Return whether the decoder of torchvision loads; else Pillow decodes for it."""
    torchvision()
    from torchvision.io import decode_jpeg

    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG")
    try:
        decode_jpeg(torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8))
    except (AttributeError, RuntimeError):
        return False
    return True


def torchvision() -> Any:
    """Import torchvision.

    The wheel on PyPI is built for CUDA. Beside a torch for CPUs its operators do not
    load, and without a declaration of these two neither does the rest, which needs
    none of them.
    """
    global _operators
    try:
        import torchvision
    except RuntimeError:
        _operators = torch_operators.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _operators.define(
                f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        import torchvision
    import torchvision.transforms.v2

    return torchvision


_operators: Any = None  # the declarations end with the object


def _opened(file: str) -> Image.Image:
    with Image.open(file) as image:
        return image.convert("RGB")

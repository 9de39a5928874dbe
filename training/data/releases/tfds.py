"""Write any set of TensorFlow Datasets with an image and a label as files.

The encoded images are copied as they are, never decoded, so that memory stays small
and nothing is compressed twice. Needs `pip install "tfdml[data]"`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.command_parser import command
from tfdml.files import DISK_IS_FULL, written
from tfdml.messages import cut, shortened, shown
from tfdml.progress import tracked

from ..data_set import DataSet, halve_classes
from ..manifest import write_manifest

# Sets whose features go by other names than `supervised_keys`, or whose splits share
# no class: name -> (label, category, whether its own splits are the papers').
_KNOWN = {"stanford_online_products": ("class_id", "super_class_id", True)}
_SPLITS = {
    "train": "train",
    "test": "test",
    "validation": "validation",
    "val": "validation",
}
_ENDINGS = {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"GI": ".gif", b"BM": ".bmp"}


def export_tfds(
    name: str,
    folder: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    image_key: str | None = None,
    label_key: str | None = None,
    own_splits: bool | None = None,
) -> DataSet:
    """Write the images, `manifest.csv` and `ATTRIBUTION.md` of a TFDS set.

    The set is downloaded by TFDS if it is not in `data_dir` yet. Images that are
    already written are kept, so that a stopped export goes on where it stopped.

    Args:
        name: As `tensorflow_datasets.builder` takes it, such as `"cars196"`,
            `"caltech_birds2011"`, `"stanford_online_products"` or `"omniglot:3.0.0"`.
        folder: Where the files go.
        data_dir: Where TFDS keeps its data; its default is `~/tensorflow_datasets`.
        image_key: Name of the image among the features; by default the first of
            `supervised_keys`, or the only image.
        label_key: Name of the class label, found alike.
        own_splits: True keeps the splits of the set, which must share no class. False
            puts them together and splits as the papers do on CUB and Cars: the first
            half of the classes trains, the second half tests. None is True for
            `stanford_online_products` and False for all others.

    Returns:
        The data set as written.

    Raises:
        RuntimeError: tensorflow-datasets is not installed, or cannot fetch the set or
            make its files.
        OSError: The disk is full.
        ValueError: The set has no image or no class label, or `own_splits` meets a
            split of another name or a class in two splits.
    """
    try:
        import tensorflow_datasets as tfds
    except ModuleNotFoundError as error:
        raise RuntimeError(
            'TFDS sets need the package tensorflow-datasets: pip install "tfdml[data]".'
        ) from error
    folder = Path(folder)
    builder = tfds.builder(name, data_dir=data_dir)
    known = _KNOWN.get(builder.name, (None, None, False))
    features, keys = builder.info.features, builder.info.supervised_keys or ()
    image_key = image_key or _key(features, tfds.features.Image, "image", keys)
    label_key = label_key or known[0]
    label_key = label_key or _key(features, tfds.features.ClassLabel, "label", keys)
    own_splits = known[2] if own_splits is None else own_splits
    _prepare(builder, name, data_dir or "~/tensorflow_datasets")

    images: list[Path] = []
    ids: list[int] = []
    splits: list[str] = []
    categories: list[str] = []
    wanted = [key for key in (image_key, label_key, known[1]) if key]
    for split, example in _examples(tfds, builder, wanted):
        images.append(_write(example[image_key], folder, len(images)))
        ids.append(int(example[label_key]))
        splits.append(split)
        if known[1]:
            categories.append(features[known[1]].int2str(int(example[known[1]])))
    count = features[label_key].num_classes
    if own_splits:
        wrong = sorted(set(splits) - _SPLITS.keys())
        if wrong:
            raise ValueError(
                "`own_splits` needs splits named train, validation (or val) and test. "
                f"Received: {shown(wrong[0])} in {name}."
            )
        split_of = np.array([_SPLITS[split] for split in splits])
    else:
        split_of = halve_classes(np.array(ids), count)
    # The names say nothing of the order: a number keeps equal names apart.
    width = len(str(count - 1))
    names = [features[label_key].int2str(i) for i in range(count)]
    data = DataSet(
        images=tuple(images),
        labels=np.array(ids, dtype="int64"),
        splits=split_of,
        class_names=tuple(
            f"{i:0{width}}" if label == str(i) else f"{i:0{width}} {label}".strip()
            for i, label in enumerate(names)
        ),
        categories=np.array(categories) if known[1] else None,
    )
    _write_attribution(folder / "ATTRIBUTION.md", builder)
    write_manifest(data, folder / "manifest.csv")
    return data


def _prepare(builder: Any, name: str, data_dir: str | os.PathLike[str]) -> None:
    try:
        builder.download_and_prepare()
    except Exception as error:  # TFDS has types of its own, which derive from no other
        if isinstance(error, OSError) and error.errno in DISK_IS_FULL:
            raise
        # It keeps what came broken, and would read it again.
        kept = cut(Path(data_dir, "downloads"), 60)
        raise RuntimeError(
            f"TensorFlow Datasets cannot prepare {cut(name, 40)} "
            f"({type(error).__name__}: {shortened(error, 150)}). Try again; what came "
            f"broken must be removed before, from {kept}. If it is gone from the "
            "network, download the release by hand: "
            f"`{command('training', 'manifest')}` reads CUB, Cars-196 and SOP."
        ) from error


def _key(features: Any, kind: type, what: str, supervised: tuple[str, ...]) -> str:
    found = [name for name in features if isinstance(features[name], kind)]
    for name in (*supervised, what):
        if name in found:
            return name
    if len(found) == 1:
        return found[0]
    raise ValueError(
        f"Name the {what} with `{what}_key`: {len(found)} features could be it "
        f"({cut(', '.join(found) or 'none')}) of {cut(', '.join(features))}."
    )


def _examples(tfds: Any, builder: Any, wanted: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield (split, example) with the wanted features, the image first of them."""
    # Nothing else is decoded: neither masks nor boxes.
    decoders = tfds.decode.PartialDecoding(
        dict.fromkeys(wanted, True), {wanted[0]: tfds.decode.SkipDecoding()}
    )
    # The order must be the same at every call: the files are numbered by it.
    for split in sorted(builder.info.splits):
        examples = builder.as_dataset(
            split=split,
            shuffle_files=False,
            decoders=decoders,
        )
        for example in tracked(tfds.as_numpy(examples), split, len(examples)):
            yield split, example


def _write(data: bytes, folder: Path, number: int) -> Path:
    ending = _ENDINGS.get(data[:2], ".webp" if data[8:12] == b"WEBP" else ".img")
    # A thousand files a folder: some file systems are slow with more.
    path = folder / "images" / f"{number // 1000:04}" / f"{number:07}{ending}"
    if not (path.exists() and path.read_bytes() == data):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written(path) as new:
            new.write_bytes(data)
    return path


def _write_attribution(path: Path, builder: Any) -> None:
    info = builder.info
    license_text = info.redistribution_info.license
    text = f"""# Where these images come from

TensorFlow Datasets: {info.full_name}, unchanged.

- Home page: {info.homepage or "not stated"}
- License: {license_text or "not stated by TensorFlow Datasets; see the home page"}

{info.description.strip()}

```bibtex
{info.citation.strip()}
```
"""
    with written(path) as new:
        new.write_text(text, encoding="utf-8")

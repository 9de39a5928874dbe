"""TFDS sets, with TFDS' own mock data in exactly the features of each set."""

import io
import re
import shutil
import warnings
import zipfile

import numpy as np
import pytest
from PIL import Image

from tests.support.npm_registry import Registry
from training.__main__ import main
from training.data.manifest import check_manifest, read_manifest
from training.data.releases import tfds as module

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TFDS and its requirements are older than we
    tfds = pytest.importorskip(
        "tensorflow_datasets", reason="tensorflow-datasets is not installed"
    )

# What the mock data and the import of TFDS' readers warn of is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")
COUNT = 12


@pytest.fixture
def mocked(tmp_path):
    """Write the metadata that a prepared set has, and return a context per set."""

    def prepare(name, splits):
        data_dir = tmp_path / "tfds"
        builder = tfds.builder(name, data_dir=data_dir)
        template = tfds.core.ShardedFileTemplate(
            data_dir=data_dir,
            dataset_name=name,
            split="train",
            filetype_suffix="tfrecord",
        )
        infos = [
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[COUNT],
                num_bytes=1,
                filename_template=template.replace(split=split),
            )
            for split in splits
        ]
        builder.info.set_splits(tfds.core.SplitDict(infos))
        builder.data_path.mkdir(parents=True)
        builder.info.write_to_directory(builder.data_dir)
        return tfds.testing.mock_data(
            COUNT, data_dir=data_dir, policy=tfds.testing.MockPolicy.USE_FILES
        ), data_dir

    return prepare


@pytest.mark.parametrize(
    ("name", "splits", "classes"),
    [
        ("cars196", ["train", "test"], 196),
        ("caltech_birds2011", ["train", "test"], 200),
        ("omniglot", ["train", "test", "small1", "small2"], 1623),
    ],
)
def test_first_half_of_the_classes_trains(mocked, tmp_path, name, splits, classes):
    context, data_dir = mocked(name, splits)
    with context:
        data = module.export_tfds(name, tmp_path / "out", data_dir=data_dir)
    assert len(data) == COUNT * len(splits)
    assert len(data.class_names) == classes
    expected = ["train" if i < classes // 2 else "test" for i in data.labels]
    assert data.splits.tolist() == expected
    assert check_manifest(tmp_path / "out/manifest.csv") == []
    again = read_manifest(tmp_path / "out/manifest.csv")
    assert again.images == data.images
    assert [again.class_names[i] for i in again.labels] == [
        data.class_names[i] for i in data.labels
    ]
    assert "Home page: http" in (tmp_path / "out/ATTRIBUTION.md").read_text("utf-8")


def test_images_are_those_of_the_set_byte_by_byte(mocked, tmp_path):
    context, data_dir = mocked("cars196", ["train"])
    with context:
        data = module.export_tfds("cars196", tmp_path, data_dir=data_dir)
        examples = list(
            tfds.as_numpy(
                tfds.builder("cars196", data_dir=data_dir).as_dataset(
                    split="train",
                    decoders=tfds.decode.PartialDecoding(
                        {"image": True, "label": True},
                        {"image": tfds.decode.SkipDecoding()},
                    ),
                )
            )
        )
    assert [path.read_bytes() for path in data.images] == [e["image"] for e in examples]
    assert data.labels.tolist() == [e["label"] for e in examples]


def products(class_ids):
    """Return a stand-in for `as_dataset` with these products in each split."""
    import tensorflow as tf

    image = tf.io.encode_jpeg(np.zeros((4, 4, 3), "uint8")).numpy()

    def as_dataset(self, split, **options):
        ids = class_ids[split]
        return tf.data.Dataset.from_tensor_slices(
            {
                "class_id": np.array(ids, "int64"),
                "image": [image] * len(ids),
                "super_class_id": np.array([i % 12 for i in ids], "int64"),
                "super_class_id/num": np.array([i % 12 for i in ids], "int64"),
            }
        )

    return as_dataset


def test_products_keep_their_own_splits_and_super_classes(
    mocked, tmp_path, monkeypatch
):
    name = "stanford_online_products"
    _, data_dir = mocked(name, ["train", "test"])
    builder = tfds.builder_cls(name)
    monkeypatch.setattr(builder, "download_and_prepare", lambda self: None)
    ids = {"train": [1, 1, 11318], "test": [11319, 22633]}
    monkeypatch.setattr(builder, "as_dataset", products(ids))
    data = module.export_tfds(name, tmp_path / "out", data_dir=data_dir)
    assert data.labels.tolist() == [11319, 22633, 1, 1, 11318]
    assert data.splits.tolist() == ["test"] * 2 + ["train"] * 3
    super_classes = builder(data_dir=data_dir).info.features["super_class_id"]
    assert data.categories.tolist() == [
        super_classes.int2str(int(i) % 12) for i in data.labels
    ]
    assert check_manifest(tmp_path / "out/manifest.csv") == []

    ids["test"] = [1]
    with pytest.raises(ValueError, match=r"in one split\..*such as '00001'"):
        module.export_tfds(name, tmp_path / "shared", data_dir=data_dir)


def test_export_goes_on_where_it_stopped(mocked, tmp_path):
    context, data_dir = mocked("cars196", ["train"])
    with context:
        data = module.export_tfds("cars196", tmp_path / "out", data_dir=data_dir)
        whole = {path: path.read_bytes() for path in data.images}
        stamp = data.images[0].stat().st_mtime_ns
        data.images[1].unlink()
        data.images[2].write_bytes(b"half")
        assert (
            main(
                ["tfds", "cars196", str(tmp_path / "out"), "--data-dir", str(data_dir)]
            )
            == 0
        )
    assert {path: path.read_bytes() for path in whole} == whole
    assert data.images[0].stat().st_mtime_ns == stamp


def test_set_without_a_class_label_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`label_key`: 0 features.*of lr, hr"):
        module.export_tfds("div2k", tmp_path, image_key="hr")


ARCHIVE = io.BytesIO()
with zipfile.ZipFile(ARCHIVE, "w") as archive:
    for name in "ab":
        png = io.BytesIO()
        Image.new("RGB", (4, 4)).save(png, "PNG")
        archive.writestr(f"{name}.png", png.getvalue())
ARCHIVE = ARCHIVE.getvalue()


class Fetched(tfds.core.GeneratorBasedBuilder):
    """A set that TFDS fetches from a server of ours. A name is registered once."""

    VERSION = tfds.core.Version("1.0.0")
    host = ""

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(names=["a", "b"]),
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, manager):
        folder = manager.download_and_extract(f"{self.host}/images.zip")
        return {"train": self._generate_examples(folder)}

    def _generate_examples(self, folder):
        for number, path in enumerate(sorted(folder.glob("*.png"))):
            yield number, {"image": path, "label": path.stem}


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    server = Registry(len(ARCHIVE))
    monkeypatch.setattr(Fetched, "host", server.host)

    def run(answer):
        server.answers["*"] = [answer]
        arguments = ["tfds", "fetched", str(tmp_path / "out")]
        return main([*arguments, "--data-dir", str(tmp_path / "tfds")])

    yield run
    server.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (404, "DownloadError: Failed to get url http://127.0.0.1"),
        (ARCHIVE[:100], "ChunkedEncodingError|ConnectionError|IncompleteRead"),
        (b"x" * len(ARCHIVE), "ExtractError: "),
    ],
    ids=["gone", "half an archive", "another archive"],
)
def test_set_that_cannot_be_fetched_is_reported(
    fetched, tmp_path, capsys, answer, reason
):
    assert fetched(answer) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: TensorFlow Datasets cannot prepare fetched (")
    assert re.search(reason, said)
    assert said.endswith("manifest` reads CUB, Cars-196 and SOP.")
    downloads = tmp_path / "tfds" / "downloads"
    assert "what came broken must be removed before, from /" in said
    assert len(said) <= 500
    shutil.rmtree(downloads)
    assert fetched(ARCHIVE) == 0  # it was not the fault of this machine


def test_missing_package_is_reported(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "tensorflow_datasets", None)
    with pytest.raises(RuntimeError, match=r'pip install "tfdml\[data\]"'):
        module.export_tfds("cars196", tmp_path)

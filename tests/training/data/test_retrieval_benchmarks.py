"""The benchmarks of the papers, from small files in the formats of their releases."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import training
from tests.support.image_shapes import read_shape
from tests.support.shipped_recipes import recipes_of
from training.__main__ import main
from training.data.manifest import check_manifest, read_manifest, write_manifest
from training.data.releases.retrieval_benchmarks import (
    read_cars,
    read_cub,
    read_in_shop,
    read_sop,
)
from training.data.source import read_source
from training.recipe.tables import Data


def image(path, size=(20, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "red").save(path)


@pytest.fixture
def cub(tmp_path):
    birds = ("001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty", "010.Z")
    (tmp_path / "classes.txt").write_text(
        "".join(f"{i} {bird}\n" for i, bird in enumerate(birds, start=1))
    )
    paths = [f"{bird}/{n}.jpg" for bird in birds for n in (1, 2)]
    for path in paths:
        image(tmp_path / "images" / path)
    for name, values in {
        "images": paths,
        "image_class_labels": [1, 1, 2, 2, 3, 3, 4, 4],
        "train_test_split": [0, 1] * 4,
        "bounding_boxes": ["1.5 2.0 3.2 4.0"] * 8,
    }.items():
        (tmp_path / f"{name}.txt").write_text(
            "".join(f"{i} {value}\n" for i, value in enumerate(values, start=1))
        )
    return tmp_path


def test_cub_trains_on_the_first_half_of_its_classes(cub):
    data = read_cub(cub)
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.splits.tolist() == ["train"] * 4 + ["test"] * 4
    assert data.class_names[0] == "001.Black_footed_Albatross"
    assert data.images[3] == cub / "images/002.Laysan_Albatross/2.jpg"
    # From 1.5 to 4.7 across, from 2 to 6 down, rounded outwards.
    assert data.boxes[0].tolist() == [1, 2, 4, 4]
    assert read_shape(data, 0) == (4, 4, 3)


def test_lists_that_name_other_images_are_refused(cub):
    with (cub / "images.txt").open("a") as file:
        file.write("9 003.Sooty/3.jpg\n")
    with pytest.raises(ValueError, match="such as image 9"):
        read_cub(cub)


def test_line_with_too_few_values_is_named(cub):
    (cub / "image_class_labels.txt").write_text("1 1\n2\n")
    with pytest.raises(ValueError, match=r"labels\.txt:2: must have 2 values"):
        read_cub(cub)


CAR_NAMES = np.array(
    ["AM General Hummer", "Acura RL", "BMW M3", "Fiat 500"], dtype=object
)


def car_annotations(path_field, paths, classes):
    """Return a struct array as MATLAB writes it: 1 x N with 1 x 1 fields."""
    sides = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
    fields = [path_field, *sides, "class"]
    rows = np.empty((1, len(paths)), dtype=[(name, object) for name in fields])
    for i, (path, label) in enumerate(zip(paths, classes, strict=True)):
        rows[0, i] = (
            path,
            *(np.array([[v]], "uint16") for v in (1, 2, 20, 5)),
            np.array([[label]], "uint8"),
        )
    return rows


def test_cars_are_read_from_the_one_list(tmp_path):
    scipy_io = pytest.importorskip("scipy.io", reason="scipy is not installed")
    paths = [f"car_ims/00000{i}.jpg" for i in range(1, 5)]
    for path in paths:
        image(tmp_path / path)
    scipy_io.savemat(
        tmp_path / "cars_annos.mat",
        {
            "annotations": car_annotations("relative_im_path", paths, [4, 1, 2, 3]),
            "class_names": CAR_NAMES[None],
        },
    )
    data = read_cars(tmp_path)
    assert data.labels.tolist() == [3, 0, 1, 2]
    assert data.splits.tolist() == ["test", "train", "train", "test"]
    assert data.class_names == tuple(CAR_NAMES)
    assert data.images[1] == tmp_path / "car_ims/000002.jpg"
    assert data.boxes[0].tolist() == [0, 1, 20, 4]
    assert read_shape(data, 0) == (4, 20, 3)


@pytest.mark.parametrize("place", ["devkit", "."])
def test_cars_are_read_from_the_devkit(tmp_path, place):
    scipy_io = pytest.importorskip("scipy.io", reason="scipy is not installed")
    (tmp_path / "devkit").mkdir()
    scipy_io.savemat(
        tmp_path / "devkit/cars_meta.mat", {"class_names": CAR_NAMES[None]}
    )
    scipy_io.savemat(
        tmp_path / "devkit/cars_train_annos.mat",
        {"annotations": car_annotations("fname", ["00001.jpg", "00002.jpg"], [3, 1])},
    )
    scipy_io.savemat(
        tmp_path / place / "cars_test_annos_withlabels.mat",
        {"annotations": car_annotations("fname", ["00001.jpg"], [1])},
    )
    data = read_cars(tmp_path)
    assert data.labels.tolist() == [2, 0, 0]
    assert data.splits.tolist() == ["test", "train", "train"]
    assert [p.relative_to(tmp_path).as_posix() for p in data.images] == [
        "cars_train/00001.jpg",
        "cars_train/00002.jpg",
        "cars_test/00001.jpg",
    ]


SOP_HEADER = "image_id class_id super_class_id path\n"


def test_sop_keeps_its_own_lists_and_super_classes(tmp_path):
    (tmp_path / "Ebay_train.txt").write_text(
        SOP_HEADER + "1 1 1 bicycle_final/111085122871_0.JPG\n"
        "2 1 1 bicycle_final/111085122871_1.JPG\n3 2 2 cabinet_final/5_0.JPG\n"
    )
    (tmp_path / "Ebay_test.txt").write_text(
        SOP_HEADER + "59552 11319 1 bicycle_final/251952414262_0.JPG\n"
    )
    data = read_sop(tmp_path)
    assert data.class_names == ("00001", "00002", "11319")
    assert data.labels.tolist() == [0, 0, 1, 2]
    assert data.splits.tolist() == ["train", "train", "train", "test"]
    assert data.categories.tolist() == ["bicycle", "bicycle", "cabinet", "bicycle"]
    assert data.images[3] == tmp_path / "bicycle_final/251952414262_0.JPG"


def test_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "Ebay_train.txt").write_text("1 1 1 bicycle_final/1_0.JPG\n")
    with pytest.raises(ValueError, match=r"Ebay_train\.txt:1: must be 'image_id"):
        read_sop(tmp_path)


PARTITION = """\
5
image_name item_id evaluation_status
img/WOMEN/Dresses/id_00000002/02_1_front.jpg                 id_00000002 train
img/WOMEN/Dresses/id_00000002/02_2_side.jpg                  id_00000002 train
img/WOMEN/Blouses_Shirts/id_00000001/02_1_front.jpg          id_00000001 query
img/WOMEN/Blouses_Shirts/id_00000001/02_4_full.jpg           id_00000001 gallery
img/MEN/Denim/id_00000080/01_1_front.jpg                     id_00000080 gallery
"""


@pytest.mark.parametrize("form", ["released", "flat"])
def test_in_shop_has_queries_and_gallery(tmp_path, form):
    lists, images = ("Eval", "Img") if form == "released" else (".", ".")
    (tmp_path / lists).mkdir(exist_ok=True)
    (tmp_path / lists / "list_eval_partition.txt").write_text(PARTITION)
    for line in PARTITION.splitlines()[2:]:
        image(tmp_path / images / line.split()[0])
    data = read_in_shop(tmp_path)
    assert data.splits.tolist() == ["train"] * 2 + ["test"] * 3
    assert data.is_query().tolist() == [True, True, True, False, False]
    assert data.is_gallery().tolist() == [True, True, False, True, True]
    assert data.class_names == ("id_00000001", "id_00000002", "id_00000080")
    assert data.labels.tolist() == [1, 1, 0, 0, 2]
    assert data.categories[3] == "WOMEN/Blouses_Shirts"
    assert read_shape(data, 4) == (10, 20, 3)


def test_partition_that_is_cut_off_is_refused(tmp_path):
    (tmp_path / "list_eval_partition.txt").write_text(
        "".join(PARTITION.splitlines(keepends=True)[:-1])
    )
    with pytest.raises(ValueError, match=r"'5' before 4\. Is the file cut off"):
        read_in_shop(tmp_path)


def test_unknown_status_is_refused(tmp_path):
    (tmp_path / "list_eval_partition.txt").write_text(PARTITION.replace("query", "val"))
    with pytest.raises(ValueError, match="Received: 'val' of img/WOMEN/Blouses"):
        read_in_shop(tmp_path)


def test_command_writes_a_manifest_of_a_release(cub, capsys):
    assert main(["manifest", "cub", str(cub)]) == 0
    assert "8 images" in capsys.readouterr().out
    assert check_manifest(cub / "manifest.csv") == []
    data, again = read_cub(cub), read_manifest(cub / "manifest.csv")
    assert again.images == data.images
    assert again.labels.tolist() == data.labels.tolist()
    assert again.boxes is None  # the papers take whole images


def test_manifest_with_boxes_never_takes_the_place_of_the_one_without(cub, capsys):
    assert main(["manifest", "cub", str(cub)]) == 0
    before = (cub / "manifest.csv").read_bytes()
    assert main(["manifest", "cub", str(cub), "--crop"]) == 0
    assert "manifest_boxes.csv" in capsys.readouterr().out
    assert (cub / "manifest.csv").read_bytes() == before
    boxes = read_manifest(cub / "manifest_boxes.csv").boxes
    assert boxes.tolist() == read_cub(cub).boxes.tolist()


def test_recipe_for_whole_images_refuses_boxes(cub):
    write_manifest(read_cub(cub), cub / "manifest.csv")  # as `--crop` once did
    settings = Data(str(cub / "manifest.csv"), validation_fraction=0.0)
    (note,) = read_source(settings).notes
    assert note.startswith("8 of 8 images are cut to the boxes in ")
    with pytest.raises(ValueError, match=r"must not have boxes.*Received: 8 boxes"):
        read_source(dataclasses.replace(settings, whole_images=True))
    write_manifest(dataclasses.replace(read_cub(cub), boxes=None), cub / "manifest.csv")
    source = read_source(dataclasses.replace(settings, whole_images=True))
    assert (len(source.data), source.notes) == (8, ())


def test_recipes_of_cub_and_cars_take_whole_images_or_say_boxes():
    seen = 0
    for path in (Path(training.__file__).parent / "recipes").rglob("*.toml"):
        for variant, recipe in recipes_of(path).items():
            images = recipe.data.images
            if "CUB_200" in images or "cars196" in images:
                seen += 1
                has_boxes = Path(images).name == "manifest_boxes.csv"
                assert recipe.data.whole_images != has_boxes, (path, variant)
    assert seen > 20


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("sop", ["Stanford Online Products", "Ebay_train.txt"]),
        ("cub", ["CUB-200-2011", "classes.txt"]),
        ("in_shop", ["In-Shop", "list_eval_partition.txt"]),
    ],
)
def test_missing_release_is_told_with_what_was_expected(
    release, words, tmp_path, capsys
):
    assert main(["manifest", release, str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert all(word in error for word in ["must hold", *words])

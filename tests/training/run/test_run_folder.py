"""Which unfinished runs go on, and what is left of a run that did not begin."""

import json

import numpy as np
import pytest

from training.data.data_set import DataSet
from training.recipe.published import Published
from training.recipe.recipe import Recipe
from training.recipe.tables import Data, Images
from training.run.run_folder import (
    STATE,
    check_same_images,
    check_same_recipe,
    drop_unbegun,
)

NAMES = {"train": ["cat/1.png", "dog/1.png"]}
PIXELS = np.zeros((2, 1, 1, 3), "uint8")
DATA = {"train": DataSet(PIXELS, np.arange(2), np.array(["train"] * 2), ("cat", "dog"))}


def noted(folder, contents):
    check_same_images(folder, NAMES, DATA, {"train": contents})
    (folder / STATE).touch()


def test_image_that_was_replaced_under_its_name_is_noticed(tmp_path):
    noted(tmp_path, ["1", "2"])
    check_same_images(tmp_path, NAMES, DATA, {"train": ["1", "2"]})
    with pytest.raises(ValueError, match=r"dog/1\.png shows something else \(1 in all"):
        check_same_images(tmp_path, NAMES, DATA, {"train": ["1", "3"]})


def test_run_of_an_earlier_version_noted_names_alone(tmp_path):
    noted(tmp_path, ["1", "2"])
    file = tmp_path / "images.json"
    known = json.loads(file.read_text())
    del known["contents"]
    file.write_text(json.dumps(known))
    check_same_images(tmp_path, NAMES, DATA, {"train": ["1", "3"]})


def test_key_that_a_run_is_older_than_had_its_default(tmp_path):
    recipe = Recipe(Data("images"))
    check_same_recipe(tmp_path, recipe)
    (tmp_path / STATE).touch()
    file = tmp_path / "recipe.json"
    known = json.loads(file.read_text())
    del known["images"]["max_pixels"]
    file.write_text(json.dumps(known))
    check_same_recipe(tmp_path, recipe)
    slower = Recipe(Data("images"), images=Images(workers=2, cache_megabytes=1))
    check_same_recipe(tmp_path, slower)  # it trains the same
    published = Published(rows={"Table 1": {"recall_at_1": 50.0}})
    check_same_recipe(tmp_path, Recipe(Data("images"), published=published))
    other = Recipe(Data("images"), images=Images(max_pixels=200_000_000))
    with pytest.raises(ValueError, match="max_pixels was 100000000 and is 200000000"):
        check_same_recipe(tmp_path, other)


def test_run_that_did_not_begin_leaves_nothing(tmp_path):
    begun, unbegun = tmp_path / "begun", tmp_path / "unbegun"
    for folder in (begun, unbegun):
        folder.mkdir()
        check_same_recipe(folder, Recipe(Data("images")))
    noted(begun, ["1", "2"])
    for folder in (begun, unbegun):
        drop_unbegun(folder)
    assert begun.is_dir()
    assert not unbegun.exists()

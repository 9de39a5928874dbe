"""`python -m serving upgrade`: what its options do, and what it prints."""

import shutil

import pytest

from tests.support.search_fixtures import copy_search, write_color_model


@pytest.fixture
def folder(built, tmp_path):
    """A gallery that a test may change, and a second version of its model."""
    folder = tmp_path / "own"
    copy_search(built, folder)
    shutil.copytree(built / "models", folder / "models")
    write_color_model(folder / "models" / "colors" / "2", tint=(0.5, 1, 2))
    return folder


def test_upgrade_forth_and_back(folder, run, run_json):
    index, model = folder / "index", folder / "models" / "colors" / "2"
    shard = run_json("upgrade", index, "--model", model, "--shard", "1/2")
    assert shard == {"shard": "1/2", "embedded": 9}
    code, out, err = run("upgrade", index, "--model", model, "--no-switch")
    assert (code, err) == (0, "")
    assert "9 images embedded with version 2 of model colors" in out
    assert "The old pair serves; the new one is ready." in out
    assert "same first hit" in out
    code, out, _ = run("upgrade", index, "--status")
    assert code == 0
    assert "1 of 1" in out
    now = run_json("upgrade", index, "--status")
    assert (now["serves"]["version"], now["next"]["version"]) == (1, 2)
    assert now["is_ready"]
    done = run_json("upgrade", index, "--model", model)
    assert done["is_switched"]
    assert (done["before"]["version"], done["after"]["version"]) == (1, 2)
    assert done["gallery"]["queries"] == 9
    assert done["queries"] is None
    code, out, _ = run("upgrade", index, "--rollback")
    assert code == 0
    assert "to version 1 of model colors" in out
    assert run_json("upgrade", index, "--rollback")["after"]["version"] == 2
    assert run_json("upgrade", index, "--delete-old")["deleted"]["version"] == 1
    assert run_json("upgrade", index, "--delete-old")["deleted"] is None
    assert run_json("upgrade", index, "--cancel") == {"canceled": False}
    code, _, err = run("upgrade", index, "--rollback")
    assert code == 1
    assert "none is kept" in err


def test_upgrade_names_what_is_wrong(folder, run):
    index, models = folder / "index", folder / "models" / "colors"
    code, _, err = run("upgrade", index, "--model", models / "1")
    assert code == 1
    assert "there is nothing to upgrade" in err
    code, _, err = run("upgrade", index, "--model", models, "--images-per-second", "0")
    assert code == 1
    assert "`images_per_second` must be above 0" in err

"""A calibration belongs to the embedder that it was chosen for."""

import json
import shutil

import pytest

from tests.support.search_fixtures import calibration_at
from tfdml.metrics import Calibration
from tfdml.run_calibration import read_calibration, write_calibration

KNOWN = calibration_at(0.75)


@pytest.fixture
def embedder(tmp_path):
    file = tmp_path / "embedder.keras"
    file.write_bytes(b"weights")
    return file


def test_calibration_comes_back_beside_its_embedder(embedder, tmp_path):
    assert read_calibration(embedder) is None
    write_calibration(embedder, KNOWN)
    assert read_calibration(embedder) == KNOWN
    assert Calibration.read(tmp_path / "calibration.json") == KNOWN
    shutil.copytree(tmp_path, tmp_path / "copy")
    assert read_calibration(tmp_path / "copy" / "embedder.keras") == KNOWN


def test_calibration_of_another_embedder_is_refused(embedder):
    write_calibration(embedder, KNOWN)
    embedder.write_bytes(b"trained further")
    with pytest.raises(ValueError, match=r"chosen for another embedder\.keras.*again"):
        read_calibration(embedder)


def test_calibration_of_older_runs_names_no_embedder_and_is_taken(embedder, tmp_path):
    text = json.dumps(KNOWN.to_json())
    (tmp_path / "calibration.json").write_text(text)
    assert read_calibration(embedder) == KNOWN


def test_other_files_of_a_run_have_no_calibration(embedder, tmp_path):
    write_calibration(embedder, KNOWN)
    shutil.copy(embedder, tmp_path / "last.keras")
    assert read_calibration(tmp_path / "last.keras") is None

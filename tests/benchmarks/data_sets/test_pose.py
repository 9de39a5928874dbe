"""The pose set: figures drawn, joints as labels."""

import numpy as np
import pytest

from benchmarks.data_sets.pose import TEST_CLIPS, build_pose
from tfdml.images import read_image
from training.data.manifest import check_manifest, read_manifest


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("pybullet", reason="pybullet is not installed")
    folder = tmp_path_factory.mktemp("pose")
    return folder, build_pose(folder, size=48, views=2, frames=2)


def test_clips_are_split_and_listed(built):
    folder, data = built
    assert len(data) == 15 * 2 * 2
    assert check_manifest(folder / "manifest.csv") == []
    again = read_manifest(folder / "manifest.csv")
    np.testing.assert_array_equal(again.labels, data.labels)
    assert set(again.of_split("test").sequences) == set(TEST_CLIPS)
    assert len(set(again.of_split("train").sequences)) == 10
    assert "zlib" in (folder / "ATTRIBUTION.md").read_text("utf-8")


def test_labels_are_centered_joints_with_bones_of_fixed_length(built):
    joints = built[1].labels.reshape(-1, 15, 3)
    np.testing.assert_allclose(joints.mean(axis=1), 0, atol=1e-5)
    for knee, ankle in ((4, 5), (10, 11)):  # right and left
        length = np.linalg.norm(joints[:, knee] - joints[:, ankle], axis=1)
        np.testing.assert_allclose(length, length[0], atol=1e-4)
        assert 0.3 < length[0] < 0.6  # metres


def test_views_of_a_frame_differ_by_a_turn_around_the_upright_axis(built):
    joints = built[1].labels.reshape(-1, 2, 15, 3)
    np.testing.assert_allclose(joints[:, 0, :, 1], joints[:, 1, :, 1], atol=1e-5)
    assert np.abs(joints[:, 0, :, 0] - joints[:, 1, :, 0]).max() > 0.1
    lengths = np.linalg.norm(joints, axis=3)
    np.testing.assert_allclose(lengths[:, 0], lengths[:, 1], atol=1e-5)


def test_figure_is_where_its_joints_are(built):
    _, data = built
    for path, label in zip(data.images, data.labels, strict=True):
        image = read_image(path).astype(int)
        figure = np.abs(image - image[0, 0]).sum(axis=2) > 0
        rows, columns = np.nonzero(figure)
        assert 30 < len(rows) < 48 * 48 / 2
        # At a distance of 2.6 with 45 degrees, a metre is about 22 pixels of 48.
        extent = np.ptp(label.reshape(15, 3), axis=0) * 22
        assert np.ptp(columns) == pytest.approx(extent[0], abs=11)
        assert np.ptp(rows) == pytest.approx(extent[1], abs=11)


def test_stopped_build_goes_on_and_gives_the_same_files(built):
    folder, data = built
    before = {p: p.read_bytes() for p in folder.rglob("*.*") if p.is_file()}
    stamp = data.images[0].stat().st_mtime_ns
    data.images[3].unlink()
    build_pose(folder, size=48, views=2, frames=2)
    assert {p: p.read_bytes() for p in folder.rglob("*.*") if p.is_file()} == before
    assert data.images[0].stat().st_mtime_ns == stamp


def test_missing_package_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pybullet_data", None)
    with pytest.raises(RuntimeError, match=r"pip install \'\.\[test-data\]\'"):
        build_pose(tmp_path)


def test_impossible_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Received: size=96, views=0"):
        build_pose(tmp_path, views=0)


def test_walker_is_upright_with_hanging_arms(built):
    data = built[1]
    heights = data.labels[data.sequences == "walk"].reshape(-1, 15, 3)[:, :, 1]
    for upper, lower in (
        (2, 1), (1, 0), (3, 4), (4, 5), (9, 10), (10, 11),  # neck to ankles
        (6, 7), (7, 8), (12, 13), (13, 14),  # shoulders to wrists
    ):  # fmt: skip
        assert (heights[:, upper] > heights[:, lower] + 0.05).all(), (upper, lower)

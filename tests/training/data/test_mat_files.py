"""MATLAB files that are damaged."""

import numpy as np
import pytest

from training.data.releases.mat_files import load_mat

scipy_io = pytest.importorskip("scipy.io", reason="scipy is not installed")


@pytest.fixture
def content(tmp_path):
    path = tmp_path / "whole.mat"
    numbers = np.random.default_rng(0).integers(0, 99, (40, 40))
    scipy_io.savemat(path, {"layout": numbers}, do_compression=True)
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["cut off", "flipped", "text", "empty"])
def test_damaged_file_is_named(content, tmp_path, kind):
    path = tmp_path / "room.mat"
    flipped = bytearray(content)
    flipped[200] ^= 0xFF
    damaged = {
        "cut off": content[: len(content) // 2],
        "flipped": bytes(flipped),
        "text": b"layout = 3" * 20,
        "empty": b"",
    }
    path.write_bytes(damaged[kind])
    with pytest.raises(ValueError, match=r"room\.mat is damaged or not a MATLAB file"):
        load_mat(path)

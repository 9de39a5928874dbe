"""The command that converts published weights."""

import pytest

from tests.support.published_weights import GOLDENS, drawn_weights
from training.__main__ import main

pytestmark = pytest.mark.slow


def test_converted_weights_are_written_and_named(tmp_path, capsys):
    numpy = pytest.importorskip("safetensors.numpy")
    source, target = tmp_path / "net.safetensors", tmp_path / "net.weights.h5"
    numpy.save_file(drawn_weights(GOLDENS["googlenet"]["shapes"]), source)
    assert main(["convert", "googlenet", str(source), str(target)]) == 0
    assert f"Written to {target}. Set `weights`" in capsys.readouterr().out
    assert target.stat().st_size > 20_000_000
    assert main(["convert", "resnet34", str(source), str(target)]) == 1
    assert "must hold the weights of resnet34" in capsys.readouterr().err

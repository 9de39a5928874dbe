"""The benchmarks of training and of reading measure what they say."""

import json
import sys
import time

import numpy as np
import pytest

from benchmarks import resume
from benchmarks.image_files import CLASS_IMAGES, class_batches, write_images
from benchmarks.reading import __main__ as reading
from benchmarks.training import __main__ as training
from benchmarks.training.table import table
from benchmarks.usage import Usage
from benchmarks.workers import interpreter_with, records_of
from tfdml.images import read_image


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("images")
    write_images(made, 2 * CLASS_IMAGES + 5)
    return made


@pytest.fixture
def watching():
    with Usage() as usage:
        yield usage


def test_files_are_as_large_as_photographs_of_their_size(folder):
    files = sorted(folder.glob("*/*.jpg"))
    assert len(files) == 2 * CLASS_IMAGES + 5
    assert 18_000 < np.mean([file.stat().st_size for file in files]) < 24_000
    sides = np.array([read_image(file).shape[:2] for file in files])
    assert sides.min() >= 230
    assert sides.max() < 290


def test_files_depend_on_the_seed_and_their_number_alone(folder, tmp_path):
    again = write_images(tmp_path / "again", CLASS_IMAGES)
    assert again[3].read_bytes() == (folder / "class-00000" / "003.jpg").read_bytes()
    other = write_images(tmp_path / "other", 5, seed=1)
    assert other[3].read_bytes() != again[3].read_bytes()


def test_files_that_are_there_are_not_written_again(folder):
    file = folder / "class-00000" / "003.jpg"
    before = file.stat().st_mtime_ns
    write_images(folder, 2 * CLASS_IMAGES + 5)
    assert file.stat().st_mtime_ns == before
    with pytest.raises(FileExistsError, match="must be empty, or hold the same"):
        write_images(folder, 7)


def test_batches_hold_some_images_of_each_of_some_classes(folder):
    files = sorted(folder.glob("*/*.jpg"))
    for batch in class_batches(files, 2, 4, 20):
        names, counts = np.unique(
            [files[position].parent.name for position in batch], return_counts=True
        )
        assert len(names) == 2
        assert counts.tolist() == [4, 4]


def told(code, usage, **options):
    return list(records_of([sys.executable, "-c", code], usage, 1, **options))


def test_what_a_process_tells_comes_with_the_use_of_the_machine(watching):
    code = (
        "import time; from benchmarks.rounds import tell_rounds\n"
        "print('a line of a library')\n"
        "tell_rounds('a', lambda: time.sleep(0.3) or 6, 2, peer='b')"
    )
    first, second = told(code, watching)
    assert (first["phase"], first["peer"]) == ("a", "b")
    assert (first["round"], second["round"]) == (0, 1)
    assert 0 < first["rate"] <= 20
    assert first["cpu_util"] >= 0
    assert "begin" not in first


def test_process_that_fails_or_hangs_ends_with_an_error(watching):
    assert told("raise SystemExit('it fell')", watching) == [{"error": "it fell"}]
    code = "import time; time.sleep(600)"
    begin = time.monotonic()
    assert told(code, watching, seconds=0.2) == [{"error": "exit status -9"}]
    assert time.monotonic() - begin < 300


def test_peer_is_looked_for_in_this_interpreter_too():
    assert interpreter_with("no such peer", "json") == sys.executable
    assert interpreter_with("no such peer", "no_such_package") is None


def rounds(library, phase, rates, **more):
    return [{"library": library, "phase": phase, "rate": r, **more} for r in rates]


def test_table_gives_medians_and_ratios():
    busy = {"gpu_util": 0.5, "cpu_util": 0.25}
    epoch = {"epoch_end_seconds": 0.5, "epoch_seconds": 10.0}
    records = [
        *rounds("tfdml", "step", [900, 1000, 1300], **busy),
        *rounds("tfdml", "reading, files", [2000]),
        *rounds("tfdml", "end to end, files", [950], **epoch),
        {"library": "tfdml", "phase": "first step", "seconds": 20.0},
        *rounds("PyTorch", "step", [500]),
        *rounds("PyTorch", "end to end, files", [190], peer="Pillow"),
        *rounds("PyTorch", "end to end, files", [475], peer="tensor"),
        {"library": "PyTorch", "error": "it fell"},
    ]
    lines = table(records)
    assert (
        lines[0] == "| images per second | tfdml | PyTorch, Pillow | PyTorch, tensors |"
    )
    step = "step alone, batch on the device"
    assert f"| {step} | 1,000 (GPU 50%, CPU 25%) | 500 | 500 |" in lines
    assert "| end to end from files | 950 | 190 | 475 |" in lines
    assert "| first step, s | 20.0 |  |  |" in lines
    text = "\n".join(lines)
    assert "end to end from files: 95% of the step alone" in text
    assert "end of an epoch: 0.50 s, 5.0% of it" in text
    assert "end to end from files: 5.00 times PyTorch, Pillow" in text
    assert "end to end from files: 2.00 times PyTorch, tensors" in text


def test_table_of_reading_has_a_column_for_so_many_cores():
    records = [
        {"name": "a", "cores": cores, "rate": rate, "cpu_util": 0.5}
        for cores, rate in ((1, 100), (1, 300), (1, 200), (2, 400))
    ]
    lines = reading.table([*records, {"name": "b", "error": "it fell"}])
    assert lines[0] == "| images per second, of N cores | 1 | 2 |"
    assert lines[2:] == ["| a | 200 (50%) | 400 (50%) |"]


def test_way_that_there_is_not_is_refused():
    with pytest.raises(SystemExit, match=r"`--only` must name some of .*'x'"):
        reading.main(["--only", "x"])


def test_network_without_a_peer_needs_no_peer(capsys):
    with pytest.raises(SystemExit):
        training.main(["--backbone", "residual"])
    assert "add --no-peer" in capsys.readouterr().err


@pytest.mark.slow
def test_ways_to_read_are_measured(folder, tmp_path, capsys):
    out = tmp_path / "records.jsonl"
    ways = ["decode alone, threads", "threads", "tfdml, files", "tfdml, cache"]
    size = ["--images", str(2 * CLASS_IMAGES + 5), "--image-size", "32"]
    batch = ["--classes-per-batch", "2", "--images-per-class", "4"]
    quick = ["--cores", "1", "--rounds", "1", "--seconds", "0"]
    common = [*size, *batch, *quick, "--folder", str(folder), "--out", str(out)]
    assert reading.main(["--only", *ways, *common]) == 0
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [record["name"] for record in records] == ways
    assert min(record["rate"] for record in records) > 0
    assert "| tfdml, cache |" in capsys.readouterr().out


@pytest.mark.full
def test_each_phase_of_training_is_measured(folder, tmp_path, capsys):
    out = tmp_path / "records.jsonl"
    size = ["--images", str(2 * CLASS_IMAGES + 5), "--image-size", "16"]
    batch = ["--classes-per-batch", "2", "--steps", "2", "--rounds", "1"]
    ours = ["--no-peer", "--backbone", "residual", "--embedding", "8"]
    where = ["--folder", str(folder), "--out", str(out)]
    assert training.main([*size, *batch, *ours, *where]) == 0
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [record["phase"] for record in records] == [
        "machine",
        "first step",
        "fit",
        "step",
        "reading, files",
        "batches, files",
        "reading, cache",
        "batches, cache",
        "end to end, files, first step",
        "end to end, files",
        "end to end, cache, first step",
        "end to end, cache",
    ]
    assert min(record.get("rate", 1) for record in records) > 0
    assert "end of an epoch" in capsys.readouterr().out


@pytest.mark.full
def test_resuming_is_measured(tmp_path):
    out = tmp_path / "records.jsonl"
    assert resume.main(["--out", str(out)]) == 0
    record = json.loads(out.read_text("utf-8"))
    assert min(record["new_seconds"], record["resumed_seconds"]) > 0

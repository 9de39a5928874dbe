"""Processes that read images: the same images, and nothing left behind."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image

from tests.tfdml.images.test_view import photograph
from tfdml.images import ImageReader, UnreadableImageError, View
from tfdml.images._shared_views import SharedViews
from tfdml.images._workers import WorkerDiedError, Workers

VIEW = View(20, resize=24)


@pytest.fixture
def files(tmp_path):
    """Forty images, each of other pixels."""
    paths = []
    for i in range(40):
        paths.append(tmp_path / f"{i}.jpg")
        image = photograph(30 + i, 60 - i)
        Image.fromarray(np.roll(image, 7 * i, axis=1)).save(paths[-1])
    return paths


@pytest.fixture
def reader(files):
    reader = ImageReader(files, VIEW, crop="resized", seed=3, workers=2)
    yield reader
    reader.close()


def processes(reader):
    return [process._process for process in reader._workers._processes]


def wait_for(condition):
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("crop", ["none", "position", "resized"])
def test_images_do_not_depend_on_the_number_of_processes(files, crop, workers):
    order = np.random.default_rng(0).integers(0, 40, 50)
    threads = ImageReader(files, VIEW, crop=crop, seed=1, workers=0)
    reader = ImageReader(files, VIEW, crop=crop, seed=1, workers=workers)
    for step in range(3):  # what is kept comes to be read by the one that keeps it
        np.testing.assert_array_equal(
            reader.random(order, step), threads.random(order, step)
        )
    np.testing.assert_array_equal(reader.central(order), threads.central(order))
    assert reader.check() == threads.check() == []
    assert reader.contents == threads.contents
    reader.close()


def test_calls_from_several_threads_get_their_own_images(reader, files):
    expected = ImageReader(files, VIEW, crop="resized", seed=3, workers=0)
    failures = []

    def read(step):
        for again in range(5):
            order = np.arange(40)[:: again + 1]
            if (reader.random(order, step) != expected.random(order, step)).any():
                failures.append(step)

    threads = [threading.Thread(target=read, args=(step,)) for step in range(4)]
    for thread in threads:
        thread.start()
    reader.check()
    for thread in threads:
        thread.join()
    assert failures == []


def test_views_larger_than_a_message_holds(files):
    view = View(2000)
    reader = ImageReader(files, view, workers=2)
    threads = ImageReader(files, view, workers=0, cache_bytes=0)
    np.testing.assert_array_equal(reader.central(range(9)), threads.central(range(9)))
    reader.close()


def test_arrays_that_are_kept_stay_as_they_are(files, monkeypatch):
    monkeypatch.setattr("tfdml.images._shared_views._BYTES", 100 * 20 * 20 * 3)
    reader = ImageReader(files, VIEW, crop="resized", workers=2)
    threads = ImageReader(files, VIEW, crop="resized", workers=0)
    kept = [reader.random(range(step, step + 10), step) for step in range(30)]
    whole = reader.random(range(40), 31)  # more than a block
    for step, images in enumerate(kept):
        np.testing.assert_array_equal(
            images, threads.random(range(step, step + 10), step)
        )
    np.testing.assert_array_equal(whole, threads.random(range(40), 31))
    parts = [images[2:] for images in kept]
    expected = [part.copy() for part in parts]
    del kept, images
    gc.collect()
    again = [reader.random(range(10), step) for step in range(30)]
    np.testing.assert_array_equal(parts, expected)
    np.testing.assert_array_equal(again[29], threads.random(range(10), 29))
    reader.close()
    np.testing.assert_array_equal(parts, expected)


def test_room_of_arrays_that_ended_is_used_again():
    shared = SharedViews((1000, 1000, 3))
    with shared.open():
        for _ in range(100):
            begin = shared.take(10)
            assert begin == 0
            shared.array(begin, 10)[:] = 7
        arrays = [shared.array(shared.take(10), 10) for _ in range(20)]
        is_copy = [array.flags.owndata for array in arrays]
        assert is_copy == [False] * 4 + [True] * 16
        del arrays
        small = [shared.array(shared.take(1), 1) for _ in range(200)]
        del small[::2]  # holes of a view each
        assert shared.take(10) >= shared.size // 2


def test_call_that_is_interrupted_leaves_its_room_to_nobody_until_it_is_over(
    reader, files, monkeypatch
):
    expected = ImageReader(files, VIEW, crop="resized", seed=3, workers=0)
    reader.central([0])

    def interrupted(event, timeout=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reader.random(range(40), 0)
    np.testing.assert_array_equal(
        reader.random(range(40), 1), expected.random(range(40), 1)
    )
    used = reader._workers._views._used  # brought up to date by the next call
    wait_for(lambda: len(reader.central([0])) == 1 and len(used) <= 1)


def test_error_is_that_of_the_first_image_and_the_next_call_works(reader, files):
    files[30].write_bytes(b"no image")
    files[7].unlink()
    with pytest.raises(FileNotFoundError, match=r"7\.jpg: there is no such file"):
        reader.random(range(40), 0)
    assert reader.central([1, 2]).shape == (2, 20, 20, 3)
    with pytest.raises(UnreadableImageError, match=r"7\.jpg"):
        reader.check()
    found = reader.check(skip_unreadable=True)
    assert [position for position, _ in found] == [7, 30]


def test_process_that_is_killed_is_told_with_its_images(reader):
    reader.central([0])
    for process in processes(reader):
        process.kill()
    with pytest.raises(
        WorkerDiedError, match=r"ended with code -9 \(killed.*\.jpg.*`workers`"
    ):
        reader.random(range(40), 0)
    with pytest.raises(WorkerDiedError):  # it does not hang
        reader.central([0])


def test_call_that_waits_ends_with_the_reader(reader):
    reader.central([0])
    for process in processes(reader):
        process.send_signal(signal.SIGSTOP)
    failures = []

    def read():
        try:
            reader.random(range(40), 0)
        except WorkerDiedError as error:
            failures.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    wait_for(lambda: reader._workers._calls)
    for process in processes(reader):
        process.send_signal(signal.SIGCONT)
    reader.close()
    thread.join()
    assert failures in ([], ["The processes that read images were closed."])
    assert all(process.poll() is not None for process in processes(reader))


def test_reader_that_is_forgotten_ends_its_processes(files):
    reader = ImageReader(files, VIEW, workers=2)
    reader.central([0])
    started = processes(reader)
    del reader
    wait_for(lambda: all(process.poll() is not None for process in started))


SCRIPT = """
import signal
import sys
from tfdml.images import ImageReader, View

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
reader = ImageReader(sys.argv[1:], View(8), workers=2)
assert reader.central(range(len(reader))).shape == (len(reader), 8, 8, 3)
print(*[p._process.pid for p in reader._workers._processes], flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize("how", ["end", "interrupt", "kill"])
def test_script_needs_no_guard_and_leaves_no_process(files, tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, script, *files[:20]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    with process:
        workers = [int(word) for word in process.stdout.readline().split()]
        assert len(workers) == 2
        if how == "interrupt":  # as Ctrl-C does, in all processes of the terminal
            os.killpg(process.pid, signal.SIGINT)
        elif how == "kill":
            process.kill()
        errors = process.communicate()[1].decode()
    assert ("KeyboardInterrupt" in errors) == (how == "interrupt")
    assert errors.count("Traceback") == (how == "interrupt")
    wait_for(lambda: not any(is_running(worker) for worker in workers))


def test_machine_that_starts_no_process_is_told(files, monkeypatch):
    def refused(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("tfdml.images._workers.subprocess.Popen", refused)
    reader = ImageReader(files, VIEW, workers=2)
    with pytest.raises(OSError, match="Resource temporarily unavailable"):
        reader.central([0])


def test_many_files_on_many_cores_are_read_by_processes(monkeypatch):
    monkeypatch.setattr("tfdml.images._reader.cpu_cores", lambda: 16)
    assert isinstance(ImageReader(["a.jpg"] * 300, VIEW)._workers, Workers)
    assert ImageReader(["a.jpg"] * 30, VIEW)._workers is None
    monkeypatch.setattr("tfdml.images._reader.cpu_cores", lambda: 2)
    assert ImageReader(["a.jpg"] * 300, VIEW)._workers is None

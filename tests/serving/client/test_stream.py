"""Long lists through several requests at one time: order, memory, errors."""

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serving.client import EndpointClient, EndpointError, Retries
from serving.client.stream import in_order
from tests.support.random_pixels import png, random_pixels
from tests.support.search_fixtures import (
    DIMENSION,
    SHADES,
    quarter_colors,
    serve_model,
    write_color_model,
    write_gallery_images,
    write_image,
)
from tfdml.images import UnreadableImageError

# The pipeline


def test_results_come_in_the_order_of_the_items_whatever_ends_first():
    second_is_done = threading.Event()

    def work(batch):
        if batch[0] == 0:
            assert second_is_done.wait(60)
        elif batch[0] == 2:
            second_is_done.set()
        return sum(batch)

    results = in_order(work, range(7), batch_size=2, concurrency=2)
    assert list(results) == [1, 5, 9, 6]


def test_as_many_batches_as_allowed_are_in_work_at_one_time():
    all_three = threading.Barrier(3, timeout=60)

    def work(batch):
        all_three.wait()  # breaks unless three are here at once
        return batch

    results = in_order(work, range(6), batch_size=1, concurrency=3)
    assert list(results) == [[0], [1], [2], [3], [4], [5]]


def test_endless_items_are_taken_only_as_results_are():
    taken = []

    def items():
        for number in itertools.count():
            taken.append(number)
            yield number

    results = in_order(sum, items(), batch_size=5, concurrency=2)
    for _ in range(3):
        next(results)
    # Three results, and at most twice the concurrency ahead of them.
    assert len(taken) <= (3 + 4) * 5
    results.close()


def test_error_comes_after_the_results_before_it_and_ends_the_work():
    begun = []
    release = threading.Event()

    def work(batch):
        begun.append(batch[0])
        if batch[0] == 1:
            raise ValueError("second")
        if batch[0] > 1:
            release.wait(60)
        return batch[0]

    results = in_order(work, range(100), batch_size=1, concurrency=1)
    assert next(results) == 0
    release.set()
    with pytest.raises(ValueError, match="second"):
        next(results)
    assert list(results) == []
    assert len(begun) <= 5


def test_error_of_the_items_themselves_is_passed_on():
    def items():
        yield from range(5)
        raise OSError("the folder is gone")

    found = []
    with pytest.raises(OSError, match="the folder is gone"):
        found.extend(in_order(sum, items(), batch_size=2, concurrency=2))
    assert found == [0 + 1, 2 + 3, 4]


def test_error_of_the_items_themselves_comes_after_that_of_an_item_before_it():
    def items():
        yield 1
        raise OSError("the folder is gone")

    def refuse(batch):
        raise ValueError("bad item")

    with pytest.raises(ValueError, match="bad item"):
        list(in_order(refuse, items(), batch_size=1, concurrency=2))


def test_threads_are_gone_when_the_stream_is_closed():
    before = set(threading.enumerate())
    results = in_order(sum, itertools.count(), batch_size=1, concurrency=3)
    next(results)
    assert set(threading.enumerate()) - before
    results.close()
    assert not set(threading.enumerate()) - before


def test_work_is_reported_when_the_stream_is_closed():
    is_abandoned = threading.Event()
    ends = []

    def work(batch):
        if batch[0]:
            ends.append(is_abandoned.wait(60))
        return batch

    results = in_order(
        work, range(9), batch_size=1, concurrency=2, abandon=is_abandoned.set
    )
    next(results)
    results.close()
    assert ends
    assert all(ends)


def test_nothing_gives_nothing():
    assert list(in_order(sum, [], batch_size=1, concurrency=1)) == []


# With the real endpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    base_path = tmp_path_factory.mktemp("models") / "colors"
    write_color_model(base_path / "1")
    return base_path


@pytest.fixture(scope="module")
def endpoint_url(model):
    with serve_model(model) as url:
        yield url


@pytest.fixture
def client(endpoint_url):
    with EndpointClient(endpoint_url, batch_size=4) as client:
        yield client


def test_each_image_of_a_stream_comes_with_its_embedding(client):
    images = [random_pixels(seed) for seed in range(11)]
    encoded = [png(pixels) for pixels in images]
    found = list(client.embed_stream(iter(encoded), batch_size=2, concurrency=3))
    assert [image for image, _ in found] == encoded
    expected = [quarter_colors(pixels) for pixels in images]
    np.testing.assert_allclose([row for _, row in found], expected, atol=2e-6)


def test_stream_is_the_same_as_single_requests(client, tmp_path):
    write_gallery_images(tmp_path)
    files = sorted(tmp_path.glob("*/*.png"))
    rows = [row for _, row in client.embed_stream(files)]
    np.testing.assert_allclose(rows, client.embed(files), atol=1e-6)


def test_batch_of_a_stream_may_be_larger_than_that_of_the_client(client, monkeypatch):
    sizes = []

    def predict(name, encoded, signature):
        sizes.append(len(encoded))
        return real(name, encoded)

    real = client._model.connection.predict
    monkeypatch.setattr(client._model.connection, "predict", predict)
    encoded = [png(random_pixels(seed)) for seed in range(7)]
    list(client.embed_stream(encoded, batch_size=6, concurrency=1))
    assert sizes == [6, 1]  # the client's own is 4


@pytest.fixture
def folder(tmp_path):
    """Nine images, a text that calls itself one, and one that leads nowhere."""
    write_gallery_images(tmp_path / "images")
    (tmp_path / "images" / "green" / "notes.png").write_text("no image")
    (tmp_path / "images" / "red" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    return tmp_path / "images"


def test_unreadable_image_ends_a_stream_after_those_before_it(client, folder):
    files = sorted(folder.glob("*/*.png"))
    found = []
    with pytest.raises(UnreadableImageError, match=r"notes\.png"):
        found.extend(client.embed_stream(files))
    assert [file for file, _ in found] == files[:4]
    assert files[4].name == "notes.png"


def test_unreadable_images_are_reported_and_left_out(client, folder):
    files = sorted(folder.glob("*/*.png"))
    told = {}
    stream = client.embed_stream(
        files, batch_size=2, on_unreadable=lambda *pair: told.update([pair])
    )
    found = [file for file, _ in stream]
    assert set(found) | set(told) == set(files)
    assert found == [file for file in files if file not in told]
    assert {file.name for file in told} == {"notes.png", "gone.png"}
    assert isinstance(told[folder / "green" / "notes.png"], UnreadableImageError)
    assert isinstance(told[folder / "red" / "gone.png"], FileNotFoundError)


def test_batch_of_nothing_but_unreadable_images_is_not_sent(client, folder):
    files = [folder / "green" / "notes.png"]
    told = []
    assert not list(client.embed_stream(files, on_unreadable=lambda *p: told.append(p)))
    assert len(told) == 1


def test_folder_is_embedded_in_the_order_of_its_paths(client, folder):
    found = client.embed_folder(folder, skip_unreadable=True)
    expected = [
        f"{color}/{shade}.png" for color in ("blue", "green", "red") for shade in SHADES
    ]
    assert list(found.paths) == expected
    assert set(found.skipped) == {"green/notes.png", "red/gone.png"}
    rows = client.embed([folder / path for path in found.paths])
    np.testing.assert_allclose(found.embeddings, rows, atol=1e-6)


@pytest.mark.parametrize(
    ("is_terminal", "progress", "is_shown"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_progress_is_shown_in_a_terminal_unless_left_out(
    client, folder, capsys, monkeypatch, is_terminal, progress, is_shown
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    client.embed_folder(folder, skip_unreadable=True, progress=progress)
    assert ("11 of 11 images" in capsys.readouterr().err) is is_shown


def test_unreadable_image_ends_a_folder(client, folder):
    with pytest.raises(UnreadableImageError, match=r"notes\.png"):
        client.embed_folder(folder, progress=False)


def test_folder_of_nothing_readable_has_no_rows(client, tmp_path):
    (tmp_path / "notes.png").write_text("no image")
    found = client.embed_folder(tmp_path, skip_unreadable=True, progress=False)
    assert found.embeddings.shape == (0, DIMENSION)


def test_endpoint_that_is_gone_ends_a_stream(model, tmp_path):
    file = write_image(tmp_path / "a.png", (1, 2, 3))
    with serve_model(model) as url:
        client = EndpointClient(url, retries=Retries(count=0))
        stream = client.embed_stream(itertools.repeat(file), batch_size=1)
        next(stream)
    with client, pytest.raises(EndpointError, match="cannot be reached"):
        list(stream)


LONG = Retries(count=9, seconds=3600, first_wait=600, longest_wait=600)


class Busy:
    """A connection of a client that answers `good` predict calls, and is busy then."""

    def __init__(self, connection, *, good):
        self.connection, self.left = connection, good
        self.is_busy = threading.Event()

    def metadata(self):
        return self.connection.metadata() if self.left else self.refuse()

    def predict(self, name, encoded, signature):
        if not self.left:
            self.refuse()
        self.left -= 1
        return self.connection.predict(name, encoded)

    def describe(self):
        return self.connection.describe()

    def refuse(self):
        self.is_busy.set()
        raise EndpointError("busy", may_pass=True)

    def close(self):
        self.connection.close()


def busy_client(url, *, good):
    client = EndpointClient(url, batch_size=1, retries=LONG)
    client._model.connection = Busy(client._model.connection, good=good)
    return client


def test_stream_that_is_closed_waits_for_no_retry(endpoint_url):
    image = png(random_pixels(0))
    with busy_client(endpoint_url, good=1) as client:
        stream = client.embed_stream(itertools.repeat(image), concurrency=1)
        next(stream)
        assert client._model.connection.is_busy.wait(60)
        stream.close()  # would last ten minutes


def test_stream_that_fails_waits_for_no_retry(endpoint_url):
    image = png(random_pixels(0))

    def images():
        yield b"no image"
        yield image
        assert client._model.connection.is_busy.wait(60)
        yield image

    with busy_client(endpoint_url, good=0) as client:
        stream = client.embed_stream(images(), concurrency=2)
        with pytest.raises(UnreadableImageError):
            next(stream)


def test_client_that_is_closed_ends_the_waits_of_its_streams(endpoint_url):
    client = busy_client(endpoint_url, good=0)
    stream = client.embed_stream([png(random_pixels(0))] * 5, concurrency=2)

    def close():
        assert client._model.connection.is_busy.wait(60)
        client.close()

    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(close)
        with pytest.raises(EndpointError, match="busy"):
            next(stream)
        closing.result()


@pytest.mark.parametrize("option", ["batch_size", "concurrency"])
def test_option_out_of_range_is_refused(client, option):
    with pytest.raises(ValueError, match=f"`{option}` must be at least 1"):
        client.embed_stream([], **{option: 0})


@pytest.mark.parametrize("single", [b"bytes", "cat.png"])
def test_single_image_in_place_of_a_list_is_refused(client, single):
    with pytest.raises(TypeError, match=r"\[image\]"):
        client.embed_stream(single)

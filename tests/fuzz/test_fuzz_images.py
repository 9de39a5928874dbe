"""Damaged and lying images: refused, alone, and nothing else is disturbed."""

import struct
import threading
import zlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given

from tests.fuzz.damaged_images import IMAGES, damaged_images, with_size
from tests.fuzz.mutated_bytes import fuzzing
from tests.fuzz.server_process import ANSWER_SECONDS
from tests.support.example_model import png
from tests.support.running_grpc import channel_to, predict_request

pytestmark = pytest.mark.slow

GOOD = (png(200, 90, 30), png(20, 190, 230))


@pytest.fixture(scope="module")
def embed(embedder_server):
    """Embeds images; returns the rows, or the text of the refusal."""
    with channel_to(f"127.0.0.1:{embedder_server.grpc_port}") as stubs:

        def embed(*images):
            request = predict_request({"image_bytes": images}, name="embedder")
            # A future keeps the code of a failed call, and raises only when asked.
            answer = stubs.prediction.Predict.future(
                request, timeout=ANSWER_SECONDS, wait_for_ready=True
            )
            if answer.code().name != "OK":
                assert answer.code().name == "INVALID_ARGUMENT", answer.details()
                return answer.details()
            response = answer.result()
            rows = tf.make_ndarray(response.outputs["embedding"])
            assert rows.shape == (len(images), 8)
            assert np.isfinite(rows).all()
            return rows

        yield embed


def lies():
    """Small files that claim to be large images."""
    for kind in IMAGES:
        yield with_size(kind, 16_000, 16_000)
        yield with_size(kind, 65_000, 65_000)
        yield with_size(kind, 2**31 - 1, 1)
        yield with_size(kind, 1, 2**31 - 1)
        yield with_size(kind, 0, 0)


def png_bomb(side):
    """A PNG of one color that really has that many pixels, a thousandth the size."""

    def chunk(kind, content):
        crc = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + crc

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(bytes((3 * side + 1) * side)))
        + chunk(b"IEND", b"")
    )


def test_images_of_each_kind_are_what_the_damage_begins_with(embed):
    answers = {kind: embed(image) for kind, image in IMAGES.items()}
    refused = {kind for kind, answer in answers.items() if isinstance(answer, str)}
    assert refused == {"palette bmp", "animated webp", "animated alpha webp"}


def test_damaged_images_are_refused(embedder_server, embed, examples):
    refused = set()

    @fuzzing(examples)
    @given(damaged_images())
    @example(png_bomb(12_000))
    @example(b"")
    def send(image):
        embedder_server.revive()
        if isinstance(embed(image), str):
            refused.add(image)
        embedder_server.check_alive(image)

    send()
    embedder_server.check_good_request()
    assert len(refused) >= examples / 2


def test_lies_about_the_size_take_no_memory(embedder_server, embed):
    for image in set(lies()):
        embedder_server.revive()
        embed(image)
        embedder_server.check_alive(image)


def test_row_of_a_damaged_image_is_named_in_a_batch(embedder_server, embed, examples):
    first, last = embed(GOOD[0]), embed(GOOD[1])
    named = set()

    @fuzzing(examples)
    @given(damaged_images())
    def send(image):
        embedder_server.revive()
        answer = embed(GOOD[0], image, GOOD[1])
        if isinstance(answer, str):
            assert answer.startswith('Input "image_bytes", row 1: '), answer
            named.add(image)
        else:
            np.testing.assert_allclose(answer[:1], first, atol=1e-5)
            np.testing.assert_allclose(answer[2:], last, atol=1e-5)
        embedder_server.check_alive(image)

    send()
    assert len(named) >= examples / 2


@pytest.mark.full
def test_good_images_beside_damaged_ones_are_answered_rightly(
    embedder_server, embed, examples
):
    expected = [embed(image) for image in GOOD]
    ended, wrong, good_answers = threading.Event(), [], []

    def send_good(number):
        while not ended.is_set():
            answer = embed(GOOD[number])
            if isinstance(answer, str) or abs(answer - expected[number]).max() > 1e-4:
                wrong.append(answer)
            good_answers.append(number)

    @fuzzing(examples)
    @given(damaged_images())
    def send(image):
        embedder_server.revive()
        embed(image)
        embedder_server.check_alive(image)

    threads = [threading.Thread(target=send_good, args=[number]) for number in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        send()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert set(good_answers) == {0, 1}

from types import SimpleNamespace

import numpy as np
import pytest

from serving.endpoint.predictor import Predictor
from serving.web.status import StatusCode, StatusError
from tests.support.example_model import png

PIXELS = 64  # of an image of the example, 8 x 8


class _Scheduler:
    """Takes note of what reaches the queue."""

    memory = None

    def __init__(self):
        self.submitted = []

    def submit(self, servable, signature_name, inputs, waiting, costs):
        self.submitted.append((inputs, costs))


def images(count):
    array = np.empty(count, object)
    array[:] = [png(1, 2, 3)] * count
    return array


def submit(max_pixels, **inputs):
    scheduler = _Scheduler()
    predictor = Predictor(scheduler, max_pixels=max_pixels)
    predictor.submit(SimpleNamespace(images_at_once=2), "any", inputs, None)
    return scheduler.submitted


def test_images_of_a_request_may_have_four_times_the_limit_together():
    numbers = np.ones(9, np.int64)
    assert len(submit(PIXELS, a=images(4), numbers=numbers)) == 1
    assert len(submit(PIXELS, a=images(3), b=images(1))) == 1
    for inputs in ({"a": images(5)}, {"a": images(3), "b": images(2)}):
        with pytest.raises(StatusError) as caught:
            submit(PIXELS, **inputs)
        assert caught.value.code == StatusCode.INVALID_ARGUMENT
        assert caught.value.message == (
            "The images of the request have 320 pixels together; at most 256 are "
            "decoded for one request. Send fewer at a time."
        )


def test_memory_of_each_row_goes_with_the_request():
    ((_, costs),) = submit(PIXELS, a=images(2), b=images(2))
    assert costs.at_once == 2
    encoded = 4 * len(png(1, 2, 3))
    assert costs.rows.tolist() == [2 * (16 * PIXELS + encoded)] * 2
    ((_, none),) = submit(PIXELS, numbers=np.ones(3, np.int64))
    assert none is None


def test_bytes_that_are_no_image_take_memory_too():
    ((_, costs),) = submit(PIXELS, text=np.array([b"no image", b""], object))
    assert costs.rows.tolist() == [4 * 8, 0]


def test_one_image_above_the_limit_is_refused_though_the_sum_is_not():
    with pytest.raises(StatusError, match="row 0: the image has 8 x 8 pixels"):
        submit(PIXELS - 1, a=images(1))


def test_a_limit_of_no_pixels_is_refused():
    with pytest.raises(ValueError, match="`max_pixels` must be at least 1"):
        Predictor(_Scheduler(), max_pixels=0)

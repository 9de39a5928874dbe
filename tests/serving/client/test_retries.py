"""When requests are made again. Oracle: the documentation, with a clock by hand."""

import email.utils
import gzip
import json
import time

import numpy as np
import pytest

from serving.client import Credentials, EndpointClient, EndpointError, Retries
from serving.client.embed_images import PATIENCE
from serving.client.retries import Waits, ask
from tests.support.answering_model import Refusal, answering
from tests.support.random_pixels import png, random_pixels

QUICK = Retries(first_wait=0.001, longest_wait=0.002)


class Clock:
    """Time that passes while one waits, and `seconds` an attempt."""

    def __init__(self, seconds=0.0):
        self.now, self.seconds, self.waits = 100.0, seconds, []

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.waits.append(seconds)
        self.now += seconds

    def failing(self, *errors):
        """Make an attempt that raises these errors, then succeeds."""
        left = list(errors)

        def attempt():
            self.now += self.seconds
            if left:
                raise left.pop(0)
            return "answer"

        return attempt


def busy(**options):
    return EndpointError("busy", status=503, may_pass=True, **options)


def ask_longest(attempt, retries, clock):
    return ask(
        attempt, retries, wait=clock.wait, clock=clock, draw=lambda low, high: high
    )


def test_waits_double_up_to_the_longest():
    clock = Clock()
    retries = Retries(count=5, seconds=100, first_wait=1, longest_wait=6)
    assert ask_longest(clock.failing(*[busy()] * 5), retries, clock) == "answer"
    assert clock.waits == [1, 2, 4, 6, 6]


def test_waits_are_drawn_from_the_upper_half():
    drawn = []
    clock = Clock()

    def draw(low, high):
        drawn.append((low, high))
        return low

    retries = Retries(count=2, first_wait=1)
    ask(clock.failing(busy(), busy()), retries, wait=clock.wait, clock=clock, draw=draw)
    assert drawn == [(0.5, 1), (1, 2)]
    assert clock.waits == [0.5, 1]


def test_number_of_retries_is_bounded():
    clock = Clock()
    with pytest.raises(EndpointError, match=r"busy \(Tried 3 times") as caught:
        ask_longest(clock.failing(*[busy()] * 3), Retries(count=2), clock)
    assert len(clock.waits) == 2
    assert caught.value.status == 503


def test_no_retry_begins_after_the_total_time():
    clock = Clock(seconds=4)
    retries = Retries(count=9, seconds=9.5, first_wait=1, longest_wait=1)
    with pytest.raises(EndpointError, match=r"Tried 2 times in 9\.0 seconds"):
        ask_longest(clock.failing(*[busy()] * 9), retries, clock)
    assert clock.waits == [1]


def test_without_retries_the_error_is_as_it_was():
    error = busy()
    clock = Clock()
    with pytest.raises(EndpointError) as caught:
        ask_longest(clock.failing(error), Retries(count=0), clock)
    assert caught.value is error


def test_what_cannot_pass_is_not_tried_again():
    error = EndpointError("bad image", status=400)
    clock = Clock()
    with pytest.raises(EndpointError) as caught:
        ask_longest(clock.failing(error), Retries(), clock)
    assert caught.value is error
    assert not clock.waits


def test_wait_is_no_shorter_than_the_endpoint_wants():
    clock = Clock()
    retries = Retries(seconds=30, first_wait=1)
    errors = [busy(retry_after=7.0), busy(retry_after=0.5)]
    assert ask_longest(clock.failing(*errors), retries, clock) == "answer"
    assert clock.waits == [7, 2]


def test_wait_that_is_beyond_the_total_time_is_not_begun():
    clock = Clock()
    with pytest.raises(EndpointError, match="busy"):
        ask_longest(clock.failing(busy(retry_after=31.0)), Retries(seconds=30), clock)
    assert not clock.waits


def test_client_that_is_closed_while_it_waits_gives_the_last_error():
    clock = Clock()
    with pytest.raises(EndpointError, match="busy"):
        ask(clock.failing(busy()), Retries(), wait=lambda seconds: True)


@pytest.mark.parametrize("end", [min, max])
def test_long_run_is_patient_for_two_minutes(end):
    """As docs/client.md says, whatever is drawn, less one wait at most."""
    clock = Clock()
    with pytest.raises(EndpointError, match="busy"):
        ask(
            clock.failing(*[busy()] * 1000),
            PATIENCE,
            wait=clock.wait,
            clock=clock,
            draw=lambda low, high: end(low, high),
        )
    assert 120 - PATIENCE.longest_wait < sum(clock.waits) <= 120


def test_part_of_the_waits_ends_with_the_whole_and_not_the_other_way():
    whole = Waits()
    first, second = Waits(whole), Waits(whole)
    first.end()
    assert first.wait(600)
    assert not second.wait(0)
    assert not whole.wait(0)
    whole.end()
    assert whole.wait(600)
    assert second.wait(600)


@pytest.mark.parametrize(
    "option",
    [
        {"count": -1},
        {"seconds": -0.1},
        {"seconds": float("nan")},
        {"first_wait": 0.0},
        {"longest_wait": 0.05},
        {"first_wait": float("nan")},
    ],
)
def test_bound_out_of_range_is_refused(option):
    name = next(iter(option))
    with pytest.raises(ValueError, match=f"`{name}`.*Received:.*{name}="):
        Retries(**option)


# Over REST alone

ANSWER = {"embedding": [[1.0, 0.0]]}


def embed_one(url, **options):
    with EndpointClient(url, retries=QUICK, **options) as client:
        return client.embed([png(random_pixels(5, 3, 4))])


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_time_that_the_endpoint_asks_for_is_beyond_the_bound(form):
    soon = email.utils.formatdate(time.time() + 5000, usegmt=True)
    headers = {"Retry-After": "5000" if form == "seconds" else soon}
    with (
        answering("REST", Refusal(503, "later", headers), ANSWER) as model,
        pytest.raises(EndpointError, match="later") as caught,
    ):
        embed_one(model.url)
    assert len(model.requests) == 1
    assert 4000 < caught.value.retry_after <= 5000


@pytest.mark.parametrize("value", ["0", "soon", "-1", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_other_times_do_not_hinder(value):
    headers = {"Retry-After": value}
    with answering("REST", Refusal(503, "later", headers), ANSWER) as model:
        np.testing.assert_array_equal(embed_one(model.url), [[1, 0]])
    assert len(model.requests) == 2


def test_compressed_request_is_the_same_request():
    with answering("REST", ANSWER) as model:
        embed_one(model.url)
        embed_one(model.url, gzip_requests=True)
    plain, packed = model.requests
    assert model.headers[1]["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed)) == json.loads(plain)


# Credentials


@pytest.mark.parametrize("token", ["", "two words", "line\n", "ä"])
def test_token_that_cannot_be_sent_is_refused_and_not_shown(token):
    with pytest.raises(ValueError, match="`token` must have") as caught:
        Credentials(token=token)
    assert not token or token not in str(caught.value).replace("line", "")


def test_certificates_need_an_encrypted_connection():
    for url in ("http://h/v1/models/m", "grpc://h/m"):
        with pytest.raises(ValueError, match="`ca_file` needs an encrypted"):
            EndpointClient(url, credentials=Credentials(ca_file="ca.pem"))
    with pytest.raises(ValueError, match="must be given together"):
        Credentials(certificate_file="client.pem")

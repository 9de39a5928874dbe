"""Ids and traces of requests, through all processes."""

import contextlib
import logging

import pytest

from serving.search.gallery.opening import open_search
from serving.web.observer import RequestObserver
from serving.web.sockets import open_socket, url_of
from serving.web.tracing import Tracing, handing_on, outgoing_headers
from tests.support.closed_port import closed_port
from tests.support.collector import collecting
from tests.support.refuses import refuses
from tests.support.running_grpc import StubModel, predict_request, running_grpc
from tests.support.search_fixtures import encoded, page_of, post, serve_model
from tests.support.served import load_servable

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@contextlib.contextmanager
def nobody():
    """Yield an address where no collector listens."""
    with closed_port() as reserved:
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


@contextlib.contextmanager
def silence():
    """Yield the address of a collector that never answers."""
    with open_socket("127.0.0.1", 0) as listener:
        yield url_of(listener)


@pytest.fixture
def collected():
    with collecting() as (url, collected):
        yield url, collected


@pytest.fixture
def traced(collected):
    """Two services that are traced, and a function that sends what they have."""
    url, spans = collected
    page, endpoint = (Tracing(name, url, seconds=60) for name in ("page", "endpoint"))

    def send():
        for each in (page, endpoint):
            each.close()
        return spans

    return page, endpoint, send


class TestHandingOn:
    def test_nothing_is_handed_on_outside_of_a_request(self):
        assert outgoing_headers() == {}

    def test_inner_headers_come_on_top_and_go_again(self):
        with handing_on({"x-request-id": "one"}):
            with handing_on({"traceparent": "two"}):
                both = {"x-request-id": "one", "traceparent": "two"}
                assert outgoing_headers() == both
            assert outgoing_headers() == {"x-request-id": "one"}
        assert outgoing_headers() == {}


class TestSearch:
    def test_one_id_stands_in_the_logs_of_page_and_endpoint(
        self, colors, colors_url, caplog
    ):
        with (
            caplog.at_level(logging.INFO, "serving.requests"),
            open_search(colors / "index", colors_url) as search,
            # A request may be logged after its reply, until the page has ended.
            page_of(search) as page,
        ):
            page.headers["x-request-id"] = "from-the-client"
            post(page, encoded((20, 10, 240)))
        fields = [r.request_fields for r in caplog.records if "request" in r.message]
        calls = {f.call for f in fields if f.request_id == "from-the-client"}
        assert calls >= {"search", "predict"}

    def test_one_trace_goes_through_page_endpoint_and_index(self, colors, traced):
        page_tracing, endpoint_tracing, send = traced
        observer = RequestObserver(tracing=endpoint_tracing)
        with (
            serve_model(colors / "models" / "colors", observer=observer) as url,
            open_search(colors / "index", url) as search,
            page_of(search, tracing=page_tracing) as page,
        ):
            page.headers.update(PARENT)
            assert post(page, encoded((20, 10, 240))).status_code == 200
        spans = send()
        assert {"search", "decode", "embed", "index"} <= set(spans.names("page"))
        (embed,) = spans.named("embed")
        # The embedding, and the question for the fingerprint of the model.
        predict, *_ = (
            span
            for span in spans.named("predict")
            if span.parent_span_id == embed.span_id
        )
        assert embed.trace_id.hex() == predict.trace_id.hex() == TRACE
        about = {a.key: a.value.string_value for a in predict.attributes}
        assert about["tfdml.model"] == "colors"
        assert about["tfdml.status"] == "OK"

    @pytest.mark.parametrize("away", [nobody, silence])
    def test_collector_that_is_away_or_silent_holds_nothing_up(
        self, colors, colors_url, away
    ):
        with (
            away() as address,
            open_search(colors / "index", colors_url) as search,
        ):
            tracing = Tracing("page", address, seconds=0.1)
            with page_of(search, tracing=tracing) as page:
                assert post(page, encoded((20, 10, 240))).status_code == 200
            tracing.close()


class TestGrpc:
    def test_one_trace_goes_through_the_page_and_an_endpoint_of_grpc(
        self, colors, traced
    ):
        page_tracing, endpoint_tracing, send = traced
        observer = RequestObserver(tracing=endpoint_tracing)
        servable = load_servable("colors", colors / "models" / "colors")
        with (
            running_grpc([servable], observer=observer) as stubs,
            open_search(
                colors / "index", f"grpc://{stubs.server.address}/colors"
            ) as search,
            page_of(search, tracing=page_tracing) as page,
        ):
            page.headers.update(PARENT)
            assert post(page, encoded((20, 10, 240))).status_code == 200
        spans = send()
        (embed,) = spans.named("embed")
        predictions = {s.parent_span_id: s for s in spans.named("predict")}
        assert embed.trace_id.hex() == TRACE
        assert predictions[embed.span_id].trace_id.hex() == TRACE

    def test_call_belongs_to_the_trace_of_its_client(self, traced):
        _, tracing, send = traced
        model = StubModel()
        model.release.set()
        with running_grpc([model], observer=RequestObserver(tracing=tracing)) as stubs:
            stubs.prediction.Predict(
                predict_request({"x": [1.0]}, name="stub"),
                timeout=60,
                metadata=list(PARENT.items()),
            )
        (predict,) = send().named("predict")
        assert predict.trace_id.hex() == TRACE


@pytest.mark.parametrize("url", ["collector:4318", "grpc://host:4317", "http://", ""])
def test_what_is_no_address_of_a_collector_is_refused(url):
    refuses(
        Tracing,
        argument="trace_to",
        value=url,
        rule="must be the address of a collector",
        valid={"service": "page"},
    )

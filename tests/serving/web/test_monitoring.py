"""Metrics as TF Serving exports them, and its configuration file."""

import threading

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from serving.web.monitoring import METRICS_PATH, Monitoring, read_monitoring_config
from serving.web.status import StatusCode
from tests.support.running_server import running


def lines_of(monitoring):
    return monitoring.exposition()[0].decode().splitlines()


def bounds_of(monitoring, name):
    start = f":tensorflow:serving:{name}_bucket{{"
    found = [line for line in lines_of(monitoring) if line.startswith(start)]
    return [line.rpartition('le="')[2].partition('"')[0] for line in found]


def write_config(folder, text):
    file = folder / "monitoring.config"
    file.write_text(text)
    return file


def test_requests_are_counted_by_model_and_status_without_a_suffix():
    monitoring = Monitoring()
    for _ in range(3):
        monitoring.request("demo", "predict", "REST", StatusCode.OK, 0.01)
    monitoring.request("demo", "predict", "GRPC", StatusCode.INVALID_ARGUMENT, 0.01)
    count = ":tensorflow:serving:request_count"
    assert lines_of(monitoring)[:3] == [
        f"# TYPE {count} counter",
        f'{count}{{model_name="demo",status="OK"}} 3',
        f'{count}{{model_name="demo",status="INVALID_ARGUMENT"}} 1',
    ]


def test_latency_is_in_microseconds_with_the_labels_of_each_protocol():
    monitoring = Monitoring()
    monitoring.request("demo", "predict", "REST", StatusCode.OK, 0.25)
    monitoring.request("demo", "predict", "REST", StatusCode.OK, 0.5)
    monitoring.request("demo", "Predict", "GRPC", StatusCode.OK, 2.0)
    latency = ":tensorflow:serving:request_latency"
    rest = 'model_name="demo",API="predict",entrypoint="REST"'
    grpc = 'model_name="demo",API="Predict",entrypoint="GRPC"'
    lines = lines_of(monitoring)
    assert f"# TYPE {latency} histogram" in lines
    # 0.25 s is 250000 microseconds: above 218591, below 393464.
    assert f'{latency}_bucket{{{rest},le="218591"}} 0' in lines
    assert f'{latency}_bucket{{{rest},le="393464"}} 1' in lines
    assert f'{latency}_bucket{{{rest},le="708235"}} 2' in lines
    assert f'{latency}_bucket{{{rest},le="+Inf"}} 2' in lines
    assert f"{latency}_sum{{{rest}}} 750000" in lines
    assert f"{latency}_count{{{rest}}} 2" in lines
    assert f"{latency}_count{{{grpc}}} 1" in lines
    assert not any("_created" in line for line in lines)


def test_time_of_failed_requests_is_not_kept():
    monitoring = Monitoring()
    monitoring.request("demo", "predict", "REST", StatusCode.UNAVAILABLE, 30)
    assert not any("request_latency" in line for line in lines_of(monitoring))


def test_bounds_of_the_buckets_are_written_as_in_tf_serving():
    monitoring = Monitoring()
    monitoring.request("demo", "predict", "REST", StatusCode.OK, 0.01)
    monitoring.queuing(0.001, "pool")
    monitoring.batch([1], 0)
    latency = bounds_of(monitoring, "request_latency")
    assert latency[:8] == [
        "10",
        "18",
        "32.4",
        "58.32",
        "104.976",
        "188.957",
        "340.122",
        "612.22",
    ]
    assert latency[19:21] == ["708235", "1.27482e+06"]
    assert latency[-2:] == ["1.47476e+09", "+Inf"]
    assert len(latency) == 33 + 1
    queuing = bounds_of(monitoring, "batching_session:queuing_latency")
    assert queuing[:3] == ["100", "120", "144"]
    assert len(queuing) == 52 + 1
    sizes = [*(str(2**power) for power in range(14)), "+Inf"]
    assert bounds_of(monitoring, "batching_session:processed_batch_size") == sizes


def test_runtime_queue_batches_and_warm_up_have_the_names_of_tf_serving():
    monitoring = Monitoring()
    monitoring.runtime("demo", 0.003)
    monitoring.queuing(0.002, "pool")
    monitoring.batch([1, 2, 3], 2)
    monitoring.warm_up("/models/demo/1", 0.5)
    lines = lines_of(monitoring)
    start = ":tensorflow:serving:"
    for line in (
        'runtime_latency_sum{model_name="demo",API="Predict",runtime="TF1"} 3000',
        'model_warmup_latency_sum{model_path="/models/demo/1",status="OK"} 500000',
        'batching_session:queuing_latency_sum{thread_pool_name="pool"} 2000',
        "batching_session:wrapped_run_count{} 1",
        "batching_session:input_batch_size_sum{} 6",
        "batching_session:input_batch_size_count{} 3",
        "batching_session:processed_batch_size_sum{} 8",
        'batching_session:padding_size_sum{execution_batch_size="8"} 2',
    ):
        assert f"{start}{line}" in lines


def test_models_that_are_not_served_make_no_series():
    monitoring = Monitoring()
    before = monitoring.exposition()
    monitoring.request(None, "predict", "REST", StatusCode.NOT_FOUND, 0.01)
    assert monitoring.exposition() == before


def test_two_servers_in_one_process_count_for_themselves():
    first, second = Monitoring(), Monitoring()
    first.request("demo", "predict", "REST", StatusCode.OK, 0.01)
    assert 'request_count{model_name="demo"' in first.exposition()[0].decode()
    assert "demo" not in second.exposition()[0].decode()


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "line\nbreak", "übung"])
def test_model_name_comes_back_from_a_scraper(name):
    monitoring = Monitoring()
    monitoring.request(name, "predict", "REST", StatusCode.OK, 0.01)
    text = monitoring.exposition()[0].decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.get("model_name", name) == name
    assert f"line{chr(10)}break" not in text


def test_no_count_is_lost_between_threads():
    monitoring = Monitoring()
    start = threading.Barrier(8)

    def count():
        start.wait()
        for _ in range(500):
            monitoring.request("demo", "predict", "GRPC", StatusCode.OK, 0.01)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    series = ':tensorflow:serving:request_count{model_name="demo",status="OK"}'
    assert f"{series} 4000" in lines_of(monitoring)


def test_scraper_reads_the_metrics_over_http():
    monitoring = Monitoring()
    monitoring.request("demo", "predict", "REST", StatusCode.OK, 0.01)

    def metrics(request):
        content, media_type = monitoring.exposition()
        return Response(content, headers={"content-type": media_type})

    with running(Starlette(routes=[Route(METRICS_PATH, metrics)])) as url:
        reply = httpx2.get(url + METRICS_PATH, timeout=60)
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {
        family.name: family for family in text_string_to_metric_families(reply.text)
    }
    assert families[":tensorflow:serving:request_count"].type == "counter"
    assert families[":tensorflow:serving:request_latency"].type == "histogram"
    assert families[":tensorflow:serving:request_count"].samples[0].value == 1


def test_unknown_entrypoint_is_refused():
    with pytest.raises(ValueError, match=r'must be "REST" or "GRPC"\.'):
        Monitoring().request("demo", "predict", "rest", StatusCode.OK, 0.01)


def test_config_names_the_path_and_switches_metrics_on(tmp_path):
    file = write_config(
        tmp_path,
        'prometheus_config { enable: true, path: "/monitoring/prometheus/metrics" }',
    )
    assert read_monitoring_config(file) == "/monitoring/prometheus/metrics"


def test_config_without_path_uses_that_of_tf_serving(tmp_path):
    file = write_config(tmp_path, "prometheus_config { enable: true }")
    assert read_monitoring_config(file) == "/monitoring/prometheus/metrics"


@pytest.mark.parametrize("text", ["", 'prometheus_config { path: "/metrics" }'])
def test_metrics_are_off_unless_enabled(tmp_path, text):
    assert read_monitoring_config(write_config(tmp_path, text)) is None


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("metrics", "must begin with"),
        ("/met rics", "only the characters"),
        ("/metrics?x=1", "only the characters"),
        ("/metrics#x", "only the characters"),
        ("/v1/metrics", "must not be below /v1"),
        ("/V1/models/demo", "must not be below /v1"),
        ("/v1", "must not be below /v1"),
    ],
)
def test_path_that_cannot_be_served_is_refused(tmp_path, path, rule):
    file = write_config(
        tmp_path, f'prometheus_config {{ enable: true path: "{path}" }}'
    )
    with pytest.raises(ValueError, match=rule) as caught:
        read_monitoring_config(file)
    assert f"Received: path={path!r}." in str(caught.value)


def test_config_that_is_no_such_message_is_refused_with_its_file(tmp_path):
    file = write_config(tmp_path, "prometheus_config { enabled: true }")
    with pytest.raises(ValueError, match=r"monitoring\.config must hold a"):
        read_monitoring_config(file)

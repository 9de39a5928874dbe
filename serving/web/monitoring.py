"""Count requests for Prometheus, under TF Serving's names.

Dashboards and alerts made for TF Serving work as they are: names, labels, their
values, their order and the bounds of the buckets are those of TF Serving 2.20. Times
are given in seconds here and exported in microseconds.
"""

import re
from collections.abc import Iterable, Sequence
from os import PathLike
from urllib.parse import quote

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric

from tfdml.messages import shown

from .config_messages import message_class, read_text_message
from .status import StatusCode

METRICS_PATH = "/monitoring/prometheus/metrics"
"""Where the metrics are served unless the configuration names another path."""

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = ":tensorflow:serving:"
_BATCHING = f"{_PREFIX}batching_session:"
_MICROSECONDS = 1e6
_ENTRYPOINTS = ("REST", "GRPC")


def read_monitoring_config(file: str | PathLike[str]) -> str | None:
    """Read TF Serving's `monitoring_config_file`.

    Args:
        file: A `MonitoringConfig` in the text format of protocol buffers.

    Returns:
        The path under which the metrics are served, or None if they are off.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not such a message, or the path cannot be served.
    """
    config = read_text_message(file, message_class("MonitoringConfig"))
    prometheus = config.prometheus_config
    if not prometheus.enable:
        return None
    path: str = prometheus.path or METRICS_PATH
    if not path.startswith("/") or quote(path, "/%:@!$&'()*+,;=~") != path:
        raise ValueError(
            f'`path` in {file} must begin with "/" and have only the characters of the '
            f"path of an address. Received: path={shown(path)}."
        )
    # TF Serving compares the paths of its models without regard to case.
    if re.match("/v1(/|$)", path, re.I):
        raise ValueError(
            f"`path` in {file} must not be below /v1, where the models answer. "
            f"Received: path={shown(path)}."
        )
    return path


class Monitoring:
    """Counts what one server does. All methods may be called from any thread.

    A client must not be able to create series without end: model names come from the
    configuration of the server, never from a request.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            f"{_PREFIX}request_count",
            "The total number of requests.",
            ["model_name", "status"],
            registry=self._registry,
        )
        minutes = _exponential(10, 1.8, 33)  # 10 microseconds to 25 minutes
        self._request_seconds = self._histogram(
            "request_latency", ["model_name", "API", "entrypoint"], minutes
        )
        self._runtime_seconds = self._histogram(
            "runtime_latency", ["model_name", "API", "runtime"], minutes
        )
        self._warm_up_seconds = self._histogram(
            "model_warmup_latency", ["model_path", "status"], minutes
        )
        self._queuing_seconds = self._histogram(
            "batching_session:queuing_latency",
            ["thread_pool_name"],
            _exponential(100, 1.2, 52),  # 100 microseconds to 1 second
        )
        self._batches = Counter(
            f"{_BATCHING}wrapped_run_count",
            "Total count of run calls on the wrapped session",
            registry=self._registry,
        )
        rows = _exponential(1, 2, 14)
        self._input_rows = self._histogram(
            "batching_session:input_batch_size", [], rows
        )
        self._run_rows = self._histogram(
            "batching_session:processed_batch_size", [], rows
        )
        self._padding_rows = self._histogram(
            "batching_session:padding_size", ["execution_batch_size"], rows
        )

    def _histogram(
        self, name: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> Histogram:
        return Histogram(
            _PREFIX + name, name, labels, buckets=bounds, registry=self._registry
        )

    def request(
        self,
        model_name: str | None,
        api: str,
        entrypoint: str,
        status: StatusCode,
        seconds: float,
    ) -> None:
        """Record the end of a request.

        Args:
            model_name: Name of a model that is served. None, for a model that is not,
                records nothing, as in TF Serving.
            api: "predict", "classify" or "regress", in any case. TF Serving writes it
                in lower case for REST and with a capital for gRPC.
            entrypoint: "REST" or "GRPC".
            status: How it ended. Only the time of requests that succeed is kept.
            seconds: From the request to the reply.

        Raises:
            ValueError: `entrypoint` is neither of the two.
        """
        if entrypoint not in _ENTRYPOINTS:
            raise ValueError(
                '`entrypoint` must be "REST" or "GRPC". '
                f"Received: entrypoint={shown(entrypoint)}."
            )
        if model_name is None:
            return
        self._requests.labels(model_name, status.name).inc()
        if status == StatusCode.OK:
            api = api.lower() if entrypoint == "REST" else api.capitalize()
            self._request_seconds.labels(model_name, api, entrypoint).observe(
                seconds * _MICROSECONDS
            )

    def runtime(self, model_name: str, seconds: float, api: str = "predict") -> None:
        """Record how long TensorFlow ran a signature, without queue and decoding.

        Args:
            model_name: Name of a model that is served.
            seconds: Time of the run.
            api: "predict", "classify" or "regress", in any case.
        """
        # TF Serving's name for its runtime of SavedModels, unless TFRT was built in.
        self._runtime_seconds.labels(model_name, api.capitalize(), "TF1").observe(
            seconds * _MICROSECONDS
        )

    def queuing(self, seconds: float, thread_pool_name: str = "") -> None:
        """Record how long a request waited for its batch.

        Args:
            seconds: From its arrival in the queue to the start of the batch.
            thread_pool_name: `thread_pool_name` of the batching parameters.
        """
        self._queuing_seconds.labels(thread_pool_name).observe(seconds * _MICROSECONDS)

    def batch(self, input_rows: Iterable[int], padding: int) -> None:
        """Record a batch that is run.

        Args:
            input_rows: Rows of each request in the batch.
            padding: Rows that fill it up to an allowed batch size.
        """
        total = padding
        for rows in input_rows:
            self._input_rows.observe(rows)
            total += rows
        self._run_rows.observe(total)
        self._padding_rows.labels(str(total)).observe(padding)
        self._batches.inc()

    def warm_up(
        self, model_path: str, seconds: float, status: StatusCode = StatusCode.OK
    ) -> None:
        """Record the warm-up of a version that had requests for it.

        Args:
            model_path: Folder of the version, which is the label in TF Serving.
            seconds: Time of all its requests together.
            status: How it ended.
        """
        self._warm_up_seconds.labels(model_path, status.name).observe(
            seconds * _MICROSECONDS
        )

    def exposition(self) -> tuple[bytes, str]:
        """Return all metrics as Prometheus reads them.

        Returns:
            The text, and its content type.
        """
        lines = [line for family in self._registry.collect() for line in _lines(family)]
        return "".join(f"{line}\n" for line in lines).encode(), _CONTENT_TYPE


def _exponential(first: float, growth: float, count: int) -> list[float]:
    return [first * growth**power for power in range(count)]


def _lines(family: Metric) -> list[str]:
    """Write a metric in TF Serving's dialect.

    prometheus_client's own writer puts "_total" behind the name of a counter, sorts
    the labels, and writes bounds such as 708235 in another way than the queries of
    existing dashboards.
    """
    lines = []
    for sample in family.samples:
        suffix = sample.name.removeprefix(family.name)
        if suffix == "_created":
            continue
        labels = ",".join(
            f'{name}="{_label(name, value)}"' for name, value in sample.labels.items()
        )
        name = family.name + ("" if suffix == "_total" else suffix)
        number = sample.value
        text = str(int(number)) if number.is_integer() else repr(number)
        lines.append(f"{name}{{{labels}}} {text}")
    return [f"# TYPE {family.name} {family.type}", *lines] if lines else []


def _label(name: str, value: str) -> str:
    if name == "le":
        return value if value == "+Inf" else f"{float(value):.6g}"
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

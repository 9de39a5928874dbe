"""`python -m serving run`: its options, and what they mean for the endpoint.

Files of configuration are TF Serving's own, in the text format of protocol buffers.
"""

import argparse
from pathlib import Path
from typing import Any

from serving.web import limits


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run`, other than its address for REST."""
    models = parser.add_argument_group("models")
    add = models.add_argument
    add("--model-name", help="name in the addresses, with --model-base-path")
    add("--model-base-path", help="folder of numbered versions; the highest is served")
    add("--model-config-file", metavar="FILE", help="models.config, for several models")
    add(
        "--model-config-file-poll-wait-seconds",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how often the file is read again; default: 0, never",
    )
    add(
        "--file-system-poll-wait-seconds",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="how often folders are searched for versions; default: 1; 0 for never",
    )

    batching = parser.add_argument_group("batching")
    add = batching.add_argument
    add("--batching-parameters-file", metavar="FILE", help="sizes, times and threads")
    add("--no-batching", action="store_true", help="run each request by itself")

    grpc = parser.add_argument_group("gRPC")
    add = grpc.add_argument
    add(
        "--grpc-port",
        type=int,
        default=8500,
        help="default: 8500; 0 for any free one, which is printed",
    )
    add("--no-grpc", action="store_true", help="answer REST calls alone")
    add(
        "--grpc-message-bytes",
        type=int,
        default=limits.MAX_MESSAGE_BYTES,
        help="longest message, in both directions; default: %(default)s",
    )
    add(
        "--grpc-calls",
        type=int,
        default=limits.MAX_CONCURRENT_CALLS,
        help="calls taken at one time; default: %(default)s",
    )

    access = parser.add_argument_group("limits and access")
    add = access.add_argument
    add(
        "--max-body-bytes",
        type=int,
        default=limits.MAX_BODY_BYTES,
        help="longest REST body, unpacked; default: %(default)s",
    )
    add(
        "--max-pixels",
        type=int,
        default=limits.MAX_PIXELS,
        help="width times height of a picture; default: %(default)s",
    )
    add(
        "--timeout-seconds",
        type=float,
        default=limits.TIMEOUT_SECONDS,
        help="for a prediction over REST; default: %(default)s",
    )
    add(
        "--ssl-config-file", metavar="FILE", help="key and certificates, for both ports"
    )
    add("--token-file", metavar="FILE", help="bearer tokens, one a line")

    watching = parser.add_argument_group("watching it")
    add = watching.add_argument
    add("--monitoring-config-file", metavar="FILE", help="path of Prometheus metrics")
    add(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="of the line that each request gets; default: text",
    )


def run(parsed: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ValueError: Options contradict each other, or a file or value is wrong.
        OSError: A file is missing, or a port is in use.
    """
    from serving.endpoint import run as endpoint
    from serving.web.log import configure

    models, config_content = _models(parsed)
    configure(parsed.log_format)
    endpoint.run(
        models,
        host=parsed.host,
        port=parsed.port,
        grpc_port=None if parsed.no_grpc else parsed.grpc_port,
        batching=_batching(parsed),
        poll_seconds=parsed.file_system_poll_wait_seconds,
        config_file=parsed.model_config_file,
        config_content=config_content,
        config_file_seconds=parsed.model_config_file_poll_wait_seconds,
        metrics_path=_metrics_path(parsed),
        tls=_tls(parsed),
        access=_access(parsed),
        max_body_bytes=parsed.max_body_bytes,
        max_pixels=parsed.max_pixels,
        timeout_seconds=parsed.timeout_seconds,
        max_message_bytes=parsed.grpc_message_bytes,
        max_concurrent_calls=parsed.grpc_calls,
    )


def _models(parsed: argparse.Namespace) -> tuple[Any, bytes | None]:
    """Return the models, and what their file held when it was read."""
    from serving.endpoint.models.config import parse_model_configs, single_model

    single = parsed.model_name, parsed.model_base_path
    seconds = parsed.model_config_file_poll_wait_seconds
    if seconds < 0:
        raise ValueError(
            "--model-config-file-poll-wait-seconds must be at least 0. "
            f"Received: {seconds}."
        )
    if seconds and parsed.model_config_file is None:
        raise ValueError(
            "--model-config-file-poll-wait-seconds needs --model-config-file."
        )
    if parsed.model_config_file is None:
        if None in single:
            raise ValueError(
                "Give --model-name and --model-base-path, or --model-config-file."
            )
        return [single_model(*single)], None
    if single != (None, None):
        raise ValueError(
            "--model-config-file must stand without --model-name and --model-base-path."
        )
    content = Path(parsed.model_config_file).read_bytes()
    return parse_model_configs(content, parsed.model_config_file), content


def _batching(parsed: argparse.Namespace) -> Any:
    from serving.endpoint.batching.parameters import (
        BatchingParameters,
        read_batching_parameters,
    )

    if parsed.no_batching and parsed.batching_parameters_file is not None:
        raise ValueError("--no-batching must stand without --batching-parameters-file.")
    if parsed.no_batching:
        return BatchingParameters.unbatched()
    if parsed.batching_parameters_file is None:
        return BatchingParameters()
    return read_batching_parameters(parsed.batching_parameters_file)


def _metrics_path(parsed: argparse.Namespace) -> str | None:
    from serving.web.monitoring import read_monitoring_config

    file = parsed.monitoring_config_file
    return None if file is None else read_monitoring_config(file)


def _tls(parsed: argparse.Namespace) -> Any:
    from serving.web.tls import read_ssl_config

    file = parsed.ssl_config_file
    return None if file is None else read_ssl_config(file)


def _access(parsed: argparse.Namespace) -> Any:
    from serving.web.tokens import TokenAccess

    return None if parsed.token_file is None else TokenAccess(parsed.token_file)

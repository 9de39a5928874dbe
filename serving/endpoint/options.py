"""Define the options of the endpoint once, for `tfdml serve` and the code.

Configuration files are TF Serving's own, in the text format of protocol buffers.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from ..web.access import check_proxy

File = str | PathLike[str]


@dataclass(frozen=True)
class _Option:
    """The form of a field on the command line.

    Args:
        group: Heading of its group.
        help: Its description.
        metavar: Placeholder of its value.
    """

    group: str
    help: str
    metavar: str | None = None


@dataclass(frozen=True)
class ServerOptions:
    """The options of the endpoint; each field is an option of `tfdml serve`.

    The field `max_pixels` is the option `--max-pixels`, which its help text explains.

    Raises:
        ValueError: Two options contradict each other, or seconds are out of range.
    """

    model_name: Annotated[
        str | None, _Option("models", "name in the addresses, with --model-base-path")
    ] = None
    model_base_path: Annotated[
        File | None,
        _Option(
            "models",
            "folder of numbered versions, also s3://, gs:// or az://; the highest is "
            "served",
        ),
    ] = None
    model_config_file: Annotated[
        File | None, _Option("models", "models.config, for several models", "FILE")
    ] = None
    model_config_file_poll_wait_seconds: Annotated[
        float,
        _Option(
            "models", "how often the file is read again; default: 0, never", "SECONDS"
        ),
    ] = 0.0
    file_system_poll_wait_seconds: Annotated[
        float,
        _Option(
            "models",
            "how often folders are searched for versions; default: 1; 0 for never",
            "SECONDS",
        ),
    ] = 1.0
    download_folder: Annotated[
        File | None,
        _Option(
            "models",
            "where copies of models in the cloud are kept; default: a new folder that "
            "is removed at the end",
            "FOLDER",
        ),
    ] = None
    no_fingerprint_check: Annotated[
        bool,
        _Option(
            "models",
            "also serve a version whose files have changed since its export",
        ),
    ] = False
    batching_parameters_file: Annotated[
        File | None,
        _Option("batching", "batch sizes, waiting time and threads", "FILE"),
    ] = None
    no_batching: Annotated[bool, _Option("batching", "run each request by itself")] = (
        False
    )
    host: Annotated[
        str, _Option("ports", "address to listen on; default: %(default)s")
    ] = "127.0.0.1"
    port: Annotated[
        int,
        _Option(
            "ports", "port for REST; default: 8501; 0 chooses a free one and prints it"
        ),
    ] = 8501
    grpc_port: Annotated[
        int,
        _Option(
            "ports", "port for gRPC; default: 8500; 0 chooses a free one and prints it"
        ),
    ] = 8500
    no_grpc: Annotated[bool, _Option("ports", "answer only REST calls")] = False
    grpc_message_bytes: Annotated[
        int,
        _Option(
            "limits and access",
            "longest gRPC message, in both directions; default: %(default)s",
        ),
    ] = 64 * 2**20
    grpc_calls: Annotated[
        int,
        _Option(
            "limits and access", "gRPC calls in progress at once; default: %(default)s"
        ),
    ] = 128
    max_body_bytes: Annotated[
        int,
        _Option(
            "limits and access", "longest REST body, unpacked; default: %(default)s"
        ),
    ] = 64 * 2**20
    grpc_memory_bytes: Annotated[
        int,
        _Option(
            "limits and access",
            "memory for gRPC messages that arrive or are processed, twice the length "
            "of each; default: a quarter of what the machine or container has left "
            "once the models are loaded",
        ),
    ] = 0
    image_memory_bytes: Annotated[
        int,
        _Option(
            "limits and access",
            "memory for the images of all requests while they are decoded; default: "
            "half of what the machine or container has left once the models are loaded",
        ),
    ] = 0
    max_pixels: Annotated[
        int,
        _Option(
            "limits and access",
            "largest width times height of an image; default: %(default)s",
        ),
    ] = 64_000_000
    # As in TF Serving, waiting included. Over gRPC the client may set a shorter one.
    timeout_seconds: Annotated[
        float,
        _Option(
            "limits and access",
            "time limit of a prediction over REST; default: %(default)s",
        ),
    ] = 30.0
    grpc_timeout_seconds: Annotated[
        float,
        _Option(
            "limits and access",
            "time limit of a prediction over gRPC, unless the client's is shorter; "
            "default: %(default)s",
        ),
    ] = 300.0
    rest_api_enable_cors_support: Annotated[
        bool,
        _Option("limits and access", "let pages of any origin read REST replies"),
    ] = False
    ssl_config_file: Annotated[
        File | None,
        _Option("limits and access", "key and certificates, for both ports", "FILE"),
    ] = None
    token_file: Annotated[
        File | None, _Option("limits and access", "bearer tokens, one per line", "FILE")
    ] = None
    trusted_proxy: Annotated[
        Sequence[str],
        _Option(
            "limits and access",
            "proxy, or network such as 10.0.0.0/8, whose X-Forwarded-For tells the "
            "client of REST for the log (may be given more than once)",
            "ADDRESS",
        ),
    ] = ()
    monitoring_config_file: Annotated[
        File | None,
        _Option("monitoring", "settings of Prometheus metrics", "FILE"),
    ] = None
    trace_to: Annotated[
        str | None,
        _Option(
            "monitoring",
            "send traces to this OpenTelemetry collector, by OTLP over HTTP, such as "
            "http://127.0.0.1:4318",
            "URL",
        ),
    ] = None
    log_format: Annotated[
        Literal["text", "json"],
        _Option("monitoring", "format of the log line of each request; default: text"),
    ] = "text"

    def __post_init__(self) -> None:
        """Check what concerns several options."""
        single = (self.model_name, self.model_base_path)
        seconds = self.model_config_file_poll_wait_seconds
        if seconds < 0:
            raise ValueError(
                "--model-config-file-poll-wait-seconds must be at least 0. "
                f"Received: {seconds}."
            )
        if seconds and self.model_config_file is None:
            raise ValueError(
                "--model-config-file-poll-wait-seconds needs --model-config-file."
            )
        if self.model_config_file is None and None in single:
            raise ValueError(
                "Give --model-name and --model-base-path, or --model-config-file."
            )
        if self.model_config_file is not None and single != (None, None):
            raise ValueError(
                "--model-config-file must not be combined with --model-name and "
                "--model-base-path."
            )
        for name in ("image_memory_bytes", "grpc_memory_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be at least 0. "
                    f"Received: {getattr(self, name)}."
                )
        for address in self.trusted_proxy:
            check_proxy(address)
        if self.no_batching and self.batching_parameters_file is not None:
            raise ValueError(
                "--no-batching must not be combined with --batching-parameters-file."
            )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each field of `ServerOptions`."""
    groups: dict[str, Any] = {}
    hints = get_type_hints(ServerOptions, include_extras=True)
    for field in dataclasses.fields(ServerOptions):
        kind, about = get_args(hints[field.name])
        if about.group not in groups:
            groups[about.group] = parser.add_argument_group(about.group)
        add = groups[about.group].add_argument
        name = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, tuple):
            about_it = {"metavar": about.metavar, "help": about.help}
            add(name, action="append", default=[], **about_it)
            continue
        if isinstance(field.default, bool):
            add(name, action="store_true", help=about.help)
            continue
        add(
            name,
            type=str if field.default is None else type(field.default),
            default=field.default,
            metavar=about.metavar,
            choices=get_args(kind) if get_origin(kind) is Literal else None,
            help=about.help,
        )


def options_of(parsed: argparse.Namespace) -> ServerOptions:
    """Return the options of a command line that `add_options` described.

    Raises:
        ValueError: As `ServerOptions`.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(ServerOptions):
        value = getattr(parsed, field.name)
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return ServerOptions(**values)

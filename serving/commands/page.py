"""`page` and `demo`: serve the search page of an index."""

import argparse
import contextlib
from typing import Any

from .options import add_address, add_client, credentials_of


def add_pages(commands: Any) -> None:
    """Add the commands."""
    _add_page(commands)
    _add_demo(commands)


def _add_page(commands: Any) -> None:
    page = commands.add_parser("page", help="serve the search page of an index")
    page.add_argument("index", help="folder that `index build` wrote")
    page.add_argument("--images", help="folder of the images, if they were moved")
    add_address(page, 8000)
    add_client(page, prefix="endpoint-")

    beside = page.add_argument_group("comparison with another index")
    beside.add_argument(
        "--compare", metavar="INDEX", help="index of the same or other images"
    )
    beside.add_argument(
        "--compare-endpoint",
        metavar="URL",
        help="endpoint of its model; default: that of the first index",
    )
    beside.add_argument(
        "--compare-images",
        metavar="FOLDER",
        help="folder of its images, if they were moved",
    )

    access = page.add_argument_group("access")
    access.add_argument(
        "--editable", action="store_true", help="let users add and remove images"
    )
    access.add_argument(
        "--allow-url",
        action="store_true",
        help="let users search with the public address of an image, which is fetched",
    )
    access.add_argument(
        "--feedback",
        metavar="FOLDER",
        help="let users say whether a hit is right or wrong; kept in this folder as a "
        "manifest for training",
    )
    access.add_argument(
        "--token-file", metavar="FILE", help="bearer tokens, one per line"
    )
    access.add_argument(
        "--ssl-config-file", metavar="FILE", help="key and certificates, for HTTPS"
    )
    access.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="name under which a proxy or the network offers the page (may be given "
        "more than once)",
    )
    access.add_argument(
        "--trusted-proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="proxy, or network such as 10.0.0.0/8, whose X-Forwarded-For, -Proto and "
        "-Host count (may be given more than once)",
    )
    access.add_argument(
        "--path-prefix",
        metavar="PATH",
        default="",
        help="path below which a proxy offers the page, if it leaves it in its "
        "requests, such as /find",
    )
    access.add_argument(
        "--cors-origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="site whose pages may use the API, such as https://shop.example.com (may "
        "be given more than once); with --token-file also *, for any",
    )
    page.add_argument(
        "--image-memory-bytes",
        metavar="BYTES",
        type=int,
        help="memory for images while they are decoded; default: half of what the "
        "container or machine has left",
    )
    page.add_argument(
        "--metrics",
        action="store_true",
        help="offer metrics for Prometheus at /metrics",
    )
    page.add_argument(
        "--trace-to",
        metavar="URL",
        help="send traces to this OpenTelemetry collector, by OTLP over HTTP, such as "
        "http://127.0.0.1:4318; the endpoint has the same option",
    )
    page.add_argument(
        "--record-queries",
        metavar="FOLDER",
        help="record the embeddings of searched images, not the images, for `drift`",
    )
    page.add_argument(
        "--record-bytes",
        metavar="BYTES",
        type=int,
        default=256_000_000,
        help="size of that folder; the oldest are deleted first; default: 256,000,000",
    )
    page.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="format of the log line of each request; default: text",
    )
    page.set_defaults(run_command=_page)


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="serve a run's model and its search page")
    demo.add_argument("run", help="run folder, for its metrics")
    demo.add_argument("index", help="folder that `index build` wrote")
    demo.add_argument(
        "--model", required=True, help="exported model: a folder of numbered versions"
    )
    demo.add_argument(
        "--endpoint-port",
        type=int,
        default=8501,
        help="port of the endpoint; default: 8501",
    )
    add_address(demo, 8000)
    demo.set_defaults(run_command=_demo)


def _page(parsed: argparse.Namespace) -> None:
    from ..web.sockets import exit_on_sigterm

    exit_on_sigterm()
    from ..search.app.app import run
    from ..search.app.reach import Reach
    from ..search.gallery.query_record import QueryRecorder
    from ..web.access import TokenAccess
    from ..web.log import configure
    from ..web.tls import read_ssl_config

    tokens, ssl = parsed.token_file, parsed.ssl_config_file
    access = None if tokens is None else TokenAccess(tokens)
    tls = None if ssl is None else read_ssl_config(ssl)
    credentials = credentials_of(parsed)
    reach = Reach(
        allowed_hosts=parsed.allowed_host,
        cors_origins=parsed.cors_origin,
        path_prefix=parsed.path_prefix,
        trusted_proxies=parsed.trusted_proxy,
    )
    configure(parsed.log_format)
    with contextlib.ExitStack() as stack:
        recorder = None
        if parsed.record_queries is not None:
            recorder = QueryRecorder(
                parsed.record_queries, most_bytes=parsed.record_bytes
            )
            stack.enter_context(recorder)
        run(
            parsed.index,
            parsed.endpoint,
            host=parsed.host,
            port=parsed.port,
            images=parsed.images,
            credentials=credentials,
            compare=parsed.compare,
            compare_endpoint=parsed.compare_endpoint,
            compare_images=parsed.compare_images,
            editable=parsed.editable,
            allow_url=parsed.allow_url,
            feedback=parsed.feedback,
            access=access,
            tls=tls,
            image_memory_bytes=parsed.image_memory_bytes,
            reach=reach,
            with_metrics=parsed.metrics,
            trace_to=parsed.trace_to,
            recorder=recorder,
        )


def _demo(parsed: argparse.Namespace) -> None:
    from .demo import run

    run(
        parsed.run,
        parsed.index,
        parsed.model,
        host=parsed.host,
        port=parsed.port,
        endpoint_port=parsed.endpoint_port,
    )

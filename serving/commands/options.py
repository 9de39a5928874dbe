"""Add the options that several commands share."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..client.credentials import Credentials


_ENDPOINT_HELP = (
    "address of the model, such as http://127.0.0.1:8501/v1/models/NAME or "
    "grpc://127.0.0.1:8500/NAME"
)


def add_address(parser: argparse.ArgumentParser, port: int) -> None:
    """Add the address that a server listens on; `port` is the default."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: %(default)s"
    )
    parser.add_argument(
        "--port", type=int, default=port, help="port to listen on; default: %(default)s"
    )


def add_client(parser: argparse.ArgumentParser, *, prefix: str = "") -> None:
    """Add the required address of an endpoint, and its credentials.

    Args:
        parser: The parser.
        prefix: Prefix of the option `--token-file`; a server has its own
            `--token-file`.
    """
    parser.add_argument("--endpoint", required=True, help=_ENDPOINT_HELP)
    add_credentials(parser, prefix)


def add_embedder(parser: argparse.ArgumentParser) -> None:
    """Add the choice of a model in this process or an endpoint."""
    embedder = parser.add_mutually_exclusive_group(required=True)
    embedder.add_argument(
        "--model", help="exported model: a folder of numbered versions"
    )
    embedder.add_argument("--endpoint", help=_ENDPOINT_HELP)
    add_credentials(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option to print JSON."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document, no progress"
    )


def add_max_pixels(parser: argparse.ArgumentParser) -> None:
    """Add the limit on the size of the user's own images."""
    parser.add_argument(
        "--max-pixels",
        type=int,
        default=100_000_000,
        help="largest width times height of an image that is read; default: "
        "100,000,000",
    )


def add_credentials(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    """Add what an endpoint asks of its clients; see `add_client` for the prefix."""
    parser.add_argument(
        f"--{prefix}token-file",
        dest="endpoint_token_file",
        metavar="FILE",
        help="file whose first token is sent to the endpoint",
    )
    parser.add_argument("--ca-file", help="certificates (PEM) that the client trusts")
    parser.add_argument(
        "--certificate-file", help="the client's own certificate (PEM), with --key-file"
    )
    parser.add_argument("--key-file", help="the key (PEM) of that certificate")


def credentials_of(parsed: argparse.Namespace) -> "Credentials":
    """Read an endpoint's credentials from their files.

    Raises:
        ValueError: A file holds no token, or one file of a pair is missing.
        OSError: A file cannot be read.
    """
    from ..client.credentials import Credentials, read_token

    file = parsed.endpoint_token_file
    return Credentials(
        None if file is None else read_token(file),
        ca_file=parsed.ca_file,
        certificate_file=parsed.certificate_file,
        key_file=parsed.key_file,
    )

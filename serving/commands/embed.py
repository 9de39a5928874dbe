"""`embed`: embed a folder of images through an endpoint into a NumPy file."""

import argparse
from typing import Any

from .options import add_client, add_max_pixels, credentials_of


def add_embed(commands: Any) -> None:
    """Add the command."""
    embed = commands.add_parser("embed", help="embed a folder through an endpoint")
    embed.add_argument("images", help="folder of images, at any depth")
    embed.add_argument("file", help="NumPy file to write, such as embeddings.npz")
    add_client(embed)
    embed.add_argument(
        "--batch-size", type=int, default=32, help="images per request; default: 32"
    )
    embed.add_argument(
        "--concurrency", type=int, default=4, help="concurrent requests; default: 4"
    )
    embed.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="skip files that cannot be read, and list them",
    )
    add_max_pixels(embed)
    embed.set_defaults(run_command=_embed, job="embed")


def _embed(parsed: argparse.Namespace) -> None:
    from ..client.embed_images import embed_images

    report = embed_images(
        parsed.images,
        parsed.file,
        parsed.endpoint,
        batch_size=parsed.batch_size,
        concurrency=parsed.concurrency,
        skip_unreadable=parsed.skip_unreadable,
        max_pixels=parsed.max_pixels,
        credentials=credentials_of(parsed),
    )
    print(report)

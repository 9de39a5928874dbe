"""Embed a folder of images through an endpoint, into one NumPy file."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.files import remove_unfinished, written
from tfdml.images import UnreadableImageError, find_images
from tfdml.messages import shown
from tfdml.progress import Progress

from . import (
    Credentials,
    EndpointClient,
    EndpointError,
    ImageSource,
    ModelMetadata,
    Retries,
    Unreadable,
)
from .images import how_to_skip
from .journal import Journal, digest_of_list

PATIENCE = Retries(count=60, seconds=120.0)
"""A long run outlasts the restart of an endpoint."""

_REMEDY = "Delete it to begin again from the first one."

_PROBES = 4

# Of the length of an embedding. The last digits depend on the batch and the machine,
# in half precision a few thousandths; another model gives something else altogether.
_MOST_DIFFERENCE = 0.01


@dataclass(frozen=True)
class EmbeddingReport:
    """The result of `embed_images`.

    Attributes:
        file: The file that it wrote.
        count: How many embeddings are in it.
        resumed: How many images an earlier run had already done.
        skipped: Why an image was left out, by its path.
        notes: What looks like an image in the folder and is not one to read, or what
            links lead to outside of it.
    """

    file: Path
    count: int
    resumed: int
    skipped: dict[str, str]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Summarize it, with a line for each image that was left out."""
        lines = [f"Wrote {self.count} embeddings to {self.file}."]
        if self.resumed:
            lines.append(f"{self.resumed} images were done by an earlier run.")
        lines += self.notes
        if self.skipped:
            lines.append(f"{len(self.skipped)} files could not be read:")
            lines += [f"  {reason}" for reason in self.skipped.values()]
        return "\n".join(lines)


def embed_images(
    images_folder: str | PathLike[str],
    file: str | PathLike[str],
    endpoint_url: str,
    *,
    batch_size: int = 32,
    concurrency: int = 4,
    skip_unreadable: bool = False,
    max_pixels: int = 100_000_000,
    retries: Retries = PATIENCE,
    credentials: Credentials | None = None,
) -> EmbeddingReport:
    """Embed all images below a folder and write them to one `.npz` file.

    The file appears when it is complete, in the place of one that was there before. It
    holds `embeddings`, float32 `[N, dimension]`; `paths`, text `[N]`, relative to the
    folder; `skipped_paths` and `skipped_reasons`; `model_name` and `model_version`.

    Until then, `FILE.partial` holds what is done. If a run ends early, the next run
    with the same images and the same version of the model continues it; an image that
    was left out stays left out. It first embeds a few images again, to see that
    the version is still the same model, and compares size and time of change of those
    that are done. All images are embedded by one version, the one that the address
    means at the beginning, although a new one may come up.

    Args:
        images_folder: Folder with images, at any depth.
        file: The file to write; its name ends in `.npz`. Its folder is made if missing.
        endpoint_url: Address of the model, as `serving.client.EndpointClient` takes it.
        batch_size: Most images in one request, at least 1.
        concurrency: Requests under way at one time, at least 1.
        skip_unreadable: Leave images out that cannot be read, and list them. By
            default the first one ends the run; what was done before it is kept.
        max_pixels: Width times height above which an image cannot be read, at least 1.
        retries: How often and how long a request is made again.
        credentials: Token and certificates, where the endpoint asks for them.

    Returns:
        The report; as text it is a summary.

    Raises:
        UnreadableImageError: A file is not an image; the message names it.
        NotADirectoryError, OSError: A folder or file is missing, or cannot be written.
        EndpointError: The endpoint did not answer, or not with embeddings.
        ValueError: There are no images, or an earlier run left a file of other or
            changed images or of another model.
    """
    file = Path(file)
    if file.suffix != ".npz":
        raise ValueError(f"The file must end in .npz. Received: {file}.")
    root = Path(images_folder).resolve()
    found = find_images(root, skip_unreadable=skip_unreadable)
    paths = list(found.paths)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    with _client_of_one_version(
        endpoint_url,
        batch_size=batch_size,
        max_pixels=max_pixels,
        retries=retries,
        credentials=credentials,
    ) as client:
        metadata = client.metadata()
        job = {
            "root": str(root),
            "images": len(paths),
            "list": digest_of_list(paths),
            "model_name": metadata.name,
            "model_version": metadata.version,
        }
        stamps = [_stamp(root / path) for path in paths]
        with Journal(partial, job, paths, stamps, remedy=_REMEDY) as journal:
            resumed = len(journal)
            if journal.skipped and not skip_unreadable:
                reason = next(iter(journal.skipped.values()))
                raise UnreadableImageError(
                    f"An earlier run left files out, and {partial} says so: {reason} "
                    "Leave them out again with `--skip-unreadable`, or delete that "
                    "file to begin again from the first one."
                )
            _check_model(client, root, journal, partial)
            _embed(client, root, paths, journal, concurrency, skip_unreadable)
            skipped = journal.skipped
            if len(skipped) == len(paths):
                raise UnreadableImageError(
                    f"None of the {len(paths)} images in {shown(str(root))} can be "
                    f"read. The first: {next(iter(skipped.values()))}"
                )
            _write(file, journal, metadata)
            partial.unlink()
    count = len(paths) - len(skipped)
    return EmbeddingReport(file, count, resumed, skipped, tuple(found.notes()))


@contextmanager
def _client_of_one_version(url: str, **settings: Any) -> Iterator[EndpointClient]:
    with EndpointClient(url, **settings) as client:
        model = client.metadata()
        if model.version is None:
            raise EndpointError(f"{url} does not report the version of its model.")
        with client.at_version(model.version, fingerprint=model.fingerprint) as pinned:
            yield pinned


def _stamp(file: Path) -> list[int]:
    """Return size and time of change of a file; nothing of one that leads nowhere."""
    try:
        found = file.stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


def _check_model(
    client: EndpointClient, root: Path, journal: Journal, partial: Path
) -> None:
    """Refuse a model that embeds what is in the journal otherwise."""
    before, paths = journal.embeddings, journal.embedded
    places = sorted({len(paths) * part // _PROBES for part in range(_PROBES)})
    if not paths:
        return
    before = before[places]
    now = client.embed([root / paths[place] for place in places])
    if now.shape == before.shape:
        differences = np.linalg.norm(now - before, axis=1)
        if (differences <= _MOST_DIFFERENCE * np.linalg.norm(before, axis=1)).all():
            return
    raise ValueError(
        f"{partial} holds embeddings of another model than the one that {client.url} "
        f"has now, although name and version are the same. {_REMEDY}"
    )


def _embed(
    client: EndpointClient,
    root: Path,
    paths: list[str],
    journal: Journal,
    concurrency: int,
    skip_unreadable: bool,
) -> None:
    """Add the images to the journal that are not in it."""
    with Progress("embedding", len(paths), done=len(journal)) as bar:

        def leave_out(image: ImageSource, reason: Unreadable) -> None:
            journal.leave_out(str(reason))
            bar.update()

        stream = client.embed_stream(
            (root / path for path in paths[len(journal) :]),
            concurrency=concurrency,
            on_unreadable=leave_out if skip_unreadable else None,
        )
        try:
            with closing(stream):
                for _, row in stream:
                    journal.add(row)
                    bar.update()
        except UnreadableImageError as error:
            raise how_to_skip(error) from error


def _write(file: Path, journal: Journal, metadata: ModelMetadata) -> None:
    """Write the `.npz` file, as a whole or not at all."""
    remove_unfinished(file.parent, file.name)
    skipped = journal.skipped
    with written(file) as new, new.open("wb") as stream:
        np.savez(
            stream,
            embeddings=journal.embeddings,
            paths=np.array(journal.embedded, dtype=np.str_),
            skipped_paths=np.array(list(skipped), dtype=np.str_),
            skipped_reasons=np.array(list(skipped.values()), dtype=np.str_),
            model_name=np.array(metadata.name),
            model_version=np.array(metadata.version),
        )

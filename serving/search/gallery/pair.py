"""Name the model and the index that belong together, as the folder of an index says.

The manifest of an index names the model that embedded it: name, version, and the
fingerprint of graph and weights. It is replaced by one rename, so every process that
reads it sees one pair of model and index, the former or the new one, never a mixture.
"""

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tfdml.messages import cut
from tfdml.versioned_folder import IndexFileError, kept_manifest, read_manifest

if TYPE_CHECKING:
    from tfdml.index import Index

    from .gallery import Gallery

QUERIES_FILE = Path("upgrade", "queries.json")
"""Names the model whose queries search the index while it is upgraded, if any."""


class Pair(NamedTuple):
    """A model and its index.

    Attributes:
        name: Name of the model that embeds the queries.
        version: Its version number.
        fingerprint: Of its graph and weights; "" if the index names none.
        index_fingerprint: Of the model that embedded the gallery: another one only
            where queries of a compatible model search the gallery of the former one.
    """

    name: str
    version: int
    fingerprint: str
    index_fingerprint: str

    @property
    def is_bridged(self) -> bool:
        """Whether queries of a compatible model search the gallery of another one."""
        return self.fingerprint != self.index_fingerprint

    @classmethod
    def of(cls, index: "Index", gallery: "Gallery") -> Self:
        """Return the pair of an index and the model that embedded it."""
        made_by = index.model_fingerprint
        return cls(gallery.model_name, gallery.model_version, made_by, made_by)

    @classmethod
    def of_manifest(cls, manifest: dict[str, Any]) -> Self:
        """Return the pair of an index.

        Raises:
            KeyError, TypeError, ValueError: It is no index of a gallery.
        """
        gallery, made_by = manifest["notes"]["gallery"], manifest["model_fingerprint"]
        name, version = str(gallery["model_name"]), int(gallery["model_version"])
        return cls(name, version, str(made_by), str(made_by))

    def __str__(self) -> str:
        known = f" (fingerprint {self.fingerprint[:16]})" if self.fingerprint else ""
        return f"version {self.version} of model {self.name}{known}"


def pair_in(index_folder: str | PathLike[str]) -> Pair:
    """Return the pair that the folder of an index holds now.

    Raises:
        IndexFileError: It holds no index of a gallery, or its manifest is damaged.
        OSError: It cannot be read.
    """
    return queried(index_folder, _pair(index_folder, read_manifest(Path(index_folder))))


def queried(index_folder: str | PathLike[str], pair: Pair) -> Pair:
    """Return the pair with the model whose queries search its index now.

    Args:
        index_folder: Folder of the index.
        pair: The index, with the model that embedded it.
    """
    try:
        found = json.loads((Path(index_folder) / QUERIES_FILE).read_bytes())
        before, after = Pair(*found["before"]), Pair(*found["after"])
    except (OSError, KeyError, TypeError, ValueError):
        return pair  # there is none, or it is being removed
    if before != pair:  # the index was switched since
        return pair
    return after._replace(index_fingerprint=pair.index_fingerprint)


def kept_pair(index_folder: str | PathLike[str]) -> Pair | None:
    """Return the pair that is kept for a way back; None if there is none.

    Raises:
        IndexFileError, OSError: As `pair_in`.
    """
    manifest = kept_manifest(index_folder)
    return None if manifest is None else _pair(index_folder, manifest)


def _pair(folder: str | PathLike[str], manifest: dict[str, Any]) -> Pair:
    try:
        return Pair.of_manifest(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise IndexFileError(f"There is no gallery in {cut(folder)}.") from error

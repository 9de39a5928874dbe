"""What tests of saved indexes share: reading a folder, forging it, other processes."""

import hashlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tfdml
from tfdml.index.engines import _index as local_index
from tfdml.index.engines._choice import CODED
from tfdml.index.engines._exact import ExactRows
from tfdml.index.engines._prepared import PreparedRows
from tfdml.index.engines._rescored import RescoredSearcher
from tfdml.index.engines._settings import (
    Codes,
    code_settings,
    exact_settings,
    hashing_settings,
    tree_settings,
)

# Each is made to an index of ids 0, 1 and 2.
CHANGES = {
    "add": lambda index: index.add([[1, 1, 1]], [7], {"size": [7]}),
    "update": lambda index: index.update([1], [[1, 1, 1]]),
    "remove": lambda index: index.remove([1]),
}
EACH_CHANGE = pytest.mark.parametrize("name", CHANGES)


def run_python(code, *arguments):
    """Run code in a new process, warnings being errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(Path(tfdml.__file__).parents[1])},
    )


def clustered(rows, dimension=8, clusters=40):
    """Draw embeddings from Gaussian clusters."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(clusters, dimension))
    noise = 0.5 * rng.normal(size=(rows, dimension))
    return (centers[np.arange(rows) % clusters] + noise).astype(np.float32)


def snapshot(folder):
    """Return the content of every file below a folder."""
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def data_of(folder):
    """Return the folder of the data files."""
    return folder / json.loads((folder / "manifest.json").read_bytes())["data"]


def log_file(folder):
    """Return the file of the changes."""
    data = data_of(folder)
    return data.with_name(f"{data.name}.log")


def rewrite_manifest(folder, **changes):
    """Change a manifest as its writer could have, with a SHA-256 that fits."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes()) | changes
    manifest = {name: value for name, value in manifest.items() if value is not ...}
    manifest.pop("sha256", None)
    text = json.dumps(manifest, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    path.write_text(json.dumps(manifest | {"sha256": digest}))


def rewrite_array(folder, name, array):
    """Put another array in the place of one, with a SHA-256 that fits."""
    path = data_of(folder) / f"{name}.npy"
    np.save(path, array, allow_pickle=True)
    content = path.read_bytes()
    measured = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    files = json.loads((folder / "manifest.json").read_bytes())["files"]
    rewrite_manifest(folder, files=files | {path.name: measured})


def build_with(method, engine):
    """Return a `LocalIndex._build` that uses a method for galleries of 40 rows up."""

    def build(cls, gallery, metric, **options):
        unit = metric == "cosine"
        # It takes 16 rows at least to train codes.
        if method == "exact" or len(gallery) < 40:
            return ExactRows(gallery, exact_settings("a test"), metric=metric)
        if method == "codes":
            settings = code_settings(Codes("int8", None), "a test")
            return RescoredSearcher.of_rows(gallery, settings, metric=metric)
        settings = {
            "hashing": hashing_settings("a test", engine),
            "tree": tree_settings(len(gallery), "a test", unit=unit, engine=engine),
        }[method]
        return CODED[engine][0].of_rows(PreparedRows(gallery, unit=unit), settings)

    return classmethod(build)


def use_method(method, set_attribute=setattr, engine="scann"):
    """Make `LocalIndex` use a method from now on, also when it builds again."""
    set_attribute(local_index.LocalIndex, "_build", build_with(method, engine))
    set_attribute(
        local_index.LocalIndex,
        "_build_again",
        lambda self, gallery, searcher: self._build(gallery, self.metric),
    )


def items_of(index):
    """Return all items of an index: embedding and attributes by id."""
    ids = index.ids.tolist()
    items = index.get(ids)
    return {
        name: (embedding.tolist(), attributes)
        for name, embedding, attributes in zip(
            ids, items.embeddings, items.attributes, strict=True
        )
    }

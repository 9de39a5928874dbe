"""Indexes of earlier versions load, hold what they held, change and are saved.

tests/data/fixed_width_ids/README.md says what is there, and what wrote it.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.saved_indexes import data_of
from tfdml.index import Not, Range, load_index, verify_index

SAVED = Path(__file__).parents[2] / "data" / "fixed_width_ids"
FILTERS = {
    "class": ["shoe", "boot", "hat"],
    "price": Range(0, 2),
    "stock": Range(most=0),
    "new": Not(True),
}


def holds(index, known):
    items = index.get(index.ids)
    assert items.ids.tolist() == known["ids"]
    assert items.attributes == known["attributes"]
    embeddings = np.array(known["embeddings"], np.float32)
    np.testing.assert_array_equal(items.embeddings, embeddings)
    for name, count in known["counts"].items():
        assert index.count({name: FILTERS[name]}) == count, name
    found = index.search(embeddings, 20, where={"new": Not(True)}).ids
    assert set(found[0].tolist()) == set(known["hits"][0])


@pytest.mark.parametrize("name", ["strings", "integers"])
def test_index_with_ids_of_one_width_loads_changes_and_is_saved(name, tmp_path):
    known = json.loads((SAVED / "expected.json").read_text("utf-8"))[name]
    folder = tmp_path / name
    shutil.copytree(SAVED / name, folder)
    assert verify_index(folder).ok
    with load_index(folder) as index:
        holds(index, known)
        new = "new" if name == "strings" else 99
        index.add([[1, 2, 3, 4]], [new], {"class": ["hat"]})
    with load_index(folder) as again:  # what was added is in the old log
        assert again.get([new]).attributes == [{"class": "hat"}]
        again.remove([new])
        again.compact()
        again.save(folder)
    dtype = np.load(data_of(folder) / "ids.npy").dtype
    assert dtype == (np.uint8 if name == "strings" else np.int64)
    assert verify_index(folder).ok
    with load_index(folder) as saved:
        holds(saved, known)

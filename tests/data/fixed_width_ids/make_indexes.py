"""Write indexes with changes since they were saved; see README.md beside this."""

import json
from pathlib import Path

import numpy as np

from tfdml.index import ExactIndex, Index, Not, Range

IDS = [
    "a",
    "item 1",
    "é" * 20,
    "日本/語.jpg",
    "🙂",
    "long/" * 40,
    "a ",
    "A",
    "b\n",
    "0",
]
MORE = ["w" * 300, "ö", "last"]
ROWS = np.random.default_rng(5).normal(size=(13, 4)).astype("float32")
ATTRIBUTES = {
    "class": ["shoe", "boot", None, "sandal é", "shoe"] * 2,
    "price": [0.5, 2.0, None, 1e300, -0.0] * 2,
    "stock": [0, 2**53 + 1, -(2**63), None, 2**63 - 1] * 2,
    "new": [True, None, False, False, True] * 2,
}
FILTERS = {
    "class": ["shoe", "boot", "hat"],
    "price": Range(0, 2),
    "stock": Range(most=0),
    "new": Not(True),
}


def main() -> None:
    """Write an index of strings and one of integers, and what they hold."""
    expected = {}
    for name, ids in (("strings", IDS + MORE), ("integers", list(range(13)))):
        with ExactIndex.build(ROWS[:10], ids[:10], ATTRIBUTES) as index:
            index.save(name)
            index.add(ROWS[10:12], ids[10:12], {"class": ["hat", "shoe"]})
            index.update([ids[1]], attributes={"price": [7], "size": [44]})
            index.remove([ids[4]])
            index.save(name)
            index.add(ROWS[12:], ids[12:], {"class": ["hat"], "price": [1.5]})
            index.remove([ids[0]])
            expected[name] = held(index)
    text = json.dumps(expected, indent=1, ensure_ascii=False) + "\n"
    Path("expected.json").write_text(text, encoding="utf-8")


def held(index: Index) -> dict[str, object]:
    """Return all that an index holds, and what it finds."""
    items = index.get(index.ids)
    found = index.search(ROWS, 20, where={"new": Not(True)})
    return {
        "ids": items.ids.tolist(),
        "embeddings": items.embeddings.tolist(),
        "attributes": items.attributes,
        "hits": found.ids.tolist(),
        "counts": {key: index.count({key: FILTERS[key]}) for key in FILTERS},
    }


if __name__ == "__main__":
    main()

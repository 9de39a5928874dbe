"""Write indexes with changes since they were saved, and a gallery.

Run it after make_runs.py, whose images and export it takes. See README.md beside this.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from make_runs import check, drawn
from PIL import Image
from tests.saved_indexes import use_method

from serving.__main__ import main as serving
from tfdml.index import ExactIndex, Index, MilvusIndex, ScannIndex, load_index

# These two are noted with their whole paths. What is in Milvus is whole once this
# process has ended.
GALLERY = Path("/srv/images")
MILVUS = Path("/srv/milvus.db")

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(12, 4)).astype("float32")
MORE = RNG.normal(size=(3, 4)).astype("float32")
QUERIES = RNG.normal(size=(3, 4)).astype("float32")
TEXTS = [f"item {number} é" for number in range(15)]
NUMBERS = list(range(100, 115))
ATTRIBUTES = {
    "color": ["red", "blue", None] * 4,
    "size": list(range(12)),
    "price": [0.5 * number for number in range(12)],
    "sold": [True, False] * 6,
}


def main() -> None:
    """Write everything."""
    expected = make_indexes() | make_gallery()
    # The last, as it changes how ScaNN's indexes are built.
    expected["scann_tree"] = make_tree()
    text = json.dumps(expected, indent=1) + "\n"
    Path("indexes/expected.json").write_text(text, encoding="utf-8")


def make_indexes() -> dict[str, Any]:
    """Write an index of every kind of class and ids."""
    expected = {}
    for name, kind, ids, metric, options in (
        ("exact", ExactIndex, TEXTS, "cosine", {}),
        ("exact_numbers", ExactIndex, NUMBERS, "dot_product", {}),
        ("scann", ScannIndex, TEXTS, "cosine", {}),
        ("scann_numbers", ScannIndex, NUMBERS, "dot_product", {}),
        (
            "milvus",
            MilvusIndex,
            TEXTS,
            "cosine",
            {"uri": str(MILVUS), "collection": "items", "index_type": "FLAT"},
        ),
    ):
        index = kind.build(
            ROWS,
            ids[:12],
            ATTRIBUTES,
            metric=metric,
            model_fingerprint="a model",
            **options,
        )
        if kind is not MilvusIndex:
            index.notes = {"made": "before the move"}
        index.save(f"indexes/{name}")
        index.add(MORE, ids[12:], {"color": ["green", "red", "red"]})
        index.update([ids[2]], MORE[:1] + 1, {"color": ["black"], "size": [77]})
        index.update([ids[3]], attributes={"sold": [True]})
        index.remove([ids[5], ids[13]])
        expected[name] = looked_at(index, QUERIES, ids)
        index.close()
    return expected


def make_tree() -> dict[str, Any]:
    """Write an index with codes that ScaNN trains, as for 20,000 rows and more."""
    use_method("tree")
    rows = RNG.normal(size=(64, 4)).astype("float32")
    index = ScannIndex.build(rows, target_recall=None)
    index.save("indexes/scann_tree")
    index.add(MORE, [100, 101, 102])
    index.remove([7])
    index.close()
    return looked_at(index, QUERIES, [0, 101])


def make_gallery() -> dict[str, Any]:
    """Write a gallery with one more image and one less, its shards, and a search."""
    shutil.copytree("images", GALLERY)
    Path("more/added").mkdir(parents=True)
    Image.fromarray(drawn(20, 0, rows=10)).save("more/added/0.png")
    build = ["index", "build", str(GALLERY)]
    model = ["--model", "export/model"]
    try:
        check(serving([*build, "indexes/gallery", *model]))
        for part in "12":
            shard = [*build, f"indexes/shard_{part}", *model, "--shard", f"{part}/2"]
            check(serving(shard))
    finally:
        shutil.rmtree(GALLERY)
    asked = ["class-0/1.png", "class-3/0.png"]
    with load_index("indexes/gallery") as index:
        rows = index.get(asked).embeddings
        before = looked_at(index, rows, asked)
    arguments = ["combine", "export/model/1", "indexes/gallery", "export/search/1"]
    check(serving([*arguments, "--neighbors", "3"]))
    check(serving(["index", "add", "indexes/gallery", "more", *model]))
    check(serving(["index", "remove", "indexes/gallery", "class-1/0.png"]))
    shutil.rmtree("more")
    with load_index("indexes/gallery") as index:
        after = looked_at(index, rows, [*asked, "added/0.png"])
    return {"shards": before, "gallery": after}


def looked_at(index: Index, queries: np.ndarray, ids: list[Any]) -> dict[str, Any]:
    """Return what an index finds, and all it knows of some items."""
    found = index.search(queries, k=5)
    there = [value for value in ids if value in index]
    items = index.get(there)
    stats = index.stats()
    return {
        "kind": stats.kind,
        "metric": stats.metric,
        "count": stats.count,
        "model_fingerprint": stats.model_fingerprint,
        "queries": queries.tolist(),
        "hits": found.ids.tolist(),
        "scores": found.scores.tolist(),
        "items": there,
        "embeddings": items.embeddings.tolist(),
        "attributes": items.attributes,
    }


if __name__ == "__main__":
    main()

"""Let queries of a compatible model search the old gallery while it is embedded again.

`INDEX/upgrade/queries.json` names both models. It counts only as long as the index is
that of the old one, so the switch, which replaces the index, ends it.
"""

import json

import numpy as np

from tfdml.files import written
from tfdml.messages import shown
from tfdml.metrics import Difference, compatibility

from .embedding import embed_files
from .gallery import CLASS
from .image_search import file_of, items_of
from .pair import QUERIES_FILE
from .stored_images import StoredImages
from .upgrade_blocks import Pacing
from .upgrade_job import Job

_MOST = 500
_LEAST = 2  # images of a class, for one to find the other


def search_old_gallery(job: Job, pacing: Pacing, largest_loss: float) -> float:
    """Measure whether the new model may search the old gallery, and let it.

    Args:
        job: The upgrade.
        pacing: How to embed the images to measure with.
        largest_loss: How much lower Precision@1 may be.

    Returns:
        How much higher Precision@1 of new queries in the old gallery is than that of
        old ones, on images of the gallery.

    Raises:
        ValueError: The models cannot be compared, or the new one finds less.
    """
    dimension, embedder = job.index.embedding_dimension, job.embedder
    if embedder.dimension not in (None, dimension) or job.index.dimension != dimension:
        raise ValueError(
            "A compatible model must return embeddings of the dimension of the index, "
            f"{job.index.dimension}. Received: {shown(str(job.version.folder))}, of "
            f"dimension {embedder.dimension}. Leave out `--compatible`."
        )
    change = _measured(job, pacing)
    if change.difference < -largest_loss or (
        change.is_significant and change.difference < 0
    ):
        raise ValueError(
            "The new model is not compatible: its queries lose "
            f"{-change.difference:.4f} of Precision@1 in the old gallery. Leave out "
            "`--compatible`: then the old model answers until the switch."
        )
    job_before, job_after = list(job.before), list(job.after)
    with written(job.folder / QUERIES_FILE) as new:
        about = {"before": job_before, "after": job_after}
        new.write_text(json.dumps(about), encoding="utf-8")
    return change.difference


def _measured(job: Job, pacing: Pacing) -> Difference:
    ids = job.index.ids.tolist()
    generator = np.random.default_rng(0)
    drawn = generator.choice(len(ids), min(_MOST, len(ids)), replace=False).tolist()
    items = items_of(job.index, [ids[row] for row in sorted(drawn)])
    stored = StoredImages(job.folder)
    files = {
        item.id: str(file_of(item, job.gallery, stored))
        for item in items
        if item.attributes.get(CLASS)
    }
    embedded = embed_files(
        job.embedder,
        job.gallery.root,
        list(files.values()),
        pacing.batch_size,
        pacing.max_pixels,
    )
    rows = {
        id_: row
        for id_, (_, row) in zip(files, embedded, strict=True)
        if isinstance(row, np.ndarray)
    }
    labels = [str(own[CLASS]) for own in job.index.get(list(rows)).attributes]
    sizes = {name: labels.count(name) for name in set(labels)}
    kept = [n for n, name in enumerate(labels) if sizes[name] >= _LEAST]
    if len({labels[n] for n in kept}) < _LEAST:
        raise ValueError(
            "Whether the new model is compatible can only be measured with images of "
            "two classes or more, at least two of each. Leave out `--compatible`."
        )
    return compatibility(
        job.index.get(list(rows)).embeddings[kept],
        np.stack(list(rows.values()))[kept],
        [labels[n] for n in kept],
        [1],
        metric="cosine" if job.index.metric == "cosine" else "squared_euclidean",
    ).change()

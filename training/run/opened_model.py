"""Open a model of any kind, with what it sees of an image."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.images import View
from tfdml.messages import shown
from tfdml.models import load_embedder, search_metric
from tfdml.progress import Progress
from tfdml.run_view import view_of_run

from ..data.images import Images
from ..data.split import Split
from ..measure.embed import embed
from ..measure.measure import EmbeddingMetric
from .finished_run import FinishedRun, read_finished_run


@dataclass(frozen=True)
class OpenedModel:
    """What makes embeddings of a split.

    Args:
        name: Its name, for titles.
        view: What it sees of an image.
        embed: Embeds images in that view, float32 `[N, dimension]`.
        metric: How its embeddings are compared.
        dimension: Their dimension; None if only they tell.
    """

    name: str
    view: View
    embed: Callable[[Split], np.ndarray]
    metric: EmbeddingMetric = "cosine"
    dimension: int | None = None

    def embed_others(self, split: Split, **options: Any) -> np.ndarray:
        """Embed images that were opened in the view of another model.

        Args:
            split: The images.
            options: As for `tfdml.images.ImageReader`.

        Raises:
            UnreadableImageError: A file is broken.
            FileNotFoundError: A file is gone.
        """
        images = Images(split.images.data, self.view, cache_bytes=0, **options)
        try:
            return self.embed(dataclasses.replace(split, images=images))
        finally:
            images.close()


def open_model(path: Path) -> OpenedModel:
    """Open a run, an embedder or an exported model.

    Args:
        path: A run folder; an embedder, `.keras`, which sees images as the run did if
            it lies in one and squashed to its size elsewhere; the folder of an exported
            SavedModel, or of its versions, of which the highest number counts.

    Raises:
        FileNotFoundError: There is nothing at the path, or an unfinished run.
        ValueError: It is no model, or a damaged one.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no model at {shown(str(path))}.")
    if (path / "recipe.json").is_file():
        return model_of_run(read_finished_run(path))
    if path.suffix == ".keras":
        embedder = load_embedder(path)
        size = embedder.input_shape[1]
        view = view_of_run(path.parent, size) or View(size)
        return OpenedModel(
            path.name,
            view,
            partial(embed, embedder),
            search_metric(embedder),
            embedder.output_shape[1],
        )
    return _open_exported(path)


def model_of_run(run: FinishedRun) -> OpenedModel:
    """Return the embedder of a run, which is loaded when it embeds."""
    name = run.folder.resolve().name
    return OpenedModel(
        name,
        run.recipe.view,
        lambda split: embed(run.embedder(), split),
        run.recipe.embedder.metric,
        run.recipe.embedder.embedding_dimension,
    )


def _open_exported(path: Path) -> OpenedModel:
    versions = [p for p in path.glob("*/saved_model.pb") if p.parent.name.isdigit()]
    folder = path
    if not (path / "saved_model.pb").is_file():
        if not versions:
            raise ValueError(
                f"{shown(str(path))} must be a run folder, a `.keras` or `.npy` file, "
                "or an exported SavedModel (no saved_model.pb)."
            )
        folder = max(versions, key=lambda p: int(p.parent.name)).parent
    # Here, because this alone needs TensorFlow.
    from tfdml.export import SavedEmbedder

    model = SavedEmbedder(folder)

    def embeddings(split: Split) -> np.ndarray:
        blocks = np.array_split(split.positions, -(-len(split.positions) // 64))
        rows = []
        with Progress("embedding", len(split.positions)) as progress:
            for block in blocks:
                rows.append(model.embed(split.images.central(block)))
                progress.update(len(block))
        return np.concatenate(rows)

    return OpenedModel(path.resolve().name, model.view, embeddings, model.metric)

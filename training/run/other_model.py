"""Embed the training images by the other models that a recipe names."""

import gc
from pathlib import Path

import numpy as np

from tfdml.files import written
from tfdml.messages import shown

from ..data.split import Split
from ..recipe.recipe import Recipe, RecipeError
from .opened_model import OpenedModel, open_model
from .run_folder import OTHER_ROWS, STATE


class OtherModel:
    """The old model that a run is to be compatible with, or its teacher, if it has one.

    Its embeddings are computed once, as that model sees the images, and are kept with
    the state of the run: one that goes on has the same, also if the model is gone.

    Args:
        table: The table of the recipe that names it, "compatible" or "teacher".
        recipe: The recipe.
        folder: Folder of the unfinished run.

    Raises:
        RecipeError: There is no such model, or its embeddings cannot be compared with
            those that the recipe trains.
    """

    def __init__(self, table: str, recipe: Recipe, folder: Path) -> None:
        self._where = f"[{table}]"
        self._path: str = getattr(recipe, table).run
        self._recipe = recipe
        self._file = folder / OTHER_ROWS[table]
        self._rows: np.ndarray | None = None
        self._model: OpenedModel | None = None
        if not self._path:
            return
        if self._file.exists() and (folder / STATE).exists():
            self._rows = np.load(self._file, allow_pickle=False)
            return
        try:
            self._model = open_model(Path(self._path))
        except (OSError, ValueError) as error:
            raise RecipeError(f"{self._where}: `run`: {error}") from error
        if table == "compatible":
            self._check_comparable(self._model.metric, self._model.dimension)

    def embed(self, train: Split) -> np.ndarray | None:
        """Embed the training images, unless that was done before the run was stopped.

        Returns:
            float32 `[N, dimension]`; None without such a model.

        Raises:
            RecipeError: The embeddings have another dimension, or are not finite.
            UnreadableImageError: A file is broken.
        """
        model, self._model = self._model, None
        if model is None:
            return self._rows
        print(f"Embedding the training images by {model.name}.", flush=True)
        limit = self._recipe.images.max_pixels
        rows = model.embed_others(train, max_pixels=limit)
        if self._where == "[compatible]":
            self._check_comparable(model.metric, rows.shape[1])
        del model
        gc.collect()  # what it holds of the device
        if not np.isfinite(rows).all():
            raise RecipeError(
                f"{self._where}: `run` must be a model with finite embeddings. "
                f"Received: {shown(self._path)}."
            )
        self._rows = rows.astype("float32", copy=False)
        with written(self._file) as new, new.open("wb") as file:
            np.save(file, self._rows, allow_pickle=False)
        return self._rows

    def _check_comparable(self, metric: str, dimension: int | None) -> None:
        """Check that the embeddings can be compared with those that are trained."""
        about = self._recipe.embedder
        if metric != about.metric:
            raise RecipeError(
                f"{self._where}: `run` must be a model whose embeddings are compared "
                f"as `unit_length` in [embedder] says, by {about.metric}. Received: "
                f"{shown(self._path)}, whose embeddings are compared by {metric}."
            )
        if dimension not in (None, about.embedding_dimension):
            raise RecipeError(
                f"{self._where}: `run` must be a model of the same dimension, or the "
                "two cannot be compared: `embedding_dimension` is "
                f"{about.embedding_dimension}. Received: {shown(self._path)} of "
                f"dimension {dimension}. Set embedding_dimension = {dimension} in "
                "[embedder]."
            )

"""Embed the training images by the other model that a recipe names."""

import gc
from pathlib import Path

import numpy as np

from tfdml.batch_designs import class_means
from tfdml.files import written
from tfdml.messages import shown

from ..data.split import Split
from ..recipe.recipe import Recipe, RecipeError
from .opened_model import OpenedModel, open_model
from .run_folder import OTHER_ROWS, STATE


class OtherModel:
    """The old model that a run is to be compatible with, if there is one.

    Its embeddings are computed once, as that model sees the images, and are kept with
    the state of the run: one that goes on has the same, also if the model is gone.

    Args:
        recipe: Its `[compatible]` names the model.
        folder: Folder of the unfinished run.

    Raises:
        RecipeError: There is no such model, or its embeddings cannot be compared with
            those that the recipe trains.
    """

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self._recipe = recipe
        self._file = folder / OTHER_ROWS
        self._rows: np.ndarray | None = None
        self._labels: np.ndarray | None = None
        self._model: OpenedModel | None = None
        if not recipe.compatible.run:
            return
        if self._file.exists() and (folder / STATE).exists():
            self._rows = np.load(self._file, allow_pickle=False)
            return
        try:
            self._model = open_model(Path(recipe.compatible.run))
        except (OSError, ValueError) as error:
            raise RecipeError(f"[compatible]: `run`: {error}") from error
        metric = recipe.embedder.metric
        if self._model.metric != metric:
            raise RecipeError(
                "[compatible]: `run` must be a model whose embeddings are compared as "
                f"`unit_length` in [embedder] says, by {metric}. Received: "
                f"{shown(recipe.compatible.run)}, whose embeddings are compared by "
                f"{self._model.metric}."
            )
        if self._model.dimension is not None:
            self._check_dimension(self._model.dimension)

    def embed(self, train: Split) -> None:
        """Embed the training images, unless that was done before the run was stopped.

        Raises:
            RecipeError: The embeddings have another dimension, or are not finite.
            UnreadableImageError: A file is broken.
        """
        self._labels = train.data.labels
        if self._model is None:
            return
        print(f"Embedding the training images by {self._model.name}.", flush=True)
        limit = self._recipe.images.max_pixels
        rows = self._model.embed_others(train, max_pixels=limit)
        self._model = None
        gc.collect()  # what it holds of the device
        self._check_dimension(rows.shape[1])
        if not np.isfinite(rows).all():
            raise RecipeError(
                "[compatible]: `run` must be a model with finite embeddings. "
                f"Received: {shown(self._recipe.compatible.run)}."
            )
        self._rows = rows.astype("float32", copy=False)
        with written(self._file) as new, new.open("wb") as file:
            np.save(file, self._rows, allow_pickle=False)

    @property
    def rows(self) -> np.ndarray | None:
        """What a batch holds beside its images, by image, `[N, dimension]`."""
        return None if self._recipe.loss.on_proxies else self._rows

    @property
    def old_proxies(self) -> np.ndarray | None:
        """The mean of each class, `[C, dimension]`, for a loss on proxies."""
        if self._rows is None or self._labels is None:
            return None
        if not self._recipe.loss.on_proxies:
            return None
        return class_means(self._rows, self._labels)

    def _check_dimension(self, dimension: int) -> None:
        own = self._recipe.embedder.embedding_dimension
        if dimension != own:
            raise RecipeError(
                "[compatible]: `run` must be a model of the same dimension, or the two "
                f"cannot be compared: `embedding_dimension` is {own}. Received: "
                f"{shown(self._recipe.compatible.run)} of dimension {dimension}. Set "
                f"embedding_dimension = {dimension} in [embedder]."
            )

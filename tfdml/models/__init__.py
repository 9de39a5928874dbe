"""Embedders, and models that wrap one for training."""

from tfdml._core.embedding_part import search_metric
from tfdml.models._attention_ensemble import build_attention_ensemble
from tfdml.models._convert_weights import convert_weights
from tfdml.models._cross_batch_memory import CrossBatchMemory
from tfdml.models._embedder import build_embedder, load_embedder
from tfdml.models._large_batch import LargeBatch
from tfdml.models._multi_worker import MultiWorkerModel
from tfdml.models._preset_towers import Towers, load_towers
from tfdml.models._text_tower import load_text_tower
from tfdml.models._tuning import lora_merged

__all__ = [
    "CrossBatchMemory",
    "LargeBatch",
    "MultiWorkerModel",
    "Towers",
    "build_attention_ensemble",
    "build_embedder",
    "convert_weights",
    "load_embedder",
    "load_text_tower",
    "load_towers",
    "lora_merged",
    "search_metric",
]

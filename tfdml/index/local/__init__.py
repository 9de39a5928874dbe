"""The indexes in the memory of this process."""

from tfdml.index.local._exact import ExactIndex
from tfdml.index.local._index import LocalIndex

__all__ = ["ExactIndex", "LocalIndex"]

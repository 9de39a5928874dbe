"""Hold indexes in the memory of this process."""

from tfdml.index.local._exact import ExactIndex
from tfdml.index.local._index import MemoryIndex
from tfdml.index.local._limits import Limits
from tfdml.index.local._searching import nearest

__all__ = ["ExactIndex", "Limits", "MemoryIndex", "nearest"]

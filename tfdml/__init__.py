"""Deep metric learning for Keras, from training to image search."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("tfdml")

"""A client of the embedding endpoint: images in, embeddings out."""

from .credentials import Credentials
from .endpoint_client import EndpointClient
from .images import FolderEmbeddings, ImageSource, Unreadable
from .metadata import ModelMetadata
from .retries import EndpointError, Failure, Retries

__all__ = [
    "Credentials",
    "EndpointClient",
    "EndpointError",
    "Failure",
    "FolderEmbeddings",
    "ImageSource",
    "ModelMetadata",
    "Retries",
    "Unreadable",
]

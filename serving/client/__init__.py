"""A client of the embedding endpoint: images in, embeddings out."""

from serving.client.credentials import Credentials
from serving.client.endpoint_client import EndpointClient
from serving.client.images import FolderEmbeddings, ImageSource, Unreadable
from serving.client.metadata import ModelMetadata
from serving.client.retries import EndpointError, Failure, Retries

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

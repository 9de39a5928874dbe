"""A client of the embedding endpoint: pictures in, embeddings out."""

from serving.client.credentials import Credentials
from serving.client.endpoint_client import (
    EndpointClient,
    FolderEmbeddings,
    Picture,
    Unreadable,
)
from serving.client.metadata import ModelMetadata
from serving.client.retries import EndpointError, Retries

__all__ = [
    "Credentials",
    "EndpointClient",
    "EndpointError",
    "FolderEmbeddings",
    "ModelMetadata",
    "Picture",
    "Retries",
    "Unreadable",
]

"""A client of the embedding endpoint: pictures in, embeddings out."""

from serving.client.endpoint_client import (
    Credentials,
    EndpointClient,
    EndpointError,
    FolderEmbeddings,
    ModelMetadata,
    Picture,
    Retries,
    Unreadable,
)

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

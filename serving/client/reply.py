"""Hold what an endpoint answers, and which model it says has answered."""

from typing import Generic, NamedTuple, TypeVar

Content = TypeVar("Content")

FINGERPRINT = "x-model-fingerprint"
"""Header of HTTP and trailing metadata of gRPC: SHA-256 of the graph and weights that
answered. `tfdml serve` sends it; TF Serving does not."""


class Reply(NamedTuple, Generic[Content]):
    """The content of an answer.

    Attributes:
        content: What was asked for.
        fingerprint: Of the model that answered; None where the endpoint does not say.
    """

    content: Content
    fingerprint: str | None

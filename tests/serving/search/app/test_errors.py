"""What is wrong behind the search service, told apart for those who search."""

import pytest

from serving.client import EndpointError, Failure
from serving.search.app.errors import explained

ERRORS = [
    (Failure.LATE, None, 504, "did not answer in time"),
    (Failure.LATE, "DEADLINE_EXCEEDED", 504, "did not answer in time"),
    (Failure.UNREACHABLE, None, 503, "cannot be reached"),
    (Failure.UNREACHABLE, "UNAVAILABLE", 503, "cannot be reached"),
    (Failure.REFUSED, 503, 503, "cannot answer now"),
    (Failure.REFUSED, 429, 503, "cannot answer now"),
    (Failure.REFUSED, "RESOURCE_EXHAUSTED", 503, "cannot answer now"),
    (Failure.REFUSED, "CANCELLED", 503, "cannot answer now"),
    (Failure.REFUSED, 404, 503, "does not serve the version of the model"),
    (Failure.REFUSED, "NOT_FOUND", 503, "does not serve the version of the model"),
    (Failure.REFUSED, 401, 502, "does not admit this service"),
    (Failure.REFUSED, "PERMISSION_DENIED", 502, "does not admit this service"),
    (Failure.OTHER_MODEL, None, 503, "serves another model"),
]


@pytest.mark.parametrize(("failure", "status", "code", "text"), ERRORS)
def test_error_of_the_endpoint_is_not_blamed_on_the_image(failure, status, code, text):
    error = EndpointError("at http://10.0.0.1: no", failure=failure, status=status)
    found = explained(error)
    assert found.status_code == code
    assert text in found.detail
    assert "This is not about your image." in found.detail
    assert "10.0.0.1" not in found.detail
    assert len(found.detail) <= 500


@pytest.mark.parametrize(
    ("failure", "status"),
    [(Failure.REFUSED, 400), (Failure.REFUSED, "INTERNAL"), (Failure.UNEXPECTED, None)],
)
def test_answer_without_an_embedding_may_be_the_fault_of_the_image(failure, status):
    error = EndpointError("no", failure=failure, status=status)
    assert explained(error).status_code == 502
    assert "no embedding for this image" in explained(error).detail

"""Schemathesis sends what docs/openapi.yaml allows, and what it forbids."""

from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import given
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi import checks

from tests.fuzz.mutated_bytes import fuzzing
from tests.fuzz.server_process import ANSWER_SECONDS

pytestmark = pytest.mark.slow

load_all_checks()
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
SCHEMA = schemathesis.openapi.from_path(
    Path(__file__).parents[2] / "docs" / "openapi.yaml"
)
OPERATIONS = [result.ok() for result in SCHEMA.get_all_operations()]
KNOWN = {"model": "example", "version": 1, "label": "stable"}


def modes(operation):
    """What can be sent; a path of names alone has hardly anything forbidden."""
    yield GenerationMode.POSITIVE
    if operation.method == "post" or "{version}" in operation.path:
        yield GenerationMode.NEGATIVE


def test_description_has_all_calls():
    assert len(OPERATIONS) == 9


@pytest.mark.parametrize("examples", [15, pytest.param(50, marks=pytest.mark.full)])
def test_refusals_are_those_of_the_description(example_server, examples):
    address = f"http://127.0.0.1:{example_server.port}"
    refused = set()

    def fuzz(operation, mode):
        known = {place.name: KNOWN[place.name] for place in operation.path_parameters}
        known_model = operation.as_strategy(mode, path_parameters=known)

        @fuzzing(examples)  # of each of 14 kinds
        @given(known_model | operation.as_strategy(mode))
        def send(case):
            example_server.revive()
            response = case.call(address, session=session, timeout=ANSWER_SECONDS)
            assert response.status_code < 500, response.text
            case.validate_response(response, checks=CHECKS)
            if response.status_code != 200:
                refused.add((case.method, case.formatted_path, repr(case.body)))
            example_server.check_alive(case)

        send()

    with requests.Session() as session:
        for operation in OPERATIONS:
            for mode in modes(operation):
                fuzz(operation, mode)
    example_server.check_good_request()
    assert len(refused) >= 4 * examples

"""What generators of clients cannot read is not in the descriptions of our services.

openapi-python-client 0.29 drops, without an error, whatever needs a schema that refers
to itself, or a choice between branches that are no types; its calls then return None.
"""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PREFIX = "#/components/schemas/"


@pytest.fixture(
    params=["docs/openapi.yaml", "serving/search/static/openapi.yaml"], ids=str
)
def description(request):
    return yaml.safe_load((ROOT / request.param).read_text("utf-8"))


def parts(node):
    """Yield all objects of a description."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from parts(each)


def references(node):
    return {
        part["$ref"].removeprefix(PREFIX)
        for part in parts(node)
        if str(part.get("$ref")).startswith(PREFIX)
    }


def test_no_schema_refers_to_itself(description):
    schemas = description["components"]["schemas"]
    reached = {name: references(schema) for name, schema in schemas.items()}
    for _ in schemas:
        for name in reached:
            reached[name] |= {far for near in reached[name] for far in reached[near]}
    assert not [name for name, others in reached.items() if name in others]


def test_each_branch_of_a_choice_is_a_type(description):
    for part in parts(description):
        for kind in ("oneOf", "anyOf", "allOf"):
            for branch in part.get(kind, []):
                assert {"type", "$ref"} & branch.keys(), branch


def test_each_list_says_what_it_holds(description):
    for part in parts(description["components"]["schemas"]):
        assert part.get("type") != "array" or "items" in part, part


def test_a_choice_has_no_branch_that_fits_what_a_later_one_means(description):
    """Generated clients take the first branch that has all that must be there."""
    schemas = description["components"]["schemas"]
    for part in parts(description):
        branches = [
            schemas[branch["$ref"].removeprefix(PREFIX)] if "$ref" in branch else branch
            for branch in part.get("anyOf", [])
        ]
        objects = [branch for branch in branches if branch.get("type") == "object"]
        assert all(branch.get("required") for branch in objects[:-1])

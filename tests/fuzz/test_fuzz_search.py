"""Schemathesis sends the search service what its own description allows and forbids."""

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi import checks

from serving.search.app.fetching import Fetcher
from serving.search.gallery.opening import open_search
from tests.fuzz.mutated_bytes import fuzzing
from tests.fuzz.server_process import ANSWER_SECONDS
from tests.support.search_fixtures import build_search, encoded, page_of, serve_model

pytestmark = pytest.mark.slow

load_all_checks()
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


async def resolve(host, port):
    raise OSError("nothing is fetched here")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = build_search(tmp_path_factory.mktemp("search"))
    options = {"allow_url": True, "fetcher": Fetcher(resolve=resolve)}
    with (
        serve_model(folder / "models" / "colors") as url,
        open_search(folder / "index", url) as search,
        page_of(search, editable=True, **options) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def operations(page):
    text = page.get("/api/openapi.yaml").text
    schema = schemathesis.openapi.from_file(text)
    return [result.ok() for result in schema.get_all_operations()]


def check_good_request(page):
    """A search finds what there is, whatever came and went before."""
    files = {"image": ("x", encoded((10, 10, 240)))}
    reply = page.post("/api/search", files=files, data={"k": 1})
    assert reply.status_code == 200, reply.text
    assert len(reply.json()["hits"]) == 1


def test_description_has_all_calls(operations):
    assert len(operations) == 18


@pytest.mark.parametrize("examples", [12, pytest.param(40, marks=pytest.mark.full)])
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_service_answers_as_its_description_says(page, operations, mode, examples):
    seen = set()

    def fuzz(operation):
        known = st.nothing()
        if any(place.name == "id" for place in operation.query):
            for id_ in ("red/pale.png", "blue/clear.png"):
                query = {"id": id_}
                known |= operation.as_strategy(GenerationMode.POSITIVE, query=query)

        @fuzzing(examples)
        @given(known | operation.as_strategy(mode))
        def send(case):
            url = str(page.base_url)
            response = case.call(url, session=session, timeout=ANSWER_SECONDS)
            assert response.status_code < 500 or response.status_code == 502, (
                f"{response.status_code} {response.text}"
            )
            case.validate_response(response, checks=CHECKS)
            seen.add((operation.label, response.status_code))

        send()

    with requests.Session() as session:
        for operation in operations:
            # What takes nothing forbids nothing.
            if operation.query or operation.body or mode is GenerationMode.POSITIVE:
                fuzz(operation)
            check_good_request(page)
    assert len(seen) > 10


@fuzzing(60)
@given(
    path=st.sampled_from(["/api/search", "/api/images"]),
    kind=st.sampled_from(
        [
            "application/json",
            "multipart/form-data; boundary=b",
            "multipart/form-data; boundary=",
            "multipart/form-data; charset=x; boundary=b",
            "text/plain",
            "",
        ]
    ),
    body=st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.sampled_from(
                [
                    b"--b\r\n",
                    b"--b--\r\n",
                    b'Content-Disposition: form-data; name="image"; filename="x"\r\n',
                    b'Content-Disposition: form-data; name="k"\r\n',
                    b"Content-Type: image/png; charset=\xff\r\n",
                    b"\r\n",
                    b"1\r\n",
                    encoded((1, 2, 3)),
                ]
            ),
            max_size=12,
        ).map(b"".join),
    ),
)
def test_any_body_is_answered_without_a_failure(page, path, kind, body):
    headers = {"Content-Type": kind}
    with httpx2.Client(base_url=page.base_url, timeout=ANSWER_SECONDS) as client:
        reply = client.post(path, content=body, headers=headers)
    assert reply.status_code in (200, 201, 400, 409, 415), reply.text

"""The page of advice takes its numbers from the records that it links to."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
SECTIONS = dict(
    re.findall(
        r"^## ([^\n]+)\n(.*?)(?=^## |\Z)",
        (DOCS / "best-embedding.md").read_text("utf-8"),
        re.M | re.S,
    )
)


@pytest.mark.parametrize("section", SECTIONS)
def test_each_number_stands_in_a_page_that_its_section_links_to(section):
    text = SECTIONS[section]
    pages = set(re.findall(r"\]\(([\w/-]+\.md)", text))
    known = {
        number
        for page in pages
        for number in re.findall(r"\d+\.\d+", (DOCS / page).read_text("utf-8"))
    }
    assert set(re.findall(r"\d+\.\d+", text)) <= known

"""Write docs/references.md: each paper of docs/references.bib, and what it is used for.

`make references` runs it; a test holds the page to what it writes, and each citation in
code and documentation to its paper.
"""

from dataclasses import dataclass
from pathlib import Path

from pybtex.database import Entry, parse_file

BIB = Path(__file__).parent / "references.bib"
PAGE = BIB.with_suffix(".md")

_HEAD = """# References

Every paper that the code and this documentation cite. A citation has the surnames of
all authors, or of the first of three and more, then perhaps the title, the venue and
the year: "Lu et al., ICCV 2019". Two names tell the papers of a year apart: "Wang, Han
et al., CVPR 2019". [`references.bib`](references.bib) has the same list for BibTeX.
"""


@dataclass(frozen=True)
class Reference:
    """A paper.

    Args:
        key: Its name in the list.
        authors: Their full names.
        surnames: Their surnames, in the same order.
        title: Its whole title.
        short_title: What citations may call it in place of it.
        venue: What citations call where it appeared; empty if the paper does not say.
        year: When; empty if the paper does not say.
        url: Where it or its code is, if known.
        section: The section of the page.
        use: What it is used for.
        note: What else is to be said.
    """

    key: str
    authors: tuple[str, ...]
    surnames: tuple[str, ...]
    title: str
    short_title: str
    venue: str
    year: str
    url: str
    section: str
    use: str
    note: str

    @property
    def line(self) -> str:
        """The paper as an item of the page."""
        title = f"[{self.title}]({self.url})" if self.url else self.title
        place = f"{self.venue} {self.year}".strip() or self.note
        return f"- {joined(self.authors)}: {title}. {place}. {self.use}."


def references() -> list[Reference]:
    """Return the papers, in the order of the file."""
    return [
        _reference(key, entry) for key, entry in parse_file(str(BIB)).entries.items()
    ]


def joined(names: tuple[str, ...]) -> str:
    """Return names as a citation lists them."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def page() -> str:
    """Return the text of the page."""
    papers = references()
    sections = dict.fromkeys(paper.section for paper in papers)
    parts = [_HEAD]
    for section in sections:
        lines = [paper.line for paper in papers if paper.section == section]
        parts.append("\n".join([f"## {section}", "", *lines, ""]))
    return "\n".join(parts)


def _reference(key: str, entry: Entry) -> Reference:
    fields = {name: _plain(value) for name, value in entry.fields.items()}
    people = entry.persons["author"]
    surnames = [" ".join([*p.prelast_names, *p.last_names]) for p in people]
    first = [" ".join([*p.first_names, *p.middle_names]) for p in people]
    return Reference(
        key=key,
        authors=tuple(_plain(f"{a} {b}") for a, b in zip(first, surnames, strict=True)),
        surnames=tuple(map(_plain, surnames)),
        title=fields["title"],
        short_title=fields.get("shorttitle", fields["title"].partition(":")[0]),
        venue=_venue(fields),
        year=fields.get("year", ""),
        url=fields.get("url", ""),
        section=fields["keywords"],
        use=fields["annote"],
        note=fields.get("note", ""),
    )


def _venue(fields: dict[str, str]) -> str:
    """Return the short name in brackets at the end of a venue, or its only name."""
    names = ("booktitle", "journal", "publisher", "archiveprefix", "number")
    name = next((fields[name] for name in names if name in fields), "")
    return name.rpartition("(")[2].removesuffix(")")


def _plain(text: str) -> str:
    """Return text without the braces that keep capitals in BibTeX."""
    return text.replace("{", "").replace("}", "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

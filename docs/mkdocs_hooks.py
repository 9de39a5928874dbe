"""Write the reference of the site, a page per room, from the names in docs/api.md."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OVERVIEW = "api.md"
_SECTION = re.compile(r"^(?=## tfdml\.)", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)` ", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of each room, which mkdocstrings fills from the docstrings."""
    text = (Path(config.docs_dir) / OVERVIEW).read_text(encoding="utf-8")
    for section in _SECTION.split(text)[1:]:
        heading, _, rest = section.partition("\n")
        room = _room_of(section)
        about = rest.partition("| name |")[0]
        names = "".join(f"::: {room}.{name}\n\n" for name in _ROW.findall(section))
        page = f"{heading.removeprefix('#')}\n{about}{names}"
        files.append(File.generated(config, _page_of(room), content=page))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let the overview of all names lead to the description of each."""
    if page.file.src_uri != OVERVIEW:
        return markdown
    head, *sections = _SECTION.split(markdown)
    return head + "".join(map(_with_links, sections))


def _room_of(section: str) -> str:
    """Return the room of a section, such as `tfdml.losses`."""
    return section.split(maxsplit=2)[1]


def _page_of(room: str) -> str:
    """Return the path of the page of a room."""
    return f"reference/{room}.md"


def _with_links(section: str) -> str:
    """Return the section of a room in which each name of its table is a link."""
    room = _room_of(section)
    return _ROW.sub(rf"| [`\1`]({_page_of(room)}#{room}.\1) ", section)

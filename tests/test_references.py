"""Each citation in code and documentation is as docs/references.bib has the paper."""

import json
import re
from pathlib import Path

import pytest

import tfdml
from tests.support.docs_script import docs_script

pytest.importorskip("pybtex")

ROOT = Path(__file__).parents[1]
CODE = ("tfdml", "training", "serving", "benchmarks", "tests")
KINDS = {".py", ".pyi", ".toml", ".html", ".md", ".ipynb"}
NOT_VENUES = {"COCO", "ILSVRC", "JPEG"}
"""What stands before a year and is no venue."""


LIST = docs_script("make_references")
PAPERS = LIST.references()
FIRST = {paper.surnames[0] for paper in PAPERS}


def alternatives(texts):
    return "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))


def names_of(paper):
    """How a citation may name the authors of a paper, as a pattern."""
    # A name before the first would be of a further author.
    whole = rf"(?<!\w, )(?<! and ){re.escape(LIST.joined(paper.surnames))}"
    first, *others = map(re.escape, paper.surnames)
    if len(others) < 2:
        return whole
    return rf"{whole}|{first}(?:, {others[0]})? et al\."


def titles_of(paper):
    """How a citation may name a paper."""
    return {paper.title, paper.short_title}


VENUES = {paper.venue for paper in PAPERS if paper.venue}
PLACES = re.compile(
    rf"(?<!\w)({alternatives(VENUES)}),? (\d{{4}})(?!\.\d)\b",
)
BEFORE = {
    paper: re.compile(
        rf"(?<![\w-])({names_of(paper)}),? \(?"
        rf"((?i:{alternatives(titles_of(paper))}), )?$"
    )
    for paper in PAPERS
}
"""What stands before the venue of each paper."""
SURNAME = r"[A-Z][\w'-]+"
AUTHORS = re.compile(rf"{SURNAME}(?:, {SURNAME})*,? and {SURNAME}")


def text_of(file):
    """The words of a file, without what breaks or marks its lines."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    text = re.sub(r"^\s*#+ ?", "", text, flags=re.MULTILINE)
    return re.sub(r'[\s"*]+', " ", text)


def citations(text):
    """Yield each venue with a year, the papers that are cited there, and the ends."""
    for place in PLACES.finditer(text):
        near = max(place.start() - 500, 0)
        ends = {
            paper: near + found.start()
            for paper in PAPERS
            if (paper.venue, paper.year) == place.groups()
            and (found := BEFORE[paper].search(text[near : place.start()]))
        }
        start = min(ends.values(), default=place.start())
        yield text[max(start - 60, 0) : place.end()], ends.keys(), start, place.end()


def wrong_citations(text):
    """Return what a text cites otherwise than the list has it."""
    found = list(citations(text))
    wrong = [words for words, papers, *_ in found if len(papers) != 1]
    cited = {paper for _, papers, *_ in found for paper in papers}
    rest, end = "", 0
    for *_, start, stop in found:
        rest += text[end:start] + " "
        end = stop
    rest += text[end:]
    for mark in re.finditer(r" et al\b\.?", rest):
        ends = {
            paper
            for paper in PAPERS
            if len(paper.surnames) > 2
            and re.search(
                rf"(?<![\w-])({names_of(paper)})$",
                rest[max(mark.start() - 60, 0) : mark.end()],
            )
        }
        if len(ends & cited or ends) != 1:
            wrong.append(rest[max(mark.start() - 40, 0) : mark.end() + 20])
    every = {LIST.joined(paper.surnames) for paper in PAPERS}
    for authors in AUTHORS.findall(rest):
        if authors.partition(" ")[0].rstrip(",") in FIRST and authors not in every:
            wrong.append(authors)
    for paper in PAPERS:
        if paper.venue or paper.title not in text:
            continue
        wrong += [
            text[max(title.start() - 60, 0) : title.end()]
            for title in re.finditer(re.escape(paper.title), text)
            if not re.search(rf"({names_of(paper)})\W", text[: title.start()])
        ]
    years = re.findall(r"\b([A-Z]\w*[A-Z]\w*|arXiv) (?:19|20)\d\d(?!\.\d)\b", text)
    return wrong + [venue for venue in years if venue not in VENUES | NOT_VENUES]


def files():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*")]
    code = [file for room in CODE for file in (ROOT / room).rglob("*")]
    own = {Path(__file__), LIST.PAGE}
    return [f for f in pages + code if f.suffix in KINDS and f not in own]


def test_every_citation_is_of_a_paper_of_the_list():
    wrong = {
        file.relative_to(ROOT).as_posix(): found
        for file in files()
        if (found := wrong_citations(text_of(file)))
    }
    assert not wrong, "see docs/references.bib"


@pytest.mark.parametrize(
    "text",
    [
        "Lu, Xu, Zhang, Duan and Mei, Sampling Wisely: Deep Image Embedding by Top-k "
        "Precision Optimization, ICCV 2019, Eq. 5",
        "Lu et al., Sampling Wisely, ICCV 2019",
        "(Lu et al., ICCV 2019) and Kim et al. (CVPR 2020), as Lu et al. write",
        "Hong, Park and Kim, Deep Metric Learning via Weighted Contrastive Loss",
        "Sohn, NIPS 2016; Ustinova and Lempitsky, NIPS 2016",
        "General Pair Weighting, Wang, Han et al., CVPR 2019; Wang et al., ICCV 2017",
        "van der Maaten and Hinton, JMLR 2008; JPEG 2000; arXiv 1999.12345",
    ],
)
def test_citation_as_in_the_list_is_right(text):
    assert wrong_citations(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Lu, Xu, Zhang, Zhou and Lu, Sampling Wisely, ICCV 2019",
        "Zhang, Lu, Xu, Zhang, Duan and Mei, ICCV 2019",
        "Lu, Xu, Zhang, Duan and Mei, Sampling Widely, ICCV 2019",
        "Lu et al., ICCV 2017",
        "Lu et al., CVPR 2019",
        "Sohn et al., NIPS 2016",
        "Kim et al. write",
        "Wang et al., CVPR 2019",
        "Kim et al., CVPR 2019 and Kim et al., CVPR 2020. Kim et al. write",
        "Hong, Choi and Han, Deep Metric Learning via Weighted Contrastive Loss",
        "Deep Metric Learning via Weighted Contrastive Loss, by others",
        "Nobody et al. write",
        "Nobody, BMVC 2021",
        "arXiv 2016",
    ],
)
def test_citation_unlike_the_list_is_found(text):
    assert wrong_citations(text) != []


def test_papers_are_named_whole_and_once():
    titles = [paper.title.casefold() for paper in PAPERS]
    assert len(set(titles)) == len(titles)
    for paper in PAPERS:
        assert paper.surnames
        assert all(paper.surnames)
        assert (paper.venue and re.fullmatch(r"\d{4}", paper.year)) or paper.note
        assert paper.use
        assert paper.section


def test_papers_are_used_for_what_exists():
    rooms = [name for name in tfdml.__all__ if not name.startswith("_")]
    there = {name for room in rooms for name in getattr(tfdml, room).__all__}
    named = {name for paper in PAPERS for name in re.findall(r"`(\w+)`", paper.use)}
    data_sets = {"cub", "cars", "in_shop", "mpii", "coco"}
    assert named - there - data_sets == set()


def test_page_lists_the_papers():
    assert LIST.PAGE.read_text(encoding="utf-8") == LIST.page(), "run `make references`"

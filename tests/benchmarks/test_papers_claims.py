"""The page of results tells of each claim what the recorded runs say."""

import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.papers.comparisons import Comparison
from benchmarks.papers.groups import grouped
from benchmarks.papers.runs import read_results

RECORDS = Path(__file__).parents[2] / "docs" / "records"
SETS = ("emoji", "furniture")
VERDICTS = ("Confirmed", "Half confirmed", "Not confirmed", "Not tested yet")
CLAIMS = (
    (RECORDS / "results.md")
    .read_text("utf-8")
    .partition("\n## The claims\n")[2]
    .partition("\n## ")[0]
)
PAPERS = dict(
    re.findall(r"^### ([^\n]+ \([^\n]+\))\n(.*?)(?=^### )", CLAIMS, re.M | re.S)
)
"""What is said of the claims of each paper."""


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_claim_has_one_verdict():
    assert len(PAPERS) == 5
    for claims in PAPERS.values():
        quotes = re.findall(r"^> [^\n]*(?:\n> [^\n]*)*\n\n(\S[^\n]*)", claims, re.M)
        assert len(quotes) == len(re.findall(r"^\*\*", claims, re.M))
        for verdict in quotes:
            assert verdict.startswith(tuple(f"**{words}" for words in VERDICTS))


def test_verdicts_are_counted():
    rows = [cells(line) for line in CLAIMS.splitlines() if line.startswith("| ")]
    counts = {row[0]: row[1:] for row in rows if row[0] in PAPERS}
    for paper, claims in PAPERS.items():
        found = Counter(re.findall(r"^\*\*([^*.]+)\.?\*\*", claims, re.M))
        assert counts[paper] == [str(found[verdict]) for verdict in VERDICTS], paper
    total = next(row[1:] for row in rows if row[0] == "all")
    sums = [sum(map(int, column)) for column in zip(*counts.values(), strict=True)]
    assert total == [str(number) for number in sums]


@pytest.mark.slow
def test_differences_in_the_claims_are_those_of_the_results():
    tables = re.findall(
        r"^\| compared with (.+?) \|.*\n\|.*\n((?:\|.*\n)+)", CLAIMS, re.M
    )
    assert len(tables) >= 5
    runs, compared = {}, {}
    for set_ in SETS:
        file = RECORDS / "results" / "losses.jsonl"
        records = [r for r in read_results([file]).values() if r["set"] == set_]
        floor = [record for record in records if record["study"] == "floor"]
        classes = next(r["classes"] for r in floor if "classes" in r)
        compared[set_] = Comparison(set_, classes)
        groups = grouped(r for r in records if r["study"] == "losses")
        runs[set_] = {series: found for (series, _), found in groups.items()}
    for other, lines in tables:
        for line in lines.splitlines():
            series, *told = cells(line)
            found = [
                compared[set_].cell(runs[set_][other], runs[set_][series])
                for set_ in SETS
            ]
            assert told == found, f"{series} compared with {other}"

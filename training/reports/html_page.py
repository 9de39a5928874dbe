"""What the HTML reports have in common."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; background: #fff;
  margin: 2rem auto; max-width: 1100px; padding: 0 1.5rem; overflow-wrap: break-word }
h1 { font-size: 1.6rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin-top: 2rem }
.lead { color: #57606a; margin-top: .25rem }
table { border-collapse: collapse } th, td { padding: .25rem .9rem .25rem 0 }
th { text-align: left; font-weight: 600 } td.n, th.n { text-align: right }
td.n { white-space: nowrap }
td:first-child { overflow-wrap: anywhere; min-width: 7rem }
.scroll { overflow-x: auto } .scroll + .scroll { margin-top: 1rem }
tbody tr { border-top: 1px solid #d8dee4 } tr.main td { font-weight: 600 }
.charts { display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(430px, 100%), 1fr)) }
figure { margin: 0 } figcaption { font-weight: 600 }
svg { width: 100%; height: auto } svg text { font: 11px sans-serif; fill: #57606a }
.grid { stroke: #d8dee4 } .mark { stroke: #57606a; stroke-dasharray: 4 3 }
.keys span { margin-right: 1rem; font-size: .85rem } .keys i { display: inline-block;
  width: .8em; height: .8em; margin-right: .35em; border-radius: 2px }
.sheet { display: flex; gap: 6px; margin-bottom: .6rem; overflow-x: auto }
.cell { width: 80px; font-size: .7rem; color: #57606a; overflow-wrap: anywhere }
.cell img { width: 72px; height: 72px; border: 4px solid #d8dee4; display: block }
.cell.right img { border-color: #1a7f37 } .cell.wrong img { border-color: #cf222e }
.query { margin-right: 1rem } .cell b { color: #1f2328; font-weight: 600 }
.figures { display: flex; flex-wrap: wrap; gap: 2rem; align-items: end }
.figures img { max-width: 100%; height: auto; display: block }
.note { color: #57606a; max-width: 75ch; margin: .2rem 0 .8rem }
.recipe { columns: 3 260px; font-size: .85rem } .recipe section { break-inside: avoid }
.recipe h3 { margin: .6rem 0 0; font-size: .9rem } .given { font-weight: 600 }
.recipe div { color: #57606a; overflow-wrap: anywhere }
.recipe .given { color: #1f2328 }
"""


def html_page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page that needs no other file.

    Args:
        title: Its title, plain text.
        parts: What its body holds, HTML.
    """
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def html_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, main: str | None = None
) -> str:
    """Return a table: the first column is text, the others are numbers.

    Where it is wider than the page it scrolls, so that the page does not.

    Args:
        head: Title of each column, plain text; none: no head.
        rows: Cells, plain text.
        main: First cell of the row that stands out.
    """
    kinds = ["", *[' class="n"'] * max(0, len(head) - 1)]
    parts = ['<div class="scroll"><table>']
    if head:
        cells = (f"<th{k}>{escape(t)}</th>" for k, t in zip(kinds, head, strict=True))
        parts.append(f"<thead><tr>{''.join(cells)}</tr></thead>")
    parts.append("<tbody>")
    for row in rows:
        kinds = ["", *[' class="n"'] * (len(row) - 1)] if head else [""] * len(row)
        cells = (f"<td{k}>{escape(t)}</td>" for k, t in zip(kinds, row, strict=True))
        stands_out = ' class="main"' * (row[0] == main)
        parts.append(f"<tr{stands_out}>{''.join(cells)}</tr>")
    return "".join([*parts, "</tbody></table></div>"])


def environment_table(values: Mapping[str, str]) -> str:
    """Return what a result was made with; nothing where that is not known."""
    if not values:
        return ""
    rows = [[key.replace("_", " "), value] for key, value in values.items()]
    return f"<h2>Environment</h2>{html_table([], rows)}"

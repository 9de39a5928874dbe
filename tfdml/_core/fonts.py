"""Choose fonts that can draw a text in any script.

matplotlib falls back over a list of fonts by itself, but what none of them has becomes
a box and a warning: names that differ there alone would look alike. They are spelled
instead, which needs the characters of each font.
"""

import functools
import unicodedata
from typing import Any

# Beginnings of the names of fonts with Korean, Japanese or Chinese, which those that
# come with matplotlib lack. Of several that are installed the first is taken.
_WIDER_FONTS = (
    "Noto Sans CJK",
    "Noto Sans KR",
    "Noto Sans JP",
    "Noto Sans SC",
    "Noto Sans TC",
    "Source Han Sans",
    "Apple SD Gothic Neo",
    "Hiragino Sans",
    "PingFang",
    "Malgun Gothic",
    "Yu Gothic",
    "Microsoft YaHei",
    "Microsoft JhengHei",
    "Nanum",
    "IPA",
    "WenQuanYi",
    "Droid Sans Fallback",
    "Arial Unicode MS",
    "Noto Serif CJK",
    "Source Han Serif",
    "Unifont",
)


def drawable(text: str) -> tuple[str, list[str]]:
    r"""Return text as the installed fonts can draw it, and the families that draw it.

    The families are matplotlib's `font.family`, DejaVu Sans, and those of the known
    fonts for Korean, Japanese and Chinese that the text needs. What no family has is
    spelled as in a Python string, such as `\uac00`, so that different names stay
    different, and white space becomes a space; line breaks stay. Letters in
    parts, as in names of files from macOS, are composed (NFC).

    Raises:
        ImportError: matplotlib is not installed.

    Example:
        >>> print(drawable("café \U000e0001")[0])
        café \U000e0001
    """
    from matplotlib import font_manager, rcParams

    text = unicodedata.normalize("NFC", text)
    families = list(dict.fromkeys([*rcParams["font.family"], "DejaVu Sans"]))
    lacking = {ord(char) for char in text if char != "\n"}
    for family in families:
        lacking -= _characters(family)
    installed = {font.name for font in font_manager.fontManager.ttflist}
    for family in sorted(installed, key=_rank) if lacking else ():
        if _rank(family)[0] < len(_WIDER_FONTS) and lacking & _characters(family):
            families.append(family)
            lacking -= _characters(family)
    shown = {
        code: " " if chr(code).isspace() else ascii(chr(code))[1:-1] for code in lacking
    }
    return text.translate(shown), families


def _rank(family: str) -> tuple[int, str]:
    """Return the place of a font among the known ones, or a place after all of them."""
    count = len(_WIDER_FONTS)
    places = (i for i in range(count) if family.startswith(_WIDER_FONTS[i]))
    return next(places, count), family


def _characters(family: str) -> frozenset[int]:
    """Return the characters of a family; none where it is not installed."""
    from matplotlib.font_manager import FontProperties, findfont

    try:
        path = findfont(FontProperties(family=[family]), fallback_to_default=False)
    except ValueError:
        return frozenset()
    return _characters_of_file(path)


@functools.cache
def _characters_of_file(path: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    return frozenset(get_font(path).get_charmap())


def set_text(text: Any, content: str) -> None:
    """Set the content of a `matplotlib.text.Text` to what `drawable` returns for it."""
    shown, families = drawable(content)
    text.set(text=shown, fontfamily=families, parse_math=False)

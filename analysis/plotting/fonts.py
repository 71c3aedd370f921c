"""Fonts for names that matplotlib's own has no letters for: Chinese, Japanese, emoji."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from vitinit.analysis.frame import Study
from vitinit.analysis.text import one_line

NOT_FOR_TEXT = ("Last Resort", "Emoji")
"""Fonts that draw a box for every character, or coloured pictures, which matplotlib cannot draw."""


def use_for(studies: Iterable[Study]) -> list[str]:
    """Take fonts of this machine into use for the names in these studies that matplotlib's own cannot draw.

    Returns:
        A line that names the characters for which there is none here; figures show `?` in their place.
    """
    import matplotlib as mpl
    from matplotlib.font_manager import fontManager

    names = "".join(one_line(name) for study in studies for name in (*study.rows, *study.columns))
    missing = set(map(ord, names)) - glyphs()
    if not missing:
        return []
    others = {font.fname: font.name for font in fontManager.ttflist if font.style == "normal" and font.weight == 400}
    for path, family in sorted(others.items()):
        if not any(word in family for word in NOT_FOR_TEXT) and missing & _glyphs_of(path):
            mpl.rcParams["font.family"] = [*mpl.rcParams["font.family"], family]
            missing -= _glyphs_of(path)
    characters = "".join(map(chr, sorted(missing)))
    return [f"no font of this machine has {characters}: figures show ? in their place"] if missing else []


def glyphs() -> frozenset[int]:
    """The characters that the fonts in use have."""
    import matplotlib as mpl

    return _of_families(tuple(mpl.rcParams["font.family"]))


@cache
def _of_families(families: tuple[str, ...]) -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont

    paths = [findfont(FontProperties(family=[family])) for family in families]
    return frozenset[int]().union(*map(_glyphs_of, paths))


@cache
def _glyphs_of(path: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):  # listed, and removed or damaged since
        return frozenset()

"""Names in scripts that matplotlib's own font lacks: no warning, another font or a `?`, and a line that says so."""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.font_manager import fontManager
from synthetic_records import done, write

from analysis.figures import __main__ as figures
from analysis.plotting.style import safe

IN_NO_FONT = "\U00018b00 \U00018b01"
"""Khitan small script."""
IN_STIX_ONLY = "\u1d81"
"""A letter that DejaVu Sans lacks and STIX, which comes with matplotlib too, has."""


@pytest.mark.parametrize(
    ("row", "shown"),
    [(IN_NO_FONT, None), (f"Imp{IN_STIX_ONLY}", f"Imp{IN_STIX_ONLY}"), ("Größe ± Ж", "Größe ± Ж")],
    ids=["in no font", "in another font", "in matplotlib's own"],
)
def test_no_name_of_a_row_makes_matplotlib_warn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, row: str, shown: str | None
) -> None:
    own = [font for font in fontManager.ttflist if font.fname.startswith(mpl.get_data_path())]
    monkeypatch.setattr(fontManager, "ttflist", own)
    for seed in range(2):
        write(tmp_path / "records", done("Kaiming uniform", seed=seed), done("Mimetic", label=row, seed=seed))
    arguments = ["--results", str(tmp_path / "records"), "--out", str(tmp_path / "out"), "--figure", "accuracy"]
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figures.main(arguments) == 0
        assert safe(row) == (shown or "? ?")
    printed = capsys.readouterr()
    assert printed.err == ""
    assert ("no font of this machine has" in printed.out) == (shown is None)
    assert (tmp_path / "out/accuracy.png").stat().st_size > 1_000

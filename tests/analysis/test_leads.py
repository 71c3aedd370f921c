"""Which study's answer leads a report of several, and bands of what cannot exceed 100 %."""

import numpy as np
from report_page import Page, write_report
from synthetic_records import done, write

from analysis.figures.accuracy import over_epochs
from analysis.frame import load
from analysis.report.__main__ import main


def test_of_several_studies_each_has_a_line_or_the_named_one_leads(tmp_path):
    for study, gain in (("a-try", 20.0), ("standard", 2.0)):
        for seed in range(3):
            write(tmp_path, done("Kaiming uniform", (40.0 + seed,), seed=seed, study=study))
            write(tmp_path, done("Mimetic", (40.0 + gain + seed,), seed=seed, study=study))
    text = write_report(tmp_path / "all.html", "--results", tmp_path)
    page = Page(text[: text.index('id="studies"')])
    ((_, lines),) = page.find("ul", **{"class": "lines"})
    assert lines.index("a-try") < lines.index("standard")
    assert "20.00" not in page.find("h1")[0][1]
    assert not page.find("p", **{"class": "lead"})
    text = write_report(tmp_path / "led.html", "--results", tmp_path, "--lead", "standard")
    page = Page(text[: text.index('id="studies"')])
    ((_, lead),) = page.find("p", **{"class": "lead"})
    assert "2.00" in lead
    assert main(["--results", str(tmp_path), "--lead", "standrad", "--out", str(tmp_path / "x.html")]) == 2


def test_a_band_ends_at_100_percent(tmp_path):
    for seed, top1 in enumerate((80.0, 100.0, 100.0)):
        write(tmp_path, done("Mimetic", (50.0, top1), seed=seed))
    (panel,) = over_epochs(load([tmp_path], "small"))["accuracy"].panels
    line = panel.lines["Mimetic"]
    assert (line.mean + line.std)[-1] > 100, "as computed"
    assert np.max(line.band[1]) == 100, "as drawn"

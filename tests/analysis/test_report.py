"""The report: one page that needs nothing else and says what the records say."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_page import EVIL, REFERENCE, Page, hostile_report, write_report
from synthetic_records import done, failed, write

from analysis.figures import __main__ as figures
from analysis.figures.accuracy import over_epochs
from analysis.frame import load
from analysis.report import __main__ as report
from analysis.report import section as section_file
from analysis.report.charts import plot
from analysis.report.page import to_html
from analysis.report.section import section
from analysis.series import Chart, Line, Panel, Scale


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    write_report(out, "--results", REFERENCE, "--study", "small")
    return out


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    return hostile_report(tmp_path_factory.mktemp("hostile"))


def test_every_run_is_on_the_page_with_the_numbers_of_its_record(small):
    page = Page(small.read_text(encoding="utf-8"))
    records = load([REFERENCE], "small").contents.done
    shown = {re.search(r"[0-9a-f]{16}", text).group(): text for _, text in page.find("tr", **{"class": "run"})}
    assert shown.keys() == records.keys()
    for run_id, record in records.items():
        cells = f"{record.spec.seed} {record.score:.2f} {record.best[1]:.2f} {record.seconds:.1f}"
        words = shown[run_id].split()
        assert Counter(cells.split()) <= Counter(words), run_id
        assert {record.environment["commit"][:10], "cpu", record.weights} <= set(words)
        assert all(f"{epoch.train_loss:.4f}" in words for epoch in record.history)
        assert f"vitinit reproduce {run_id}" in shown[run_id]
    text = small.read_text(encoding="utf-8")
    assert all(record.dataset.checksum in text for record in records.values())
    assert "vitinit run small" in text
    curves = [attrs["points"].split() for attrs, _ in page.find("polyline") if "stroke" not in attrs]
    assert sorted(map(len, curves)) == sorted(len(record.history) for record in records.values())


def test_epochs_that_were_not_evaluated_are_on_the_page_without_test_numbers(tmp_path):
    (tmp_path / "table4-small").mkdir()
    for run_id in sorted(load([REFERENCE], "table4-small").contents.done)[:2]:
        shutil.copy(REFERENCE / "table4-small" / f"{run_id}.json", tmp_path / "table4-small")
    write_report(tmp_path / "report.html", "--results", tmp_path)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    shown = {re.search(r"[0-9a-f]{16}", text).group(): text for _, text in page.find("tr", **{"class": "run"})}
    done = load([tmp_path], "table4-small").contents.done
    assert shown.keys() == done.keys()
    assert len(done) == 2
    for run_id, record in done.items():
        assert [epoch.test_top1 is None for epoch in record.history] == [True, True, True, True, False]
        words = shown[run_id].split()
        assert words.count("–") == 8
        assert f"{record.history[-1].test_loss:.4f}" in words


def test_the_page_needs_no_other_file_and_its_links_lead_somewhere(small, hostile):
    for path in (small, hostile):
        page = Page(path.read_text(encoding="utf-8"))
        ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
        assert len(ids) == len(set(ids))
        for tag, attrs in page.elements:
            for name in ("src", "href"):
                address = attrs.get(name, "data:")
                assert address.startswith("data:") or (address[0] == "#" and address[1:] in ids), (tag, address)
        assert not re.search(r"url\(|@import|https?:", path.read_text(encoding="utf-8").partition("<body>")[0])
    figures = [attrs for attrs, _ in Page(small.read_text(encoding="utf-8")).find("img")]
    assert len(figures) >= 2
    for attrs in figures:
        image = Image.open(io.BytesIO(base64.b64decode(attrs["src"].partition("base64,")[2])))
        assert (image.format, image.width) == ("WEBP", 880)
        assert len(attrs["alt"]) > 20


def test_text_of_records_is_never_markup(hostile):
    text = hostile.read_text(encoding="utf-8")
    page = Page(text)
    kinds = [attrs.get("type") for attrs, _ in page.find("script")]
    assert kinds == [None if kind is None else "application/json" for kind in kinds]
    assert kinds.count(None) == 2, "the page's own, and Bokeh"
    assert all(attrs["src"].startswith("data:") for attrs, _ in page.find("img"))
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert EVIL in [shown for _, shown in page.find("option")]
    ((_, failure),) = [row for row in page.find("tr") if "RuntimeError" in row[1]]
    assert EVIL in failure
    ((_, skip),) = [row for row in page.find("tr") if " skipped " in row[1]]
    assert skip.endswith(f"skipped cifar10 Imp.-5 0 {EVIL}")
    assert any("<b>.json" in shown for _, shown in page.find("li"))
    assert {attrs["href"] for attrs, _ in page.find("a")} == {"#studies", "#study-small", "#study-other"}


def test_the_same_records_give_the_same_bytes(hostile, tmp_path):
    copy = shutil.copytree(hostile.parent, tmp_path / "moved")
    assert write_report(tmp_path / "again.html", "--results", copy) == hostile.read_text(encoding="utf-8")


def test_what_cannot_be_shown_is_one_line(tmp_path, capsys):
    write(tmp_path, done("Mimetic"), failed("Imp.-3", study="broken"))
    out = tmp_path / "new" / "report.html"
    assert report.main(["--results", str(tmp_path), "--study", "broken", "--out", str(out)]) == 2
    assert "holds no finished run; first reason: Imp.-3 failed: RuntimeError" in capsys.readouterr().err
    assert report.main(["--results", str(tmp_path), "--baseline", "Mimic", "--out", str(out)]) == 2
    assert "did you mean 'Mimetic'" in capsys.readouterr().err
    assert not out.exists()
    assert report.main(["--results", str(tmp_path), "--out", str(out)]) == 0
    assert "Study broken: left out, no finished run" in capsys.readouterr().out


def test_of_a_study_that_chooses_there_is_the_accuracy_alone():
    study = load([REFERENCE], "catalogue-small-tuning")
    shown = section(study)
    assert set(study.runs["evaluated_images"]) == {2000}, "what the width of chance is computed from"
    assert [drawn.drawing.name for drawn in shown.figures] == ["accuracy"]
    assert len(shown.tables) == 1
    page = to_html([shown])
    runs = Page(page).find("tr", **{"class": "run"})
    for record in study.contents.done.values():
        (words,) = [text.split() for _, text in runs if record.run_id in text]
        assert f"{record.history[-1].val_loss:.4f}" in words
        assert f"{record.history[0].val_top1:.2f}" in words
    assert "A curve is validation top-1 over epochs" in page
    assert "validation loss" in page
    assert "test loss" not in page
    assert "Not all of this study is on this page: it chooses on validation images" in page
    assert "python -m analysis.curves --study catalogue-small-tuning" in page


def test_the_answer_is_that_of_a_study_which_was_tested(tmp_path):
    for name in ("catalogue-small-tuning", "segmentation-small"):
        shutil.copytree(REFERENCE / name, tmp_path / name)
    page = write_report(tmp_path / "report.html", "--results", tmp_path)
    assert "catalogue-small-tuning</a> (validation images, no result)" in page
    page = write_report(tmp_path / "led.html", "--results", tmp_path, "--lead", "segmentation-small")
    assert "Study segmentation-small: test mean IoU minus that of" in page
    page = write_report(tmp_path / "alone.html", "--results", tmp_path, "--study", "catalogue-small-tuning")
    assert "Study catalogue-small-tuning: validation top-1 minus that of" in page


def test_only_what_is_a_dataset_or_a_row_is_filtered_by_it():
    study = load([REFERENCE], "standard-mechanism")
    page = Page(to_html([section(study)]))
    for name, known in (("data-dataset", study.columns), ("data-row", study.rows)):
        found = {attrs[name] for _, attrs in page.elements if name in attrs}
        assert found
        assert all(label in known or label.partition(": ")[0] in known for label in found)


def test_charts_of_too_many_panels_are_named_and_not_drawn(monkeypatch):
    study = load([REFERENCE], "segmentation-small")
    whole = section(study)
    assert whole.left_out == ""
    assert "Not all of" not in to_html([whole])
    monkeypatch.setattr(section_file, "MOST_PANELS", len(study.rows) - 1)
    shown = section(study)
    missing = {drawn.drawing.name for drawn in whole.figures} - {drawn.drawing.name for drawn in shown.figures}
    assert "nonlocality" in missing
    assert all(name.replace("_", " ") in shown.left_out for name in missing)


@pytest.mark.parametrize("name", ["ablations-small", "catalogue-small", "long-range-small"])
def test_no_two_rows_of_a_chart_are_drawn_alike(name):
    study = load([REFERENCE], name)
    (chart,) = over_epochs(study).values()
    strokes = plot(chart, study).strokes
    assert len({(stroke.light, tuple(stroke.dash)) for stroke in strokes}) == len(strokes) == len(study.rows)


def test_whole_places_along_an_axis_keep_all_their_digits():
    line = Line(*(np.array(each) for each in ([128116, 1281167], [50.123456, 60.0], [1.0, 1.0], [3, 3])))
    scale = Scale("training images", "top-1", "row", log_x=True)
    study = load([REFERENCE], "small")
    data = plot(Chart("", "", [Panel("images", "", scale, {"Mimetic": line})]), study)
    assert json.loads(data.data)["panels"][0]["lines"][0][1:3] == [[128116, 1281167], [50.123, 60]]
    assert json.loads(data.data)["panels"][0]["axis"]["labels"] == ["128,116", "1,281,167"]
    assert ">1,281,167</text>" in data.pictures[0]


def test_panels_of_several_columns_are_hidden_by_no_dataset():
    page = Page(to_html([section(load([REFERENCE], "convit-efficiency-small"))]))
    panels = [attrs for tag, attrs in page.elements if attrs.get("class") == "panel"]
    assert any("data-dataset" not in attrs for attrs in panels)
    assert any("data-dataset" in attrs for attrs in panels)


def test_a_damaged_file_of_maps_costs_its_own_figures_only(tmp_path, capsys):
    study = load([REFERENCE], "standard")
    (tmp_path / "standard" / "maps").mkdir(parents=True)
    run_id = next(iter((REFERENCE / "standard/maps").glob("*.npz"))).stem
    shutil.copy(REFERENCE / f"standard/{run_id}.json", tmp_path / "standard")
    (tmp_path / f"standard/maps/{run_id}.npz").write_bytes(b"half")
    write(tmp_path, done("Mimetic", (30.0, 40.0)), done("Kaiming uniform", (20.0, 30.0)))
    assert report.main(["--results", str(tmp_path), "--lead", "small", "--out", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{run_id}.npz" in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert study.contents.done[run_id].row in page
    assert "Study small" in page
    assert figures.main(["--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert {path.parent.name for path in (tmp_path / "out").rglob("accuracy.png")} == {"small", "standard"}

"""The report: one page that needs nothing else; each number computed once more, from the records' JSON and by hand."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from maps_records import keep
from report_page import EVIL, REFERENCE, Page, few_records, hostile_report, unpacked, write_report
from synthetic_records import VALIDATION, done, failed, finished, of_dataset, several, skipped, with_probes, write

from tests.records import holm
from tests.synthetic_masks import dense
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.accuracy import over_epochs
from vitinit.analysis.frame import Study, load
from vitinit.analysis.report import __main__ as report
from vitinit.analysis.report import section as section_file
from vitinit.analysis.report.answer import forest as gains_of
from vitinit.analysis.report.charts import plot
from vitinit.analysis.report.choices import choices
from vitinit.analysis.report.page import to_html
from vitinit.analysis.report.section import section
from vitinit.analysis.series import Chart, Line, Panel, Scale
from vitinit.analysis.tables.registry import build
from vitinit.benchmark.records.store import Layout, Store

T = {2: 12.706205, 3: 4.302653, 12: 2.200985}
"""The 97.5 % point of Student's t for so many values, from a printed table."""


class Shown(NamedTuple):
    """A study with its page."""

    study: Study
    text: str
    page: Page


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> Shown:
    """Three rows of the committed study `small`, on both datasets at three seeds."""
    root = tmp_path_factory.mktemp("few")
    few_records(root)
    study = load([root])
    text = to_html([section(study)])
    return Shown(study, text, Page(text))


def answer(text: str) -> Page:
    """The page without its studies."""
    return Page(text[: text.index('id="studies"')])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    return hostile_report(tmp_path_factory.mktemp("hostile"))


def runs_of(page: Page) -> dict[str, str]:
    """Text of each run, by its run_id."""
    return {re.search(r"[0-9a-f]{16}", text).group(): text for _, text in page.find("tr", **{"class": "run"})}


def test_every_run_is_on_the_page_with_the_numbers_of_its_record(few):
    text, page, records = few.text, few.page, few.study.contents.done
    shown = runs_of(page)
    assert shown.keys() == records.keys()
    for run_id, record in records.items():
        cells = f"{record.spec.seed} {record.score:.2f} {record.best[1]:.2f} {record.seconds:.1f}"
        words = shown[run_id].split()
        assert Counter(cells.split()) <= Counter(words), run_id
        assert {record.environment["commit"][:10], "cpu", record.weights} <= set(words)
        assert all(f"{epoch.train_loss:.4f}" in words for epoch in record.history)
        assert f"vitinit reproduce {run_id}" in shown[run_id]
        its = text[text.index(f"vitinit reproduce {run_id}") :]
        lines = its[its.index("<pre") : its.index("</pre>")].splitlines()
        assert len(lines) == 1 + len(record.history)
        assert {line.count("\t") for line in lines} == {6}
    assert all(record.dataset.checksum in text for record in records.values())
    assert "vitinit run small" in text
    curves = [attrs["points"].split() for attrs, _ in page.find("polyline") if "stroke" not in attrs]
    assert sorted(map(len, curves)) == sorted(len(record.history) for record in records.values())


def test_epochs_that_were_not_evaluated_are_on_the_page_without_test_numbers(tmp_path):
    run = done("Mimetic", (1.0,) * 5).spec
    run = run.model_copy(update={"recipe": run.recipe.model_copy(update={"evaluate_every": 5})})
    record = finished(run, (50.0,), study="small", row="Mimetic")
    assert [epoch.test_top1 is None for epoch in record.history] == [True, True, True, True, False]
    ((_, text),) = runs_of(Page(to_html([section(load([write(tmp_path, record)]))]))).items()
    assert text.split().count("–") == 4 * 2 + 6, "and no speed is known, of five epochs and in all"
    assert f"{record.history[-1].test_loss:.4f}" in text.split()


def test_the_loss_of_validation_images_is_on_the_page(tmp_path):
    record = of_dataset(done("Mimetic"), **VALIDATION)
    ((_, text),) = runs_of(Page(to_html([section(load([write(tmp_path, record)]))]))).items()
    last = record.history[-1]
    assert text.split().count(f"{last.val_loss:.4f}") == 2, "as much as that in training"
    assert last.val_loss == last.train_loss


def test_the_page_needs_no_other_file_and_its_links_lead_somewhere(few, hostile):
    for text in (few.text, hostile.read_text(encoding="utf-8")):
        page = Page(text)
        ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
        assert len(ids) == len(set(ids))
        for tag, attrs in page.elements:
            for name in ("src", "href"):
                address = attrs.get(name, "data:")
                assert address.startswith("data:") or (address[0] == "#" and address[1:] in ids), (tag, address)
        assert not re.search(r"url\(|@import|https?:", text.partition("<body>")[0])
    pictures = [attrs for attrs, _ in few.page.find("img")]
    assert len(pictures) >= 2
    for attrs in pictures:
        picture = ElementTree.fromstring(unpacked(attrs["data-svg"]))
        words = {"".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")}
        assert "Mimetic" in words, "text, which can be searched and edited"
        assert len(attrs["alt"]) > 20


def test_text_of_records_is_never_markup_and_the_same_records_give_the_same_bytes(hostile, tmp_path):
    text = hostile.read_text(encoding="utf-8")
    page = Page(text)
    kinds = [attrs.get("type") for attrs, _ in page.find("script")]
    assert set(kinds) == {None, "application/json", "text/plain"}
    assert kinds.count(None) == 1, "the page's own"
    assert all("src" not in attrs for attrs, _ in page.find("img"))
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert EVIL in [attrs["value"] for attrs, _ in page.find("input", name="row")]
    ((_, failure),) = [row for row in page.find("tr") if "RuntimeError" in row[1]]
    assert EVIL in failure
    ((_, skip),) = [row for row in page.find("tr") if " skipped " in row[1]]
    assert skip.endswith(f"skipped cifar10 Imp.-5 0 {EVIL}")
    assert any("<b>.json" in shown for _, shown in page.find("li"))
    assert {attrs["href"] for attrs, _ in page.find("a")} == {"#studies", "#study-small", "#study-other"}
    copy = shutil.copytree(hostile.parent, tmp_path / "moved")
    assert write_report(tmp_path / "again.html", "--results", copy) == text


def test_what_cannot_be_shown_is_one_line(tmp_path, capsys):
    write(tmp_path, done("Mimetic"), failed("Imp.-3", study="broken"))
    out = tmp_path / "new" / "report.html"
    for options, says in (
        (["--study", "broken"], "holds no finished run; first reason: Imp.-3 failed: RuntimeError"),
        (["--baseline", "Mimic"], "did you mean 'Mimetic'"),
        (["--lead", "smal"], "did you mean 'small'"),
    ):
        assert report.main(["--results", str(tmp_path), *options, "--out", str(out)]) == 2
        assert says in capsys.readouterr().err
        assert not out.exists()
    assert report.main(["--results", str(tmp_path), "--out", str(out)]) == 0
    assert "Study broken: left out, no finished run" in capsys.readouterr().out


@pytest.fixture
def tuning(tmp_path) -> Study:
    """Validation images alone, which choose."""
    for row in ("Kaiming uniform", "Mimetic"):
        write(
            tmp_path, *(of_dataset(with_probes(done(row, seed=seed, study="tuning")), **VALIDATION) for seed in (0, 1))
        )
    return load([tmp_path])


def test_of_a_study_that_chooses_there_is_the_accuracy_alone(tuning):
    shown = section(tuning)
    assert set(tuning.runs["evaluated_images"]) == {2000}, "what the width of chance is computed from"
    assert [drawn.name for drawn in shown.figures] == ["accuracy"]
    assert len(shown.tables) == 1
    page = to_html([shown])
    runs = runs_of(Page(page))
    for record in tuning.contents.done.values():
        words = runs[record.run_id].split()
        assert f"{record.history[-1].val_loss:.4f}" in words
        assert f"{record.history[0].val_top1:.2f}" in words
    assert "A curve is validation top-1 over epochs" in page
    assert "test loss" not in page
    assert "Not all of this study is on this page: it chooses on validation images" in page
    assert "python -m vitinit.analysis.curves --study tuning" in page


def test_the_answer_is_that_of_a_study_which_was_tested(tuning, tmp_path):
    (root,) = tuning.folders
    for row, miou in (("Kaiming uniform", 40.0), ("Mimetic", 45.0)):
        write(root, *(dense(row, (miou + seed,), seed=seed) for seed in range(3)))
    page = write_report(tmp_path / "report.html", "--results", root)
    assert "tuning</a> (validation images, no result)" in page
    assert "Study masks: test mean IoU minus that of" in page
    page = write_report(tmp_path / "alone.html", "--results", root, "--study", "tuning")
    assert "Study tuning: validation top-1 minus that of" in page


@pytest.mark.long
def test_the_study_with_most_training_leads_or_the_named_one_and_the_others_have_a_line(tmp_path):
    for study, gain, seeds in (("a-try", 20.0, 3), ("longer", 2.0, 4)):
        base = [40.0 + seed for seed in range(seeds)]
        several(tmp_path, {"Kaiming uniform": base, "Mimetic": [value + gain for value in base]}, study=study)
    page = answer(write_report(tmp_path / "all.html", "--results", tmp_path))
    ((_, lead),), ((_, lines),) = page.find("p", **{"class": "lead"}), page.find("ul", **{"class": "lines"})
    assert "2.00" in lead
    assert "a-try: " in lines
    assert "20.00" in lines
    page = answer(write_report(tmp_path / "led.html", "--results", tmp_path, "--lead", "a-try"))
    ((_, lead),) = page.find("p", **{"class": "lead"})
    assert "20.00" in lead


def test_a_panel_is_filtered_by_its_dataset_and_row_and_one_of_several_columns_by_none(tmp_path):
    for size in (500, 5000):
        write(tmp_path, *(with_probes(done(row, train_size=size)) for row in ("Kaiming uniform", "Mimetic")))
    study = load([tmp_path])
    page = Page(to_html([section(study)]))
    for name, known in (("data-dataset", study.columns), ("data-row", study.rows)):
        found = {attrs[name] for _, attrs in page.elements if name in attrs}
        assert found
        assert all(label in known or label.partition(": ")[0] in known for label in found)
    panels = [attrs for tag, attrs in page.elements if attrs.get("class") == "panel"]
    assert {"data-dataset" in attrs for attrs in panels} == {True, False}


def test_charts_of_too_many_panels_are_named_and_not_drawn(tmp_path, monkeypatch):
    write(tmp_path, *(with_probes(done(row)) for row in ("Kaiming uniform", "Mimetic", "Imp.-3")))
    study = load([tmp_path])
    whole = section(study)
    assert whole.left_out == ""
    assert "Not all of" not in to_html([whole])
    monkeypatch.setattr(section_file, "MOST_PANELS", len(study.rows) - 1)
    shown = section(study)
    missing = {drawn.name for drawn in whole.figures} - {drawn.name for drawn in shown.figures}
    assert "nonlocality" in missing
    assert all(name.replace("_", " ") in shown.left_out for name in missing)


@pytest.mark.parametrize("name", ["ablations-small", "catalogue-small"])
def test_no_two_rows_of_a_chart_are_drawn_alike(name):
    study = load([REFERENCE], name)
    (chart,) = over_epochs(study).values()
    strokes = plot(chart, study).strokes
    assert len({(stroke.light, tuple(stroke.dash)) for stroke in strokes}) == len(strokes) == len(study.rows)


def test_whole_places_along_an_axis_keep_all_their_digits(tmp_path):
    line = Line(*(np.array(each) for each in ([128116, 1281167], [50.123456, 60.0], [1.0, 1.0], [3, 3])))
    scale = Scale("training images", "top-1", "row", log_x=True)
    study = load([write(tmp_path, done("Mimetic"))])
    data = plot(Chart("", "", [Panel("images", "", scale, {"Mimetic": line})]), study)
    assert json.loads(data.data)["panels"][0]["lines"][0][1:3] == [[128116, 1281167], [50.123, 60]]
    assert json.loads(data.data)["panels"][0]["axis"]["labels"] == ["128,116", "1,281,167"]
    assert ">1,281,167</text>" in data.pictures[0]


def test_a_band_ends_at_0_and_at_100_percent(tmp_path):
    values = {
        "Mimetic": [(50.0, 80.0), (50.0, 100.0), (50.0, 100.0)],
        "Imp.-3": [(50.0, 20.0), (50.0, 0.0), (50.0, 0.0)],
    }
    (panel,) = over_epochs(load([several(tmp_path, values)]))["accuracy"].panels
    high, low = (panel.lines[row] for row in values)
    assert (high.mean + high.std)[-1] > 100, "as computed"
    assert (low.mean - low.std)[-1] < 0, "as computed"
    assert (np.min(low.band[0]), np.max(high.band[1])) == (0, 100), "as drawn"


def test_an_axis_holds_the_bands_of_its_lines(tmp_path):
    study = load([several(tmp_path, {"Mimetic": [(20.0, 50.0), (40.0, 70.0)]})])
    axis = json.loads(plot(over_epochs(study)["accuracy"], study).data)["scales"][0]["axis"]
    assert axis["low"] < 30 - 2**0.5 * 10
    assert axis["high"] > 60 + 2**0.5 * 10


@pytest.mark.long
def test_a_damaged_file_of_maps_costs_its_own_figures_only(tmp_path, capsys):
    several(tmp_path, {"Mimetic": [(30.0, 40.0)], "Kaiming uniform": [(20.0, 30.0)]})
    keep(tmp_path, "Mimetic", 0, study="mapped")
    (path,) = (tmp_path / "mapped/maps").iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    out = tmp_path / "page.html"
    assert report.main(["--results", str(tmp_path), "--lead", "small", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert path.name in said
    page = Page(out.read_text(encoding="utf-8"))
    assert {"study-small", "study-mapped"} <= {attrs.get("id") for _, attrs in page.elements}
    assert figures.main(["--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert {path.parent.name for path in (tmp_path / "out").rglob("accuracy.png")} == {"small", "mapped"}


# --- what stands first ---


def files(folder: Path) -> list[dict]:
    """JSON of the finished runs."""
    found = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    return [record for record in found if record.get("status") == "done"]


def gains(folder: Path) -> dict[tuple[str, str], list[float]]:
    """Differences to the row of the same base and model without a method, by dataset and row: from the files alone."""
    top1: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    of, plain = {}, {}
    for record in files(folder):
        spec = record["spec"]
        data = spec["dataset"]
        dataset = data["name"] + (f"[{data['train_size']}]" if data.get("train_size") else "")
        key = (dataset, record["row"])
        top1[key][spec["seed"]] = record["history"][-1]["test_top1"]
        setting = (dataset, json.dumps([spec["base"], spec["model"]], sort_keys=True))
        of[key] = setting
        if not spec["method"]:
            plain[setting] = key
    return {
        key: [value - top1[plain[of[key]]][seed] for seed, value in sorted(by_seed.items())]
        for key, by_seed in top1.items()
        if of[key] in plain and plain[of[key]] != key
    }


def written(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def interval(differences: list[float]) -> tuple[str, float, float]:
    """As it is written, and its ends."""
    middle, half = mean(differences), T[len(differences)] * stdev(differences) / math.sqrt(len(differences))
    text = f"{'+' * (middle > 0)}{written(middle)} [{written(middle - half)}, {written(middle + half)}]"
    return text, middle - half, middle + half


def forest(page: Page) -> dict[tuple[str, str], tuple[dict[str, str], str]]:
    """Rows of the forest plots before the first study, by dataset and row: attributes and text."""
    found, dataset, texts = {}, "", zip(page.elements, page.texts, strict=True)
    for (tag, attrs), text in texts:
        if attrs.get("id") == "studies":
            break
        dataset = attrs["data-dataset"] if tag == "div" and "data-dataset" in attrs else dataset
        if tag == "tr" and "data-row" in attrs:
            found[dataset, attrs["data-row"]] = attrs, " ".join(text.split())
    return found


def test_gains_intervals_and_n_are_those_of_the_files(few):
    rows, expected = forest(few.page), gains(few.study.folders[0] / "small")
    assert rows.keys() == expected.keys()
    assert len(rows) == 4, "two rows on two datasets"
    for key, differences in expected.items():
        text, low, high = interval(differences)
        attrs, words = rows[key]
        assert text in words, key
        assert attrs["class"] == ("ahead" if low > 0 else "behind" if high < 0 else "open"), key
    captions = {caption for _, caption in few.page.find("caption")}
    for dataset in {dataset for dataset, _ in expected}:
        (n,) = {len(differences) for (its, _), differences in expected.items() if its == dataset}
        assert f"{dataset} n = {n}" in captions


def test_where_a_grid_names_comparisons_they_are_the_answer():
    text = to_html([section(load([REFERENCE], "standard-mechanism"))])
    page = answer(text)
    assert page.find("h1")[0][1] == "Which initialisation gains accuracy over what the grid compares it with?"
    named = json.loads((REFERENCE / "standard-mechanism/LAYOUT").read_text())["contrasts"]
    top1: dict[str, dict[int, float]] = defaultdict(dict)
    for record in files(REFERENCE / "standard-mechanism"):
        top1[record["row"]][record["spec"]["seed"]] = record["history"][-1]["test_top1"]
    lines = [" ".join(words.split()) for attrs, words in page.find("tr") if "data-row" in attrs]
    assert len(lines) == len(named) == 5
    found = {}
    for (ours, theirs), line in zip(named, lines, strict=True):
        differences = [value - top1[theirs][seed] for seed, value in top1[ours].items()]
        assert line.startswith(f"{ours} − {theirs}")
        assert interval(differences)[0] in line
        found[f"{ours} − {theirs}"] = pd.Series(differences)
    ((_, lead),) = page.find("p", **{"class": "lead"})
    assert lead.startswith("Above 0 at Holm's 0.05, of the comparisons that the grid names: on cifar10[5000] ")
    above = {name for name, p in holm(found).items() if p < 0.05 and found[name].mean() > 0}
    assert {name for name in found if name in lead} == above
    assert f"{max(above, key=lambda name: found[name].mean())} by +" in lead
    ((_, header), *_) = [each for each in page.find("th") if each[0].get("scope") == "col"]
    assert header == "comparison"
    still = [name for name in found if name not in above]
    assert f"Largest still open: {max(still, key=lambda name: abs(found[name].mean()))} on " in text
    assert "Every interval of a difference" not in text[: text.index('id="studies"')]


def test_points_and_bars_lie_where_their_numbers_are(few):
    first = few.text[: few.text.index('id="studies"')]
    axis = re.findall(r'<text x="([\d.]+)%" y="1em">([−\d.]+)</text>', first)
    places = {float(label.replace("−", "-")): float(place) for place, label in axis}
    assert len(places) >= 3
    (a, b) = sorted(places)[:2]
    scale = (places[b] - places[a]) / (b - a)
    for value, place in places.items():
        assert place == pytest.approx(places[a] + scale * (value - a), abs=0.02)
    drawn = re.findall(
        r'<line class="interval" x1="([\d.]+)%" x2="([\d.]+)%"[^>]*/><circle cx="([\d.]+)%"'
        r".*?<td>([^ ]+) <small>\[(.*?), (.*?)\]",
        first,
        re.DOTALL,
    )
    assert len(drawn) == 4
    for low, high, middle, *numbers in drawn:
        values = [float(number.replace("−", "-")) for number in numbers]
        expected = [places[a] + scale * (value - a) for value in values]
        assert [float(middle), float(low), float(high)] == pytest.approx(expected, abs=0.05)


def test_the_axis_of_gains_holds_0_however_large_they_are(tmp_path):
    several(tmp_path, {"Kaiming uniform": (40.0, 41.0, 42.0), "Mimetic": (60.0, 61.0, 62.5)})
    its = gains_of(build(load([tmp_path])))
    assert its.low < 0 < its.high


def test_a_baseline_that_was_asked_for_is_that_of_every_metric_whatever_the_grid_names(tmp_path):
    several(tmp_path, {row: (40.0 + at, 41.0, 42.0) for at, row in enumerate(("Kaiming uniform", "Mimetic", "Imp.-3"))})
    Store(tmp_path).write_layout("small", Layout(contrasts=[("Mimetic", "Kaiming uniform")]))
    for baseline, alike in ((None, []), ("Imp.-3", ["Imp.-3"])):
        shown = json.loads(unpacked(choices(load([tmp_path]), baseline)[1]))["best"]["gains"]
        own = shown.pop("")
        assert [name for name, gains in shown.items() if gains == own] == alike


def test_what_was_not_run_is_said_with_its_reason(tmp_path):
    several(tmp_path, {"Kaiming uniform": (40.0, 41.0, 42.0), "Mimetic": (45.0, 46.0, 47.0)})
    write(tmp_path, done("Kaiming uniform", (30.0,), dataset="digits"))
    write(tmp_path, failed("Imp.-3", "out of memory"), skipped("Imp.-5", "cifar10 is not here"))
    Store(tmp_path).write_layout("small", Layout(rows=["Kaiming uniform", "Mimetic", "ConViT"]))
    page = Page(write_report(tmp_path / "report.html", "--results", tmp_path))
    ((_, facts),) = page.find("dl", **{"class": "facts"})
    assert "1 run skipped: cifar10 is not here" in facts
    assert "1 run failed: RuntimeError: out of memory" in facts
    assert "without a record" in facts
    assert "Mimetic on digits" in facts
    assert "7 finished" in facts
    assert "No record of row ConViT" in facts
    assert "Nothing:" not in facts
    assert any("No finished run: " in note and "ConViT" in note for note in build(load([tmp_path], "small")).notes)


def test_one_seed_has_no_interval_and_a_study_without_a_base_no_plot(tmp_path):
    write(tmp_path, done("Kaiming uniform", (40.0,)), done("Mimetic", (45.5,)), done("Mimetic", (9.0,), study="other"))
    page = Page(write_report(tmp_path / "report.html", "--results", tmp_path, "--lead", "small"))
    ((attrs, words),) = forest(page).values()
    assert "+5.50 no interval" in words
    assert attrs["class"] == "open"
    assert len(page.find("table", **{"class": "forest"})) == 1
    page = Page(write_report(tmp_path / "other.html", "--results", tmp_path, "--study", "other"))
    assert page.find("h1")[0][1] == "Which initialisation is most accurate?"
    assert not page.find("table", **{"class": "forest"})
    page = Page(write_report(tmp_path / "to.html", "--results", tmp_path, "--baseline", "Mimetic", "--lead", "small"))
    assert page.find("h1")[0][1] == "Which initialisation gains accuracy over Mimetic?"
    assert "−5.50" in forest(page)["cifar10", "Kaiming uniform"][1]

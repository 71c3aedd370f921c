"""What stands first on the report: each number computed once more, from the records' JSON and by hand."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from statistics import mean, stdev

import pandas as pd
import pytest
from report_page import REFERENCE, Page, write_report
from synthetic_records import done, failed, skipped, write

from analysis.frame import load
from analysis.tables.registry import build
from benchmark.records.store import Layout, Store
from tests.records import holm

T = {2: 12.706205, 3: 4.302653, 12: 2.200985}
"""The 97.5 % point of Student's t for so many values, from a printed table."""


def gains(study: str) -> dict[tuple[str, str], list[float]]:
    """Differences to the row of the same base and model without a method, by dataset and row: from the files alone."""
    top1: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    of, plain = {}, {}
    for file in (REFERENCE / study).glob("*.json"):
        record = json.loads(file.read_text())
        if record.get("status") != "done":
            continue
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


def shown(page: Page) -> dict[tuple[str, str], tuple[dict[str, str], str]]:
    """Rows of the forest plots before the first study, by dataset and row: attributes and text."""
    found, dataset, texts = {}, "", zip(page.elements, page.texts, strict=True)
    for (tag, attrs), text in texts:
        if attrs.get("id") == "studies":
            break
        dataset = attrs["data-dataset"] if tag == "div" and "data-dataset" in attrs else dataset
        if tag == "tr" and "data-row" in attrs:
            found[dataset, attrs["data-row"]] = attrs, " ".join(text.split())
    return found


@pytest.mark.parametrize("study", ["small", "table2-small"])
def test_gains_intervals_and_n_are_those_of_the_files(tmp_path, study):
    text = write_report(tmp_path / "report.html", "--results", REFERENCE, "--study", study)
    page, expected = Page(text), gains(study)
    rows = shown(page)
    assert rows.keys() == expected.keys()
    assert len(rows) >= 5
    counted = defaultdict(int)
    for key, differences in expected.items():
        n, middle = len(differences), mean(differences)
        half = T[n] * stdev(differences) / math.sqrt(n)
        attrs, words = rows[key]
        sign = "+" if middle > 0 else ""
        assert f"{sign}{written(middle)} [{written(middle - half)}, {written(middle + half)}]" in words, key
        which = "ahead" if middle - half > 0 else "behind" if middle + half < 0 else "open"
        assert attrs["class"] == which, key
        counted[which] += 1
    captions = {caption for _, caption in page.find("caption")}
    for dataset in {dataset for dataset, _ in expected}:
        (n,) = {len(differences) for (its, _), differences in expected.items() if its == dataset}
        assert f"{dataset} n = {n}" in captions


def test_where_a_grid_names_comparisons_they_are_the_answer(tmp_path):
    text = write_report(tmp_path / "report.html", "--results", REFERENCE, "--study", "standard-mechanism")
    page = Page(text[: text.index('id="studies"')])
    assert page.find("h1")[0][1] == "Which initialisation gains accuracy over what the grid compares it with?"
    named = json.loads((REFERENCE / "standard-mechanism/LAYOUT").read_text())["contrasts"]
    top1: dict[str, dict[int, float]] = defaultdict(dict)
    for file in (REFERENCE / "standard-mechanism").glob("*.json"):
        record = json.loads(file.read_text())
        top1[record["row"]][record["spec"]["seed"]] = record["history"][-1]["test_top1"]
    lines = [" ".join(words.split()) for attrs, words in page.find("tr") if "data-row" in attrs]
    assert len(lines) == len(named) == 5
    found = {}
    for (ours, theirs), line in zip(named, lines, strict=True):
        differences = [value - top1[theirs][seed] for seed, value in top1[ours].items()]
        middle, half = mean(differences), T[12] * stdev(differences) / math.sqrt(12)
        sign = "+" if middle > 0 else ""
        assert line.startswith(f"{ours} − {theirs}")
        assert f"{sign}{written(middle)} [{written(middle - half)}, {written(middle + half)}]" in line
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


def test_points_and_bars_lie_where_their_numbers_are(tmp_path):
    text = write_report(tmp_path / "report.html", "--results", REFERENCE, "--study", "small")
    first = text[: text.index('id="studies"')]
    axis = re.findall(r'<text x="([\d.]+)%" y="1em">([−\d.]+)</text>', first)
    places = {float(label.replace("−", "-")): float(place) for place, label in axis}
    assert len(places) >= 3
    (a, b) = sorted(places)[:2]
    scale = (places[b] - places[a]) / (b - a)
    for place, value in ((places[v], v) for v in places):
        assert place == pytest.approx(places[a] + scale * (value - a), abs=0.02)
    drawn = re.findall(
        r'<line class="interval" x1="([\d.]+)%" x2="([\d.]+)%"[^>]*/><circle cx="([\d.]+)%"'
        r".*?<td>([^ ]+) <small>\[(.*?), (.*?)\]",
        first,
        re.DOTALL,
    )
    assert len(drawn) == len(gains("small"))
    for low, high, middle, *numbers in drawn:
        values = [float(number.replace("−", "-")) for number in numbers]
        expected = [places[a] + scale * (value - a) for value in values]
        assert [float(middle), float(low), float(high)] == pytest.approx(expected, abs=0.05)


def test_what_was_not_run_is_said_with_its_reason(tmp_path):
    for seed in range(3):
        write(tmp_path, done("Kaiming uniform", (40.0 + seed,), seed=seed), done("Mimetic", (45.0 + seed,), seed=seed))
    write(tmp_path, done("Kaiming uniform", (30.0,), dataset="digits"))
    write(tmp_path, failed("Imp.-3", "out of memory"), skipped("Imp.-5", "cifar10 is not here"))
    page = Page(write_report(tmp_path / "report.html", "--results", tmp_path))
    ((_, facts),) = page.find("dl", **{"class": "facts"})
    assert "1 run skipped: cifar10 is not here" in facts
    assert "1 run failed: RuntimeError: out of memory" in facts
    assert "without a record" in facts
    assert "Mimetic on digits" in facts
    assert "7 finished" in facts


def test_a_row_of_the_grid_without_any_record_is_named(tmp_path):
    for seed in range(3):
        write(tmp_path, done("Kaiming uniform", (40.0 + seed,), seed=seed), done("Mimetic", (45.0 + seed,), seed=seed))
    Store(tmp_path).write_layout("small", Layout(rows=["Kaiming uniform", "Mimetic", "Imp.-3"]))
    page = Page(write_report(tmp_path / "report.html", "--results", tmp_path))
    ((_, facts),) = page.find("dl", **{"class": "facts"})
    assert "No record of row Imp.-3" in facts
    assert "Nothing:" not in facts
    assert "No finished run: Imp.-3." in build(load([tmp_path], "small")).notes


def test_one_seed_has_no_interval_and_a_study_without_a_base_no_plot(tmp_path):
    write(tmp_path, done("Kaiming uniform", (40.0,)), done("Mimetic", (45.5,)), done("Mimetic", (9.0,), study="other"))
    page = Page(write_report(tmp_path / "report.html", "--results", tmp_path, "--lead", "small"))
    ((attrs, words),) = shown(page).values()
    assert "+5.50 no interval" in words
    assert attrs["class"] == "open"
    assert len(page.find("table", **{"class": "forest"})) == 1
    page = Page(write_report(tmp_path / "other.html", "--results", tmp_path, "--study", "other"))
    assert page.find("h1")[0][1] == "Which initialisation is most accurate?"
    assert not page.find("table", **{"class": "forest"})
    page = Page(write_report(tmp_path / "to.html", "--results", tmp_path, "--baseline", "Mimetic", "--lead", "small"))
    assert page.find("h1")[0][1] == "Which initialisation gains accuracy over Mimetic?"
    assert "−5.50" in shown(page)["cifar10", "Kaiming uniform"][1]

"""Pages of studies and the board: numbers of the records, claims that they bear, pictures, templates, order."""

import re
import shutil
import statistics

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from synthetic_records import laid_out, several

from tests.records import REFERENCE
from vitinit.analysis.board import SETTINGS
from vitinit.analysis.comparison import unnamed
from vitinit.analysis.frame import load
from vitinit.analysis.pages.__main__ import main
from vitinit.analysis.pages.facts import Facts, spread
from vitinit.analysis.pages.render import page
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.store import Layout, Store
from vitinit.initializers.errors import VitinitError


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A results folder with one committed study, whose templates are filled in."""
    monkeypatch.setattr("vitinit.analysis.pages.render.OURS", tmp_path)
    shutil.copytree(REFERENCE / "segmentation-small", tmp_path / "segmentation-small")
    return tmp_path


def test_page_and_picture_are_stale_once_a_record_says_otherwise(copy, capsys):
    folder, arguments = copy / "segmentation-small", f"--results {copy} --study segmentation-small".split()
    picture = '{% block results %}{{ figure("accuracy.png", "Accuracy") }}{% endblock %}'
    (folder / "page.md.j2").write_text(f'{{% extends "study.md.j2" %}}\n{picture}\n')
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    next(folder.glob("*.json")).unlink()
    assert main([*arguments, "--check"]) == 2
    error = capsys.readouterr().err
    assert str(folder / "README.md") in error
    assert str(folder / "figures/accuracy.png") in error
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ('{{ gain("Mimetic", "Kaiming uniform").above }}', "is above; the records give −0.16 [−0.49, 0.17]"),
        ('{{ gain("Trunc normal", "Kaiming uniform").undetected }}', "is undetected; the records give −1.11"),
        ('{{ gain("Mimetic", "Mimetic, placebo").every }}', "at every seed"),
        ('{{ score("Mimetik") }}', "Mimetic"),
        ('{{ figure("accuracies.png", "") }}', "unknown figure 'accuracies'"),
    ],
)
def test_a_template_that_claims_or_asks_for_too_much_is_refused(copy, sentence, fault, capsys):
    folder = copy / "segmentation-small"
    before = (folder / "README.md").read_text()
    (folder / "page.md.j2").write_text(f'{{% extends "study.md.j2" %}}\n{{% block answer %}}{sentence}{{% endblock %}}')
    assert main(["--results", str(copy)]) == 2
    error = capsys.readouterr().err
    assert fault in error
    assert error.count("\n") == 1
    assert (folder / "README.md").read_text() == before


def test_at_every_seed_is_not_said_of_a_tie():
    assert unnamed("a − b", pd.Series([1.0, 2.0, 3.0])).every == "at every seed"
    with pytest.raises(VitinitError, match="of one sign at every seed"):
        _ = unnamed("a − b", pd.Series([1.0, 2.0, 3.0, 0.0])).every


def test_a_spread_is_of_two_seeds_or_more():
    scores = [40.0, 41.0, 45.0]
    assert [spread(scores), spread(scores[:1])] == [f"42.00 ± {statistics.stdev(scores):.2f}", "40.00"]


def test_of_several_columns_one_is_named(tmp_path):
    for dataset in ("cifar10", "cifar100"):
        several(tmp_path, {"Kaiming uniform": [40.0, 41.0, 42.0], "Mimetic": [45.0, 46.1, 46.9]}, dataset=dataset)
    laid_out(tmp_path, contrasts=[("Mimetic", "Kaiming uniform")])
    facts = Facts(load([tmp_path]))
    for asked in (facts.gain, lambda *_: facts.contrast("Mimetic − Kaiming uniform")):
        with pytest.raises(VitinitError, match="name one of its columns: .*10, .*100"):
            asked("Mimetic", "Kaiming uniform")


def test_a_text_of_a_record_is_no_markup_on_a_page_and_one_seed_has_no_interval(tmp_path):
    first, second = "<script src=//e/a.js>[x](javascript:y)", r"\\<img src=x onerror=y>![p](https://e/t.png)"
    several(tmp_path, {"Kaiming uniform": [40.0]}, label=first)
    several(tmp_path, {"Mimetic": [40.0]}, label=second)
    laid_out(tmp_path, title=first, contrasts=[(second, first)], planned=9)
    text = page(load([tmp_path]))
    assert not re.search("<(script|img|a )|nan", MarkdownIt().enable("table").render(text))
    assert ": 0.00, no interval, n = 1." in text
    assert "Not whole: 2 of the grid's 9 runs have ended." in text


# --- the board ---


PLAIN = {"Kaiming uniform": [40.0, 41.0, 42.0]}


def comparison(gain):
    return looks.Comparison(gain=gain, low=gain - 1, high=gain + 1, p=0.01, says="gain")


def test_a_list_has_one_setting_and_is_ranked_by_the_lower_end(tmp_path, capsys):
    tops = {"Mimetic": [45.0, 46.1, 46.9], "Imp.-3": [49.0, 41.0, 50.0], "Placebo of Mimetic": [43.0, 44.1, 45.0]}
    several(tmp_path, {**PLAIN, **tops}, study="standard")
    several(tmp_path, {"Trunc normal": [40.0, 40.5, 41.5]}, study="standard", label="DeiT")
    several(tmp_path, {"ConViT": [60.0, 61.0, 62.0]}, study="standard")
    several(tmp_path, {**PLAIN, "Mimetic": [45.0, 46.1, 46.9]}, study="rank-mine", label="Mine")
    contrasts = [("Mine", "Mine's base"), ("Mine", "Mine, placebo")]
    Store(tmp_path).write_layout("rank-mine", Layout(contrasts=contrasts))
    look = looks.Look(n=8, base=comparison(3.2), placebo=comparison(0.5))
    looks.write(tmp_path / "rank-mine", looks.Looks(tier="standard", worth=1, seeds=list(range(12)), taken=[look]))
    results = ["--results", str(tmp_path)]
    assert main(results) == 0
    lines = (tmp_path / "board.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    assert [row[:6] for row in cells] == [
        ["rank", "entry", "over", "gain [95 %]", "over its placebo", "n"],
        ["1", "Mimetic", "Kaiming uniform", "+5.00 [4.75, 5.25]", "+1.97 [1.82, 2.11]", "3"],
        ["2", "Mine", "Mine's base", "+3.20 [2.20, 4.20]", "+0.50 [−0.50, 1.50]", "8"],
        ["3", "Imp.-3", "Kaiming uniform", cells[3][3], "", "3"],
        ["entry", "over", "difference [95 %]", "n", "setting", "records"],
        ["ConViT", "DeiT", "+20.33 [19.62, 21.05]", "3", SETTINGS["standard"][0], "[standard](standard/README.md)"],
    ], "a row of another architecture is no gain of an initialisation"
    assert main([*results, "--check"]) == 0
    (tmp_path / "board.md").write_text((tmp_path / "board.md").read_text().replace("+5.00", "+5.01"))
    assert main([*results, "--check"]) == 2
    assert "board.md" in capsys.readouterr().err

"""Every number in what the texts say of the records is what the records give (see `findings.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import findings
import findings_in_short
import findings_of_catalogue
import findings_of_ends
import findings_of_masks
import findings_of_placebos
import findings_of_tuning
import pytest
from records import ROOT

from initializers.methods.impulse import Impulse

NAMES = r"`[^`]*`|\]\([^)]*\)|arXiv \d{4}\.\d{5}|CIFAR-100?|Imp\.-[35]|Table \d|Proposition \d|top-1|\d × \d"
"""Digits that state nothing: code, links, papers, data sets, rows, shapes of kernels."""

PARTS: dict[tuple[str, str], Callable[[], Iterator[str]]] = {
    ("README.md", "## What comes out"): findings_in_short.what_comes_out,
    ("README.md", "## What we found"): findings_in_short.what_we_found,
    ("initializers/README.md", "## The solvers of `impulse`"): findings_in_short.the_solvers,
    ("results/README.md", "# What the committed studies show"): findings.introduction,
    ("results/README.md", "## Who is ahead at the end of training?"): findings_of_ends.who_is_ahead_at_the_end,
    ("results/README.md", "## The main job"): findings_in_short.the_main_job,
    ("results/README.md", "## Each method over both bases"): findings.over_both_bases,
    ("results/README.md", "## Which parts of impulse matter?"): findings.what_of_impulse_counts,
    ("results/README.md", "## Is it the pattern?"): findings_of_placebos.is_it_the_pattern,
    ("results/README.md", "## Which learning rate?"): findings_of_tuning.which_learning_rate,
    (
        "results/README.md",
        "## Which initialisations of the catalogue help?",
    ): findings_of_catalogue.what_of_the_catalogue_helps,
    ("results/README.md", "## Which input should impulse be solved on?"): findings.on_what_impulse_is_solved,
    ("results/README.md", "## Must spatial filters be trained?"): findings.must_filters_be_trained,
    ("results/README.md", "## Which parts of ConViT matter?"): findings.what_of_convit_counts,
    ("results/README.md", "## Which initialisation needs the fewest images?"): findings.which_needs_fewest_images,
    ("results/README.md", "## Does it help where every token answers?"): findings_of_masks.where_every_token_answers,
    (
        "results/README.md",
        "## Does favouring neighbours cost global context?",
    ): findings.does_locality_cost_global_context,
}
"""File and heading of each part, up to the next heading."""


def plain(text: str) -> str:
    """Prose alone, on one line: no tables, figures, code blocks or bold."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return " ".join(re.sub(r"^\|.*|^!\[.*", "", text, flags=re.MULTILINE).replace("**", "").split())


def part(file: str, heading: str) -> str:
    _, found, after = (ROOT / file).read_text(encoding="utf-8").partition(f"{heading}\n")
    assert found, f"{file} has no {heading}"
    return plain(re.split(r"^#", after, maxsplit=1, flags=re.MULTILINE)[0])


def unheld(text: str, pieces: Iterable[str]) -> tuple[list[str], list[str]]:
    """The pieces that a text does not have, and its sentences with a number that is in none of them."""
    missing = []
    for piece in pieces:
        missing += [piece] * (piece not in text)
        text = text.replace(piece, "…")
    sentences = re.split(r"(?<=[.:]) ", re.sub(NAMES, "", text))
    return missing, [sentence for sentence in sentences if re.search(r"\d", sentence)]


@pytest.mark.parametrize("where", PARTS, ids=" ".join)
def test_every_number_is_that_of_the_records(where: tuple[str, str]) -> None:
    missing, left = unheld(part(*where), PARTS[where]())
    assert not missing, f"{where}: the records give these, the text does not have them"
    assert not left, f"{where}: numbers that no piece in findings.py holds to the records"


def test_another_number_and_a_new_sentence_are_found() -> None:
    text = "It gains 2.5 points over `row 1`. It loses nothing."
    assert unheld(text, ["gains 2.5 points"]) == ([], [])
    assert unheld(text, ["gains 2.4 points"]) == (["gains 2.4 points"], ["It gains 2.5 points over ."])
    assert unheld(f"{text} On CIFAR-10 it is 3 % faster.", ["gains 2.5 points"]) == ([], ["On  it is 3 % faster."])


def test_the_table_of_learning_rates_is_that_of_the_records() -> None:
    text = (ROOT / "results/README.md").read_text(encoding="utf-8")
    assert [row for row in findings_of_tuning.table() if row not in text] == []


def test_the_table_of_the_catalogue_is_that_of_the_records_and_in_their_order() -> None:
    text = (ROOT / "results/README.md").read_text(encoding="utf-8")
    assert "\n".join(findings_of_catalogue.table()) in text


def test_the_tables_of_the_end_of_training_are_those_of_the_records() -> None:
    text = (ROOT / "results/README.md").read_text(encoding="utf-8")
    assert "\n".join(findings_of_ends.table()) in text
    assert "\n".join(findings_of_ends.contrasts()) in text


def test_the_table_of_placebos_is_that_of_the_records() -> None:
    text = (ROOT / "results/README.md").read_text(encoding="utf-8").replace("|  |", "| |")
    assert [row for row in findings_of_placebos.table() if row.replace("|  |", "| |") not in text] == []


def test_the_table_of_masks_is_that_of_the_records() -> None:
    text = (ROOT / "results/README.md").read_text(encoding="utf-8")
    assert [row for row in findings_of_masks.table() if row not in text] == []


def test_what_is_said_of_speed_was_measured() -> None:
    text = part("runners/README.md", "## Speed")
    assert not [piece for piece in findings_in_short.of_speed() if piece not in text]


def test_the_docstring_of_impulse_says_what_was_measured() -> None:
    text = " ".join(str(Impulse.__doc__).split())
    assert not [piece for piece in findings_in_short.of_impulse() if piece not in text]


def test_the_findings_have_no_other_parts() -> None:
    text = (ROOT / "results/README.md").read_text(encoding="utf-8")
    assert re.findall(r"^#+ .*", text, flags=re.MULTILINE) == [
        heading for file, heading in PARTS if file == "results/README.md"
    ]

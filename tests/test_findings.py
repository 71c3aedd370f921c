"""Every number in what the README says of the records is what the records give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tests.records import REFERENCE, ROOT, interval, shows, study, text
from vitinit.analysis.frame import load
from vitinit.analysis.tables.registry import build
from vitinit.analysis.tables.render import columns

README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = r"`[^`]*`|\]\([^)]*\)|arXiv \d{4}\.\d{5}|CIFAR-100?|Imp\.-[35]|Table \d|top-1|\d × \d"
"""Digits that state nothing: code, links, papers, data sets, rows, shapes of kernels."""
KAIMING, TRUNC = "Kaiming uniform", "Trunc normal"


def part(heading: str) -> str:
    """Prose below a heading, on one line: no tables, figures or bold."""
    below = re.split(r"^#", README.partition(f"{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return " ".join(re.sub(r"^\|.*|^!\[.*", "", below, flags=re.MULTILINE).replace("**", "").split())


def unheld(text: str, pieces: Iterable[str]) -> tuple[list[str], list[str]]:
    """The pieces that a text does not have, and its sentences with a number that is in none of them."""
    missing = []
    for piece in pieces:
        missing += [piece] * (piece not in text)
        text = text.replace(piece, "…")
    sentences = re.split(r"(?<=[.:]) ", re.sub(NAMES, "", text))
    return missing, [sentence for sentence in sentences if re.search(r"\d", sentence)]


def comes_out() -> Iterator[str]:
    small = study("small")
    yield f"over {len(small.seeds)} seeds"
    yield "a 95 % interval that contains 0"
    (millions,) = {text(record["parameters"] / 1e6) for record in small.runs["record"]}
    yield f"({millions} M parameters)"


def test_the_table_of_gains_is_that_of_the_records() -> None:
    lines = re.findall(r"^\| (.*?) \| \[\d{4}.*?\) \| (.*?) \| (.*?) \|$", README, flags=re.MULTILINE)
    tier, ends, lengths = study("catalogue-small"), study("standard"), study("length")
    over = {"Mimetic": KAIMING, "IDInit": KAIMING, "Impulse (Imp.-3)": KAIMING, "ConViT, over DeiT": "DeiT"}
    assert [name for name, *_ in lines] == list(over)
    eighty = {row: lengths.gain(f"{row}, 80 epochs", f"{KAIMING}, 80 epochs") for row in ("Mimetic", "IDInit")}
    assert (shows(eighty["Mimetic"]), shows(ends.gain("Imp.-3", KAIMING))) == (False, False)
    longer = [
        f"{interval(ends.gain('Mimetic', KAIMING))} after 40 epochs on 10,000 images; not detectable after 80 on 5,000",
        f"{interval(eighty['IDInit'])} after 80 epochs on 5,000 images",
        "not detectable after 40 epochs on 10,000 images",
        f"{interval(ends.gain('ConViT', 'DeiT'))} after 40 epochs on 10,000 images",
    ]
    for (name, five, later), its in zip(lines, longer, strict=True):
        row = {"Impulse (Imp.-3)": "Imp.-3"}.get(name, name.partition(",")[0])
        assert (five, later) == (interval(tier.gain(row, over[name])), its), name
    assert (ends.spec("recipe.epochs"), ends.spec("dataset.train_size"), lengths.spec("dataset.train_size")) == (
        40,
        10_000,
        5_000,
    )


def test_every_number_of_the_findings_is_that_of_the_records() -> None:
    missing, left = unheld(part("## What comes out"), comes_out())
    assert not missing, "the records give these, the text does not have them"
    assert not left, "no record gives these numbers"


def test_another_number_and_a_new_sentence_are_found() -> None:
    said = "It gains 2.5 points over `row 1`. It loses nothing."
    assert unheld(said, ["gains 2.5 points"]) == ([], [])
    assert unheld(said, ["gains 2.4 points"]) == (["gains 2.4 points"], ["It gains 2.5 points over ."])
    assert unheld(f"{said} On CIFAR-10 it is 3 % faster.", ["gains 2.5 points"]) == ([], ["On  it is 3 % faster."])


def test_the_table_is_that_of_analysis_and_of_the_records() -> None:
    lines = re.findall(r"^\|.* ± .*", README.partition("## What comes out\n")[2], flags=re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    table = build(load([REFERENCE], "small"))
    digits, cifar = columns(table)[:2]
    for (label, *texts), row in zip(cells, table.rows, strict=True):
        assert label.startswith(row)
        for mean, column, data in zip(texts, (digits, cifar), ("digits", "cifar10"), strict=True):
            top1 = study("small").top1(row, data=data)
            ours = f"{text(top1.mean())} ± {text(top1.std())}"
            assert mean == (f"**{ours}**" if row in column.parts[0].bold else ours)
            assert column.parts[0].texts[row] == ours
    assert set(table.baselines.values()) == {KAIMING}

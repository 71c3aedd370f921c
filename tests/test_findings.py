"""Every number in what the README says of the records is what the records give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from scipy import stats

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


def found() -> Iterator[str]:
    ends, epochs = study("standard"), study("standard").spec("recipe.epochs")
    mimetic, pattern, base = (
        ends.gain(*pair) for pair in (("Mimetic", KAIMING), ("Mimetic", "Mimetic, placebo"), (KAIMING, TRUNC))
    )
    assert all(map(shows, (mimetic, pattern, base)))
    assert base.mean() > mimetic.mean()
    lengths = study("length")
    assert ends.spec("model.width") > lengths.spec("model.width")
    of = f"With {ends.spec('dataset.train_size'):,} images and a larger model"
    yield f"{of} it is {interval(mimetic)} after {epochs} epochs"
    yield from map(interval, (pattern, base))
    five, twenty, eighty = (
        lengths.gain(f"Mimetic, {epochs} epochs", f"{KAIMING}, {epochs} epochs") for epochs in (5, 20, 80)
    )
    assert [shows(five), shows(twenty), shows(eighty)] == [True, True, False]
    assert five.mean() > twenty.mean() > eighty.mean()
    yield f"with {lengths.spec('dataset.train_size'):,} images it is {interval(five)} after 5 epochs"
    yield f"{interval(twenty)} after 20 and {interval(eighty)} after 80 ({len(eighty)} seeds)"

    # equal weights, Welch's degrees of freedom; estimates of catalogue-small share seeds, so they come first
    start, tier = study("standard-mechanism"), study("catalogue-small")
    estimates = [
        ends.gain("Imp.-3", "Imp.-3, placebo"),
        start.gain("Impulse, norm 4", "Impulse, placebo (spectrum)"),
        *(tier.gain(row, f"{row}, placebo") for row in ("Impulse, norm 4", "Imp.-3")),
    ]
    shares = [estimates[0] / 4, estimates[1] / 4, (estimates[2] + estimates[3]) / 4]
    mean, errors = sum(share.mean() for share in shares), [stats.sem(share) ** 2 for share in shares]
    freedom = sum(errors) ** 2 / sum(e**2 / (len(share) - 1) for e, share in zip(errors, shares, strict=True))
    half = stats.t.ppf(0.975, freedom) * sum(errors) ** 0.5
    yield f"+{text(mean, 2)} [{text(mean - half, 2)}, {text(mean + half, 2)}]"
    yield "95 % intervals"
    yield f"At width {ends.spec('model.width')}"
    yield "fixed std of 0.02"


def test_every_number_of_the_findings_is_that_of_the_records() -> None:
    for heading, pieces in (("## What comes out", comes_out()), ("## What we found", found())):
        missing, left = unheld(part(heading), pieces)
        assert not missing, f"{heading}: the records give these, the text does not have them"
        assert not left, f"{heading}: no record gives these numbers"


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

"""The numbers of the README are those of the records."""

from __future__ import annotations

import re

from tests.records import REFERENCE, ROOT, interval, shows, study, text
from vitinit.analysis.frame import load
from vitinit.analysis.pages.facts import Facts
from vitinit.analysis.tables.registry import build

README = (ROOT / "README.md").read_text(encoding="utf-8")
KAIMING = "Kaiming uniform"


def test_the_table_of_gains_is_that_of_the_records() -> None:
    five, forty, lengths = study("catalogue-small"), study("standard"), study("length")
    eighty = {row: lengths.gain(f"{row}, 80 epochs", f"{KAIMING}, 80 epochs") for row in ("Mimetic", "IDInit")}
    planned = Facts(load([REFERENCE], "length")).planned("IDInit, 160 epochs", f"{KAIMING}, 160 epochs")
    muon = study("muon").gain("Mimetic, Muon", f"{KAIMING}, Muon")
    assert not shows(eighty["Mimetic"])
    assert not shows(forty.gain("Imp.-3", KAIMING))
    sizes = [each.spec("dataset.train_size") for each in (five, forty, lengths)]
    assert (five.spec("recipe.epochs"), forty.spec("recipe.epochs"), sizes) == (5, 40, [5_000, 10_000, 5_000])
    after = "after 40 epochs on 10,000 images"
    assert re.findall(r"^\| (.*?) \| \[\d{4}.*?\) \| (.*?) \| (.*?) \|$", README, flags=re.MULTILINE) == [
        (name, interval(five.gain(row, base)), later)
        for name, row, base, later in (
            (
                *("Mimetic", "Mimetic", KAIMING),
                f"{interval(forty.gain('Mimetic', KAIMING))} {after}; not detectable after 80 on 5,000; "
                f"[with Muon](results/reference/muon/README.md) it loses {interval(-muon)}",
            ),
            (
                *("IDInit", "IDInit", KAIMING),
                f"{interval(eighty['IDInit'])} after 80 epochs on 5,000 images; "
                f"{planned.mean:.1f} [{planned.interval.low:.1f}, {planned.interval.high:.1f}] after 160",
            ),
            ("Impulse (Imp.-3)", "Imp.-3", KAIMING, f"not detectable {after}"),
            ("ConViT, over DeiT", "ConViT", "DeiT", f"{interval(forty.gain('ConViT', 'DeiT'))} {after}"),
        )
    ]


def test_the_table_of_what_comes_out_is_that_of_analysis_and_of_the_records() -> None:
    out = README.partition("## What comes out\n")[2]
    lines = re.findall(r"^\|.* ± .*", out, flags=re.MULTILINE)
    small, table = study("small"), build(load([REFERENCE], "small"))
    for line, row in zip(lines, table.texts.index, strict=True):
        label, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        assert label.startswith(row)
        for cell, head, data in zip(cells, table.heads, ("digits", "cifar10"), strict=False):
            top1 = small.top1(row, data=data)
            ours = f"{text(top1.mean())} ± {text(top1.std())}"
            assert cell == (f"**{ours}**" if (row, head) in table.bold else ours)
            assert table.texts.loc[row, head] == ours
    assert set(table.numbers["baseline"].dropna()) == {KAIMING}
    assert f"over {len(small.seeds)} seeds" in " ".join(out.split())
    assert {text(record["parameters"] / 1e6) for record in small.runs["record"]} == {"0.1"}
    assert "(0.1 M parameters)" in out

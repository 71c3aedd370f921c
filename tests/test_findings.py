"""The numbers of the README are those of the records."""

import re

from tests.records import REFERENCE, ROOT, interval, shows, study, text
from vitinit.analysis.frame import load
from vitinit.analysis.pages.facts import Facts
from vitinit.analysis.tables.registry import build

README = (ROOT / "README.md").read_text(encoding="utf-8")
KAIMING = "Kaiming uniform"


def test_the_table_of_gains_is_that_of_the_records():
    five, forty, lengths = study("catalogue-small"), study("standard"), study("length")
    whole = {row: study("whole-cifar").gain(row, KAIMING) for row in ("Mimetic", "IDInit")}
    eighty = {row: lengths.gain(f"{row}, 80 epochs", f"{KAIMING}, 80 epochs") for row in ("Mimetic", "IDInit")}
    planned = Facts(load([REFERENCE], "length")).gain("IDInit, 160 epochs", f"{KAIMING}, 160 epochs")
    start = Facts(load([REFERENCE], "convit-anatomy")).gain("ConViT", "GPSA, no convolutional start")
    muon = study("muon").gain("Mimetic, Muon", f"{KAIMING}, Muon")
    nulls = [eighty["Mimetic"], lengths.gain("Mimetic, 160 epochs", f"{KAIMING}, 160 epochs")]
    nulls += [
        whole["Mimetic"],
        forty.gain("Imp.-3", KAIMING),
        study("muon").gain("Mimetic, AdamW", f"{KAIMING}, AdamW"),
    ]
    assert not any(shows(null) for null in [*nulls, five.gain("ConViT", "ConViT, placebo")])
    assert (planned.verdict, start.verdict) == ("unconfirmed", "above")
    sizes = [each.spec("dataset.train_size") for each in (five, forty, lengths)]
    assert (five.spec("recipe.epochs"), forty.spec("recipe.epochs"), sizes) == (5, 40, [5_000, 10_000, 5_000])
    after = "after 40 epochs on 10,000 images"
    epochs = "[16 on all of CIFAR-10](results/reference/whole-cifar/README.md)"
    gains = {row: interval(five.gain(row, KAIMING)) for row in ("Mimetic", "IDInit", "Imp.-3", "Imp.-3, placebo")}
    assert re.findall(r"^\| (.*?) \| \[\d{4}.*?\) \| (.*?) \| (.*?) \|$", README, flags=re.MULTILINE) == [
        (
            "Mimetic",
            f"{gains['Mimetic']}; over its placebo {interval(five.gain('Mimetic', 'Mimetic, placebo'))}",
            f"{interval(forty.gain('Mimetic', KAIMING))} {after} (likely overstated); not detectable after "
            "[20 on 10,000](results/reference/muon/README.md) with a smaller model, after 80 and 160 on 5,000, nor "
            f"after {epochs} ({interval(whole['Mimetic'])}); "
            f"with Muon, at the rate tuned for Muon, {interval(-muon)} worse",
        ),
        (
            "IDInit",
            f"{gains['IDInit']}; a base, which has no placebo",
            f"{interval(eighty['IDInit'])} after 80 epochs on 5,000 images; {planned.mean:.1f} "
            f"[{planned.low:.1f}, {planned.high:.1f}] after 160 fails its test ({planned.p_text}); "
            f"{interval(-whole['IDInit'])} worse after {epochs}",
        ),
        ("Impulse (Imp.-3)", f"{gains['Imp.-3']}; its placebo {gains['Imp.-3, placebo']}", f"not detectable {after}"),
        (
            "ConViT's start",
            "not detectable over its placebo",
            f"[{start.mean:.1f} [{start.low:.1f}, {start.high:.1f}]](results/reference/convit-anatomy/README.md) "
            f"{after}",
        ),
    ]


def test_the_table_of_what_comes_out_is_that_of_analysis_and_of_the_records():
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
    assert set(table.frame["baseline"].dropna()) == {KAIMING}
    assert f"over {len(small.seeds)} seeds" in " ".join(out.split())
    assert {text(record["parameters"] / 1e6) for record in small.runs["record"]} == {"0.1"}
    assert "(0.1 M parameters)" in out

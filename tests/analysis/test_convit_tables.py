"""The tables that stand beside ConViT's Tables 2 and 3: accuracy by number of images, and by what is switched on."""

from __future__ import annotations

import csv
import io
import statistics

import pytest
from convit_records import masked, run
from synthetic_records import everything, finished, respecified, several, write
from table_texts import entry, stands_beside_a_published_table

from vitinit.analysis.frame import load
from vitinit.analysis.tables.gap import subsets
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import to_csv, to_html
from vitinit.benchmark.spec import InitializerSpec


def gap_of(table, row: str, place: str) -> list[str]:
    return entry(table, place, f"{row}: gap (%)").ours


@pytest.mark.long
def test_a_gap_is_relative_by_seed_and_stands_beside_the_published_one(tmp_path):
    for row, train_size, values in (
        ("DeiT", 64_058, [20.0, 30.0, 50.0]),
        ("ConViT", 64_058, [25.0, 45.0]),
        ("DeiT", 128_116, [40.0]),
        ("ConViT", 128_116, [30.0]),
        ("DeiT", None, [80.0]),
    ):
        for seed, top1 in enumerate(values):
            write(tmp_path, run("convit-efficiency", row, top1, train_size=train_size, seed=seed))
    study = load([tmp_path])
    assert names(study) == ["convit-efficiency", "convit-efficiency_gap"]
    table = build(study, "convit-efficiency_gap")
    assert table.columns == ["DeiT", "ConViT", "ConViT: gap (%)"]
    five, ten, whole = "imagenet[64058]: 5%", "imagenet[128116]: 10%", "imagenet: 100%"
    assert table.rows == [five, ten, whole]
    assert entry(table, five, "DeiT").paper == ["34.80"]
    assert entry(table, five, "ConViT").paper == ["47.80"]
    # 25/20 and 45/30; the third seed has no partner
    assert gap_of(table, "ConViT", five) == [f"+37.50 ± {statistics.stdev([25.0, 50.0]):.2f} (n=2)"]
    assert entry(table, five, "ConViT: gap (%)").paper == [f"+{100 * (47.8 - 34.8) / 34.8:.2f}"]
    assert gap_of(table, "ConViT", ten)[0] == "−25.00"
    assert entry(table, whole, "ConViT").ours == ["–"]
    (context,) = (note for note in table.notes if note.startswith("Context"))
    left = "DeiT-S: 30% 66.10, 50% 74.60; ConViT-S: 30% 73.70, 50% 78.20, 100% 81.40"
    assert f"has {left} (results/published/2103.10697.json)." in context, "what is not run yet"
    (line,) = (x for x in csv.DictReader(io.StringIO(to_csv(table))) if (x["row"], x["column"]) == (five, "DeiT"))
    assert (line["n"], float(line["published"])) == ("3", 34.8)
    assert "imagenet[64058]" in to_html(table)


def test_another_baseline_and_a_baseline_at_nought(tmp_path):
    for train_size, top1 in {500: 0.0, 1000: 10.0, 2500: 20.0}.items():
        for row, value in (("DeiT", top1), ("Mimetic", 15.0)):
            write(tmp_path, run("convit-efficiency-small", row, value, dataset="cifar10", train_size=train_size))
    study = load([tmp_path])
    table = build(study, "convit-efficiency-small_gap")
    shown = [gap_of(table, "Mimetic", f"cifar10[{size}]")[0] for size in (500, 1000, 2500)]
    assert shown == ["–", "+50.00", "−25.00"]
    turned = build(study, "convit-efficiency-small_gap", baseline="Mimetic")
    assert gap_of(turned, "DeiT", "cifar10[2500]")[0] == "+33.33"


def test_each_method_has_its_gap_to_its_own_base(tmp_path):
    for size in (500, 1000, 2500):
        several(tmp_path, {"Kaiming uniform": [20.0], "Trunc normal": [10.0], "Mimetic": [30.0]}, train_size=size)
    table = build(load([tmp_path]), "small_gap")
    assert table.columns == ["Kaiming uniform", "Trunc normal", "Mimetic", "Mimetic: gap (%)"]
    assert gap_of(table, "Mimetic", "cifar10[500]")[0] == "+50.00"
    turned = build(load([tmp_path]), "small_gap", baseline="Trunc normal")
    assert gap_of(turned, "Mimetic", "cifar10[500]")[0] == "+200.00"
    assert gap_of(turned, "Kaiming uniform", "cifar10[500]")[0] == "+100.00"


def test_two_sizes_are_no_curve_and_nothing_switched_off_has_no_table(tmp_path):
    study = load([everything(tmp_path)])
    assert subsets(study) == []
    assert names(study) == ["small"]


def test_switches_are_those_of_the_model_and_a_placebo_of_the_start_has_none(tmp_path):
    """A ConViT without a method has gated attention; only the placebo of its own start is neither on nor off."""
    study = "convit-ablation-small"
    convit, deit = (run(study, row, 40.0, dataset="cifar10").spec for row in ("c no conv init", "e DeiT"))
    write(tmp_path, run(study, "c no conv init", 40.0, dataset="cifar10"))
    for row, spec, of in (("base", convit, None), ("rotated", convit, "convit_gpsa"), ("other", deit, "mimetic")):
        method = InitializerSpec(name="placebo", params={"of": {"name": of}, "keep": "spectrum"}) if of else None
        write(tmp_path, finished(spec.model_copy(update={"method": method}), (40.0,), study=study, row=row))
    table = build(load([tmp_path]), f"{study}_switches")
    marks = {row: "".join(entry(table, row, column).ours[0] for column in table.columns[:4]) for row in table.rows}
    assert marks == {"c no conv init": "✓✗✓✓", "base": "✓✗✓✓", "other": "✗✗✗✗"}
    assert any("Placebos are left out." in note for note in table.notes)


def test_what_is_left_without_a_term_by_share_of_the_layers(tmp_path):
    for seed, (content, position) in enumerate([(10.0, 30.0), (14.0, 34.0)]):
        small = run("convit-ablation-small", "a ConViT", 40.0 + seed, dataset="cifar10", seed=seed)
        write(tmp_path, masked(small, content_1=content, position_1=position, content_2=1.0, position_2=2.0))
    write(tmp_path, run("convit-ablation-small", "e DeiT", 40.0, dataset="cifar10"))
    study = load([tmp_path])
    assert names(study)[-1] == "convit-ablation-small_masked"
    table = build(study, "convit-ablation-small_masked")
    (ours,) = table.rows
    assert ours == "a ConViT"
    shares = [f"no {term}, {share}%" for share in (50, 100) for term in ("content", "position")]
    assert table.columns == ["whole", *shares]
    assert entry(table, ours, "whole").ours == [f"40.50 ± {statistics.stdev([40, 41]):.2f}"]
    assert entry(table, ours, "no content, 50%").ours == [f"12.00 ± {statistics.stdev([10, 14]):.2f}"]
    assert entry(table, ours, "no position, 50%").ours[0].startswith("32.00")
    assert not stands_beside_a_published_table(table)
    assert any("Context, beside no run of ours: Table 6 of d'Ascoli et al." in note for note in table.notes)


def test_the_papers_own_model_has_its_numbers_in_its_row(tmp_path):
    tiny = respecified(run("convit-models", "ConViT", 70.0), model={"width": 192, "heads": 4})
    write(tmp_path, masked(tiny, content_10=5.0, position_10=50.0))
    table = build(load([tmp_path]), "convit-models_masked")
    assert table.rows == ["ConViT"]
    published = [entry(table, "ConViT", column).paper[0] for column in table.columns]
    assert published == ["73.10", "62.30", "63.50", "35.00", "53.10", "1.30", "46.80"]
    assert entry(table, "ConViT", "no content, 30%").ours == ["–"]
    part = masked(finished(tiny.spec, (70.0,), study="part", row="ConViT", images=(600_000, 49_000)), content_10=5.0)
    in_part = build(load([write(tmp_path / "part", part)]), "part_masked")
    assert not any(cell.published for cell in in_part.cells.values())
    (context,) = (note for note in in_part.notes if note.startswith("Context"))
    assert context.endswith(" has whole: none 73.10 (results/published/2103.10697.json)."), "plain accuracy alone"
    assert any("training and test images read: 600,000 and 49,000 of imagenet" in note for note in in_part.notes)

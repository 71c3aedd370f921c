"""The published numbers and where they go."""

from __future__ import annotations

import json

import pytest
from synthetic_records import ROWS, spec

from analysis import published
from analysis.published import ABLATIONS, FOLDER, lookup, publication
from benchmark.dataset_files import IMAGES
from initializers import registry
from initializers.errors import VitinitError

DATASETS = ("cifar10", "cifar100", "svhn", "imagenet")
# The paper prints the differences beside its numbers: they were copied apart from the values.
PRINTED_DIFFERENCES = {
    "Kaiming uniform": (-2.27, -3.00, 1.31, 0.69),
    "Mimetic": (2.53, 3.90, 4.33, 0.92),
    "Imp.-3": (2.99, 2.31, 4.01, 0.82),
    "Imp.-5": (2.04, 3.96, 4.03, 0.98),
}


@pytest.mark.parametrize(
    ("row", "dataset", "value"),
    [
        ("Kaiming uniform", "svhn", 94.51),
        ("Trunc normal", "imagenet", 73.42),
        ("Mimetic", "cifar100", 70.40),
        ("Imp.-3", "cifar10", 91.62),
        ("Imp.-5", "cifar100", 70.46),
    ],
)
def test_lookup(row, dataset, value):
    cell = lookup(spec(row, dataset))
    assert cell is not None
    assert (cell.value, cell.n, cell.spread, cell.provenance) == (value, 1, None, "A")


@pytest.mark.parametrize("row", PRINTED_DIFFERENCES)
def test_values_agree_with_the_differences_the_paper_prints(row):
    for dataset, printed in zip(DATASETS, PRINTED_DIFFERENCES[row], strict=True):
        cell, baseline = lookup(spec(row, dataset)), lookup(spec("Trunc normal", dataset))
        assert cell is not None
        assert baseline is not None
        assert round(cell.value - baseline.value, 2) == printed


def test_a_number_nobody_published_stays_empty(monkeypatch):
    assert lookup(spec("Mimetic", "digits")) is None
    assert lookup(spec("ConViT")) is None
    assert lookup(spec("ConViT").model_copy(update={"method": None})) is None, "the paper's row is a plain ViT"
    for params in ({"kernel_size": 7, "offsets": "random"}, {"kernel_size": 3, "offsets": "fixed"}, {}):
        monkeypatch.setitem(
            ROWS, "other", {"base": {"name": "kaiming_uniform"}, "method": {"name": "impulse", "params": params}}
        )
        assert lookup(spec("other")) is None
    monkeypatch.setitem(ROWS, "crossed", {"base": {"name": "trunc_normal"}, "method": {"name": "mimetic"}})
    assert lookup(spec("crossed")) is None


def test_an_ablation_of_a_method_has_no_published_number(monkeypatch):
    names = {name for method in registry.names() for name in registry.get(method).later}
    assert names == ABLATIONS
    params = {"kernel_size": 3, "offsets": "random"}
    for label, method, given, value in (
        ("whole", "impulse", params, 91.62),
        ("broken", "impulse", {**params, "control": "shuffled_rows"}, None),
        ("half", "mimetic", {"parts": "qk"}, None),
    ):
        monkeypatch.setitem(
            ROWS, label, {"base": {"name": "kaiming_uniform"}, "method": {"name": method, "params": given}}
        )
        assert getattr(lookup(spec(label, "cifar10")), "value", None) == value


def test_a_subset_column_has_the_full_data_number():
    assert lookup(spec("Mimetic", "cifar10", train_size=5000)) == lookup(spec("Mimetic", "cifar10"))


def test_every_file_is_valid_and_whole():
    assert {path.stem for path in FOLDER.glob("*.json")} >= {"2103.10697", "2404.01139", "2505.19985"}
    for path in FOLDER.glob("*.json"):
        assert publication(path.stem).cells
    cells = publication("2404.01139").cells
    assert [sum(cell.table == name for cell in cells) for name in publication("2404.01139").tables] == [20, 11, 3, 5]
    assert {cell.dataset for cell in cells} == set(DATASETS)
    figure = [cell for cell in publication("2505.19985").cells if cell.table == "Figure 6"]
    assert [cell.n for cell in figure] == [5] * 18


def other_spec(monkeypatch, *, params=None, base="kaiming_uniform", dataset="cifar10", **model):
    method = {"name": "impulse", "params": params} if params else None
    monkeypatch.setitem(ROWS, "other", {"base": {"name": base}, "method": method})
    found = spec("other", dataset)
    return found.model_copy(update={"model": found.model.model_copy(update=model)})


def test_larger_models_stand_beside_models_of_their_size(monkeypatch):
    """Two reviews give Imp.-3 and its difference to Trunc Normal: 75.97 (+9.16) and 75.40 (+8.15)."""
    impulse = {"kernel_size": 3, "offsets": "random"}
    for width, heads, value, printed in ((384, 6, 75.97, 9.16), (384, 16, 75.40, 8.15), (192, 3, 68.81, 2.31)):
        size = {"dataset": "cifar100", "width": width, "heads": heads}
        cell = lookup(other_spec(monkeypatch, params=impulse, **size), "larger_models")
        baseline = lookup(other_spec(monkeypatch, base="trunc_normal", **size), "larger_models")
        assert (cell.value, cell.provenance) == (value, "R")
        assert round(cell.value - baseline.value, 2) == printed
    unknown = {"dataset": "cifar100", "width": 192, "heads": 8}
    assert lookup(other_spec(monkeypatch, params=impulse, **unknown), "larger_models") is None


def test_pseudo_inputs(monkeypatch):
    impulse = {"kernel_size": 3, "offsets": "random", "per_layer": False}
    tiny = {"width": 192, "heads": 3}
    both_position = other_spec(monkeypatch, params=impulse, **tiny)
    assert lookup(both_position, "table6").value == 90.75
    assert lookup(both_position, "table6", average=True).value == 90.39
    assert lookup(both_position).value == 91.62, "the same method in the paper's main table"
    for more in ({"per_layer": True}, {"kernel_size": 5}, {"pseudo_input": "normal"}):
        assert lookup(other_spec(monkeypatch, params=impulse | more, **tiny), "table6") is None
    assert lookup(other_spec(monkeypatch, params=impulse, width=192, heads=8), "table6") is None
    normal = other_spec(monkeypatch, params=impulse | {"pseudo_input": "normal"}, **tiny)
    assert lookup(normal, "table6", average=True) is None, "which row 'G+PE' is, is not known"
    assert lookup(normal) is None, "an ablation is not the published method"


def test_conv_mixers_and_the_vit_beside_them(monkeypatch):
    cells = {cell.value: cell for cell in publication("2404.01139").cells if cell.table == "Table 4"}
    assert set(cells) == {92.82, 92.20, 91.76, 90.67, 87.27}
    assert cells[92.82].model == {"width": 512, "depth": 6, "kernel_size": 3}
    assert cells[92.20].params is None, "random or impulse, it is not known which"
    trained = other_spec(monkeypatch, arch="convmixer", width=512, depth=6, kernel_size=3)
    assert lookup(trained, "table4").value == 92.82
    assert lookup(trained) is None, "no ConvMixer is in Table 2"
    vit = {"width": 256, "depth": 8, "heads": 8}
    impulse = {"kernel_size": 3, "offsets": "random"}
    assert lookup(other_spec(monkeypatch, params=impulse, **vit), "table4").value == 90.67
    assert lookup(other_spec(monkeypatch, base="trunc_normal", **vit), "table4").value == 87.27
    assert not any(
        cell.matches(other_spec(monkeypatch, params=impulse, **vit)) for cell in cells.values() if not cell.params
    )


def convit_spec(monkeypatch, *, train_size=None, params=None, gpsa=True, width=432, heads=9):
    params = {"locality_strength": 1.0, **(params or {})}
    method = {"name": "convit_gpsa", "params": params} if gpsa else None
    monkeypatch.setitem(ROWS, "ConViT", {"base": {"name": "trunc_normal"}, "method": method})
    found = spec("ConViT", "imagenet", train_size=train_size)
    model = {"arch": "convit" if gpsa else "vit", "width": width, "heads": heads, "gpsa_layers": 10 if gpsa else None}
    return found.model_copy(update={"model": found.model.model_copy(update=model)})


# ConViT's Table 2 prints the relative gaps beside its numbers; f, top-1, top-5 (percent).
PRINTED_GAPS = {0.05: (37, 22), 0.1: (24, 12), 0.3: (12, 5), 0.5: (5, 2), 1.0: (2, 1)}


def test_sample_efficiency_stands_beside_runs_with_its_fraction_of_the_images(monkeypatch):
    for train_size, fraction, value in (
        (64_058, 0.05, 47.8),
        (63_600, 0.05, 47.8),  # 1,000 classes, rounded down in each
        (128_116, 0.1, 59.6),
        (None, 1.0, 81.4),
        (1_281_167, 1.0, 81.4),
    ):
        ours = lookup(convit_spec(monkeypatch, train_size=train_size), "convit-efficiency")
        theirs = lookup(
            convit_spec(monkeypatch, train_size=train_size, gpsa=False, width=384, heads=6), "convit-efficiency"
        )
        assert (ours.value, ours.n, ours.spread, ours.provenance) == (value, None, None, "P")
        gaps = 100 * (ours.value / theirs.value - 1), 100 * (ours.top5 / theirs.top5 - 1)
        assert gaps == pytest.approx(PRINTED_GAPS[fraction], abs=0.51)
    for train_size in (96_000, 62_000, 5_000):
        assert lookup(convit_spec(monkeypatch, train_size=train_size), "convit-efficiency") is None
    smaller = convit_spec(monkeypatch, train_size=64_058).model_copy(update={"dataset": spec("ConViT").dataset})
    assert lookup(smaller, "convit-efficiency") is None, "CIFAR-10"


def test_whole_training_splits_are_those_of_the_benchmark():
    for name, images in published.TRAINING_IMAGES.items():
        assert images == IMAGES[name][0]


def test_convits_switches_are_told_apart(monkeypatch):
    off = {"train_gating": False, "gate": 0.0}
    for params, full, tenth in (
        ({}, 82.2, 59.7),
        (off, 82.0, 57.4),
        ({"conv_init": False}, 81.4, 56.9),
        ({**off, "conv_init": False}, 81.6, 54.6),
        ({**off, "train_gpsa": False}, 78.6, 54.3),
        ({**off, "train_gpsa": False, "conv_init": False}, 73.7, 44.8),
        ({"locality_strength": 3.0}, None, None),
        ({"train_gating": False}, None, None),
        ({"gate": 0.0}, None, None),
    ):
        for train_size, value in ((None, full), (128_116, tenth)):
            found = convit_spec(monkeypatch, train_size=train_size, params=params, width=576)
            assert getattr(lookup(found, "convit-ablation"), "value", None) == value
    deit = convit_spec(monkeypatch, gpsa=False, width=576)
    assert lookup(deit, "convit-ablation").value == 79.1


def test_numbers_of_masked_models_stand_beside_no_plain_accuracy(monkeypatch):
    tables = {
        name: [cell for cell in publication("2103.10697").cells if cell.table == name]
        for name in publication("2103.10697").tables
    }
    assert {name: len(cells) for name, cells in tables.items()} == {
        "Table 1": 12,
        "Table 2": 10,
        "Table 3": 14,
        "Table 5": 4,
        "Table 6": 7,
    }
    tiny = convit_spec(monkeypatch, width=192, heads=4)
    for name in ("Table 5", "Table 6"):
        assert [cell.value for cell in tables[name] if cell.matches(tiny)] == [73.1]
    assert [cell.value for cell in tables["Table 6"] if cell.masked == "content attention"] == [62.3, 35.0, 1.3]
    assert [cell.masked_layers for cell in tables["Table 6"]] == [None, 3, 5, 10, 3, 5, 10]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content["cells"][0].update(value=170.0), "less than or equal to 100"),
        (lambda content: content["cells"].append(content["cells"][0]), "two numbers for"),
        (lambda content: content["cells"][0].update(table="Table 1"), "not among the tables"),
        (lambda content: content["cells"][0].update(dataset="food101", train_fraction=0.5), "whose size is known"),
        (lambda content: content["cells"][0].update(sdt=1), "is not a field here"),
        (lambda content: content["cells"][0].update(paper="1"), "in the file of"),
        (None, "Invalid JSON"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, damage, says):
    text = (FOLDER / "2404.01139.json").read_text()
    if damage:
        content = json.loads(text)
        damage(content)
        text = json.dumps(content)
    else:
        text = text[:-100]
    (tmp_path / "2404.01139.json").write_text(text)
    with pytest.raises(VitinitError, match=says) as error:
        published.publication("2404.01139", tmp_path)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) <= 300


def test_an_unknown_paper_is_named():
    with pytest.raises(VitinitError, match=r"did you mean '2404\.01139'"):
        publication("2404.01138")

"""What training starts from: every number of the table and the figure once more, by pandas from the JSON files."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from contract_studies import REFERENCE
from start_records import starts, with_start
from synthetic_records import done, write

from vitinit.analysis.figures.start import start, start_charts
from vitinit.analysis.frame import Study, load
from vitinit.analysis.tables.registry import build, names

PARTS = {"QK": "query_key", "VO": "value_path"}


@pytest.fixture(scope="module", params=["synthetic", "standard-mechanism"])
def study(request, tmp_path_factory) -> Study:
    if request.param != "synthetic":
        return load([REFERENCE], request.param)
    root = tmp_path_factory.mktemp("starts")
    starts(root)
    return load([root], "small")


def by_hand(study: Study) -> pd.DataFrame:
    """Mean over heads, one row per run, layer and quantity; none where a record holds none."""
    found = []
    for path in (study.folders[0] / study.name).glob("*.json"):
        record = json.loads(path.read_text())
        for number, layer in enumerate(record["init"].get("start", []), 1):
            values = {name: layer[name] for name in ("entropy", "distance") if layer.get(name)}
            for name, part in PARTS.items():
                values |= {f"{name} {what}": layer[part][what] for what in ("norm", "rank")}
                values[f"{name} cond."] = np.log10(np.array(layer[part]["condition"], float))
            for name, heads in values.items():
                value = np.nanmean(heads) if np.isfinite(np.array(heads, float)).any() else np.nan
                found.append(
                    (record["row"], study.column[record["run_id"]], record["spec"]["seed"], number, name, value)
                )
    return pd.DataFrame(found, columns=["row", "column", "seed", "layer", "quantity", "value"]).dropna()


def test_every_cell_is_the_mean_over_heads_layers_and_seeds(study):
    frame, table = by_hand(study), build(study, f"{study.name}_start")
    frame["part"] = np.where(frame["layer"] > 1, "later", "layer 1")
    several = frame["column"].nunique() > 1
    frame["line"] = frame["row"] + (", " + frame["column"] if several else "") + ": " + frame["part"]
    runs = frame.groupby(["line", "quantity", "seed"])["value"].mean()
    expected = runs.groupby(["line", "quantity"]).agg(["mean", "std", "count"])
    ours = {key: cell.ours for key, cell in table.cells.items() if cell.ours}
    assert ours.keys() == set(expected.index)
    assert {line for line, _ in ours} == set(table.rows)
    assert [line.rpartition(": ")[2] for line in table.rows[:4]] == ["layer 1", "later"] * 2
    for key, sample in ours.items():
        mean, std, n = expected.loc[key]
        assert (sample.n, sample.mean) == (n, pytest.approx(mean))
        assert sample.std == (pytest.approx(std) if n > 1 else None)


def test_every_line_is_the_mean_over_heads_and_seeds_of_each_layer(study):
    frame, charts = by_hand(study), start_charts(study)
    expected = frame.groupby(["column", "quantity", "row", "layer"])["value"].agg(["mean", "std", "count"])
    seen = set()
    for chart in charts.values():
        for panel in chart.panels:
            for row, line in panel.lines.items():
                for layer, *numbers in zip(line.x, line.mean, line.std, line.n, strict=True):
                    key = (panel.column, panel.scale.y, row, layer)
                    np.testing.assert_allclose(numbers, expected.loc[key], rtol=1e-9, atol=1e-12)
                    seen.add(key)
    assert seen == set(expected.index)


def test_dotted_lines_are_uniform_attention():
    study = load([REFERENCE], "standard-mechanism")
    [chart] = start_charts(study).values()
    references = {panel.scale.y: panel.reference for panel in chart.panels}
    tokens = np.array([(row, column) for row in range(8) for column in range(8)])
    distances = np.linalg.norm(tokens[:, None] - tokens[None], axis=-1)
    assert references.pop("distance") == pytest.approx(distances.mean())
    assert references.pop("entropy") == pytest.approx(math.log(64))
    assert set(references.values()) == {None}


def test_nothing_is_dotted_where_attention_is_on_several_grids(tmp_path):
    records = [with_start(done("Imp.-3", patch_size=2)), with_start(done("Kaiming uniform"))]
    charts = start_charts(load([write(tmp_path, *records)], "small"))
    assert charts
    for chart in charts.values():
        assert chart.panels
        assert chart.reference == ""
        assert {panel.reference for panel in chart.panels} == {None}


def test_a_layer_of_zero_matrices_alone_has_no_condition_number_and_other_records_no_such_table(tmp_path):
    record = with_start(done("Mimetic"), number=1)
    only = record.init.start[1].model_copy(update={"layer": "blocks.0"})
    record = record.model_copy(update={"init": record.init.model_copy(update={"start": [only]})})
    study = load([write(tmp_path / "zero", record)], "small")
    table = build(study, "small_start")
    assert table.rows == ["Mimetic: layer 1"]
    assert table.cells["Mimetic: layer 1", "QK cond."].ours is None
    assert table.cells["Mimetic: layer 1", "QK norm"].ours.mean == 0
    [chart] = start_charts(study).values()
    assert "QK cond." not in {panel.scale.y for panel in chart.panels}
    study = load([write(tmp_path / "none", done("Mimetic"))], "small")
    assert "small_start" not in names(study)
    assert start(study) == {}

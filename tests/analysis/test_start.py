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

from vitinit.analysis.figures.start import start
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


def test_the_figure_draws_the_mean_over_heads_of_each_layer(study):
    expected = by_hand(study).groupby(["column", "quantity", "row", "layer"])["value"].mean()
    drawn = pd.concat([grid.data for grid in start(study).values()])
    ours = drawn.groupby(["column", "quantity", "row", "layer"])["value"].mean()
    pd.testing.assert_series_equal(ours, expected, rtol=1e-9)


def dotted(study):
    """Where panels have dotted lines, by quantity."""
    (grid,) = start(study).values()
    return {
        quantity: [
            line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":" and len(line.get_ydata()) == 2
        ]
        for quantity, axes in grid.axes_dict.items()
        if quantity in ("distance", "entropy")
    }


def test_dotted_lines_are_uniform_attention():
    tokens = np.array([(row, column) for row in range(8) for column in range(8)])
    distances = np.linalg.norm(tokens[:, None] - tokens[None], axis=-1)
    found = dotted(load([REFERENCE], "standard-mechanism"))
    assert pytest.approx(distances.mean()) in found["distance"]
    assert pytest.approx(math.log(64)) in found["entropy"]


def test_a_layer_of_zero_matrices_alone_has_no_condition_number_and_other_records_no_such_table(tmp_path):
    record = with_start(done("Mimetic"), number=1)
    only = record.init.start[1].model_copy(update={"layer": "blocks.0"})
    record = record.model_copy(update={"init": record.init.model_copy(update={"start": [only]})})
    study = load([write(tmp_path / "zero", record)], "small")
    table = build(study, "small_start")
    assert table.rows == ["Mimetic: layer 1"]
    assert table.cells["Mimetic: layer 1", "QK cond."].ours is None
    assert table.cells["Mimetic: layer 1", "QK norm"].ours.mean == 0
    (grid,) = start(study).values()
    assert "QK cond." not in set(grid.data["quantity"])
    study = load([write(tmp_path / "none", done("Mimetic"))], "small")
    assert "small_start" not in names(study)
    assert start(study) == {}

"""What every registered table must do, whatever it is about."""

from __future__ import annotations

import csv
import io
import re

import pytest
from rich.cells import cell_len
from synthetic_records import failed, write
from table_texts import lines_of

from vitinit.analysis.frame import Study, load
from vitinit.analysis.tables.registry import TABLES, Kind, build, names
from vitinit.analysis.tables.render import FORMATS, columns
from vitinit.analysis.tables.shared import METRICS, TableLayout
from vitinit.analysis.text import number, signed
from vitinit.initializers.errors import VitinitError

KINDS = {kind.name or "the study's own": kind for kind in TABLES.entries()}


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


def allowing(studies: dict[str, Study], kind: Kind) -> dict[str, Study]:
    found = {name: study for name, study in studies.items() if kind.allowed(study)}
    assert found, "no study allows this table: say in contract_studies.py how one does"
    return found


def test_places_are_told_apart():
    places = [kind.place for kind in KINDS.values()]
    assert len(set(places)) == len(places)
    assert all(re.fullmatch(r"(_[a-z_]+)?", kind.name) for kind in KINDS.values()), "a part of a file's name"


@pytest.mark.long
def test_every_place_has_a_cell_and_other_studies_no_such_table(studies, kind):
    for study in allowing(studies, kind).values():
        name = study.name + kind.name
        assert name in names(study)
        for metric in METRICS:
            table = build(study, name, metric)
            assert (table.name, table.study) == (name, study)
            assert table.rows
            assert table.columns
            assert table.cells.keys() == {(row, column) for row in table.rows for column in table.columns}
            assert any(cell.ours for cell in table.cells.values()), "it shows a number"
            written = [write_as(table, TableLayout(whole=True)) for _, write_as in FORMATS.values()]
            assert all(line.isprintable() for text in written for line in text.split("\n")), "whatever a record holds"
            paired = [row for (row, _), cell in table.cells.items() if cell.against]
            assert set(paired) <= table.baselines.keys(), "what a difference is to"
    for study in studies.values():
        if not kind.allowed(study):
            assert study.name + kind.name not in names(study)
            with pytest.raises(VitinitError, match=r"unknown table .*available"):
                build(study, study.name + kind.name)


@pytest.mark.long
def test_formats_and_terminals_lose_nothing_and_the_same_records_give_the_same_bytes(studies, kind):
    for study in allowing(studies, kind).values():
        table, other = (build(each, study.name + kind.name) for each in (study, load(study.folders, study.name)))
        written = {name: write_as(table) for name, (_, write_as) in FORMATS.items()}
        assert written == {name: write_as(other) for name, (_, write_as) in FORMATS.items()}
        assert all(text.endswith("\n") for text in written.values())
        lines = list(csv.DictReader(io.StringIO(written["csv"])))
        assert len(lines) == len(table.cells)
        assert {line["mean"] != "" for line in lines} >= {True}
        shown = columns(table)
        cells = {name: [table.cells[row, name] for row in table.rows] for name in table.columns}
        numbers = [
            name
            for name, its in cells.items()
            if any(c.ours or c.switch is not None or c.published or c.published_difference for c in its)
        ]
        assert [column.label for column in shown] == numbers
        assert all(part.texts.keys() == set(table.rows) for column in shown for part in column.parts)
        for width in (80, 120):
            shown_lines = lines_of(table, width, TableLayout(gain=True))
            assert max(map(cell_len, shown_lines)) <= width
            for cell in table.cells.values():
                if cell.ours:
                    assert number(cell.ours.mean) in " ".join(shown_lines)
                if cell.against:
                    assert signed(cell.against.mean) in " ".join(shown_lines)
    study = next(iter(allowing(studies, kind).values()))
    for row in study.rows[:2]:
        table = build(study, study.name + kind.name, baseline=row)
        for _, write_as in FORMATS.values():
            assert write_as(table), "any row can be the baseline"


def test_no_table_without_a_finished_run(tmp_path):
    study = load([write(tmp_path, failed("Mimetic"))])
    assert names(study) == []
    with pytest.raises(VitinitError, match="no finished run"):
        build(study)

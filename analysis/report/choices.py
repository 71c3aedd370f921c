"""Other baselines and metrics that a reader of the page can choose, computed as it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import score_name
from vitinit.analysis.report.answer import forest
from vitinit.analysis.report.packing import packed
from vitinit.analysis.tables.accuracy import gains_over
from vitinit.analysis.tables.contrasts import of_contrasts
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import columns, template, to_csv, to_latex, to_markdown
from vitinit.analysis.tables.shared import METRICS, Table
from vitinit.benchmark.metrics import registry
from vitinit.initializers.errors import VitinitError

TEMPLATES = Path(__file__).parent / "templates"
OWN = "own base"
"""Choice of a baseline beside the rows: each row's own base, where a grid names other comparisons."""
FORMATS = {"LaTeX": to_latex, "Markdown": to_markdown, "CSV": to_csv}


def choices(study: Study, baseline: str | None) -> tuple[dict[str, str], str]:
    """Compute what the page shows of a study for each metric and baseline.

    Args:
        study: With a finished run.
        baseline: As in `build`.

    Returns:
        Labels of the metrics by name; and as packed JSON, by metric: `gains` by baseline, and `tables` by name, each as
        HTML and as `analysis.tables` writes it. The metric of the page itself has no name.
    """
    metrics = _metrics(study)
    found: dict[str, Any] = {"": {"gains": _gains(study, "last"), "tables": {}}}
    for name in metrics:
        other, metric = (study, name) if name in METRICS else (study.by(name), "last")
        wanted = [study.name, f"{study.name}_contrasts"]
        tables = [build(other, table, metric, baseline) for table in names(other) if table in wanted]
        gains = _gains(other, metric)
        planned = next((table for table in tables if of_contrasts(table) and baseline is None), None)
        gains[""] = _html(planned, metric) if planned else gains[baseline or OWN]
        shown = {
            table.name: {"html": template("table_part.html.j2", table=table, columns=columns(table))}
            for table in tables
        }
        found[name] = {"gains": gains, "tables": {key: text | shown[key] for key, text in texts(tables).items()}}
    return metrics, packed(json.dumps(found))


def texts(tables: Iterable[Table]) -> dict[str, dict[str, str]]:
    """Return tables as `analysis.tables` writes them, by name and format."""
    return {table.name: {name: write(table) for name, write in FORMATS.items()} for table in tables}


def _metrics(study: Study) -> dict[str, str]:
    """Return the metrics besides that of the last epoch: of the best epoch, and those that all runs hold in percent."""
    found = {"best": "of the best epoch (optimistic)"}
    held = [{*record.last.metrics, "ema_score"} for record in study.contents.done.values()]
    for name in sorted(set.intersection(*held)):
        try:
            study.by(name)
        except VitinitError:
            continue
        found[name] = "of averaged weights" if name == "ema_score" else registry.metric_label(name)
    return found


def _gains(study: Study, metric: str) -> dict[str, str]:
    rows: dict[str, str | None] = {OWN: None, **{row: row for row in study.rows}}
    return {name: _html(gains_over(study, metric, row), metric) for name, row in rows.items()}


def _html(table: Table, metric: str) -> str:
    score = score_name(table.study.runs) + (" of the best epoch" if metric == "best" else "")
    return template("gains.html.j2", TEMPLATES, study=table.study, forest=forest(table, metric), score=score)

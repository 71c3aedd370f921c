"""Accuracy of trained ConViTs without a term of their first GPSA layers' attention: ConViT's Table 6."""

from __future__ import annotations

from collections import defaultdict

from vitinit.analysis.frame import Study
from vitinit.analysis.published import Published, numbers, publication, read_in_part
from vitinit.analysis.tables.context import beside
from vitinit.analysis.tables.registry import TABLES, Asked
from vitinit.analysis.tables.shared import Table, TableCell
from vitinit.analysis.text import count
from vitinit.benchmark.records.record import RunRecord

PAPER = ("2103.10697", "Table 6")
TERMS = {"content attention": "content", "positional attention": "position"}
"""Terms of attention: name in the paper's table, name in records."""

Test = tuple[int, str]
"""Share of the GPSA layers, in percent, and the term that they leave out."""
WHOLE: Test = (0, "")


def left_out(study: Study) -> bool:
    """Return True if a finished run was evaluated without a term of attention."""
    return any(record.masked for record in study.contents.done.values())


@TABLES.add("_masked", left_out, place=6)
def masking(asked: Asked) -> Table:
    """Return the table of accuracies without content or positional attention."""
    from vitinit.analysis.stats import sample

    study = asked.study
    tested = {key: its for key, runs in study.cells.items() if (its := [run for run in runs if run.masked])}
    published = _published()
    ours: dict[str, dict[Test, list[float]]] = {}
    papers: dict[str, dict[Test, Published]] = {}
    for (column, row), runs in tested.items():
        label = f"{row}, {column}" if len({column for column, _ in tested}) > 1 else row
        ours[label] = _by_test(runs)
        if published[WHOLE].setting.is_of(runs[0].spec) and not any(map(read_in_part, runs)):
            papers[label] = published
    tests = sorted({test for row in ours.values() for test in row} | {test for row in papers.values() for test in row})
    cells = {}
    for row in ours:
        for test in tests:
            values = ours[row].get(test)
            cells[row, _label(test)] = TableCell(
                sample(values) if values else None, published=papers.get(row, {}).get(test)
            )
    runs = [run for its in tested.values() for run in its]
    splits = {"test": "test", "val": "validation"}
    images = sorted({f"{found.images} {splits[run.spec.dataset.evaluate_on]}" for run in runs for found in run.masked})
    notes = [
        f"Top-1 after the last epoch on {' or '.join(images)} images, the same in every run, mean ± "
        f"sample standard deviation over n seeds. Settings and counts: table {study.name}.",
        "Without content the first GPSA layers, so many per cent of all of them, attend by position alone, without "
        "position by content alone; nothing is trained in between.",
    ]
    result = Table(
        name=asked.name,
        study=study,
        caption=f"Top-1 accuracy of {count(len(runs), 'trained ConViT')} without a term of attention, "
        f"study {study.name}",
        rows=list(ours),
        columns=[_label(test) for test in tests],
        baselines={},
        cells=cells,
        published=(publication(PAPER[0]), PAPER[1]),
        shows=f"Top-1 (%) on {' or '.join(images)} images, without content or position in the first GPSA layers",
    )
    result.notes.extend([*notes, *beside(result)])
    return result


def _by_test(runs: list[RunRecord]) -> dict[Test, list[float]]:
    """Return top-1 of each run by test, in the order of seeds."""
    values: dict[Test, list[float]] = defaultdict(list)
    for run in runs:
        values[WHOLE].append(run.masked[0].top1_whole)
        for found in run.masked:
            values[_share(found.layers, run.spec.model.gated_layers), found.term].append(found.top1)
    return values


def _published() -> dict[Test, Published]:
    paper, name = PAPER
    found = {}
    for number in numbers(publication(paper), name):
        known = number.setting
        share = _share(known.masked_layers or 0, known.model["gpsa_layers"])
        found[(share, TERMS[known.masked]) if known.masked else WHOLE] = number
    return found


def _share(layers: int, of: int) -> int:
    return round(100 * layers / of)


def _label(test: Test) -> str:
    return "whole" if test == WHOLE else f"no {test[1]}, {test[0]}%"

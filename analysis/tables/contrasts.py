"""The comparisons that a grid names, and no others: what a study stands or falls by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.published import context
from analysis.tables.notes import measured, not_initialisation_alone, over_fewer_seeds, seeds
from analysis.tables.registry import TABLES, Asked
from analysis.tables.shared import LEVEL, Cell, Key, Table, contrasts_compared, skipped, values_by_seed
from analysis.text import capitalised, count, one_line

if TYPE_CHECKING:
    from analysis.stats import Paired


def label(pair: tuple[str, str]) -> str:
    """How a contrast is written: the first minus the second."""
    return f"{pair[0]} − {pair[1]}"


def of_contrasts(table: Table) -> bool:
    """Whether its rows are contrasts."""
    return table.name == f"{table.study.name}_contrasts"


@TABLES.add("_contrasts", contrasts_compared, place=2)
def contrasts(asked: Asked) -> Table:
    """One line per contrast: the first row's accuracy, what it has over the second, and p."""
    from analysis.stats import holm, paired, sample

    study, metric = asked.study, asked.metric
    values = values_by_seed(study, metric)
    ours: dict[Key, Cell] = {}
    pairs: dict[Key, Paired] = {}
    for contrast in study.contrasts:
        for column in study.columns:
            first, second = (values.get((row, column)) for row in contrast)
            key = label(contrast), column
            difference = paired(first, second) if first is not None and second is not None else None
            if difference:
                pairs[key] = difference
            ours[key] = Cell(sample(first) if first is not None else None)
    # What has no run yet keeps its place in the correction: a p can only fall when it comes.
    left_out = {(label(pair), column) for pair in study.contrasts for row, column in skipped(study) if row in pair}
    named = [(label(pair), column) for pair in study.contrasts for column in study.columns_of_grid]
    places = [key for key in named if key in pairs or key not in left_out]
    corrected = dict(zip(places, holm([_p(pairs.get(key)) for key in places]), strict=True))
    least = dict(zip(places, holm([pairs[key].least_p if key in pairs else 1.0 for key in places]), strict=True))
    cells = {
        key: Cell(cell.ours, pairs[key], corrected[key], least[key]) if key in pairs else cell
        for key, cell in ours.items()
    }
    waiting = f", {len(places) - len(pairs)} without runs yet" if len(places) > len(pairs) else ""
    seen = [pair for pair in study.contrasts if any(row == label(pair) for row, _ in pairs)]
    notes = [
        f"Ours: {measured(study, metric)} of the first row, mean ± sample standard deviation over seeds. "
        "Difference: first minus second row by seed, with its 95 % interval (Student's t; none under 3 common seeds).",
        f"p: exact two-sided sign-flip test, corrected by Holm over {count(len(places), 'comparison')}, which the grid "
        f"names{waiting}; not shown where it could not be under {LEVEL}, whatever the numbers.",
        f"Settings and counts: table {study.name}.",
        *not_initialisation_alone(study, seen),
    ]
    result = Table(
        name=asked.name,
        study=study,
        caption=one_line(f"Comparisons that the grid names, study {study.name}"),
        rows=[label(contrast) for contrast in study.contrasts],
        columns=study.columns,
        baselines={label(contrast): contrast[1] for contrast in study.contrasts},
        cells=cells,
        comparisons=len(places),
        published=context(study.name),
        shows=f"{capitalised(measured(study, metric))}, of the first row",
        gain="first minus second row",
        digits=2,
    )
    result.notes.extend(one_line(note) for note in [*notes, seeds(result), *over_fewer_seeds(result)])
    return result


def _p(pair: Paired | None) -> float:
    return 1.0 if pair is None or pair.p is None else pair.p

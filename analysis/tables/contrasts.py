"""The comparisons that a grid names, and no others: what a study stands or falls by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.published import context
from vitinit.analysis.tables.notes import not_initialisation_alone, over_fewer_seeds, quantity, seeds
from vitinit.analysis.tables.registry import TABLES, Asked
from vitinit.analysis.tables.shared import LEVEL, Key, Table, TableCell, contrasts_compared, skipped, values_by_seed
from vitinit.analysis.text import capitalised, count

if TYPE_CHECKING:
    from vitinit.analysis.stats import Paired, Pooled


def label(pair: tuple[str, str]) -> str:
    """Return the label of a contrast: the first minus the second."""
    return f"{pair[0]} − {pair[1]}"


def of_contrasts(table: Table) -> bool:
    """Return True if its rows are contrasts."""
    return table.name == f"{table.study.name}_contrasts"


@TABLES.add("_contrasts", contrasts_compared, place=2)
def contrasts(asked: Asked) -> Table:
    """One line per contrast: the first row's accuracy, what it has over the second, and p."""
    from vitinit.analysis.stats import holm, paired, pooled, sample

    study, metric = asked.study, asked.metric
    values = values_by_seed(study, metric)
    ours: dict[Key, TableCell] = {}
    pairs: dict[Key, Paired] = {}
    for contrast in study.contrasts:
        for column in study.columns:
            first, second = (values.get((row, column)) for row in contrast)
            key = label(contrast), column
            difference = paired(first, second) if first is not None and second is not None else None
            if difference:
                pairs[key] = difference
            ours[key] = TableCell(sample(first))
    # What has no run yet keeps its place in the correction: a p can only fall when it comes.
    left_out = {(label(pair), column) for pair in study.contrasts for row, column in skipped(study) if row in pair}
    named = [(label(pair), column) for pair in study.contrasts for column in study.columns_of_grid]
    places = [key for key in named if key in pairs or key not in left_out]
    noise = {
        column: pooled([values[row, column] for row in study.rows if (row, column) in values])
        for column in study.columns
    }
    modelled = {key: spread for key in pairs if (spread := noise[key[1]])}
    corrected = dict(zip(places, holm([_p(pairs.get(key)) for key in places]), strict=True))
    by_model = dict(
        zip(places, holm([modelled[key].p(pairs[key]) if key in modelled else 1.0 for key in places]), strict=True)
    )
    least = dict(zip(places, holm([pairs[key].least_p if key in pairs else 1.0 for key in places]), strict=True))
    cells = {
        key: TableCell(
            cell.ours,
            pairs[key],
            corrected[key],
            least[key],
            pooled=modelled[key].interval(pairs[key]) if key in modelled else None,
            pooled_p=by_model[key] if key in modelled else None,
            detectable=modelled[key].detectable(pairs[key].n) if key in modelled else None,
        )
        if key in pairs
        else cell
        for key, cell in ours.items()
    }
    waiting = f", {len(places) - len(pairs)} without runs yet" if len(places) > len(pairs) else ""
    seen = [pair for pair in study.contrasts if any(row == label(pair) for row, _ in pairs)]
    notes = [
        f"Ours: {quantity(study, metric)} of the first row, mean ± sample standard deviation over seeds. "
        "Difference: first minus second row by seed, with its 95 % interval (Student's t; none under 3 common seeds).",
        f"p: exact two-sided sign-flip test, corrected by Holm over {count(len(places), 'comparison')}, which the grid "
        f"names{waiting}; not shown where it could not be under {LEVEL}, whatever the numbers.",
        *_of_the_model(cells, noise),
        f"Settings and counts: table {study.name}.",
        *not_initialisation_alone(study, seen),
    ]
    result = Table(
        name=asked.name,
        study=study,
        caption=f"Comparisons that the grid names, study {study.name}",
        rows=[label(contrast) for contrast in study.contrasts],
        columns=study.columns,
        baselines={label(contrast): contrast[1] for contrast in study.contrasts},
        cells=cells,
        comparisons=len(places),
        published=context(study.name),
        shows=f"{capitalised(quantity(study, metric))}, of the first row",
        gain="first minus second row",
        digits=2,
    )
    result.notes.extend([*notes, seeds(result), *over_fewer_seeds(result)])
    return result


def _of_the_model(cells: dict[Key, TableCell], noise: dict[str, Pooled | None]) -> list[str]:
    """Return the notes on pooled intervals: model and smallest detectable effects."""
    notes = []
    for column, spread in noise.items():
        its = {row: cell for (row, place), cell in cells.items() if place == column and cell.pooled}
        if not spread or not its:
            continue
        sizes = [cell.detectable for cell in its.values() if cell.detectable is not None]
        low, high = f"{min(sizes):.2f}", f"{max(sizes):.2f}"
        notes.append(
            f"Pooled, on {column}: Student's t interval and test of the model row + seed, fitted to all rows (residual "
            f"standard deviation {spread.std:.2f}, {spread.df} degrees of freedom; normal noise, alike in all rows). "
            f"Smallest effect detectable by it: {low if low == high else f'{low} to {high}'} points (level {LEVEL}, "
            "power 0.8, one comparison alone)."
        )
    return notes


def _p(pair: Paired | None) -> float:
    return 1.0 if pair is None or pair.p is None else pair.p

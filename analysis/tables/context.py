"""Published numbers: the lines under a table that say what stands in it and what is context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.published import Published, numbers, read_in_part, source

if TYPE_CHECKING:
    from vitinit.analysis.tables.shared import Table


def beside(table: Table) -> list[str]:
    """Return the notes on the published numbers of a table, with one line for those that are context."""
    standing = [cell.published for cell in table.cells.values() if cell.published]
    sources = dict.fromkeys(number.source for number in standing)
    lines = []
    if sources:
        lines.append(
            f"Paper: {'; '.join(sources)}. A number stands only where dataset, model, epochs, base and the method with "
            "its parameters are ours, as far as the paper or its code says."
        )
        if any(cell.published_difference is not None for cell in table.cells.values()):
            lines[-1] += " Its differences are between its own numbers."
        said = dict.fromkeys(f"{number.cell.column}: {number.cell.note}." for number in standing if number.cell.note)
        lines[-1] = " ".join((lines[-1], *said))
    runs = filter(read_in_part, table.study.contents.done.values())
    parts = {f"{run.dataset.train:,} and {run.dataset.test:,} of {run.spec.dataset.label}" for run in runs}
    if parts:
        read = f"training and test images read: {', '.join(sorted(parts))}"
        lines.append(f"Not the whole dataset, so no published number stands beside it; {read}.")
    found = table.published
    if found:
        here = {id(number.cell) for number in standing}
        names = {outcome.spec.dataset.name for outcome in table.study.outcomes}
        rest = [number for number in numbers(*found) if id(number.cell) not in here]
        shared = [n for n in rest if n.setting.dataset in names and n.cell.unit == "top1" and not n.setting.masked]
        where = "the same table" if source(*found) in sources else source(*found)
        has = f" has {_listed(shared)}" if shared else ""
        if rest and (has or not sources):
            lines.append(f"Context, beside no run of ours: {where}{has} (results/published/{found[0].paper}.json).")
    return lines


def _listed(shared: list[Published]) -> str:
    """Row and number, column by column."""
    columns: dict[str, list[str]] = {}
    for number in shared:
        columns.setdefault(number.cell.column, []).append(f"{number.cell.row} {number.value:.2f}")
    return "; ".join(f"{column}: {', '.join(texts)}" for column, texts in columns.items())

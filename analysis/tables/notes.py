"""Captions and notes that several tables share, computed from records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import Study
from vitinit.analysis.published import Published, context, numbers, read_in_part, source
from vitinit.analysis.tables.shared import Key, differing, skipped
from vitinit.analysis.tables.table import TableCell
from vitinit.analysis.text import capitalised, count, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

QUANTITIES = {"top-1": "top-1 accuracy", "top-5": "top-5 accuracy"}
WHEN = {
    "last": " after the last epoch",
    "best": " at the best evaluated epoch, which selects on what it measures",
    "each": " over training",
}


def subject(study: Study, metric: str, first_row: bool = False) -> str:
    """Return what a table shows, to begin its caption: `Top-1 accuracy (%) on digits after the last epoch`.

    Args:
        study: The records.
        metric: `last` or `best`, or `each` where columns are epochs.
        first_row: True where a line compares two rows.
    """
    finished, splits = set(study.runs["column"]), set(study.runs["split"])
    columns = [column for column in study.columns if column in finished]
    what = " or ".join(QUANTITIES.get(name, name) for name in study.measured.split(" or "))
    where = f"{len(columns)} datasets" if len(columns) > 3 else " and ".join(columns)
    images = {"test": "", "val": ", validation images,"}[splits.pop()] if len(splits) == 1 else ""
    return f"{capitalised(what)} (%){' of the first row' * first_row} on {where}{images}{WHEN[metric]}"


def compared_with(baselines: Mapping[str, str]) -> str:
    """Return the most frequent row of comparison, then each other one with the rows that it is for."""
    rows: dict[str, list[str]] = defaultdict(list)
    for row, other in baselines.items():
        rows[other].append(row)
    most = max(rows, key=lambda other: len(rows[other]))
    return "; ".join([most, *(f"of {', '.join(its)}: {other}" for other, its in rows.items() if other != most)])


def not_initialisation_alone(study: Study, compared: Iterable[tuple[str, str]], values: bool = True) -> list[str]:
    """Return a note on rows whose model or recipe also differs from their row of comparison."""
    found: dict[str, list[str]] = defaultdict(list)
    for row, other in compared:
        if fields := differing(study, row, other):
            texts = [f"{name} {ours} (not {theirs})" if values else name for name, (ours, theirs) in fields.items()]
            found[", ".join(texts)].append(row)
    rows = "; ".join(f"{', '.join(its)} in {text}" for text, its in found.items())
    return [f"More than the initialisation differs from the row compared with: {rows}."] if found else []


def without_record(study: Study) -> list[str]:
    """Return the rows of the grid without any record."""
    return [row for row in study.order if row not in study.rows]


def about_runs(study: Study, cells: Mapping[Key, TableCell]) -> list[str]:
    """Return notes on settings, code and hardware of the runs, and on those without numbers."""
    runs, contents, left_out = study.runs, study.contents, skipped(study)
    recorded = {name: _known(runs[name]) for name in ("precision", "device", "hardware")}
    commits = sorted({str(commit)[:10] for commit in runs["commit"].dropna()})
    code = f"{'mixed commits' if commits[1:] else 'commit'} {', '.join(commits) or 'unknown'}"
    if commits and (without := int(runs["commit"].isna().sum())):
        code += f" ({count(without, 'run')} without one)"
    if dirty := int((runs["dirty"] == True).sum()):  # noqa: E712 - None counts as not dirty
        code += f"; {dirty} of {count(len(runs), 'run')} from a tree with uncommitted changes"
    missing = [f"{row} on {column}" for (row, column), cell in cells.items() if not cell.ours]
    missing = [text for text in missing if text not in {f"{row} on {column}" for row, column in left_out}]
    missing += without_record(study)
    mixed = [f"{name} ({', '.join(known)})" for name, known in recorded.items() if len(known) > 1]
    changed = sum(bool(run.environment.get("changed_while_running")) for run in contents.done.values())
    states = f"{len(contents.done)} finished, {len(contents.failed)} failed, {len(contents.skipped)} skipped"
    lines = [f"No finished run: {', '.join(missing)}."] if missing else []
    lines += settings(runs)
    lines.append(f"Precision {', '.join(recorded['precision'])}; device {', '.join(recorded['device'])}; {code}.")
    lines += [f"Mixed: {'; '.join(mixed)}."] if mixed else []
    lines += mixed_code(study)
    lines.append(f"Runs: {states}; {count(len(contents.problems), 'invalid file')} left out.")
    if study.contradicted:
        runs_of = count(study.contradicted, "run")
        lines.append(f"{runs_of} with other numbers in a folder named later: those of the first are taken.")
    if changed:
        lines.append(
            f"{count(changed, 'run')} went on after a stop with other code, libraries, processor or flags than before "
            "(changed_while_running in the record): another machine need not get the same bits."
        )
    return [*lines, *_without_numbers(study), *(f"Invalid file: {problem}" for problem in contents.problems)]


def _known(values: pd.Series[Any]) -> list[str]:
    """The values of a column of runs, and `unknown` where some have none."""
    return sorted({str(value) for value in values.dropna()}) + ["unknown"] * bool(values.isna().any())


def _without_numbers(study: Study) -> list[str]:
    """Runs that failed or were skipped: which, their seeds by row and column, and the reason."""
    found: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    failed = [("Failed", run, f"{run.error}: {run.message}") for run in study.contents.failed.values()]
    skipped = [("Skipped", run, run.reason) for run in study.contents.skipped.values()]
    for status, run, why in [*failed, *skipped]:
        reason = one_line(next(iter(why.strip().splitlines()), ""), 160)
        found[status, reason][f"{run.row} on {study.column[run.run_id]}"].append(run.spec.seed)
    return [
        f"{status}: {'; '.join(f'{cell} (seed {_listed(seeds)})' for cell, seeds in sorted(cells.items()))}: {reason}"
        for (status, reason), cells in sorted(found.items())
    ]


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def settings(runs: pd.DataFrame) -> list[str]:
    """Return model and epochs of the columns. Equal columns share a sentence; rows that differ are named."""
    sentences: dict[str, list[str]] = defaultdict(list)
    warnings = []
    for column, group in runs.groupby("column", sort=False):
        rows: dict[str, list[str]] = defaultdict(list)
        several = group["lr"].nunique() > 1
        for _, run in group.drop_duplicates(["row", "model", "epochs", "lr"]).iterrows():
            rate = f", learning rate {run['lr']:g}" if several else ""
            rows[f"{run['model']}, {count(run['epochs'], 'epoch')}{rate}"].append(run["row"])
        (first, _), *rest = rows.items()
        images = " or ".join(f"{images:,}" for images in sorted(set(group["train_images"])))
        sentence = "; ".join([first, *(f"{', '.join(names)}: {text}" for text, names in rest)])
        sentences[sentence].append(f"{column} ({images} training images)")
        if (group.groupby("seed")["checksum"].nunique() > 1).any():
            warnings.append(f"Not comparable: the runs on {column} read different data (checksums differ).")
    return [f"{', '.join(columns)}: {sentence}." for sentence, columns in sentences.items()] + warnings


def mixed_code(study: Study) -> list[str]:
    """Return notes on initialisers whose source file changed between runs, with their rows."""
    sources: dict[str, set[str]] = defaultdict(set)
    rows: dict[str, set[str]] = defaultdict(set)
    for run in study.contents.done.values():
        for name, its in run.sources.items():
            sources[name].add(its)
            rows[name].add(run.row)
    return [
        f"Mixed code of {name}: rows {', '.join(row for row in study.rows if row in rows[name])} hold runs of "
        f"{len(found)} versions of its file."
        for name, found in sorted(sources.items())
        if len(found) > 1
    ]


def beside(study: Study, cells: Mapping[Key, TableCell], paper: tuple[Any, str] | None = None) -> list[str]:
    """Return the notes on the published numbers of a table, with one line for those that are context.

    Args:
        study: The records.
        cells: Those of the table.
        paper: The paper and its table that are read with this table. Default: those that name the study.
    """
    standing = [cell.published for cell in cells.values() if cell.published]
    sources = dict.fromkeys(number.source for number in standing)
    lines = []
    if sources:
        said = dict.fromkeys(f" {number.cell.column}: {number.cell.note}." for number in standing if number.cell.note)
        own = " Its differences are between its own numbers."
        lines.append(
            f"Paper: {'; '.join(sources)}. A number stands only where dataset, model, epochs, base and the method with "
            "its parameters are ours, as far as the paper or its code says."
            + own * any(cell.published_difference is not None for cell in cells.values())
            + "".join(said)
        )
    parts = {
        f"{run.dataset.train:,} and {run.dataset.test:,} of {run.spec.dataset.label}"
        for run in study.contents.done.values()
        if read_in_part(run)
    }
    if parts:
        read = f"training and test images read: {', '.join(sorted(parts))}"
        lines.append(f"Not the whole dataset, so no published number stands beside it; {read}.")
    if found := paper or context(study.name):
        here = {id(number.cell) for number in standing}
        names = {outcome.spec.dataset.name for outcome in study.outcomes}
        rest = [number for number in numbers(*found) if id(number.cell) not in here]
        shared = [n for n in rest if n.setting.dataset in names and n.cell.unit == "top1" and not n.setting.masked]
        where = "the same table" if source(*found) in sources else source(*found)
        has = f" has {_by_column(shared)}" if shared else ""
        if rest and (has or not sources):
            lines.append(f"Context, beside no run of ours: {where}{has} (results/published/{found[0].paper}.json).")
    return lines


def _by_column(shared: Sequence[Published]) -> str:
    """Row and number, column by column."""
    columns: dict[str, list[str]] = defaultdict(list)
    for number in shared:
        columns[number.cell.column].append(f"{number.cell.row} {number.value:.2f}")
    return "; ".join(f"{column}: {', '.join(texts)}" for column, texts in columns.items())

"""What stands under a table: every setting, source and count, computed from the records."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from analysis.frame import Study
from analysis.published import PAPER, TABLE, PublishedCell, publication
from analysis.text import count, one_line

if TYPE_CHECKING:
    import pandas as pd

METRICS = {
    "last": "test top-1 in percent after the last epoch",
    "best": "best test top-1 in percent of any epoch (it selects on the test split)",
}


def notes(study: Study, metric: str, baseline: str, published: list[PublishedCell]) -> list[str]:
    """The sentences below the table, in order.

    Args:
        study: The records.
        metric: `last` or `best`.
        baseline: Row label that the differences are to.
        published: The cells of the paper that the table shows.
    """
    runs = study.runs
    lines = [f"Ours: {METRICS[metric]}, mean ± sample standard deviation over n seeds (none for n=1)."]
    if baseline in set(runs["row"]):
        lines[0] += f" Second line: difference to {baseline}, the mean over common seeds of the differences by seed."
        lines += _fewer_pairs(runs, baseline)
    else:
        lines[0] += f" No differences: the baseline row {baseline} has no finished run."
    lines += _settings(runs)
    lines.append(_provenance(runs))
    lines += _published(study, published)
    lines += _counts(study)
    return [one_line(line) for line in lines]


def _fewer_pairs(runs: pd.DataFrame, baseline: str) -> list[str]:
    seeds = {key: set(group["seed"]) for key, group in runs.groupby(["row", "column"], sort=False)}
    short = [
        f"{row} on {column} ({len(seeds[row, column] & seeds.get((baseline, column), set()))})"
        for row, column in seeds
        if (baseline, column) in seeds and not seeds[row, column] <= seeds[baseline, column]
    ]
    return [f"Differences over fewer seeds than n: {', '.join(short)}."] if short else []


def _settings(runs: pd.DataFrame) -> list[str]:
    """Model and epochs of each column; columns with the same are one sentence, rows that differ are named."""
    sentences: dict[str, list[str]] = defaultdict(list)
    warnings = []
    for column, group in runs.groupby("column", sort=False):
        rows: dict[str, list[str]] = defaultdict(list)
        for _, run in group.drop_duplicates(["row", "model", "epochs"]).iterrows():
            rows[f"{run['model']}, {count(run['epochs'], 'epoch')}"].append(run["row"])
        (first, _), *rest = rows.items()
        images = " or ".join(f"{images:,}" for images in sorted(set(group["train_images"])))
        sentence = "; ".join([first, *(f"{', '.join(names)}: {text}" for text, names in rest)])
        sentences[sentence].append(f"{column} ({images} training images)")
        if group["checksum"].nunique() > 1:
            warnings.append(f"Not comparable: the runs on {column} read different data (checksums differ).")
    return [f"{', '.join(columns)}: {sentence}." for sentence, columns in sentences.items()] + warnings


def _provenance(runs: pd.DataFrame) -> str:
    def values(name: str) -> str:
        known = sorted({str(value) for value in runs[name].dropna()})
        return ", ".join(known + ["unknown"] * bool(runs[name].isna().any()))

    commits = sorted({str(commit)[:10] for commit in runs["commit"].dropna()})
    text = f"Precision {values('precision')}; device {values('device')}; "
    text += f"{'mixed commits' if len(commits) > 1 else 'commit'} {', '.join(commits) or 'unknown'}"
    if runs["commit"].isna().any() and commits:
        text += f" ({count(int(runs['commit'].isna().sum()), 'run')} without one)"
    dirty = int((runs["dirty"] == True).sum())  # noqa: E712 - None counts as not dirty
    return text + (f"; {dirty} of {count(len(runs), 'run')} from a tree with uncommitted changes." if dirty else ".")


def _published(study: Study, cells: list[PublishedCell]) -> list[str]:
    if not cells:
        return []
    paper = publication(PAPER)
    lines = [
        f"Paper: {TABLE} of {', '.join(paper.authors)}, arXiv {PAPER} ({paper.setting}). Second line: difference to "
        "the paper's number for the same baseline. Another setting than ours, and full training sets: a small column "
        "is not expected to match. Empty: no number published."
    ]
    if any(cell.method == "impulse" for cell in cells):
        methods = [o.spec.method for o in study.outcomes if o.spec.method and o.spec.method.name == "impulse"]
        solvers = [method.params.get("solver") for method in methods]
        names = sorted({str(s.get("name") if isinstance(s, dict) else s) for s in solvers if s})
        lines.append(
            "The paper's impulse rows were solved with the gradient solver; "
            f"ours with: {', '.join(names) or 'not recorded'}."
        )
    return lines


def _counts(study: Study) -> list[str]:
    contents = study.contents
    lines = [
        f"Runs: {len(contents.done)} finished, {len(contents.failed)} failed, {len(contents.skipped)} skipped; "
        f"{count(len(contents.problems), 'invalid file')} left out."
    ]
    changed = [run for run in contents.done.values() if run.environment.get("changed_while_running")]
    if changed:
        lines.append(
            f"{count(len(changed), 'run')} went on after a stop with other code, libraries, processor or flags than "
            "before (changed_while_running in the record): another machine need not get the same bits."
        )
    for word, outcomes in (("Failed", contents.failed), ("Skipped", contents.skipped)):
        where: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for outcome in outcomes.values():
            why = outcome.reason if outcome.status == "skipped" else f"{outcome.error}: {outcome.message}"
            first_line = next(iter(why.strip().splitlines()), "")
            where[one_line(first_line, 160)][f"{outcome.row} on {study.column[outcome.run_id]}"].append(
                outcome.spec.seed
            )
        for reason, cells in sorted(where.items()):
            places = (
                f"{cell} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))})"
                for cell, seeds in sorted(cells.items())
            )
            lines.append(f"{word}: {'; '.join(places)}: {reason}")
    return lines + [f"Invalid file: {problem}" for problem in contents.problems]

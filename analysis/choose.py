"""Choosing a setting for each row on validation images: `python -m analysis.choose STUDY`.

A tuning study has the same rows at several values of a field of the recipe, the learning rate say. The rule is fixed:
the best mean of the metric on validation images after the last epoch; of equal means the smaller value. A value with
which a row diverged at any seed is out of that row's choice. It is the same for every row.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vitinit.analysis import command, frame
from vitinit.analysis.tables.notes import without_record
from vitinit.analysis.text import count, signed
from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.initializers.errors import VitinitError, os_errors

Value = tuple[Any, ...]
"""Values of the chosen fields, in their order."""


@dataclass(frozen=True)
class Candidate:
    """One value and what it came to, by seed."""

    value: Value
    scores: dict[int, float]
    """On validation images, in percent."""

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return sum(self.scores.values()) / len(self.scores)


@dataclass(frozen=True)
class Choice:
    """Best setting of a row."""

    row: str
    best: Candidate
    others: list[Candidate]
    """The runner-up first."""
    diverged: list[Value]
    """With these it diverged."""
    lower_is_better: bool = False
    """True for an error: of scores the lowest is best."""

    @property
    def lead(self) -> list[float]:
        """Best minus runner-up, by seed; empty where there is none."""
        if not self.others:
            return []
        other = self.others[0].scores
        return [score - other[seed] for seed, score in self.best.scores.items()]

    @property
    def ahead(self) -> int:
        """Seeds at which the best is ahead of the runner-up."""
        return sum(lead < 0 if self.lower_is_better else lead > 0 for lead in self.lead)

    @property
    def edge(self) -> str:
        """`smallest` or `largest` where the best value is that of those tried: one beyond might be better."""
        found: dict[str, None] = {}
        tried = [self.best.value, *(each.value for each in self.others), *self.diverged]
        for best, values in zip(self.best.value, map(set, zip(*tried, strict=True)), strict=True):
            if len(values) > 1 and all(isinstance(each, int | float) for each in values):  # words have no edge
                found |= {word: None for word, end in (("smallest", min), ("largest", max)) if end(values) == best}
        return " and ".join(found)


def choose(study: frame.Study) -> tuple[list[str], list[Choice]]:
    """The best value of each row of a tuning study.

    Returns:
        The fields of the recipe that are chosen, and the choice of each row in the order of the table, but for rows
        that were only skipped.

    Raises:
        VitinitError: the study was evaluated on test images, has runs that are not finished (other than by diverging),
            a row that diverged with every value, nothing to choose from, or several datasets.
    """
    study.require_runs()
    runs, failures = list(study.contents.done.values()), list(study.contents.failed.values())
    begun: list[RunRecord | FailureRecord] = [*runs, *failures]  # what failed everywhere was tried, too
    if any(run.spec.dataset.evaluate_on != "val" for run in begun):
        raise VitinitError(
            f"study {study.name!r} is evaluated on test images, and nothing is chosen on them: a tuning grid has "
            "datasets with `val_size` and `evaluate_on: val`"
        )
    if len({run.spec.dataset for run in begun}) > 1:
        raise VitinitError(f"study {study.name!r} holds several datasets; choose on one")
    rows = [row for row in study.rows if any(run.row == row for run in begun)]
    for row in rows:
        of_row = [run.spec.model_dump_json(include={"base", "method", "model"}) for run in begun if run.row == row]
        if len(set(of_row)) > 1:
            raise VitinitError(f"study {study.name!r}, row {row!r}: several models or initialisations; choose for one")
    fields = _varied(begun)
    if not fields:
        raise VitinitError(f"study {study.name!r} has one recipe a row: there is nothing to choose from")
    if "optimizer" in fields:  # a learning rate of one means nothing to another
        raise VitinitError(f"study {study.name!r}: runs of a row differ by optimizer; give each one rows of its own")

    def value_of(run: RunRecord | FailureRecord) -> Value:
        return tuple(getattr(run.spec.recipe, name) for name in fields)

    found: dict[str, dict[Value, dict[int, float]]] = {row: defaultdict(dict) for row in rows}
    for run in runs:
        found[run.row][value_of(run)][run.spec.seed] = run.score
    failed = {(each.row, value_of(each), each.spec.seed): each.error for each in failures}
    values = sorted({value_of(run) for run in begun}, key=_order)
    seeds = {run.spec.seed for run in begun}
    sign = 1 if study.lower_is_better else -1
    choices = []
    for row, by_value in found.items():
        diverged = {value for (of, value, _), error in failed.items() if of == row and error == "Diverged"}
        candidates = [Candidate(value, by_value[value]) for value in values if value not in diverged]
        for each in candidates:
            if missing := seeds - each.scores.keys():
                seed = min(missing, key=lambda seed: ((row, each.value, seed) not in failed, seed))
                why = failed.get((row, each.value, seed))
                where = f"{row}, {_written(fields, each.value)}, seed {seed}"
                state = f"has failed ({why})" if why else "is missing"
                raise VitinitError(f"study {study.name!r} is not finished, nothing is chosen: {where} {state}")
        if not candidates:
            raise VitinitError(f"study {study.name!r}: {row} diverged with every value, so none is chosen for it")
        candidates.sort(key=lambda each: (sign * round(each.mean, 9), _order(each.value)))
        best, *others = candidates
        choices.append(Choice(row, best, others, sorted(diverged, key=_order), study.lower_is_better))
    return fields, choices


def _varied(runs: Sequence[RunRecord | FailureRecord]) -> list[str]:
    """The fields of the recipe in which runs of one row differ."""
    by_row: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        by_row[run.row].append(run.spec.recipe.model_dump(mode="json"))
    return sorted(
        {name for recipes in by_row.values() for name in recipes[0] if len({json.dumps(r[name]) for r in recipes}) > 1}
    )


def _order(value: Value) -> list[tuple[int, float, str]]:
    """Return a sort key: what is off first, then numbers, then words."""
    return [
        (0, 0.0, "") if each is None else (1, each, "") if isinstance(each, int | float) else (2, 0.0, str(each))
        for each in value
    ]


def _written(fields: list[str], value: Value) -> str:
    texts = ["off" if each is None else f"{each:g}" if isinstance(each, float) else str(each) for each in value]
    return ", ".join(f"{name} {text}" for name, text in zip(fields, texts, strict=True))


def lines(study: frame.Study, fields: list[str], choices: list[Choice]) -> list[str]:
    """The answer for people, the choices first."""
    run = next(iter(study.contents.done.values()))
    images, n = run.dataset.val or 0, len(choices[0].best.scores)
    of = f"{images:,} validation images of {run.spec.dataset.name}"
    text = [f"Chosen on {of}, mean {study.measured} over {count(n, 'seed')}:"]
    width = max(len(choice.row) for choice in choices)
    for choice in choices:
        words = []
        if leads := choice.lead:
            over = _written(fields, choice.others[0].value)
            words.append(f"{signed(sum(leads) / n)} over {over}, ahead at {choice.ahead} of {count(n, 'seed')}")
        words += [f"the {choice.edge} tried"] if choice.edge else []
        words += [f"{_written(fields, value)} diverged" for value in choice.diverged]
        value = _written(fields, choice.best.value)
        text.append(f"  {choice.row:<{width}}  {value:<10} {choice.best.mean:6.2f}  {'; '.join(words)}".rstrip())
    text += _without_choice(study, choices)
    if run.metric == "top1":
        p = sum(choice.best.mean for choice in choices) / len(choices) / 100
        error = 100 * (p * (1 - p) / images) ** 0.5
        of = f"{error:.1f} points. A smaller lead decides nothing."
        text.append(f"Standard error of top-1 from the number of images: {of}")
    return text


def _without_choice(study: frame.Study, choices: list[Choice]) -> list[str]:
    """A line for each row that was only skipped, and for each row of the grid without any record."""
    reasons = {run.row: run.reason for run in study.contents.skipped.values()}
    skipped = [row for row in study.rows if row not in {choice.row for choice in choices}]
    return [
        *(f"Nothing is chosen for {row!r}: it was skipped: {reasons[row]}" for row in skipped),
        *(f"Nothing is chosen for {row!r}: the grid has it, and it has no record" for row in without_record(study)),
    ]


def filled(grid: Path, study: str, fields: list[str], choices: list[Choice]) -> str:
    """The text of a grid in which each row has the values chosen for it; its opening comment stays, no other does.

    Raises:
        VitinitError: it cannot be read, or has a row for which nothing was chosen.
    """
    with os_errors(f"cannot read {grid}"):
        content = grid.read_bytes()
    loaded = mapping(content, grid)
    chosen = {choice.row: dict(zip(fields, choice.best.value, strict=True)) for choice in choices}
    for label, row in (loaded.get("rows") or {}).items():
        if label not in chosen:
            raise VitinitError(
                f"{grid}, row {label!r}: nothing was chosen for it, as {study} has no finished run of it (where that "
                f"grid has the row: vitinit run {shlex.quote(study)}); chosen for: {', '.join(map(repr, chosen))}"
            )
        recipe = row.get("recipe") or {}
        if not isinstance(recipe, dict):
            raise VitinitError(f"{grid}, row {label!r}: recipe must be a mapping of its fields, not {recipe!r}")
        row["recipe"] = {**recipe, **chosen[label]}
    head = itertools.takewhile(lambda line: line.startswith("#"), content.decode().splitlines())
    body = yaml.safe_dump(loaded, sort_keys=False, allow_unicode=True, width=200)
    return "\n".join([*head, body])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m vitinit.analysis.choose",
        description="Choose a setting for each row on validation images, and write it into a grid.",
    )
    parser.add_argument("study", metavar="STUDY", help="a tuning study: rows at several values, evaluated on val")
    command.takes_results(parser)
    parser.add_argument("--grid", type=Path, metavar="FILE", help="a grid with the same rows, to fill in")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the grid (default: print it)")
    args = parser.parse_args(arguments)
    return command.guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    if args.out and not args.grid:
        raise VitinitError("--out is where --grid is written to: name that too")
    study = frame.load(args.results, args.study)
    fields, choices = choose(study)
    command.say(lines(study, fields, choices))
    if args.grid:
        text = filled(args.grid, study.name, fields, choices)
        if args.out:
            command.write(args.out, text)
            command.say([f"wrote {args.out}"])
        else:
            print(text)


if __name__ == "__main__":
    sys.exit(main())

"""Standing of one method: `python -m analysis.standing STUDY`, which `vitinit rank` calls when its runs are done.

A gain is claimed where the sign-flip test says so, corrected by Holm over the two comparisons: with the method's own
base, and with its placebo.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.analysis import command, frame
from vitinit.analysis.tables.render import template
from vitinit.analysis.tables.shared import LEVEL, own_bases, values_by_seed
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import pandas as pd

    from vitinit.analysis.stats import Paired
    from vitinit.benchmark.records.record import RunRecord


@dataclass(frozen=True)
class Standing:
    """A method against its base and its placebo."""

    row: str
    scores: pd.Series[float]
    """By seed, in percent."""
    base: Paired
    placebo: Paired | None
    """None: a placebo of it would say nothing, or has no finished run of a seed of it."""
    p: tuple[float, ...]
    """p of the one or two comparisons that the study names, corrected."""
    least_p: tuple[float, ...]
    """Lowest p that each of these could have with so many seeds."""

    @property
    def pairs(self) -> list[tuple[Paired, str]]:
        """The comparisons."""
        return [(self.base, "its base"), *([(self.placebo, "its placebo")] if self.placebo else [])]

    def claimed(self, which: int) -> bool:
        """Return True if the difference to the base (0) or the placebo (1) is a gain."""
        return self.p[which] < LEVEL and self.pairs[which][0].mean > 0

    @property
    def verdict(self) -> str:
        """The answer in one sentence or two, by the template `verdict.txt.j2`."""
        return template("verdict.txt.j2", found=self, level=LEVEL).strip()


@dataclass(frozen=True)
class Machines:
    """Machines that carried out the runs of a study and of those beside it."""

    here: list[str]
    there: list[str]
    mixed: dict[str, list[int]]
    """Seeds whose runs come from more than one machine or library, by study."""

    @property
    def elsewhere(self) -> bool:
        """True where the two differ."""
        return bool(self.there) and self.here != self.there


def standing(study: frame.Study) -> Standing:
    """Return the standing of the row whose contrasts with its base and any placebo the study names.

    Raises:
        VitinitError: the study names no such contrasts, or has no finished runs of them.
    """
    from vitinit.analysis.stats import holm, paired

    study.require_runs()
    if len(study.contrasts) not in (1, 2) or len({ours for ours, _ in study.contrasts}) > 1:
        raise VitinitError(
            f"study {study.name!r} does not compare one row with its base and its placebo (vitinit rank)"
        )
    values, (column,) = values_by_seed(study, "last"), study.columns[:1]
    row = study.contrasts[0][0]
    found = []
    for ours, theirs in study.contrasts:
        pair = None
        if (ours, column) in values and (theirs, column) in values:
            pair = paired(values[ours, column], values[theirs, column])
        found.append(pair)
    base, *placebos = found
    if base is None:
        both = " and ".join(study.contrasts[0])
        why = "".join(f"; {failure}" for failure in _failures(study))
        raise VitinitError(f"study {study.name!r}: {both} have no finished run of a common seed{why}")
    corrected = holm([1.0 if pair is None or pair.p is None else pair.p for pair in found])
    least = holm([1.0 if pair is None else pair.least_p for pair in found])
    return Standing(row, values[row, column], base, placebos[0] if placebos else None, tuple(corrected), tuple(least))


def lines(found: Standing, study: frame.Study, beside: frame.Study | None, more: str | None = None) -> list[str]:
    """Return all that is printed, the answer first, by the template `standing.txt.j2`."""
    from vitinit.analysis.stats import could_claim

    beside = beside if beside and beside.contents.done else None
    last, least = list(zip(found.pairs, found.least_p, strict=False))[-1]
    versions: dict[str, set[str]] = defaultdict(set)
    for run in study.contents.done.values():
        for name, source in run.sources.items():
            versions[name].add(source)
    return template(
        "standing.txt.j2",
        found=found,
        study=study,
        beside=beside,
        more=more,
        level=LEVEL,
        failures=_failures(study),
        changed={name: len(its) for name, its in sorted(versions.items()) if len(its) > 1},
        claimable=could_claim(last[0], LEVEL / len(found.p)) if least < LEVEL else None,
        base=study.examples[found.row, None].base.name,
        gains=_among(found, study, beside) if beside else [],
        machines=_machines(study, beside),
        failed=sum(run.row == found.row for run in study.contents.failed.values()),
    ).splitlines()


def _failures(study: frame.Study) -> list[str]:
    """Say of each row that failed how, and at which seeds."""
    failed: dict[tuple[str, str], list[int]] = defaultdict(list)
    for failure in study.contents.failed.values():
        failed[failure.row, failure.error].append(failure.spec.seed)
    return [
        template("failure.txt.j2", row=row, error=error, seeds=sorted(seeds)).strip()
        for (row, error), seeds in sorted(failed.items())
    ]


def _among(found: Standing, study: frame.Study, beside: frame.Study) -> list[tuple[float, str]]:
    """Gains over the same base of the methods that were recorded in the same setting, the best first.

    A gain over a weaker base is larger for that alone, so gains over different bases are not put in one list.
    """
    from vitinit.analysis.stats import paired

    ours = study.examples[found.row, None]
    values, (column,) = values_by_seed(beside, "last"), beside.columns[:1]
    gains = [
        (pair.mean, f"{row} (n = {pair.n})")
        for row, base in own_bases(beside).items()
        if (theirs := beside.examples[row, None]).method and theirs.method.name != "placebo"
        if (theirs.model, theirs.recipe, theirs.base) == (ours.model, ours.recipe, ours.base)
        if (row, column) in values and (base, column) in values
        if (pair := paired(values[row, column], values[base, column]))
    ]
    own = [(found.base.mean, f"> {found.row} (n = {found.base.n})")] if gains else []
    return sorted([*gains, *own], key=lambda each: -each[0])


def _libraries(run: RunRecord) -> dict[str, str]:
    """Versions by name; our own says nothing that the hash of an initialiser's file does not."""
    return {name: version for name, version in run.environment.get("packages", {}).items() if name != "vitinit"}


def _machines(study: frame.Study, beside: frame.Study | None) -> Machines:
    runs = [run for one in (study, beside) if one for run in one.contents.done.values()]
    versions: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for name, version in _libraries(run).items():
            versions[name].add(version)
    named = ["torch", *sorted(name for name, known in versions.items() if len(known) > 1 and name != "torch")]

    def facts(one: frame.Study) -> dict[int, set[str]]:
        found: dict[int, set[str]] = defaultdict(set)
        for run in one.contents.done.values():
            on = run.environment.get("gpu") or run.environment.get("processor")
            its = _libraries(run)
            found[run.spec.seed].add(", ".join([str(on), *(f"{name} {its[name]}" for name in named if name in its)]))
        return found

    by_seed = {one.name: facts(one) for one in (study, beside) if one}
    mixed = {name: sorted(seed for seed, on in found.items() if len(on) > 1) for name, found in by_seed.items()}
    here, there = (sorted(set().union(*facts(one).values())) if one else [] for one in (study, beside))
    return Machines(here, there, {name: seeds for name, seeds in mixed.items() if seeds})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m vitinit.analysis.standing", description="Where a ranked method stands."
    )
    parser.add_argument("study", metavar="STUDY", help="of vitinit rank")
    command.takes_results(parser)
    parser.add_argument("--beside", type=Path, metavar="DIR", help="folder of the study to stand beside")
    parser.add_argument("--more", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    return command.guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    study = frame.load(args.results, args.study)
    beside = frame.load([args.beside.parent], args.beside.name) if args.beside and args.beside.is_dir() else None
    command.say(lines(standing(study), study, beside, args.more))


if __name__ == "__main__":
    sys.exit(main())

"""Standing of one method: `python -m analysis.standing STUDY`, which `vitinit rank` calls when its runs are done.

It takes the looks that `benchmark/records/looks.py` plans, as soon as their runs are recorded, and writes them down: a
look is taken once, and no answer changes afterwards.
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
from vitinit.analysis.gains import gain
from vitinit.analysis.tables.render import interval_text, template
from vitinit.analysis.tables.shared import own_bases, values_by_seed
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import DETECTABLE, Comparison, Look, Looks
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import pandas as pd

    from vitinit.analysis.stats import Floats, Interval
    from vitinit.benchmark.records.record import RunRecord


@dataclass(frozen=True)
class Standing:
    """A method against its base and its placebo."""

    row: str
    scores: pd.Series[float]
    """By seed, in percent: those of the last look."""
    recorded: int
    """Seeds, from the first on, of which every row has a finished run."""
    looks: Looks

    @property
    def last(self) -> Look | None:
        """The last look that was taken."""
        return self.looks.taken[-1] if self.looks.taken else None

    @property
    def comparisons(self) -> list[tuple[Comparison, str]]:
        """The differences at the last look."""
        if not self.last:
            return []
        return [(self.last.base, "its base"), *([(self.last.placebo, "its placebo")] if self.last.placebo else [])]

    @property
    def verdict(self) -> str:
        """The answer in one sentence, by the template `verdict.txt.j2`."""
        return template("verdict.txt.j2", found=self, last=self.last, target=self.looks.target).strip()


@dataclass(frozen=True)
class GainLine:
    """One line of the list of gains over the same base."""

    points: float
    interval: str
    label: str
    n: int
    study: str


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


def compare(d: Floats, level: float, worth: float, earlier: Comparison | None = None) -> Comparison:
    """Judge one difference by seed: a gain or loss that was shown stays so, and so does an excluded gain.

    Args:
        d: The differences, one per seed; a gain is positive, in an error too.
        level: What p must not exceed.
        worth: Smallest gain worth having.
        earlier: The same comparison at the look before.
    """
    from vitinit.analysis.stats import sign_flip_p, t_interval

    interval, p, gain = t_interval(d), sign_flip_p(d), float(d.mean())
    assert interval, "a look has at least three seeds"
    says: str = "open"
    if earlier and earlier.says != "open":
        says = earlier.says
    elif p <= level:
        says = "gain" if gain > 0 else "loss"
    elif interval.high < worth:
        says = "excluded"
    return Comparison.model_validate({"gain": gain, "low": interval.low, "high": interval.high, "p": p, "says": says})


def standing(study: frame.Study, plan: Looks) -> Standing:
    """Take every planned look that the records allow and that is still open.

    Raises:
        VitinitError: the study does not compare one row with its base and its placebo.
    """
    if len(study.contrasts) not in (1, 2) or len({ours for ours, _ in study.contrasts}) > 1:
        raise VitinitError(
            f"study {study.name!r} does not compare one row with its base and its placebo (vitinit rank)"
        )
    row = study.contrasts[0][0]
    rows = [row, *(theirs for _, theirs in study.contrasts)]
    by_row = _scores(study, rows)
    recorded = next((i for i, seed in enumerate(plan.seeds) if any(seed not in its.index for its in by_row)), None)
    recorded = len(plan.seeds) if recorded is None else recorded
    sign = -1 if study.lower_is_better else 1
    while (target := plan.target) and target <= recorded:
        level, before = plan.plan[len(plan.taken)][1], plan.taken[-1] if plan.taken else None
        ours, *others = (its.loc[plan.seeds[:target]].to_numpy(dtype=float) for its in by_row)
        earlier = (before.base, before.placebo) if before else (None, None)
        found = [
            compare(sign * (ours - its), level, plan.worth, same)
            for its, same in zip(others, earlier[: len(others)], strict=True)
        ]
        look = Look(n=target, base=found[0], placebo=found[1] if found[1:] else None)
        plan = plan.model_copy(update={"taken": [*plan.taken, look]})
    n = plan.taken[-1].n if plan.taken else 0
    scores = by_row[0].reindex(plan.seeds[:n])
    return Standing(row, scores, recorded, plan)


def _scores(study: frame.Study, rows: Sequence[str]) -> list[pd.Series[float]]:
    """Return what the finished runs of each row are measured at, by seed; empty where it has none."""
    import pandas as pd

    values = values_by_seed(study, "last") if study.contents.done else {}
    return [values.get((row, study.columns[0]), pd.Series(dtype=float)) for row in rows]


def lines(found: Standing, study: frame.Study, beside: Sequence[frame.Study], more: str | None = None) -> list[str]:
    """Return all that is printed, the answer first, by the template `standing.txt.j2`."""
    beside = [one for one in beside if one.contents.done] if found.last else []
    versions: dict[str, set[str]] = defaultdict(set)
    for run in study.contents.done.values():
        for name, source in run.sources.items():
            versions[name].add(source)
    among = [each for one in beside for each in _among(found, study, one)]
    last, n = found.last, found.last.n if found.last else 0
    own = [GainLine(last.base.gain, _brackets(last.base), f"> {found.row}", n, study.name)] if last else []
    return template(
        "standing.txt.j2",
        found=found,
        study=study,
        more=more,
        failures=_failures(study),
        others=_other_versions(study),
        changed={name: len(its) for name, its in sorted(versions.items()) if len(its) > 1},
        detectable=[DETECTABLE * _std(each, n) for each, _ in found.comparisons],
        base=study.examples[found.row, None].base.name if last else "",
        beside=beside,
        gains=sorted([*among, *own], key=lambda each: -each.points) if among else [],
        settings=[text for one in beside if (text := _setting(found, study, one))] if among else [],
        machines=_machines(study, beside),
    ).splitlines()


def _std(comparison: Comparison, n: int) -> float:
    """Return the standard deviation of the differences, from their interval."""
    from scipy.special import stdtrit

    return (comparison.high - comparison.low) / 2 / float(stdtrit(n - 1, 0.975)) * float(n**0.5)


def _brackets(between: Comparison | Interval | None) -> str:
    from vitinit.analysis.stats import Interval

    return interval_text(Interval(between.low, between.high)) if between else ""


def _other_versions(study: frame.Study) -> int:
    """Count the other studies that rank a row of this name here: earlier versions of a method, on the same seeds."""
    stem = study.name.rpartition("-")[0]
    return len({path.stem for folder in study.folders for path in folder.glob(f"{stem}-????????.yaml")} - {study.name})


def _failures(study: frame.Study) -> list[str]:
    """Say of each row that failed how, and at which seeds."""
    failed: dict[tuple[str, str], list[int]] = defaultdict(list)
    for failure in study.contents.failed.values():
        failed[failure.row, failure.error].append(failure.spec.seed)
    return [
        f"{row} failed at seed{'s' if seeds[1:] else ''} {', '.join(map(str, sorted(seeds)))} ({error})"
        for (row, error), seeds in sorted(failed.items())
    ]


def _among(found: Standing, study: frame.Study, beside: frame.Study) -> list[GainLine]:
    """Gains over the same base of the methods recorded with this model and recipe, whatever their learning rate.

    A gain over a weaker base is larger for that alone, so gains over different bases are not put in one list.
    """
    ours = study.examples[found.row, None]
    return [
        GainLine(over.mean, _brackets(over.interval), row, over.n, beside.name)
        for row, base in own_bases(beside).items()
        if (theirs := beside.examples[row, None]).method and theirs.method.name != "placebo"
        if (theirs.model, theirs.base) == (ours.model, ours.base)
        if theirs.recipe.model_copy(update={"lr": ours.recipe.lr}) == ours.recipe
        if beside.examples[base, None].recipe == theirs.recipe
        if (over := gain(beside, row, base))
    ]


def _setting(found: Standing, study: frame.Study, beside: frame.Study) -> str:
    """Say what else than the initialisation differs between a study and one beside it; empty where nothing does."""
    ours, theirs = study.examples[found.row, None], next(iter(beside.examples.values()))
    fields = {"lr": (ours.recipe.lr, theirs.recipe.lr)}
    fields |= {name: (value, getattr(theirs.dataset, name)) for name, value in ours.dataset}
    return ", ".join(f"{name} {its} (here {own})" for name, (own, its) in fields.items() if own != its)


def _libraries(run: RunRecord) -> dict[str, str]:
    """Versions by name; our own says nothing that the hash of an initialiser's file does not."""
    return {name: version for name, version in run.environment.get("packages", {}).items() if name != "vitinit"}


def _machines(study: frame.Study, beside: Sequence[frame.Study]) -> Machines:
    studies = [study, *beside]
    runs = [run for one in studies for run in one.contents.done.values()]
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

    by_seed = {one.name: facts(one) for one in studies}
    mixed = {name: sorted(seed for seed, on in found.items() if len(on) > 1) for name, found in by_seed.items()}
    here = sorted(set().union(*facts(study).values()))
    there = sorted({on for one in beside for its in facts(one).values() for on in its})
    return Machines(here, there, {name: seeds for name, seeds in mixed.items() if seeds})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m vitinit.analysis.standing", description="Where a ranked method stands."
    )
    parser.add_argument("study", metavar="STUDY", help="of vitinit rank")
    command.takes_results(parser)
    parser.add_argument("--beside", type=Path, nargs="*", default=[], metavar="DIR", help="studies to stand beside")
    parser.add_argument("--brief", action="store_true", help="the verdict alone")
    parser.add_argument("--more", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    return command.guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    study = frame.load(args.results, args.study)
    folder = study.folders[0] / study.name
    if (plan := looks.read(folder)) is None:
        raise VitinitError(f"{folder}: holds no {looks.LOOKS}, the plan that vitinit rank writes before its first run")
    found = standing(study, plan)
    if found.looks != plan:
        looks.write(folder, found.looks)
    beside = [frame.load([one.parent], one.name) for one in args.beside if one.is_dir()]
    command.say([f"{found.row}: {found.verdict}"] if args.brief else lines(found, study, beside, args.more))


if __name__ == "__main__":
    sys.exit(main())

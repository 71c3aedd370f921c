"""Standing of one method: `python -m analysis.standing STUDY`, which `vitinit rank` calls when its runs are done.

It takes the looks that `benchmark/records/looks.py` plans, as soon as their runs are recorded, and writes them down: a
look is taken once, and no answer changes afterwards.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vitinit.analysis import command, frame
from vitinit.analysis.gains import gain, written
from vitinit.analysis.stats import Interval, sign_flip_p, t_interval
from vitinit.analysis.tables.render import template
from vitinit.analysis.tables.shared import own_bases
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import DETECTABLE, Comparison, Look, Looks
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from vitinit.analysis.stats import Floats


@dataclass(frozen=True)
class Standing:
    """A method against its base and its placebo."""

    row: str
    recorded: int
    """Seeds, from the first on, of which every row has a finished run."""
    looks: Looks

    @property
    def last(self) -> Look | None:
        """The last look that was taken."""
        return self.looks.taken[-1] if self.looks.taken else None

    @property
    def verdict(self) -> str:
        """The answer in one sentence, by the template `verdict.txt.j2`."""
        return template("verdict.txt.j2", found=self, last=self.last, target=self.looks.target).strip()


class GainLine(NamedTuple):
    """One line of the list of gains over the same base."""

    points: float
    text: str
    """The gain with its interval."""
    label: str
    n: int
    study: str


def compare(d: Floats, level: float, worth: float, earlier: Comparison | None = None) -> Comparison:
    """Judge one difference by seed: a gain or loss that was shown stays so, and so does an excluded gain.

    Args:
        d: The differences, one per seed; a gain is positive, in an error too.
        level: What p must not exceed.
        worth: Smallest gain worth having.
        earlier: The same comparison at the look before.
    """
    interval, p, points = t_interval(d), sign_flip_p(d), float(d.mean())
    assert interval, "a look has at least three seeds"
    says: str = "open"
    if earlier and earlier.says != "open":
        says = earlier.says
    elif p <= level:
        says = "gain" if points > 0 else "loss"
    elif interval.high < worth:
        says = "excluded"
    return Comparison.model_validate({"gain": points, "low": interval.low, "high": interval.high, "p": p, "says": says})


def standing(study: frame.Study, plan: Looks) -> Standing:
    """Take every planned look that the records allow and that is still open.

    Raises:
        VitinitError: the study does not compare one row with its base and its placebo.
    """
    if len(study.contrasts) not in (1, 2) or len({ours for ours, _ in study.contrasts}) > 1:
        raise VitinitError(
            f"study {study.name!r} does not compare one row with its base and its placebo (vitinit rank)"
        )
    row, recorded = study.contrasts[0][0], 0
    if study.contents.done:
        scores = study.runs.pivot(index="seed", columns="row", values="score")
        scores = scores.reindex(index=plan.seeds, columns=[row, *(theirs for _, theirs in study.contrasts)])
        recorded = int(scores.notna().all(axis=1).cumprod().sum())
    while (target := plan.target) and target <= recorded:
        level, before = plan.plan[len(plan.taken)][1], plan.taken[-1] if plan.taken else None
        ours, *others = ((-1 if study.lower_is_better else 1) * scores.iloc[:target].to_numpy(dtype=float)).T
        earlier = (before.base, before.placebo) if before else (None, None)
        pairs = zip(others, earlier, strict=False)
        base, *placebo = [compare(ours - theirs, level, plan.worth, same) for theirs, same in pairs]
        look = Look(n=target, base=base, placebo=placebo[0] if placebo else None)
        plan = plan.model_copy(update={"taken": [*plan.taken, look]})
    return Standing(row, recorded, plan)


def lines(found: Standing, study: frame.Study, beside: Iterable[frame.Study], more: str | None = None) -> list[str]:
    """Return all that is printed, the answer first, by the template `standing.txt.j2`."""
    last, beside = found.last, [one for one in beside if one.contents.done]
    versions, failed = defaultdict[str, set[str]](set), defaultdict[tuple[str, str], list[int]](list)
    for run in study.contents.done.values():
        for name, source in run.sources.items():
            versions[name].add(source)
    for failure in study.contents.failed.values():
        failed[failure.row, failure.error].append(failure.spec.seed)
    stem = study.name.rpartition("-")[0]  # the same method, or an earlier version of it, on the same seeds
    named = {path.stem for folder in study.folders for path in folder.glob(f"{stem}-????????.yaml")}
    compared, gains = [], []
    if last:
        both = ((last.base, "its base"), (last.placebo, "its placebo"))
        compared = [(each, _text(each), DETECTABLE * _std(each, last.n), name) for each, name in both if each]
        among = [each for one in beside for each in _among(found, study, one)]
        own = GainLine(last.base.gain, _text(last.base), f"> {found.row}", last.n, study.name)
        gains = sorted([*among, own], key=lambda each: -each.points) if among else []
    return template(
        "standing.txt.j2",
        found=found,
        study=study,
        more=more,
        failed={where: sorted(seeds) for where, seeds in sorted(failed.items())},
        others=len(named - {study.name}),
        changed={name: len(its) for name, its in sorted(versions.items()) if len(its) > 1},
        compared=compared,
        base=study.examples[found.row, None].base.name if last else "",
        beside=beside,
        gains=gains,
        settings=[text for one in beside if (text := _setting(found, study, one))],
        rate=study.examples[found.row, None].recipe.lr if last else None,
        rates=_other_rates(found, study, beside) if last else [],
        here=_machines([study]),
        there=_machines(beside),
    ).splitlines()


def _text(between: Comparison) -> str:
    return written(between.gain, Interval(between.low, between.high))


def _std(comparison: Comparison, n: int) -> float:
    """Return the standard deviation of the differences, from their interval."""
    from scipy.special import stdtrit

    return (comparison.high - comparison.low) / 2 / float(stdtrit(n - 1, 0.975)) * float(n**0.5)


def _among(found: Standing, study: frame.Study, beside: frame.Study) -> list[GainLine]:
    """Gains over the same base of the methods recorded with this model and recipe.

    A gain over a weaker base is larger for that alone, so gains over other bases, and of runs at another learning rate,
    are not put in one list.
    """
    ours = study.examples[found.row, None]
    return [
        GainLine(over.mean, written(over.mean, over.interval), row, over.n, beside.name)
        for row, base in own_bases(beside).items()
        if (theirs := beside.examples[row, None]).method and theirs.method.name != "placebo"
        if (theirs.model, theirs.base) == (ours.model, ours.base)
        if theirs.recipe == beside.examples[base, None].recipe == ours.recipe
        if (over := gain(beside, row, base)) and over.interval
    ]


def _setting(found: Standing, study: frame.Study, beside: frame.Study) -> str:
    """Say how the images of a study beside this one differ; empty where they do not."""
    ours, theirs = study.examples[found.row, None].dataset, next(iter(beside.examples.values())).dataset
    fields = {name: (value, getattr(theirs, name)) for name, value in ours}
    return ", ".join(f"{name} {its} (here {own})" for name, (own, its) in fields.items() if own != its)


def _other_rates(found: Standing, study: frame.Study, beside: Iterable[frame.Study]) -> list[float]:
    """Return the learning rates at which this model and base were recorded beside, but for the study's own."""
    ours = study.examples[found.row, None]
    specs = [
        spec for one in beside for spec in one.examples.values() if (spec.model, spec.base) == (ours.model, ours.base)
    ]
    return sorted({spec.recipe.lr for spec in specs} - {ours.recipe.lr})


def _machines(studies: Iterable[frame.Study]) -> list[str]:
    """Return the machines, and their versions of torch, that runs come from."""
    environments = [run.environment for study in studies for run in study.contents.done.values()]
    return sorted(
        {
            f"{its.get('gpu') or its.get('processor')}, torch {its.get('packages', {}).get('torch')}"
            for its in environments
        }
    )


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

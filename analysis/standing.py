"""Standing of one method: `python -m analysis.standing STUDY`, which `vitinit rank` calls when its runs are done.

It takes the looks that `benchmark/records/looks.py` plans, as soon as their runs are recorded, and writes them down: a
look is taken once, and no answer changes afterwards.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from scipy.special import stdtrit

from vitinit.analysis import board, command, comparison, frame, stats
from vitinit.analysis.tables.render import template
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import DETECTABLE, Comparison, Look, Looks
from vitinit.initializers.errors import VitinitError


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
        return template("verdict.txt.j2", standing=self, last=self.last, target=self.looks.target).strip()


def judge(difference: comparison.Comparison, level: float, worth: float, earlier: Comparison | None) -> Comparison:
    """Judge one difference at a look: a gain or loss that was shown stays so, and so does an excluded gain.

    Args:
        difference: The difference over the seeds of the look.
        level: What p must not exceed; the looks alone correct it.
        worth: Smallest gain worth having.
        earlier: The same comparison at the look before.
    """
    p = stats.sign_flip_p(difference.by_seed)
    says = "open"
    if earlier and earlier.says != "open":
        says = earlier.says
    elif p <= level and not difference.low <= 0 <= difference.high:
        says = "gain" if difference.mean > 0 else "loss"
    elif difference.high < worth:
        says = "excluded"
    return Comparison.model_validate(
        {"gain": difference.mean, "low": difference.low, "high": difference.high, "p": p, "says": says}
    )


def standing(study: frame.Study, plan: Looks) -> Standing:
    """Take every planned look that the records allow and that is still open.

    Raises:
        VitinitError: the study does not say which rows are compared.
    """
    pairs = list(study.pairs.values())
    if not pairs:
        raise VitinitError(
            f"study {study.name!r} does not compare one row with its base and its placebo (vitinit rank)"
        )
    rows = [pairs[0][0], *(theirs for _, theirs in pairs)]
    finished = {(run.row, run.spec.seed) for run in study.contents.done.values()}
    recorded = len(list(itertools.takewhile(lambda seed: all((row, seed) in finished for row in rows), plan.seeds)))
    while (target := plan.target) and target <= recorded:
        level, before = plan.plan[len(plan.taken)][1], plan.taken[-1] if plan.taken else None
        judged, seeds = {}, plan.seeds[:target]
        for name, pair in zip(("base", "placebo"), pairs, strict=False):
            difference = comparison.compare(study, pair, study.columns[0], seeds=seeds)
            assert difference, "every row has a run at these seeds"
            judged[name] = judge(difference, level, plan.worth, getattr(before, name, None))
        plan = plan.model_copy(update={"taken": [*plan.taken, Look(n=target, **judged)]})
    return Standing(rows[0], recorded, plan)


def lines(standing: Standing, study: frame.Study, beside: Iterable[frame.Study]) -> list[str]:
    """Return all that is printed, the answer first, by the template `standing.txt.j2`.

    Gains of other methods are those with the same base, model, recipe and images.
    """

    def setting(study: frame.Study, row: str) -> str:
        return study.examples[row, None].model_dump_json(include={"base", "model", "recipe", "dataset"})

    sources = {source for run in study.contents.done.values() for source in run.sources.items()}
    stem = study.name.rpartition("-")[0]  # the same method, or an earlier version of it, on the same seeds
    named = {path.stem for folder in study.folders for path in folder.glob(f"{stem}-????????.yaml")}
    gains, last = [], standing.last
    for other in beside if last else ():
        for entry in board.catalogue(other) if other.contents.done else ():
            settings = {setting(other, entry.name), setting(other, entry.base)}
            if settings == {setting(study, standing.row)} and other.examples[entry.name, None].method:
                gains.append(entry)
    if last:
        gains.append(board.ranked(study, last)._replace(name=f"> {standing.row}"))
    return study.note(
        "standing",
        standing=standing,
        last=last,
        others=len(named - {study.name}),
        versions=Counter(name for name, _ in sources),
        written=board.at_look,
        detectable=_detectable,
        gains=sorted(gains, key=lambda entry: -entry.low),
    )


def _detectable(comparison: Comparison, n: int) -> float:
    """Return the gain that four of five such studies find, from the interval of the one that was found."""
    return DETECTABLE * (comparison.high - comparison.low) / 2 / float(stdtrit(n - 1, 0.975)) * float(n**0.5)


def run(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="A study of vitinit rank.")],
    results: command.ResultsOption = None,
    beside: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Study to stand beside; may be repeated.")
    ] = None,
) -> None:
    """Print where a ranked method stands."""
    study = frame.load(results, name)
    folder = study.folders[0] / study.name
    if (plan := looks.read(folder)) is None:
        raise VitinitError(f"{folder}: holds no {looks.LOOKS}, the plan that vitinit rank writes before its first run")
    result = standing(study, plan)
    if result.looks != plan:
        looks.write(folder, result.looks)
    others = [frame.load([other.parent], other.name) for other in beside or () if other.is_dir()]
    command.say(lines(result, study, others))


main = command.main_of(run, __name__)

"""Choosing a setting for each row on validation images: `python -m analysis.choose STUDY`.

A tuning study has the same rows at several values of a field of the recipe, the learning rate say. The rule is fixed:
the best mean of the metric on validation images after the last epoch; of equal means the smaller value. A value with
which a row diverged at any seed is out of that row's choice. It is the same for every row.
"""

from statistics import fmean
from typing import Annotated, Any, NamedTuple

import typer

from vitinit.analysis import command, frame
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.initializers.errors import VitinitError

Value = tuple[Any, ...]
"""Values of the chosen fields, in their order."""


class Candidate(NamedTuple):
    """One value and what it came to, by seed."""

    value: Value
    scores: dict[int, float]
    """On validation images, in percent."""
    mean: float
    """Over the seeds."""


class Choice(NamedTuple):
    """Best setting of a row."""

    row: str
    best: Candidate
    others: list[Candidate]
    """The runner-up first."""
    diverged: list[Value]
    """With these it diverged."""
    lead: list[float]
    """By how much the best is better than the runner-up, by seed; empty where there is none."""

    @property
    def edge(self) -> str:
        """`smallest` or `largest` where the best value is that of those tried: one beyond might be better."""
        edges = set[str]()
        others = [*(candidate.value for candidate in self.others), *self.diverged]
        for best, *values in zip(self.best.value, *others, strict=True):
            if set(values) - {best} and all(isinstance(value, int | float) for value in (best, *values)):
                if best <= min(values):
                    edges.add("smallest")
                elif best >= max(values):
                    edges.add("largest")
        return " and ".join(sorted(edges, reverse=True))


def order(value: Value) -> list[Any]:
    """Return a key to sort values by: what is off first, then numbers, then words."""
    return [(field is not None, isinstance(field, str), field) for field in value]


def choose(study: frame.Study) -> tuple[list[str], list[Choice]]:
    """Choose the best value of each row of a tuning study.

    Returns:
        The fields of the recipe that are chosen, and the choice of each row in the order of the table, but for rows
        that were only skipped.

    Raises:
        VitinitError: the study was evaluated on test images, has runs that are not finished (other than by diverging),
            a row that diverged with every value or of several models or datasets, or nothing to choose from.
    """
    study.require_runs()
    begun: list[RunRecord | FailureRecord] = [*study.contents.done.values(), *study.contents.failed.values()]
    specs = {row: row_specs for row in study.rows if (row_specs := [run.spec for run in begun if run.row == row])}
    if any(run.spec.dataset.evaluate_on != "val" for run in begun):
        raise VitinitError(
            f"study {study.name!r} is evaluated on test images, and nothing is chosen on them: a tuning grid has "
            "datasets with `val_size` and `evaluate_on: val`"
        )
    varied = set[str]()
    for row, row_specs in specs.items():
        if len({spec.model_dump_json(exclude={"recipe", "seed"}) for spec in row_specs}) > 1:
            raise VitinitError(f"study {study.name!r}, row {row!r}: several datasets, models or initialisations")
        varied |= {
            name for spec in row_specs for name, value in spec.recipe if value != getattr(row_specs[0].recipe, name)
        }
    if not varied:
        raise VitinitError(f"study {study.name!r} has one recipe a row: there is nothing to choose from")
    if "optimizer" in varied:  # a learning rate of one means nothing to another
        raise VitinitError(f"study {study.name!r}: runs of a row differ by optimizer; give each one rows of its own")
    fields = sorted(varied)
    outcomes: dict[tuple[str, Value, int], Any] = {}
    for run in begun:
        given = run.spec.recipe.model_dump(mode="json")
        value = tuple(
            given[name] if isinstance(given[name], int | float | None) else str(given[name]) for name in fields
        )
        outcomes[run.row, value, run.spec.seed] = run.score if isinstance(run, RunRecord) else run.error
    tried = sorted({value for _, value, _ in outcomes}, key=order)
    choices, sign, seeds = [], 1 if study.lower_is_better else -1, sorted({seed for *_, seed in outcomes})
    for row in specs:
        candidates, diverged = [], []
        for value in tried:
            scores = {seed: outcomes.get((row, value, seed), "no record") for seed in seeds}
            if "Diverged" in scores.values():
                diverged.append(value)
                continue
            for seed, score in scores.items():
                if isinstance(score, str):
                    texts = ", ".join(f"{name} {x}" for name, x in zip(fields, value, strict=True))
                    raise VitinitError(
                        f"study {study.name!r} is not finished, nothing is chosen: {row}, {texts}, seed {seed}: {score}"
                    )
            candidates.append(Candidate(value, scores, fmean(scores.values())))
        if not candidates:
            raise VitinitError(f"study {study.name!r}: {row} diverged with every value, so none is chosen for it")
        candidates.sort(key=lambda candidate: sign * round(candidate.mean, 9))  # of equals the first stays first
        best, *others = candidates
        lead = [sign * (other.scores[seed] - score) for other in others[:1] for seed, score in best.scores.items()]
        choices.append(Choice(row, best, others, diverged, lead))
    return fields, choices


def lines(study: frame.Study) -> list[str]:
    """Choose, and return the answer for people, the choices first, by the template `choice.txt.j2`."""
    fields, choices = choose(study)
    return [line.rstrip() for line in study.note("choice", fields=fields, choices=choices)]


def run(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="A tuning study: rows at several values, evaluated on val.")
    ],
    results: command.ResultsOption = None,
) -> None:
    """Choose a setting for each row of a tuning study on validation images."""
    command.say(lines(frame.load(results, study)))


main = command.main_of(run, __name__)

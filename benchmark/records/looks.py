"""Planned looks at a ranked method, beside its records: the rule before the first run, then what each look found.

The rule of `vitinit rank`, version 1, is group-sequential with two looks. A comparison, by seed, is shown at 8 seeds
where all differences have one sign (sign-flip p = 2/256), else at 12 seeds where p <= 0.042. The placebo counts only
where the difference to the base is shown: this order keeps the error of the family, and neither comparison pays for it.

Error, for every distribution that is symmetric about 0: of the 4,096 sign patterns of 12 differences, 32 have one sign
in the first 8, at most 172 have p <= 0.042, and 2 are both. So at most 202/4,096 = 0.0493 of studies end in a false
claim over the base, and as many over the placebo. Simulated with normal noise (40,000 studies; base, method and placebo
independent): error 0.046 where there is no gain, 0.037 where there is one over the base alone. Power at a difference of
one standard deviation (of the differences) 0.86 over the base, 0.77 over base and placebo both; power 0.8 at 0.92. Of
studies of the base alone 24.7 % stop at 8, with a placebo 9.7 %. `tests/analysis/test_stats.py` counts the bound again,
and simulates the power with other random numbers.

Futility: a look also settles a comparison whose 95 % interval ends below the smallest gain worth having. That can take
claims away only. It excludes such a gain wrongly in 2.5 % of studies at each look, so in at most 5 %.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from vitinit.benchmark.fields import Count, Frozen, Seed
from vitinit.benchmark.records.store import read_model, write_model

LOOKS = "LOOKS"
"""Name of the file in the folder of a ranked study."""
RULE = 1
"""Version of the rule; a change of `PLAN` or of what a look says is another."""
PLAN = ((8, 0.0079), (12, 0.042))
"""Seeds of each look and the p that a claim needs there, two-sided."""
LookSeeds = Annotated[int, Field(ge=3)]
"""Seeds of a look: under three a difference has no interval."""
DETECTABLE = 0.92
"""Difference, in standard deviations of the differences, that four of five studies find (by simulation)."""


class Comparison(Frozen):
    """One difference at one look, in points."""

    gain: float
    low: float
    high: float
    """Student's 95 % interval."""
    p: float
    """Sign-flip test, two-sided, this look alone."""
    says: Literal["gain", "loss", "excluded", "open"]
    """`gain` and `loss`: shown at this or an earlier look; `excluded`: any gain worth having is."""


class Look(Frozen):
    """Comparisons over the first n seeds."""

    n: Count
    base: Comparison
    placebo: Comparison | None = None

    @property
    def settled(self) -> bool:
        """True where more seeds could change no answer."""
        if self.base.says != "gain":
            return self.base.says != "open"
        return self.placebo is None or self.placebo.says != "open"


class Looks(Frozen):
    """The rule of a ranked study, put down before its first run, and the looks that were taken."""

    rule: Count = RULE
    tier: str
    worth: float = Field(gt=0)
    """Smallest gain worth having, in points."""
    seeds: list[Seed]
    """In the order in which they are run and looked at."""
    plan: list[tuple[LookSeeds, float]] = Field(default_factory=lambda: list(PLAN), min_length=1)
    taken: list[Look] = Field(default_factory=list)

    @property
    def target(self) -> int | None:
        """Seeds of the next look; None where the answer is final."""
        if len(self.taken) == len(self.plan) or (self.taken and self.taken[-1].settled):
            return None
        return self.plan[len(self.taken)][0]


def read(folder: Path) -> Looks | None:
    """Return the looks of a study; None where it has no plan.

    Raises:
        VitinitError: the file is there and cannot be read.
    """
    return read_model(folder / LOOKS, Looks, "looks of vitinit rank; put it back, or rank in another folder")


def write(folder: Path, looks: Looks) -> None:
    """Write the looks of a study.

    Raises:
        VitinitError: the folder cannot be written.
    """
    write_model(folder / LOOKS, looks)

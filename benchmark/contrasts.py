"""Analysis that a grid names before its first run: its contrasts, their interval and their test. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from vitinit.benchmark.fields import Frozen, spelled

Composed = Annotated[str, AfterValidator(spelled)]
"""Name whose letters are in one spelling."""


class Analysis(Frozen):
    """Interval and test of a study's comparisons."""

    interval: Literal["t", "pooled"] = "t"
    """95 % interval: Student's t of the differences by seed, or with the noise of all rows."""
    test: Literal["t", "sign_flip", "pooled", "none"] = "t"
    """Two-sided test, corrected by Holm within a family; sign flips are exact."""
    check: Literal["sign_flip"] | None = None
    """Second test that the page reports in one sentence; it decides nothing."""


class Contrast(Frozen):
    """Weighted sum of rows, computed by seed: a difference, an interaction or a slope."""

    name: Composed
    """Label in tables."""
    weights: dict[Composed, float]
    """Weight of each row; they sum to 0."""
    family: str = "main"
    """Contrasts of one family are corrected together."""

    @model_validator(mode="before")
    @classmethod
    def _of_pair(cls, value: Any) -> Any:
        """Take `[A, B]` for `A` minus `B`."""
        if isinstance(value, str) or not isinstance(value, Sequence):
            return value
        if len(value) != 2 or value[0] == value[1]:
            raise ValueError(f"contrasts: {list(value)} is no pair of two rows: write [ROW, OTHER]")
        return {"name": f"{value[0]} − {value[1]}", "weights": {value[0]: 1.0, value[1]: -1.0}}

    @model_validator(mode="after")
    def _weights_sum_to_zero(self) -> Contrast:
        if len(self.weights) < 2 or 0.0 in self.weights.values() or abs(sum(self.weights.values())) > 1e-9:
            raise ValueError(f"contrasts: weights of {self.name!r} are two or more, none is 0, and their sum is")
        for first, second in permutations(self.weights, 2):
            if self.name == f"{first} − {second}" and self.weights != {first: 1.0, second: -1.0}:
                raise ValueError(f"contrasts: {self.name!r} is the name of [{first}, {second}], and has other weights")
        return self

    @property
    def compared(self) -> frozenset[tuple[str, float]]:
        """Rows with their weights as multiples of the first row's: equal of contrasts that compare the same."""
        unit = self.weights[min(self.weights)]
        return frozenset((row, round(weight / unit, 6)) for row, weight in self.weights.items())

    @property
    def pair(self) -> tuple[str, str] | None:
        """Rows of a plain difference, the first minus the second; None for any other contrast."""
        if sorted(self.weights.values()) != [-1.0, 1.0]:
            return None
        second, first = sorted(self.weights, key=self.weights.__getitem__)
        return first, second


class Registered(Frozen):
    """Contrasts, placebos and analysis, as grids and layouts of studies hold them."""

    contrasts: list[Contrast] = Field(default_factory=list)
    """Comparisons named before the first run, so that the tests of a study are those and no others."""
    analysis: Analysis = Analysis()
    """Interval and test of these comparisons."""
    placebos: dict[Composed, Composed] = Field(default_factory=dict)
    """Controls of one's own, by row the row that each is the placebo of; those of the method `placebo` are known."""

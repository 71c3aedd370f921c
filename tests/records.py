"""The committed records as pandas tables, and numbers as the texts write them; nothing here comes from `analysis`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results/reference"
KAIMING, TRUNC = "Kaiming uniform", "Trunc normal"
DATA = ("cifar10", "cifar100")
STUDIES = sorted(path.name for path in REFERENCE.glob("*-small") if path.name != "catalogue-small")
"""Of three seeds."""


def text(value: float, digits: int = 1, sign: bool = False) -> str:
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def several(values: Sequence[float], digits: int = 1) -> str:
    return ", ".join(text(value, digits) for value in values)


def span(values: Sequence[float], digits: int = 1, between: str = " to ") -> str:
    """Smallest and largest."""
    return f"{text(min(values), digits)}{between}{text(max(values), digits)}"


def interval(differences: pd.Series, digits: int = 1) -> str:
    """Mean and 95 % interval of paired differences."""
    low, high = limits(differences)
    return f"{text(differences.mean(), digits, sign=True)} [{text(low, digits)}, {text(high, digits)}]"


def sign_flip(differences: pd.Series) -> float:
    """Exact two-sided p of the mean under all changes of sign."""
    signs = np.array(list(itertools.product((1, -1), repeat=len(differences))))
    means = np.abs((signs * differences.to_numpy()).mean(axis=1))
    return float(np.mean(means >= abs(differences.mean()) - 1e-9))


def holm(named: dict[Any, pd.Series]) -> dict[Any, float]:
    """p of each `sign_flip`, corrected over all of them."""
    raw = sorted((sign_flip(differences), name) for name, differences in named.items())
    corrected: dict[Any, float] = {}
    for place, (p, name) in enumerate(raw):
        corrected[name] = min(1.0, max([(len(raw) - place) * p, *corrected.values()]))
    return corrected


def limits(differences: pd.Series) -> tuple[float, float]:
    half = stats.sem(differences) * stats.t.ppf(0.975, len(differences) - 1)
    return differences.mean() - half, differences.mean() + half


def shows(differences: pd.Series) -> bool:
    """Whether the interval excludes 0."""
    low, high = limits(differences)
    return low > 0 or high < 0


class Study:
    """The records of one study, a line each."""

    def __init__(self, name: str) -> None:
        outcomes = [json.loads(path.read_bytes()) for path in sorted((REFERENCE / name).glob("*.json"))]
        self.skipped = [outcome for outcome in outcomes if outcome["status"] == "skipped"]
        records = [outcome for outcome in outcomes if outcome["status"] == "done"]
        specs = [record["spec"] for record in records]
        self.runs = pd.DataFrame(
            {
                "row": [record["row"] for record in records],
                "seed": [spec["seed"] for spec in specs],
                "data": [spec["dataset"]["name"] for spec in specs],
                "images": [spec["dataset"]["train_size"] for spec in specs],
                "width": [spec["model"]["width"] for spec in specs],
                "heads": [spec["model"]["heads"] for spec in specs],
                "kernel": [spec["model"].get("kernel_size") for spec in specs],
                "record": records,
            }
        )
        last = [record["history"][-1] for record in records]
        self.runs["top1"] = [epoch["test_top1"] for epoch in last]
        self.runs["miou"] = [epoch.get("test_miou") for epoch in last]
        self.rows = list(self.runs["row"].unique())
        self.seeds = sorted(self.runs["seed"].unique())
        assert name.endswith("-tuning") or self.seeds in (list(range(n)) for n in (3, 8, 12))

    def __len__(self) -> int:
        return len(self.runs)

    def of(self, row: str, column: str, **where: Any) -> pd.Series:
        """A column of the runs of one cell, by seed."""
        chosen = self.runs[self.runs["row"] == row]
        for name, value in where.items():
            chosen = chosen[chosen[name] == value]
        assert sorted(chosen["seed"]) == self.seeds, (row, where)
        return chosen.set_index("seed")[column].sort_index()

    def spec(self, path: str, row: str | None = None) -> Any:
        """The one value that a field of the spec, as `base.params.std`, has in all runs, or those of a row."""
        runs = self.runs if row is None else self.runs[self.runs["row"] == row]
        values = [reduce(lambda part, name: part[name], path.split("."), record["spec"]) for record in runs["record"]]
        assert values
        assert all(value == values[0] for value in values), path
        return values[0]

    @property
    def trained_on(self) -> int:
        """Training images of every run."""
        (images,) = {record["dataset"]["train"] for record in self.runs["record"]}
        return int(images)

    @property
    def epochs(self) -> str:
        """Of every run, in words."""
        return {5: "five", 10: "ten", 40: "40"}[self.spec("recipe.epochs")] + " epochs"

    def top1(self, row: str, **where: Any) -> pd.Series:
        return self.of(row, "top1", **where)

    def gain(self, row: str, over: str, **where: Any) -> pd.Series:
        return self.top1(row, **where) - self.top1(over, **where)

    def gain_after(self, epoch: int, row: str, over: str) -> pd.Series:
        ours, theirs = (
            self.of(each, "record").map(lambda record: record["history"][epoch - 1]["test_top1"])
            for each in (row, over)
        )
        return ours - theirs

    def mass(self, row: str, on: str, **where: Any) -> float:
        """Percent of the first layer's attention on the target at the start, mean over seeds."""
        return 100 * float(np.mean([record["init"][on]["mass"] for record in self.of(row, "record", **where)]))

    def probe(self, row: str, name: str, when: int, **where: Any) -> np.ndarray:
        """What a probe measured at the start (0) or the end (-1): seeds x layers, mean over heads."""
        probes = [record["probes"][when][name] for record in self.of(row, "record", **where)]
        return np.array([[np.mean(layer) for layer in layers] for layers in probes])

    def masked(self, row: str, term: str | None) -> float:
        """Mean top-1 on the 1,000 images of the whole model, or without one term of attention in all GPSA layers."""
        chosen = [record["masked"][-1 if term == "position" else -2] for record in self.of(row, "record")]
        assert all(each["term"] == term for each in chosen if term)
        return float(np.mean([each["top1" if term else "top1_whole"] for each in chosen]))


study = cache(Study)


@cache
def published(paper: str, table: str) -> dict[tuple[str, str], float]:
    """Numbers of a paper's table by row and column."""
    tables = json.loads((ROOT / f"results/published/{paper}.json").read_bytes())["tables"]
    return {(cell["row"], cell["column"]): cell["value"] for cell in tables[table]["cells"]}


@cache
def speed() -> dict[str, Any]:
    """What `vitinit speed` has written."""
    (path,) = (REFERENCE / "speed").glob("*/speed.json")
    return json.loads(path.read_bytes())


@cache
def fidelity() -> pd.DataFrame:
    """What `make bench-fidelity` has written, a line per row and seed: attention on the target, norms."""
    rows = json.loads((REFERENCE / "fidelity/vit_tiny/fidelity.json").read_bytes())["rows"]
    norms = [row["init"]["norms"][0] for row in rows]
    return pd.DataFrame(
        {
            "row": [row["row"] for row in rows],
            "tokens": [(row["model"]["image_size"] // row["model"]["patch_size"]) ** 2 for row in rows],
            "params": [row["params"] for row in rows],
            "pseudo": [row["init"]["pseudo_input"]["mass"] for row in rows],
            "images": [row["init"]["real_images"]["mass"] for row in rows],
            "query": [np.mean(norm["query"]) for norm in norms],
            "key": [np.mean(norm["key"]) for norm in norms],
        },
        index=[row["seed"] for row in rows],
    )

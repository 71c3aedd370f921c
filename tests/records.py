"""The committed records as a pandas table, and statistics of them; nothing here comes from `analysis`."""

import json
from functools import cache, reduce
from pathlib import Path

import pandas as pd
from scipy import stats

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results/reference"


def text(value):
    return f"{value:.1f}".replace("-", "−")


def limits(differences):
    """The 95 % interval (Student's t)."""
    low, high = stats.t.interval(0.95, len(differences) - 1, differences.mean(), stats.sem(differences))
    return low, high


def interval(differences):
    """Mean and 95 % interval of paired differences, as the README writes them."""
    low, high = limits(differences)
    return f"{text(differences.mean())} [{text(low)}, {text(high)}]"


def shows(differences):
    """Return True where the interval excludes 0."""
    low, high = limits(differences)
    return low > 0 or high < 0


class Study:
    """The finished runs of one study, a line each."""

    def __init__(self, name):
        outcomes = [json.loads(path.read_bytes()) for path in sorted((REFERENCE / name).glob("*.json"))]
        records = [outcome for outcome in outcomes if outcome["status"] == "done"]
        specs = [record["spec"] for record in records]
        self.runs = pd.DataFrame(
            {
                "row": [record["row"] for record in records],
                "seed": [spec["seed"] for spec in specs],
                "data": [spec["dataset"]["name"] for spec in specs],
                "top1": [record["history"][-1].get("test_top1") for record in records],
                "record": records,
            }
        )
        self.seeds = sorted(self.runs["seed"].unique())

    def top1(self, row, **where):
        """After the last epoch, by seed, of the runs of one cell."""
        chosen = self.runs[self.runs["row"] == row]
        for name, value in where.items():
            chosen = chosen[chosen[name] == value]
        assert sorted(chosen["seed"]) == self.seeds, (row, where)
        return chosen.set_index("seed")["top1"].sort_index()

    def gain(self, row, over, **where):
        return self.top1(row, **where) - self.top1(over, **where)

    def spec(self, path):
        """The one value that a field of the spec, as `recipe.epochs`, has in all runs."""
        found = [reduce(lambda part, name: part[name], path.split("."), run["spec"]) for run in self.runs["record"]]
        assert all(value == found[0] for value in found), path
        return found[0]


study = cache(Study)

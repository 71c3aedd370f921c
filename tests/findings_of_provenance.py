"""What results/README.md says of where its records come from, in the same way as `findings.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd
from records import REFERENCE


def provenance(name: str) -> pd.DataFrame:
    """Seed, commit, processor and row of every finished run of a study, and whether its images are drawn by seed."""
    records = [json.loads(path.read_bytes()) for path in (REFERENCE / name).glob("*.json")]
    rows = [
        (
            record["spec"]["seed"],
            record["environment"]["commit"],
            record["environment"]["processor"],
            record["spec"]["dataset"].get("train_draw") == "seed",
            record["row"],
        )
        for record in records
        if record["status"] == "done"
    ]
    return pd.DataFrame(rows, columns=["seed", "commit", "processor", "drawn", "row"])


def where_they_come_from() -> Iterator[str]:
    mixed, drawn, across = [], set(), set()
    for name in sorted(path.parent.name for path in REFERENCE.glob("*/LAYOUT")):
        runs = provenance(name)
        drawn |= {name} if runs["drawn"].all() else set()
        counts = runs["commit"].value_counts()
        mixed += [f"`{name}` ({' and '.join(map(str, counts))})"] if len(counts) > 1 else []
        by_seed = runs.groupby("seed")["processor"].agg(set)
        if name == "standard":
            added = runs["commit"] == counts.index[-1]
            of_the_first = runs[~added].groupby("seed")["processor"].agg(set)
            (first,), (later,) = (set().union(*of_the_first[seeds]) for seeds in (by_seed.index < 3, by_seed.index > 2))
            assert first != later
            assert set(runs[added]["processor"]) == {later}
            assert set(runs[added]["row"]) == {"Mimetic, placebo"}
        elif (by_seed.map(len) > 1).any():
            across.add(name)
        else:
            assert len(set().union(*by_seed)) == 1
    assert drawn == {"catalogue-small", "catalogue-small-tuning", "standard", "standard-tuning"}
    yield "Only the catalogue, `standard` and the two tuning studies draw the images anew at each seed"
    assert across == {"ablations-small", "standard-tuning", "table2-small"}
    assert len(mixed) == 7
    yield f"Seven studies have records of two commits: {', '.join(mixed[:-1])} and {mixed[-1]}"
    yield "`standard` is from two processors, seeds 0 to 2 from one and the others from another"
    yield "but those of this placebo at seeds 0 to 2"

"""What results/README.md says of where its records come from, in the same way as `findings.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd
from records import REFERENCE


def provenance(name: str) -> pd.DataFrame:
    """Seed, commit and processor of every finished run of a study, and whether its images are drawn by seed."""
    records = [json.loads(path.read_bytes()) for path in (REFERENCE / name).glob("*.json")]
    rows = [
        (
            record["spec"]["seed"],
            record["environment"]["commit"],
            record["environment"]["processor"],
            record["spec"]["dataset"].get("train_draw") == "seed",
        )
        for record in records
        if record["status"] == "done"
    ]
    return pd.DataFrame(rows, columns=["seed", "commit", "processor", "drawn"])


def where_they_come_from() -> Iterator[str]:
    mixed, drawn, across = [], set(), set()
    for name in sorted(path.parent.name for path in REFERENCE.glob("*/LAYOUT")):
        runs = provenance(name)
        drawn |= {name} if runs["drawn"].all() else set()
        counts = runs["commit"].value_counts()
        mixed += [f"`{name}` ({' and '.join(map(str, counts))})"] if len(counts) > 1 else []
        by_seed = runs.groupby("seed")["processor"].agg(set)
        if (by_seed.map(len) > 1).any():
            across.add(name)
        elif name == "standard":
            (first,), (later,) = (set().union(*by_seed[seeds]) for seeds in (by_seed.index < 3, by_seed.index > 2))
            assert first != later
        else:
            assert len(set().union(*by_seed)) == 1
    assert drawn == {"catalogue-small", "catalogue-small-tuning", "standard", "standard-tuning"}
    yield "Only the catalogue, `standard` and the two tuning studies draw the images anew at each seed"
    assert across == {"ablations-small", "standard-tuning", "table2-small"}
    assert len(mixed) == 6
    yield f"Six studies have records of two commits: {', '.join(mixed[:-1])} and {mixed[-1]}"
    yield "`standard` is from two processors, seeds 0 to 2 from one and the others from another"

"""What results/README.md says of methods and their placebos, in the same way as `findings.py`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from records import KAIMING, interval, limits, shows, sign_flip, study, text

IMPULSE, MIMETIC = "Impulse, norm 4", "Mimetic"
SPECTRUM, ENTROPY = "placebo (spectrum)", "placebo (entropy)"


def is_it_the_pattern() -> Iterator[str]:
    s = study("standard-mechanism")
    yield f"({len(s)} runs): five epochs on 5,000 images"
    (record, *_) = s.runs["record"]
    steps = 5 * (record["dataset"]["train"] // record["spec"]["recipe"]["batch_size"])
    yield f"Five epochs are {steps} steps"
    named = {
        (row, other): s.gain(row, other)
        for row, other in [
            (MIMETIC, KAIMING),
            (MIMETIC, f"{MIMETIC}, {SPECTRUM}"),
            (IMPULSE, KAIMING),
            (IMPULSE, f"{IMPULSE.split(',')[0]}, {SPECTRUM}"),
            (IMPULSE, f"{IMPULSE.split(',')[0]}, {ENTROPY}"),
        ]
    }
    gain, pattern, impulse, rotated, spread = named.values()
    raw = sorted((sign_flip(each), key) for key, each in named.items())
    p: dict[tuple[str, str], float] = {}
    for place, (value, key) in enumerate(raw):
        p[key] = max([(len(raw) - place) * value, *p.values()])
    of = dict(zip(("gain", "pattern", "impulse", "rotated", "spread"), (p[key] for key in named), strict=True))
    assert (pattern > 0).all()
    yield f"above its placebo by {interval(pattern, 2)[1:]} points at every seed (p = {of['pattern']:.3f})"
    alone = s.gain(f"{MIMETIC}, {SPECTRUM}", KAIMING)
    assert shows(alone)
    yield f"brings the other {alone.mean():.1f} of its {gain.mean():.1f} points"
    yield f"Its gain is real ({interval(impulse, 2)[1:]}, p = {of['impulse']:.3f})"
    yield f"spectrum placebo {interval(rotated, 2)} (p = {of['rotated']:.2f})"
    yield f"less the entropy placebo {interval(spread, 2)} (p = {of['spread']:.2f})"
    assert not shows(rotated)
    assert not shows(spread)
    ends = [*limits(rotated), *limits(spread)]
    yield f"above {text(max(ends))} points, or below {text(min(ends))}, is excluded"

    def entropy(row: str) -> str:
        return text(
            np.mean([layer["entropy"] for each in s.of(row, "record") for layer in each["init"]["start"]]).item(), 2
        )

    def norm(row: str) -> str:
        return text(np.mean([each["init"]["norms"][0]["query"] for each in s.of(row, "record")]).item())

    short = IMPULSE.split(",")[0]
    yield f"less sharp ({entropy(f'{short}, {SPECTRUM}')} nats of entropy against {entropy(IMPULSE)}; uniform has"
    yield f"{np.log(64):.2f})"
    yield f"as sharp with larger norms ({norm(f'{short}, {ENTROPY}')} against {norm(IMPULSE)})"
    scale = s.gain("Trunc normal, Kaiming's scale", KAIMING)
    yield f"not told apart from Kaiming uniform: {interval(scale, 2)}"
    assert not shows(scale)

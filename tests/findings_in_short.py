"""What README.md and the docstring of impulse say that the records show, in the same way as `findings.py`."""

from __future__ import annotations

from collections.abc import Iterator

import findings_of_catalogue
import findings_of_ends
import numpy as np
import pandas as pd
from records import (
    KAIMING,
    TRUNC,
    fidelity,
    interval,
    limits,
    published,
    shows,
    span,
    speed,
    study,
    text,
)


def what_comes_out() -> Iterator[str]:
    s = study("small")
    yield f"standard deviation over {s.runs['seed'].nunique()} seeds"
    yield "Brackets are 95 % intervals"
    (millions,) = {text(record["parameters"] / 1e6) for record in s.runs["record"]}
    yield f"The model is tiny ({millions} M parameters)"


def the_main_job() -> Iterator[str]:
    s = study("small")
    (images,) = s.runs["images"].dropna().unique()
    yield f"and on {images:,.0f} images of"
    cifar = {row: s.top1(row, data="cifar10") for row in s.rows}
    gains = {row: cifar[row] - cifar[KAIMING] for row in ("Mimetic", "Imp.-3", "Imp.-5")}
    assert all((gain > 0).all() for gain in gains.values())
    both = [gains["Imp.-3"], gains["Imp.-5"]]
    yield f"On CIFAR-10 the impulse gain is {span([*both[0], *both[1]])} points"
    assert not any(shows(gain) for gain in both)
    yield "its interval contains 0"
    bases = cifar[TRUNC] - cifar[KAIMING]
    yield f"trunc normal is {-bases.mean():.1f} points below Kaiming uniform"
    yield interval(bases, 2)
    width, std = s.spec("model.width", TRUNC), s.spec("base.params.std", TRUNC)
    yield f"At width {width} trunc normal's std of {std} is a quarter of Kaiming's {(3 * width) ** -0.5:.3f}"
    halves = [-bases.mean() / (gain.mean() - bases.mean()) for gain in gains.values()]
    assert [round(share, 1) for share in halves] == [0.5, 0.8, 0.8]
    norms = {
        row: {text(np.mean(record["init"]["norms"][0]["query"])) for record in s.of(row, "record", data="cifar10")}
        for row in ("Mimetic", KAIMING, "Imp.-3")
    }
    (norm,), (kaiming,) = norms["Mimetic"], norms[KAIMING] | norms["Imp.-3"]
    yield f"W_q of a head has norm {norm} with mimetic, {kaiming} with Kaiming and impulse"
    *upper, mimetic, three, five = [
        value for (_, column), value in published("2404.01139", "Table 2").items() if column == "CIFAR-10"
    ]
    bare, small = (text(value, 2) for value in upper)
    yield f"200 epochs, one run per row, the paper has {bare} (Kaiming uniform), {small} (trunc normal)"
    yield f"{mimetic} (mimetic as its code has it), {three} (Imp.-3) and {five} (Imp.-5)"


def of_each(differences: pd.Series, digits: int = 1) -> str:
    """Mean and interval as `interval` has them, without a sign."""
    low, high = limits(differences)
    return f"{text(differences.mean(), digits)} [{text(low, digits)}, {text(high, digits)}]"


def what_we_found() -> Iterator[str]:
    mimetic, impulse, _, convit = findings_of_ends.gains().values()
    assert shows(mimetic)
    assert shows(convit)
    ends = study("standard")
    assert not shows(impulse)
    yield f"After {ends.spec('recipe.epochs')} epochs mimetic still gains: {of_each(mimetic)} points over its base"
    yield f"is not seen to ({interval(impulse)})"
    yield f"ConViT ends {of_each(convit)} above DeiT"
    base = ends.gain(KAIMING, TRUNC)
    assert shows(base)
    assert base.mean() > mimetic.mean()
    assert not shows(ends.gain("Trunc normal, Kaiming's scale", KAIMING))
    yield f"The base alone is worth {of_each(base)} points"
    s = study("standard-mechanism")
    pattern = s.gain("Mimetic", "Mimetic, placebo (spectrum)")
    assert (pattern > 0).all()
    yield f"Mimetic is {of_each(pattern)} points above it after {s.epochs} (`standard-mechanism`)"
    rotated = ends.gain("Mimetic", "Mimetic, placebo")
    assert shows(rotated)
    yield f"and {of_each(rotated)} after {ends.spec('recipe.epochs')} (`standard`"
    impulse, rotated = (s.gain("Impulse, norm 4", row) for row in (KAIMING, "Impulse, placebo (spectrum)"))
    assert shows(impulse)
    assert not shows(rotated)
    yield f"(norm 4) and after {s.epochs} it gains {of_each(impulse)} points over its base"
    yield f"but only {interval(rotated)} over its placebo"
    gained, beside = findings_of_catalogue.gains(), findings_of_catalogue.patterns()
    assert [row for row in beside if shows(beside[row]) and shows(gained[row])] == ["Mimetic, MLP mean", "Mimetic"]
    catalogue = study("catalogue-small")
    placebos = [catalogue.of(f"{row}, placebo", "record").iloc[0]["spec"]["method"]["params"]["of"] for row in beside]
    assert len({of["name"] for of in placebos}) == 7
    assert list(gained)[:3] == ["Mimetic, MLP mean", "Mimetic", "IDInit"]
    yield f"{interval(beside['Mimetic'], 2)} (`catalogue-small`: no test)"
    s = study("table4-small")
    random, impulses = (s.gain(row, KAIMING, width=128, kernel=3) for row in ("Random, frozen", "Impulse, frozen"))
    assert not shows(random)
    lost = [-s.gain("Random, frozen", KAIMING, width=w, kernel=k) for w, k in [(128, 5), (128, 8), (64, 5)]]
    most = max(lost, key=lambda each: each.mean())
    assert shows(most)
    yield f"({interval(random, 2)}); larger ones lose up to {of_each(most, 2)}"
    yield f"Frozen 3 × 3 impulses end {of_each(-impulses, 2)} below trained default filters"
    assert shows(impulses)
    s = study("long-range-small")
    vits = [s.top1(row).mean() for row in s.rows if "ConvMixer" not in row]
    yield f"all stay at {span(vits)} %, where a ConvMixer reaches {s.top1('ConvMixer').mean():.1f} %"


def the_solvers() -> Iterator[str]:
    of = {str(row): frame for row, frame in fidelity().groupby("row")}
    gradient, early, rotation, own = (
        of[row] for row in ("gradient", "gradient, 1000 steps", "rotation", "svd, its own setting")
    )
    steps = study("table2-small").spec("method.params.solver.steps", "Imp.-3")
    (tokens,) = set(rotation["tokens"])
    yield f"in place of {steps:,} Adam steps. On a ViT-T with {tokens} tokens"
    yield (
        f"({rotation['query'].mean():.1f} per head; gradient: {gradient['query'].mean():.1f} in W_q and "
        f"{gradient['key'].mean():.1f} in W_k)"
    )
    (pseudo,) = {text(value, 2) for value in rotation["pseudo"]}
    yield f"it puts {pseudo} of the attention on the target token"
    yield f"of the pseudo-input (gradient: {span(gradient['pseudo'], 2)})"
    yield (
        f"{span(rotation['images'], 2)} on real images (gradient: {span(gradient['images'], 2)}, and "
        f"{span(early['images'], 2)} after {early['params'].iloc[0]['solver']['steps']:,} steps)"
    )
    times = own["params"].iloc[0]["position_scale"]
    yield f"a learned embedding times {times}, has {span(own['pseudo'], 2)} and {span(own['images'], 2)}"
    assert {text(value, 4) for value in of["svd"]["pseudo"]} == {text(1 / tokens, 4)}
    seconds = {
        (one["model"], one["params"]["solver"], one["params"].get("per_layer", False)): one["seconds"]
        for one in speed()["initializers"]
        if "solver" in one["params"]
    }
    tiny = [seconds["vit_tiny/2", solver, False] for solver in ("rotation", "gradient")]
    base = [seconds["vit_base/16@224", solver, True] for solver in ("rotation", "svd")]
    yield f"A solution takes {tiny[0]:.2f} s (gradient: {tiny[1]:.0f} s); for a whole ViT-B, 12 layers"
    yield f"`rotation` and `svd` take {base[0]:.1f} and {base[1]:.1f} s on two cores"


def of_speed() -> Iterator[str]:
    """In runners/README.md."""
    (compiled,) = speed()["compiling"]
    yield f"gained nothing ({compiled['faster']:.2f} times as fast)"
    rates = {one["augmentation"]: one["images_per_s"] for one in speed()["loaders"] if one["loader"] == "resident"}
    yield f"RandAugment does {round(rates['flip, RandAugment'], -3):,.0f} images of 32 px a second"
    yield f"without augmentation there are {round(rates['none'], -4):,.0f}"


def of_impulse() -> Iterator[str]:
    """Its docstring."""
    images = {str(row): frame["images"] for row, frame in fidelity().groupby("row")}
    times, early = (images["rotation"] / images[row] for row in ("gradient", "gradient, 1000 steps"))
    yield f"it puts {span(times)} times the attention of the gradient solution"
    yield f"and {span(early)} times that of its first 1,000 steps"

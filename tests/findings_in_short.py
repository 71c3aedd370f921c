"""What README.md and the docstring of impulse say that the records show, in the same way as `findings.py`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from findings import on_what_impulse_is_solved
from records import (
    KAIMING,
    TRUNC,
    fidelity,
    interval,
    published,
    several,
    shows,
    span,
    speed,
    study,
    text,
)


def what_comes_out() -> Iterator[str]:
    s = study("small")
    yield "sample standard deviation over 3 seeds"
    yield "seed with its 95 % interval"
    yield "has an interval that contains 0"
    (millions,) = {text(record["parameters"] / 1e6) for record in s.runs["record"]}
    yield f"The model has {millions} M parameters"
    *upper, mimetic, three, five = [
        value for (_, column), value in published("2404.01139", "Table 2").items() if column == "CIFAR-10"
    ]
    yield f"200 epochs, one run a row, the paper has {several(upper, 2)}, {mimetic} (mimetic as its code has it)"
    yield f"{three} and {five}"
    cifar = {row: s.top1(row, data="cifar10") for row in s.rows}
    gains = {row: cifar[row] - cifar[KAIMING] for row in ("Mimetic", "Imp.-3", "Imp.-5")}
    both = [gains["Imp.-3"], gains["Imp.-5"]]
    yield f"On CIFAR-10 the impulse gain is {span([*both[0], *both[1]])} points"
    assert not any(shows(gain) for gain in both)
    yield "its interval contains 0"
    bases = cifar[TRUNC] - cifar[KAIMING]
    yield f"trunc normal is {-bases.mean():.1f} points below Kaiming uniform"
    yield interval(bases, 2)
    yield f"At width 48 trunc normal's std of 0.02 is a quarter of Kaiming's {(3 * 48) ** -0.5:.3f}"
    halves = [-bases.mean() / (gain.mean() - bases.mean()) for gain in gains.values()]
    assert [round(share, 1) for share in halves] == [0.5, 0.8, 0.8]
    norms = {
        row: {text(np.mean(record["init"]["norms"][0]["query"])) for record in s.of(row, "record", data="cifar10")}
        for row in ("Mimetic", KAIMING, "Imp.-3")
    }
    (mimetic,), (kaiming,) = norms["Mimetic"], norms[KAIMING] | norms["Imp.-3"]
    yield f"W_q of a head has norm {mimetic} with mimetic, {kaiming} with Kaiming and impulse"
    tests = 2 * sum(row not in (KAIMING, TRUNC, "ConViT") for row in s.rows)
    assert tests == 6
    yield f"one exact sign-flip test cannot go below p = {2 / 2**3}, and corrected for six comparisons not below 1"


def in_short() -> Iterator[str]:
    yield "A bracket is a 95 % interval"
    bases = study("table2-small").gain(KAIMING, TRUNC, data="cifar10")
    yield f"above trunc normal by {interval(bases, 2)[1:]} points on CIFAR-10"
    wide = study("convit-ablation-small").top1("e DeiT, sin-cos") - study("ablations-small").top1(KAIMING)
    yield f"with std 0.06 in place of 0.02 a similar model is not told apart from Kaiming uniform ({interval(wide, 2)})"
    s = study("ablations-small")
    gain = {row: s.gain(row, KAIMING).mean() for row in s.rows}
    broken = [gain[row] for row in ("Shuffled rows", "One offset", "Random binary")]
    yield f"gain {span(broken)} points, the impulse pattern {gain['Rotation']:.1f}, and each of these intervals"
    yield "contains 0"
    assert not any(shows(s.gain(row, KAIMING)) for row in ("Rotation", "Shuffled rows", "One offset", "Random binary"))
    (noise,) = (piece for piece in on_what_impulse_is_solved() if piece.startswith("noise alone"))
    yield (
        f"{noise.partition(' (')[0]} against the position embedding, where the paper reports 3 to 4, and no difference "
        "between the two is told from 0"
    )
    s = study("table4-small")
    random, impulse = (
        {kernel: s.gain(row, KAIMING, width=128, kernel=kernel) for kernel in (3, 8)}
        for row in ("Random, frozen", "Impulse, frozen")
    )
    yield f"({interval(random[3], 2)}); impulses lose {interval(-impulse[3], 2)[1:]}"
    yield f"At 8 × 8 random ones lose {-random[8].mean():.1f}, impulses {-impulse[8].mean():.1f}"
    s = study("convit-ablation-small")
    yield f"ConViT starts {interval(s.gain('a ConViT', 'e DeiT'))[1:]} points above DeiT"
    yield f"in place of a learned one starts {interval(s.gain('e DeiT, sin-cos', 'e DeiT'))[1:]} above it"
    yield "500 to 5,000 images at equal steps"
    steps = [
        record["spec"]["recipe"]["epochs"] * (record["dataset"]["train"] // record["spec"]["recipe"]["batch_size"])
        for name in ("convit-ablation-small", "convit-efficiency-small")
        for record in study(name).runs["record"]
    ]
    yield f"Local bias stays for the first {span(steps, 0)} steps"
    s = study("long-range-small")
    vits = [s.top1(row).mean() for row in s.rows if "ConvMixer" not in row]
    trained, random_filters = (s.top1(row).mean() for row in ("ConvMixer", "ConvMixer, random filters"))
    yield f"all of them end at {span(vits)} %, where a ConvMixer gets {trained:.1f} %, and {random_filters:.1f} % with"
    halves = [f"{gain[row]:.1f}" for row in ("Mimetic, VO only", "Mimetic", "Mimetic, QK only")]
    yield f"the value path alone {halves[0]} of its {halves[1]} points, Q and K alone {halves[2]}"


def the_solvers() -> Iterator[str]:
    of = {str(row): frame for row, frame in fidelity().groupby("row")}
    gradient, early, rotation, own = (
        of[row] for row in ("gradient", "gradient, 1000 steps", "rotation", "svd, its own setting")
    )
    yield "in place of 10,000 Adam steps. On a ViT-T with 256 tokens"
    yield (
        f"({rotation['query'].mean():.1f} a head; the gradient solution has {gradient['query'].mean():.1f} in W_q and "
        f"{gradient['key'].mean():.1f} in W_k)"
    )
    (pseudo,) = {text(value, 2) for value in rotation["pseudo"]}
    yield f"it puts {pseudo} of the attention on the target token"
    yield f"of the pseudo-input (gradient: {span(gradient['pseudo'], 2)})"
    yield (
        f"{span(rotation['images'], 2)} on real images (gradient: {span(gradient['images'], 2)}, and "
        f"{span(early['images'], 2)} after 1,000 steps)"
    )
    yield (f"a learned embedding times 18, has {span(own['pseudo'], 2)} and {span(own['images'], 2)}")
    assert {text(value, 4) for value in of["svd"]["pseudo"]} == {text(1 / 256, 4)}
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

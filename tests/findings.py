"""What results/README.md says that the records show: pieces of it, word for word, with their numbers computed here.

`test_findings.py` holds every number in the text to these pieces: a new sentence with a number brings its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from findings_of_provenance import where_they_come_from
from records import (
    DATA,
    KAIMING,
    STUDIES,
    TRUNC,
    interval,
    limits,
    published,
    several,
    shows,
    span,
    study,
    text,
)


def introduction() -> Iterator[str]:
    records = [record for name in STUDIES for record in study(name).runs["record"]]
    trained = [record["parameters"] for record in records]
    tuning, mechanism, catalogue, catalogue_tuning = (
        study(name).runs["record"]
        for name in ("standard-tuning", "standard-mechanism", "catalogue-small", "catalogue-small-tuning")
    )
    trained += [record["parameters"] for other in (mechanism, catalogue, catalogue_tuning) for record in other]
    wide = [record["parameters"] for record in tuning]
    yield f"{min(trained):,} to {max(trained):,} parameters (`standard-tuning` as `standard`)"
    ends = study("standard")
    long = [record["parameters"] for record in ends.runs["record"]]
    assert (min(wide), max(wide)) == (min(long), max(long))
    assert len(ends.seeds) == 8
    yield (
        f"{min(long):,} to {max(long):,} trained parameters and "
        f"{ends.trained_on * ends.spec('recipe.epochs'):,} images seen"
    )
    every = [*records, *tuning, *mechanism, *catalogue, *catalogue_tuning]
    most = max(record["dataset"]["train"] * record["spec"]["recipe"]["epochs"] for record in every)
    yield f"at most {most:,} images seen"
    assert {record["spec"]["seed"] for record in records} == {0, 1, 2}
    yield "three seeds (0, 1, 2)"
    assert {len(study(name).seeds) for name in ("standard-tuning", "catalogue-small-tuning")} == {2}
    assert len(study("standard-mechanism").seeds) == 12
    yield "the 95 % interval (Student's t)"
    yield f"no sign-flip test can go below p = {2 / 2**3}"
    assert study("catalogue-small").seeds == list(range(8))
    yield "so some intervals exclude 0 by chance"
    yield "*norm 4* means that W_q and W_k of each head have that norm"
    yield from where_they_come_from()


def over_both_bases() -> Iterator[str]:
    s = study("table2-small")
    yield f"({len(s)} runs): the same ViT, {s.trained_on:,} images of"
    methods = {row: TRUNC if row.startswith(TRUNC) else KAIMING for row in s.rows if row not in (KAIMING, TRUNC)}
    gains = {(row, data): s.gain(row, base, data=data) for row, base in methods.items() for data in DATA}
    above = sum(int((gain > 0).sum()) for gain in gains.values())
    yield f"at every seed ({above} differences of {sum(map(len, gains.values()))}, which share bases)"
    yield f"{sum(map(shows, gains.values()))} of {len(gains)} intervals exclude 0"
    assert above == sum(map(len, gains.values()))
    more = [
        gains[f"{plus}Mimetic", data] - gains[f"{plus}{impulse}", data]
        for plus in ("", f"{TRUNC} + ")
        for impulse in ("Imp.-3", "Imp.-5")
        for data in DATA
    ]
    assert all((each > 0).all() for each in more)
    yield f"at every seed; {sum(map(shows, more))} of the {len(more)} intervals of that difference exclude 0"
    bases = s.gain(KAIMING, TRUNC, data="cifar10")
    yield f"Kaiming uniform is above trunc normal by {interval(bases, 2)[1:]} points on CIFAR-10, in the mean more"
    assert bases.mean() > max(gains[row, "cifar10"].mean() for row in methods if "Imp" in row)
    crossed = s.top1(f"{TRUNC} + Mimetic", data="cifar10") - s.top1(KAIMING, data="cifar10")
    yield f"trunc normal with mimetic is not told apart from bare Kaiming uniform ({interval(crossed, 2)})"
    assert not shows(crossed)
    width, std = s.spec("model.width"), s.spec("base.params.std", TRUNC)
    yield f"at width {width} trunc normal's std of {std} is a quarter of Kaiming's {(3 * width) ** -0.5:.3f}"
    assert round((3 * width) ** -0.5 / std) == 4
    wider = study("convit-ablation-small")
    yield f"With std {wider.spec('base.params.std', 'e DeiT, sin-cos')} the ViT"
    wide = wider.top1("e DeiT, sin-cos") - study("ablations-small").top1(KAIMING)
    yield f"in `ablations-small`: {interval(wide, 2)}"
    assert not shows(wide)
    released = {
        (plus, data): s.gain(f"{plus}Mimetic, as released", f"{plus}Mimetic", data=data)
        for plus in ("", f"{TRUNC} + ")
        for data in DATA
    }
    plain, over = ([interval(released[plus, data], 2) for data in DATA] for plus in ("", f"{TRUNC} + "))
    yield f"Minus ours it is {plain[0]} points on CIFAR-10 and {plain[1]} on CIFAR-100 over Kaiming uniform"
    yield f"{over[0]} and {over[1]} over trunc normal: the two are not told apart"
    assert not any(shows(each) for each in released.values())
    kernels = {
        (plus, data): s.gain(f"{plus}Imp.-5", f"{plus}Imp.-3", data=data)
        for plus in ("", f"{TRUNC} + ")
        for data in DATA
    }
    told = kernels.pop((f"{TRUNC} + ", "cifar100"))
    yield f"Kernel size 5 minus 3: over trunc normal {interval(told, 2)} on CIFAR-100"
    yield "or the interval contains 0"
    assert shows(told)
    assert not any(shows(each) for each in kernels.values())
    solved = [row for row in methods if "Imp" in row]
    share, real = (
        {f"{s.mass(row, on, data=data):.0f} %" for row in solved for data in DATA}
        for on in ("pseudo_input", "real_images")
    )
    yield f"puts {share.pop()} of the attention on the target token on its pseudo-input, and {real.pop()} on"
    assert not share | real
    yield f"uniform attention puts {100 / 64:.1f} % there"


def what_of_impulse_counts() -> Iterator[str]:
    s = study("ablations-small")
    gain = {row: s.gain(row, KAIMING) for row in s.rows}
    broken = ("Shuffled rows", "One offset", "Random binary")
    yield f"({len(s)} runs): {s.epochs}"
    yield f"uniform attention has {100 / 64:.1f} %"
    yield (
        f"gain what the impulse pattern gains ({span([gain[row].mean() for row in broken])} points against "
        f"{text(gain['Rotation'].mean())}; all four intervals contain 0)"
    )
    assert not any(shows(gain[row]) for row in (*broken, "Rotation"))
    entropy = {row: s.probe(row, "attention_entropy", 0).mean() for row in s.rows}
    (nearly,) = {text(entropy[row], 2) for row in ("Shuffled rows", "Random binary")}
    (reached,) = {f"{s.mass(row, 'pseudo_input'):.0f} %" for row in ("Shuffled rows", "Random binary")}
    yield (
        f"on shuffled and random targets the solver reaches {reached} of the attention, so those heads begin nearly "
        f"uniform (entropy {nearly} nats; the base {entropy[KAIMING]:.2f}, uniform {np.log(64):.2f}). So do the heads "
        f"after 100 gradient steps, with {s.mass('Gradient, 100 steps', 'real_images'):.1f} %, and gain "
        f"{gain['Gradient, 100 steps'].mean():.1f}"
    )
    norms = [f"Rotation, norm {norm}" for norm in (0.5, 1, 2, 4, 8)]
    *rising, last = [gain[row].mean() for row in norms]
    yield (
        f"{several(rising)} points at norms 0.5, 1, 2, 4, and {last:.1f} at norm 8, where "
        f"{s.mass(norms[-1], 'real_images'):.0f} % of the attention is on one token"
    )
    yield f"from 2 to 4 {interval(s.gain(norms[3], norms[2]))}, from 4 to 8 {interval(s.gain(norms[4], norms[3]))}"
    steps = s.gain("Gradient, 1000 steps", "Gradient, 10000 steps")
    yield f"are not told apart from the paper's ten thousand: {interval(steps)}"
    assert not shows(steps)
    assert text(s.mass("SVD", "pseudo_input"), 2) == text(100 / 64, 2)
    yield (
        f"attention stays uniform on the pseudo-input ({s.mass('SVD', 'pseudo_input'):.2f} %, which is 1/64), and is "
        f"sharp on images (entropy {entropy['SVD']:.1f} nats) but off the target, on which it has "
        f"{s.mass('SVD', 'real_images'):.1f} %"
    )
    assert (gain["SVD"] < 0).all()
    own = "SVD, its own setting"
    assert s.spec("model.position", own) == "learned"
    yield f"learned embedding times {s.spec('method.params.position_scale', own):.0f}"
    yield f"{s.mass(own, 'pseudo_input'):.0f} % of the attention on the target on the pseudo-input"
    yield f"and {s.mass(own, 'real_images'):.0f} % on images"
    over_its_base = s.gain(own, "Kaiming uniform, learned embedding")
    assert (over_its_base < 0).all()
    assert not shows(over_its_base)
    yield f"minus its own base it is at {interval(over_its_base)}, and below at every seed"
    halves = s.gain("Mimetic, VO only", "Mimetic, QK only")
    yield (
        f"V and the projection alone gain {gain['Mimetic, VO only'].mean():.1f} of mimetic's "
        f"{gain['Mimetic'].mean():.1f} points, Q and K alone {gain['Mimetic, QK only'].mean():.1f}"
    )
    yield f"which is the larger part three seeds do not tell ({interval(halves)})"
    value_path = s.gain("Rotation and mimetic VO", "Mimetic, VO only")
    yield f"is not told apart from that path alone ({interval(value_path)})"
    assert not shows(halves)
    assert not shows(value_path)
    sharp, sharper, solved = (
        [100 * s.probe(row, "impulse_mass", when).mean() for when in (0, -1)]
        for row in ("Rotation, norm 8", "Rotation, norm 4", "Gradient, 10000 steps")
    )
    assert text(solved[0]) == text(solved[1])
    yield (
        f"{sharp[0]:.0f} to {sharp[1]:.0f} % at norm 8, {sharper[0]:.0f} to {sharper[1]:.0f} % at norm 4, "
        f"{solved[0]:.1f} % before and after with the gradient solver"
    )


def on_what_impulse_is_solved() -> Iterator[str]:
    s = study("table6-small")
    kinds = [row for row in s.rows if row != KAIMING]

    def gain(row: str, over: str) -> pd.Series:
        """The mean over both numbers of heads, which share seeds and images, is one pair per seed."""
        return (s.gain(row, over, heads=3) + s.gain(row, over, heads=8)) / 2

    assert s.spec("base.name") == "kaiming_uniform"
    (side,) = {s.spec("method.params.kernel_size", row) for row in kinds}
    yield f"({len(s)} runs): {s.epochs}, base Kaiming uniform, kernel size {side}"
    yield f"3 heads, attention of the first layer on the target token; uniform attention has {100 / 64:.1f} %"
    yield f"Every pseudo-input gains {span([gain(row, KAIMING).mean() for row in kinds])} points over Kaiming uniform"
    each = pd.concat([s.gain(row, KAIMING, heads=heads) for row in kinds for heads in (3, 8)])
    yield f"in {int((each > 0).sum())} of {len(each)} differences by seed"
    noise = [-gain(row, "PE/PE").mean() for row in ("U/U", "G/G", "G/G, per layer")]
    mixed = [-gain(row, "PE/PE").mean() for row in ("PE+U/PE+U", "PE+G/PE+G")]
    yield f"noise alone costs {span(noise)} points (the paper: 3 to 4) and PE with noise {span(mixed)}"
    assert not any(shows(gain(row, "PE/PE")) for row in kinds if row != "PE/PE")
    yield "no interval of a difference from PE/PE excludes 0"
    best, runner_up = sorted(kinds, key=lambda row: gain(row, KAIMING).mean())[:-3:-1]
    assert (best, runner_up) == ("Images/Images, per layer", "Images/PE")
    yield f"{interval(gain(best, 'PE/PE'))[1:]} above PE/PE and {interval(gain(best, runner_up))[1:]} above the next"
    yield f"they are {-gain('Images/Images', 'PE/PE').mean():.1f} below PE/PE"
    on = {row: [s.mass(row, where, heads=3) for where in ("pseudo_input", "real_images")] for row in kinds}
    lost, kept, seen = on["G/G"], on["PE/PE"], on["Images/Images"]
    yield f"{lost[0]:.0f} % of the attention on the target becomes {lost[1]:.1f} %, next to uniform's {100 / 64:.1f} %"
    yield f"which keeps {kept[1]:.0f} of {kept[0]:.0f} %, and real images, which keep {seen[1]:.0f} of {seen[0]:.0f} %"


def must_filters_be_trained() -> Iterator[str]:
    s = study("table4-small")
    shapes = [(128, 3), (128, 5), (128, 8), (64, 5)]
    yield f"({len(s)} runs, and {len(s.skipped)} skips: rows that do not fit the other architecture)"
    depth, patch = (s.spec(f"model.{field}", "Random, frozen") for field in ("depth", "patch_size"))
    yield f"ConvMixer of depth {depth}, patch {patch}, {s.epochs}"

    def gaps(row: str) -> list[pd.Series]:
        return [s.gain(row, KAIMING, width=width, kernel=kernel) for width, kernel in shapes]

    random, impulse = gaps("Random, frozen"), gaps("Impulse, frozen")
    yield f"{interval(random[0], 2)} at 3 × 3"
    assert not shows(random[0])
    yield f"one entry of each filter, are {interval(-impulse[0], 2)[1:]} points below them there"
    assert shows(impulse[0])
    frozen, *others = [b - a for a, b in zip(impulse, gaps("Impulse, trained"), strict=True)]
    least, most = (text(each([other.mean() for other in others])) for each in (min, max))
    yield f"staying frozen costs {interval(frozen, 2)[1:]} there and {least} to {most} in the other three columns"
    yield "whose intervals exclude 0"
    assert not shows(frozen)
    assert all(map(shows, others))
    below = [b - a for a, b in zip(impulse, random, strict=True)]
    assert all((each > 0).all() for each in below)
    yield f"at every seed, by {span([each.mean() for each in below])} points in the mean"
    yield f"{sum(not shows(each) for each in below)} of the {len(below)} intervals contain 0"
    grows, too = (gaps[0] - gaps[2] for gaps in (random, impulse))
    yield f"from 3 to 8 by {interval(grows)[1:]} points for random filters and by {interval(too)[1:]} for impulses"
    yield (
        f"at 5 × 5 the gap at width 128 minus that at width 64 is {interval(random[3] - random[1])} for random filters "
        f"and {interval(impulse[3] - impulse[1])} for impulses"
    )
    lost, boxes = ([-gap.mean() for gap in gaps(row)] for row in ("Gaussian, frozen", "Box-9, frozen"))
    yield f"Gaussian ones lose {span(lost, 0)} points, boxes of nine entries {span(boxes, 0)}"
    trained = [gap.mean() for gap in gaps("Impulse, trained")]
    yield f"when they are trained: {text(max(trained))} to {text(min(trained))}"
    three, five = ([interval(s.gain(row, KAIMING, heads=heads), 2) for heads in (4, 8)] for row in ("Imp.-3", "Imp.-5"))
    yield f"(width {s.spec('model.width', 'Imp.-3')})"
    yield f"read only its differences to Kaiming uniform: Imp.-3 {three[0]} with 4 heads, {three[1]} with 8"
    yield f"Imp.-5 {five[0]} and {five[1]}"


def what_of_convit_counts() -> Iterator[str]:
    s = study("convit-ablation-small")
    a, b, c, d, f, g = (next(row for row in s.rows if row.startswith(f"{letter} ")) for letter in "abcdfg")
    yield f"({len(s)} runs): the switches of"
    yield f"(a has {s.spec('method.params.locality_strength', a):.0f})"
    (images,) = {each["images"] for record in s.runs["record"] for each in record["masked"]}
    yield f"on {images:,} test images"
    yield (
        f"ConViT is {interval(s.gain(a, 'e DeiT'))[1:]} points above DeiT. Without its convolutional "
        f"initialisation it is {interval(s.gain(c, 'e DeiT'))[1:]} above DeiT, and DeiT with the sin-cos embedding is "
        f"{interval(s.gain('e DeiT, sin-cos', 'e DeiT'))[1:]} above"
    )
    frozen = s.gain(f, g)
    assert (frozen < 0).all()
    yield f"c minus a is {interval(s.gain(c, a))}"
    yield f"f minus g: {interval(frozen)}"
    whole = [published("2103.10697", "Table 3")[row, "full"] for row in (f, g)]
    yield f"The paper, at 300 epochs on ImageNet, finds the contrary (f {whole[0]}, g {whole[1]})"
    lost = [s.masked(row, None) - s.masked(row, "position") for row in (c, d, g)]
    yield f"c, d and g lose only {lost[0]:.1f}, {lost[1]:.1f} and {lost[2]:.1f} points"
    yield "starts at a std of 0.02 in place of almost 0"
    trained = [a, c, *(row for row in s.rows if row.startswith("a, "))]
    gates = [np.ravel(record["probes"][-1]["gating"]) for row in trained for record in s.of(row, "record")]
    ours, other = (1 / (1 + np.exp(-gate)) for gate in (1, s.spec("method.params.gate", b)))  # 1 is its default
    yield f"Gates at {ours:.2f} gain {interval(s.gain(a, b))[1:]} over gates at {other:.2f}"
    yield f"(c over d: {interval(s.gain(c, d))})"
    yield f"between {span(np.concatenate(gates), 2, ' and ')}"
    weak, strong = (s.gain(f"a, locality {strength}", a) for strength in ("0.1", "3"))
    yield f"(0.1: {interval(weak)}; 3: {interval(strong)})"
    assert not shows(weak)
    assert not shows(strong)
    (far,) = {text(s.probe(a, "nonlocality", when)[:, layer].mean()) for when in (0, -1) for layer in (0, 1)}
    (uniform,) = {
        text(s.probe("e DeiT", "nonlocality", when)[:, layer].mean()) for when in (0, -1) for layer in range(2)
    }
    yield f"row a's GPSA layers look {far} tokens far before and after (uniform attention {uniform})"
    yield (
        f"without content attention it has {s.masked(a, 'content'):.1f} of {s.masked(a, None):.1f}, without the "
        f"positional one {s.masked(a, 'position'):.1f}"
    )
    yield "The paper's, after 300 epochs, needs both"


def which_needs_fewest_images() -> Iterator[str]:
    s = study("convit-efficiency-small")
    sizes = [500, 1000, 2500, 5000]
    (steps,) = {
        record["spec"]["recipe"]["epochs"] * (record["dataset"]["train"] // record["spec"]["recipe"]["batch_size"])
        for record in s.runs["record"]
    }
    yield f"({len(s)} runs): arXiv 2103.10697's Table 2 in small"
    epochs = {record["dataset"]["train"]: record["spec"]["recipe"]["epochs"] for record in s.runs["record"]}
    assert sorted(epochs) == sizes
    (seen,) = {number * images for images, number in epochs.items()}
    few, most = min(sizes), max(sizes)
    yield (
        f"every run sees {seen:,} images in {steps} steps ({epochs[few]} epochs of {few} images, {epochs[most]} of "
        f"{most:,})"
    )
    gains = {row: [s.gain(row, "DeiT", images=size) for size in sizes] for row in ("ConViT", "Mimetic", "Imp.-3")}
    ends = [end for gain in gains["ConViT"] for end in limits(gain)]
    assert not any(shows(gain) for gain in gains["ConViT"])
    yield f"all four intervals contain 0, and reach from {text(min(ends))} to {text(max(ends), sign=True)}"
    paper = published("2103.10697", "Table 2")
    small, all_of = (100 * (paper[share, "ConViT-S"] / paper[share, "DeiT-S"] - 1) for share in ("5%", "100%"))
    yield f"The paper's gains {small:.0f} % at 5 % of ImageNet and {all_of:.0f} % at all of it"
    assert all((gain > 0).all() for gain in gains["Mimetic"])
    first, last = s.top1("Mimetic", images=500).mean(), s.top1("DeiT", images=5000).mean()
    yield f"with 500 images it has {first:.2f}, DeiT with 5,000 images {last:.2f}"
    more = s.top1("DeiT", images=5000) - s.top1("DeiT", images=1000)
    yield f"From 1,000 images on no gain of DeiT by more of them is seen ({interval(more)} up to 5,000)"
    yield f"if {steps} steps are the limit there"
    assert not shows(more)
    relative = {
        row: [100 * gain / s.top1("DeiT", images=size) for gain, size in zip(each, sizes, strict=True)]
        for row, each in gains.items()
    }
    mimetic, impulse, convit = (
        several([gap.mean() for gap in relative[row]], 0) for row in ("Mimetic", "Imp.-3", "ConViT")
    )
    yield (
        "from 500 to 5,000 images the gain in percent of DeiT's accuracy goes "
        f"{mimetic} (mimetic), {impulse} (impulse) and {convit} (ConViT)"
    )
    yield "each change has an interval that contains 0"
    assert not any(shows(gaps[j] - gaps[i]) for gaps in relative.values() for i in range(4) for j in range(i + 1, 4))
    yield f"The local bias stays for these {steps} steps"

    def far(row: str) -> np.ndarray:
        """In the layers whose patch tokens are read; after the last only the class token is."""
        return np.array([s.probe(row, "nonlocality", when, images=500)[:, :-1] for when in (0, -1)])

    (uniform,) = {text(value) for value in far("DeiT").mean(axis=(1, 2))}
    (local,) = {text(value) for value in far("ConViT").mean(axis=(1, 2))}
    yield (
        f"at 500 images mimetic's nonlocality stays at {span(far('Mimetic').ravel())} tokens and impulse's at "
        f"{span(far('Imp.-3').ravel())}, where DeiT keeps that of uniform attention ({uniform}) and ConViT's GPSA "
        f"layers {local}"
    )
    mass = [100 * s.probe("Imp.-3", "impulse_mass", when, images=500)[:, :-1].mean(axis=0) for when in (0, -1)]
    yield f"{span(np.ravel(mass), 0)} % in each of them before and after ({100 / 64:.1f} % would be uniform)"
    assert s.spec("model.pool") == "token"
    yield "So it looks at 5,000 images (layers of seed 0, head 1)"
    yield "(seed 0 alone, no second one to compare with)"
    yield "The attention maps and Gram matrices of seed 0 at 5,000 images"


def does_locality_cost_global_context() -> Iterator[str]:
    s = study("long-range-small")
    vits = [row for row in s.rows if "ConvMixer" not in row]
    size = {row: s.of(row, "record")[0]["parameters"] for row in s.rows}
    (vit,) = {size[row] for row in vits if "ConViT" not in row}
    yield f"({len(s)} runs): `{s.spec('dataset.name')}`, {s.trained_on:,} images, {s.epochs}"
    yield f"Five initialisations of a ViT ({vit:,} parameters), ConViT ({size['ConViT']:,})"
    assert len(vits) == 5 + 2
    yield f"a ConvMixer ({size['ConvMixer']:,}; {size['ConvMixer, random filters']:,} of them trained where"
    mixed = np.mean([record["history"][2]["test_top1"] for record in s.of("ConvMixer", "record")])
    whole, three = s.trained_on * s.spec("recipe.epochs"), s.trained_on * 3
    yield f"learn the task in {whole:,} images; the ConvMixer has {mixed:.0f} % after {three:,}"
    history = [epoch for row in vits for record in s.of(row, "record") for epoch in record["history"]]
    yield f"({sum(epoch['test_top1'] == 50 for epoch in history)} of {len(history)} evaluations are exactly 50.00 %)"
    (loss,) = {text(record["history"][-1]["train_loss"], 2) for row in vits for record in s.of(row, "record")}
    yield f"training loss stays at {loss}"
    suited = "ConViT, std 0.06"
    std = s.spec("base.params.std", suited)
    yield f"(std {std}) makes no difference that is seen to ConViT: {interval(s.gain(suited, 'ConViT'))}"
    assert not shows(s.gain(suited, "ConViT"))
    cost = s.gain("ConvMixer", "ConvMixer, random filters")
    yield f"not told apart from random ones that stay frozen: {interval(cost)} points"
    assert not shows(cost)
    last = s.probe("Imp.-3", "nonlocality", -1)[:, 1:], s.probe("Imp.-5", "nonlocality", -1)[:, 1:]
    # that of the mean over all pairs of tokens, as the start of a ViT that no method changes nearly is
    uniform = s.probe(KAIMING, "nonlocality", 0).mean()
    yield f"impulse fades in layers 2 and 3 (nonlocality {span(np.ravel(last))} at the end; uniform {uniform:.1f})"

"""The studies that every table and every figure is tried on.

A new table or figure that none of them allows brings its own: a file `*_records.py` in this folder with a dictionary
`STUDIES` of what fills a results folder with one study.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

from synthetic_records import done, everything, failed, several, skipped, solved, with_probes, write

from vitinit.analysis.frame import Study, load
from vitinit.benchmark.records.store import Layout, Store

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def _one_run(root: Path) -> None:
    write(root, done("Mimetic", (50.0,)))


def _nothing_learned(root: Path) -> None:
    """No row is better than another one, and no relative gain exists."""
    several(root, {row: [(0.0, 0.0)] * 4 for row in ("Kaiming uniform", "Mimetic")})
    Store(root).write_layout("small", Layout(contrasts=[("Mimetic", "Kaiming uniform"), ("gone", "Mimetic")]))


def _no_common_seed(root: Path) -> None:
    write(root, done("Kaiming uniform", seed=0), done("Mimetic", seed=1), done("Imp.-3", seed=2, dataset="svhn"))


def _names_that_are_markup(root: Path) -> None:
    for place, label in enumerate(("$x_{^\\", "<b>&amp;", "a|b`*_[x]", "漢字 🙂", "%#~\n- item", "../up")):
        write(
            root,
            with_probes(done("Imp.-3", label=label, seed=0, maps=[[[0.5]]], params={"kernel_size": 2 * place + 1})),
        )


def _unlike_runs(root: Path) -> None:
    """Write runs of one row: with and without probes, one epoch and several, two depths, three sizes of the data."""
    write(root, with_probes(done("ConViT", (10.0, 20.0))), done("ConViT", (10.0, 20.0), seed=1))
    write(root, done("ConViT", (10.0,), depth=5, seed=1), with_probes(done("Mimetic", (30.0,), depth=2)))
    write(root, *(done("Trunc normal", (20.0,), train_size=size) for size in (500, 1000, 2500)))
    write(root, failed("Imp.-3"), skipped("Imp.-5"), skipped("Trunc normal", seed=9))


def _settings(root: Path) -> None:
    """Two strengths and two numbers of gated layers; targets; a placebo beside its method."""
    for strength, layers, seed in product((0.1, 1.0), (1, 3), (0, 1)):
        which = {"params": {"locality_strength": strength}, "gpsa_layers": layers, "seed": seed}
        write(root, done("ConViT", (40.0 + seed,), label=f"ConViT, {strength:g}, {layers}", **which))
    for seed in (0, 1, 2):
        write(root, done("Kaiming uniform", (30.0,), seed=seed), done("Mimetic", (36.0 + seed,), seed=seed))
        write(root, with_probes(solved("Imp.-3", seed, 0.2, 1.0)), done("Placebo of Mimetic", (31.0,), seed=seed))


def _more_probes(root: Path) -> None:
    """Probes that the schema has no field for."""
    for row, seed in product(("Kaiming uniform", "Mimetic"), (0, 1)):
        record = with_probes(done(row, seed=seed))
        depth, heads = record.spec.model.depth, record.spec.model.heads
        by_head = [[float(head + layer) for head in range(heads)] for layer in range(depth)]
        more = {"<b>by head</b>": by_head, "by_layer": [float(layer) for layer in range(depth)]}
        probes = [probe.model_copy(update={"more": more}) for probe in record.probes]
        write(root, record.model_copy(update={"probes": probes}))


def _no_base(root: Path) -> None:
    """Nine rows whose base failed."""
    write(root, failed("Kaiming uniform"))
    write(root, *(done("Mimetic", (10.0, 20.0), label=f"{alpha}", params={"alpha_qk": alpha}) for alpha in range(9)))


SYNTHETIC: dict[str, Callable[[Path], object]] = {
    "everything": everything,
    "one run": _one_run,
    "nothing learned": _nothing_learned,
    "no common seed": _no_common_seed,
    "names that are markup": _names_that_are_markup,
    "unlike runs": _unlike_runs,
    "settings": _settings,
    "more probes": _more_probes,
    "no base": _no_base,
}


def contract_studies(root: Path) -> dict[str, Study]:
    """The synthetic studies by name, written below `root`."""
    builders = dict(SYNTHETIC)
    for path in sorted(Path(__file__).parent.glob("*_records.py")):
        builders |= getattr(importlib.import_module(path.stem), "STUDIES", {})
    studies = {}
    for name, build in builders.items():
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        build(folder)
        studies[name] = load([folder])
    return studies

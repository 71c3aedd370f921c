"""Synthetic records, built through the project's own models."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitinit.analysis.published import IMAGES
from vitinit.benchmark.records.record import FailureRecord, Probe, RunRecord, SkipRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec

KAIMING = {"name": "kaiming_uniform"}
TRUNC = {"name": "trunc_normal", "params": {"std": 0.02}}
MIMETIC = {
    **{"alpha_qk": 0.7, "beta_qk": 0.7, "alpha_vproj": 0.4, "beta_vproj": 0.4},
    **{"noise": "uniform", "vproj_order": "released"},
}
IMPULSE = {
    "solver": {"name": "gradient", "steps": 10_000, "lr": 1e-4, "renormalize_every": 100},
    **{"offsets": "random", "per_layer": False, "position_scale": 1.0},
}
ROWS: dict[str, dict[str, Any]] = {
    "Kaiming uniform": {"base": KAIMING},
    "Trunc normal": {"base": TRUNC},
    "Mimetic": {"base": KAIMING, "method": {"name": "mimetic", "params": MIMETIC}},
    "Imp.-3": {"base": KAIMING, "method": {"name": "impulse", "params": {"kernel_size": 3, **IMPULSE}}},
    "Imp.-5": {"base": KAIMING, "method": {"name": "impulse", "params": {"kernel_size": 5, **IMPULSE}}},
    "ConViT": {"base": TRUNC, "method": {"name": "convit_gpsa"}},
}
"""As arXiv 2404.01139 has them, and ConViT."""
PLACEBO = {"name": "placebo", "params": {"of": {"name": "mimetic", **MIMETIC}, "keep": "spectrum"}}


def spec(
    row: str,
    dataset: str = "cifar10",
    seed: int = 0,
    epochs: int = 3,
    train_size: int | None = None,
    params: dict[str, Any] | None = None,
    paper: bool = False,
    **fields: Any,
) -> RunSpec:
    """A run of a row; `params` are more of its method's, `fields` are others of the model.

    With `paper` it has the model and the epochs of arXiv 2404.01139's Table 2, of which only the last is evaluated.
    """
    model: dict[str, Any] = {"image_size": 32, "patch_size": 4, "width": 48, "depth": 4, "heads": 3}
    if paper:
        large = {"image_size": 224, "patch_size": 16} if dataset == "imagenet" else {"patch_size": 2}
        model |= {"width": 192, "depth": 12, **large}
        epochs = 300 if dataset == "imagenet" else 200
    if row == "ConViT":
        model |= {"arch": "convit", "heads": 4, "position": "learned", "pool": "token", "gpsa_layers": 3}
    others = {"base": KAIMING, "method": PLACEBO} if row == "Placebo of Mimetic" else {"base": KAIMING}
    initializers = ROWS.get(row, others)
    if params:
        method = initializers["method"]
        initializers = {**initializers, "method": {**method, "params": method.get("params", {}) | params}}
    return RunSpec.model_validate(
        {
            "dataset": {"name": dataset, "train_size": train_size},
            "model": model | fields,
            **initializers,
            "recipe": {"name": "small", "epochs": epochs, "batch_size": 100, "lr": 1e-3}
            | ({"evaluate_every": epochs} if paper else {}),
            "seed": seed,
        }
    )


def done(
    row: str,
    top1: Sequence[float] = (30.0, 40.0, 50.0),
    *,
    study: str = "small",
    label: str | None = None,
    maps: Any = None,
    environment: dict[str, Any] | None = None,
    **which: Any,
) -> RunRecord:
    """A finished run whose history has these test accuracies; `label` renames the row."""
    run = spec(row, epochs=len(top1), **which)
    return finished(run, top1, study=study, row=label or row, maps=maps, environment=environment)


def finished(
    run: RunSpec,
    top1: Sequence[float],
    *,
    study: str,
    row: str,
    images: tuple[int, int] | None = None,
    maps: Any = None,
    environment: dict[str, Any] | None = None,
) -> RunRecord:
    """A record of this run, of so many training and test images (None: all); `top1` of each epoch that is evaluated,
    rounded to whole images."""
    whole = IMAGES.get(run.dataset.name, (50_000, 10_000))
    trained, tested = images or (run.dataset.train_size or whole[0], whole[1])
    values = iter(100 * round(value * tested / 100) / tested for value in top1)
    epochs = [
        {"epoch": i, "lr": 1e-3, "train_loss": 2 / i, "test_loss": value and 2 / i, "test_top1": value, "seconds": 1.0}
        for i in range(1, run.recipe.epochs + 1)
        for value in [next(values) if i in run.recipe.evaluated_epochs else None]
    ]
    return RunRecord.model_validate(
        {
            "run_id": run.run_id,
            "study": study,
            "row": row,
            "spec": run,
            "written": "2025-01-01T00:00:00Z",
            "seconds": 12.5,
            "parameters": 123456,
            "dataset": {"train": trained, "test": tested, "classes": 10, "checksum": "0" * 64},
            "init": {
                "seconds": 0.5,
                "method_parameters": [],
                "norms": [{"layer": "blocks.0", "query": [1.0], "key": [1.0]}],
                "real_images": {"mse": 0.01, "mass": 0.5, "argmax": 0.9},
                "images": 64,
                "offset_maps": maps,
            },
            "history": epochs,
            "execution": {"device": "cpu"},
            "environment": {"commit": "0123456789abcdef", "dirty": False} if environment is None else environment,
        }
    )


def with_probes(record: RunRecord, number: int = 0) -> RunRecord:
    """The same with probes of random numbers; a ConViT has gates, an impulse a target."""
    draw, model = random.Random(number), record.spec.model

    def some(layers: int, most: float) -> list[list[float]]:
        return [[draw.uniform(0, most) for _ in range(model.heads)] for _ in range(layers)]

    probes = [
        Probe(
            epoch=epoch,
            images=64,
            nonlocality=some(model.depth, 6),
            nonlocality_reference=some(model.depth, 6),
            attention_entropy=some(model.depth, 4),
            effective_receptive_field=[draw.uniform(0, 5) for _ in range(model.depth)],
            receptive_field_images=8,
            impulse_mass=some(2, 1) if record.row.startswith("Imp") else None,
            gating=some(model.gated_layers, 1) if model.gated_layers else None,
            seconds=0.1,
        )
        for epoch in range(record.spec.recipe.epochs + 1)
    ]
    return record.model_copy(update={"probes": probes})


def solved(row: str, seed: int, mass: float | None, seconds: float) -> RunRecord:
    """A run whose initialisation came so near its target, and took so long."""
    record = done(row, seed=seed)
    fidelity = {"mse": 0.01, "mass": mass, "argmax": 1.0} if mass is not None else None
    norms = [([1.0, 4.0], [9.0, 9.0]), ([9.0, 9.0], [9.0, 9.0])]
    init = record.init.model_dump() | {
        **{"pseudo_input": fidelity, "real_images": fidelity, "seconds": seconds},
        "norms": [{"layer": f"blocks.{n}", "query": query, "key": key} for n, (query, key) in enumerate(norms)],
    }
    return RunRecord.model_validate(record.model_dump(exclude={"digest"}) | {"init": init})


def failed(
    row: str, message: str = "out of memory\nsecond line", *, study: str = "small", **which: Any
) -> FailureRecord:
    run = spec(row, **which)
    return FailureRecord(
        run_id=run.run_id,
        study=study,
        row=row,
        spec=run,
        written="2025-01-01T00:00:00Z",
        error="RuntimeError",
        message=message,
        traceback="",
        execution={"device": "cpu"},
        environment={},
    )


def skipped(row: str, reason: str = "no images here", *, study: str = "small", **which: Any) -> SkipRecord:
    run = spec(row, **which)
    return SkipRecord(run_id=run.run_id, study=study, row=row, spec=run, written="2025-01-01T00:00:00Z", reason=reason)


def write(root: Path, *outcomes: RunRecord | FailureRecord | SkipRecord) -> Path:
    for outcome in outcomes:
        Store(root).write(outcome)
    return root


def several(root: Path, values: Mapping[str, Iterable[float | Sequence[float]]], **which: Any) -> Path:
    """One run a row and seed: its accuracy, or that of each epoch."""
    for row, tops in values.items():
        for seed, top1 in enumerate(tops):
            write(root, done(row, top1 if isinstance(top1, Sequence) else (top1,), seed=seed, **which))
    return root


def with_error(record: RunRecord, error: float) -> RunRecord:
    """The same with a calibration error, of which less is better, after each epoch."""
    history = [epoch.model_copy(update={"metrics": {"calibration_error": error}}) for epoch in record.history]
    return record.model_copy(update={"history": history})


def respecified(record: RunRecord, **fields: dict[str, Any]) -> RunRecord:
    """The same run with other fields of its model, recipe or dataset."""
    parts = {part: getattr(record.spec, part).model_copy(update=new) for part, new in fields.items()}
    run = record.spec.model_copy(update=parts)
    return record.model_copy(update={"spec": run, "run_id": run.run_id})


def of_dataset(record: RunRecord, **fields: Any) -> RunRecord:
    """The same with other fields of the dataset, and with what it measured on the images that these ask for."""
    record = respecified(record, dataset=fields)
    if record.spec.dataset.evaluate_on != "val":
        return record
    new = [
        {"val_top1": epoch.test_top1, "val_loss": epoch.test_loss, "test_top1": None, "test_loss": None}
        for epoch in record.history
    ]
    history = [type(e).model_validate(e.model_dump() | its) for e, its in zip(record.history, new, strict=True)]
    counts = record.dataset.model_copy(update={"val": record.spec.dataset.val_size, "test": None})
    return record.model_copy(update={"history": history, "dataset": counts})


VALIDATION = {"val_size": 2000, "evaluate_on": "val"}
"""For `of_dataset`."""


def everything(root: Path) -> Path:
    """Six rows, four datasets, three seeds; one run failed, one skipped, two files that are no records.

    The last two datasets are in the setting of arXiv 2404.01139's Table 2.
    """
    for column, (dataset, train_size) in enumerate(
        (("digits", None), ("cifar10", 5000), ("cifar10", None), ("cifar100", None))
    ):
        for place, row in enumerate(ROWS):
            for seed in range(3):
                paper = dataset != "digits" and train_size is None
                which = {"dataset": dataset, "train_size": train_size, "seed": seed, "paper": paper}
                if (dataset, row, seed) == ("cifar100", "ConViT", 1):
                    write(root, failed(row, **which))
                elif (dataset, row, seed) == ("cifar100", "ConViT", 2):
                    write(root, skipped(row, **which))
                else:
                    last = 50 + place + 0.5 * seed * place + column
                    write(root, done(row, (last,) if paper else (20.0, 30.0, last), **which))
    (root / "small" / "0000000000000000.json").write_text('{"status": "done", "run_id": ')
    (root / "small" / "notes.json").write_text('{"hello": "world"}')
    return root

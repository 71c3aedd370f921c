"""Synthetic records, built through the project's own models."""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from vitinit.analysis.published import IMAGES
from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from vitinit.benchmark.records.store import Layout, Store
from vitinit.benchmark.spec import RunSpec

ROWS = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text(encoding="utf-8"))
WRITTEN = "2025-01-01T00:00:00Z"


def spec(
    row,
    dataset="cifar10",
    seed=0,
    epochs=3,
    train_size=None,
    params=None,
    paper=False,
    **fields,
):
    """A run of a row; `params` are more of its method's, `fields` are others of the model.

    With `paper` it has the model and the epochs of arXiv 2404.01139's Table 2, of which only the last is evaluated.
    """
    model = dict(ROWS["model"])
    if paper:
        model |= ROWS["large" if dataset == "imagenet" else "paper"]
        epochs = 300 if dataset == "imagenet" else 200
    if row == "ConViT":
        model |= ROWS["convit"]
    initializers = dict(ROWS[row])
    if params:
        method = initializers["method"]
        initializers["method"] = {**method, "params": method["params"] | params}
    return RunSpec.model_validate(
        {
            "dataset": {"name": dataset, "train_size": train_size},
            "model": model | fields,
            **initializers,
            "recipe": ROWS["recipe"] | {"epochs": epochs} | ({"evaluate_every": epochs} if paper else {}),
            "seed": seed,
        }
    )


def done(
    row,
    top1=(30.0, 40.0, 50.0),
    *,
    study="small",
    label=None,
    images=None,
    environment=None,
    **which,
):
    """A finished run whose history has these test accuracies, rounded to whole images; `label` renames the row.

    It has seen so many training and test images, by default all.
    """
    run = spec(row, **{"epochs": len(top1), **which})
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
            **outcome(run, study, label or row),
            **ROWS["finished"],
            "dataset": {"train": trained, "test": tested, "classes": 10, "checksum": "0" * 64},
            "history": epochs,
            "environment": {"commit": "0123456789abcdef", "dirty": False} if environment is None else environment,
        }
    )


def outcome(run, study, row):
    """Fields of every record of a run."""
    return {"run_id": run.run_id, "study": study, "row": row, "spec": run, "written": WRITTEN}


def failed(row, message="out of memory\nsecond line", *, study="small", **which):
    why = {"error": "RuntimeError", "message": message, "traceback": "", "execution": {}, "environment": {}}
    return FailureRecord.model_validate({**outcome(spec(row, **which), study, row), **why})


def skipped(row, reason="no images here", **which):
    return SkipRecord(**outcome(spec(row, **which), "small", row), reason=reason)


def write(root, *outcomes):
    for each in outcomes:
        Store(root).write(each)
    return root


def several(root, values, **which):
    """One run a row and seed: its accuracy, or that of each epoch."""
    for row, tops in values.items():
        for seed, top1 in enumerate(tops):
            write(root, done(row, top1 if isinstance(top1, Sequence) else (top1,), seed=seed, **which))
    return root


def laid_out(root, **fields):
    """The layout of the study, as of a grid that says this."""
    Store(root).write_layout("small", Layout(**fields))


def with_metrics(record, **metrics):
    """The same with these after each epoch: a calibration error, of which less is better, say."""
    history = [epoch.model_copy(update={"metrics": metrics}) for epoch in record.history]
    return record.model_copy(update={"history": history})


def respecified(record, **fields):
    """The same run with other fields of its model, recipe or dataset."""
    parts = {part: getattr(record.spec, part).model_copy(update=new) for part, new in fields.items()}
    run = record.spec.model_copy(update=parts)
    return record.model_copy(update={"spec": run, "run_id": run.run_id})


def validated(record):
    """The same run evaluated on 2,000 validation images in place of the test split."""
    record = respecified(record, dataset={"val_size": 2000, "evaluate_on": "val"})
    history = [
        epoch.model_copy(
            update={"val_top1": epoch.test_top1, "val_loss": epoch.test_loss, "test_top1": None, "test_loss": None}
        )
        for epoch in record.history
    ]
    counts = record.dataset.model_copy(update={"val": 2000, "test": None})
    return record.model_copy(update={"history": history, "dataset": counts})


def history(scores, metric="miou", on="test", also=None):
    """Epochs measured at this."""
    return [
        {"epoch": number, "lr": 1e-3, "train_loss": 1.0, f"{on}_loss": 1.0, f"{on}_{metric}": score, "seconds": 1.0}
        | (also or {})
        for number, score in enumerate(scores, 1)
    ]


def dense(row, miou, **which):
    """A finished run on `shapes` whose history has these mean IoUs."""
    content = json.loads(done(row, [0.0] * len(miou), dataset="shapes", study="masks", **which).model_dump_json())
    content["history"] = history(miou)
    content["dataset"] |= {"test": 1000, "classes": 4}
    return RunRecord.model_validate_json(json.dumps(content))

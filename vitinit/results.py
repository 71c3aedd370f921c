"""From records back to Python: a trained model with its images, tables of runs and of epochs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from vitinit.benchmark.records.record import RunRecord
    from vitinit.benchmark.spec import RunSpec
    from vitinit.runners.loaders.base import Loader

LOCAL, REFERENCE = Path("results/local"), Path("results/reference")


@dataclass(frozen=True, eq=False)
class Run:
    """A run that has ended."""

    record: RunRecord
    model: nn.Module
    """Trained, on the CPU, in evaluation mode."""
    data_dir: Path

    @property
    def spec(self) -> RunSpec:
        """Everything that decides its numbers."""
        return self.record.spec

    @property
    def images(self) -> Tensor:
        """The held-out images, normalised as in the run: N x 3 x S x S. All are in memory then; `batch` gives some."""
        import torch

        return self.batch(torch.arange(len(self.labels)))

    @property
    def labels(self) -> Tensor:
        """Their labels, N; of a dataset with masks, the masks."""
        return self._opened[1]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self._opened[2]

    def batch(self, numbers: Tensor) -> Tensor:
        """Return some of the held-out images, by their numbers."""
        return self._opened[0].plain(numbers, "held_out")

    @cached_property
    def _opened(self) -> tuple[Loader, Tensor, tuple[str, ...]]:
        import torch

        from vitinit.runners.loaders.base import make_loader
        from vitinit.runners.one_run.reproduce import images

        spec, data = self.spec, images(self.record, self.data_dir)
        loader = make_loader(data, spec.recipe, spec.seed, torch.device("cpu"))
        return loader, data.held_out.labels, tuple(data.classes)


def load(
    run_id: str,
    results: Path | str = LOCAL,
    data_dir: Path | str | None = None,
    trust: bool = False,
    ema: bool = False,
) -> Run:
    """Return a run that was recorded with `--keep-weights`: its trained model, spec and held-out images.

    Args:
        run_id: the run_id, or its first digits.
        results: folder with records; `results/reference` is looked into as well.
        data_dir: where datasets lie. Default: $VITINIT_DATA, else ./data.
        trust: whether to import code that the record names (`package.module:Class`, or a file of your own).
        ema: whether the model has the averaged weights, of a run whose recipe has `ema`.

    Raises:
        VitinitError: there is no such record or no weights of it, or these are not those of the record.
    """
    import torch

    from vitinit.benchmark.datasets.registry import data_dir as data_folder
    from vitinit.benchmark.models.build import build_model
    from vitinit.benchmark.records.store import kept_path
    from vitinit.initializers.plugins import imported
    from vitinit.runners.cli.records import find_done
    from vitinit.runners.one_run.reproduce import check_trusted
    from vitinit.runners.training.train import fingerprint

    file, record = find_done(run_id, Path(results))
    check_trusted(record, trust, "vitinit.load(..., trust=True)")
    if ema and record.spec.recipe.ema is None:
        raise VitinitError(f"run {record.run_id} has no averaged weights: its recipe has no ema")
    path = kept_path(file.parents[1], record.study, record.run_id, "ema_weights" if ema else "weights")
    if not path.is_file():
        raise VitinitError(
            f"run {record.run_id} has kept no weights ({path}); they are kept by: vitinit run GRID --keep-weights, "
            "once the record is removed"
        )
    spec = record.spec
    with imported(f"model of run {record.run_id}", VitinitError):
        model = build_model(spec.model, record.dataset.classes, record.last.field == "miou", spec.seed)
    try:
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # of pickle, zip and torch
        raise VitinitError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if fingerprint(model) != (record.ema_weights if ema else record.weights):
        raise VitinitError(f"{path} does not hold the weights of run {record.run_id}: their fingerprint differs")
    return Run(record, model.eval(), data_folder(Path(data_dir) if data_dir else None))


def records(study: str | Iterable[str] | None = None, results: Path | str | None = None) -> pd.DataFrame:
    """Return a table of runs, one row each: fields of the spec, score, times, environment; failed runs with reason.

    Args:
        study: name, or several; all by default.
        results: folder with records. Default: `results/local` if it holds records, else `results/reference`.
    """
    return _frame(study, results, 0)


def epochs(study: str | Iterable[str] | None = None, results: Path | str | None = None) -> pd.DataFrame:
    """Return a table of epochs, one row for each of every finished run; arguments as of `records`."""
    return _frame(study, results, 1)


def _frame(study: str | Iterable[str] | None, results: Path | str | None, which: int) -> pd.DataFrame:
    import pandas as pd

    from vitinit.benchmark.records.export import tables

    rows: Any = tables(study, *([LOCAL, REFERENCE] if results is None else [Path(results)]))
    return pd.DataFrame(rows[which])

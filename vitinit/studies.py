"""A study from Python: the same plan, runs, records, tables and figures as from the command line.

And from records back to Python: a trained model with its images, tables of runs and of epochs.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict, Unpack

from vitinit.benchmark.records.store import LOCAL, REFERENCE, Store, kept_path
from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError, count, explain, os_errors, unknown_name

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from vitinit.analysis.figures.style import Panels
    from vitinit.analysis.frame import Study as Records
    from vitinit.analysis.tables.table import Table
    from vitinit.benchmark.grids.schema import Grid
    from vitinit.benchmark.records.record import RunRecord
    from vitinit.benchmark.spec import RunSpec
    from vitinit.runners.loaders.base import Loader

Named = str | Mapping[str, Any]
Contrast = tuple[str, str] | Mapping[str, Any]
MODEL = {"preset": "vit_micro", "image_size": 32, "patch_size": 4}
RECIPE = "small"


@dataclass(frozen=True)
class StudyResults:
    """A study that has been run; what it shows is read from its records each time."""

    name: str
    results: Path = LOCAL

    def table(self, name: str | None = None, metric: str = "last", baseline: str | None = None) -> Table:
        """Return one of its tables, by default that of its rows and datasets.

        Args:
            name: as `python -m vitinit.analysis.tables` calls it.
            metric: `last` or `best` epoch, or another metric, such as `top5`.
            baseline: row that differences are to. Default: each row's own base.
        """
        from vitinit.analysis.frame import metric_name
        from vitinit.analysis.tables.registry import build

        return build(self._read(baseline).by(metric_name(metric)), name)

    def plot(self, figure: str = "differences") -> Panels:
        """Return a figure, which a notebook shows.

        `axes` are matplotlib's by the name of the panel, to go on with, and `figure.savefig` writes it.

        Args:
            figure: file that `vitinit figures` or `vitinit curves` writes, without its ending.
        """
        import matplotlib as mpl

        from vitinit.analysis.figures import style
        from vitinit.analysis.figures.drawing import figure as drawn

        study = self._read()
        study.require_runs()
        with mpl.rc_context():  # the notebook's own style stays as it was
            style.set_defaults()
            return drawn(study, figure)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def _read(self, baseline: str | None = None) -> Records:
        from vitinit.analysis.frame import load

        return load([self.results], self.name, baseline)


def study(name: str, results: Path | str = LOCAL) -> StudyResults:
    """Return a study that has been run, by its name.

    Raises:
        VitinitError: there is none of this name.
    """
    known = Store(results).studies()
    if name not in known:
        raise unknown_name("study", name, known)
    return StudyResults(name, Path(results))


class RunOptions(TypedDict, total=False):
    """Options of `vitinit run` that `vitinit.run` takes, too."""

    only: str | Sequence[str] | None
    """Conditions that a run meets, one or several: `row=Mimetic`, by row, dataset, method, id or any field."""
    retry_failed: bool
    """Run again what failed."""
    dry_run: bool
    """Show the plan and stop."""
    trial: bool
    """Take two steps of each row here: what fails, how long the runs take."""
    executor: Literal["auto", "inline", "local", "slurm"]
    """This process, processes of this machine, or jobs of a cluster. Default: auto."""
    device: Literal["auto", "cpu", "cuda"]
    """Default: cuda if there is one."""
    profile: str | None
    """Requests of a job: a name or YAML file."""
    wait: bool
    """Wait for the jobs of a cluster."""
    add: int | None
    """Number of jobs to add to those that there are."""
    data_dir: Path | str | None
    """Folder of datasets. Default: $VITINIT_DATA, else `data`."""
    workers: int | None
    """Runs at once. Default: one a core; by size on a GPU."""
    micro_batch: int | None
    """Images at once; the batch stays as it is."""
    loader: Literal["auto", "resident", "ffcv"]
    """Images in memory, or in a file that was prepared for FFCV."""
    compiled: bool
    """Train through torch.compile on a GPU."""
    checkpoint_minutes: float
    """Minutes between checkpoints. Default: 5."""
    keep_weights: bool
    """Keep trained weights, for `vitinit.load`."""
    track: str | Sequence[str] | None
    """Trackers, one or several: `tensorboard`, `wandb`."""
    measures: str | Sequence[str] | None
    """Probes and metrics of your own, one or several: `FILE.py:NAME`."""
    probes: bool
    """Measure attention during training. Default: True."""
    keep_maps: bool
    """Keep attention maps of before and after training."""
    deterministic: bool
    """Compute the same bits on a GPU each time; slower."""


def run(
    rows: Mapping[str, Mapping[str, Any]],
    datasets: Named | Sequence[Named],
    seeds: SupportsIndex | str | Iterable[int] = 3,
    recipe: Named = RECIPE,
    model: Named = MODEL,
    *,
    sweep: Mapping[str, Any] | None = None,
    contrasts: Contrast | Sequence[Contrast] = (),
    analysis: Mapping[str, str] | None = None,
    name: str | None = None,
    title: str | None = None,
    results: Path | str = LOCAL,
    **options: Unpack[RunOptions],
) -> StudyResults:
    """Run what a study still lacks, as `vitinit run` does, and return it.

    The study is written down as a grid, `results/NAME.yaml`. The same call again goes on where it was stopped, and runs
    nothing twice. Each run has a process of its own; with `executor="inline"` it is this one, whose threads it sets.

    Args:
        rows: by label, as in a grid: `{"Mimetic": {"base": "trunc_normal", "method": "mimetic"}}`.
        datasets: one or several names, or mappings as in a grid. A relative path begins in the current folder.
        seeds: of every row: the number of them, from 0 on, or as in a grid `0-4` or a list.
        recipe: name, or a mapping with fields to change; without a name they are of `small`.
        model: name of a preset, or as in a grid; a preset is for 32 pixels and patch 4 where nothing else is given.
        sweep: fields with one value or several, as in a grid: `{"recipe.lr": [3e-4, 1e-3]}`.
        contrasts: pairs of rows to be compared, or weighted contrasts as in a grid; one or several.
        analysis: their interval, test and check, as in a grid. Default: Student's t.
        name: of the study; one whose grid is another is refused. Default: `study-` and a hash of what is asked for.
        title: of its tables.
        results: folder for records.
        options: those of `vitinit run`, see `RunOptions`: `only`, `retry_failed`, `dry_run`, `trial`, `executor`,
            `device`, `profile`, `wait`, `add`, `data_dir`, `workers`, `micro_batch`, `loader`, `compiled`,
            `checkpoint_minutes`, `keep_weights`, `track`, `measures`, `probes`, `keep_maps`, `deterministic`.

    Raises:
        VitinitError: the study is refused, and the message says why; or a run has failed, whose reason was printed.
        KeyboardInterrupt: it was interrupted; runs in progress have saved where they were.
    """
    from vitinit.benchmark.fields import is_folder_name, named

    recipe = {"name": RECIPE, **recipe} if isinstance(recipe, Mapping) else named(recipe)
    seeds = seeds if isinstance(seeds, Iterable | bool | None) else range(seeds)
    model = {"preset": model} if isinstance(model, str) else model
    model = {**MODEL, **model} if isinstance(model, Mapping) and "preset" in model else model
    block = {
        "datasets": datasets if _several(datasets) else [datasets],
        "model": model,
        "recipe": recipe,
        "seeds": seeds,
    }
    if sweep:
        block["sweep"] = {field: values if _several(values) else [values] for field, values in sweep.items()}
    pairs = contrasts if _several(contrasts) and not any(isinstance(row, str) for row in contrasts) else [contrasts]
    registered = {"contrasts": pairs, **({"analysis": analysis} if analysis else {})}
    content = {"rows": _plain(rows), **_plain(registered, files=False), "blocks": _plain([block])}
    name = name or f"study-{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]}"
    content["blocks"][0]["datasets"] = [_from_here(dataset) for dataset in content["blocks"][0]["datasets"]]
    root = Path(results).absolute()
    for unknown in options.keys() - RunOptions.__annotations__.keys():
        raise unknown_name("option", unknown, RunOptions.__annotations__)
    from vitinit.runners.options import LaunchOptions, results_option

    if not is_folder_name(name):
        raise VitinitError(f"name {name!r} becomes a folder; use letters, digits, '-', '_' and '.'")
    path = root / f"{name}.yaml"
    try:
        chosen = TypeAdapter(LaunchOptions).validate_python(
            {**options, "results": root, "asked": f"{shlex.quote(str(path))}{results_option(root)}"}
        )
    except ValidationError as error:
        raise explain(error, "vitinit.run") from None

    from vitinit.benchmark.terminal import Terminal
    from vitinit.runners.launching.launch import launch
    from vitinit.runners.launching.view import Display

    grid = _written(path, {"title": title or name, **content}, chosen.executor == "inline")
    tally = launch(grid, chosen, Display(Terminal()), ["vitinit", "run", str(path), "--results", str(root)])
    if tally.exit_code:
        failed = count(len(tally.failures), "run")
        raise VitinitError(f"{failed} failed, {tally.stopped} stopped: vitinit status {chosen.asked}")
    return StudyResults(name, root)


def _several(value: Any) -> bool:
    """Return True for values one after the other, False for a text, a mapping or a number."""
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


def _from_here(dataset: Any) -> Any:
    """Return a dataset whose relative path begins in the current folder, and not in that of the grid."""
    from vitinit.benchmark.spec import WITH_PATH

    fields = {"name": dataset} if isinstance(dataset, str) else dataset
    kind = str((fields or {}).get("name")).partition(":")[0]
    return {**fields, "home": str(Path.cwd())} if kind in WITH_PATH else dataset


def _plain(value: Any, files: bool = True) -> Any:
    """Lists, mappings and plain values, as YAML has them; files of one's own as absolute paths.

    Without `files` a text is a text: a row may be called after a file.
    """
    if isinstance(value, BaseModel):
        from vitinit.initializers.registry import REGISTRY

        name = getattr(value, "name", "")
        if REGISTRY.by_name().get(name) is not type(value):
            raise VitinitError(
                f"{type(value).__name__} is no initialiser that is known by a name: write 'file.py:CLASS'"
            )
        value = {"name": name, **value.model_dump(exclude_unset=True)}
    if isinstance(value, Mapping):
        return {str(key): _plain(field, files) for key, field in value.items()}
    if _several(value):
        return [_plain(item, files) for item in value]
    if files and isinstance(value, str) and plugins.in_a_file(value):
        value = Path.cwd() / value
    try:
        return to_jsonable_python(value, fallback=lambda numbers: numbers.tolist())  # of numpy
    except AttributeError:
        raise VitinitError(
            f"{type(value).__name__} is nothing that a grid can say: write names, numbers, lists or mappings"
        ) from None


def _written(path: Path, content: dict[str, Any], here: bool) -> Grid:
    """Resolve a grid, and write it unless its file says the same already; `here`: in this process it is carried out."""
    from vitinit.benchmark.files import yaml_text
    from vitinit.benchmark.files.atomic import write_with_folder
    from vitinit.benchmark.grids.grid import resolve

    new = yaml_text.to_yaml(content)
    with os_errors(f"cannot write {path}"):
        before = path.read_bytes() if path.exists() else b""
        if before and yaml_text.mapping(before, path) != yaml_text.mapping(new, path):
            raise VitinitError(f"{path} is another grid: give another name, or remove it")
        grid = resolve(content, path)
        named = {
            name for cell in grid.cells for part in (cell.spec.base, cell.spec.method) if part for name in part.names()
        }
        if not here and (own := named & plugins.OF_OTHERS):
            raise VitinitError(f"initializer {min(own)!r} is known to this process alone: write 'file.py:CLASS'")
        if before != new:  # rows may be in another order now
            write_with_folder(path, new)
    return grid


# --- from records back to Python ---


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
        return self._loader.data.held_out.labels

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return tuple(self._loader.data.classes)

    def batch(self, numbers: Tensor) -> Tensor:
        """Return some of the held-out images, by their numbers."""
        return self._loader.plain(numbers, "held_out")

    @cached_property
    def _loader(self) -> Loader:
        import torch

        from vitinit.runners.loaders.base import make_loader
        from vitinit.runners.one_run.reproduce import images

        return make_loader(images(self.record, self.data_dir), self.spec.recipe, self.spec.seed, torch.device("cpu"))


def load(
    run_id: str, results: Path | str = LOCAL, data_dir: Path | str | None = None, trust: bool = False, ema: bool = False
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
    from vitinit.benchmark.files.reading import refuse_packed
    from vitinit.benchmark.models.build import build_model
    from vitinit.runners.cli.records import check_trusted, find_done
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
    with plugins.imported(f"model of run {record.run_id}", VitinitError):
        model = build_model(spec.model, record.dataset.classes, record.last.field == "miou", spec.seed)
    with plugins.imported(f"{path} cannot be read", VitinitError):  # errors of pickle, zip and torch
        refuse_packed(path)
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
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

    return pd.DataFrame(tables(study, *([LOCAL, REFERENCE] if results is None else [Path(results)]))[which])

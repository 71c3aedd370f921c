"""Repeating a recorded run from the spec inside its record, and comparing the two number by number."""

import os
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from vitinit.benchmark.records.store import STATUSES, Store
from vitinit.initializers.errors import VitinitError, explain
from vitinit.initializers.plugins import short_hash
from vitinit.runners.basics.environment import CHANGES, code, cores, default_device, differences
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.launching.view import Display
from vitinit.runners.launching.work import Queue, check_writable, run_inline, work
from vitinit.runners.loaders.base import open_data
from vitinit.runners.options import DeviceName


class Reproduction(NamedTuple):
    """A recorded run and its repetition."""

    values: int
    """Number of values that the older record holds and that were compared."""
    different: dict[str, tuple[Any, Any]]
    """Those that differ, then and now, by their path in the record."""
    environment: dict[str, tuple[Any, Any]]
    """Differences between the two in code, libraries, machine and execution: then and now."""
    causes: list[str]
    """Possible reasons for other values."""

    @property
    def verdict(self) -> str:
        """The result in one line."""
        if not self.different:
            return f"bitwise equal: all {self.values} values that the record holds, times aside"
        path, (then, now) = next(iter(self.different.items()))
        causes = "this may explain it: " + ", ".join(self.causes) if self.causes else "nothing recorded explains it"
        return f"{len(self.different)} of {self.values} values differ, first {path}: {then} then, {now} now; {causes}"


def execution(record: RunRecord, device: DeviceName = "auto") -> Execution:
    """Return the execution settings of a repetition: as recorded, or else on another device.

    Raises:
        VitinitError: it was on a device that is not here, or with settings that nobody can ask for.
    """
    then, recorded = record.execution, str(record.execution.get("device")).partition(":")[0]
    chosen = recorded if device == "auto" else device
    if chosen not in ("cpu", default_device()):
        raise VitinitError(f"torch finds no {chosen} device here; --device cpu repeats the run, with other rounding")
    names = "deterministic", "micro_batch", *(("threads", "compiled") if chosen == recorded else ())
    kept = {name: then[name] for name in names if then.get(name)}
    # auto asks for FFCV where --loader had images resident, and reads other pixels where files are prepared now
    loader = then["loader"] if then.get("loader") in ("resident", "full-size") else "auto"
    settings = {"device": chosen, "threads": cores(), "executor": "inline", "loader": loader, **kept}
    try:
        return TypeAdapter(Execution).validate_python(settings)
    except ValidationError as error:
        raise explain(error, f"run {record.run_id}: execution") from None


def repeat(
    record: RunRecord, execution: Execution, out: Path, data_dir: Path, display: Display
) -> RunRecord | FailureRecord:
    """Carry the run out again; its record goes to `out`, and a repetition recorded there earlier is put aside.

    It is carried out in this user's cache: a repetition that was stopped goes on where it was, and never from a
    checkpoint that somebody else has laid into a results folder.

    Raises:
        KeyboardInterrupt: a stop was asked for; it has saved where it was.
        VitinitError: the run cannot be carried out here, or is being repeated by another process; or the images are
            others.
    """
    images(record, data_dir, execution.loader, execution.device)  # before hours of training
    check_writable(out / record.study)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vitinit/reproduced")
    private = Store(cache / short_hash(os.fsencode(out.absolute())))
    for status in STATUSES:
        private.remove(record.study, record.run_id, status)
    setting = Setting(private.root, record.study, data_dir, execution, code(), probes=bool(record.probes))
    work(Queue((Cell(record.row, record.spec),), setting), run_inline, display)
    outcome = private.outcome(record.study, record.run_id)
    if not outcome or isinstance(outcome, SkipRecord):
        raise VitinitError(f"run {record.run_id} is being repeated for {out} by another process")
    for path in (out / record.study).glob(f"{record.run_id}.*"):
        if ".superseded-" not in path.name:
            path.rename(f"{path}.superseded-{uuid.uuid4().hex[:8]}")
    Store(out).write(outcome)
    return outcome


def images(record: RunRecord, data_dir: Path, loader: str = "auto", device: str = "cpu") -> Data:
    """Open the images of a run.

    Raises:
        VitinitError: they are not those that it saw.
    """
    spec = record.spec
    data = open_data(spec.dataset, spec.model.image_size, data_dir, loader, device, spec.seed, spec.recipe.crops)
    if data.checksum != record.dataset.checksum:
        raise VitinitError(
            f"run {record.run_id}: the images of {spec.dataset.label} in {data_dir} are not those of the run: checksum "
            f"{data.checksum[:12]}, not {record.dataset.checksum[:12]}"
        )
    return data


def compare(then: RunRecord, now: RunRecord) -> Reproduction:
    """Compare everything that a record holds, less times, with its repetition.

    Args:
        then: the record as read from its file, so that a field of before its time is known from one that is None.
        now: its repetition.
    """
    recorded = _leaves(then.without_times("execution", "environment", "edited", exclude_unset=True))
    repeated = _leaves(now.without_times())
    pairs = {path: (value, repeated.get(path, "nothing")) for path, value in recorded.items()}
    different = {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}
    environment = differences(_facts(then), _facts(now))
    causes = list(environment)
    for record in (then, now):
        for change in record.environment.get(CHANGES, ()):
            causes += [f"{name} between sessions" for name in change["changed"]]
    if now.execution.get("device") == "cuda" and not now.execution.get("deterministic"):
        causes.append("a GPU without --deterministic")
    if any(".metrics." in path for path in recorded.keys() - repeated.keys()):
        causes.append("metrics of one's own (--metric), which are not measured again")
    return Reproduction(len(pairs), different, environment, causes)


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return every value of a record by its path."""
    if not isinstance(value, dict | list):
        return {path: value}
    leaves: dict[str, Any] = {}
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        leaves |= _leaves(inner, f"{path}.{key}".strip("."))
    return leaves


def _facts(record: RunRecord) -> dict[str, Any]:
    """The environment of a run, with what is recorded of its execution."""
    execution = {"compiled": False, **record.execution}
    keys = "device threads deterministic processes micro_batch compiled"
    return {**record.environment, "execution": {key: execution.get(key) for key in keys.split()}}

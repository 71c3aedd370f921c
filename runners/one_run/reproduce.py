"""Repeating a recorded run from the spec inside its record, and comparing the two number by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vitinit.benchmark.models.named import PythonModel
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import is_pinned
from vitinit.runners.basics.environment import code, differences

if TYPE_CHECKING:
    from vitinit.runners.basics.setting import Execution
    from vitinit.runners.terminal.display import Display

# torch takes seconds to import: `vitinit` imports this module for its help too.


@dataclass(frozen=True)
class Reproduction:
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


def execution(record: RunRecord, device: Literal["auto", "cpu", "cuda"] = "auto") -> Execution:
    """Return the execution settings of a repetition: as recorded, or else on another device.

    Raises:
        VitinitError: it was on a device that is not here.
    """
    from vitinit.runners.basics.machine import cores, default_device
    from vitinit.runners.basics.setting import Execution

    then, threads = record.execution, record.execution.get("threads")
    recorded = str(then.get("device")).partition(":")[0]
    chosen = recorded if device == "auto" else device
    if chosen not in ("cpu", default_device()):
        raise VitinitError(f"torch finds no {chosen} device here; --device cpu repeats the run, with other rounding")
    return Execution(
        device=chosen,
        threads=threads if chosen == recorded and isinstance(threads, int) and 0 < threads <= 1024 else cores(),
        executor="inline",
        deterministic=then.get("deterministic") is True,
        micro_batch=then.get("micro_batch"),
        compiled=then.get("compiled") is True and chosen == recorded,
        # auto asks for FFCV where --loader had images resident, and reads other pixels where files are prepared now
        loader=then["loader"] if then.get("loader") in ("resident", "full-size") else "auto",
    )


def repeat(
    record: RunRecord, execution: Execution, out: Path, data_dir: Path, display: Display, trust: bool = False
) -> RunRecord | FailureRecord:
    """Carry the run out again; its record goes to `out`, and a repetition recorded there earlier is put aside.

    A repetition that was stopped goes on where it was. `trust` lets a record name code to be imported.

    Raises:
        Stopped: it was asked to stop; it has saved where it was.
        VitinitError: the run cannot be carried out here, or is being repeated by another process; or the images are
            others.
    """
    from vitinit.benchmark.grids.schema import Cell
    from vitinit.benchmark.records.store import Store
    from vitinit.runners.basics.setting import Setting, Unfinished
    from vitinit.runners.basics.stop import Stop, Stopped, on_signals
    from vitinit.runners.loaders import open_data
    from vitinit.runners.one_run.carry_out import carry_out

    check_trusted(record, trust)
    spec, cell, store, stop = record.spec, Cell(record.row, record.spec), Store(out), Stop()
    size, how = spec.model.image_size, (execution.loader, execution.device, spec.seed, spec.recipe.crops)
    found = open_data(spec.dataset, size, data_dir, *how).checksum  # before hours of training
    if found != record.dataset.checksum:
        raise VitinitError(
            f"run {record.run_id} cannot be repeated here: the images of {spec.dataset.label} have checksum "
            f"{found[:12]}, those of the record {record.dataset.checksum[:12]}"
        )
    store.supersede(record.study, record.run_id)
    setting = Setting(out, record.study, data_dir, execution, code(), probes=bool(record.probes))
    with on_signals(stop), display:
        display.begin([cell])
        outcome = carry_out(cell, setting, stop, display.event)
        if isinstance(outcome, Unfinished):
            if outcome.status == "stopped":
                raise Stopped(outcome.reason)
            raise VitinitError(f"run {record.run_id} in {out}: {outcome.reason}")
        display.end(outcome)
    return outcome


def named_code(record: RunRecord) -> list[str]:
    """The code that a record names as `package.module:Class` or in a file: to look it up is to execute it."""
    spec = record.spec
    named = [name for part in (spec.base, spec.method) if part for name in part.names() if ":" in name]
    named += [spec.model.python] if isinstance(spec.model, PythonModel) else []
    return [*named, *([spec.dataset.name] if is_pinned(spec.dataset.name) else [])]


def check_trusted(record: RunRecord, trust: bool, how: str = "--trust") -> None:
    """A record is data, but an initialiser named `package.module:Class` is code: to look it up is to execute it.

    Raises:
        VitinitError: the record names such code, and it is not trusted.
    """
    if (named := named_code(record)) and not trust:
        raise VitinitError(
            f"run {record.run_id} needs {', '.join(named)}, which would be imported and so executed; "
            f"say {how} if you trust the record"
        )


def compare(then: RunRecord, now: RunRecord) -> Reproduction:
    """Compare everything that a record holds, less times, with its repetition.

    Args:
        then: the record as read from its file, so that a field of before its time is known from one that is None.
        now: its repetition.
    """
    apart = {"execution", "environment", "files", "edited"}
    told = then.without_times(exclude_unset=True, exclude=apart)
    pairs = list(_pairs(told, now.without_times(), ""))
    different = {path: (first, second) for path, first, second in pairs if first != second}
    environment = differences(_facts(then), _facts(now))
    causes = list(environment)
    for name, record in (("recorded run", then), ("repetition", now)):
        if record.environment.get("changed_while_running"):
            causes.append(f"the {name} was stopped and went on with something changed (changed_while_running)")
    if now.execution["device"] == "cuda" and not now.execution["deterministic"]:
        causes.append("a GPU without --deterministic")
    return Reproduction(len(pairs), different, environment, causes)


def _pairs(then: Any, now: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Every value of the older record with its counterpart; it may lack fields that were added to records since."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key, value in then.items():
            yield from _pairs(value, now.get(key, "nothing"), f"{path}.{key}" if path else key)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (first, second) in enumerate(zip(then, now, strict=True)):
            yield from _pairs(first, second, f"{path}.{index}")
    else:
        yield path, then, now


def _facts(record: RunRecord) -> dict[str, Any]:
    """The environment of a run, with what is recorded of its execution."""
    keys = ("device", "threads", "deterministic", "processes", "micro_batch")
    execution = {key: record.execution.get(key) for key in keys}
    execution["compiled"] = record.execution.get("compiled", False)
    return {**record.environment, "execution": execution}

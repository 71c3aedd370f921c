"""Records on disk: `<root>/<study>/<run_id>.json`, failures and skips beside them. Imports no torch.

A record is there or it is not: it is written to a temporary file in the same folder, flushed, synced and moved into
place, so that a killed process leaves no half-written record. A file that does not validate is reported, never
counted and never deleted; it is renamed when its run is recorded anew.

Four folders beside the records are not read here: `unfinished/<run_id>/` (claims and checkpoints), `stable/` (what
longer runs begin from), `weights/`, and `maps/` (see `maps.py`). The file `LAYOUT` is no record either: it holds what a
table needs of the grid that no record can tell, the order of its rows and the contrasts that it names. (A grid gains
rows, and what was recorded before would say something else than what came after.)
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.files.atomic import sync_folder, write_atomically
from vitinit.benchmark.records.record import FailureRecord, Outcome, RunRecord, SkipRecord, from_bytes, to_bytes
from vitinit.initializers.errors import VitinitError, explain, os_errors, plain


class Unreadable(VitinitError):
    """A file that this user may not read, or that the disk does not give: it may hold a valid record."""


SUFFIX = {"done": ".json", "failed": ".failed.json", "skipped": ".skipped.json"}

SUPERSEDES = {"done": ("failed", "skipped"), "failed": ("skipped",), "skipped": ()}

OLD_S = 600.0
"""A temporary file of this age was left by a writer that was killed: writing one takes seconds."""

LAYOUT = "LAYOUT"
"""Name of the file with a study's `Layout`."""


def maps_path(root: Path, study: str, run_id: str) -> Path:
    """Return the path of the attention maps of a run, which may have kept none."""
    return maps_folder(root, study) / f"{run_id}.npz"


def maps_folder(root: Path, study: str) -> Path:
    """Return the folder of the attention maps of a study; it exists only if a run has kept some."""
    return root / study / "maps"


def weights_path(root: Path, study: str, run_id: str, ema: bool = False) -> Path:
    """Return the path of the final weights of a run, or of their average, which may have kept none."""
    return root / study / "weights" / (f"{run_id}.ema.pt" if ema else f"{run_id}.pt")


class Layout(Frozen):
    """Facts of a grid that tables need and no record holds."""

    rows: list[str] = Field(default_factory=list)
    """Labels in the order of the grid."""
    contrasts: list[tuple[str, str]] = Field(default_factory=list)
    """The rows that the grid compares: the first minus the second."""
    columns: list[str] = Field(default_factory=list)
    """Its datasets, a label for each setting that is no repetition of another; empty where none were put down."""
    title: str = ""
    """The grid's own."""

    def before(self, other: Layout) -> Layout:
        """This one, and behind it what only the other has; of columns, whose labels change with the grid, its own."""
        return Layout(
            rows=list(dict.fromkeys(self.rows + other.rows)),
            contrasts=list(dict.fromkeys(self.contrasts + other.contrasts)),
            columns=self.columns or other.columns,
            title=self.title or other.title,
        )


@dataclass
class Contents:
    """Everything found in one study, by run_id. A finished run hides failures and skips, a failure hides skips."""

    done: dict[str, RunRecord] = field(default_factory=dict)
    failed: dict[str, FailureRecord] = field(default_factory=dict)
    skipped: dict[str, SkipRecord] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """One line for each file that is no valid record, or cannot be read: its path and what is wrong."""
    unreadable: list[str] = field(default_factory=list)
    """Lines of `problems` about files that cannot be read, and may be valid."""

    def settle(self) -> None:
        """Leave one outcome of each run: done before failed before skipped."""
        for run_id in self.done:
            self.failed.pop(run_id, None)
        for run_id in (*self.done, *self.failed):
            self.skipped.pop(run_id, None)


@dataclass
class Survey:
    """Files of a study folder that are not records."""

    unfinished: int = 0
    """Runs that have begun and left no record yet."""
    superseded: int = 0
    """Records that `run --force` put aside."""
    set_aside: int = 0
    """Damaged files that were renamed when their run was recorded anew."""
    leftovers: list[str] = field(default_factory=list)
    """Temporary files of writers that were killed; they may be deleted."""


class Store:
    """The records below one results folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def studies(self) -> list[str]:
        """Names of the studies that hold at least one JSON file, or cannot be listed: reading those says why."""
        return [name for name in self.folders() if self._holds_records(name)]

    def folders(self) -> list[str]:
        """Names of all folders below the root, with or without records."""
        try:
            # Not entry.is_dir(), which raises for a link that leads in a circle.
            return sorted(entry.name for entry in os.scandir(self.root) if os.path.isdir(entry.path))  # noqa: PTH112
        except OSError:
            return []

    def strays(self) -> list[Path]:
        """JSON files in the root itself, where no reader looks."""
        return sorted(self.root.glob("*.json"))

    def write(self, outcome: Outcome) -> Path:
        """Write one outcome atomically and remove the ones it supersedes.

        Raises:
            VitinitError: the folder cannot be written, or the outcome does not validate.
        """
        try:
            content = to_bytes(outcome)
        except VitinitError as error:
            raise VitinitError(f"refusing to write {self._path(outcome.study, outcome.run_id)}: {error}") from None
        path = self._path(outcome.study, outcome.run_id, outcome.status)
        with os_errors(f"cannot write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._set_aside_invalid(path, outcome.study)
            write_atomically(path, content)
            for status in SUFFIX:
                if status in SUPERSEDES[outcome.status]:
                    with contextlib.suppress(OSError):  # done hides it anyway
                        earlier = self._path(outcome.study, outcome.run_id, status)
                        self._set_aside_invalid(earlier, outcome.study)
                        earlier.unlink(missing_ok=True)
        return path

    def unskip(self, study: str, run_id: str) -> None:
        """Forget that a run was skipped: what it lacked has come."""
        path = self._path(study, run_id, "skipped")
        with contextlib.suppress(OSError):
            if path.exists():
                self._set_aside_invalid(path, study)
                path.unlink(missing_ok=True)

    def read(self, study: str) -> Contents:
        """Read and validate every file of a study."""
        contents = Contents()
        folder = self.root / study
        try:
            names = sorted(_json_files(folder))
        except (FileNotFoundError, NotADirectoryError):
            return contents
        except OSError as error:
            contents.problems.append(f"{folder}: cannot be read: {error.strerror or error}")
            contents.unreadable.append(contents.problems[-1])
            return contents
        for name in names:
            path = folder / name
            try:
                outcome = _read(path, study)
            except VitinitError as error:
                if not os.path.lexists(path):
                    return self.read(study)  # a run ended, and its record is under another name
                contents.problems.append(f"{path}: {plain(str(error), 240)}")
                if isinstance(error, Unreadable):
                    contents.unreadable.append(contents.problems[-1])
                continue
            getattr(contents, outcome.status)[outcome.run_id] = outcome
        contents.settle()
        return contents

    def write_layout(self, study: str, layout: Layout) -> None:
        """Put down what the grid says; rows and contrasts of before that are not among these stay, as the last ones.

        Raises:
            VitinitError: the folder cannot be written.
        """
        earlier = None
        with contextlib.suppress(VitinitError):  # what cannot be read is written anew
            earlier = self.layout(study)
            layout = layout.before(earlier)
        if layout != earlier:
            write_model(self.root / study / LAYOUT, layout)

    def layout(self, study: str) -> Layout:
        """Return the layout of a study; empty where none was stored, as in old folders.

        Raises:
            VitinitError: the file is there and is no layout.
        """
        return read_model(self.root / study / LAYOUT, Layout, "the rows and contrasts of a grid") or Layout()

    def outcome(self, study: str, run_id: str) -> Outcome | None:
        """Return the outcome of one run: done before failed before skipped. A file that is not valid counts as absent.

        Raises:
            VitinitError: a file cannot be read; the message names it.
        """
        for status in (*SUFFIX, "done"):  # once more at the end: done may have replaced failed meanwhile
            path = self._path(study, run_id, status)
            try:
                return _read(path, study)
            except Unreadable as error:
                raise VitinitError(f"{path}: {error}") from None
            except VitinitError:
                continue
        return None

    def supersede(self, study: str, run_id: str) -> list[Path]:
        """Put the done and the failed record of a run, its attention maps and weights aside, so that it runs again.

        Nothing is deleted.

        Returns:
            The new paths, `<name>.superseded-<8 hex digits>`. No reader takes them for records.

        Raises:
            VitinitError: a file cannot be renamed.
        """
        moved = []
        for path in (
            self._path(study, run_id, "done"),
            self._path(study, run_id, "failed"),
            maps_path(self.root, study, run_id),
            weights_path(self.root, study, run_id),
            weights_path(self.root, study, run_id, ema=True),
        ):
            with os_errors(f"cannot rename {path}"):
                if os.path.lexists(path):
                    moved.append(_aside(path, "superseded"))
        if moved:
            with contextlib.suppress(OSError):  # the names are right already; only a power cut could undo them
                sync_folder(self.root / study)
        return moved

    def survey(self, study: str) -> Survey:
        """Count what a study's folder holds besides its records, and name what killed writers left."""
        folder, before = self.root / study, time.time() - OLD_S
        unfinished = [one for one in folder.glob("unfinished/*/") if not (folder / f"{one.name}.json").exists()]
        superseded, invalid = (len(list(folder.glob(f"*.json.{why}-*"))) for why in ("superseded", "invalid"))
        survey = Survey(len(unfinished), superseded, invalid)
        for path in sorted(folder.rglob(".*.tmp")):
            with contextlib.suppress(OSError):  # its writer was alive and has finished
                if path.lstat().st_mtime < before:
                    survey.leftovers.append(f"{path}: left by a writer that was killed; delete it")
        return survey

    def _holds_records(self, study: str) -> bool:
        try:
            return bool(_json_files(self.root / study))
        except OSError as error:
            return not isinstance(error, FileNotFoundError)  # else it has just gone

    def _path(self, study: str, run_id: str, status: str = "done") -> Path:
        return self.root / study / f"{run_id}{SUFFIX[status]}"

    def _set_aside_invalid(self, path: Path, study: str) -> None:
        """A damaged file where a record is to go is renamed, not overwritten: it may be all that is left."""
        try:
            _read(path, study)
        except Unreadable as error:
            raise OSError(0, str(error)) from None  # it may be valid, and is not ours to rename
        except VitinitError:
            with contextlib.suppress(FileNotFoundError):
                _aside(path, "invalid")


def _json_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.suffix == ".json"]


def _read(path: Path, study: str) -> Outcome:
    """Read one file.

    Raises:
        VitinitError: it is no valid record of this study; what is wrong, without the path.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        absent = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
        raise (VitinitError if absent else Unreadable)(f"cannot be read: {error.strerror or error}") from None
    outcome = from_bytes(data)
    if path.name != outcome.run_id + SUFFIX[outcome.status]:
        raise VitinitError(f"holds {outcome.status} run {outcome.run_id}")
    if outcome.study != study:
        raise VitinitError(f"belongs to study {outcome.study!r}")
    return outcome


def _aside(path: Path, why: str) -> Path:
    return path.rename(path.with_name(f"{path.name}.{why}-{uuid.uuid4().hex[:8]}"))


Model = TypeVar("Model", bound=Frozen)


def read_model(path: Path, kind: type[Model], what: str) -> Model | None:
    """Return what a JSON file holds; None where there is none.

    Raises:
        VitinitError: it cannot be read, or does not hold what it is to.
    """
    try:
        with os_errors(f"cannot read {path}"):
            return kind.model_validate_json(path.read_bytes()) if path.is_file() else None
    except ValidationError as error:
        why = str(explain(error, "")).removeprefix(": ")
        raise VitinitError(f"{path}: does not hold {what}: {plain(why, 160)}") from None


def write_model(path: Path, content: Frozen) -> None:
    """Write a JSON file.

    Raises:
        VitinitError: the folder cannot be written.
    """
    with os_errors(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (content.model_dump_json(indent=1) + "\n").encode())

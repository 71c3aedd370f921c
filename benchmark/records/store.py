"""Records on disk: `<root>/<study>/<run_id>.json`, failures and skips beside them. Imports no torch.

A record is there or it is not: it is written to a temporary file in the same folder, flushed, synced and moved into
place, so that a killed process leaves no half-written record. A file that does not validate is reported, never
counted and never deleted; it is renamed when its run is recorded anew.

Three folders lie beside the records: `unfinished/<run_id>/` (claims and checkpoints), `weights/`, and `maps/`, the
attention maps and Gram matrices that runs have kept. The file `LAYOUT` is no record either: it holds what a table needs
of the grid that no record can tell, the order of its rows and the contrasts that it names. (A grid gains rows, and what
was recorded before would say something else than what came after.)
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field, TypeAdapter

from vitinit.benchmark.contrasts import Registered
from vitinit.benchmark.fields import Frozen, Model
from vitinit.benchmark.files.atomic import alone, write_with_folder
from vitinit.benchmark.files.reading import MIB, read, refuse_packed, sha256
from vitinit.benchmark.records.record import (
    FailureRecord,
    Outcome,
    RunRecord,
    SkipRecord,
    from_bytes,
    from_json,
    seal,
    to_bytes,
    unseal,
)
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import VitinitError, os_errors, plain


class Unreadable(VitinitError):
    """A file that this user may not read, or that the disk does not give: it may hold a valid record."""


LOCAL, REFERENCE = Path("results/local"), Path("results/reference")
"""Folders of this machine's records, and of those that come with the project."""
Status = Literal["done", "failed", "skipped"]
STATUSES: tuple[Status, ...] = get_args(Status)
"""Outcomes of a run; each takes the place of those behind it."""

LAYOUT = "LAYOUT"
"""Name of the file with a study's `Layout`."""

KEPT = {"maps": "maps/{}.npz", "weights": "weights/{}.pt", "ema_weights": "weights/{}.ema.pt"}
"""Files that a run may keep beside its record, by their names in `RunRecord.files`."""


def kept_path(root: Path, study: str, run_id: str, name: str) -> Path:
    """Return the path of a file of `KEPT`."""
    return root / study / KEPT[name].format(run_id)


class Layout(Registered):
    """Facts of a grid that tables need and no record holds."""

    rows: list[str] = Field(default_factory=list)
    """Labels in the order of the grid."""
    columns: list[str] = Field(default_factory=list)
    """Its datasets, a label for each setting that is no repetition of another; empty where none were put down."""
    title: str = ""
    """The grid's own."""
    runs: dict[str, str] = Field(default_factory=dict)
    """Runs of the grid now: the row of every run, by its run_id at seed 0. Empty where it was not put down."""
    planned: int = 0
    """Number of runs that the grid's file names; 0 where it was not put down."""

    def before(self, other: Layout) -> Layout:
        """This one, and behind it what only the other has; of columns, whose labels change with the grid, its own.

        Of two contrasts of one name, or that compare the same, it is this one's. The analysis is that of the first that
        names contrasts: it judges all of them.
        """
        known = {key for contrast in self.contrasts for key in (contrast.name, contrast.compared)}
        return Layout(
            rows=list(dict.fromkeys(self.rows + other.rows)),
            contrasts=self.contrasts + [old for old in other.contrasts if known.isdisjoint((old.name, old.compared))],
            analysis=(self if self.contrasts else other).analysis,
            placebos=other.placebos | self.placebos,
            columns=self.columns or other.columns,
            title=self.title or other.title,
            runs=self.runs or other.runs,
            planned=self.planned or other.planned,
        )

    def has(self, spec: RunSpec) -> bool:
        """Return True if the grid has this run, at any seed, or if that is not known."""
        return not self.runs or at_seed_0(spec) in self.runs


def at_seed_0(spec: RunSpec) -> str:
    """Return what the runs of a grid that differ in their seeds alone have in common: the run_id of the first."""
    return spec.model_copy(update={"seed": 0}).run_id


@dataclass
class Contents:
    """Everything found in one study, by run_id. Precedence: done, failed, skipped."""

    done: dict[str, RunRecord] = field(default_factory=dict)
    failed: dict[str, FailureRecord] = field(default_factory=dict)
    skipped: dict[str, SkipRecord] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """One line for each file that is no valid record, or cannot be read: its path and what is wrong."""
    gone: int = 0
    """Number of failures and skips that are left out, as of runs that the grid no longer has."""
    unreadable: list[str] = field(default_factory=list)
    """Lines of `problems` about files that cannot be read, and may be valid."""

    def relabel(self, layout: Layout) -> None:
        """Put outcomes into the row that the grid has for them, as after a new name."""
        everything: list[dict[str, Any]] = [self.done, self.failed, self.skipped]
        for outcomes in everything if layout.runs else ():
            for run_id, outcome in outcomes.items():
                update = {"row": layout.runs.get(at_seed_0(outcome.spec), outcome.row)}
                outcomes[run_id] = outcome.model_copy(update=update)

    def drop_superseded(self) -> None:
        """Leave one outcome of each run: done before failed before skipped."""
        for run_id in self.done:
            self.failed.pop(run_id, None)
        for run_id in (*self.done, *self.failed):
            self.skipped.pop(run_id, None)


class Store:
    """The records below one results folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def studies(self) -> list[str]:
        """Names of the studies that hold at least one JSON file, or cannot be listed: reading those says why."""
        return [name for name in self.folders() if any(self._files(name))]

    def folders(self) -> list[str]:
        """Names of all folders below the root, with or without records."""
        try:
            return sorted(path.name for path in self.root.iterdir() if path.is_dir())
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
        path = self.path(outcome.study, outcome.run_id, outcome.status)
        content = to_bytes(outcome)
        with os_errors(f"cannot write {path}"):
            _set_aside_invalid(path)
            write_with_folder(path, content)
        for status in STATUSES[STATUSES.index(outcome.status) + 1 :]:
            self.remove(outcome.study, outcome.run_id, status)
        return path

    def remove(self, study: str, run_id: str, status: Status) -> None:
        """Forget that a run failed or was skipped; a file that cannot be removed is hidden by a done one anyway."""
        path = self.path(study, run_id, status)
        with contextlib.suppress(OSError):
            _set_aside_invalid(path)
            path.unlink(missing_ok=True)

    def read(self, study: str) -> Contents:
        """Read and validate every file of a study."""
        contents = Contents()
        paths, why = self._files(study)
        if why:
            contents.problems, contents.unreadable = [why], [why]
        gc.disable()  # looking for cycles, of which records have none, would take two thirds of the time
        try:
            for path in paths:
                try:
                    outcome = _read(path)
                except VitinitError as error:
                    if not os.path.lexists(path):
                        return self.read(study)  # a run ended, and its record is under another name
                    contents.problems.append(f"{path}: {plain(str(error), 240)}")
                    if isinstance(error, Unreadable):
                        contents.unreadable.append(contents.problems[-1])
                    continue
                getattr(contents, outcome.status)[outcome.run_id] = outcome
        finally:
            gc.freeze()
            gc.unfreeze()  # they are of the oldest generation now
            gc.enable()
        contents.drop_superseded()
        return contents

    def write_layout(self, study: str, layout: Layout) -> None:
        """Put down what the grid says; rows and contrasts of before that are not among these stay, as the last ones.

        Raises:
            VitinitError: the folder cannot be written.
        """
        earlier, path = None, self.root / study / LAYOUT
        with os_errors(f"cannot write {path}"), alone(path):
            with contextlib.suppress(VitinitError):  # what cannot be read is written anew
                earlier = self.layout(study)
                layout = layout.before(earlier)
            if layout != earlier:
                write_model(path, layout)

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
        for status in (*STATUSES, "done"):  # once more at the end: done may have replaced failed meanwhile
            path = self.path(study, run_id, status)
            try:
                return _read(path)
            except Unreadable as error:
                raise VitinitError(f"{path}: {error}") from None
            except VitinitError:
                continue
        return None

    def path(self, study: str, run_id: str, status: str) -> Path:
        """Return the path of an outcome."""
        return self.root / study / _name(run_id, status)

    def _files(self, study: str) -> tuple[list[Path], str]:
        """Return the JSON files of a study, and why it cannot be listed."""
        folder = self.root / study
        try:
            return sorted(path for path in folder.iterdir() if path.suffix == ".json"), ""
        except (FileNotFoundError, NotADirectoryError):
            return [], ""
        except OSError as error:
            return [], f"{folder}: cannot be read: {error.strerror or error}"


def _name(run_id: str, status: str) -> str:
    return f"{run_id}.json" if status == "done" else f"{run_id}.{status}.json"


def _read(path: Path) -> Outcome:
    """Read one file.

    Raises:
        VitinitError: it is no valid record of this study; what is wrong, without the path.
    """
    try:
        data = read(path)
    except OSError as error:
        absent = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL)
        raise (VitinitError if absent else Unreadable)(f"cannot be read: {error.strerror or error}") from None
    outcome = from_bytes(data)
    if path.name != _name(outcome.run_id, outcome.status):
        raise VitinitError(f"holds {outcome.status} run {outcome.run_id}")
    if outcome.study != path.parent.name:
        raise VitinitError(f"belongs to study {outcome.study!r}")
    return outcome


def _set_aside_invalid(path: Path) -> None:
    """Rename a damaged file where a record is to go, and do not overwrite it: it may be all that is left."""
    try:
        _read(path)
    except Unreadable as error:
        raise OSError(0, str(error)) from None  # it may be valid, and is not ours to rename
    except VitinitError:
        with contextlib.suppress(FileNotFoundError):
            path.rename(f"{path}.invalid-{uuid.uuid4().hex[:8]}")


def read_model(path: Path, model: type[Model], what: str) -> Model | None:
    """Return what a JSON file holds; None where there is none.

    Raises:
        VitinitError: it cannot be read, or does not hold what it is to.
    """
    if not os.path.lexists(path):
        return None
    with os_errors(f"cannot read {path}"):
        content = read(path)
    try:
        return from_json(TypeAdapter(model), unseal(content))
    except VitinitError as error:
        raise VitinitError(f"{path}: does not hold {what}: {plain(str(error), 160)}") from None


def write_model(path: Path, content: Frozen) -> None:
    """Write a JSON file.

    Raises:
        VitinitError: the folder cannot be written.
    """
    with os_errors(f"cannot write {path}"):
        write_with_folder(path, seal(content.model_dump_json(indent=1).encode()))


# --- attention maps and Gram matrices: a zip of five arrays, whose CRC-32 tells of flipped bits ---


@dataclass(frozen=True)
class AttentionMaps:
    """Attention of each layer's heads at some epochs, and the similarity of images in each layer."""

    epochs: tuple[int, ...]
    """Ascending; 0 is before the first."""
    maps_ELHNN: np.ndarray
    """Attention, mean over test images, float16; rows are queries, columns are keys."""
    grams_ELBnn: np.ndarray
    """Gram matrices of what each block puts out, float32: B batches of n of those images, compared with one another.
    Features are minus their mean over the batch. They serve `analysis.curves.cka`."""
    images: int
    """Number of images that the maps are the mean over."""
    weights: str
    """Fingerprint of the weights after the last step: that of the record to which they belong."""


def maps_to_bytes(maps: AttentionMaps) -> bytes:
    """The content of the file; the same maps give the same bytes."""
    buffer = io.BytesIO()
    epochs, images, weights = map(np.array, (maps.epochs, maps.images, maps.weights))
    np.savez(buffer, epochs=epochs, maps=maps.maps_ELHNN, grams=maps.grams_ELBnn, images=images, weights=weights)
    return buffer.getvalue()


def read_maps(root: Path, record: RunRecord) -> AttentionMaps | None:
    """The maps that are kept for a run; None where there are none.

    They may be of another run of the same run_id, that of a second machine say: compare the weights.

    Raises:
        VitinitError: the file cannot be read, is damaged, or does not fit the model.
    """
    path = kept_path(root, record.study, record.run_id, "maps")
    try:
        content = read(path, 256 * MIB)
        if record.files.get("maps") not in (None, sha256(path, 256 * MIB)):
            raise ValueError("other bytes than those that the run kept")
        refuse_packed(io.BytesIO(content))
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            epochs = tuple(arrays["epochs"].tolist())
            maps = AttentionMaps(epochs, arrays["maps"], arrays["grams"], int(arrays["images"]), str(arrays["weights"]))
    except FileNotFoundError:
        return None
    except Exception as error:  # what numpy and zipfile raise for a damaged file is of many types
        raise VitinitError(f"{path}: no attention maps, or damaged: {plain(str(error), 200)}") from None
    shape = len(epochs), *(record.spec.model.attention_maps or ())
    attention, grams = maps.maps_ELHNN, maps.grams_ELBnn
    layout = epochs[:1] + epochs[-1:], attention.shape, grams.shape[:2], grams.ndim, attention.dtype, grams.dtype
    if layout != ((0, record.spec.recipe.epochs), shape, shape[:2], 5, np.float16, np.float32):
        raise VitinitError(
            f"{path}: no attention maps and Gram matrices of {' x '.join(map(str, shape))}, from epoch 0 to the last"
        )
    return maps


def check_maps(root: Path, study: str, done: Mapping[str, RunRecord]) -> tuple[int, list[str]]:
    """Every file of maps in a study: how many belong to a record and are whole, and a line for each other one."""
    folder, invalid = root / study, list[str]()
    files = [path for path in folder.glob("maps/*.npz") if not (folder / "unfinished" / path.stem).exists()]
    for path in sorted(files):
        try:
            if path.stem not in done:
                invalid.append(f"{path}: attention maps without a record")
            elif (maps := read_maps(root, done[path.stem])) and maps.weights != done[path.stem].weights:
                invalid.append(f"{path}: of another run than the record: other weights")
        except VitinitError as error:
            invalid.append(str(error))
    whole = len(files) - len(invalid)
    for run_id, record in done.items():
        for name in record.files.keys() - {"maps"}:
            path = kept_path(root, study, run_id, name)
            try:
                # far more than a model's numbers take: a sparse file may have terabytes
                if sha256(path, 2**30 + 64 * record.parameters) != record.files[name]:
                    invalid.append(f"{path}: other bytes than those that the run kept")
            except FileNotFoundError:
                continue
            except OSError as error:
                invalid.append(f"{path}: cannot be read: {error.strerror}")
    return whole, invalid

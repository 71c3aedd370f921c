"""Records on disk: `<root>/<study>/<run_id>.json`, failures and skips beside them. Imports no torch.

A record is there or it is not: it is written to a temporary file in the same folder, flushed, synced and moved into
place, so that a killed process leaves no half-written record. A file that does not validate is reported, never
counted and never deleted; it is renamed when its run is recorded anew.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from benchmark.record import OUTCOME, FailureRecord, RunRecord, SkipRecord
from initializers.errors import VitinitError, explain

SUFFIX = {"done": ".json", "failed": ".failed.json", "skipped": ".skipped.json"}


@dataclass
class Contents:
    """Everything found in one study, by run_id. A finished run hides its earlier failures and skips."""

    done: dict[str, RunRecord] = field(default_factory=dict)
    failed: dict[str, FailureRecord] = field(default_factory=dict)
    skipped: dict[str, SkipRecord] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """One line for each file that is no valid record: its path and what is wrong."""


class Store:
    """The records below one results folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def studies(self) -> list[str]:
        """Names of the studies that hold at least one JSON file."""
        if not self.root.is_dir():
            return []
        return sorted(p.name for p in self.root.iterdir() if p.is_dir() and any(p.glob("*.json")))

    def write(self, outcome: RunRecord | FailureRecord | SkipRecord) -> Path:
        """Write one outcome atomically and remove the ones it supersedes.

        Raises:
            VitinitError: the folder cannot be written, or the outcome does not validate.
        """
        folder = self.root / outcome.study
        path = folder / f"{outcome.run_id}{SUFFIX[outcome.status]}"
        text = outcome.model_dump_json(indent=1) + "\n"
        try:
            OUTCOME.validate_json(text)
        except ValidationError as error:
            raise explain(error, f"refusing to write {path}") from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _set_aside_invalid(path)
            _write_atomically(path, text)
            for status, suffix in SUFFIX.items():
                if outcome.status == "done" and status != "done":
                    (folder / f"{outcome.run_id}{suffix}").unlink(missing_ok=True)
        except OSError as error:
            raise VitinitError(f"cannot write {path}: {error.strerror or error}") from None
        return path

    def read(self, study: str) -> Contents:
        """Read and validate every file of a study."""
        contents = Contents()
        folder = self.root / study
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
            try:
                outcome = OUTCOME.validate_json(path.read_bytes())
                if path.name != outcome.run_id + SUFFIX[outcome.status]:
                    raise VitinitError(f"{path}: holds {outcome.status} run {outcome.run_id}")
                if outcome.study != study:
                    raise VitinitError(f"{path}: belongs to study {outcome.study!r}")
            except ValidationError as error:
                contents.problems.append(str(explain(error, str(path))).splitlines()[0])
            except (OSError, VitinitError) as error:
                contents.problems.append(str(error))
            else:
                if outcome.status == "done":
                    contents.done[outcome.run_id] = outcome
                elif outcome.status == "failed":
                    contents.failed[outcome.run_id] = outcome
                else:
                    contents.skipped[outcome.run_id] = outcome
        for run_id in contents.done:
            contents.failed.pop(run_id, None)
            contents.skipped.pop(run_id, None)
        return contents


def _set_aside_invalid(path: Path) -> None:
    """A damaged file where a record is to go is renamed, not overwritten: it may be all that is left of something."""
    if not path.exists():
        return
    try:
        OUTCOME.validate_json(path.read_bytes())
    except ValidationError:
        path.replace(path.with_name(f"{path.name}.invalid-{uuid.uuid4().hex[:8]}"))


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

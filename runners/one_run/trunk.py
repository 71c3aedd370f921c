"""The stable phase that runs of several lengths share: saved at its end by one, begun from by the longer ones.

A run whose schedule is stable before it decays (`wsd`) writes its state at the end of the stable phase to
`<study>/stable/<trunk_id>/epoch-00000008.ckpt`. A run of the same spec, but for length and decay, that finds one of no
more than its own stable epochs begins there, and ends with the same bits as if it had begun anew. These files may be
deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import plain
from vitinit.runners.basics.setting import Setting
from vitinit.runners.training.checkpoint import pack, read


@dataclass(frozen=True)
class Trunk:
    """The stable phase of a run, as it lies in the results folder."""

    folder: Path
    epochs: int
    """Length of the stable phase, in epochs."""
    report: Callable[[str], None]
    """Told, in one line, what cannot be read or written. It never ends the run."""

    def saved(self) -> Iterator[dict[str, Any]]:
        """States that the run can begin from, the latest first."""
        for epoch, path in sorted(self._files().items(), reverse=True):
            if epoch <= self.epochs:
                try:
                    yield read(path)
                except (OSError, ValueError) as error:
                    self.report(f"{path} is passed over: {plain(str(error), 300)}")

    def save(self, state: dict[str, Any]) -> None:
        """Write the state at the end of the stable phase; earlier ones, from which no longer run would begin, go."""
        path = self.folder / f"epoch-{self.epochs:08d}.ckpt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                write_atomically(path, pack(state))
            for epoch, earlier in self._files().items():
                if epoch < self.epochs:
                    earlier.unlink(missing_ok=True)
        except OSError as error:
            self.report(f"cannot keep the stable phase for longer runs: {path}: {error.strerror or error}")

    def _files(self) -> dict[int, Path]:
        with contextlib.suppress(OSError, ValueError):
            return {int(path.stem.removeprefix("epoch-")): path for path in self.folder.glob("epoch-*.ckpt")}
        return {}


def trunk_of(spec: RunSpec, setting: Setting, report: Callable[[str], None]) -> Trunk | None:
    """Return the stable phase of a run; None where its schedule has none, or nothing is to be reused.

    Runs that measure other things beside their training do not share it.
    """
    if spec.trunk_id is None or not setting.reuse_solutions:
        return None
    maps = setting.maps_at if setting.keep_maps else None
    measured = hashlib.sha256(repr((setting.probes, maps)).encode()).hexdigest()[:8]
    folder = setting.root / setting.study / "stable" / f"{spec.trunk_id}-{measured}"
    return Trunk(folder, spec.recipe.stable_epochs, report)

"""Probes of a run at its beginning and after each epoch; checkpoints contain their state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vitinit.benchmark.records.record import Probe
from vitinit.runners.loaders.base import Loader
from vitinit.runners.one_run.resume import Begun
from vitinit.runners.probes.keeping import GRAM_BATCH, GRAM_BATCHES, MAP_IMAGES, Snapshot, keep_maps, snapshot
from vitinit.runners.probes.take import IMAGES, chosen, take


class Observer:
    """Probes of one run, and the snapshots that it is to keep.

    Args:
        loader: of the run.
        held_out: how many images accuracy is measured on.
        probing: whether to measure probes.
        snapshots_at: the epochs after which to take snapshots, 0 for the beginning; empty for none.
        report: told, in one line, what cannot be measured.
    """

    def __init__(
        self,
        loader: Loader,
        held_out: int,
        probing: bool,
        snapshots_at: tuple[int, ...],
        report: Callable[[str], None],
    ) -> None:
        self.probing, self.snapshots_at, self.report = probing, snapshots_at, report
        self.probes: list[Probe] = []
        self.snapshots: dict[int, Snapshot] = {}
        self.targets_LHNN: Tensor | None = None
        count = GRAM_BATCH * GRAM_BATCHES if snapshots_at else IMAGES
        if probing or snapshots_at:
            self.images_BCHW = loader.plain(chosen(held_out, count), "held_out")

    def begin(self, begun: Begun) -> None:
        """At the beginning of a session: measure a model that has not been trained yet, or go on."""
        if begun.observed is None:
            self.targets_LHNN = begun.targets_LHNN
            self.see(begun.training.model, 0)
        else:
            self.load_state_dict(begun.observed, begun.training.epoch)

    def see(self, model: nn.Module, epoch: int, evaluated: bool = True) -> None:
        """Measure what is to be measured after this epoch; probes where the model is evaluated too."""
        if self.probing and evaluated:
            self.probes.append(take(model, self.images_BCHW[:IMAGES], self.targets_LHNN, epoch))
        if epoch in self.snapshots_at:
            self.snapshots[epoch] = snapshot(model, self.images_BCHW)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        return {
            "targets": self.targets_LHNN,
            "probes": [row.model_dump() for row in self.probes],
            "snapshots": {epoch: (each.maps_LHNN, each.grams_LBnn) for epoch, each in self.snapshots.items()},
        }

    def load_state_dict(self, state: dict[str, Any], epoch: int) -> None:
        """Take up a run in the middle; what was not measured up to this epoch cannot be, and is said to be missing."""
        self.targets_LHNN = state.get("targets")
        self.probes = [Probe.model_validate(row) for row in state.get("probes", [])]
        self.snapshots = {int(at): Snapshot(*each) for at, each in state.get("snapshots", {}).items()}
        if self.probing and not self.probes:
            self.probing = False
            self.report("probes are not recorded: the run began without them")
        if not self.probing:
            self.probes = []
        if self.snapshots and not self.snapshots_at:
            self.report("the attention maps kept so far are not written: --keep-maps is not given any more")
        if missing := [at for at in self.snapshots_at if at <= epoch and at not in self.snapshots]:
            # without those of the beginning and the end there is nothing to compare
            none = bool({0, max(self.snapshots_at)} & set(missing))
            self.snapshots_at = () if none else tuple(at for at in self.snapshots_at if at not in missing)
            which = "" if none else f" of epoch {', '.join(map(str, missing))}"
            past = f"the run is past epoch {missing[0]}, where it did not keep them"
            self.report(f"attention maps{which} are not kept: {past}")

    def keep(self, weights: str, path: Path) -> None:
        """Write the snapshots of a run that has ended, where it was to keep any.

        Args:
            weights: fingerprint after the last step.
            path: of the file.
        """
        if self.snapshots_at:
            keep_maps(self.snapshots, min(MAP_IMAGES, len(self.images_BCHW)), weights, path, self.report)

"""Probes and attention maps of a run, from its beginning on and after its epochs; checkpoints contain them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vitinit.benchmark.records.record import Probe
from vitinit.runners.loaders.base import Loader
from vitinit.runners.probes.keeping import GRAM_BATCH, GRAM_BATCHES, MAP_IMAGES, Snapshot, keep_maps, snapshot
from vitinit.runners.probes.take import IMAGES, chosen, take


class Observer:
    """Probes of one run, and the snapshots that it is to keep.

    Args:
        loader: of the run.
        held_out: how many images accuracy is measured on.
        probing: whether to measure probes.
        maps_at: the epochs after which to take snapshots, 0 for the beginning; empty for none.
        report: told, in one line, what cannot be measured.
    """

    def __init__(
        self,
        loader: Loader,
        held_out: int,
        probing: bool,
        maps_at: tuple[int, ...],
        report: Callable[[str], None],
    ) -> None:
        self.probing, self.maps_at, self.report = probing, maps_at, report
        self.probes: list[Probe] = []
        self.snapshots: dict[int, Snapshot] = {}
        self.targets_LHNN: Tensor | None = None
        if probing or maps_at:
            count = GRAM_BATCH * GRAM_BATCHES if maps_at else IMAGES
            self.images_BCHW = loader.plain(chosen(held_out, count), "held_out")

    def see(self, model: nn.Module, epoch: int, evaluated: bool = True) -> None:
        """Measure what is to be measured after this epoch; probes where the model is evaluated too."""
        if self.probing and evaluated:
            self.probes.append(take(model, self.images_BCHW[:IMAGES], self.targets_LHNN, epoch))
        if epoch in self.maps_at:
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
        self.probes = [Probe.model_validate(row) for row in state.get("probes", [])] if self.probing else []
        self.snapshots = {int(at): Snapshot(*each) for at, each in state.get("snapshots", {}).items()}
        if self.probing and not self.probes:
            self.probing = False
            self.report("probes are not recorded: the run began without them")
        if any(at <= epoch and at not in self.snapshots for at in self.maps_at):
            self.maps_at = ()
            self.report("attention maps are not kept: the run is past an epoch where it did not keep them")

    def keep(self, weights: str, path: Path) -> None:
        """Write the snapshots of a run that has ended, where it was to keep any.

        Args:
            weights: fingerprint after the last step.
            path: of the file.
        """
        if self.maps_at:
            wanted = {epoch: self.snapshots[epoch] for epoch in self.maps_at}
            keep_maps(wanted, min(MAP_IMAGES, len(self.images_BCHW)), weights, path, self.report)

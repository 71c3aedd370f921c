"""Tracker `tensorboard`: a folder of event files a run; `tensorboard --logdir` of the study's shows all."""

import json
import shutil
from typing import ClassVar, Literal

from vitinit.runners.tracking.tracker import TrackedRun, Tracker


class TensorBoard(Tracker):
    """Scalars by epoch, the config as text."""

    name: ClassVar[str] = "tensorboard"
    library: ClassVar[str] = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / run.run_id
        if run.first == 1:
            shutil.rmtree(folder, ignore_errors=True)
        self.writer = SummaryWriter(str(folder), purge_step=run.first if run.first > 1 else None)
        if run.first == 1:
            self.writer.add_text("config", f"```\n{json.dumps(run.config, indent=1)}\n```", 0)

    def log(self, epoch: int, values: dict[str, float]) -> None:
        """Write scalars."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self, status: Literal["done", "failed", "stopped"]) -> None:
        """Close the event file."""
        self.writer.close()

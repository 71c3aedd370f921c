"""Tracker `wandb`: Weights & Biases; offline unless WANDB_MODE says otherwise."""

import os
from typing import ClassVar, Literal

from vitinit.runners.tracking.tracker import TrackedRun, Tracker


class WandB(Tracker):
    """A run by its run_id, in the group of its study; the project is WANDB_PROJECT, or vitinit."""

    name: ClassVar[str] = "wandb"
    library: ClassVar[str] = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        run.folder.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "vitinit",
            id=run.run_id,
            name=run.run_id,
            group=run.study,
            config=run.config,
            dir=str(run.folder),
            mode=None if os.environ.get("WANDB_MODE") else "offline",
            resume="allow" if run.first > 1 else None,
            settings=wandb.Settings(silent=True, console="off", x_disable_meta=True, host=""),
        )
        self.run.define_metric("*", step_metric="epoch")

    def log(self, epoch: int, values: dict[str, float]) -> None:
        """Write a line of history, its step the epoch."""
        self.run.log({"epoch": epoch, **values}, step=epoch)

    def close(self, status: Literal["done", "failed", "stopped"]) -> None:
        """Finish the session; a stopped run can be resumed."""
        self.run.finish(exit_code=int(status == "failed"))

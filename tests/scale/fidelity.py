"""Attention that each solver puts on its target on a ViT-T: `PYTHONPATH=. python tests/scale/fidelity.py`, minutes.

Writes results/reference/fidelity/vit_tiny/fidelity.json: the environment as in a record, and what a record says of
initialisation (`init`) for each row and seed; nothing is trained. Real images are those that a run is measured on.
"""

import json
import os
from pathlib import Path

import torch
import yaml

from vitinit.benchmark.datasets.registry import load
from vitinit.benchmark.grids.grid import resolve_model, resolve_recipe
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.streams import stream
from vitinit.runners.basics.environment import code, environment
from vitinit.runners.loaders.base import make_loader
from vitinit.runners.one_run.carry_out import PROBE_IMAGES

OUT = Path(__file__).parents[2] / "results/reference/fidelity/vit_tiny/fidelity.json"
SEEDS = (0, 1, 2)
ROWS = yaml.safe_load(Path(__file__).with_name("fidelity.yaml").read_bytes())


def measured(row, seed, images_BCHW):
    """Return the `init` of a record of this row and seed, without its offset maps."""
    model, params = ROWS[row].values()
    report, _ = initialize_run(
        build_model(resolve_model(model), 10),
        registry.build("kaiming_uniform", {}),
        registry.build("impulse", params),
        lambda name: stream(seed, name),
        images_BCHW,
    )
    init = report.model_dump(mode="json", exclude={"offset_maps"})
    print(f"{row}, seed {seed}: real images {init['real_images']['mass']:.3f}", flush=True)
    return {"row": row, "seed": seed, "model": model, "params": params, "init": init}


if __name__ == "__main__":
    torch.set_num_threads(1)
    data = load(DatasetSpec(name="cifar10"), 32, Path(os.environ.get("VITINIT_DATA", "data")))
    loader = make_loader(data, resolve_recipe({"name": "small"}), 0, torch.device("cpu"))
    probe = torch.randperm(len(data.train.labels), generator=stream(0, "probe"))[:PROBE_IMAGES]
    images_BCHW = loader.plain(probe)
    rows = [measured(row, seed, images_BCHW) for row in ROWS for seed in SEEDS]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    content = {"environment": environment(torch.device("cpu"), code()), "images": "cifar10", "rows": rows}
    OUT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

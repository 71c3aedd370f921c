"""Initial weights: `python -m tests.golden.weights --write` computes those of `weights.yaml` anew.

A line of `cases` is model, base, method and seeds. Runs of `grid` keep their weights, and its learning rate is too
small to change any. To add a case or a row, write it there and call `--write`.

A fingerprint is the number of tensors that the method excludes from training, and two sums over all tensors of the
state, weighted by name, type and shape: of the logarithm of the norm, and of a random projection of the direction.
Processors differ in the last bits, so fingerprints are compared to `TOLERANCE`. Where these bits decide the signs of
singular vectors or the steps of Adam (`loose`: part of a name), the projection is left out.
"""

import json
import pydoc
import sys
import tempfile
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import timm
import torch
import yaml

import vitinit
from tests.golden.cli import answer

FILE = Path(__file__).with_name("weights.yaml")
GOLDEN = yaml.safe_load(FILE.read_bytes())
RUNS = "run"
NAMES = [*GOLDEN["models"], RUNS]
TOLERANCE = 1e-3


def build(described):
    """Build a model without pretrained weights; with `sincos`, the benchmark's position embedding."""
    fields = dict(described)
    name, sincos = fields.pop("name"), fields.pop("sincos", None)
    torch.manual_seed(0)
    create = pydoc.locate(name) if "." in name else partial(timm.create_model, name)
    model = create(num_classes=10, **fields)
    if sincos:
        del model.pos_embed
        grid, width = model.patch_embed.grid_size, model.embed_dim
        model.register_buffer("pos_embed", timm.layers.build_sincos2d_pos_embed(grid, width)[None])
    return model


def run(grid):
    """Run a grid; return the state that each run kept, by row and seed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "weights.yaml").write_text(json.dumps(grid))
        options = "--device cpu --executor inline --keep-weights --no-probes"
        said = answer(f"vitinit run {folder}/weights.yaml --results {name} --data-dir {name} {options}")
        assert said.endswith("exit 0\n"), said
        runs = vitinit.records("weights", folder)
        kept = folder / "weights/weights"
        return {f"{run.row} {run.seed}": torch.load(kept / f"{run.run_id}.pt") for run in runs.itertuples()}


def fingerprint(untrained, state):
    """Sum over all tensors; see the module."""
    norms = projections = 0.0
    for name, value in sorted(state.items()):
        tensor = value.detach().double().flatten()
        digest = sha256(f"{name} {value.dtype} {list(value.shape)}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))
        signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
        norm, weight = float(tensor.norm()), 0.5 + digest[4] / 256
        norms += weight * float(torch.tensor(norm + 1e-9).log())
        projections += weight * float(signs.double() @ tensor) / (norm + 1e-9)
    return [untrained, round(norms, 5), round(projections, 5)]


def states(model):
    """Yield the name, the number of untrained tensors and the state of each case of a model, or of each run."""
    if model == RUNS:
        for name, state in run(GOLDEN["grid"]).items():
            yield f"{model}: {name}", 0, state
    for _, base, method, seeds in (case for case in GOLDEN["cases"] if case[0] == model):
        for seed in seeds:
            built = build(GOLDEN["models"][model])
            images_BCHW = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
            report = vitinit.initialize(built, method, base=base, seed=seed, batch=images_BCHW)
            yield f"{model}: {base}, {method}, {seed}", len(report.untrained), built.state_dict()


def differences(model):
    """Name each case or run whose fingerprint is another."""
    known = {name: fingerprint for name, fingerprint in GOLDEN["fingerprints"].items() if name.startswith(f"{model}: ")}
    lines = []
    for name, *state in states(model):
        compared = 2 if any(part in name for part in GOLDEN["loose"]) else 3
        old, new = known.pop(name, [np.nan])[:compared], fingerprint(*state)[:compared]
        if not np.allclose(old, new, 0, TOLERANCE):
            lines.append(f"{name}: {old} became {new}")
    return lines + [f"{name}: is gone" for name in known]


def main():
    """Compute all anew."""
    assert sys.argv[1:] == ["--write"], "pytest tests/golden compares"
    torch.set_num_threads(1)
    GOLDEN["fingerprints"] = {name: fingerprint(*state) for model in NAMES for name, *state in states(model)}
    FILE.write_text(yaml.safe_dump(GOLDEN, sort_keys=False, default_flow_style=None, width=10**6))


if __name__ == "__main__":
    main()

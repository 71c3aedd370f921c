"""Initial weights: `python -m tests.golden.weights` compares those of `weights.json`, `--write` computes them anew.

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
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from torch import Tensor, nn

import vitinit
from tests.golden.cli import answer

FILE = Path(__file__).with_name("weights.json")
TOLERANCE = 1e-3
State = dict[str, Tensor]


def build(described: dict[str, Any]) -> nn.Module:
    """Build a model without pretrained weights; with `sincos`, the benchmark's position embedding."""
    fields = dict(described)
    name, sincos = fields.pop("name"), fields.pop("sincos", None)
    torch.manual_seed(0)
    create: Any = pydoc.locate(name) if "." in name else partial(timm.create_model, name)
    model = create(num_classes=10, **fields)
    if sincos:
        del model.pos_embed
        grid, width = model.patch_embed.grid_size, model.embed_dim
        model.register_buffer("pos_embed", timm.layers.build_sincos2d_pos_embed(grid, width)[None])
    return model


def initialized(described: dict[str, Any], base: Any, method: Any, seed: int) -> tuple[int, State]:
    """Initialise a new model; return the number of untrained tensors and the state."""
    model = build(described)
    images_BCHW = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    report = vitinit.initialize(model, method, base=base, seed=seed, batch=images_BCHW)
    return len(report.untrained), model.state_dict()


def run(grid: dict[str, Any]) -> dict[str, State]:
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


def fingerprint(untrained: int, state: State) -> list[float]:
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


def states(golden: dict[str, Any]) -> Iterator[tuple[str, int, State]]:
    """Yield the name, the number of untrained tensors and the state of each case and run."""
    torch.set_num_threads(1)
    for model, base, method, seeds in golden["cases"]:
        for seed in seeds:
            yield f"{model}: {base}, {method}, {seed}", *initialized(golden["models"][model], base, method, seed)
    for name, state in run(golden["grid"]).items():
        yield f"run: {name}", 0, state


def differences(golden: dict[str, Any]) -> list[str]:
    """Name each case and run whose fingerprint is another."""
    known = dict(golden["fingerprints"])
    lines = []
    for name, *state in states(golden):
        compared = 2 if any(part in name for part in golden["loose"]) else 3
        old, new = known.pop(name, [np.nan])[:compared], fingerprint(*state)[:compared]
        if not np.allclose(old, new, 0, TOLERANCE):
            lines.append(f"{name}: {old} became {new}")
    return lines + [f"{name}: is gone" for name in known]


def main() -> None:
    """Compare, or write."""
    golden = json.loads(FILE.read_text())
    if sys.argv[1:] == ["--write"]:
        golden["fingerprints"] = {name: fingerprint(*state) for name, *state in states(golden)}
        FILE.write_text(written(golden))
    else:
        sys.exit("\n".join(differences(golden)) or 0)


def written(golden: dict[str, Any]) -> str:
    """Return JSON with a line for each case and fingerprint."""
    head, last, tail = json.dumps(golden).replace('], ["', '],\n["').partition('"fingerprints": {')
    for key in golden:
        head = head.replace(f', "{key}"', f',\n"{key}"')
    return f"{head}{last}\n" + tail.replace('], "', '],\n"') + "\n"


if __name__ == "__main__":
    main()

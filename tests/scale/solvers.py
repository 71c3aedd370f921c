"""What impulse solvers cost: `gradient` beside a plain loop over layers and heads, closed forms for a whole ViT-B.

Run by `make bench-solvers`. The two are timed in turn; what counts is the ratio of their medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.family import ModelSpec
from vitinit.benchmark.models.vit import ViT
from vitinit.initializers import registry
from vitinit.initializers.attention import position_embedding, token_grid
from vitinit.initializers.methods.impulse.solvers import Gradient, Problem
from vitinit.initializers.pseudo_input import pseudo_input
from vitinit.initializers.targets import head_offsets, target_matrices, target_positions

ROUNDS = 5
TINY = ViT(image_size=32, patch_size=2, width=192, depth=12, heads=3)
BASE = ViT(image_size=224, patch_size=16, width=768, depth=12, heads=12)
LEARNED = BASE.model_copy(update={"position": "learned", "pool": "token"})


def plain_loop(problem: Problem, steps: int) -> None:
    """Layer by layer and head by head, with autograd, as one would write it first."""
    pseudo_ND = problem.pseudo_ND
    for positions_HN2, (query_HDd, key_HDd) in zip(problem.positions_LHN2, problem.draws_L, strict=True):
        targets_HNN = target_matrices(problem.grid, positions_HN2)
        queries = [torch.nn.Parameter(part.clone()) for part in query_HDd]
        keys = [torch.nn.Parameter(part.T.clone()) for part in key_HDd]
        optimizer = torch.optim.Adam([*queries, *keys], lr=1e-4)
        for step in range(steps):
            if step % 100 == 0:
                with torch.no_grad():
                    for query, key in zip(queries, keys, strict=True):
                        query /= query.norm(dim=0, keepdim=True)
                        key /= key.norm(dim=0, keepdim=True)
            loss = torch.zeros(())
            for query, key, target_NN in zip(queries, keys, targets_HNN, strict=True):
                logits_NN = (pseudo_ND @ query) @ (key @ pseudo_ND.T) * problem.features**-0.5
                loss = loss + (logits_NN.softmax(-1) - target_NN).square().sum()
            optimizer.zero_grad()
            (loss / targets_HNN.numel()).backward()
            optimizer.step()


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def gradient(label: str, spec: ModelSpec, layers: int, steps: int) -> None:
    embedding_ND: Tensor = position_embedding(build_model(spec, 10))
    if spec.position == "learned":
        embedding_ND = torch.randn(embedding_ND.shape, generator=torch.Generator().manual_seed(1))
    pseudo_ND, features = pseudo_input(embedding_ND), spec.width // spec.heads
    grid, generator = token_grid(build_model(spec, 10)), torch.Generator().manual_seed(0)
    solver = Gradient(steps=steps)
    problem = Problem(
        pseudo_ND,
        grid,
        features,
        torch.stack([target_positions(grid, head_offsets(3, spec.heads, "random", generator)) for _ in range(layers)]),
        [solver.draw(pseudo_ND, spec.heads, features, generator) for _ in range(layers)],
    )
    loop, ours = [], []
    for _ in range(ROUNDS):
        loop.append(seconds(lambda: plain_loop(problem, steps)) / steps)
        with torch.no_grad():
            ours.append(seconds(lambda: solver.solve(problem, lambda done, total: None)) / steps)
    before, now = (1000 * statistics.median(times) for times in (loop, ours))
    print(
        f"gradient, {label}: plain loop {before:.2f} ms a step, ours {now:.2f} ms, ratio {before / now:.1f}", flush=True
    )


def closed_form(label: str, spec: ModelSpec, solver: str, per_layer: bool) -> None:
    model, method = build_model(spec, 10), registry.build("impulse", {"solver": solver, "per_layer": per_layer})
    registry.build("kaiming_uniform", {}).apply(model, torch.Generator().manual_seed(0), lambda done, total: None)

    def apply() -> None:
        method.apply(model, torch.Generator().manual_seed(0), lambda done, total: None)

    median = statistics.median(seconds(apply) for _ in range(ROUNDS))
    print(f"{solver}, {label}, per_layer {per_layer}: {median:.2f} s", flush=True)


if __name__ == "__main__":
    print(f"{torch.get_num_threads()} threads, medians of {ROUNDS}")
    for label, spec in (("ViT-B, sin-cos", BASE), ("ViT-B, learned", LEARNED)):
        for solver in ("svd", "rotation"):
            for per_layer in (False, True):
                closed_form(label, spec, solver, per_layer)
    gradient("ViT-T at patch 2", TINY, 1, 400)
    gradient("ViT-T at patch 2, per layer", TINY, 12, 30)
    gradient("ViT-B, sin-cos", BASE, 1, 40)
    gradient("ViT-B, learned", LEARNED, 1, 40)
    gradient("ViT-B, sin-cos, per layer", BASE, 12, 10)

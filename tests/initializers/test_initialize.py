"""`initialize`: the order of base and method, what it refuses, and every number of its report worked out by hand."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from small_models import (
    VIT,
    differing,
    f64,
    images,
    layer_norm,
    loop_targets,
    model,
    qkv_rows,
    softmax,
    state,
    streams,
)
from torch import Tensor, nn

from vitinit.initializers import registry
from vitinit.initializers.diagnostics import attention_input
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.initialize import fidelity, initialize, offset_maps
from vitinit.initializers.registry import Initializer, Job
from vitinit.initializers.report import InitReport


def base() -> Initializer:
    return registry.build("kaiming_uniform", {}, "base")


# --- fidelity ------------------------------------------------------------------------------------------------------


def test_fidelity_counts_rows_with_a_target_only_in_mass_and_argmax() -> None:
    """2 x 2 grid, offset one to the right: queries 0 and 2 have the targets 1 and 3, queries 1 and 3 have none."""
    targets = torch.tensor(loop_targets(2, 2, [(0, 1)]), dtype=torch.float32)
    attention = torch.tensor([[0.1, 0.6, 0.2, 0.1], [1.0, 0.0, 0.0, 0.0], [0.4, 0.3, 0.1, 0.2], [0.0, 0.0, 1.0, 0.0]])
    found = fidelity(attention[None, None], targets)
    assert found.mass == pytest.approx((0.6 + 0.2) / 2)
    assert found.argmax == pytest.approx(1 / 2), "query 0 hits, query 2 looks at token 0"
    squares = (0.01 + 0.16 + 0.04 + 0.01) + 1.0 + (0.16 + 0.09 + 0.01 + 0.64) + 1.0
    assert found.mse == pytest.approx(squares / 16), "all cells, as in the loss of 2404.01139"


# --- offset maps ---------------------------------------------------------------------------------------------------


def test_offset_map_is_a_mean_over_the_queries_whose_token_is_inside() -> None:
    rows, columns, r = 4, 3, 2
    attention = torch.rand(2, 12, 12, generator=torch.Generator().manual_seed(0)).softmax(-1)
    maps = np.array(offset_maps(attention, (rows, columns), r))
    assert maps.shape == (2, 5, 5)
    for h in range(2):
        for m in range(-r, r + 1):
            for n in range(-r, r + 1):
                values = [
                    float(attention[h, row * columns + col, (row + m) * columns + col + n])
                    for row in range(rows)
                    for col in range(columns)
                    if 0 <= row + m < rows and 0 <= col + n < columns
                ]
                assert abs(maps[h, m + r, n + r] - np.mean(values)) < 2e-6


# --- the report ----------------------------------------------------------------------------------------------------


def test_report_of_impulse_equals_numbers_from_the_weights() -> None:
    m = model(VIT)
    method = registry.build("impulse", {"offsets": "fixed"})
    report, _ = initialize(m, base(), method, streams(0), images(3))
    targets = loop_targets(8, 8, [(0, 0), (-1, 0), (0, 1), (0, -1)])
    has = targets.any(-1)
    query, key, _ = qkv_rows(m)
    d = 12
    pseudo = layer_norm(f64(m.pos_embed)[0])
    bias = f64(m.blocks[0].attn.qkv.bias)
    real = f64(attention_input(m, images(3)))

    on_pseudo = np.stack([softmax(pseudo @ q.T @ k @ pseudo.T / np.sqrt(d)) for q, k in zip(query, key, strict=True)])
    on_real = np.stack(
        [
            softmax(
                (real @ query[h].T + bias[h * d : (h + 1) * d])
                @ (real @ key[h].T + bias[48 + h * d : 48 + (h + 1) * d]).transpose(0, 2, 1)
                / np.sqrt(d)
            )
            for h in range(4)
        ],
        axis=1,
    )
    for found, attention in ((report.pseudo_input, on_pseudo[None]), (report.real_images, on_real)):
        assert found.mse == pytest.approx(((attention - targets) ** 2).mean(), rel=1e-3)
        assert found.mass == pytest.approx((attention * targets).sum(-1)[:, has].mean(), rel=1e-3)
        assert found.argmax == pytest.approx((attention.argmax(-1) == targets.argmax(-1))[:, has].mean(), abs=0.02)
    assert report.images == 3
    maps = np.array(report.offset_maps)
    assert maps.shape == (4, 7, 7)
    up = [on_real[:, 1, r * 8 + c, (r - 1) * 8 + c] for r in range(1, 8) for c in range(8)]
    assert maps[1, 2, 3] == pytest.approx(np.mean(up), abs=2e-5)
    assert set(report.method_parameters) == {"blocks.0.attn.qkv.weight", "blocks.1.attn.qkv.weight"}
    assert report.seconds > 0
    assert InitReport.model_validate_json(report.model_dump_json()) == report


# --- order and refusals --------------------------------------------------------------------------------------------


class Scripted(Initializer):
    """Does what `script` says; not registered."""

    name: ClassVar[str] = "scripted"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)

    script: str = ""

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> Tensor | None:
        parameters = dict(model.named_parameters())
        weight = parameters["blocks.1.attn.qkv.weight"]
        if self.script == "double":
            weight.mul_(2)
        elif self.script == "rogue":
            parameters["head.bias"].add_(1)
        elif self.script == "rogue buffer":
            model.get_buffer("pos_embed").mul_(2)
        elif self.script == "train":
            model.train().requires_grad_(False)
        elif self.script in ("nan", "inf"):
            weight[0, 0] = float(self.script)
        return None


def test_the_method_sees_the_base_and_has_the_last_word() -> None:
    plain, doubled = model(VIT, seed=1), model(VIT, seed=2)
    initialize(plain, base(), None, streams(0))
    report, _ = initialize(doubled, base(), Scripted(script="double"), streams(0))
    assert torch.equal(doubled.blocks[1].attn.qkv.weight, 2 * plain.blocks[1].attn.qkv.weight)
    assert differing(state(plain), state(doubled)) == {"blocks.1.attn.qkv.weight"} == set(report.method_parameters)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("rogue", "scripted.*head.bias.*touches"),
        ("rogue buffer", "scripted.*pos_embed.*touches"),
        ("nan", r"scripted.*not finite.*blocks\.1\.attn\.qkv\.weight"),
        ("inf", r"scripted.*not finite.*blocks\.1\.attn\.qkv\.weight"),
    ],
)
def test_an_undeclared_tensor_or_a_value_that_is_not_finite_is_an_error_that_names_it(script: str, says: str) -> None:
    with pytest.raises(VitinitError, match=says):
        initialize(model(VIT), base(), Scripted(script=script), streams(0))

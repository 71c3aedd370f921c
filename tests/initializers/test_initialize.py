"""`initialize`: the order of base and method, what it refuses, and every number of its report worked out by hand."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from small_models import (
    CONVIT,
    VIT,
    VIT_TOKEN,
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
from vitinit.initializers.registry import Initializer, Progress
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


def test_fidelity_is_a_mean_over_heads_and_images() -> None:
    targets = torch.tensor(loop_targets(2, 2, [(0, 0), (0, 0)]), dtype=torch.float32)
    good, bad = torch.eye(4), torch.eye(4).flip(0)
    found = fidelity(torch.stack([torch.stack([good, bad]), torch.stack([good, good])]), targets)
    assert (found.mass, found.argmax, found.mse) == (0.75, 0.75, 2 * 4 / 64)


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


@pytest.mark.parametrize(("grid", "side"), [((8, 8), 7), ((2, 5), 3), ((5, 2), 3), ((1, 1), 1)])
def test_offset_map_shrinks_with_the_grid(grid: tuple[int, int], side: int) -> None:
    n = grid[0] * grid[1]
    maps = np.array(offset_maps(torch.full((2, n, n), 1 / n), grid, 3))
    assert maps.shape == (2, side, side)
    np.testing.assert_allclose(maps, 1 / n, atol=1e-6)


# --- the report ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [VIT_TOKEN, CONVIT], ids=["vit_token", "convit"])
def test_norms_are_frobenius_per_head(spec: Any) -> None:
    m = model(spec)
    report, _ = initialize(m, base(), registry.build("mimetic", {}), streams(0))
    assert [entry.layer for entry in report.norms] == [f"blocks.{i}.attn" for i in range(spec.depth)]
    for block, entry in zip(m.blocks, report.norms, strict=True):
        weight = f64(block.attn.qk.weight if hasattr(block.attn, "qk") else block.attn.qkv.weight)
        heads = weight[: 2 * spec.width].reshape(2, spec.heads, -1)
        assert entry.query == pytest.approx(np.sqrt((heads[0] ** 2).sum(-1)), rel=1e-5)
        assert entry.key == pytest.approx(np.sqrt((heads[1] ** 2).sum(-1)), rel=1e-5)


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


@pytest.mark.parametrize(("name", "with_images"), [(None, False), ("mimetic", True)])
def test_fields_without_a_target_or_without_images_are_none(name: str | None, with_images: bool) -> None:
    method = registry.build(name, {}) if name else None
    report, _ = initialize(model(VIT), base(), method, streams(0), images() if with_images else None)
    assert report.pseudo_input is None
    assert report.real_images is None
    assert (report.offset_maps is not None) == with_images
    assert report.images == (2 if with_images else 0)
    assert (report.method_parameters == []) == (name is None)


def test_the_mode_and_the_flags_that_a_method_sets_are_put_back() -> None:
    m = model(VIT)
    initialize(m, base(), Scripted(script="train"), streams(0))
    assert not any(module.training for module in m.modules())
    assert all(parameter.requires_grad for parameter in m.parameters())


def test_images_and_measuring_do_not_influence_a_parameter() -> None:
    states = []
    for given in (None, images(2, seed=1), 100 * images(5, seed=2)):
        m = model(VIT)
        initialize(m, base(), registry.build("impulse", {}), streams(0), given)
        states.append(state(m))
    assert differing(states[0], states[1]) == differing(states[0], states[2]) == set()


@pytest.mark.parametrize(("pseudo_input", "steps"), [("position", 4), ("normal", 8)], ids=["at once", "in turn"])
def test_progress_reaches_the_end(pseudo_input: str, steps: int) -> None:
    seen: list[tuple[int, int]] = []
    solver = {"name": "gradient", "steps": 4}
    method = registry.build("impulse", {"solver": solver, "pseudo_input": pseudo_input, "per_layer": True})
    initialize(model(VIT), base(), method, streams(0), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (steps, steps)
    assert seen == sorted(seen)


def test_measuring_a_placebo_is_no_part_of_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but while it measures."""
    clock = [0.0]

    def measured(*_: Any) -> list[Any]:
        clock[0] += 100.0
        return []

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr("vitinit.initializers.initialize.starts", measured)
    report, _ = initialize(model(VIT), base(), registry.build("placebo", {"of": "mimetic"}), streams(0))
    assert (clock, report.seconds) == ([200.0], 0.0)


# --- order and refusals --------------------------------------------------------------------------------------------


class Scripted(Initializer):
    """Does what `script` says; not registered."""

    name: ClassVar[str] = "scripted"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)

    script: str = ""

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, progress: Progress) -> Tensor | None:
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


def test_a_base_that_forgets_a_parameter_full_of_nan_is_noticed() -> None:
    class Forgetful(type(base())):  # type: ignore[misc]
        name: ClassVar[str] = "forgetful"

        def linear(self, module: nn.Linear, generator: torch.Generator) -> None:
            """Leaves every Linear as it is."""

    m = model(VIT)
    nn.init.constant_(m.head.weight, float("nan"))
    with pytest.raises(VitinitError, match=r"forgetful.*not finite.*head\.weight"):
        initialize(m, Forgetful(), None, streams(0))

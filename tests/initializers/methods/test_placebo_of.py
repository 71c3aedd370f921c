"""What `placebo` takes as `of`: defaults, methods from elsewhere, what is refused, grids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from placebo_helpers import made, placebo
from small_models import CONVIT, VIT, f64

from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.fitting import fit, resolve_initializer
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.methods.zero_query import ZeroQuery


def test_defaults_are_filled_in_so_that_identity_does_not_depend_on_them() -> None:
    short = resolve_initializer(placebo("impulse"), "method")
    assert short == resolve_initializer({"name": "placebo", "of": {"name": "impulse", "kernel_size": 3}}, "method")
    assert short.params["of"] == {"name": "impulse", **resolve_initializer({"name": "impulse"}, "method").params}
    assert "control" not in short.params["of"], "parameters that came later are left out at their defaults"
    assert short != resolve_initializer(placebo({"name": "impulse", "control": "shuffled_rows"}), "method")


def test_a_method_from_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "their_placebo_module.py").write_text(
        "from typing import ClassVar\nimport torch\nfrom vitinit.initializers.registry import Initializer\n\n"
        "class Theirs(Initializer):\n"
        "    name: ClassVar[str] = 'theirs_in_a_placebo'\n    touches: ClassVar[tuple[str, ...]] = ('head.*',)\n"
        "    rogue: bool = False\n"
        "    @torch.no_grad()\n"
        "    def apply(self, model, generator, progress):\n"
        "        model.head.weight.copy_(2 * torch.eye(*model.head.weight.shape))\n        model.head.bias.fill_(3)\n"
        "        if self.rogue:\n            model.pos_embed.mul_(2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))
    m, report = made(placebo("their_placebo_module:Theirs"))
    np.testing.assert_allclose(np.linalg.svd(f64(m.head.weight), compute_uv=False), 2, rtol=1e-6)
    assert np.abs(f64(m.head.weight)).max() < 1.5, "no identity any more"
    assert (m.head.bias == 3).all()
    assert report.placebo.treated == {"head.weight": "rotated", "head.bias": "kept"}
    with pytest.raises(VitinitError, match=r"theirs_in_a_placebo.*pos_embed.*touches"):
        made(placebo({"name": "their_placebo_module:Theirs", "rogue": True}))


SWIN = resolve_model(
    {"timm": "swin_tiny_patch4_window7_224", "img_size": 32, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]}
)


@pytest.mark.parametrize(
    ("of", "spec", "keep"),
    [
        ("impulse", SWIN, "spectrum"),
        ({"name": "convit_gpsa", "conv_init": False}, CONVIT, "norm"),
        ("zero_query", VIT, "entropy"),
    ],
    ids=["tables", "gates", "zeros"],
)
def test_what_has_no_pattern_has_no_placebo_and_a_plan_says_so(of: Any, spec: Any, keep: str) -> None:
    base, method = ({"name": "kaiming_uniform"}, placebo(of, keep))
    assert "no weight of" in fit(spec, base, method).misfit
    assert fit(spec, base, {"name": of} if isinstance(of, str) else of).misfit == ""
    if spec is SWIN:
        assert fit(SWIN, base, placebo({"name": "impulse", "value_proj": "mimetic"})).misfit == ""


@pytest.mark.parametrize("keep", ["spectrum", "norm"])
def test_a_placebo_that_would_be_the_method_is_refused(keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the method does not know that it has no pattern."""
    monkeypatch.setattr(ZeroQuery, "patterned", registry.Initializer.patterned)
    with pytest.raises(VitinitError, match=r"'placebo': what 'zero_query' sets in .* stays as it is .* no control"):
        made(placebo("zero_query", keep))


GRID = """
title: Is it the pattern?
rows:
  Kaiming: {base: kaiming_uniform}
  Impulse: {base: kaiming_uniform, method: &impulse {name: impulse, solver: rotation, weight_norm: 4}}
  Placebo: {base: kaiming_uniform, method: {name: placebo, of: *impulse}}
  Entropy: {base: kaiming_uniform, method: {name: placebo, of: {name: impulse, weight_norm: 4}, keep: entropy}}
  Filters: {base: kaiming_uniform, method: {name: placebo, of: conv_filters, keep: entropy}}
blocks:
  - datasets: [digits]
    model: {preset: vit_micro, image_size: 8, patch_size: 2}
    recipe: small
    seeds: [0]
"""


def test_a_grid_names_placebos(here: Any, tmp_path: Path) -> None:
    path = tmp_path / "placebos.yaml"
    path.write_text(GRID.replace("\n  Filters", "\n  # Filters"))
    cells = {cell.row: cell for cell in grid.load(str(path)).cells}
    assert list(cells) == ["Kaiming", "Impulse", "Placebo", "Entropy"]
    method = cells["Placebo"].spec.method
    assert method.params == {"of": {"name": "impulse", **cells["Impulse"].spec.method.params}, "keep": "spectrum"}
    again = {cell.row: cell.run_id for cell in grid.load(str(path)).cells}
    assert again == {row: cell.run_id for row, cell in cells.items()}, "read again from the cache"
    exit_code, printed = here("plan", str(path))
    assert exit_code == 0, printed
    assert all(cell.run_id in printed for cell in cells.values())

    path.write_text(GRID)
    with pytest.raises(VitinitError, match=r"row 'Filters': method 'placebo': .*conv_filters"):
        grid.load(str(path))

"""What `placebo` takes as `of`: defaults, methods from elsewhere, what is refused, grids."""

from __future__ import annotations

from typing import Any

import pytest
from placebo_helpers import made, placebo
from small_models import CONVIT, VIT

from vitinit.benchmark.grids.fitting import misfit, resolve_initializer
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.methods.zero_query import ZeroQuery


def test_defaults_are_filled_in_so_that_identity_does_not_depend_on_them() -> None:
    short = resolve_initializer(placebo("impulse"), "method")
    assert short == resolve_initializer({"name": "placebo", "of": {"name": "impulse", "kernel_size": 3}}, "method")
    assert short.params["of"] == {"name": "impulse", **resolve_initializer({"name": "impulse"}, "method").params}
    assert "control" not in short.params["of"], "parameters that came later are left out at their defaults"
    assert short != resolve_initializer(placebo({"name": "impulse", "control": "shuffled_rows"}), "method")


@pytest.mark.parametrize(
    ("of", "spec", "keep"),
    [({"name": "convit_gpsa", "conv_init": False}, CONVIT, "norm"), ("zero_query", VIT, "entropy")],
    ids=["gates", "zeros"],
)
def test_what_has_no_pattern_has_no_placebo_and_a_plan_says_so(of: Any, spec: Any, keep: str) -> None:
    def why(named: Any) -> str:
        return misfit(spec, InitializerSpec(name="kaiming_uniform"), resolve_initializer(named, "method"))

    assert "no weight of" in why(placebo(of, keep))
    assert why({"name": of} if isinstance(of, str) else of) == ""


@pytest.mark.parametrize("keep", ["spectrum", "norm"])
def test_a_placebo_that_would_be_the_method_is_refused(keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the method does not know that it has no pattern."""
    monkeypatch.setattr(ZeroQuery, "patterned", registry.Initializer.patterned)
    with pytest.raises(VitinitError, match=r"'placebo': what 'zero_query' sets in .* stays as it is .* no control"):
        made(placebo("zero_query", keep))

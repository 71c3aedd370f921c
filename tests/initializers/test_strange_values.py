"""Numbers that nothing holds, tensors that are none, and plug-ins that would end the process."""

from __future__ import annotations

import signal
from typing import Any, ClassVar

import numpy as np
import pytest
import timm
import torch
from small_models import differing, images, state
from torch import nn

import vitinit
from initializers import registry
from initializers.registry import Initializer

TINY: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4, "num_classes": 3}


def tiny(**more: Any) -> Any:
    return timm.models.VisionTransformer(**TINY, **more)


@pytest.mark.parametrize(
    ("method", "given"),
    [("mimetic", {"alpha_qk": 1e308}), ("impulse", {"position_scale": 1e38}), ("mimetic", {"mlp_mean": 1e308})],
)
def test_numbers_beyond_float32_are_one_line(method: str, given: dict[str, float]) -> None:
    model = tiny()
    before = state(model)
    with pytest.raises(vitinit.VitinitError) as caught:
        vitinit.initialize(model, method, base="trunc_normal", **given)
    assert "\n" not in str(caught.value)
    assert differing(before, state(model)) == set()


def test_a_parameter_whose_elements_are_one_number_is_refused() -> None:
    model = tiny()
    model.head.weight = nn.Parameter(torch.zeros(3, 1).expand(3, 48))
    with pytest.raises(vitinit.VitinitError, match=r"'head\.weight'"):
        vitinit.initialize(model, base="trunc_normal")


@pytest.mark.parametrize("wrong", [images(2).to_sparse(), images(2).to("meta"), images(2).to(torch.complex64)])
def test_images_without_plain_numbers_are_refused(wrong: torch.Tensor) -> None:
    with pytest.raises(vitinit.VitinitError, match="plain numbers"):
        vitinit.initialize(tiny(), "lsuv", images=wrong)


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), np.int64(1)])
def test_a_layer_scale_of_numpy_is_a_number(value: Any) -> None:
    model = tiny(init_values=1e-5)
    report = vitinit.initialize(model, layer_scale=value)
    assert (model.blocks[0].ls1.gamma == float(value)).all()
    assert type(report.layer_scale) is float


class Plain(Initializer):
    """Does nothing."""

    name: ClassVar[str] = "plain_in_a_test"
    touches: ClassVar[tuple[str, ...]] = ("*",)

    def apply(self, model: nn.Module, generator: torch.Generator, progress: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names()
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))


@pytest.mark.parametrize("value", [np.float32(0.1), np.zeros(3), object()])
def test_a_default_that_no_record_holds_is_refused_where_it_is_registered(value: Any) -> None:
    class Odd(Plain):
        name: ClassVar[str] = "odd_in_a_test"
        share: Any = value

    with pytest.raises(vitinit.VitinitError, match="default of 'share'"):
        registry.register(Odd)
    assert "odd_in_a_test" not in [one.name for one in vitinit.initializers()]


def test_a_parameter_without_default_is_listed() -> None:
    class Needs(Plain):
        name: ClassVar[str] = "needs_in_a_test"
        share: float

    registry.register(Needs)
    listed = {one.name: one for one in vitinit.initializers()}["needs_in_a_test"]
    assert listed.parameters == {"share": "(to be given)"}
    assert "needs_in_a_test" in repr(vitinit.initializers())
    assert vitinit.initialize(tiny(), "needs_in_a_test", share=1.0).method == {"name": "needs_in_a_test", "share": 1.0}


class Ending(Plain):
    """Ends the process, where it is told to."""

    name: ClassVar[str] = "ending_in_a_test"
    at: str = "apply"
    by: str = "SystemExit"

    def end(self, at: str) -> None:
        if at == self.at and self.by == "signal":
            signal.raise_signal(signal.SIGINT)
        if at == self.at:
            raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[self.by]("3")

    def check(self, model: nn.Module) -> None:
        self.end("check")

    def freeze(self, model: nn.Module) -> None:
        self.end("freeze")

    def remark(self, model: nn.Module) -> str:
        self.end("remark")
        return ""

    def apply(self, model: nn.Module, generator: torch.Generator, progress: Any) -> None:
        nn.init.zeros_(model.get_submodule("head").weight)  # type: ignore[arg-type]
        self.end("apply")


@pytest.mark.parametrize("by", ["SystemExit", "KeyboardInterrupt"])
@pytest.mark.parametrize("at", ["check", "apply", "freeze", "remark"])
def test_a_method_does_not_end_the_process(at: str, by: str) -> None:
    registry.register(Ending)
    model = tiny()
    before, handler = state(model), signal.getsignal(signal.SIGINT)
    with pytest.raises(vitinit.VitinitError, match=by):
        vitinit.initialize(model, "ending_in_a_test", at=at, by=by)
    assert differing(before, state(model)) == set()
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_stays_ctrl_c() -> None:
    registry.register(Ending)
    with pytest.raises(KeyboardInterrupt):
        vitinit.initialize(tiny(), "ending_in_a_test", by="signal")


def test_impulses_take_where_positions_are_learned_unless_told_otherwise() -> None:
    report = vitinit.initialize(tiny(), "impulse")
    assert report.attention_on_target is not None
    assert report.uniform is not None
    assert report.attention_on_target > 5 * report.uniform
    assert "position_scale=18" in report.remarks[0]
    asked = vitinit.initialize(tiny(), "impulse", solver="rotation")
    assert asked.method is not None
    assert asked.method["position_scale"] == 1


def test_a_report_is_five_lines_and_more_on_demand() -> None:
    report = vitinit.initialize(tiny(), "impulse", base="trunc_normal")
    lines = str(report).splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
    assert len(report.details().splitlines()) > len(report.changes)
    page = report._repr_html_()
    assert all(change.name in page for change in report.changes)
    assert page.count("<tr>") == len(report.changes) + 1

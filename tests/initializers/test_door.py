"""`vitinit.initialize`: all or nothing, one function in every library; initialisers from elsewhere."""

import random
import re
import sys
from typing import get_args

import numpy as np
import pytest
import torch
import zoo
from small_models import differing, facts, generator, global_state, images, refused, state, tiny
from torch import nn

import vitinit
from vitinit.initializers import methods, registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.methods.mimetic import Mimetic
from vitinit.initializers.registry import Initializer, WeightName
from vitinit.initializers.streams import stream


@torch.no_grad()
@pytest.mark.parametrize(
    ("base", "method"),
    [("kaiming_uniform", "mimetic"), ("trunc_normal", "impulse"), ("orthogonal", "conditioned"), ("jax_vit", None)],
)
@pytest.mark.parametrize("name", ["torchvision ViT", "Hugging Face ViT"])
def test_one_seed_is_one_function_in_every_library(name, base, method):
    outputs = []
    for m in (zoo.build(name, 1), zoo.build("timm ViT", 2)):
        vitinit.initialize(m, method, base=base, seed=5)
        *_, head = (module for module in m.modules() if isinstance(module, nn.Linear))
        if not head.weight.any():
            nn.init.normal_(head.weight, generator=generator())
        for module in m.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = 1e-6  # libraries differ in it, which is no weight
        outputs.append(zoo.logits(m))
    assert outputs[0].std() > 0.01
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-4)


def test_autocast_inference_mode_and_default_devices_reach_nothing_and_hooks_stay():
    m, other, seen = zoo.build("timm ViT"), zoo.build("timm ViT"), list[str]()
    m.blocks[0].register_forward_hook(lambda *_: seen.append("called"))
    before = facts(m)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode(), torch.device("meta"):
        vitinit.initialize(m, "impulse", base="trunc_normal", seed=3)
    vitinit.initialize(other, "impulse", base="trunc_normal", seed=3)
    assert differing(state(m), state(other)) == set()
    assert facts(m) == before
    torch.set_default_dtype(torch.float64)  # of all threads
    try:
        refused(m, r"^first torch\.set_default_dtype\(torch\.float32\): ", "impulse")
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    m(images(1))
    assert seen == ["called"]


@pytest.mark.parametrize(
    ("name", "base", "method"),
    [
        ("timm ViT", "kaiming_uniform", "impulse"),
        ("timm ViT", "trunc_normal", "placebo"),
        ("timm ViT", "moco_v3", None),
        ("timm ConvMixer", "kaiming_uniform", "conv_filters"),
    ],
)
def test_it_gives_the_numbers_of_a_run_of_the_benchmark(name, base, method):
    ours, theirs = zoo.build(name, 1), zoo.build(name, 2)
    report = vitinit.initialize(ours, method, base=base, seed=7)
    recorded, _ = initialize_run(theirs, report.base, report.method, lambda name: stream(7, name))
    assert differing(state(ours), state(theirs)) == set()
    if report.attention_on_target is not None:
        assert recorded.pseudo_input.mass == report.attention_on_target


def test_the_report_says_what_changed_in_four_lines_with_whole_names():
    m = zoo.build("timm ViT")
    before = state(m)
    report = vitinit.initialize(m, "impulse", seed=1, solver="rotation")
    assert {change.name for change in report.changes} == {f"blocks.{i}.attn.qkv.weight" for i in (0, 1)}
    for change in report.changes:
        assert change.before == pytest.approx(float(before[change.name].norm()))
        assert change.after == pytest.approx(float(m.get_parameter(change.name).detach().norm()))
        assert change.shape == (144, 48)
    assert str(report).splitlines() == [
        "method: impulse(solver={'name': 'rotation'})",
        "VisionTransformer, seed 1: 2 tensors changed: blocks.0.attn.qkv.weight to blocks.1.attn.qkv.weight",
        f"aim: {report.attention_on_target:.3f} of the first layer's attention is on its target (uniform: 0.062)",
        "also: near uniform; for learned positions: solver='svd', position_scale=18",
    ]
    assert report.attention_on_target < 2 * report.uniform == 2 / 16
    report = vitinit.initialize(m, "impulse", base="trunc_normal", solver="svd", position_scale=18)
    assert report.attention_on_target > 2 * report.uniform
    assert str(report).splitlines()[-1] == "no remarks"
    report = vitinit.initialize(zoo.build("timm ConvMixer"), "conv_filters", base="trunc_normal")
    assert str(report).splitlines()[-1] == "also: blocks.0.0.fn.0.weight (exclude from training) (and 4 more)"


def test_the_catalogue_prints_one_entry_after_the_other_and_errors_are_cut():
    known = vitinit.catalogue("method")
    (entry,) = (entry for entry in known if entry.name == "depth_scaled")
    assert str(entry).startswith(
        "method depth_scaled(rule='fix_init'): W_proj and the last Linear of each MLP are\n    div"
    )
    assert "\nmethod zero_branch() [arXiv 2003.04887, 2002.10444]: W_proj and the last Linear\n    of" in repr(known)
    for length, end in ((4_000, "x"), (4_001, "…")):
        said = str(vitinit.VitinitError("x" * length))
        assert (len(said), said[-1]) == (4_000, end)


def test_a_model_that_holds_one_will_do_and_one_that_holds_two_will_not():
    m = nn.ModuleDict({"student": zoo.build("timm ViT"), "head": nn.Linear(10, 3)})
    report = vitinit.initialize(m, "impulse", base="trunc_normal", seed=4)
    alone = zoo.build("timm ViT", 1)
    vitinit.initialize(alone, "impulse", base="trunc_normal", seed=4)
    assert differing(state(m["student"]), state(alone)) == set()
    assert "head.weight" in {change.name for change in report.changes}
    refused(
        nn.ModuleDict({"student": zoo.build("timm ViT"), "teacher": zoo.build("timm ViT", 1)}),
        "holds 2 models .'student' and 'teacher'.: give one of them",
        "impulse",
        base="trunc_normal",
    )


SCALED = ("timm ViT registers, layer scale", "timm ResMLP", "Hugging Face DINOv2")


@pytest.mark.parametrize("name", SCALED)
def test_layer_scales_are_the_librarys_unless_they_are_asked_for(name):
    pattern = re.compile(r"\.(gamma|gamma_\d|gamma\d|ls\d|lambda1)$")
    m = zoo.build(name)
    scales = {n: p.detach().clone() for n, p in m.named_parameters() if pattern.search(n)}
    assert len(scales) >= 4, "two branches in each of two blocks"
    vitinit.initialize(m, base="kaiming_uniform")
    assert all(torch.equal(m.get_parameter(n), before) for n, before in scales.items())
    rest = state(m)
    report = vitinit.initialize(m, layer_scale=0.25)
    assert {change.name for change in report.changes} == scales.keys() == differing(rest, state(m))
    assert all((m.get_parameter(n) == 0.25).all() for n in scales)
    assert "layer scales: 0.25" in str(report)


# --- initialisers from elsewhere: a file in the package, an entry point, a dotted path; and names that are wrong ---


PLUGIN = '''
"""Method `{name}`: W_proj of every layer is a scaled identity."""

from typing import ClassVar

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from vitinit.plugins import Initializer, Job, attention_layers, register


@register
class ScaledIdentity(Initializer):
    """W_proj = scale I."""

    name: ClassVar[str] = "{name}"
    touches: ClassVar[tuple[str, ...]] = ("*.attn.proj.weight",)
    deterministic: ClassVar[bool] = True

    scale: PositiveFloat = 0.5

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> Tensor | None:
        for layer in attention_layers(model):
            layer.proj_DD.copy_(self.scale * torch.eye(layer.proj_DD.shape[0]))
        return None
'''


def entry_point(folder, project, name, value):
    """Write a dist-info folder with the entry point, as `pip install` does."""
    info = folder / f"{project}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[vitinit.initializers]\n{name} = {value}\n")


@pytest.fixture
def discovery(monkeypatch, tmp_path):
    """A folder on the path; discovery starts anew, and what is registered here is forgotten afterwards."""
    registry.names()
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))
    monkeypatch.setattr(registry.REGISTRY, "searched", False)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_a_dropped_file_an_entry_point_and_a_dotted_path_are_found(discovery, monkeypatch):
    dropped = discovery / "dropped"
    dropped.mkdir()
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(dropped)])  # as if the file lay in the package
    for file, name in (("dropped/dropped_file", "dropped"), ("their_package", "theirs"), ("dotted_module", "dotted")):
        (discovery / f"{file}.py").write_text(PLUGIN.format(name=name))
    # an undecorated class is enough behind an entry point
    (discovery / "bare.py").write_text(PLUGIN.format(name="bare").replace("@register\n", ""))
    entry_point(discovery, "their-package", "theirs", "their_package:ScaledIdentity")
    entry_point(discovery, "bare-package", "bare", "bare:ScaledIdentity")
    assert {"mimetic", "impulse", "dropped", "theirs", "bare"} < set(registry.names("method"))
    assert "dotted" not in registry.names(), "a dotted path is not searched for"
    for name in ("dropped", "theirs", "bare", "dotted_module:ScaledIdentity"):
        m = tiny()
        vitinit.initialize(m, name, scale=0.25)
        assert all(torch.equal(block.attn.proj.weight, 0.25 * torch.eye(48)) for block in m.blocks)
    vitinit.run({"A": {"base": "zero", "method": "theirs"}}, "digits", results=discovery, dry_run=True)


@pytest.mark.parametrize(
    ("source", "value", "says"),
    [
        (
            "raise RuntimeError('two\\nlines')\n",
            "broken_plugin:Class",
            "'broken' .broken_plugin:Class. cannot be loaded: RuntimeError: two lines",
        ),
        ("raise SystemExit(3)\n", "broken_plugin:Class", "loaded: SystemExit: 3"),
        ("class Class: pass\n", "broken_plugin:Class", "broken_plugin:Class is not an Initializer class"),
        (
            PLUGIN.format(name="mimetic"),
            "broken_plugin:ScaledIdentity",
            "'mimetic': in vitinit.initializers.methods.mimetic.Mimetic and in broken_plugin",
        ),
    ],
)
def test_a_broken_entry_point_is_one_line_that_names_it(discovery, source, value, says):
    (discovery / "broken_plugin.py").write_text(source)
    entry_point(discovery, "broken-package", "broken", value)
    with pytest.warns(UserWarning, match=says):
        assert "mimetic" in registry.names(), "it is needed for nothing else"


def test_a_class_may_be_registered_again_and_say_what_it_sets():
    assert registry.register(registry.get("impulse")).__qualname__ == "Impulse"
    assert vitinit.initialize(tiny(), type("Mine", (Mimetic,), {"apply": lambda *_: None})()).changes == (), (
        "an instance is of its own class"
    )
    given = {"name": "even_in_a_test", "touches": ("*",), "sets": get_args(WeightName), "apply": lambda *_: None}
    registry.register(type("Even", (Initializer,), given))
    assert "even_in_a_test" in registry.names("method")


# --- what code of somebody's does ------------------------------------------------------------------------------------


class Scripted(Initializer):
    """Clears the head at every call; in one of them does what `script` says."""

    name = "scripted"
    touches = ("*.weight",)
    script: str = ""
    at: str = "apply"

    def check(self, model):
        self.act(model, "check")

    def freeze(self, model):
        self.act(model, "freeze")

    def apply(self, model, generator, job):
        self.act(model, "apply")

    @torch.no_grad()
    def act(self, model, at):
        model.head.weight.zero_()
        script = self.script if at == self.at else ""
        if script in ("exit", "Ctrl-C"):
            raise SystemExit("3") if script == "exit" else KeyboardInterrupt
        if script == "draw":
            nn.init.normal_(model.blocks[1].attn.qkv.weight, np.random.rand(), random.random())


def test_what_a_method_draws_from_global_generators_is_a_function_of_the_seed():
    registry.register(Scripted)
    m, before = tiny(), global_state()
    first, other, again = (
        vitinit.initialize(m, "scripted", script="draw", seed=seed).changes[0].after for seed in (1, 2, 1)
    )
    assert first == again != other
    assert global_state() == before


@pytest.mark.parametrize(("script", "error"), [("Ctrl-C", KeyboardInterrupt), ("exit", SystemExit)])
@pytest.mark.parametrize("at", ["check", "apply", "freeze"])
def test_what_ends_a_method_ends_it_and_changes_nothing(script, error, at):
    registry.register(Scripted)
    m = tiny()
    before = facts(m), global_state(), state(m)
    with pytest.raises(error):
        vitinit.initialize(m, "scripted", script=script, at=at)
    assert (facts(m), global_state()) == before[:2]
    assert differing(before[2], state(m)) == set()

"""`vitinit.initialize`: all or nothing, nothing else changed, the same function in every library."""

import re

import pytest
import torch
import zoo
from small_models import differing, facts, generator, images, refused, state
from torch import nn

import vitinit
from vitinit.initializers.apply import initialize_run
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
    report = vitinit.initialize(zoo.build("timm ViT"), "conditioned", base="trunc_normal")
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


def test_impulses_that_do_not_take_are_said():
    small = zoo.TABLE["timm ViT"] | {"img_size": 64}
    report = vitinit.initialize(zoo.timm(small), "impulse", base="trunc_normal")
    assert report.uniform == 1 / 64
    assert report.attention_on_target < 2 / 64
    assert report.remarks == ("near uniform; for learned positions: solver='svd', position_scale=18",)
    report = vitinit.initialize(zoo.timm(small), "impulse", base="trunc_normal", solver="svd", position_scale=18)
    assert report.attention_on_target > 2 / 64
    assert report.remarks == ()


def test_a_model_that_holds_one_will_do_and_one_that_holds_two_will_not():
    m = nn.ModuleDict({"student": zoo.build("timm ViT"), "head": nn.Linear(10, 3)})
    report = vitinit.initialize(m, "impulse", base="trunc_normal", seed=4)
    alone = zoo.build("timm ViT", 1)
    vitinit.initialize(alone, "impulse", base="trunc_normal", seed=4)
    assert differing(state(m["student"]), state(alone)) == set()
    assert "head.weight" in {change.name for change in report.changes}
    two = nn.ModuleDict({"student": zoo.build("timm ViT"), "teacher": zoo.build("timm ViT", 1)})
    refused(two, "holds 2 models .'student' and 'teacher'.: give one of them", "impulse", base="trunc_normal")


SCALED = (
    "timm ViT registers, layer scale",
    "timm ResMLP",
    "Hugging Face DINOv2",
)


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

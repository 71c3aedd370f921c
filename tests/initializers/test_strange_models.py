"""`vitinit.initialize` on models that are not what they seem: shared, computed, of other types, in strange blocks."""

import copy
import importlib

import pytest
import torch
import zoo
from small_models import differing, refused, state, tiny
from timm.models.mlp_mixer import MixerBlock
from torch import nn

import vitinit

BASE = {"base": "trunc_normal"}


# --- parameters that several modules share --------------------------------------------------------------------------


def one_proj(m):
    for block in m.blocks:
        block.attn.proj.weight = m.blocks[0].attn.proj.weight


def one_mlp(m):
    m.blocks[2].mlp = m.blocks[0].mlp


@pytest.mark.parametrize(
    ("share", "method"),
    [(one_proj, "depth_scaled"), (one_proj, "placebo"), (one_mlp, "zero_branch")],
)
def test_a_shared_parameter_is_refused_where_the_method_sets_it(share, method):
    m = tiny()
    share(m)
    refused(m, "shares: it is made for layers with parameters of their own", method, **BASE)
    vitinit.initialize(m, "zero_query")  # which leaves it alone


def test_a_base_sets_a_block_that_is_repeated():
    repeated, plain = tiny(), tiny(depth=1)
    repeated.blocks = nn.Sequential(*[repeated.blocks[0]] * 2)
    for model in (repeated, plain):
        vitinit.initialize(model, **BASE)
    assert all(torch.equal(repeated.get_parameter(name), parameter) for name, parameter in plain.named_parameters())
    refused(repeated, "'blocks.1.attn.qkv.weight' shares", "mimetic")


def test_a_student_and_its_teacher_stay_equal():
    student = tiny()
    both = nn.ModuleDict({"net": student, "ema": copy.deepcopy(student)})
    student.extra = nn.Parameter(torch.ones(3, 3))
    refused(both, r"equal parts \('net', 'ema'\)", "mimetic")
    vitinit.initialize(both["net"], "mimetic")
    online = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(9, 3))
    refused(nn.ModuleDict({"online": online, "target": copy.deepcopy(online).half()}), "'online', 'target'", **BASE)
    for tower in (online, encoder()):
        refused(nn.ModuleList([tower, copy.deepcopy(tower)]), "'0', '1'", **BASE)
    vitinit.initialize(encoder(), **BASE)  # whose layers PyTorch copies
    mixer = MixerBlock(16, 9)
    vitinit.initialize(nn.ModuleList([mixer, copy.deepcopy(mixer)]), **BASE)
    towers = nn.ModuleDict({"image": tiny(), "text": tiny()})
    for _ in range(2):  # which the first call makes equal
        vitinit.initialize(towers, base="zero")


def test_an_empty_buffer_and_whole_numbers_are_no_trouble():
    m = tiny()
    m.register_buffer("cache", torch.empty(0))
    m.order = nn.Parameter(torch.arange(16), requires_grad=False)
    before = state(m)
    vitinit.initialize(m, "mimetic")
    assert differing(before, state(m)) == {
        f"blocks.{block}.attn.{name}.weight" for block in range(3) for name in ("qkv", "proj")
    }


def test_another_view_of_the_same_numbers_is_refused_and_numbers_side_by_side_are_not():
    m, both = tiny(), torch.randn(48, 96)
    m.blocks[1].attn.proj.weight.data = m.blocks[0].attn.proj.weight.data
    refused(m, r"'blocks\.0\.attn\.proj\.weight' is another view of numbers of another parameter", "mimetic")
    for block, half in zip(m.blocks, both.chunk(2, 1), strict=False):
        block.attn.proj.weight.data = half
    plain = tiny()
    for model in (m, plain):
        vitinit.initialize(model, **BASE)
    assert torch.equal(both, torch.cat([block.attn.proj.weight for block in plain.blocks[:2]], 1))


# --- positions that are fixed, memory that is not there -------------------------------------------------------------


def test_fixed_positions_stay_and_a_base_says_it_whatever_else_it_says():
    fixed = tiny()
    fixed.pos_embed.requires_grad_(False).copy_(torch.arange(17 * 48).view(1, 17, 48) / 100)
    kept = fixed.pos_embed.clone()
    said = "base zero: fixed positions (requires_grad is False) are left as they are: pos_embed"
    assert vitinit.initialize(fixed, base="zero").remarks == (said,)
    assert torch.equal(fixed.pos_embed, kept)
    said = "fixed positions (requires_grad is False) are left as they are: a.pos_embed, b.pos_embed"
    both = nn.ModuleDict({"a": tiny(), "b": tiny()})
    for model in both.values():
        model.pos_embed.requires_grad_(False)
    assert vitinit.initialize(both, **BASE).remarks == (f"base trunc_normal: {said}",)


# --- blocks ----------------------------------------------------------------------------------------------------------


def encoder(**more):
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, **more), 2, enable_nested_tensor=False
    )


def test_blocks_of_two_streams_are_not_counted_as_one():
    towers = nn.ModuleDict({"image": encoder(norm_first=True), "text": encoder(norm_first=True)})
    refused(towers, "blocks in several places, as of 'image.* and 'text.*: give one of them", "depth_scaled", **BASE)
    vitinit.initialize(towers["text"], "depth_scaled", **BASE)


# --- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "method"), [(torch.bfloat16, "impulse"), (torch.float16, "mimetic"), (torch.float64, "impulse")]
)
def test_any_float_type_has_the_float32_numbers_rounded_once(dtype, method):
    plain, other = zoo.build("timm ViT"), zoo.build("timm ViT").to(dtype)
    for model in (plain, other):
        vitinit.initialize(model, method, **BASE, seed=3)
    for (name, ours), theirs in zip(other.named_parameters(), plain.parameters(), strict=True):
        assert ours.dtype == dtype
        assert torch.equal(ours, theirs.to(dtype)), name


# --- what a base says ------------------------------------------------------------------------------------------------


def test_a_base_says_that_norms_started_at_zero_and_that_convolutions_are_set_alike():
    resnet = importlib.import_module("timm").create_model("resnet18", zero_init_last=True)
    ends = [name for name, parameter in resnet.named_parameters() if name.endswith("weight") and not parameter.any()]
    assert len(ends) == 8
    assert vitinit.initialize(resnet, **BASE).remarks == (
        "base trunc_normal: 96% of the numbers are in convolutions, which kaiming_uniform and trunc_normal set alike",
        f"weights that began at 0, as at the end of branches, are no longer: {', '.join(ends)}",
    )
    fused = tiny()
    fused.blocks[0].attn.qkv.weight.data[96:] = 0
    fused.blocks[1].mlp.fc2.weight.data[:, :9] = 0
    (remark,) = vitinit.initialize(fused, **BASE).remarks
    assert remark.endswith("no longer: blocks.0.attn.qkv.weight, blocks.1.mlp.fc2.weight")


def test_transformers_leaves_alone_what_is_initialised_and_positions_that_it_interpolates_are_refused():
    transformers = pytest.importorskip("transformers", reason="no transformers: make test-libraries")
    small = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    with torch.device("meta"):
        vit = transformers.ViTModel(transformers.ViTConfig(**small, image_size=32, patch_size=8))
    vit.to_empty(device="cpu")
    vitinit.initialize(vit, **BASE)
    before = state(vit)
    more = {"is_decoder": True, "add_cross_attention": True, "vocab_size": 9}
    decoder = transformers.BertLMHeadModel(transformers.BertConfig(**small, intermediate_size=48, **more))
    transformers.VisionEncoderDecoderModel(encoder=vit, decoder=decoder)
    assert differing(before, state(vit)) == set()
    wide = transformers.Dinov2Model(transformers.Dinov2Config(**small, image_size=(56, 224), patch_size=14))
    refused(wide, "^Dinov2Model of 56 x 224 interpolates its positions as from a square$", "impulse")
    vitinit.initialize(wide, "mimetic")

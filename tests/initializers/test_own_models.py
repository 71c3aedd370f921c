"""`vitinit.initialize` on models of one's own, and on models that are not what they seem."""

import copy
import importlib
from contextlib import contextmanager

import pytest
import torch
import zoo
from small_models import differing, refused, state, tiny
from timm.models.mlp_mixer import MixerBlock
from torch import nn

import vitinit
from vitinit import adapters, plugins
from vitinit.adapters import linear

UNKNOWN = "no adapter knows"
KEY, VALUE = adapters.fused("to_kv.weight", "to_kv.bias", of=2)


class Own(nn.Module):
    """Somebody's own attention."""

    def __init__(self):
        super().__init__()
        self.n_heads, self.to_q, self.to_kv, self.out = 4, nn.Linear(48, 48), nn.Linear(48, 96), nn.Linear(48, 48)
        self.few = nn.Parameter(torch.zeros(24, 48))


class Model(nn.Module):
    """Its model, with positions of 16 tokens and of one without a place."""

    def __init__(self):
        super().__init__()
        self.attention, self.where = Own(), nn.Parameter(torch.randn(17, 48))


def kind(**other):
    given = {"heads": "n_heads", "query": linear("to_q"), "key": KEY, "value": VALUE, "proj": linear("out")}
    return adapters.Attention(**{"types": (Own,), **given, **other})


REST = {
    "models": (Model,),
    "position": "where",
    "grid": lambda model: (4, 4),
    "parameters": {"where": "position", "*.few": 1.0},
}


@contextmanager
def registered(name, *kinds, **more):
    """Make an adapter with these kinds of attention known."""
    adapters.register(adapters.Adapter(name, attention=kinds, **more))
    try:
        yield
    finally:
        adapters.unregister(name)


def test_an_own_model_takes_a_dozen_lines_and_an_adapter_of_one_name_replaces_the_first():
    refused(Model(), UNKNOWN, "mimetic")
    with registered("ours", kind(query=linear("to_query"))):
        refused(Model(), "^adapter 'ours': 'to_query.weight' leads to no parameter of Own", base="trunc_normal")
        adapters.register(adapters.Adapter("ours", attention=(kind(),), **REST))  # as a cell of a notebook, run again
        m = Model()
        assert len(vitinit.initialize(m, "impulse", base="kaiming_uniform").changes) == len(list(m.parameters()))
        vitinit.initialize(m, "mimetic")
        path = (m.attention.out.weight @ m.attention.to_kv.weight[48:]).detach()
        assert float(path.diagonal().mean()) == pytest.approx(-0.4, abs=0.05)
    refused(Model(), UNKNOWN, "mimetic")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"heads": "num_heads"}, "adapter 'wrong': W_q, .* and 'num_heads' is None"),
        ({"query": adapters.Part("to_q")}, "'to_q' leads to no parameter of Own"),
        ({"value": adapters.fused("to_q.weight", "", 5)[2]}, "W_q, W_k and W_v in Own have 48, 48 and 9.6 rows"),
        ({"value": adapters.Part("few")}, "have 48, 48 and 24 rows, W_proj takes 48, and 'n_heads' is 4"),
    ],
)
def test_what_is_wrong_in_an_adapter_is_one_line(wrong, why):
    with registered("wrong", kind(**wrong), **REST):
        refused(Model(), why, "impulse", base="kaiming_uniform", value_proj="mimetic")
    with registered("wrong", kind(), **{**REST, "position": "pos_emb"}):
        refused(Model(), "Model has no absolute position embedding 'pos_emb'", "impulse", base="kaiming_uniform")


def test_rules_of_ones_own_leave_what_other_adapters_say_of_the_type():
    with registered("mine", models=("timm.models.eva.Eva",), parameters={"mine": "keep"}):
        refused(zoo.build("timm EVA rotary"), "rotates queries and keys", "impulse", base="trunc_normal")


def test_an_adapter_of_a_wrapper_hides_no_model_inside_and_wins_over_what_is_known_of_it():
    """Nor does a pattern of its own for layer scales, which have the name of many a norm's weight, mean a norm."""
    m = nn.ModuleDict(
        {"net": zoo.build("timm ViT registers, layer scale"), "norm": type("RMSNorm", (Gain,), {})("gamma")}
    )
    with registered("ours", models=(nn.ModuleDict,), parameters={"*.gamma": "layer_scale", "net.cls_token": 0.5}):
        vitinit.initialize(m, "impulse", base="trunc_normal", layer_scale=0.25)
    for name, value in {"net.cls_token": 0.5, "net.blocks.1.ls2.gamma": 0.25, "norm.gamma": 1}.items():
        assert (m.get_parameter(name) == value).all(), name
    plain = Model()
    plain.pos_embed = plain.where
    with registered("ours", kind(), **REST | {"position": ""}):
        vitinit.initialize(plain, "impulse", base="trunc_normal")


# --- what only looks like a known model ------------------------------------------------------------------------------


class Rotating(nn.MultiheadAttention):
    """A subclass with a forward pass of its own may do anything."""

    def forward(self, *args, **kwargs):
        """Not its parent's."""
        return super().forward(*args, **kwargs)


def test_a_subclass_with_a_forward_pass_of_its_own_is_not_taken_for_its_parent():
    refused(nn.Sequential(Rotating(48, 4)), rf"{UNKNOWN} \(Rotating\)", "mimetic")
    Rotating.same_attention = True
    vitinit.initialize(nn.Sequential(Rotating(48, 4)), "mimetic")


class Gain(nn.Module):
    """An RMS norm as several libraries write it."""

    def __init__(self, name):
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.full((8,), 3.0)))


def test_what_else_a_norm_or_a_linear_has_needs_a_rule_and_the_rule_counts():
    norm = type("RMSNorm", (Gain,), {})
    more = nn.Linear(8, 8)
    more.sigma = nn.Parameter(torch.full((1,), 7.0))
    m = nn.Sequential(norm("offset"), norm("scale"), more)
    refused(m, r"no rule for the parameter '0\.offset'", base="kaiming_uniform")
    refused(nn.Sequential(more), r"no rule for the parameter '0\.sigma'", base="kaiming_uniform")
    with registered("ours", models=(nn.Sequential,), parameters={"0.offset": 0.5, "1.scale": 0.25, "*": 2.0}):
        vitinit.initialize(m, base="kaiming_uniform")
    assert [m[0].offset.tolist(), m[1].scale.tolist(), more.sigma.item()] == [[0.5] * 8, [0.25] * 8, 2]
    with registered("ours", models=(nn.Sequential,), parameters={"*": 0.0}):
        alive = nn.Sequential(norm("scale"), more)
        vitinit.initialize(alive, base="kaiming_uniform")
    assert alive[0].scale.tolist() == [1] * 8, "a pattern that does not name a norm"
    norms = nn.Sequential(*map(norm, ("weight", "gamma", "g", "scale", "bias", "beta")))
    vitinit.initialize(norms, base="kaiming_uniform")
    assert [parameter.mean().item() for parameter in norms.parameters()] == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("name", ["vit_base_patch16_siglip_224", "cait_xxs24_224", "xcit_nano_12_p16_224"])
def test_the_advice_of_an_error_leads_to_a_model_that_tells_images_apart(name):
    m = importlib.import_module("timm").create_model(
        name, depth=2, embed_dim=48, num_heads=4, img_size=64, num_classes=3
    )
    try:
        vitinit.initialize(m, base="trunc_normal")
    except vitinit.VitinitError as error:
        adapter = eval(str(error).partition("say how each starts: ")[2], {"vitinit": vitinit})
        try:
            assert vitinit.initialize(m, base="trunc_normal").remarks == ()
        finally:
            adapters.unregister(adapter)
    features = m.forward_features(torch.randn(2, 3, 64, 64))
    assert (features[0] - features[1]).abs().max() > 1e-3
    for name, parameter in m.named_parameters():
        assert parameter.any() or name.endswith("bias") or "cls_token" in name, name


# --- shared, computed, of other types, in strange blocks ---


BASE = {"base": "trunc_normal"}


# --- parameters that several modules share --------------------------------------------------------------------------


def one_proj(m):
    for block in m.blocks:
        block.attn.proj.weight = m.blocks[0].attn.proj.weight


def one_mlp(m):
    m.blocks[2].mlp = m.blocks[0].mlp


@pytest.mark.parametrize(
    ("share", "method"), [(one_proj, "depth_scaled"), (one_proj, "placebo"), (one_mlp, "zero_branch")]
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
    for block in (MixerBlock(16, 9), nn.ModuleList(nn.MultiheadAttention(48, 4) for _ in range(2))):
        vitinit.initialize(nn.ModuleList([block, copy.deepcopy(block)]), **BASE)
    for _ in range(2):  # which the first call makes equal
        vitinit.initialize(nn.ModuleDict({"image": tiny(), "text": tiny()}), base="zero")


def test_a_linear_that_embeds_patches_is_no_classifier():
    m = tiny()
    m.patch_embed.fc = nn.Linear(48, 48)
    vitinit.initialize(m, base="jax_vit")
    assert m.patch_embed.fc.weight.any()
    assert not m.head.weight.any()


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
    for method in ("depth_scaled", "impulse", "procedural"):
        refused(towers, "blocks in several places, as of 'image.* and 'text.*: give one of them", method, **BASE)
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


def test_a_base_says_what_started_at_zero_or_is_frozen_and_that_convolutions_are_set_alike():
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
    frozen = tiny()
    frozen.blocks[0].mlp.fc1.requires_grad_(False)
    (remark,) = vitinit.initialize(frozen, **BASE).remarks
    assert remark == "frozen weights (requires_grad is False) were set, too: blocks.0.mlp.fc1.weight"
    assert vitinit.initialize(nn.Sequential(nn.MultiheadAttention(48, 4)), base="mae").remarks == (
        "base mae: no MLP is known beside attention 0: its Linears are set as any other",
        "base mae: a classifier, if there is one, starts as any other Linear (none is called head, classifier or fc)",
    )


class Sevens(plugins.WholeModel):
    """Base with a field that ones of ours have, too."""

    name = "sevens"
    head_std: float = 0.5

    def matrix(self, weight_OI, *_):
        weight_OI.fill_(7)


def test_a_base_of_ones_own_sets_the_classifier_itself():
    vitinit.initialize(m := tiny(), base=Sevens())
    assert m.head.weight.eq(7).all()


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
